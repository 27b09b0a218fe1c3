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
    failure::{Exit, Failure, Outcome},
    output,
};

/// The lists that together hold all approvals.
const ALL: [&str; 3] = ["pending", "approved", FINISHED];
/// How many are asked for at a time.
const PAGE: usize = 200;
/// Enough for a person to read; the list says where to go on.
const LISTED_MAX: usize = 2_000;
/// How often is asked for more of what has ended: each answer is of a thousand calls that were looked at.
const ASKED_MAX: usize = 20;

/// Which approvals to list.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet approvals list --mine\n  \
    placet approvals list --mode destructive --order risk\n  \
    placet approvals list --state denied --search dev-agent --json\n  \
    placet approvals list --group approvers --state all")]
pub(super) struct Args {
    /// Only those in this state: pending, approved, running, succeeded, failed, unknown, denied, withdrawn, expired, void; finished is all
    /// but the first two; or all.
    #[arg(long, default_value = "pending")]
    state: String,
    /// Only those you can decide.
    #[arg(long)]
    mine: bool,
    /// Only those you are asked about, or somebody you stand in for.
    #[arg(long, conflicts_with = "mine")]
    asked: bool,
    /// Only those of this mode: read_only, local_write, network, delegated, destructive.
    #[arg(long)]
    mode: Option<ApprovalMode>,
    /// Only those that ask this group.
    #[arg(long)]
    group: Option<ApproverGroup>,
    /// Only those whose id, tool, agent or user contains this text.
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// In which order: urgent, oldest, newest or risk.
    #[arg(long, default_value = "urgent", value_parser = ["urgent", "oldest", "newest", "risk"])]
    order: String,
    /// Of what has ended: only what comes after this approval, where a list stopped that was too long.
    #[arg(long, value_name = "APPROVAL")]
    after: Option<ApprovalId>,
}

/// Lists them.
pub(super) async fn run(client: &Client, args: &Args) -> Outcome {
    let states = states(&args.state)?;
    may_go_on(&args.state, args.after.as_ref())?;
    let (mut items, mut mine, mut total) = (Vec::new(), 0, 0_usize);
    for state in states {
        let found = of_state(client, args, state).await?;
        mine = found.mine;
        total = total.saturating_add(found.total.unwrap_or(found.approvals.len()));
        items.extend(found.approvals);
        if let Some(after) = found.next_after {
            output::note(format!(
                "note: there may be further ones; go on with --state {state} --after {after}"
            ));
        }
    }
    if client.json {
        output::json(&items);
        return Ok(Exit::Ok);
    }
    if items.is_empty() {
        output::line(format!("no approvals ({}) that you may see", args.state));
        return Ok(Exit::Ok);
    }
    output::line(table(&args.state, &items));
    if total > items.len() {
        output::note(format!(
            "note: {} of {total} are shown; filters narrow the list",
            items.len()
        ));
    }
    let what = if mine == 1 { "approval awaits" } else { "approvals await" };
    output::note(format!(
        "{mine} pending {what} your review (*); `placet approvals show ID` shows one"
    ));
    Ok(Exit::Ok)
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

/// Whether what is asked for has ended, and is listed piece by piece: what waits has places instead.
fn has_ended(state: &str) -> bool {
    !matches!(state, "pending" | "approved" | "all")
}

/// Only the list of one state that has ended goes on somewhere.
fn may_go_on(state: &str, after: Option<&ApprovalId>) -> Result<(), Failure> {
    if after.is_none() || has_ended(state) {
        return Ok(());
    }
    let ended: Vec<&str> =
        APPROVAL_STATES.into_iter().chain([FINISHED]).filter(|state| has_ended(state)).collect();
    Err(Failure::usage(format!(
        "`--after` goes on with one state of what has ended, not with `{state}`"
    ))
    .try_this(format!("--state {}", ended.join(", or "))))
}

async fn of_state(client: &Client, args: &Args, state: &str) -> Result<InboxView, Failure> {
    let (limit, group) = (PAGE.to_string(), args.group.as_ref().map(ToString::to_string));
    let has_ended = has_ended(state);
    // Of all states at once, only some can be listed by risk.
    let mixed = has_ended && args.state == "all" && args.order == "risk";
    let order = if mixed { "newest" } else { &args.order };
    let whose = if args.mine { Some("mine") } else { args.asked.then_some("asked") };
    let mut items = Vec::new();
    let mut after = args.after.clone();
    let mut asked = 0_usize;
    loop {
        let offset = if has_ended { 0 } else { items.len() }.to_string();
        let query = given([
            ("state", Some(state)),
            ("order", Some(order)),
            ("limit", Some(&limit)),
            ("offset", Some(&offset)),
            ("whose", whose),
            ("after", after.as_ref().map(ApprovalId::as_str)),
            ("mode", args.mode.map(ApprovalMode::as_str)),
            ("group", group.as_deref()),
            ("search", args.search.as_deref()),
        ]);
        let mut page: InboxView = client.get(&["v1", "inbox"], &query).await?;
        asked = asked.saturating_add(1);
        after.clone_from(&page.next_after);
        let is_last = if has_ended {
            after.is_none() || asked >= ASKED_MAX
        } else {
            page.approvals.len() < PAGE
        };
        items.append(&mut page.approvals);
        if is_last || items.len() >= LISTED_MAX {
            return Ok(InboxView { approvals: items, ..page });
        }
    }
}

/// The approvals as a table: of what waits what it waits for, of everything else when it was asked.
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
        words::progress(&item.progress),
        format!("{} min", waits.max(0)),
        times::from_now(approval.expires_at),
        item.summary.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use placet_approvals::views::InboxItem;
    use serde_json::json;

    use super::{ALL, Args, may_go_on, states, table};
    use crate::failure::{Exit, Failure};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn checked(line: &[&str]) -> Result<(), Failure> {
        let words = std::iter::once("list").chain(line.iter().copied());
        let Line { args } = Line::try_parse_from(words).unwrap();
        may_go_on(&args.state, args.after.as_ref())
    }

    #[test]
    fn a_list_goes_on_only_with_one_state_that_has_ended() {
        for state in ["denied", "failed", "unknown", "finished"] {
            checked(&["--state", state, "--after", "apr_1"]).unwrap();
        }
        for line in [&["--state", "pending"], &["--state", "approved"], &["--state", "all"]] {
            checked(line).unwrap();
            let failure = checked(&[line[0], line[1], "--after", "apr_1"]).unwrap_err();
            assert_eq!(failure.exit(), Exit::Usage);
            assert!(failure.to_string().contains(line[1]), "{failure}");
        }
        // Without a state it is about what waits.
        assert_eq!(checked(&["--after", "apr_1"]).unwrap_err().exit(), Exit::Usage);
    }

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
