//! Every system call of the store's life is once the last one, or one that fails: what was acknowledged is there, and nothing is done
//! twice (F4, F5, F11).
//!
//! A program of its own, because it starts itself again under strace. `PLACET_CRASH_POINTS=full` also fails every call with `ENOSPC`
//! and every call of a restart with `EIO`, and fails every call of what is done beside the calls (`keeping`), where else a sample is.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "the whole program is a test, its helpers too"
)]

mod blows;
mod check;
mod keeping;
mod strace;
mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_ledger::store::{Store as _, StoreError};
use placet_store::embedded::{EmbeddedStore, StateFate};

use blows::{Case, EIO, ENOSPC, GROWING, Tally, is_full, kill_all, strike_all};
use check::check;
use strace::{Blow, CALLS, Treatment, events, run, was_killed};
use support::{Account, Facts, call, note, open, runtime};

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
fn the_process_that_is_hit() {
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
    if let Some(lived) = keeping::live(folder, script, account) {
        return lived;
    }
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

/// Three snapshots with calls between them: the last one takes the place of the first.
fn keep(store: &Arc<EmbeddedStore>, account: &mut Account) -> Result<(), String> {
    let kept = runtime().block_on(async {
        store.snapshot().await?;
        call(store, "late-0", account).await?;
        store.snapshot().await?;
        call(store, "late-1", account).await?;
        store.snapshot().await
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

#[test]
fn a_kill_at_any_system_call_of_a_first_life_loses_nothing_and_repeats_nothing() {
    kill_all("open, claim, dispatch, settle, close", [Case::new("an empty folder", "first")]);
}

#[test]
fn a_kill_at_any_system_call_of_a_restart_loses_nothing_and_repeats_nothing() {
    let cases = [
        Case::after_a_life("after a close", "again"),
        Case::after_a_crash("after a crash", "again"),
        Case::with_a_damaged_state("with a damaged state", "recover"),
    ];
    kill_all("restart after a close, after a crash, with a rebuild", cases);
}

#[test]
fn a_kill_at_any_system_call_of_a_snapshot_loses_nothing_and_repeats_nothing() {
    kill_all("snapshots", [Case::after_a_life("after a close", "keep")]);
}

#[test]
fn the_folders_that_recovery_starts_from_are_what_they_are_called() {
    let crashed = Case::after_a_crash("after a crash", "recover").copy();
    let report = check(&crashed.folder, &crashed.account, &keys()).unwrap();
    assert!(report.torn_bytes > 0 && report.replayed > 0 && !report.open.is_empty(), "{report:?}");
    let rebuilt = Case::with_a_damaged_state("with a damaged state", "recover").copy();
    let report = check(&rebuilt.folder, &rebuilt.account, &keys()).unwrap();
    let is_rebuilt = matches!(report.state, StateFate::Rebuilt { .. });
    assert!(is_rebuilt && report.snapshot_seq > 0, "{report:?}");
}

#[test]
fn recovery_that_is_killed_again_and_again_comes_through_at_last() {
    let mut tally = Tally::default();
    for case in [
        Case::after_a_crash("after a crash", "recover"),
        Case::with_a_damaged_state("with a damaged state", "recover"),
    ] {
        // All in one folder: each kill finds what the one before it has left.
        let copy = case.copy();
        let dry = case.copy();
        for event in events(&CALLS, dry.scene(case.script), &dry.log) {
            tally.points += 1;
            if event.is_shadowed {
                tally.shadowed += 1;
                continue;
            }
            let blow = Treatment::Strike(Blow::Kill, &event);
            let status = run(blow, copy.scene(case.script), &copy.log);
            // What an earlier attempt has finished is not done again, so some find nothing to strike.
            tally.struck += u64::from(was_killed(status));
        }
        if let Err(why) = (case.check)(&copy) {
            tally.wrong.push(format!("{}: {why}", case.name));
        }
    }
    tally.report("recovery killed repeatedly in one folder", "killed");
}

#[test]
fn a_call_that_fails_in_a_first_life_stops_the_store_and_loses_nothing() {
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
    let mut tally = Tally::default();
    let case = Case::after_a_crash("after a crash", "again");
    strike_all(&case, &mut tally, &[ENOSPC], &GROWING);
    if is_full() {
        strike_all(&case, &mut tally, &[EIO], &CALLS);
        strike_all(
            &Case::with_a_damaged_state("with a damaged state", "recover"),
            &mut tally,
            &[EIO, ENOSPC],
            &CALLS,
        );
    }
    tally.report("restart after a crash", "failed");
}

/// sled reads its files itself, so they are refused from outside.
#[test]
fn a_state_that_cannot_be_opened_for_the_moment_is_not_set_aside() {
    let case = Case::after_a_life("after a close", "recover");
    let dry = case.copy();
    let opened = events(&["openat"], dry.scene("recover"), &dry.log);
    let db = opened.iter().find(|event| event.path.ends_with("state/db")).unwrap();
    for error in ["EMFILE", "EIO", "EACCES"] {
        let copy = case.copy();
        run(Treatment::Strike(Blow::Fail(error), db), copy.scene("recover"), &copy.log);
        let facts = Facts::read(&copy.account);
        assert!(facts.failed.is_some_and(|why| why.contains("cannot open the state")), "{error}");
        let report = check(&copy.folder, &copy.account, &keys()).unwrap();
        assert!(matches!(report.state, StateFate::Kept), "{error}: {report:?}");
        let names =
            std::fs::read_dir(&copy.folder).unwrap().map(|entry| entry.unwrap().file_name());
        let aside = names.filter(|name| name.to_string_lossy().contains("damaged")).count();
        assert_eq!(aside, 0, "{error}");
    }
}

#[test]
fn a_slow_disk_delays_and_changes_nothing() {
    for kind in ["fdatasync", "pwrite64"] {
        let case = Case::new("a slow disk", "first");
        let copy = case.copy();
        let status = run(Treatment::Delay { kind, us: 50_000 }, copy.scene("first"), &copy.log);
        let facts = Facts::read(&copy.account);
        assert!(
            status.success() && facts.ended && facts.done.len() == FIRST.len(),
            "{kind}: {facts:?}"
        );
        (case.check)(&copy).unwrap();
    }
}
