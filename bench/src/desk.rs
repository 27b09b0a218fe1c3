//! The approval service under load: what a held call weighs in the memory of `placet serve`, how long it takes from the deciding click
//! to the dispatch, and how long a start takes until everything waits again.
//!
//! Owns the order of the measurement. Not here: the people and the agent, who speak HTTP with a real process (`party`); the tables
//! (`sizes`). Invariants: memory is that of the whole process, as the operating system counts it, against the same process with few held
//! calls; nothing counts as held, dispatched or recovered that was not seen to be.

mod party;
mod sizes;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use self::party::{Held, Party, looks::Look};
use crate::{
    engine,
    machine::Machine,
    postgres::Postgres,
    progress, say,
    stats::{Numbers, Sample, milliseconds},
};

/// How many are held when memory and decisions are looked at first.
const FEW: usize = 10;
/// How long memory is given to come to rest.
const REST: Duration = Duration::from_secs(8);

/// How the approval service is measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeskArgs {
    /// How many calls are held.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    held: usize,
    /// On how many of them somebody decides, with few held and with all.
    #[arg(long, value_name = "N", default_value_t = 200)]
    decisions: usize,
    /// How often each page is looked at.
    #[arg(long, value_name = "N", default_value_t = 200)]
    looks: usize,
    /// Keep the ledger in a PostgreSQL server, which is made for the run, instead of the data folder.
    #[arg(long)]
    postgres: bool,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    json: bool,
    /// The `placet` program to measure [default: the one beside this program, built first when cargo runs it].
    #[arg(long, value_name = "PATH")]
    placet: Option<PathBuf>,
    /// The folder in which the temporary data folder is made [default: the one this program is in].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// All of it.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    /// Where the ledger is.
    ledger: String,
    load_after: String,
    /// Memory while the held calls became more.
    grown: Vec<Weight>,
    decided: Vec<Decided>,
    looked: Vec<Looked>,
    starts: Vec<Start>,
}

/// The memory of the process with so many calls held.
#[derive(Debug, Clone, Copy, Serialize)]
struct Weight {
    held: usize,
    /// How many were made to be held in a second, on the way there.
    per_second: f64,
    memory: Memory,
}

/// Resident memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Memory {
    /// All of it.
    resident: u64,
    /// What of it is no file.
    own: u64,
}

/// Decisions with so many calls held.
#[derive(Debug, Clone, Copy, Serialize)]
struct Decided {
    held: usize,
    /// From sending the decision until the tool was called.
    dispatch: Numbers,
    /// Until the decision was answered.
    answer: Numbers,
    /// A page of the inbox.
    page: Numbers,
}

/// Looks at a page with so many calls held.
#[derive(Debug, Clone, Copy, Serialize)]
struct Looked {
    held: usize,
    look: Look,
    took: Numbers,
}

/// How often each thing is done.
#[derive(Debug, Clone, Copy)]
struct Amount {
    held: usize,
    decisions: usize,
    looks: usize,
}

/// A start with so many calls held.
#[derive(Debug, Clone, Copy, Serialize)]
struct Start {
    held: usize,
    killed: bool,
    /// From the start of the program until it listens.
    listens_ms: f64,
    /// Until every held call is in the inbox again.
    waits_ms: f64,
    memory: Memory,
}

/// Measures and prints.
pub(crate) async fn measure(args: &DeskArgs) -> Result<()> {
    let own = std::env::current_exe().context("this program cannot find itself")?;
    let placet = engine::locate(args.placet.as_deref(), &own).await?;
    let base =
        args.folder.as_deref().or_else(|| own.parent()).context("this program is in no folder")?;
    let folder = tempfile::Builder::new().prefix("placet-bench-").tempdir_in(base);
    let folder =
        folder.with_context(|| format!("no folder can be made in `{}`", base.display()))?;
    let amount = Amount { held: args.held, decisions: args.decisions, looks: args.looks };
    let server = match args.postgres {
        true => Some(Postgres::start().await?.context("PostgreSQL is not installed here")?),
        false => None,
    };
    let report = measured((&placet, folder.path()), server.as_ref(), amount, REST).await?;
    if let Some(server) = server {
        server.stop().await?;
    }
    let text =
        if args.json { serde_json::to_string_pretty(&report)? } else { sizes::render(&report) };
    say(&mut io::stdout().lock(), &text);
    Ok(())
}

async fn measured(
    (placet, folder): (&Path, &Path),
    server: Option<&Postgres>,
    Amount { held: held_max, decisions, looks }: Amount,
    rest: Duration,
) -> Result<Report> {
    ensure!(held_max > FEW && decisions > 0, "more than {FEW} calls have to be held");
    let machine = Machine::look(folder);
    let ledger = match server {
        Some(server) => server.version().await?,
        None => "embedded".to_owned(),
    };
    let url = server.map(Postgres::url);
    let mut party = Party::start(placet, folder, url.as_deref()).await?;
    let mut all = party.hold(FEW).await?;
    progress(&format!("decisions with {FEW} calls held"));
    let mut decided = vec![with_few(&mut party, decisions).await?];
    let mut grown = vec![weight(&party, (FEW, 0.0), rest).await?];
    let mut looked = look(&party, &all, looks).await?;
    for part in [10, 4, 2, 1] {
        let held = held_max.div_euclid(part).max(FEW);
        let wanted = held.saturating_sub(all.len());
        progress(&format!("memory with {held} calls held"));
        let began = Instant::now();
        all.extend(party.hold(wanted).await?);
        let per_second = crate::stats::rate(wanted, began.elapsed()).unwrap_or(0.0);
        let weight = weight(&party, (all.len(), per_second), rest).await?;
        say(&mut io::stderr().lock(), &format!("  {}", sizes::line(&weight)));
        grown.push(weight);
        looked.extend(look(&party, &all, looks).await?);
    }
    progress(&format!("decisions with {} calls held", all.len()));
    decided.push(with_all(&mut party, (&mut all, decisions)).await?);
    let mut starts = Vec::new();
    for killed in [true, false] {
        progress(&format!("a start with {} calls held", all.len()));
        starts.push(start(&mut party, (all.len(), killed), rest).await?);
    }
    // What came back is what was held: it can be decided on, and runs.
    with_all(&mut party, (&mut all, decisions.min(10))).await?;
    party.stop(false).await?;
    let load_after = Machine::look(folder).load;
    Ok(Report { machine, ledger, load_after, grown, decided, looked, starts })
}

async fn weight(party: &Party, (held, per_second): (usize, f64), rest: Duration) -> Result<Weight> {
    let waiting = party.waiting().await?.context("the inbox is still being read")?;
    ensure!(waiting == held, "{waiting} wait where {held} should");
    sleep(rest).await;
    Ok(Weight { held, per_second, memory: party.memory()? })
}

/// Looks at each page.
async fn look(party: &Party, all: &[Held], looks: usize) -> Result<Vec<Looked>> {
    // The list is in the order of its identifiers; calls that are held side by side are answered in any order.
    let mut listed: Vec<&str> = all.iter().map(|held| held.approval_id.as_str()).collect();
    listed.sort_unstable();
    let middle = listed.get(listed.len().div_euclid(2)).context("nothing is held")?;
    let of = (all.len(), *middle);
    let session = party.sign_in().await?;
    let mut looked = Vec::new();
    for look in Look::ALL {
        progress(&format!("{} with {} calls held", look.name(), all.len()));
        let mut sample = Sample::default();
        for _look in 0..looks.max(1) {
            sample.add(party.look(look, of, &session).await?);
        }
        let took = sample.counts().context("nothing was looked at")?;
        looked.push(Looked { held: all.len(), look, took });
    }
    Ok(looked)
}

/// Decisions on calls that are held one at a time beside the few.
async fn with_few(party: &mut Party, decisions: usize) -> Result<Decided> {
    let mut taken = Taken::default();
    for _decision in 0..decisions {
        let held = party.hold(1).await?.pop().context("nothing is held")?;
        taken.decide(party, &held).await?;
    }
    taken.counts(FEW)
}

/// Decisions on calls of every age among all that are held.
async fn with_all(party: &mut Party, (all, decisions): (&mut Vec<Held>, usize)) -> Result<Decided> {
    let held = all.len();
    let step = held.checked_div(decisions).unwrap_or(1).max(1);
    let mut taken = Taken::default();
    for at in (0..held).step_by(step).take(decisions) {
        let chosen = all.get(at).context("there are fewer")?.clone();
        taken.decide(party, &chosen).await?;
    }
    let mut at = 0_usize;
    all.retain(|_| {
        let stays = at.checked_rem(step) != Some(0) || at.div_euclid(step) >= decisions;
        at = at.saturating_add(1);
        stays
    });
    taken.counts(held)
}

/// What decisions took.
#[derive(Debug, Default)]
struct Taken {
    dispatch: Sample,
    answer: Sample,
    page: Sample,
}

impl Taken {
    async fn decide(&mut self, party: &mut Party, held: &Held) -> Result<()> {
        let began = Instant::now();
        party.page().await?;
        self.page.add(began.elapsed());
        let took = party.decide(held).await?;
        self.dispatch.add(took.dispatch);
        self.answer.add(took.answer);
        Ok(())
    }

    fn counts(&self, held: usize) -> Result<Decided> {
        let of = |sample: &Sample| sample.counts().context("nothing was decided");
        Ok(Decided {
            held,
            dispatch: of(&self.dispatch)?,
            answer: of(&self.answer)?,
            page: of(&self.page)?,
        })
    }
}

async fn start(party: &mut Party, (held, killed): (usize, bool), rest: Duration) -> Result<Start> {
    party.stop(killed).await?;
    let began = Instant::now();
    party.resume().await?;
    let listens_ms = milliseconds(began.elapsed());
    loop {
        let waiting = party.waiting().await?;
        if waiting == Some(held) {
            break;
        }
        let waiting = waiting.unwrap_or(0);
        if waiting > held || began.elapsed() > party::PATIENCE {
            bail!("{waiting} wait after the start, and {held} did before");
        }
        sleep(Duration::from_millis(10)).await;
    }
    let waits_ms = milliseconds(began.elapsed());
    sleep(rest).await;
    Ok(Start { held, killed, listens_ms, waits_ms, memory: party.memory()? })
}

#[cfg(test)]
mod tests;
