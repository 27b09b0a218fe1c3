//! A run: rounds until the time is over, the first failing one kept and shrunk, and the report.
//!
//! Owns which seeds are played: the kept ones first, then drawn ones, of which those come first that hold what the run lacks (`choose`).
//! Invariants: a fault that applies here and never came to happen fails the run; so does a part of a promise that came up on a store and
//! was never judged there, unless somebody has chosen the rounds.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use placet_chaos::{
    checker::Part,
    history::fault::FaultKind,
    report::{NeverJudged, Report},
};
use placet_testkit::{machine::Machine, moment::Moment};
use tokio::{process::Command, time::Instant};

use crate::{
    Cli, Stores,
    choose::Wanted,
    progress::{Progress, Totals},
    round::{self, Round, Workshop},
    say,
    schedule::{self, Frame, Schedule, Store, applies},
    seeded::Chance,
    seeds::{self, Played},
    setup::{self, Abilities},
};

/// How many seeds are looked at for one that holds what is missing.
const LOOKED_AT: usize = 96;
/// How many rounds may fail before their load begins, as when a database server takes too long to start, and one more for each of so
/// many that were played: more are no accident.
const UNPLAYED_MAX: u64 = 2;
const PLAYED_FOR_EACH: u64 = 20;

/// Runs; true when all is well.
pub(crate) async fn run(cli: &Cli) -> Result<bool> {
    let own = std::env::current_exe().context("this program cannot find itself")?;
    let placet = locate(cli.placet.as_deref(), &own).await?;
    let base = cli.folder.clone().unwrap_or_else(std::env::temp_dir);
    fs::create_dir_all(&base).with_context(|| format!("`{}` cannot be made", base.display()))?;
    let folder = tempfile::Builder::new().prefix("placet-chaos-").tempdir_in(&base)?;
    let mut shop = workshop(placet, folder.path(), cli.env.clone()).await?;
    let seed = cli.seed.unwrap_or_else(|| Moment::now().us);
    let mut run = Run::new(cli, &shop, seed)?;
    let played = tokio::select! {
        played = run.play_all(&mut shop) => played,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("stopped")),
    };
    if cli.keep || !matches!(played, Ok(false)) {
        let path = folder.keep();
        say(&mut io::stdout().lock(), &format!("kept: {}", path.display()));
    }
    // Whatever ended it, what was seen until then is told.
    let fine = run.conclude()?;
    played.map(|_| fine)
}

/// What rounds of this program are made with, in a folder.
pub(crate) async fn workshop(
    placet: PathBuf,
    folder: &Path,
    env: Vec<(String, String)>,
) -> Result<Workshop> {
    Ok(Workshop {
        policies: setup::shipped_policies(&placet, folder).await?,
        abilities: Abilities::ask(&placet).await?,
        commit: version(&placet).await,
        machine: Machine::look(),
        folder: folder.to_owned(),
        postgres: None,
        placet,
        env,
    })
}

/// A run under way.
struct Run<'a> {
    cli: &'a Cli,
    seed: u64,
    chance: Chance,
    stores: Vec<Store>,
    length: Duration,
    faults: BTreeSet<FaultKind>,
    /// Why a fault cannot be injected here, on which store.
    missing: BTreeMap<(Store, FaultKind), String>,
    totals: Totals,
    reports: Vec<Report>,
    wrong: Vec<String>,
    /// Rounds that failed before their load began.
    unplayed: u64,
    progress: Progress,
}

impl<'a> Run<'a> {
    fn new(cli: &'a Cli, shop: &Workshop, seed: u64) -> Result<Self> {
        let can_share = shop.abilities.ledger && shop.machine.can_serve_postgres();
        let stores = match cli.store {
            None if can_share => Stores::Both.stores(),
            None => Stores::Embedded.stores(),
            Some(stores) if stores.stores().contains(&Store::Postgres) && !can_share => {
                bail!(
                    "a PostgreSQL ledger cannot be tried here: {}",
                    if shop.abilities.ledger {
                        "PostgreSQL's server programs are not installed"
                    } else {
                        "this `placet` has no other ledger than the embedded one"
                    }
                )
            }
            Some(stores) => stores.stores(),
        };
        let chosen: BTreeSet<FaultKind> = if cli.faults.is_empty() {
            FaultKind::ALL.iter().copied().collect()
        } else {
            cli.faults.iter().copied().collect()
        };
        let length = Duration::try_from_secs_f64(cli.minutes * 60.0).context("no such time")?;
        Ok(Self {
            cli,
            seed,
            chance: Chance::new(seed),
            stores: stores.to_vec(),
            length,
            missing: missing(shop, &chosen, stores),
            faults: chosen,
            totals: Totals::default(),
            reports: Vec::new(),
            wrong: Vec::new(),
            unplayed: 0,
            progress: Progress::begin(length),
        })
    }

    /// Plays rounds until the time is over or one fails; whether something is to be kept.
    async fn play_all(&mut self, shop: &mut Workshop) -> Result<bool> {
        self.progress.line(&format!(
            "seed {}, {} ({})",
            self.seed,
            shop.placet.display(),
            shop.commit
        ));
        for ((store, fault), why) in &self.missing {
            let (title, store) = (fault.title(), store.name());
            self.progress.line(&format!("{fault} ({title}) not applicable on {store}: {why}"));
        }
        if let Some(path) = &self.cli.replay {
            let text = fs::read(path).with_context(|| format!("`{}`", path.display()))?;
            let schedule = serde_json::from_slice(&text).context("it is no schedule")?;
            return self.play(shop, &schedule).await;
        }
        let until = Instant::now() + self.length;
        let mut failed = false;
        // Anyone who wants only some faults does not want those of the kept seeds.
        let kept = if self.cli.faults.is_empty() { seeds::kept()? } else { Vec::new() };
        for kept in kept {
            if self.stores.contains(&kept.store) && !failed {
                let frame = Frame {
                    faults: FaultKind::ALL.iter().copied().collect(),
                    ..self.frame(kept.store, kept.nodes)
                };
                let schedule = match kept.what {
                    Played::Seed(seed) => schedule::draw(seed, &frame),
                    Played::Schedule(schedule) => *schedule,
                };
                failed = self.play(shop, &schedule).await?;
            }
        }
        let mut turn = 0_usize;
        // On a slow machine some fault, or something to be judged, may not have come in time: half as long again is given to those.
        let at_last = until + self.length.checked_div(2).unwrap_or_default();
        let goes_on = |all_seen: bool| {
            let now = Instant::now();
            now < until || (now < at_last && !all_seen)
        };
        while goes_on(self.has_all()) && (!failed || self.cli.go_on) {
            let schedule = self.next(turn);
            turn = turn.saturating_add(1);
            failed |= self.play(shop, &schedule).await?;
        }
        Ok(failed)
    }

    /// The faults that apply here, on each store.
    fn expected(&self) -> impl Iterator<Item = (Store, FaultKind)> {
        let all =
            self.stores.iter().flat_map(|store| self.faults.iter().map(|fault| (*store, *fault)));
        all.filter(|one| applies(one.1, one.0) && !self.missing.contains_key(one))
    }

    /// Those of them that have not come to happen.
    fn unseen(&self) -> impl Iterator<Item = (Store, FaultKind)> {
        self.expected().filter(|fault| !self.totals.injected.contains_key(fault))
    }

    /// Whether nobody has chosen the rounds: one schedule, those of a seed, or some faults only.
    fn is_whole(&self) -> bool {
        self.cli.replay.is_none() && self.cli.seed.is_none() && self.cli.faults.is_empty()
    }

    /// Whether nothing is missing that would fail the run.
    fn has_all(&self) -> bool {
        let all_judged = || NeverJudged::among(&self.reports).is_empty();
        self.unseen().next().is_none() && (!self.is_whole() || all_judged())
    }

    /// What the next round on a store is to have. The first drawn one moves no clocks, nor does any while something came up on this store
    /// that only such a round can judge.
    fn wanted(&self, store: Store, is_first: bool) -> Wanted {
        let gaps = NeverJudged::among(&self.reports);
        let mut own = self.reports.iter().filter(|round| round.store() == store.name());
        let is_open = |fault: &FaultKind| {
            let one = (store, *fault);
            !self.totals.injected.contains_key(&one) && !self.missing.contains_key(&one)
        };
        Wanted {
            calm: is_first || gaps.iter().any(|gap| gap.store == store.name()),
            stop: own.all(|round| round.judged(Part::IdleOnceStopped) == 0),
            faults: self.faults.iter().copied().filter(is_open).collect(),
        }
    }

    fn frame(&self, store: Store, nodes: usize) -> Frame {
        let length_ms = self.cli.round_seconds.saturating_mul(1_000);
        Frame { store, nodes, length_ms, faults: self.faults.clone() }
    }

    /// The next schedule: of some drawn seeds, the one with the most of what the run lacks.
    fn next(&mut self, turn: usize) -> Schedule {
        let at = turn.checked_rem(self.stores.len()).unwrap_or(0);
        let store = self.stores.get(at).copied().unwrap_or(Store::Embedded);
        let chosen = self.cli.nodes.and_then(|nodes| usize::try_from(nodes).ok());
        let nodes = match store {
            Store::Embedded => 1,
            Store::Postgres => chosen.unwrap_or(if turn % 4 < 2 { 3 } else { 1 }),
        };
        let frame = self.frame(store, nodes);
        let wanted = self.wanted(store, turn < self.stores.len());
        let chance = &mut self.chance;
        let drawn = (0..LOOKED_AT).map(|_| schedule::draw(chance.next(), &frame));
        wanted.best(drawn).unwrap_or_else(|| schedule::draw(self.seed, &frame))
    }

    /// Plays one; true when it failed.
    async fn play(&mut self, shop: &mut Workshop, schedule: &Schedule) -> Result<bool> {
        self.progress.round(schedule, &self.totals);
        let number = self.totals.rounds.saturating_add(1);
        let round = match round::play(shop, schedule, number).await {
            Ok(round) => round,
            Err(error) => return self.not_played(schedule, error),
        };
        self.totals.add(schedule.store, &round);
        self.progress.played(schedule, &round, &self.totals);
        let failed = !round.judgement.wrong.is_empty();
        if failed {
            self.failed(schedule, &round)?;
        } else if !self.cli.keep {
            round::forget(&round.folder);
        }
        self.reports.push(round.judgement.report);
        Ok(failed)
    }

    /// A round that came to nothing says nothing of the program under test; many of them do.
    fn not_played(&mut self, schedule: &Schedule, error: anyhow::Error) -> Result<bool> {
        self.unplayed = self.unplayed.saturating_add(1);
        let played = self.totals.rounds.checked_div(PLAYED_FOR_EACH).unwrap_or_default();
        if self.unplayed > UNPLAYED_MAX.saturating_add(played) {
            return Err(error.context("too many rounds could not be played"));
        }
        let line = format!("seed {} could not be played: {error:#}", schedule.seed);
        self.progress.line(&line);
        Ok(false)
    }

    fn failed(&mut self, schedule: &Schedule, round: &Round) -> Result<()> {
        for line in round.judgement.wrong.iter().take(20) {
            self.progress.line(&format!("  {line}"));
        }
        let text = format!("{}\n\n{}", round.judgement.wrong.join("\n"), round.judgement.tales);
        fs::write(round.folder.join("wrong.txt"), text).context("it cannot be kept")?;
        let heading =
            format!("seed {} ({}, {} nodes)", schedule.seed, schedule.store.name(), schedule.nodes);
        self.wrong.extend(round.judgement.wrong.iter().map(|line| format!("{heading}: {line}")));
        Ok(())
    }

    /// The report, and whether all is well.
    fn conclude(self) -> Result<bool> {
        self.progress.end();
        let unseen: Vec<(Store, FaultKind)> =
            if self.cli.replay.is_some() { Vec::new() } else { self.unseen().collect() };
        let mut never: Vec<FaultKind> = unseen.iter().map(|(_, fault)| *fault).collect();
        never.sort_unstable();
        never.dedup();
        let never_on = unseen.iter().map(|(store, fault)| {
            format!("{fault} ({}) never happened on {}", fault.title(), store.name())
        });
        let mut report = Report::merged(&self.reports, &never)
            .with_findings(never_on)
            .with_unplayed(self.unplayed);
        if self.is_whole() {
            report = report.of_whole_run();
        }
        if let Some(run) = &mut report.run {
            // What all rounds were drawn from, not the first of them.
            run.seed = self.seed;
        }
        if let Some(path) = &self.cli.json {
            fs::write(path, report.json()?).with_context(|| format!("`{}`", path.display()))?;
        }
        let mut out = io::stdout().lock();
        say(&mut out, &report.text());
        for line in self.wrong.iter().take(50) {
            say(&mut out, &format!("VIOLATION {line}"));
        }
        Ok(self.wrong.is_empty() && report.passed())
    }
}

/// What cannot be injected here on which store, and why.
fn missing(
    shop: &Workshop,
    chosen: &BTreeSet<FaultKind>,
    stores: &[Store],
) -> BTreeMap<(Store, FaultKind), String> {
    const BOTH: &[Store] = &[Store::Embedded, Store::Postgres];
    let mut missing = BTreeMap::new();
    let mut lacks = |fault, on: &[Store], lacking: bool, why: &str| {
        let here = stores.iter().filter(|store| on.contains(store) && applies(fault, **store));
        for store in here.filter(|_| lacking && chosen.contains(&fault)) {
            missing.insert((*store, fault), why.to_owned());
        }
    };
    let machine = &shop.machine;
    lacks(FaultKind::F5, BOTH, machine.strace.is_none(), "strace is not installed");
    lacks(FaultKind::F11, BOTH, machine.strace.is_none(), "strace is not installed");
    lacks(FaultKind::F11, BOTH, !machine.can_attach, "CAP_SYS_PTRACE is missing: run it as root");
    // An embedded ledger goes by the clock of its node, a shared one by that of its database.
    lacks(FaultKind::F10, &[Store::Embedded], machine.faketime.is_none(), NO_FAKETIME);
    lacks(FaultKind::F10, &[Store::Postgres], machine.compiler.is_none(), NO_COMPILER);
    let ledger = shop.abilities.ledger;
    lacks(FaultKind::F18, BOTH, !ledger, "this `placet` has no configurable retention");
    missing
}

const NO_FAKETIME: &str = "libfaketime is not installed";
const NO_COMPILER: &str = "`cc` is not installed: it compiles what moves the clock of the database";

/// The program to test: the one named, or the one beside this program, which is brought up to date when cargo runs us.
async fn locate(named: Option<&Path>, own: &Path) -> Result<PathBuf> {
    if let Some(named) = named {
        return fs::canonicalize(named)
            .with_context(|| format!("`{}` is not there", named.display()));
    }
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut command = Command::new(cargo);
        command.args(["build", "--package", "placet"]);
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        let built = command.status().await.context("cargo does not start")?;
        if !built.success() {
            bail!("`placet` does not build");
        }
    }
    let beside = own.with_file_name("placet");
    if !beside.is_file() {
        bail!("`{}` is not there: build it, or name it with --placet", beside.display());
    }
    Ok(beside)
}

async fn version(placet: &Path) -> String {
    let output = Command::new(placet).arg("--version").env_clear().output().await;
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use placet_chaos::history::fault::FaultKind;
    use placet_testkit::machine::Machine;

    use super::{Store, Stores, Workshop, missing};
    use crate::setup::Abilities;

    /// On which stores a machine cannot move clocks.
    fn without_clocks(machine: Machine, stores: Stores) -> Vec<Store> {
        let shop = Workshop {
            placet: PathBuf::new(),
            abilities: Abilities { ledger: true, export: true },
            commit: String::new(),
            machine,
            folder: PathBuf::new(),
            postgres: None,
            policies: PathBuf::new(),
            env: Vec::new(),
        };
        let missing = missing(&shop, &[FaultKind::F10].into(), stores.stores());
        assert!(missing.keys().all(|(_, fault)| *fault == FaultKind::F10), "{missing:?}");
        missing.into_keys().map(|(store, _)| store).collect()
    }

    #[test]
    fn a_machine_without_what_moves_a_stores_clock_says_so_of_that_store() {
        let faketime = Some(PathBuf::from("libfaketime"));
        let compiler = Some(PathBuf::from("cc"));
        let nothing = Machine::default;
        let both = Machine { faketime: faketime.clone(), compiler: compiler.clone(), ..nothing() };
        assert_eq!(without_clocks(both, Stores::Both), []);
        let no_compiler = || Machine { faketime: faketime.clone(), ..nothing() };
        assert_eq!(without_clocks(no_compiler(), Stores::Both), [Store::Postgres]);
        assert_eq!(without_clocks(no_compiler(), Stores::Embedded), []);
        let no_faketime = Machine { compiler, ..nothing() };
        assert_eq!(without_clocks(no_faketime, Stores::Both), [Store::Embedded]);
        assert_eq!(without_clocks(nothing(), Stores::Both), [Store::Embedded, Store::Postgres]);
    }
}
