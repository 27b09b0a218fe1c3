//! What is done besides the calls is cut short at each of its system calls: the erasing of contents that have expired, snapshots and the
//! archiving of segments in between, backups, imports.
//!
//! Owns the scripts, and what must be true after them: what was deleted is gone from every file in the end, and nothing else is. Not
//! here: how a call is hit (`blows`), what must be true of any folder (`check`).

mod copies;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use placet_ledger::audit::{AuditEvent, AuditKind};
use placet_ledger::record::EffectState;
use placet_ledger::store::{Admission, Changes, Durability, EffectChange, Store as _, StoreError};
use placet_store::embedded::{EmbeddedConfig, EmbeddedStore, verify};
use placet_types::clock::Timestamp;

use super::blows::{Case, Copy, fail_all, is_full, kill_all};
use super::check::check;
use super::strace::{Event, events};
use super::support::records::claim;
use super::support::{
    Account, Facts, acknowledged, call, copy as copy_of, files, note, open, parked, result,
    runtime, scratch, tenant,
};

/// What there is before anything is deleted. The fourth and the eighth get segments of their own.
const OLD: [&str; 9] = ["e-0", "e-1", "e-2", "e-3", "e-4", "e-5", "e-6", "e-7", "same-0"];
/// One that is deleted while others have the same result, and one that keeps that result again.
const SHARING: &str = "same-0";
const KEEPING: &str = "same-2";
/// What is called meanwhile.
const NEW: [&str; 3] = ["f-0", "f-1", "same-1"];
/// How many calls of a script are struck where not all of them are asked for.
const SAMPLE: usize = 24;

fn keys() -> Vec<String> {
    OLD.iter().chain(&NEW).map(|key| (*key).to_owned()).collect()
}

/// Plays a script of this module, if it is one.
pub(crate) fn live(
    folder: &Path,
    script: &str,
    account: &mut Account,
) -> Option<Result<(), String>> {
    Some(match script {
        "furnish" => furnish(folder, account),
        "erase" => {
            with_store(folder, account, |store, account| runtime().block_on(erase(store, account)))
        }
        _ => return copies::live(folder, script, account),
    })
}

fn with_store(
    folder: &Path,
    account: &mut Account,
    play: impl FnOnce(&Arc<EmbeddedStore>, &mut Account) -> Result<(), StoreError>,
) -> Result<(), String> {
    let (store, _) = open(folder).map_err(|error| error.to_string())?;
    if let Err(error) = play(&store, account) {
        account.say(&format!("failed {error}"));
        // A store that has failed may be asked again: it has to refuse.
        drop(runtime().block_on(call(&store, "late-0", account)));
    }
    runtime().block_on(store.close()).map_err(|error| error.to_string())
}

/// Entries between the first calls and the others: enough for the first segments to be archived.
const NOTES: usize = 270;

fn furnish(folder: &Path, account: &mut Account) -> Result<(), String> {
    with_store(folder, account, |store, account| {
        runtime().block_on(async {
            for key in &OLD[..3] {
                call(store, key, account).await?;
            }
            for _ in 0..NOTES {
                note(store).await?;
            }
            for key in &OLD[3..] {
                call(store, key, account).await?;
            }
            store.snapshot().await.map(drop)
        })
    })
}

/// Deletes, some of it from the oldest segments, which can be archived then.
async fn erase(store: &Arc<EmbeddedStore>, account: &mut Account) -> Result<(), StoreError> {
    bury(store, &["e-0", "same-0"], account).await?;
    bury(store, &["e-1", "e-2", "e-3", "e-4"], account).await?;
    // What was deleted is kept again.
    call(store, "f-0", account).await?;
    call(store, "same-1", account).await?;
    passing(store.snapshot().await)?;
    bury(store, &["e-5"], account).await?;
    passing(store.archive(Timestamp::from_ms(i64::MAX)).await)?;
    bury(store, &["e-6"], account).await?;
    call(store, "f-1", account).await?;
    passing(store.snapshot().await)?;
    bury(store, &["e-7"], account).await
}

/// What there was no room for is tried again another time.
fn passing<T>(done: Result<T, StoreError>) -> Result<(), StoreError> {
    match done {
        Ok(_) | Err(StoreError::NoSpace | StoreError::Unreachable(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletes arguments and results of calls, and leaves tombstones, all or none: as retention does. Those that have none are left out.
async fn bury(
    store: &EmbeddedStore,
    keys: &[impl AsRef<str>],
    account: &mut Account,
) -> Result<(), StoreError> {
    let mut changes = Changes::new(Durability::Synced, Admission::Completion);
    let mut told = Vec::new();
    for key in keys.iter().map(AsRef::as_ref) {
        let Some(record) = store.effect(claim(key, &[], 1).record_id).await? else { continue };
        let EffectState::Succeeded { result, .. } = record.state else { continue };
        let was = record.state.name().to_owned();
        let tombstone = EffectState::Tombstone { was, code: None, settled_at: record.updated_at };
        let contents = [record.parked, result].map(|digest| (tenant(), digest));
        changes.forget_content.extend(contents);
        changes.effects.push(EffectChange::Put(Box::new(record.moved(tombstone, store.now())?)));
        changes.audit.push(AuditEvent::new(AuditKind::Buried));
        told.push(key);
    }
    if told.is_empty() {
        return Ok(());
    }
    told.iter().for_each(|key| account.say(&format!("burying {key}")));
    store.commit(changes).await?;
    told.iter().for_each(|key| account.say(&format!("buried {key}")));
    Ok(())
}

/// Everything that must be true after a blow: at the next start, at the one after it, when all is deleted that was to be, and then.
fn is_erased(copy: &Copy) -> Result<(), String> {
    is_no_damage(&copy.folder)?;
    check(&copy.folder, &copy.account, &keys())?;
    is_erased_at(&copy.folder, &copy.account)
}

/// What is half erased is no damage, to a check before the first start. It looks at a copy: opening the state changes it, and the start is
/// to find what the kill left.
fn is_no_damage(folder: &Path) -> Result<(), String> {
    if !folder.join("journal").try_exists().unwrap() {
        return Ok(());
    }
    let aside = scratch();
    copy_of(folder, aside.path());
    let report = verify(&EmbeddedConfig::new(aside.path())).map_err(|error| error.to_string())?;
    if !report.content.altered.is_empty() || !report.content.missing.is_empty() {
        return Err(format!("before the first start: {report:?}"));
    }
    Ok(())
}

fn is_erased_at(folder: &Path, account: &Path) -> Result<(), String> {
    let before = Facts::read(account);
    runtime().block_on(async {
        let (store, _) = open(folder).map_err(failed("a second start"))?;
        acknowledged(&store, &before).await.map_err(failed("after a second start"))?;
        let mut account = Account::open(account);
        let due: Vec<&String> = before.burying.iter().collect();
        bury(&store, &due, &mut account).await.map_err(failed("bury"))?;
        // Its result went with it, that of another call too: it is kept again for one, as the scripts do it.
        if before.burying.contains(SHARING) && !before.buried.contains(SHARING) {
            call(&store, KEEPING, &mut account).await.map_err(failed("keep again"))?;
        }
        store.close().await.map_err(failed("close"))
    })?;
    let report = verify(&EmbeddedConfig::new(folder)).map_err(failed("verify"))?;
    if !report.is_sound() || !report.is_whole() {
        return Err(format!("it does not verify: {report:?}"));
    }
    let after = Facts::read(account);
    nowhere(folder, &after)?;
    runtime().block_on(async {
        let (store, _) = open(folder).map_err(failed("a third start"))?;
        acknowledged(&store, &after).await.map_err(failed("after a third start"))?;
        store.close().await.map_err(failed("close"))
    })
}

/// An error with what failed.
fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// No file has a byte of what was deleted.
fn nowhere(folder: &Path, facts: &Facts) -> Result<(), String> {
    let mut wanted: Vec<String> = Vec::new();
    for key in &facts.buried {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim_end().to_owned();
        wanted.push(text(parked(key)));
        // It was kept again for another.
        wanted.extend((key != SHARING).then(|| text(result(key))));
    }
    for path in files(folder) {
        let bytes = fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        if let Some(found) = wanted.iter().find(|wanted| text.contains(wanted.as_str())) {
            return Err(format!("`{}` still has {found}", path.display()));
        }
    }
    Ok(())
}

impl Case {
    /// A life with contents.
    fn furnished(name: &'static str, script: &'static str) -> Self {
        let case = Self { sample: SAMPLE, check: is_erased, ..Self::new(name, script) };
        case.lived("furnish")
    }

    /// The same, and what is done besides the calls is killed at one of its system calls.
    fn erasing(name: &'static str, kind: &'static str, is_it: fn(&str) -> bool) -> Self {
        let case = Self::furnished(name, "recover");
        let dry = case.copy();
        let all = events(&[kind], dry.scene("erase"), &dry.log);
        let found: Option<&Event> =
            all.iter().find(|event| !event.is_shadowed && is_it(&event.text));
        let found = found.unwrap_or_else(|| panic!("{name}: none of {all:?}"));
        case.killed_in("erase", found)
    }
}

fn is_hole(text: &str) -> bool {
    text.contains("FALLOC_FL_PUNCH_HOLE")
}

#[test]
fn the_script_that_deletes_punches_holes_and_archives() {
    let copy = Case::furnished("contents", "erase").copy();
    let made = events(&["rename", "fallocate"], copy.scene("erase"), &copy.log);
    let holes = made.iter().filter(|event| is_hole(&event.text)).count();
    assert_eq!(holes, 18, "{made:?}");
    let archived = made.iter().filter(|event| event.text.contains("/archive/")).count();
    assert!(archived > 0, "{made:?}");
    is_erased(&copy).unwrap();
}

/// The kill comes after the account and before the entry: what is deleted only by the check goes after others have named it.
#[test]
fn a_deletion_that_was_only_announced_takes_nothing_else_with_it() {
    let copy = Case::furnished("contents", "erase").copy();
    let mut account = Account::open(&copy.account);
    ["e-0", SHARING].iter().for_each(|key| account.say(&format!("burying {key}")));
    is_erased(&copy).unwrap();
    let facts = Facts::read(&copy.account);
    assert!(facts.buried.contains(SHARING) && facts.done.contains_key(KEEPING), "{facts:?}");
}

#[test]
fn a_kill_at_any_system_call_of_deletions_brings_nothing_back() {
    kill_all("deletions, snapshots, archiving", [Case::furnished("contents", "erase")]);
}

#[test]
fn a_kill_at_any_system_call_of_the_start_after_a_deletion_brings_nothing_back() {
    let is_snapshot = |text: &str| text.contains(".snapshot\"");
    let cases = [
        Case::erasing("a content to be erased", "fallocate", is_hole),
        Case::erasing("segments to be archived", "rename", |text| text.contains("/base\"")),
        Case::erasing("a segment to be moved", "rename", |text| text.contains("/archive/")),
        Case::erasing("a snapshot to be put in place", "rename", is_snapshot),
        Case::erasing("a snapshot to be removed", "unlink", is_snapshot),
    ];
    let cases = cases.map(|case| Case { sample: SAMPLE / 3, ..case });
    kill_all("restart within deletions, snapshots, archiving", cases);
}

#[test]
fn a_call_that_fails_in_deletions_loses_nothing_and_brings_nothing_back() {
    let case = Case { sample: SAMPLE / 2, ..Case::furnished("contents", "erase") };
    let restart = is_full().then(|| Case::erasing("a content to be erased", "fallocate", is_hole));
    fail_all("deletions, snapshots, archiving", std::iter::once(case).chain(restart));
}
