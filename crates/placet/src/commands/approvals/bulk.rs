//! `placet approvals together`: one decision on several approvals of the same kind.
//!
//! Owns how they are named, each with its digest.

use clap::Args as ClapArgs;
use placet_approvals::views::{
    BULK_MAX, BulkDecisionRequest, BulkDecisionView, BulkItem, BulkRefusal,
};
use placet_types::{approval::VoteChoice, text::visible};

use super::decide::recorded;
use crate::{
    client::Client,
    failure::{Exit, Failure, Outcome},
    output,
};

/// A decision on several.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet approvals together approve apr_01J…=sha256:… apr_01K…=sha256:… --reason \"the closed project\"\n  \
    placet approvals together deny apr_01J…=sha256:… --reason \"the agent went astray\" --json\n\n\
    Only approvals of one tool that the same policies hold, with arguments of the same shape, are decided together; the first one sets\n\
    the measure. Each is recorded by itself. Exit codes: 0 all were decided, 1 some were not, 2 usage.")]
pub(super) struct Args {
    /// Yes or no.
    #[arg(value_parser = ["approve", "deny"])]
    choice: String,
    /// Which, each as approval=digest, with the digest that `show` printed.
    #[arg(required = true, value_name = "APPROVAL=DIGEST", value_parser = item)]
    approvals: Vec<BulkItem>,
    /// Why; kept for the auditor.
    #[arg(long)]
    reason: String,
}

/// Decides.
pub(super) async fn run(client: &Client, args: &Args) -> Outcome {
    if args.approvals.len() > BULK_MAX {
        return Err(Failure::usage(format!("at most {BULK_MAX} are decided together")));
    }
    let decision = if args.choice == "approve" { VoteChoice::Approve } else { VoteChoice::Deny };
    let approvals = args.approvals.clone();
    let request = BulkDecisionRequest { decision, reason: args.reason.clone(), approvals };
    let view: BulkDecisionView =
        client.post(&["v1", "approvals", "decisions"], &request).await?.document()?;
    client.answer(&view, |view| {
        view.decided.iter().for_each(|approval| output::line(recorded(approval)));
        for BulkRefusal { approval_id, code, message } in &view.refused {
            output::line(format!("not decided: {approval_id} ({code}: {})", visible(message)));
        }
    })?;
    Ok(if view.refused.is_empty() { Exit::Ok } else { Exit::Findings })
}

/// `approval=digest`.
fn item(text: &str) -> Result<BulkItem, String> {
    let (id, digest) = text.split_once('=').ok_or(
        "write it as apr_…=sha256:…, with the digest that `placet approvals show` printed",
    )?;
    Ok(BulkItem {
        approval_id: id.parse().map_err(|error| format!("`{id}`: {error}"))?,
        digest: digest.parse().map_err(|error| format!("`{digest}`: {error}"))?,
    })
}

#[cfg(test)]
mod tests {
    use placet_types::digest::Digest;

    use super::item;

    #[test]
    fn an_approval_is_never_named_without_its_digest() {
        let digest = Digest::of(b"shown");
        let good = item(&format!("apr_1={digest}")).unwrap();
        assert_eq!((good.approval_id.as_str(), good.digest), ("apr_1", digest));
        for wrong in
            ["apr_1", "apr_1=", "apr_1=sha256:00", &format!("={digest}"), &format!("a b={digest}")]
        {
            assert!(item(wrong).is_err(), "{wrong}");
        }
    }
}
