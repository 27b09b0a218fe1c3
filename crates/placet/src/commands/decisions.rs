//! `placet decisions`: what the policies decided about a call, and why.
//!
//! Owns the wording. Lists of decisions are in the API and the console.

use clap::Args as ClapArgs;
use placet_engine::views::decisions::{DecisionPolicy, DecisionView};
use placet_types::{ids::DecisionId, text::visible};

use super::approvals::words;
use crate::{
    client::{Client, ClientArgs},
    environment::Environment,
    failure::Outcome,
    output,
};

/// Look up what the policies decided about a call.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  placet decisions dec_01J…\n\n\
    Operators and auditors see all decisions of their tenant, other people those of their agents and those made for them.\n\
    The console and `GET /v1/decisions` list decisions by agent, tool, run, verdict, outcome and policy.\n\
    `GET /v1/decisions?directive=ID` lists those that relied on a grant or a break-glass record.")]
pub(crate) struct Args {
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
    /// The id of the decision, as given in a refusal.
    id: DecisionId,
}

/// Shows the decision, with the policies that made the difference.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = Client::of(&args.client, environment)?;
    let one: DecisionView = client.get(&["v1", "decisions", args.id.as_str()], &[]).await?;
    client.answer(&one, |one| output::line(shown(one)))
}

/// The mode that was asked for and the contract's, where the call has another.
fn other_modes(one: &DecisionView) -> String {
    let asked = (one.mode_requested != one.mode_effective)
        .then(|| format!("asked for {}", one.mode_requested));
    let highest = (one.mode_highest != one.mode_effective)
        .then(|| format!("the contract's is {}", one.mode_highest));
    let others: Vec<String> = asked.into_iter().chain(highest).collect();
    if others.is_empty() { String::new() } else { format!(" ({})", others.join("; ")) }
}

fn because(policy: &DecisionPolicy, does: &str) -> String {
    let reason = policy.reason.as_ref().map(|why| format!(": {}", visible(why)));
    let (name, reason) = (visible(&policy.policy), reason.unwrap_or_default());
    format!("  because   policy `{name}` {does} for {}{reason}", policy.about)
}

/// One decision in words.
fn shown(one: &DecisionView) -> String {
    let denial = one.denial.as_ref().map(|denial| format!(" ({denial})")).unwrap_or_default();
    let mut lines = vec![
        format!("{}: {}{denial}", one.decision_id, one.verdict.as_str()),
        format!("  tool      {}", one.capability_id.tool_name()),
        format!("  asked by  {}", words::chain(&one.principal_chain)),
        format!("  at        {}", one.at),
        format!("  mode      {}{}", one.mode_effective, other_modes(one)),
    ];
    lines.extend(one.outcome.map(|outcome| format!("  outcome   {}", outcome.as_str())));
    lines.extend(one.code.map(|code| format!("  code      {code}")));
    lines.push(format!("  call      {}", one.call_id));
    lines.extend(one.run_id.as_ref().map(|id| format!("  run       {}", visible(id.as_str()))));
    lines.extend(one.trace_id.as_ref().map(|id| format!("  trace     {id}")));
    lines.extend(one.approval_id.as_ref().map(|id| format!("  approval  {id}")));
    lines.extend(one.directives.iter().map(|id| format!("  under     {id}")));
    lines.extend(one.lowered_by.iter().map(|policy| because(policy, "lowers its mode")));
    lines.extend(one.policies.iter().map(|policy| {
        because(policy, if policy.permits { "permits it" } else { "stands against it" })
    }));
    let found = one.notes.iter().chain(&one.errors);
    lines.extend(found.map(|note| format!("  because   {}", visible(note))));
    if one.policies.is_empty() && one.notes.is_empty() && one.errors.is_empty() {
        lines.push("  because   no policy permits it".to_owned());
    }
    lines.push(format!("  policies  {}", one.bundle_digest));
    lines.push(format!("  entry     {} of {}, {}", one.seq, one.log, one.hash));
    lines.join("\n")
}
