//! `placet approvals approve` and `deny`: one decision on one approval.
//!
//! Owns the way to it, how a person agrees at a terminal to what was shown, and the wait for what becomes of the call. Invariant: the
//! digest is of what was shown.

use std::time::Duration;

use clap::Args as ClapArgs;
use placet_approvals::views::{ApprovalDetail, ApprovalView, DecisionRequest};
use placet_types::{approval::VoteChoice, digest::Digest, ids::ApprovalId};

use super::{show, words};
use crate::{
    client::Client,
    failure::{Exit, Failure, Outcome},
    output,
};

/// How long to wait before looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// An agreement.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Exit codes: 0 it was recorded, 1 it was not, 2 usage. With --wait those of the call: 0 it succeeded, 1 it failed, \
    4 it has not ended yet, 5 it was refused, 6 its outcome is unknown."
)]
pub(super) struct Approve {
    /// The decision.
    #[command(flatten)]
    decide: Decide,
    /// How many seconds to wait for the outcome of the call, and print it.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=600))]
    wait: u64,
}

/// A decision.
#[derive(Debug, ClapArgs)]
pub(super) struct Decide {
    /// The approval.
    id: ApprovalId,
    /// Why; kept for the auditor.
    #[arg(long)]
    reason: String,
    /// The digest that `show` printed; without it you are shown the proposal and asked.
    #[arg(long)]
    digest: Option<Digest>,
}

/// Disagrees.
pub(super) async fn deny(client: &Client, args: &Decide) -> Outcome {
    let approval = decided(client, args, VoteChoice::Deny).await?;
    client.answer(&approval, |approval| output::line(recorded(approval)))
}

/// Agrees, and waits for the outcome of the call if asked to.
pub(super) async fn approve(client: &Client, args: &Approve) -> Outcome {
    let approval = decided(client, &args.decide, VoteChoice::Approve).await?;
    if args.wait == 0 {
        return client.answer(&approval, |approval| output::line(recorded(approval)));
    }
    if !client.json {
        output::line(recorded(&approval));
    }
    let until = tokio::time::Instant::now() + Duration::from_secs(args.wait);
    let (detail, exit) = loop {
        let detail = show::read(client, &args.decide.id).await?;
        let ended = ended(&detail);
        if ended.is_some() || tokio::time::Instant::now() >= until {
            break (detail, ended.unwrap_or(Exit::Held));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    };
    client.answer(&detail, |detail| output::line(show::awaited(detail)))?;
    Ok(exit)
}

/// Decides. Without a digest on the command line, the person at the terminal is shown the proposal and asked; the digest is of what was shown.
async fn decided(
    client: &Client,
    decide: &Decide,
    choice: VoteChoice,
) -> Result<ApprovalView, Failure> {
    let digest = match decide.digest {
        Some(digest) => digest,
        None => {
            let detail = show::read(client, &decide.id).await?;
            output::note(show::shown(&detail));
            agreed(words::verb(choice), &format!("placet approvals show {}", decide.id))?;
            detail.approval.digest
        }
    };
    let request = DecisionRequest { decision: choice, reason: decide.reason.clone(), digest };
    let path = ["v1", "approvals", decide.id.as_str(), "decisions"];
    client.post(&path, &request).await?.document()
}

/// How the command ends once the call has, as `placet call` would; nothing while it may still run.
fn ended(detail: &ApprovalDetail) -> Option<Exit> {
    match detail.approval.state.as_str() {
        "succeeded" => Some(Exit::Ok),
        "failed" => Some(Exit::Findings),
        "unknown" => Some(Exit::Unknown),
        "denied" | "withdrawn" | "expired" | "void" => Some(Exit::Refused),
        _ => None,
    }
}

/// How an approval stands after something was recorded.
pub(super) fn recorded(approval: &ApprovalView) -> String {
    format!(
        "recorded; {} is now {} ({})",
        approval.approval_id,
        words::state(&approval.state),
        words::votes_so_far(approval)
    )
}

/// Asks the person at the terminal to type `word`; `look` is the command that shows what it is about.
pub(super) fn agreed(word: &str, look: &str) -> Result<(), Failure> {
    match output::ask(&format!("\nType `{word}` to {word} exactly this:")) {
        Some(answer) if answer == word => Ok(()),
        Some(_) => Err(Failure::new("nothing was decided")),
        None => Err(Failure::usage("a decision names the digest of what was shown")
            .because("there is no terminal to ask at")
            .try_this(format!("look at it with `{look}`, then add --digest"))),
    }
}
