//! `placet approvals`: the approval service, for people at a terminal and for their scripts.
//!
//! Owns the tree of what can be done. Invariant: a decision always names the digest of what was shown; without one on
//! the command line it is shown first and a person has to agree at a terminal.

mod break_glass;
mod bulk;
mod decide;
mod delegations;
mod difference;
mod edit;
pub(super) mod entries;
mod freezes;
mod grants;
mod input;
mod list;
mod pattern;
mod quotation;
mod show;
mod timeline;
mod watch;
mod withdraw;
pub(super) mod words;

use clap::{Args as ClapArgs, Subcommand};
use placet_types::{
    approval::VoteChoice,
    ids::{ApprovalId, ToolCallId},
};

use crate::{
    client::{Client, ClientArgs},
    environment::Environment,
    failure::Outcome,
};

/// Look at held calls, decide them, and run the approval service.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet approvals list --mine\n  \
    placet approvals show apr_01J…\n  \
    placet approvals approve apr_01J… --reason \"checked with Ana\" --digest sha256:…\n  \
    placet approvals deny apr_01J… --reason \"wrong folder\"\n  \
    placet approvals edit apr_01J… --args fewer.json --reason \"only May\" --digest sha256:…\n  \
    placet approvals watch\n  \
    placet approvals grants propose apr_01J… --uses 10 --for 7d --reason \"monthly\" --digest sha256:…\n  \
    placet approvals delegate cleo --groups approvers --for 8h --reason \"on a plane\"\n\n\
    Exit codes: 0 done, 1 refused or not found, 2 usage.")]
pub(crate) struct Args {
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to do in the approval service.
#[derive(Debug, Subcommand)]
enum Action {
    /// List approvals you may see, those you can decide first.
    List(list::Args),
    /// Show one with everything an approver has to know, and the digest a decision names.
    Show {
        /// The approval.
        id: ApprovalId,
    },
    /// Say yes.
    Approve(decide::Approve),
    /// Say no; one is enough, unless its policies ask for more.
    Deny(decide::Decide),
    /// Change the arguments of a held call; others decide again, and on all but narrower ones only they.
    Edit(edit::Args),
    /// Withdraw a held call, so that it ends and does not run.
    Withdraw(withdraw::Args),
    /// Decide several of the same kind at once; each is recorded by itself.
    Together(bulk::Args),
    /// Follow approvals, a line for each event, until Ctrl-C.
    Watch,
    /// Show the way of a call from plan to effect, from the audit chain.
    Timeline {
        /// The call.
        call: ToolCallId,
    },
    /// Standing grants: calls that need not be asked about again, for a time and a number of uses.
    Grants(grants::Args),
    /// Have a colleague decide in your place for a time.
    Delegate(delegations::Delegate),
    /// List delegations; end one.
    Delegations(delegations::Args),
    /// Break-glass records: emergencies that policies opt in to.
    BreakGlass(break_glass::Args),
    /// The calendar of freezes, in which every write waits for people.
    Freezes(freezes::Args),
}

/// Does what was asked.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = Client::of(&args.client, environment)?;
    let (client, json) = (&client, args.client.json);
    match &args.action {
        Action::List(args) => list::run(client, args, json).await,
        Action::Show { id } => show::run(client, id, json).await,
        Action::Approve(args) => decide::approve(client, args, json).await,
        Action::Deny(decide) => decide::run(client, decide, VoteChoice::Deny, json).await,
        Action::Edit(args) => edit::run(client, args, json).await,
        Action::Withdraw(args) => withdraw::run(client, args, json).await,
        Action::Together(args) => bulk::run(client, args, json).await,
        Action::Watch => watch::run(client, json).await,
        Action::Timeline { call } => timeline::run(client, call, json).await,
        Action::Grants(args) => grants::run(client, args, json).await,
        Action::Delegate(args) => delegations::delegate(client, args, json).await,
        Action::Delegations(args) => delegations::run(client, args, json).await,
        Action::BreakGlass(args) => break_glass::run(client, args, json).await,
        Action::Freezes(args) => freezes::run(client, args, json).await,
    }
}
