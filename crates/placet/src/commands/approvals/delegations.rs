//! `placet approvals delegate` and `delegations`: a colleague decides in one's place.
//!
//! Owns the options.

use clap::{Args as ClapArgs, Subcommand};
use placet_approvals::views::{Arrangement, DirectiveRequest};
use placet_types::{
    clock::Timestamp,
    directive::{Delegation, DirectiveKind},
    ids::{DirectiveId, GroupId, PrincipalId},
};

use super::entries::{self, Entries, arrange};
use crate::{client::Client, commands::times, failure::Outcome};

/// A delegation of one's own duty.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet approvals delegate cleo --groups approvers --for 8h --reason \"on a plane\"\n  \
    placet approvals delegate cleo --groups approvers,legal --for 14d --from 2026-12-21T00:00+01:00 --reason \"holidays\"\n\n\
    The colleague's decisions name both of you, count for your groups, and only where both of you may decide.\n\
    It is for calls of your own tenant: what other tenants ask of your groups is decided by their members alone.")]
pub(super) struct Delegate {
    /// Who decides instead.
    colleague: PrincipalId,
    /// For which of your groups.
    #[arg(long, required = true, value_name = "GROUP", value_delimiter = ',')]
    groups: Vec<GroupId>,
    /// For how long, such as 8h or 31d (the longest).
    #[arg(long = "for", value_name = "TIME", value_parser = times::lasting)]
    lasts_ms: u64,
    /// From when on, such as 2026-12-24T18:00+01:00 [default: now].
    #[arg(long, value_name = "MOMENT", value_parser = times::moment)]
    from: Option<Timestamp>,
    /// Why; kept for the auditor.
    #[arg(long)]
    reason: String,
}

/// List delegations; end one.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet approvals delegations\n  \
    placet approvals delegations end dir_01J… --reason \"back at work\"")]
pub(super) struct Args {
    /// Which to list.
    #[command(flatten)]
    listing: entries::Listing,
    /// What to do [default: list them].
    #[command(subcommand)]
    action: Option<Action>,
}

/// What to do with a delegation.
#[derive(Debug, Subcommand)]
enum Action {
    /// Show one.
    Show {
        /// The delegation.
        id: DirectiveId,
    },
    /// End one before its time.
    End(entries::End),
}

/// Hands over.
pub(super) async fn delegate(client: &Client, args: &Delegate) -> Outcome {
    let groups = args.groups.iter().cloned().collect();
    let new = DirectiveRequest {
        arrange: Arrangement::Delegation(Delegation { to: args.colleague.clone(), groups }),
        reason: args.reason.clone(),
        starts_at: args.from,
        lasts_ms: args.lasts_ms,
    };
    arrange(client, &new).await
}

/// Does what was asked.
pub(super) async fn run(client: &Client, args: &Args) -> Outcome {
    let entries = Entries { client, kind: DirectiveKind::Delegation };
    match &args.action {
        None => entries.list(&args.listing).await,
        Some(Action::Show { id }) => entries.show(id).await,
        Some(Action::End(args)) => entries.end(args).await,
    }
}
