//! `placet-chaos`: drives a deployment of Placet through seeded schedules of faults, and proves from outside what it did.
//!
//! Owns the command line and the exit code: 0 all is well, 1 a violation or a fault that never came to happen, 2 usage.
//! Two halves share only the form of a [`history`]. One injects faults; the other judges: the [`witness`] is the upstream in which
//! effects happen, the [`checker`] compares what was answered with what happened, the [`report`] presents it.
//! Invariants: nothing in the judging half uses the other half; nothing but loopback is spoken to; everything that is started is
//! ended, on Ctrl-C too.

mod checker;
mod cluster;
mod collect;
mod fault;
mod history;
mod http;
mod listed;
mod load;
mod node;
mod people;
mod report;
mod round;
mod run;
mod sabotage;
mod scene;
mod schedule;
mod seeded;
mod seeds;
mod setup;
mod verdict;
mod witness;
mod world;

use std::{io, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use history::fault::FaultKind;
use report::Report;
use schedule::Store;

/// Kills, pauses, misleads and starves Placet while it works, and proves that it kept its promises.
#[derive(Debug, Parser)]
#[command(
    name = "placet-chaos",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        placet-chaos --minutes 5\n  \
        placet-chaos --minutes 2 --store postgres --nodes 3\n  \
        placet-chaos --minutes 1 --faults F4,F5 --seed 7\n  \
        placet-chaos --replay chaos-out/round-3/schedule.json --keep\n\n\
        Exit codes: 0 all promises kept, 1 a violation, or an applicable fault that never came to happen, 2 usage."
)]
pub(crate) struct Cli {
    /// How long to run, in minutes; the round in progress is completed first.
    #[arg(long, default_value_t = 5.0, value_parser = minutes)]
    minutes: f64,
    /// The seed of all random choices [default: a new one each time; it is printed].
    #[arg(long)]
    seed: Option<u64>,
    /// The kind of ledger [default: both, if PostgreSQL is installed].
    #[arg(long)]
    store: Option<Stores>,
    /// How many nodes share a PostgreSQL ledger [default: rounds with one and rounds with three].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=5))]
    nodes: Option<u64>,
    /// Only these faults, such as F1,F4 [default: all that apply].
    #[arg(long, value_delimiter = ',', value_name = "FAULT", ignore_case = true)]
    faults: Vec<FaultKind>,
    /// Keep the folders of all rounds, not only of one that failed.
    #[arg(long)]
    keep: bool,
    /// The `placet` program [default: the one next to this program, built first when cargo runs it].
    #[arg(long, value_name = "PATH")]
    placet: Option<PathBuf>,
    /// The folder for the folders of the rounds [default: the system's temporary one].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Run only this schedule, as an earlier run saved it.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Continue after a violation.
    #[arg(long)]
    go_on: bool,
    /// Parts of it for themselves.
    #[command(subcommand)]
    command: Option<Part>,
}

/// Stores to run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Stores {
    /// In the node's own data folder.
    Embedded,
    /// In a PostgreSQL server.
    Postgres,
    /// Both, alternately.
    Both,
}

impl Stores {
    pub(crate) const fn stores(self) -> &'static [Store] {
        match self {
            Self::Embedded => &[Store::Embedded],
            Self::Postgres => &[Store::Postgres],
            Self::Both => &[Store::Embedded, Store::Postgres],
        }
    }
}

/// Parts of the program.
#[derive(Debug, Subcommand)]
enum Part {
    /// Run the upstream in which effects happen.
    Witness(witness::Options),
    /// Check a history and a witness's log that a run saved.
    Check {
        /// The history.
        history: PathBuf,
        /// The witness's log.
        witness: PathBuf,
    },
    /// Take guards out of a build that allows it, one after another, and see each missed
    Sabotage(sabotage::Options),
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_error| format!("`{text}` is no number"))?;
    if minutes > 0.0 && minutes <= 10_000.0 {
        Ok(minutes)
    } else {
        Err("it is between 0 and 10000".to_owned())
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match started(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            say(&mut io::stderr().lock(), &format!("error: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn started(cli: &Cli) -> Result<bool> {
    let runtime = tokio::runtime::Runtime::new().context("no runtime")?;
    let ended = runtime.block_on(async {
        match &cli.command {
            Some(Part::Witness(options)) => {
                witness::serve(options).await.context("the witness broke").map(|()| true)
            }
            Some(Part::Check { history, witness }) => {
                let judged = verdict::judge(history, witness, Vec::new())?;
                let mut report = Report::default();
                report.take(&judged.events, &judged.lines, &judged.verdict);
                say(&mut io::stdout().lock(), &report.text());
                Ok(report.passed())
            }
            Some(Part::Sabotage(options)) => sabotage::run(options).await,
            None => run::run(cli).await,
        }
    });
    // The runtime would wait for a thread that reads standard input.
    runtime.shutdown_background();
    ended
}

/// Writes a line. A reader who closes our output does not want to hear of it.
pub(crate) fn say(to: &mut impl io::Write, text: &str) {
    writeln!(to, "{text}").unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            &["placet-chaos", "--minutes", "0"][..],
            &["placet-chaos", "--faults", "F25"],
            &["placet-chaos", "--nodes", "0"],
            &["placet-chaos", "--store", "sqlite"],
        ] {
            assert!(Cli::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
        let cli = Cli::try_parse_from(["placet-chaos", "--faults", "f1,F4"]).unwrap();
        assert_eq!(cli.faults.len(), 2);
    }
}
