//! `placet approvals approve` and `deny`: one decision on one approval.
//!
//! Owns the way to it, and how a person agrees at a terminal to what was shown. Invariant: the digest is of what was shown.

use clap::Args as ClapArgs;
use placet_pipeline::views::{ApprovalView, DecisionRequest};
use placet_types::{approval::VoteChoice, digest::Digest, ids::ApprovalId};

use super::{show, words};
use crate::{
    client::Client,
    failure::{Exit, Failure, Outcome},
    output,
};

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

/// Decides.
pub(super) async fn run(
    client: &Client,
    decide: &Decide,
    choice: VoteChoice,
    json: bool,
) -> Outcome {
    let digest = match decide.digest {
        Some(digest) => digest,
        None => asked(client, &decide.id, choice).await?,
    };
    let request = DecisionRequest { decision: choice, reason: decide.reason.clone(), digest };
    let path = ["v1", "approvals", decide.id.as_str(), "decisions"];
    let approval: ApprovalView = client.post(&path, &request).await?.document()?;
    if json {
        output::json(&approval);
    } else {
        output::line(recorded(&approval));
    }
    Ok(Exit::Ok)
}

/// How an approval stands after something was recorded.
pub(super) fn recorded(approval: &ApprovalView) -> String {
    format!(
        "recorded; {} is now {} ({})",
        approval.approval_id,
        approval.state,
        words::votes_so_far(approval)
    )
}

/// Shows the proposal and asks the person at the terminal; the digest is of what was shown.
async fn asked(client: &Client, id: &ApprovalId, choice: VoteChoice) -> Result<Digest, Failure> {
    let detail = show::read(client, id).await?;
    output::note(show::shown(&detail));
    agreed(words::verb(choice), &format!("placet approvals show {id}"))?;
    Ok(detail.approval.digest)
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
