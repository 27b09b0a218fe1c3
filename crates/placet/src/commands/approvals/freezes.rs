//! `placet approvals freezes`: times in which every write waits for people, or in which nothing runs.
//!
//! Owns the options.

use clap::{Args as ClapArgs, Subcommand};
use placet_approvals::views::{Arrangement, DirectiveRequest};
use placet_types::{
    clock::Timestamp,
    directive::{DirectiveKind, Freeze},
    ids::{AdapterName, DirectiveId},
};

use super::entries::{self, Entries, arrange};
use crate::{client::Client, commands::times, failure::Outcome};

/// The calendar of freezes, in which every write waits for people, and of lockdowns, in which no call runs.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet approvals freezes list\n  \
    placet approvals freezes set --name \"Year's end\" --from 2026-12-31T00:00+01:00 --for 2d --reason \"the books are closed\"\n  \
    placet approvals freezes set --name Incident --for 2h --adapters files --reason \"we look into it\"\n  \
    placet approvals freezes set --name Incident --for 1h --lockdown --reason \"an agent misbehaves\"\n  \
    placet approvals freezes lift dir_01J… --reason \"all is well\"")]
pub(super) struct Args {
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to do with freezes.
#[derive(Debug, Subcommand)]
enum Action {
    /// List those that are on or to come.
    List(entries::Listing),
    /// Enter one in the calendar.
    Set(Set),
    /// Show one.
    Show {
        /// The freeze.
        id: DirectiveId,
    },
    /// End one before its time, or take it out of the calendar.
    Lift(entries::End),
}

/// A freeze that is to be.
#[derive(Debug, ClapArgs)]
struct Set {
    /// What it is called in the calendar.
    #[arg(long)]
    name: String,
    /// For how long, such as 2h or 31d (the longest).
    #[arg(long = "for", value_name = "TIME", value_parser = times::lasting)]
    lasts_ms: u64,
    /// From when on, such as 2026-12-24T18:00+01:00 [default: now].
    #[arg(long, value_name = "MOMENT", value_parser = times::moment)]
    from: Option<Timestamp>,
    /// Only for writes of these adapters [default: all].
    #[arg(long, value_name = "ADAPTER", value_delimiter = ',')]
    adapters: Vec<AdapterName>,
    /// A lockdown: no call runs, reads neither, and no approval helps.
    #[arg(long)]
    lockdown: bool,
    /// Why; kept for the auditor.
    #[arg(long)]
    reason: String,
}

/// Does what was asked.
pub(super) async fn run(client: &Client, args: &Args) -> Outcome {
    let entries = Entries { client, kind: DirectiveKind::Freeze };
    match &args.action {
        Action::List(wanted) => entries.list(wanted).await,
        Action::Set(args) => set(client, args).await,
        Action::Show { id } => entries.show(id).await,
        Action::Lift(args) => entries.end(args).await,
    }
}

async fn set(client: &Client, args: &Set) -> Outcome {
    let new = DirectiveRequest {
        arrange: Arrangement::Freeze(Freeze {
            name: args.name.clone(),
            adapters: args.adapters.iter().cloned().collect(),
            lockdown: args.lockdown,
        }),
        reason: args.reason.clone(),
        starts_at: args.from,
        lasts_ms: args.lasts_ms,
    };
    arrange(client, &new).await
}
