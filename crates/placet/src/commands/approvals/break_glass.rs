//! `placet approvals break-glass`: emergencies that policies opt in to.
//!
//! Owns the options.

use clap::{Args as ClapArgs, Subcommand};
use placet_approvals::views::{Arrangement, DirectiveRequest};
use placet_types::{
    approval::VoteChoice,
    directive::{BreakGlass, DirectiveKind},
    ids::{CapabilityId, DirectiveId, PrincipalId},
};

use super::entries::{self, Entries, arrange};
use crate::{client::Client, commands::times, failure::Outcome};

/// Break-glass records: emergencies that policies opt in to.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet approvals break-glass declare --ticket INC-4711 --for 1h --reason \"orders fail\"\n  \
    placet approvals break-glass confirm dir_01J… --reason \"seen it too\" --digest sha256:…\n  \
    placet approvals break-glass end dir_01J… --reason \"repaired\"\n  \
    placet approvals break-glass review dir_01J… --note \"three calls, all of them needed\"\n\n\
    It counts once a second person has confirmed it, and opens only what a policy says it opens. A third person reviews it afterwards.")]
pub(super) struct Args {
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to do with break-glass records.
#[derive(Debug, Subcommand)]
enum Action {
    /// Request emergency access.
    Declare(Declare),
    /// Confirm it, as a second person.
    Confirm(entries::Decide),
    /// Say no to it.
    Deny(entries::Decide),
    /// End it before its time.
    End(entries::End),
    /// Say afterwards what it was used for, as somebody who took no part.
    Review {
        /// The record.
        id: DirectiveId,
        /// What you found.
        #[arg(long)]
        note: String,
    },
    /// Show one, with the digest a decision names.
    Show {
        /// The record.
        id: DirectiveId,
    },
    /// List those that are open or wait for their review.
    List(entries::Listing),
}

/// A glass that is to be broken.
#[derive(Debug, ClapArgs)]
struct Declare {
    /// The incident it belongs to.
    #[arg(long)]
    ticket: String,
    /// For how long, such as 30m or 8h (the longest).
    #[arg(long = "for", value_name = "TIME", value_parser = times::lasting)]
    lasts_ms: u64,
    /// Only for this agent [default: all of the tenant].
    #[arg(long)]
    agent: Option<PrincipalId>,
    /// Only for this operation, as adapter/capability [default: all that policies let it open].
    #[arg(long, value_name = "ADAPTER/CAPABILITY")]
    capability: Option<CapabilityId>,
    /// Why; kept for the auditor.
    #[arg(long)]
    reason: String,
}

/// Does what was asked.
pub(super) async fn run(client: &Client, args: &Args) -> Outcome {
    let entries = Entries { client, kind: DirectiveKind::BreakGlass };
    match &args.action {
        Action::Declare(args) => declare(client, args).await,
        Action::Confirm(args) => entries.decide(VoteChoice::Approve, args).await,
        Action::Deny(args) => entries.decide(VoteChoice::Deny, args).await,
        Action::End(args) => entries.end(args).await,
        Action::Review { id, note } => entries.review(id, note).await,
        Action::Show { id } => entries.show(id).await,
        Action::List(wanted) => entries.list(wanted).await,
    }
}

async fn declare(client: &Client, args: &Declare) -> Outcome {
    let glass = BreakGlass {
        ticket: args.ticket.clone(),
        agent: args.agent.clone(),
        capability: args.capability.clone(),
    };
    let new = DirectiveRequest {
        arrange: Arrangement::BreakGlass(glass),
        reason: args.reason.clone(),
        starts_at: None,
        lasts_ms: args.lasts_ms,
    };
    arrange(client, &new).await
}
