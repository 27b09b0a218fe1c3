//! `placet credentials`: what was minted for calls, as numbers, and the revocation of tokens.
//!
//! Owns the options and the words. A revocation is an entry of the approval service: who may enter one is policy's. No token is shown, and none is asked
//! for.

use clap::{Args as ClapArgs, Subcommand};
use placet_approvals::views::Arrangement;
use placet_engine::views::CredentialsView;
use placet_types::{
    directive::{DirectiveKind, REVOCATION_MS_MIN, Revocation},
    ids::DirectiveId,
};

use super::approvals::{
    entries::{self, New},
    words,
};
use crate::{
    client::{Client, ClientArgs},
    environment::Environment,
    failure::{Exit, Outcome},
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
    #[arg(long = "for", value_name = "TIME", value_parser = words::lasting)]
    lasts_ms: Option<u64>,
    /// Why; kept for the auditor.
    #[arg(long)]
    reason: String,
}

/// Does what was asked.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = Client::of(&args.client, environment)?;
    let json = args.client.json;
    match &args.action {
        Action::List => list(&client, json).await,
        Action::Revoke(wanted) => revoke(&client, wanted, json).await,
        Action::Revocations(wanted) => {
            entries::list(&client, DirectiveKind::Revocation, wanted, json).await
        }
        Action::Show { id } => entries::show(&client, DirectiveKind::Revocation, id, json).await,
        Action::Lift(end) => entries::end(&client, DirectiveKind::Revocation, end, json).await,
    }
}

async fn list(client: &Client, json: bool) -> Outcome {
    let view: CredentialsView = client.get(&["v1", "credentials"], &[]).await?;
    if json {
        output::json(&view);
        return Ok(Exit::Ok);
    }
    let services = if view.services.is_empty() {
        "none configured".to_owned()
    } else {
        view.services.join(", ")
    };
    let rows = [
        ["token services".to_owned(), services],
        ["minted".to_owned(), view.minted.to_string()],
        ["reused".to_owned(), view.reused.to_string()],
        ["refused".to_owned(), view.refused.to_string()],
        ["kept now".to_owned(), view.kept.to_string()],
        ["subjects revoked".to_owned(), view.revoked.to_string()],
    ];
    output::table(["what", "on this node"], rows);
    Ok(Exit::Ok)
}

async fn revoke(client: &Client, wanted: &Revoke, json: bool) -> Outcome {
    let new = New {
        arrange: Arrangement::Revocation(Revocation {
            subject: wanted.subject.clone(),
            issuer: wanted.issuer.clone(),
        }),
        reason: wanted.reason.clone(),
        starts_at: None,
        lasts_ms: wanted.lasts_ms.unwrap_or(REVOCATION_MS_MIN),
    };
    entries::arrange(client, new, json).await
}
