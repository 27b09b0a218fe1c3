//! `placet-bench`: what a governed call costs, measured against the same call made directly, in the same run; and what the
//! ledger under it costs, by its size.
//!
//! Owns the order of the measurements and how long each may take. Does not judge: it prints numbers with everything they
//! depend on, and no test compares one of them with a time. Invariants: nothing but loopback is spoken to; every child
//! that is started is ended; a call that fails ends the run instead of counting as a fast one.

mod clock;
mod contract;
mod desk;
mod direct;
mod disk;
mod engine;
mod exchange;
mod http_client;
mod ledger;
mod load;
mod machine;
mod overhead;
mod peer;
mod policy;
mod postgres;
mod rates;
mod records;
mod report;
mod stats;
mod table;
mod writes;

use std::{io, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};

use self::{
    desk::DeskArgs,
    engine::Engine,
    exchange::ExchangeArgs,
    ledger::{
        LedgerArgs,
        part::{self, PartArgs},
    },
    load::Plan,
    machine::Machine,
    peer::{Peer, Transport},
    rates::RatesArgs,
    report::Report,
};

/// Measures what governing a call costs.
#[derive(Debug, Parser)]
#[command(name = "placet-bench", version, args_conflicts_with_subcommands = true)]
struct Cli {
    /// Take about ten seconds instead of about a minute.
    #[arg(long)]
    quick: bool,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    json: bool,
    /// The `placet` program to measure [default: the one beside this program, built first when cargo runs it].
    #[arg(long, value_name = "PATH")]
    placet: Option<PathBuf>,
    /// The folder in which the temporary data folder is made [default: the one this program is in].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// What to measure instead of governed calls.
    #[command(subcommand)]
    command: Option<Other>,
}

/// What is measured beside governed calls, and what the program starts of itself.
#[derive(Debug, Subcommand)]
enum Other {
    /// Measure claims, starts, rebuilds, memory and bytes on disk of an embedded store that grows.
    Ledger(LedgerArgs),
    /// Measure durable writes and replays on the stores alone, beside the disk's own rate.
    Rates(RatesArgs),
    /// Measure what held calls weigh in memory, decisions on them, and starts with all of them.
    Desk(DeskArgs),
    /// Measure what credentials cost that are exchanged for a call, or found for it.
    Exchange(ExchangeArgs),
    /// Do one part of the measurement of the ledger.
    #[command(hide = true)]
    Part(PartArgs),
    /// Be the MCP server that is called.
    #[command(hide = true)]
    Peer {
        /// How it is spoken with.
        transport: Transport,
    },
}

fn main() -> ExitCode {
    match started(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&mut io::stderr().lock(), &format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn started(cli: &Cli) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("no runtime")?;
    runtime.block_on(async {
        let measure = async {
            match &cli.command {
                Some(Other::Peer { transport }) => peer::serve(*transport).await,
                Some(Other::Part(args)) => part::run(args).await,
                Some(Other::Ledger(args)) => ledger::measure(args).await,
                Some(Other::Desk(args)) => desk::measure(args).await,
                Some(Other::Rates(args)) => rates::measure(args).await,
                Some(Other::Exchange(args)) => exchange::measure(args).await,
                None => measure(cli).await,
            }
        };
        tokio::select! {
            measured = measure => measured,
            _ = tokio::signal::ctrl_c() => bail!("stopped"),
        }
    })
}

/// Measures everything and prints it.
async fn measure(cli: &Cli) -> Result<()> {
    let plan = if cli.quick { Plan::QUICK } else { Plan::FULL };
    let own = std::env::current_exe().context("this program cannot find itself")?;
    let placet = engine::locate(cli.placet.as_deref(), &own).await?;
    let base =
        cli.folder.as_deref().or_else(|| own.parent()).context("this program is in no folder")?;
    let folder = tempfile::Builder::new().prefix("placet-bench-").tempdir_in(base);
    let folder =
        folder.with_context(|| format!("no folder can be made in `{}`", base.display()))?;
    let machine = Machine::look(folder.path());
    progress("policy decisions");
    let decisions = policy::measure(&plan).await?;
    let peer = Peer::start(&own).await?;
    let contracts = contract::both(&own, peer.url())?;
    let engine = Engine::start(&placet, folder.path(), &contracts).await?;
    let overhead = overhead::measure(&plan, &engine, &peer, &own).await?;
    let writes = writes::measure(&plan, &engine, folder.path()).await?;
    progress("replays");
    let replays = writes::replays(&plan, &engine).await?;
    engine.stop().await?;
    peer.stop().await?;
    let report = Report { machine, overhead, writes, replays, decisions };
    let text = if cli.json { report.json()? } else { table::render(&report) };
    say(&mut io::stdout().lock(), &text);
    Ok(())
}

/// Says what is being done.
fn progress(what: &str) {
    say(&mut io::stderr().lock(), &format!("measuring {what} …"));
}

/// Writes a line. Anyone who closes our output does not want to hear of it.
fn say(to: &mut impl io::Write, text: &str) {
    writeln!(to, "{text}").unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::{Cli, Other, peer::Transport};

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_peer_is_asked_for_by_its_transport_and_nothing_else() {
        let cli = Cli::try_parse_from(["placet-bench", "peer", "stdio"]).unwrap();
        assert!(matches!(cli.command, Some(Other::Peer { transport: Transport::Stdio })));
        for wrong in [
            &["placet-bench", "peer"][..],
            &["placet-bench", "--quick", "peer", "stdio"],
            &["placet-bench", "--fast"],
        ] {
            assert!(Cli::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
    }
}
