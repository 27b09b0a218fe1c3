//! `placet approvals list`: the inbox.
//!
//! Owns the filters and the table.

use clap::Args as ClapArgs;
use placet_approvals::views::{APPROVAL_STATES, FINISHED, InboxItem, InboxView};
use placet_types::{approval::ApproverGroup, ids::ApprovalId, mode::ApprovalMode};

use super::words;
use crate::{
    client::{Client, given},
    commands::times,
    failure::{Failure, Outcome},
    output,
};

/// The lists that together hold all approvals.
const ALL: [&str; 3] = ["pending", "approved", FINISHED];

/// Which approvals to list.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet approvals list --mine\n  \
    placet approvals list --mode destructive --order risk\n  \
    placet approvals list --state denied --search dev-agent --json\n  \
    placet approvals list --group approvers --state all")]
pub(super) struct Args {
    /// Only approvals in this state: pending, approved, running, succeeded, failed, unknown, denied, withdrawn, expired, void; finished for
    /// all but the first two; or all.
    #[arg(long, default_value = "pending")]
    state: String,
    /// Only approvals that you can decide.
    #[arg(long)]
    mine: bool,
    /// Only approvals that you, or somebody you stand in for, are asked for.
    #[arg(long, conflicts_with = "mine")]
    asked: bool,
    /// Only calls of this mode: read_only, local_write, network, delegated, destructive.
    #[arg(long)]
    mode: Option<ApprovalMode>,
    /// Only approvals that this group is asked for.
    #[arg(long)]
    group: Option<ApproverGroup>,
    /// Only approvals whose id, tool, agent or user contains this text.
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// The order: urgent, oldest, newest or, for those that wait, risk.
    #[arg(long, default_value = "urgent", value_parser = ["urgent", "oldest", "newest", "risk"])]
    order: String,
    /// For approvals that have ended: continue after this one, where an earlier list was cut off.
    #[arg(long, value_name = "APPROVAL")]
    after: Option<ApprovalId>,
}

/// Lists them.
pub(super) async fn run(client: &Client, args: &Args) -> Outcome {
    let group = args.group.as_ref().map(ToString::to_string);
    let whose = if args.mine { Some("mine") } else { args.asked.then_some("asked") };
    let (mut items, mut mine) = (Vec::new(), 0);
    for state in states(&args.state)? {
        let query = given([
            ("state", Some(state)),
            ("order", Some(args.order.as_str())),
            ("limit", Some("200")),
            ("whose", whose),
            ("after", args.after.as_ref().map(ApprovalId::as_str)),
            ("mode", args.mode.map(ApprovalMode::as_str)),
            ("group", group.as_deref()),
            ("search", args.search.as_deref()),
        ]);
        let page: InboxView = client.get(&["v1", "inbox"], &query).await?;
        mine = page.mine;
        let shown = page.approvals.len();
        if let Some(after) = page.next_after {
            output::note(format!(
                "note: there may be further ones; go on with --state {state} --after {after}"
            ));
        } else if let Some(total) = page.total.filter(|total| *total > shown) {
            output::note(format!("note: {shown} of {total} are shown; filters narrow the list"));
        }
        items.extend(page.approvals);
    }
    client.answer(&items, |items| {
        if items.is_empty() {
            return output::line(format!("no approvals ({}) that you may see", args.state));
        }
        output::line(table(&args.state, items));
        let what = if mine == 1 { "approval awaits" } else { "approvals await" };
        output::note(format!(
            "{mine} pending {what} your review (*); `placet approvals show ID` shows one"
        ));
    })
}

/// The states that a word stands for.
fn states(word: &str) -> Result<Vec<&'static str>, Failure> {
    if word == "all" {
        return Ok(ALL.to_vec());
    }
    let known = APPROVAL_STATES.into_iter().chain([FINISHED]).find(|state| *state == word);
    known.map(|state| vec![state]).ok_or_else(|| {
        Failure::usage(format!("`{word}` is no state of an approval"))
            .try_this(format!("--state {}, {FINISHED}, or all", APPROVAL_STATES.join(", ")))
    })
}

/// The approvals as a table: for pending ones what they wait for, for all others when they were requested.
fn table(state: &str, items: &[InboxItem]) -> String {
    if words::is_open(state) {
        let header =
            ["", "approval", "state", "tool", "asked by", "needs", "waits", "ends", "would run"];
        return output::table_text(header, items.iter().map(waiting));
    }
    let header = ["", "approval", "state", "tool", "asked by", "agreed", "asked at", "call"];
    output::table_text(header, items.iter().map(any))
}

fn any(item: &InboxItem) -> [String; 8] {
    let [mine, approval, state, tool, caller, progress, _, _, call] = waiting(item);
    [mine, approval, state, tool, caller, progress, item.approval.created_at.to_string(), call]
}

fn waiting(item: &InboxItem) -> [String; 9] {
    let approval = &item.approval;
    let waits = times::now_ms().saturating_sub(approval.created_at.as_ms()).div_euclid(60_000);
    let edited = if approval.edits > 0 { ", edited" } else { "" };
    [
        if item.mine { "*" } else { "" }.to_owned(),
        approval.approval_id.to_string(),
        format!("{}{edited}", words::state(&approval.state)),
        approval.capability_id.tool_name(),
        words::chain(&approval.principal_chain),
        words::progress(&item.progress, item.approval.requirement.quorum),
        format!("{} min", waits.max(0)),
        times::from_now(approval.expires_at),
        item.summary.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use placet_approvals::views::InboxItem;
    use serde_json::json;

    use super::{ALL, states, table};
    use crate::failure::Exit;

    #[test]
    fn a_finished_call_neither_waits_nor_would_run() {
        let item = |state: &str| -> InboxItem {
            serde_json::from_value(json!({
                "approval": {
                    "approval_id": "apr_1", "state": state, "call_id": "call_1",
                    "capability_id": "files/delete",
                    "principal_chain": {
                        "actor": { "kind": "agent", "id": "dev-agent", "tenant_id": "local" },
                    },
                    "requirement": {
                        "groups": { "approvers": 1 }, "quorum": 1, "expires_in_ms": 1_000,
                        "reasons": [],
                    },
                    "votes": [], "created_at": 0, "expires_at": 0, "mode": "destructive",
                    "digest": format!("sha256:{}", "0".repeat(64)),
                },
                "mine": false, "summary": "a.txt",
                "progress": [{ "group": "approvers", "agreed": 1, "wanted": 1, "escalated": false }],
            }))
            .unwrap()
        };
        for (state, said) in
            [("failed", "failed"), ("unknown", "outcome unknown"), ("withdrawn", "withdrawn")]
        {
            let listed = table(state, &[item(state)]);
            let (header, row) = listed.split_once('\n').unwrap();
            assert!(header.contains("AGREED") && header.contains("ASKED AT"), "{listed}");
            for wrong in ["WAITS", "ENDS", "WOULD RUN", "NEEDS"] {
                assert!(!header.contains(wrong), "{listed}");
            }
            assert!(row.contains(said) && row.contains("1970-01-01T00:00:00"), "{listed}");
            assert!(!row.contains("  over") && row.ends_with("a.txt"), "{listed}");
        }
        let listed = table("pending", &[item("pending")]);
        assert!(listed.contains("WAITS") && listed.contains("WOULD RUN"), "{listed}");
        assert!(!table("all", &[item("pending")]).contains("WOULD RUN"));
    }

    #[test]
    fn a_state_is_a_known_one_or_all() {
        assert_eq!(states("denied").unwrap(), ["denied"]);
        assert_eq!(states("all").unwrap(), ALL);
        let failure = states("open").unwrap_err();
        assert_eq!(failure.exit(), Exit::Usage);
        assert!(failure.to_string().contains("finished, or all"), "{failure}");
    }
}
