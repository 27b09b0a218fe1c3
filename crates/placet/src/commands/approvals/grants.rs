//! `placet approvals grants`: standing grants.
//!
//! Owns how one is proposed from an approval.

use clap::{Args as ClapArgs, Subcommand};
use placet_approvals::views::{Arrangement, DirectiveRequest};
use placet_types::{
    approval::VoteChoice,
    digest::Digest,
    directive::{DirectiveKind, pattern::ArgumentPattern},
    ids::{ApprovalId, DirectiveId},
};

use super::{
    entries::{self, Entries, arrange},
    pattern::{self, Rule},
    show,
};
use crate::{
    client::Client,
    commands::times,
    failure::{Failure, Outcome},
};

/// Standing grants: calls that need not be asked about again, for a time and a number of uses.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet approvals grants list\n  \
    placet approvals grants propose apr_01J… --uses 10 --for 7d --starts-with /path=reports/ --reason \"monthly\" --digest sha256:…\n  \
    placet approvals grants approve dir_01J… --reason \"agreed\" --digest sha256:…\n  \
    placet approvals grants end dir_01J… --reason \"the work is done\"")]
pub(super) struct Args {
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to do with standing grants.
#[derive(Debug, Subcommand)]
enum Action {
    /// List those you may see.
    List(entries::Listing),
    /// Propose one from an approval that waits; you agree by that if it covers that call alone.
    Propose(Propose),
    /// Show one, with the digest a decision names.
    Show {
        /// The grant.
        id: DirectiveId,
    },
    /// Agree to one that was proposed.
    Approve(entries::Decide),
    /// Say no to one that was proposed.
    Deny(entries::Decide),
    /// End one before its time.
    End(entries::End),
}

/// A grant that is proposed.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Without a rule it covers exactly the arguments of the approval. Each rule loosens one place (a JSON Pointer); whatever\n\
    no rule loosens has to be the same."
)]
struct Propose {
    /// The approval it is proposed from.
    id: ApprovalId,
    /// How often it may be used.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    uses: u32,
    /// How long it lasts, such as 8h or 30d (the longest).
    #[arg(long = "for", value_name = "TIME", value_parser = times::lasting)]
    lasts_ms: u64,
    /// Let this argument be anything.
    #[arg(long, value_name = "PLACE", value_parser = pattern::any)]
    any: Vec<Rule>,
    /// Let this argument be any text that begins so.
    #[arg(long, value_name = "PLACE=TEXT", value_parser = pattern::starts_with)]
    starts_with: Vec<Rule>,
    /// Let this argument be a whole number up to this one.
    #[arg(long, value_name = "PLACE=NUMBER", value_parser = pattern::at_most)]
    at_most: Vec<Rule>,
    /// Why; kept for the auditor.
    #[arg(long)]
    reason: String,
    /// The digest that `placet approvals show` printed.
    #[arg(long)]
    digest: Digest,
}

/// Does what was asked.
pub(super) async fn run(client: &Client, args: &Args) -> Outcome {
    let entries = Entries { client, kind: DirectiveKind::Grant };
    match &args.action {
        Action::List(wanted) => entries.list(wanted).await,
        Action::Propose(args) => propose(client, args).await,
        Action::Show { id } => entries.show(id).await,
        Action::Approve(args) => entries.decide(VoteChoice::Approve, args).await,
        Action::Deny(args) => entries.decide(VoteChoice::Deny, args).await,
        Action::End(args) => entries.end(args).await,
    }
}

async fn propose(client: &Client, args: &Propose) -> Outcome {
    let new = DirectiveRequest {
        arrange: Arrangement::Grant {
            approval_id: args.id.clone(),
            pattern: pattern_of(client, args).await?,
            uses_max: args.uses,
            digest: args.digest,
        },
        reason: args.reason.clone(),
        starts_at: None,
        lasts_ms: args.lasts_ms,
    };
    arrange(client, &new).await
}

/// The pattern, where it is not exactly the arguments of the approval.
async fn pattern_of(client: &Client, args: &Propose) -> Result<Option<ArgumentPattern>, Failure> {
    let rules = [args.any.as_slice(), &args.starts_with, &args.at_most].concat();
    if rules.is_empty() {
        return Ok(None);
    }
    // What it is loosened from is what the digest is of: the server refuses it if that is no longer what is shown.
    let detail = show::read(client, &args.id).await?;
    Ok(Some(pattern::loosened(detail.preview(), &rules)))
}
