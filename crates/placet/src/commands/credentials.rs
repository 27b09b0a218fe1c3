//! `placet credentials`: what was minted for calls, as numbers, and the revocation of tokens.
//!
//! Owns the options and the words. A revocation is an entry of the approval service: who may enter one is policy's. No token is shown, and none is asked
//! for.

use clap::{Args as ClapArgs, Subcommand};
use placet_approvals::views::{Arrangement, DirectiveRequest};
use placet_engine::views::CredentialsView;
use placet_types::{
    directive::{DirectiveKind, REVOCATION_MS_MIN, Revocation},
    ids::DirectiveId,
};

use super::{
    approvals::entries::{self, Entries, arrange},
    times,
};
use crate::{
    client::{Client, ClientArgs},
    environment::Environment,
    failure::Outcome,
    output,
};

/// Look at what was minted for calls, and revoke tokens.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet credentials list\n  \
    placet credentials revoke --subject alice --reason \"her laptop is lost\"\n  \
    placet credentials revoke --subject alice --issuer https://login.example --reason \"left the company\" --for 31d\n  \
    placet credentials revocations\n  \
    placet credentials lift dir_01J… --reason \"it was the other alice\"")]
pub(crate) struct Args {
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to do with credentials.
#[derive(Debug, Subcommand)]
enum Action {
    /// Show what the node that answers has minted and keeps, as numbers.
    List,
    /// Take no token of a subject any more that was issued until now.
    Revoke(Revoke),
    /// List the revocations that are in force.
    Revocations(entries::Listing),
    /// Show one revocation.
    Show {
        /// The revocation.
        id: DirectiveId,
    },
    /// End a revocation: what it was about is taken again, if it has not expired.
    Lift(entries::End),
}

/// A revocation that is to be.
#[derive(Debug, ClapArgs)]
struct Revoke {
    /// The subject of the tokens, as their issuer names it (`sub`).
    #[arg(long)]
    subject: String,
    /// Only those of this issuer (`iss`) [default: every issuer of your tenant].
    #[arg(long)]
    issuer: Option<String>,
    /// For how long it is remembered: 1d to 31d [default: 1d, which is as long as any token lives].
    #[arg(long = "for", value_name = "TIME", value_parser = times::lasting)]
    lasts_ms: Option<u64>,
    /// Why; kept for the auditor.
    #[arg(long)]
    reason: String,
}

/// Does what was asked.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = &Client::of(&args.client, environment)?;
    let revocations = Entries { client, kind: DirectiveKind::Revocation };
    match &args.action {
        Action::List => list(client).await,
        Action::Revoke(wanted) => revoke(client, wanted).await,
        Action::Revocations(wanted) => revocations.list(wanted).await,
        Action::Show { id } => revocations.show(id).await,
        Action::Lift(end) => revocations.end(end).await,
    }
}

async fn list(client: &Client) -> Outcome {
    let view: CredentialsView = client.get(&["v1", "credentials"], &[]).await?;
    client.answer(&view, |view| {
        let services = match view.services.as_slice() {
            [] => "none configured".to_owned(),
            services => services.join(", "),
        };
        let rows = [
            ("token services", services),
            ("minted", view.minted.to_string()),
            ("reused", view.reused.to_string()),
            ("refused", view.refused.to_string()),
            ("kept now", view.kept.to_string()),
            ("subjects revoked", view.revoked.to_string()),
        ];
        output::table(["what", "on this node"], rows.map(|(what, value)| [what.to_owned(), value]));
    })
}

async fn revoke(client: &Client, wanted: &Revoke) -> Outcome {
    let new = DirectiveRequest {
        arrange: Arrangement::Revocation(Revocation {
            subject: wanted.subject.clone(),
            issuer: wanted.issuer.clone(),
        }),
        reason: wanted.reason.clone(),
        starts_at: None,
        lasts_ms: wanted.lasts_ms.unwrap_or(REVOCATION_MS_MIN),
    };
    arrange(client, &new).await
}
