//! `placet approvals timeline`: the way of one call from plan to effect.
//!
//! Owns the table. That the entries are in the log is proved with `placet audit prove`.

use placet_api::documents::Timeline;
use placet_approvals::views::TimelineStep;
use placet_types::{ids::ToolCallId, principal};

use crate::{
    client::Client,
    failure::{Exit, Outcome},
    output,
};

/// Shows it.
pub(super) async fn run(client: &Client, call: &ToolCallId, json: bool) -> Outcome {
    let timeline: Timeline = client.get(&["v1", "calls", call.as_str(), "timeline"], &[]).await?;
    if json {
        output::json(&timeline);
        return Ok(Exit::Ok);
    }
    if timeline.steps.is_empty() {
        let found = if timeline.incomplete { "were found" } else { "are" };
        output::line(format!("no steps of {call} {found} in the log"));
        return Ok(Exit::Ok);
    }
    output::table(["when", "what", "by", "note", "log"], timeline.steps.iter().map(row));
    if timeline.incomplete {
        output::line(
            "not all of the log was looked through: there may be further steps between these",
        );
    }
    Ok(Exit::Ok)
}

fn row(step: &TimelineStep) -> [String; 5] {
    let code = step.code.map(|code| format!("{code}")).into_iter();
    let audiences = Some(principal::listed(&step.audiences)).filter(|text| !text.is_empty());
    let notes: Vec<String> = code.chain(step.note.clone()).chain(audiences).collect();
    [
        step.at.to_string(),
        step.kind.clone(),
        step.by.clone().unwrap_or_default(),
        notes.join(": "),
        format!("{} {}", step.log, step.seq),
    ]
}
