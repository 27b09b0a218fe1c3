//! A run: rounds until the time is up, the first failing one kept, and the report.
//!
//! Owns which schedules are played: the kept ones first, then drawn ones, of which those come first that hold faults that were not seen.
//! Invariant: a fault that applies here and never came to happen fails the run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use placet_testkit::{machine::Machine, moment::Moment};
use tokio::{process::Command, time::Instant};

use crate::{
    Cli, Stores,
    history::fault::FaultKind,
    report::Report,
    round::{self, Round},
    say,
    schedule::{self, Frame, Schedule, Store, applies, faults_of},
    seeded::Chance,
    seeds,
    setup::Workshop,
};

/// How many seeds are tried to find a schedule with missing faults.
const LOOKED_AT: usize = 96;
/// How long load and faults of one round last, in milliseconds.
const ROUND_MS: u64 = 5_000;
/// How many rounds may fail before their load begins, as when a database server takes too long to start.
const UNPLAYED_MAX: u64 = 2;

/// Runs; true when all is well.
pub(crate) async fn run(cli: &Cli) -> Result<bool> {
    let own = std::env::current_exe().context("this program cannot find itself")?;
    let placet = locate(cli.placet.as_deref(), &own).await?;
    let base = cli.folder.clone().unwrap_or_else(std::env::temp_dir);
    fs::create_dir_all(&base).with_context(|| format!("`{}` cannot be made", base.display()))?;
    let folder = tempfile::Builder::new().prefix("placet-chaos-").tempdir_in(&base)?;
    let mut shop = Workshop::new(placet, folder.path()).await?;
    let mut run = Run::new(cli, &shop)?;
    let played = tokio::select! {
        played = run.play_all(&mut shop) => played,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("stopped")),
    };
    if cli.keep || !matches!(played, Ok(false)) {
        let path = folder.keep();
        say(&mut io::stdout().lock(), &format!("kept: {}", path.display()));
    }
    // However the run ended, what was observed until then is reported.
    let fine = run.conclude();
    played.map(|_| fine)
}

struct Run<'a> {
    cli: &'a Cli,
    chance: Chance,
    stores: &'static [Store],
    length: Duration,
    faults: BTreeSet<FaultKind>,
    /// Why a fault cannot be injected here, on which store.
    missing: BTreeMap<(Store, FaultKind), &'static str>,
    /// The faults that really happened, by store: what one store survives says nothing about the other.
    seen: BTreeSet<(Store, FaultKind)>,
    report: Report,
    rounds: u64,
    /// Rounds that failed before their load began.
    unplayed: u64,
}

impl<'a> Run<'a> {
    fn new(cli: &'a Cli, shop: &Workshop) -> Result<Self> {
        let can_share = shop.machine.can_serve_postgres();
        let stores = match cli.store {
            None if can_share => Stores::Both,
            None => Stores::Embedded,
            Some(Stores::Postgres | Stores::Both) if !can_share => {
                bail!("PostgreSQL's server programs are not installed")
            }
            Some(stores) => stores,
        };
        let faults: BTreeSet<FaultKind> = if cli.faults.is_empty() {
            FaultKind::ALL.iter().copied().collect()
        } else {
            cli.faults.iter().copied().collect()
        };
        let seed = cli.seed.unwrap_or_else(|| Moment::now().us);
        tell(&format!("seed {seed}, {}", shop.placet.display()));
        let missing = missing(&shop.machine);
        Ok(Self {
            cli,
            chance: Chance::new(seed),
            stores: stores.stores(),
            length: Duration::try_from_secs_f64(cli.minutes * 60.0).context("no such time")?,
            faults,
            missing,
            seen: BTreeSet::new(),
            report: Report::default(),
            rounds: 0,
            unplayed: 0,
        })
    }

    /// Plays rounds until the time is up or one fails; returns whether something is to be kept.
    async fn play_all(&mut self, shop: &mut Workshop) -> Result<bool> {
        for ((store, fault), why) in &self.missing {
            if self.stores.contains(store) && self.faults.contains(fault) {
                tell(&format!(
                    "{fault} ({}) is left out on {}: {why}",
                    fault.title(),
                    store.name()
                ));
            }
        }
        if let Some(path) = &self.cli.replay {
            let text = fs::read(path).with_context(|| format!("`{}`", path.display()))?;
            let schedule = serde_json::from_slice(&text).context("it is no schedule")?;
            return self.play(shop, &schedule).await;
        }
        let until = Instant::now() + self.length;
        let mut failed = false;
        // A user who wants only some faults does not want those of the kept schedules.
        let kept = if self.cli.faults.is_empty() { seeds::kept()? } else { Vec::new() };
        for schedule in kept.iter().filter(|kept| self.stores.contains(&kept.store)) {
            if !failed {
                failed = self.play(shop, schedule).await?;
            }
        }
        let mut turn = 0_usize;
        // On a slow machine some fault may not have happened in time: those get the same time again.
        let at_last = until + self.length;
        let goes_on = |all_seen: bool| {
            let now = Instant::now();
            now < until || (now < at_last && !all_seen)
        };
        while goes_on(self.unseen().next().is_none()) && (!failed || self.cli.go_on) {
            let schedule = self.next(turn);
            turn = turn.saturating_add(1);
            failed |= self.play(shop, &schedule).await?;
        }
        Ok(failed)
    }

    /// The faults that apply here and have not happened, by store.
    fn unseen(&self) -> impl Iterator<Item = (Store, FaultKind)> {
        let all =
            self.stores.iter().flat_map(|store| self.faults.iter().map(|fault| (*store, *fault)));
        all.filter(|one| {
            applies(one.1, one.0) && !self.missing.contains_key(one) && !self.seen.contains(one)
        })
    }

    /// The next schedule: of some drawn seeds, the one with the most faults that were not seen.
    fn next(&mut self, turn: usize) -> Schedule {
        let at = turn.checked_rem(self.stores.len()).unwrap_or(0);
        let store = self.stores.get(at).copied().unwrap_or(Store::Embedded);
        let chosen = self.cli.nodes.and_then(|nodes| usize::try_from(nodes).ok());
        let nodes = match store {
            Store::Embedded => 1,
            Store::Postgres => chosen.unwrap_or(if turn % 4 < 2 { 3 } else { 1 }),
        };
        let frame = Frame { store, nodes, length_ms: ROUND_MS, faults: self.faults.clone() };
        let wanted: BTreeSet<FaultKind> =
            self.unseen().filter(|(on, _)| *on == store).map(|(_, fault)| fault).collect();
        let fresh = |one: &Schedule| faults_of(one).intersection(&wanted).count();
        let mut best = schedule::draw(self.chance.next(), &frame);
        for _ in 1..LOOKED_AT {
            let other = schedule::draw(self.chance.next(), &frame);
            if fresh(&other) > fresh(&best) {
                best = other;
            }
        }
        best
    }

    /// Plays one; true when it failed.
    async fn play(&mut self, shop: &mut Workshop, schedule: &Schedule) -> Result<bool> {
        self.rounds = self.rounds.saturating_add(1);
        let heading =
            format!("seed {} {} x{}", schedule.seed, schedule.store.name(), schedule.nodes);
        let round = match round::play(shop, schedule, self.rounds).await {
            Ok(round) => round,
            Err(error) => {
                // A round that could not be played says nothing about the program under test; many of them do.
                self.unplayed = self.unplayed.saturating_add(1);
                if self.unplayed > UNPLAYED_MAX {
                    return Err(error.context("too many rounds could not be played"));
                }
                tell(&format!("{heading} could not be played: {error:#}"));
                return Ok(false);
            }
        };
        let faults: Vec<String> =
            round.injected.iter().map(|(kind, count)| format!("{kind}:{count}")).collect();
        let wrong = round.judgement.wrong();
        let end = if wrong.is_empty() { "ok" } else { "VIOLATION" };
        tell(&format!("round {} {heading}: {} | {end}", self.rounds, faults.join(" ")));
        self.seen.extend(round.injected.keys().map(|kind| (schedule.store, *kind)));
        self.take(&heading, &wrong, &round)?;
        if wrong.is_empty() && !self.cli.keep {
            round::forget(&round.folder);
        }
        Ok(!wrong.is_empty())
    }

    fn take(&mut self, heading: &str, wrong: &[String], round: &Round) -> Result<()> {
        let judged = &round.judgement;
        self.report.take(&judged.events, &judged.lines, &judged.verdict);
        self.report.find(judged.findings.iter().map(|found| format!("{heading}: {found}")));
        if wrong.is_empty() {
            return Ok(());
        }
        for line in wrong.iter().take(20) {
            tell(&format!("  {line}"));
        }
        let tales: String = judged.verdict.violations.iter().map(ToString::to_string).collect();
        let text = format!("{}\n\n{tales}", wrong.join("\n"));
        fs::write(round.folder.join("wrong.txt"), text).context("it cannot be kept")
    }

    /// The report, and whether all is well.
    fn conclude(mut self) -> bool {
        if self.cli.replay.is_none() {
            let never: Vec<String> = self
                .unseen()
                .map(|(store, fault)| {
                    format!("{fault} ({}) never happened on {}", fault.title(), store.name())
                })
                .collect();
            self.report.find(never);
        }
        say(&mut io::stdout().lock(), &self.report.text());
        self.report.passed()
    }
}

/// Prints a line of progress.
fn tell(line: &str) {
    say(&mut io::stderr().lock(), line);
}

/// What cannot be injected here on which store, and why.
fn missing(machine: &Machine) -> BTreeMap<(Store, FaultKind), &'static str> {
    use FaultKind::{F5, F10, F11};
    let mut missing = BTreeMap::new();
    let mut lacks = |fault, store, is_lacking: bool, why| {
        if is_lacking {
            missing.insert((store, fault), why);
        }
    };
    let no_strace = machine.strace.is_none();
    lacks(F5, Store::Embedded, no_strace, "strace is not installed");
    lacks(F5, Store::Postgres, no_strace, "strace is not installed");
    let cannot_attach = no_strace || !machine.can_attach;
    let why = "it needs strace, and CAP_SYS_PTRACE: run it as root";
    lacks(F11, Store::Embedded, cannot_attach, why);
    for store in [Store::Embedded, Store::Postgres] {
        lacks(F10, store, machine.faketime.is_none(), "libfaketime is not installed");
    }
    missing
}

/// The program to test: the named one, or the one next to this program, which is rebuilt when cargo runs us.
async fn locate(named: Option<&Path>, own: &Path) -> Result<PathBuf> {
    if let Some(named) = named {
        return fs::canonicalize(named)
            .with_context(|| format!("`{}` is not there", named.display()));
    }
    if let Some(cargo) = std::env::var_os("CARGO") {
        let built = Command::new(cargo).args(["build", "--package", "placet"]).status().await;
        if !built.context("cargo does not start")?.success() {
            bail!("`placet` does not build");
        }
    }
    let beside = own.with_file_name("placet");
    if !beside.is_file() {
        bail!("`{}` is not there: build it, or name it with --placet", beside.display());
    }
    Ok(beside)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use placet_testkit::machine::Machine;

    use super::{Store, missing};
    use crate::history::fault::FaultKind;

    /// On which stores a machine cannot move clocks.
    fn without_clocks(machine: &Machine) -> Vec<Store> {
        let missing = missing(machine).into_keys();
        missing.filter(|(_, fault)| *fault == FaultKind::F10).map(|(store, _)| store).collect()
    }

    #[test]
    fn a_machine_without_what_moves_clocks_says_so_of_both_stores() {
        let faketime = Some(PathBuf::from("libfaketime"));
        assert_eq!(without_clocks(&Machine { faketime, ..Machine::default() }), []);
        assert_eq!(without_clocks(&Machine::default()), [Store::Embedded, Store::Postgres]);
    }
}
