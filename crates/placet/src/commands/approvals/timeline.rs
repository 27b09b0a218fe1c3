//! `placet approvals timeline`: the course of one call from plan to effect.
//!
//! Owns the table. `placet audit prove` proves that the entries are in the log.

use placet_approvals::views::{TimelineStep, TimelineView};
use placet_types::{error::ErrorCode, ids::ToolCallId, principal, text::visible};

use crate::{client::Client, failure::Outcome, output};

/// Shows it.
pub(super) async fn run(client: &Client, call: &ToolCallId) -> Outcome {
    let timeline: TimelineView =
        client.get(&["v1", "calls", call.as_str(), "timeline"], &[]).await?;
    client.answer(&timeline, |timeline| {
        if timeline.steps.is_empty() {
            return output::line(format!("no steps of {call} are in the log"));
        }
        output::table(["when", "what", "by", "note", "log"], timeline.steps.iter().map(row));
        if timeline.incomplete {
            output::line(
                "steps are missing whose entries were archived: the archive is not at hand",
            );
        }
    })
}

fn row(step: &TimelineStep) -> [String; 5] {
    let (what, note) = what(step);
    let code = step.code.map(|code| format!("{code}")).into_iter();
    let audiences = Some(principal::listed(&step.audiences)).filter(|text| !text.is_empty());
    let under = step.directives.iter().map(|id| format!("under {id}"));
    let note = note.map(|note| visible(&note)).into_iter();
    let notes: Vec<String> = code.chain(note).chain(audiences).chain(under).collect();
    [
        step.at.to_string(),
        what,
        step.by.as_deref().map(visible).unwrap_or_default(),
        notes.join(": "),
        format!("{} {}", step.log, step.seq),
    ]
}

/// What happened, and the note on it; for the end of a call, its outcome. The note that names the outcome is shown to people only.
fn what(step: &TimelineStep) -> (String, Option<String>) {
    let outcome = match (step.kind.as_str(), step.note.as_deref(), step.code) {
        ("settled", Some("succeeded"), _) | ("settled" | "read_settled", None, None) => "succeeded",
        ("settled", Some("indeterminate"), _)
        | ("settled", None, Some(ErrorCode::OutcomeUnknown)) => "outcome unknown",
        ("settled", Some("failed_final" | "failed_retriable"), _)
        | ("settled" | "read_settled", None, Some(_)) => "failed",
        (kind, note, _) => return (kind.replace('_', " "), note.map(str::to_owned)),
    };
    (outcome.to_owned(), None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::row;

    fn shown(kind: &str, note: Option<&str>, code: Option<&str>) -> (String, String) {
        let step = json!({
            "log": "node-1", "seq": 7, "at": 0, "kind": kind, "note": note, "code": code,
            "digests": {}, "hash": "00",
        });
        let [_, what, _, note, _] = row(&serde_json::from_value(step).unwrap());
        (what, note)
    }

    #[test]
    fn the_end_of_a_call_is_its_outcome() {
        let failed = Some("ADAPTER_FAILED");
        let unknown = Some("OUTCOME_UNKNOWN");
        for (kind, note, code, wanted) in [
            ("settled", Some("succeeded"), None, ("succeeded", "")),
            ("settled", None, None, ("succeeded", "")),
            ("settled", Some("failed_final"), failed, ("failed", "ADAPTER_FAILED")),
            ("settled", Some("failed_retriable"), failed, ("failed", "ADAPTER_FAILED")),
            ("settled", None, failed, ("failed", "ADAPTER_FAILED")),
            ("settled", Some("indeterminate"), unknown, ("outcome unknown", "OUTCOME_UNKNOWN")),
            ("settled", None, unknown, ("outcome unknown", "OUTCOME_UNKNOWN")),
            ("read_settled", None, None, ("succeeded", "")),
            ("read_settled", None, failed, ("failed", "ADAPTER_FAILED")),
            ("approval_ended", Some("in time"), None, ("approval ended", "in time")),
        ] {
            let (what, said) = shown(kind, note, code);
            assert_eq!((what.as_str(), said.as_str()), wanted, "{kind} {note:?}");
        }
    }
}
