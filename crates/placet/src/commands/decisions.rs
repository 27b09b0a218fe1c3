//! `placet decisions`: what the policies decided about calls, and why.
//!
//! Owns the filters and the words.

use clap::{Args as ClapArgs, Subcommand};
use placet_engine::views::decisions::{CallOutcome, DecisionVerdict, DecisionView, DecisionsPage};
use placet_types::{
    clock::Timestamp,
    ids::{DecisionId, PrincipalId, RunId},
    text::visible,
};

use super::{approvals::words, times};
use crate::{
    client::{Client, ClientArgs, given},
    environment::Environment,
    failure::Outcome,
    output,
};

/// Look up what the policies decided about calls.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet decisions show dec_01J…\n  \
    placet decisions list --verdict deny --last 8h\n  \
    placet decisions list --agent support-bot --tool files__delete\n  \
    placet decisions list --policy gate-destructive --last 7d --json\n\n\
    Operators and auditors see all decisions of their tenant, other people those of their agents and those made for them.")]
pub(crate) struct Args {
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to look up.
#[derive(Debug, Subcommand)]
enum Action {
    /// List decisions, the newest first.
    List(Filters),
    /// Show one decision, with the policies that made the difference.
    Show {
        /// The decision, as a refusal names it.
        id: DecisionId,
    },
}

/// Which decisions.
#[derive(Debug, ClapArgs)]
struct Filters {
    /// Only about calls of this agent.
    #[arg(long)]
    agent: Option<PrincipalId>,
    /// Only about this tool.
    #[arg(long)]
    tool: Option<String>,
    /// Only with this verdict: allow, hold or deny.
    #[arg(long, value_parser = DecisionVerdict::ALL.map(DecisionVerdict::as_str))]
    verdict: Option<String>,
    /// Only about calls that ended so: succeeded, failed, unknown or `not_executed`.
    #[arg(long, value_parser = CallOutcome::ALL.map(CallOutcome::as_str))]
    outcome: Option<String>,
    /// Only those in which this policy made the difference.
    #[arg(long)]
    policy: Option<String>,
    /// Only about calls of runs of this name.
    #[arg(long)]
    run: Option<RunId>,
    /// How far back from the end: 30m, 8h, 7d [default: 24h].
    #[arg(long, value_name = "TIME", value_parser = times::lasting)]
    last: Option<u64>,
    /// The end, which is not in it [default: now].
    #[arg(long, value_name = "MOMENT", value_parser = times::moment)]
    to: Option<Timestamp>,
    /// How many at most.
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u16).range(1..=200))]
    limit: u16,
}

/// Does what was asked.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = Client::of(&args.client, environment)?;
    match &args.action {
        Action::List(filters) => list(&client, filters).await,
        Action::Show { id } => {
            let one: DecisionView = client.get(&["v1", "decisions", id.as_str()], &[]).await?;
            client.answer(&one, |one| output::line(shown(one)))
        }
    }
}

async fn list(client: &Client, filters: &Filters) -> Outcome {
    let end_ms = filters.to.map_or_else(times::now_ms, Timestamp::as_ms);
    let from = filters.last.map(|last| {
        let last = i64::try_from(last).unwrap_or(i64::MAX);
        end_ms.saturating_sub(last).max(1).to_string()
    });
    let to = filters.to.map(|to| to.as_ms().to_string());
    let limit = filters.limit.to_string();
    let agent = filters.agent.as_ref().map(ToString::to_string);
    let query = given([
        ("agent", agent.as_deref()),
        ("tool", filters.tool.as_deref()),
        ("verdict", filters.verdict.as_deref()),
        ("outcome", filters.outcome.as_deref()),
        ("policy", filters.policy.as_deref()),
        ("run", filters.run.as_ref().map(RunId::as_str)),
        ("from", from.as_deref()),
        ("to", to.as_deref()),
        ("limit", Some(limit.as_str())),
    ]);
    let page: DecisionsPage = client.get(&["v1", "decisions"], &query).await?;
    client.answer(&page, |page| {
        if page.decisions.is_empty() {
            output::line("no such decisions that you may see");
        } else {
            output::table(
                ["decision", "at", "verdict", "outcome", "tool", "asked by", "policies"],
                page.decisions.iter().map(row),
            );
        }
        if let Some(next) = page.next_to {
            output::note(format!("note: there may be older ones; go on with --to {next}"));
        }
    })
}

fn row(one: &DecisionView) -> [String; 7] {
    let policies: Vec<String> = one.policies.iter().map(|one| visible(&one.policy)).collect();
    [
        one.decision_id.to_string(),
        one.at.to_string(),
        one.verdict.as_str().to_owned(),
        one.outcome.map_or("-", CallOutcome::as_str).to_owned(),
        one.capability_id.tool_name(),
        words::chain(&one.principal_chain),
        policies.join(", "),
    ]
}

/// One decision in words.
fn shown(one: &DecisionView) -> String {
    let denial = one.denial.as_ref().map(|denial| format!(" ({denial})")).unwrap_or_default();
    let mut lines = vec![
        format!("{}: {}{denial}", one.decision_id, one.verdict.as_str()),
        format!("  tool      {}", one.capability_id.tool_name()),
        format!("  asked by  {}", words::chain(&one.principal_chain)),
        format!("  at        {}", one.at),
        format!("  mode      {} (asked for {})", one.mode_effective, one.mode_requested),
    ];
    lines.extend(one.outcome.map(|outcome| format!("  outcome   {}", outcome.as_str())));
    lines.extend(one.code.map(|code| format!("  code      {code}")));
    lines.push(format!("  call      {}", one.call_id));
    lines.extend(one.run_id.as_ref().map(|id| format!("  run       {}", visible(id.as_str()))));
    lines.extend(one.trace_id.as_ref().map(|id| format!("  trace     {id}")));
    lines.extend(one.approval_id.as_ref().map(|id| format!("  approval  {id}")));
    lines.extend(one.policies.iter().map(|policy| {
        let does = if policy.permits { "permits it" } else { "stands against it" };
        let reason = policy.reason.as_ref().map(|why| format!(": {}", visible(why)));
        let name = visible(&policy.policy);
        format!(
            "  because   policy `{name}` {does} for {}{}",
            policy.about,
            reason.unwrap_or_default()
        )
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
