//! `placet approvals edit`: other arguments for a held call.
//!
//! Owns where the arguments come from and how the difference is shown.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use placet_approvals::views::{ApprovalView, EditRequest};
use placet_types::{digest::Digest, ids::ApprovalId};
use serde_json::Value;

use super::{decide::recorded, document, show};
use crate::{
    client::Client,
    commands::difference,
    failure::{Exit, Failure, Outcome},
    output,
};

/// An edit.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet approvals show apr_01J… --json | jq .proposal.evidence.preview > args.json\n  \
    placet approvals edit apr_01J… --args args.json --reason \"only May\" --digest sha256:…\n  \
    echo '{\"path\": \"may.txt\"}' | placet approvals edit apr_01J… --args - --reason \"only May\" --digest sha256:…\n\n\
    A masked value that comes back as it was shown keeps its value. The digest changes: anyone who agreed before has to look again.\n\
    You agree to arguments that only ask for less: lists shortened, numbers nearer to zero. Of all others, of arguments left out, and of \
    changed masked values, you are the author: somebody else has to agree to them.")]
pub(super) struct Args {
    /// The approval.
    id: ApprovalId,
    /// A file with all arguments of the changed call as a JSON object, or `-` for standard input.
    #[arg(long, value_name = "FILE")]
    args: PathBuf,
    /// The reason; recorded for auditors, and shown to the agent's people.
    #[arg(long)]
    reason: String,
    /// The digest that `show` printed.
    #[arg(long)]
    digest: Digest,
}

/// Edits.
pub(super) async fn run(client: &Client, args: &Args) -> Outcome {
    let Value::Object(fields) = document(&args.args)? else {
        return Err(Failure::usage("the arguments are not a JSON object").try_this(
            "start from `proposal.evidence.preview` of `placet approvals show ID --json`",
        ));
    };
    let request = EditRequest { args: fields, reason: args.reason.clone(), digest: args.digest };
    let path = ["v1", "approvals", args.id.as_str(), "edits"];
    let approval: ApprovalView = client.post(&path, &request).await?.document()?;
    if client.json {
        output::json(&approval);
        return Ok(Exit::Ok);
    }
    output::line(recorded(&approval));
    let detail = show::read(client, &args.id).await?;
    let evidence = detail.proposal.as_ref().map(|proposal| &proposal.evidence);
    if let Some((evidence, edited)) = evidence.and_then(|one| Some((one, one.edited.as_ref()?))) {
        output::line("what differs from what the agent asked for:");
        for line in difference::lines(&edited.preview, &evidence.preview) {
            output::line(format!("  {line}"));
        }
        let more = show::masked_changes(&edited.masked).into_iter();
        for line in more.chain(show::authorship(&edited.authors)) {
            output::line(format!("  {}", line.trim_start()));
        }
    }
    output::line(format!("new digest {}", detail.approval.digest));
    Ok(Exit::Ok)
}
