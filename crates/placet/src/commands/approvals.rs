//! `placet approvals`: the approval service, for people at a terminal and for their scripts.
//!
//! Owns the command tree. Invariant: a decision always names the digest of what was shown; without one on
//! the command line the proposal is shown first and a person has to confirm at a terminal.

mod decide;
mod edit;
mod list;
pub(super) mod quotation;
pub(super) mod show;
mod timeline;
mod withdraw;
pub(super) mod words;

pub(super) use self::decide::agreed;

use std::path::Path;

use clap::{Args as ClapArgs, Subcommand};
use placet_types::{
    approval::VoteChoice,
    ids::{ApprovalId, ToolCallId},
    json::{JsonLimits, parse_strict},
};
use serde_json::Value;

use crate::{
    client::{Client, ClientArgs},
    environment::Environment,
    failure::{Attempted as _, Failure, Outcome},
    yaml,
};

/// List, show and decide held calls.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet approvals list --mine\n  \
    placet approvals show apr_01J…\n  \
    placet approvals approve apr_01J… --reason \"checked with Ana\" --digest sha256:…\n  \
    placet approvals deny apr_01J… --reason \"wrong folder\"\n  \
    placet approvals edit apr_01J… --args fewer.json --reason \"only May\" --digest sha256:…\n  \
    placet approvals timeline call_01J…\n\n\
    `placet directives` arranges standing grants, delegations, break-glass and freezes.\n\n\
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
    /// List the approvals that you may see, those you can decide first.
    List(list::Args),
    /// Show an approval with everything an approver has to know, and the digest that a decision names.
    Show {
        /// The approval.
        id: ApprovalId,
    },
    /// Approve a held call.
    Approve(decide::Decide),
    /// Deny a held call; one denial is enough, unless its policies require more.
    Deny(decide::Decide),
    /// Change the arguments of a held call; approval is requested again, and only others can give it unless you narrowed them.
    Edit(edit::Args),
    /// Withdraw a held call, so that it ends without running.
    Withdraw(withdraw::Args),
    /// Show the timeline of a call from plan to effect, from the audit chain.
    Timeline {
        /// The call.
        call: ToolCallId,
    },
}

/// The JSON document in a file, read as strictly as the listeners read; `-` is standard input.
fn document(file: &Path) -> Result<Value, Failure> {
    let what = || format!("`{}` cannot be read", file.display());
    let text = yaml::read_input(file).attempted(what())?;
    parse_strict(text.as_bytes(), &JsonLimits::default())
        .map_err(|error| Failure::usage(what()).because(error))
}

/// Does what was asked.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = &Client::of(&args.client, environment)?;
    match &args.action {
        Action::List(args) => list::run(client, args).await,
        Action::Show { id } => show::run(client, id).await,
        Action::Approve(args) => decide::run(client, args, VoteChoice::Approve).await,
        Action::Deny(args) => decide::run(client, args, VoteChoice::Deny).await,
        Action::Edit(args) => edit::run(client, args).await,
        Action::Withdraw(args) => withdraw::run(client, args).await,
        Action::Timeline { call } => timeline::run(client, call).await,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::document;

    #[test]
    fn a_document_is_read_strictly_and_within_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("args.json");
        std::fs::write(&file, "{\"a\": [1]}").unwrap();
        assert_eq!(document(&file).unwrap(), json!({ "a": [1] }));
        for wrong in ["", "{\"a\":1,\"a\":2}", "{"] {
            std::fs::write(&file, wrong).unwrap();
            let failure = document(&file).unwrap_err().to_string();
            assert!(failure.contains("args.json` cannot be read"), "{failure}");
        }
        std::fs::write(&file, format!("\"{}\"", "x".repeat(1 << 20))).unwrap();
        assert!(document(&file).unwrap_err().to_string().contains("at most"));
        assert!(document(Path::new("/none/at/all")).is_err());
    }
}
