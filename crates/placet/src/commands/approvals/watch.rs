//! `placet approvals watch`: what happens in the approval service, line by line.
//!
//! Owns the connecting again. Ends well on Ctrl-C, and badly when Placet refuses.

use std::time::Duration;

use placet_approvals::views::ApprovalEvent;
use serde_json::{Value, json};

use super::words;
use crate::{
    client::{Client, Events},
    failure::{Attempted as _, Exit, Failure, Outcome},
    output,
};

/// How long is waited before the first try to connect again.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// And at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Follows the approval service until Ctrl-C.
pub(super) async fn run(client: &Client) -> Outcome {
    tokio::select! {
        ended = follow(client) => ended,
        stopped = tokio::signal::ctrl_c() => {
            stopped.attempted("signals cannot be listened for")?;
            Ok(Exit::Ok)
        }
    }
}

async fn follow(client: &Client) -> Outcome {
    let mut events = open(client).await.map_err(crate::client::NotOpened::failure)?;
    output::note("following approvals; Ctrl-C ends it");
    loop {
        read(&mut events, client.json).await;
        events = again(client).await?;
        output::note(
            "note: connected again; what happened in between is in `placet approvals list`",
        );
    }
}

async fn open(client: &Client) -> Result<Events, crate::client::NotOpened> {
    client.events(&["v1", "approvals", "events"]).await
}

/// Prints a stream to its end. Why it ended does not matter: a server ends every stream after a while.
async fn read(events: &mut Events, json: bool) {
    while let Ok(Some(event)) = events.next().await {
        if event.name == "behind" {
            missed(json);
        } else if let Ok(event) = serde_json::from_str::<ApprovalEvent>(&event.data) {
            if json {
                output::json_line(&event);
            } else {
                output::line(line(&event));
            }
        }
    }
}

fn missed(json: bool) {
    if json {
        output::json_line(&json!({ "kind": "behind" }));
    } else {
        output::line("some events were missed: look at `placet approvals list`");
    }
}

/// Connects again, waiting a little longer each time.
async fn again(client: &Client) -> Result<Events, Failure> {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        match open(client).await {
            Ok(events) => return Ok(events),
            Err(error) if error.may_pass() => {
                output::note(format!("note: {}; trying again", error.failure().in_a_line()));
            }
            Err(error) => return Err(error.failure()),
        }
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

/// An event as a person reads it; the end of a call is told as its outcome.
fn line(event: &ApprovalEvent) -> String {
    let kind = serde_json::to_value(event.kind).ok();
    let kind = kind.as_ref().and_then(Value::as_str).unwrap_or_default();
    let what = event.outcome.as_deref().map_or(kind, words::state);
    let mut parts = vec![event.at.to_string(), format!("{what:<15}")];
    parts.extend(event.approval_id.as_ref().map(ToString::to_string));
    parts.extend(event.directive_id.as_ref().map(ToString::to_string));
    parts.extend(event.capability_id.as_ref().map(|capability| capability.tool_name()));
    if !event.groups.is_empty() {
        let groups: Vec<String> = event.groups.iter().map(ToString::to_string).collect();
        parts.push(format!("({})", groups.join(", ")));
    }
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::line;

    #[test]
    fn an_event_is_one_line_that_says_what_to_look_at() {
        let event = json!({
            "kind": "asked", "approval_id": "apr_1", "call_id": "call_1", "capability_id": "files/delete",
            "groups": ["approvers", "security"], "at": 0,
        });
        assert_eq!(
            line(&serde_json::from_value(event).unwrap()),
            "1970-01-01T00:00:00.000Z  asked            apr_1  files__delete  (approvers, security)"
        );
        for (outcome, said) in [
            ("succeeded", "succeeded      "),
            ("failed", "failed         "),
            ("unknown", "outcome unknown"),
        ] {
            let ended = json!({
                "kind": "settled", "approval_id": "apr_1", "outcome": outcome, "groups": [], "at": 0,
            });
            assert_eq!(
                line(&serde_json::from_value(ended).unwrap()),
                format!("1970-01-01T00:00:00.000Z  {said}  apr_1")
            );
        }
        let entry = json!({ "kind": "entry", "directive_id": "dir_1", "groups": [], "at": 0 });
        assert_eq!(
            line(&serde_json::from_value(entry).unwrap()),
            "1970-01-01T00:00:00.000Z  entry            dir_1"
        );
    }
}
