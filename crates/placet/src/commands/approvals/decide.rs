//! `placet approvals approve` and `deny`: one decision on one approval.
//!
//! Owns how a person confirms at a terminal what was shown. Invariant: the digest is of what was shown.

use clap::Args as ClapArgs;
use placet_approvals::views::{ApprovalView, DecisionRequest};
use placet_types::{
    approval::{Vote, VoteChoice},
    digest::Digest,
    ids::ApprovalId,
};

use super::{show, words};
use crate::{
    client::Client,
    failure::{Failure, Outcome},
    output,
};

/// A decision.
#[derive(Debug, ClapArgs)]
pub(super) struct Decide {
    /// The approval.
    id: ApprovalId,
    /// The reason; recorded for auditors.
    #[arg(long)]
    reason: String,
    /// The digest that `show` printed; without it, the proposal is shown and you are asked to confirm.
    #[arg(long)]
    digest: Option<Digest>,
}

/// Decides. Without a digest on the command line, the person at the terminal is shown the proposal and asked; the digest is of that.
pub(super) async fn run(client: &Client, args: &Decide, choice: VoteChoice) -> Outcome {
    let digest = match args.digest {
        Some(digest) => digest,
        None => {
            let detail = show::read(client, &args.id).await?;
            output::note(show::shown(&detail));
            agreed(choice.as_str(), &format!("placet approvals show {}", args.id))?;
            detail.approval.digest
        }
    };
    let request = DecisionRequest { decision: choice, reason: args.reason.clone(), digest };
    let path = ["v1", "approvals", args.id.as_str(), "decisions"];
    let approval: ApprovalView = client.post(&path, &request).await?.document()?;
    client.answer(&approval, |approval| output::line(recorded(approval)))
}

/// The state of an approval after something was recorded.
pub(super) fn recorded(approval: &ApprovalView) -> String {
    let counts = |(place, vote): &(usize, &Vote)| {
        vote.choice == VoteChoice::Approve && !approval.lapsed.contains(place)
    };
    let agreed = approval.votes.iter().enumerate().filter(counts).count();
    format!(
        "recorded; {} is now {} ({agreed}/{})",
        approval.approval_id,
        words::state(&approval.state),
        approval.requirement.quorum
    )
}

/// Asks the person at the terminal to type `word`; `look` is the command that shows what it is about.
pub(in crate::commands) fn agreed(word: &str, look: &str) -> Result<(), Failure> {
    match output::ask(&format!("\nType `{word}` to {word} exactly this:")) {
        Some(answer) if answer == word => Ok(()),
        Some(_) => Err(Failure::new("nothing was decided")),
        None => Err(Failure::usage("a decision names the digest of what was shown")
            .because("there is no terminal to ask at")
            .try_this(format!("look at it with `{look}`, then add --digest"))),
    }
}
