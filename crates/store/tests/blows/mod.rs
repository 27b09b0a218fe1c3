//! A folder in a known form, copied for each system call of a script, and the blow that the call gets.
//!
//! Owns the cases and their copies, the striking of every call or of a sample, and the tally. Not here: how strace is told (`strace`),
//! what a script does (`crash_points`, `keeping`), what must be true afterwards (`check`, `keeping`).

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::check::check;
use super::strace::{Blow, CALLS, Event, Scene, Treatment, check_strace, events, run, was_killed};
use super::support::{Facts, copy, files, scratch};

pub(crate) const EIO: Blow = Blow::Fail("EIO");
pub(crate) const ENOSPC: Blow = Blow::Fail("ENOSPC");
/// How often a blow is dealt until it meets its call.
const TRIES: u32 = 4;
/// The calls that a full disk refuses.
pub(crate) const GROWING: [&str; 5] = ["openat", "write", "pwrite64", "fallocate", "fdatasync"];

/// One way for a folder to be, from which a script starts.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) script: &'static str,
    /// The folder and the account of how it came about.
    pub(crate) template: TempDir,
    /// What must be true after every blow.
    pub(crate) check: fn(&Copy) -> Result<(), String>,
    /// How many calls are struck where not all of them are asked for.
    pub(crate) sample: usize,
    /// The script works beside the data folder too.
    pub(crate) is_wide: bool,
}

/// A copy of a case that may be spoilt.
pub(crate) struct Copy {
    _kept: TempDir,
    /// What holds all the others.
    pub(crate) root: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) account: PathBuf,
    pub(crate) log: PathBuf,
    /// The account of how the case came about.
    pub(crate) template_account: PathBuf,
    is_wide: bool,
}

impl Case {
    pub(crate) fn new(name: &'static str, script: &'static str) -> Self {
        check_strace().unwrap_or_else(|why| panic!("{why}"));
        let template = scratch();
        fs::create_dir(template.path().join("data")).unwrap();
        let check = |copy: &Copy| check(&copy.folder, &copy.account, &super::keys()).map(drop);
        Self { name, script, template, check, sample: usize::MAX, is_wide: false }
    }

    pub(crate) fn copy(&self) -> Copy {
        let kept = scratch();
        copy(self.template.path(), kept.path());
        let [folder, account, log] = ["data", "account", "log"].map(|name| kept.path().join(name));
        let template_account = self.template.path().join("account");
        let (root, is_wide) = (kept.path().to_owned(), self.is_wide);
        Copy { _kept: kept, root, folder, account, log, template_account, is_wide }
    }

    /// Lets a script pass in the template itself.
    pub(crate) fn lived(self, script: &str) -> Self {
        let [folder, account] = ["data", "account"].map(|name| self.template.path().join(name));
        let scene = Scene { script, folder: &folder, account: &account };
        let log = self.template.path().join("log");
        let status = run(Treatment::Watch(&["rmdir"]), scene, &log);
        let facts = Facts::read(&account);
        assert!(status.success() && facts.ended, "`{script}` came to no end: {status} {facts:?}");
        self
    }

    /// Lets a script pass in the template itself until it is killed at a call.
    pub(crate) fn killed_in(self, script: &str, event: &Event) -> Self {
        let [folder, account, log] =
            ["data", "account", "log"].map(|name| self.template.path().join(name));
        let scene = Scene { script, folder: &folder, account: &account };
        let status = run(Treatment::Strike(Blow::Kill, event), scene, &log);
        assert!(was_killed(status), "{}: it outlived the blow at {}", self.name, event.text);
        self
    }

    /// Lets a whole first life pass.
    pub(crate) fn after_a_life(name: &'static str, script: &'static str) -> Self {
        Self::new(name, script).lived("first")
    }

    /// Kills a first life at a sync, and leaves besides what a power cut and a killed recovery leave.
    pub(crate) fn after_a_crash(name: &'static str, script: &'static str) -> Self {
        let dry = Self::new(name, "first").copy();
        let syncs = events(&["fdatasync"], dry.scene("first"), &dry.log);
        let syncs: Vec<Event> = syncs
            .into_iter()
            .filter(|event| event.text.contains(".segment>") && !event.is_shadowed)
            .collect();
        let last = syncs.iter().rev().nth(2).unwrap();
        let case = Self::new(name, script).killed_in("first", last);
        let folder = case.template.path().join("data");
        tear(&folder);
        fs::write(folder.join("journal/000000000099.segment.tmp"), b"unfinished").unwrap();
        fs::write(folder.join("state/snap.0000.generating"), b"unfinished").unwrap();
        case
    }

    /// A whole life with snapshots, and then the state cannot be read any more.
    pub(crate) fn with_a_damaged_state(name: &'static str, script: &'static str) -> Self {
        let case = Self::after_a_life(name, script).lived("keep");
        let db = case.template.path().join("data/state/db");
        let length = fs::read(&db).unwrap().len();
        fs::write(&db, vec![0x77; length]).unwrap();
        case
    }
}

impl Copy {
    pub(crate) fn scene<'a>(&'a self, script: &'a str) -> Scene<'a> {
        let folder = if self.is_wide { &self.root } else { &self.folder };
        Scene { script, folder, account: &self.account }
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
pub(crate) struct Tally {
    pub(crate) points: u64,
    pub(crate) struck: u64,
    pub(crate) shadowed: u64,
    /// Calls that are struck only where all are asked for.
    passed_over: u64,
    missed: u64,
    pub(crate) wrong: Vec<String>,
}

impl Tally {
    fn count(&mut self, is_hit: bool) {
        *(if is_hit { &mut self.struck } else { &mut self.missed }) += 1;
    }

    fn fail(&mut self, case: &str, event: &Event, blow: Blow, why: &str) {
        self.wrong.push(format!("{case}, {blow:?} at {}: {why}", event.text));
    }

    /// Prints past the harness, which shows only what a failed test has printed.
    pub(crate) fn report(&self, what: &str, strike: &str) {
        let sample = if self.passed_over == 0 {
            String::new()
        } else {
            format!(", {} left to a full run (seed {})", self.passed_over, seed())
        };
        let line = format!(
            "crash points, {what}: {} system calls, {} {strike}, {} in the shadow of another thread, {} missed{sample}, {} violations\n",
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

pub(crate) fn is_full() -> bool {
    std::env::var_os("PLACET_CRASH_POINTS").is_some_and(|mode| mode == "full")
}

/// What the sample is chosen by.
fn seed() -> u64 {
    std::env::var("PLACET_SEED").map_or(0, |seed| seed.parse().unwrap())
}

/// Hits every call of a case, or a sample spread over all of them, each in a copy of its own.
pub(crate) fn strike_all(case: &Case, tally: &mut Tally, blows: &[Blow], kinds: &[&'static str]) {
    let dry = case.copy();
    let mut found = Vec::new();
    let all = events(kinds, dry.scene(case.script), &dry.log).into_iter();
    // The account is the test's own.
    for event in all.filter(|event| event.path != Path::new("account")) {
        tally.points += 1;
        if event.is_shadowed {
            tally.shadowed += 1;
        } else {
            found.push(event);
        }
    }
    // A script that nothing hits leaves a sound folder too.
    (case.check)(&dry).unwrap_or_else(|why| panic!("{}: {why}", case.name));
    let stride = if is_full() { 1 } else { found.len().div_ceil(case.sample).max(1) };
    // Another sample for another seed, so that many runs come to all of them.
    let first = usize::try_from(seed()).unwrap() % stride;
    for (at, event) in found.iter().enumerate() {
        if at % stride == first {
            blows.iter().for_each(|blow| strike(case, event, *blow, tally));
        } else {
            tally.passed_over += 1;
        }
    }
}

/// Hits one call. On a loaded machine the threads of a script come in another order now and then, and the call with this number is
/// another one or none: such a run is judged too, and then tried again.
fn strike(case: &Case, event: &Event, blow: Blow, tally: &mut Tally) {
    let is_hit_once = (0..TRIES).any(|_| is_hit(case, event, blow, tally));
    tally.count(is_hit_once);
}

/// Lets the script pass once, judges what it left, and says whether the call was struck.
fn is_hit(case: &Case, event: &Event, blow: Blow, tally: &mut Tally) -> bool {
    let copy = case.copy();
    let status = run(Treatment::Strike(blow, event), copy.scene(case.script), &copy.log);
    let facts = Facts::read(&copy.account);
    let is_kill = matches!(blow, Blow::Kill);
    if !is_kill {
        if was_killed(status) || !status.success() {
            tally.fail(case.name, event, blow, &format!("the child ended with {status}"));
        }
        if facts.went_on {
            tally.fail(case.name, event, blow, "something was acknowledged after a failure");
        }
    }
    if let Err(why) = (case.check)(&copy) {
        tally.fail(case.name, event, blow, &why);
    }
    if is_kill {
        was_killed(status)
    } else {
        fs::read_to_string(&copy.log).unwrap().contains("(INJECTED)")
    }
}

/// Kills at the calls of each case.
pub(crate) fn kill_all(what: &str, cases: impl IntoIterator<Item = Case>) {
    let mut tally = Tally::default();
    cases.into_iter().for_each(|case| strike_all(&case, &mut tally, &[Blow::Kill], &CALLS));
    tally.report(what, "killed");
}

/// Fails the calls of each case.
pub(crate) fn fail_all(what: &str, cases: impl IntoIterator<Item = Case>) {
    let mut tally = Tally::default();
    for case in cases {
        strike_all(&case, &mut tally, &[EIO], &CALLS);
        strike_all(&case, &mut tally, &[ENOSPC], &GROWING);
    }
    tally.report(what, "failed");
}
