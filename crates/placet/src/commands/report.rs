//! `placet report`: the evaluation metrics of a range of time, by adapter and capability (TM-21).
//!
//! Owns the options and the table. The engine decides what is counted.

use clap::Args as ClapArgs;
use placet_engine::report::{ReportNumbers, ReportView};
use placet_types::clock::Timestamp;

use super::times;
use crate::{
    client::{Client, ClientArgs, given},
    environment::Environment,
    failure::Outcome,
    output,
};

/// Report on calls: success, approval modes, violations, latency, replays.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet report\n  \
    placet report --last 7d\n  \
    placet report --from 2026-11-01T00:00Z --to 2026-11-08T00:00Z --json\n\n\
    A report is for operators, over at most 31 days, and from the audit chain of their tenant.")]
pub(crate) struct Args {
    /// How far back from the end, such as 30m, 8h or 7d [default: 24h].
    #[arg(long, value_name = "TIME", value_parser = times::lasting, conflicts_with = "from")]
    last: Option<u64>,
    /// The start, such as 2026-11-01T00:00Z.
    #[arg(long, value_name = "MOMENT", value_parser = times::moment)]
    from: Option<Timestamp>,
    /// The end, exclusive [default: now].
    #[arg(long, value_name = "MOMENT", value_parser = times::moment)]
    to: Option<Timestamp>,
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
}

/// Prints the report.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = Client::of(&args.client, environment)?;
    let end_ms = args.to.map_or_else(times::now_ms, Timestamp::as_ms);
    let from_ms = match (args.from, args.last) {
        (Some(from), _) => Some(from.as_ms()),
        (None, Some(last)) => {
            Some(end_ms.saturating_sub(i64::try_from(last).unwrap_or(i64::MAX)).max(1))
        }
        (None, None) => None,
    };
    let from = from_ms.map(|ms| ms.to_string());
    let to = (args.to.is_some() || args.last.is_some()).then(|| end_ms.to_string());
    let query = given([("from", from.as_deref()), ("to", to.as_deref())]);
    let report: ReportView = client.get(&["v1", "report"], &query).await?;
    client.answer(&report, |report| {
        output::line(format!("from {} to {}", report.from, report.to));
        let rows = report.rows.iter();
        let rows =
            rows.map(|row| line(format!("{}/{}", row.adapter, row.capability), &row.numbers));
        let adapters = report.adapters.iter();
        let adapters = adapters.map(|of| line(format!("{}, all", of.adapter), &of.numbers));
        output::table(HEADER, rows.chain(adapters).chain([line("all".to_owned(), &report.total)]));
        if report.incomplete {
            output::note("not everything in this range was read; take a shorter range");
        }
    })
}

const HEADER: [&str; 10] = [
    "capability",
    "calls",
    "refused",
    "success",
    "misclassified",
    "violations",
    "mean ms",
    "p99 ms",
    "replays",
    "conflicts",
];

fn line(name: String, numbers: &ReportNumbers) -> [String; 10] {
    let share = |rate: Option<f64>| {
        rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.1} %", rate * 100.0))
    };
    let number =
        |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let repeated = numbers.replayed.saturating_add(numbers.replays_differed);
    [
        name,
        numbers.calls.to_string(),
        numbers.refused.to_string(),
        share(numbers.success_rate),
        share(numbers.misclassification_rate),
        share(numbers.violation_rate),
        number(numbers.latency_mean_ms),
        number(numbers.latency_p99_ms),
        format!("{} of {repeated}", numbers.replayed),
        numbers.conflicts.to_string(),
    ]
}
