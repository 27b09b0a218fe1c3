//! `placet approvals withdraw`: ends a held call, so that it does not run.

use clap::Args as ClapArgs;
use placet_approvals::views::{ApprovalView, WithdrawalRequest};
use placet_types::ids::ApprovalId;

use super::words;
use crate::{client::Client, failure::Outcome, output};

/// A withdrawal.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet approvals withdraw apr_01J… --reason \"the order was cancelled\"\n\n\
    With the shipped policies the agent that asked, the agent's owner and operators may withdraw a call, until it is sent. \
    The agent's call ends with APPROVAL_WITHDRAWN.")]
pub(super) struct Args {
    /// The approval.
    id: ApprovalId,
    /// The reason; recorded for auditors, and shown to those who were asked.
    #[arg(long)]
    reason: String,
}

/// Withdraws.
pub(super) async fn run(client: &Client, args: &Args) -> Outcome {
    let request = WithdrawalRequest { reason: args.reason.clone() };
    let path = ["v1", "approvals", args.id.as_str(), "withdrawal"];
    let approval: ApprovalView = client.post(&path, &request).await?.document()?;
    client.answer(&approval, |approval| {
        let state = words::state(&approval.state);
        output::line(format!("{} is now {state}; the call did not run", approval.approval_id));
    })
}
