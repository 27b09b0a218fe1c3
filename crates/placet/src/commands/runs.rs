//! `placet runs`: the runs that are open, and what they have done.
//!
//! Owns the words. Which runs somebody sees the engine says.

use clap::Args as ClapArgs;
use placet_engine::runs::batch_views::{CallRecord, OpenRunView, OpenRuns};
use placet_types::{ids::RunId, taint, text::visible};

use crate::{
    client::{Client, ClientArgs},
    environment::Environment,
    failure::Outcome,
    output,
};

/// Show the runs that are open, and what they have done.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  placet runs\n  placet runs ticket-4711\n  placet runs ticket-4711 --json\n\n\
    Operators and auditors see all runs of their tenant, other people those of their agents and those that act for them.\n\
    `placet decisions list --run RUN` shows what was decided about its calls."
)]
pub(crate) struct Args {
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
    /// Only runs of this name, with their batches.
    run: Option<RunId>,
}

/// Shows them.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = Client::of(&args.client, environment)?;
    let query: Vec<(&str, &str)> = args.run.iter().map(|run| ("run_id", run.as_str())).collect();
    let found: OpenRuns = client.get(&["v1", "runs"], &query).await?;
    client.answer(&found, |found| {
        if found.runs.is_empty() {
            output::line("no such run that you may see is open on this node");
        } else if args.run.is_some() {
            found.runs.iter().for_each(|run| output::line(told(run)));
        } else {
            output::table(
                ["run", "agent", "for", "turn", "calls", "pending", "cents", "ceiling"],
                found.runs.iter().map(row),
            );
        }
        if found.more {
            output::note("note: there are more; these were used last");
        }
    })
}

fn row(run: &OpenRunView) -> [String; 8] {
    [
        visible(run.run_id.as_str()),
        run.agent.to_string(),
        run.on_behalf_of.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        run.iteration.to_string(),
        format!("{} of {}", run.calls_used, run.run_budget.calls_max),
        run.pending.to_string(),
        format!("{} of {}", run.cents_used, run.run_budget.cost_cents_max),
        run.safety_mode.to_string(),
    ]
}

/// A run with its batches, in words.
fn told(run: &OpenRunView) -> String {
    let [name, agent, user, turn, calls, _, cents, ceiling] = row(run);
    let mut lines = vec![
        format!("{name}: turn {turn} is next"),
        format!("  agent    {agent}, for {user}"),
        format!("  budget   {calls} calls, {cents} cents, up to {ceiling}"),
    ];
    if !run.taint.is_empty() {
        lines.push(format!("  context  {}", taint::listed(&run.taint)));
    }
    for batch in &run.batches {
        let id = batch.batch_id.as_ref().map(|id| format!(" {}", visible(id.as_str())));
        let took_ms = batch.debug.took_ms;
        lines.push(format!("  turn {}{}, {took_ms} ms", batch.iteration, id.unwrap_or_default()));
        lines.extend(batch.calls.iter().map(called));
    }
    lines.join("\n")
}

fn called(call: &CallRecord) -> String {
    let how = match (&call.duplicate_of, call.error_code) {
        (Some(first), _) => format!("equal to {}", visible(first)),
        (None, Some(code)) => code.to_string(),
        (None, None) => "succeeded".to_owned(),
    };
    let id = call.tool_call_id.as_ref().map(|id| format!("  {id}")).unwrap_or_default();
    format!("    {}  {how}{id}", visible(&call.tool))
}
