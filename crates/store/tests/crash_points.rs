//! Every system call of the store's life is once the last one, or one that fails: what was acknowledged is there, and nothing is done
//! twice (F4, F5, F11).
//!
//! A program of its own, because it starts itself again under strace. `PLACET_CRASH_POINTS=full` also fails every call with `ENOSPC`
//! and every call of a restart with `EIO`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "the whole program is a test, its helpers too"
)]

mod check;
mod strace;
mod support;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_ledger::store::{Store as _, StoreError};
use placet_store::embedded::{EmbeddedStore, IndexFate};
use placet_types::clock::Timestamp;
use tempfile::TempDir;

use check::check;
use strace::{Blow, CALLS, Event, Scene, Treatment, check_strace, events, run, was_killed};
use support::{Account, Facts, call, copy, files, note, open, runtime, scratch};

/// What `first` calls.
const FIRST: [&str; 5] = ["a-0", "a-1", "a-2", "a-3", "a-4"];
/// What `again` calls besides.
const AGAIN: [&str; 2] = ["b-1", "b-3"];

fn keys() -> Vec<String> {
    FIRST.iter().chain(&AGAIN).map(|key| (*key).to_owned()).collect()
}

/// The process that is killed, or whose calls fail.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn the_process_that_is_struck() {
    let [folder, account] =
        [strace::FOLDER, strace::ACCOUNT].map(|name| PathBuf::from(std::env::var(name).unwrap()));
    let script = std::env::var(strace::SCRIPT).unwrap();
    let mut account = Account::open(&account);
    match live(&folder, &script, &mut account) {
        Ok(()) => account.say("ended"),
        Err(error) => account.say(&format!("failed {error}")),
    }
}

fn live(folder: &Path, script: &str, account: &mut Account) -> Result<(), String> {
    let (store, _) = open(folder).map_err(|error| error.to_string())?;
    let keys = match script {
        "recover" => return Ok(()),
        "keep" => return keep(&store, account),
        "first" => &keys()[..FIRST.len()],
        _ => &keys(),
    };
    let played = runtime().block_on(play(&store, keys, account));
    if let Err(error) = played {
        account.say(&format!("failed {error}"));
        // A store that has failed may be asked again: it has to refuse.
        for key in ["late-0", "late-1"] {
            drop(runtime().block_on(call(&store, key, account)));
        }
    }
    runtime().block_on(store.close()).map_err(|error| error.to_string())
}

/// A checkpoint, the archiving of what it covers, and a further checkpoint after further calls: all that happens beside the calls.
fn keep(store: &Arc<EmbeddedStore>, account: &mut Account) -> Result<(), String> {
    let kept = runtime().block_on(async {
        store.checkpoint().await?;
        call(store, "late-0", account).await?;
        store.archive(Timestamp::from_ms(i64::MAX)).await?;
        call(store, "late-1", account).await?;
        store.checkpoint().await
    });
    kept.map(drop).map_err(|error| error.to_string())
}

async fn play(
    store: &EmbeddedStore,
    keys: &[String],
    account: &mut Account,
) -> Result<(), StoreError> {
    note(store).await?;
    for key in keys {
        call(store, key, account).await?;
    }
    Ok(())
}

/// One way for a folder to be, from which a script starts.
struct Case {
    name: &'static str,
    script: &'static str,
    /// The folder and the account of how it came about.
    template: TempDir,
}

/// A copy of a case that may be spoilt.
struct Copy {
    _kept: TempDir,
    folder: PathBuf,
    account: PathBuf,
    log: PathBuf,
}

impl Case {
    fn new(name: &'static str, script: &'static str) -> Self {
        let template = scratch();
        fs::create_dir(template.path().join("data")).unwrap();
        Self { name, script, template }
    }

    fn copy(&self) -> Copy {
        let kept = scratch();
        copy(self.template.path(), kept.path());
        let [folder, account, log] = ["data", "account", "log"].map(|name| kept.path().join(name));
        Copy { _kept: kept, folder, account, log }
    }

    /// Lets a whole first life pass.
    fn after_a_life(name: &'static str, script: &'static str) -> Self {
        let case = Self::new(name, script);
        let [folder, account] = ["data", "account"].map(|name| case.template.path().join(name));
        let scene = Scene { script: "first", folder: &folder, account: &account };
        let status = run("rmdir", Treatment::Nothing, scene, &case.template.path().join("log"));
        assert!(
            status.success() && Facts::read(&account).ended,
            "the first life came to no end: {status}"
        );
        case
    }

    /// Kills a first life at a sync, and leaves besides what a power cut and a killed recovery leave.
    fn after_a_crash(name: &'static str, script: &'static str) -> Self {
        let first = Self::new(name, "first");
        let dry = first.copy();
        let syncs = events("fdatasync", dry.scene("first"), &dry.log);
        let syncs: Vec<Event> = syncs
            .into_iter()
            .filter(|event| event.text.contains(".segment>") && !event.is_shadowed)
            .collect();
        let last = syncs.iter().rev().nth(2).unwrap();
        let case = Self::new(name, script);
        let [folder, account, log] =
            ["data", "account", "log"].map(|name| case.template.path().join(name));
        let scene = Scene { script: "first", folder: &folder, account: &account };
        assert!(
            was_killed(run("fdatasync", Treatment::Strike(Blow::Kill, last), scene, &log)),
            "it outlived the blow"
        );
        tear(&folder);
        fs::write(folder.join("journal/000000000099.segment.tmp"), b"unfinished").unwrap();
        fs::write(folder.join("index/00000001/snap.0000.generating"), b"unfinished").unwrap();
        case
    }

    /// A whole life, and then the index cannot be read any more.
    fn with_a_spoilt_index(name: &'static str, script: &'static str) -> Self {
        let case = Self::after_a_life(name, script);
        let db = case.template.path().join("data/index/00000001/db");
        let length = fs::read(&db).unwrap().len();
        fs::write(&db, vec![0x77; length]).unwrap();
        case
    }
}

impl Copy {
    fn scene<'a>(&'a self, script: &'a str) -> Scene<'a> {
        Scene { script, folder: &self.folder, account: &self.account }
    }

    fn check(&self) -> Result<(), String> {
        check(&self.folder, &self.account, &keys()).map(drop)
    }
}

/// Cuts the last frame short, which nobody was told of.
fn tear(folder: &Path) {
    let segments = files(&folder.join("journal"));
    let last = segments
        .iter()
        .rfind(|path| path.extension().is_some_and(|kind| kind == "segment"))
        .unwrap();
    let mut bytes = fs::read(last).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end.checked_sub(9).unwrap()..=end].fill(0);
    fs::write(last, bytes).unwrap();
}

/// What was covered.
#[derive(Debug, Default)]
struct Tally {
    points: u64,
    struck: u64,
    shadowed: u64,
    missed: u64,
    wrong: Vec<String>,
}

impl Tally {
    fn count(&mut self, is_struck: bool) {
        *(if is_struck { &mut self.struck } else { &mut self.missed }) += 1;
    }

    fn fail(&mut self, case: &str, event: &Event, blow: Blow, why: &str) {
        self.wrong.push(format!("{case}, {blow:?} at {}: {why}", event.text));
    }

    /// Prints past the harness, which shows only what a failed test has printed.
    fn report(&self, what: &str, strike: &str) {
        let line = format!(
            "crash points, {what}: {} system calls, {} {strike}, {} in the shadow of another thread, {} missed, {} violations\n",
            self.points,
            self.struck,
            self.shadowed,
            self.missed,
            self.wrong.len()
        );
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
        assert!(
            self.struck > 0 && self.missed * 20 <= self.points,
            "{line}too few calls were struck"
        );
    }
}

fn is_full() -> bool {
    std::env::var_os("PLACET_CRASH_POINTS").is_some_and(|mode| mode == "full")
}

/// Strikes every call of a case, each in a copy of its own.
fn strike_all(case: &Case, tally: &mut Tally, blows: &[Blow], kinds: &[&str]) {
    for kind in kinds {
        let dry = case.copy();
        for event in events(kind, dry.scene(case.script), &dry.log) {
            tally.points += 1;
            if event.is_shadowed {
                tally.shadowed += 1;
                continue;
            }
            for blow in blows {
                strike(case, kind, &event, *blow, tally);
            }
        }
        // A script that nothing strikes leaves a sound folder too.
        dry.check().unwrap_or_else(|why| panic!("{}: {why}", case.name));
    }
}

fn strike(case: &Case, kind: &str, event: &Event, blow: Blow, tally: &mut Tally) {
    let copy = case.copy();
    let status = run(kind, Treatment::Strike(blow, event), copy.scene(case.script), &copy.log);
    let facts = Facts::read(&copy.account);
    if let Blow::Kill = blow {
        tally.count(was_killed(status));
    } else {
        tally.count(fs::read_to_string(&copy.log).unwrap().contains("(INJECTED)"));
        if was_killed(status) || !status.success() {
            tally.fail(case.name, event, blow, &format!("the child ended with {status}"));
        }
        if facts.went_on {
            tally.fail(case.name, event, blow, "something was acknowledged after a failure");
        }
    }
    if let Err(why) = copy.check() {
        tally.fail(case.name, event, blow, &why);
    }
}

const EIO: Blow = Blow::Fail("EIO");
const ENOSPC: Blow = Blow::Fail("ENOSPC");
/// The calls that a full disk refuses.
const GROWING: [&str; 5] = ["openat", "write", "pwrite64", "fallocate", "fdatasync"];

fn traced() {
    check_strace().unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn a_kill_at_any_system_call_of_a_first_life_loses_nothing_and_repeats_nothing() {
    traced();
    let mut tally = Tally::default();
    strike_all(&Case::new("an empty folder", "first"), &mut tally, &[Blow::Kill], &CALLS);
    tally.report("open, claim, dispatch, settle, close", "killed");
}

#[test]
fn a_kill_at_any_system_call_of_a_restart_loses_nothing_and_repeats_nothing() {
    traced();
    let mut tally = Tally::default();
    for case in [
        Case::after_a_life("after a close", "again"),
        Case::after_a_crash("after a crash", "again"),
        Case::with_a_spoilt_index("with a spoilt index", "recover"),
    ] {
        strike_all(&case, &mut tally, &[Blow::Kill], &CALLS);
    }
    tally.report("restart after a close, after a crash, with a rebuild", "killed");
}

#[test]
fn a_kill_at_any_system_call_of_a_checkpoint_loses_nothing_and_repeats_nothing() {
    traced();
    let mut tally = Tally::default();
    let case = Case::after_a_life("after a close", "keep");
    strike_all(&case, &mut tally, &[Blow::Kill], &CALLS);
    tally.report("checkpoints and archiving", "killed");
}

#[test]
fn the_folders_that_recovery_starts_from_are_what_they_are_called() {
    traced();
    let crashed = Case::after_a_crash("after a crash", "recover").copy();
    let report = check(&crashed.folder, &crashed.account, &keys()).unwrap();
    assert!(report.torn_bytes > 0 && report.replayed > 0 && !report.open.is_empty(), "{report:?}");
    let rebuilt = Case::with_a_spoilt_index("with a spoilt index", "recover").copy();
    let report = check(&rebuilt.folder, &rebuilt.account, &keys()).unwrap();
    assert!(matches!(report.index, IndexFate::Rebuilt { .. }), "{report:?}");
}

#[test]
fn recovery_that_is_killed_again_and_again_comes_through_at_last() {
    traced();
    let mut tally = Tally::default();
    for case in [
        Case::after_a_crash("after a crash", "recover"),
        Case::with_a_spoilt_index("with a spoilt index", "recover"),
    ] {
        // All in one folder: each kill finds what the one before it has left.
        let spoilt = case.copy();
        for kind in CALLS {
            let dry = case.copy();
            for event in events(kind, dry.scene(case.script), &dry.log) {
                tally.points += 1;
                if event.is_shadowed {
                    tally.shadowed += 1;
                    continue;
                }
                let status = run(
                    kind,
                    Treatment::Strike(Blow::Kill, &event),
                    spoilt.scene(case.script),
                    &spoilt.log,
                );
                // What an earlier attempt has finished is not done again, so some find nothing to strike.
                tally.struck += u64::from(was_killed(status));
            }
        }
        if let Err(why) = spoilt.check() {
            tally.wrong.push(format!("{}: {why}", case.name));
        }
    }
    tally.report("recovery killed repeatedly in one folder", "killed");
}

#[test]
fn a_call_that_fails_in_a_first_life_stops_the_store_and_loses_nothing() {
    traced();
    let mut tally = Tally::default();
    let case = Case::new("an empty folder", "first");
    strike_all(&case, &mut tally, &[EIO], &CALLS);
    if is_full() {
        strike_all(&case, &mut tally, &[ENOSPC], &GROWING);
    }
    tally.report("open, claim, dispatch, settle, close", "failed");
}

#[test]
fn a_call_that_fails_in_a_restart_stops_the_store_and_loses_nothing() {
    traced();
    let mut tally = Tally::default();
    let case = Case::after_a_crash("after a crash", "again");
    strike_all(&case, &mut tally, &[ENOSPC], &GROWING);
    if is_full() {
        strike_all(&case, &mut tally, &[EIO], &CALLS);
        strike_all(
            &Case::with_a_spoilt_index("with a spoilt index", "recover"),
            &mut tally,
            &[EIO, ENOSPC],
            &CALLS,
        );
    }
    tally.report("restart after a crash", "failed");
}

#[test]
fn a_slow_disk_delays_and_changes_nothing() {
    traced();
    for kind in ["fdatasync", "pwrite64"] {
        let copy = Case::new("a slow disk", "first").copy();
        let status = run(kind, Treatment::Delay { us: 50_000 }, copy.scene("first"), &copy.log);
        let facts = Facts::read(&copy.account);
        assert!(
            status.success() && facts.ended && facts.done.len() == FIRST.len(),
            "{kind}: {facts:?}"
        );
        copy.check().unwrap();
    }
}
