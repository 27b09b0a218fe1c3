//! `placet-bench`: the cost of a governed call, measured against the same call made directly and against the bars of the design.
//!
//! Owns the order of the measurements. Does not judge: it prints numbers with everything they depend on, and no test compares
//! one of them with a time. Invariants: the program is measured as a process of its own, over loopback only; every child that
//! is started is ended; a call that fails ends the run instead of counting as a fast one.

mod bars;
mod contract;
mod decisions;
mod disk;
mod engine;
mod fleet;
mod governed;
mod http_client;
mod ledger;
mod load;
mod machine;
mod mcp_client;
mod peer;
mod process;
mod stats;

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};

use self::{
    bars::Report,
    engine::Engine,
    governed::{AllGoverned, Clients},
    ledger::PartArgs,
    load::Plan,
    machine::Machine,
    mcp_client::McpClient,
    peer::Peer,
};

/// Measures what governing a call costs.
#[derive(Debug, Parser)]
#[command(name = "placet-bench", version, args_conflicts_with_subcommands = true)]
struct Cli {
    /// Take shorter rounds: about fifteen seconds, with rougher numbers.
    #[arg(long)]
    quick: bool,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    json: bool,
    /// Measure only the calls whose name in the table contains this, such as `write`, for a profile of one kind.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    only: String,
    /// How many calls are held to measure their memory; 0: none.
    #[arg(long, value_name = "N", default_value_t = 0)]
    held: u64,
    /// Sizes of the ledgers in which keys are claimed, and which are started and rebuilt.
    #[arg(long, value_name = "N,N,…", value_delimiter = ',')]
    records: Vec<u64>,
    /// Also measure durable writes to a ledger in this database, which has to be empty, with one node and with three.
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// The `placet` program to measure [default: the one next to this program, built first when cargo runs it].
    #[arg(long, value_name = "PATH")]
    placet: Option<PathBuf>,
    /// The folder in which the temporary data folder is made [default: the one this program is in].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// What this program starts of itself.
    #[command(subcommand)]
    command: Option<Child>,
}

/// What this program starts of itself.
#[derive(Debug, Subcommand)]
enum Child {
    /// Do one part of the measurement of a ledger.
    #[command(hide = true)]
    Part(PartArgs),
    /// Be the MCP server that is called.
    #[command(hide = true)]
    Peer,
}

fn main() -> ExitCode {
    match start(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&mut io::stderr().lock(), &format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn start(cli: &Cli) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("no runtime")?;
    runtime.block_on(async {
        let work = async {
            match &cli.command {
                Some(Child::Peer) => peer::serve().await,
                Some(Child::Part(args)) => ledger::part(args).await,
                None => measure(cli).await,
            }
        };
        tokio::select! {
            done = work => done,
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
    let folder = folder.with_context(|| format!("no folder in `{}`", base.display()))?;
    let machine = Machine::look(folder.path());
    progress("policy decisions");
    let decisions = decisions::measure(&plan).await?;
    let peer = Peer::start(&own).await?;
    let governed = governed(cli, &plan, &placet, folder.path(), &peer).await?;
    let mut fleets = Vec::new();
    if let Some(url) = &cli.postgres {
        let contracts = contract::all(peer.url())?;
        fleets = fleet::measure(&plan, &placet, folder.path(), url, &contracts).await?;
    }
    peer.stop().await?;
    let mut ledgers = Vec::new();
    for records in &cli.records {
        ledgers.push(ledger::measure(&own, &placet, folder.path(), *records).await?);
    }
    let report = Report { machine, governed, decisions, fleets, ledgers };
    let text = if cli.json { report.json()? } else { report.text() };
    say(&mut io::stdout().lock(), &text);
    Ok(())
}

async fn governed(
    cli: &Cli,
    plan: &Plan,
    placet: &Path,
    folder: &Path,
    peer: &Peer,
) -> Result<AllGoverned> {
    let engine = Engine::start(placet, folder, &contract::all(peer.url())?, None).await?;
    let direct = McpClient::connect(peer.url(), None).await?;
    let clients = Clients { direct, governed: engine.mcp_client().await? };
    let mut measured = governed::measure(plan, &engine, &clients, folder, &cli.only).await?;
    if cli.held > 0 {
        measured.held = Some(governed::hold(plan, &engine, cli.held).await?);
    }
    clients.direct.close().await?;
    clients.governed.close().await?;
    engine.stop().await?;
    Ok(measured)
}

/// Prints what is being measured.
fn progress(what: &str) {
    say(&mut io::stderr().lock(), &format!("measuring {what} …"));
}

/// Writes a line. A reader who closes our output does not want to hear of it.
fn say(to: &mut impl io::Write, text: &str) {
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
    fn sizes_are_a_list_and_unknown_options_are_refused() {
        let cli = Cli::try_parse_from(["placet-bench", "--records", "10,20", "--quick"]).unwrap();
        assert_eq!((cli.records, cli.held), (vec![10, 20], 0));
        for wrong in [&["placet-bench", "--quick", "peer"][..], &["placet-bench", "--fast"]] {
            assert!(Cli::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
    }
}
