//! What is done beside the calls is cut short at each of its system calls: the deleting of contents whose time is over, the writing anew
//! of packs, checkpoints and the archiving of segments in between, backups, imports.
//!
//! Owns the scripts, and what must be true after them: what was deleted is gone from every file in the end, and nothing else is. Not
//! here: how a call is struck (`strikes`), what must be true of any folder (`check`).

mod copies;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use placet_ledger::audit::{AuditEvent, AuditKind};
use placet_ledger::record::EffectState;
use placet_ledger::store::{Admission, Changes, Durability, EffectChange, Store as _, StoreError};
use placet_store::embedded::{EmbeddedConfig, EmbeddedStore, fsck, verify};
use placet_types::clock::Timestamp;

use super::check::check;
use super::strace::{Blow, CALLS, Event, events};
use super::strikes::{Case, Copy, EIO, ENOSPC, GROWING, Tally, is_full, strike_all, traced};
use super::support::records::claim;
use super::support::{
    Account, Facts, acknowledged, call, copy as copy_of, files, note, open, parked, result,
    runtime, scratch, tenant,
};

/// What there is before anything is deleted. The fourth and the eighth are files of their own, the others are in one pack.
const OLD: [&str; 9] = ["e-0", "e-1", "e-2", "e-3", "e-4", "e-5", "e-6", "e-7", "same-0"];
/// One that is deleted while others have the same result, and one that keeps that result anew.
const SHARING: &str = "same-0";
const KEEPING: &str = "same-2";
/// What is called meanwhile.
const NEW: [&str; 3] = ["f-0", "f-1", "same-1"];
/// How many calls of a script are struck where not all of them are asked for.
const SAMPLE: usize = 48;

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

fn furnish(folder: &Path, account: &mut Account) -> Result<(), String> {
    with_store(folder, account, |store, account| {
        runtime().block_on(async {
            note(store).await?;
            for key in OLD {
                call(store, key, account).await?;
            }
            Ok(())
        })
    })
}

/// Deletes most of a pack, which is rewritten; deletes on; once more.
async fn erase(store: &Arc<EmbeddedStore>, account: &mut Account) -> Result<(), StoreError> {
    bury(store, &["e-0", "same-0"], account).await?;
    bury(store, &["e-1", "e-2", "e-3", "e-4"], account).await?;
    // In a pack of its own; what was deleted is kept anew.
    call(store, "f-0", account).await?;
    call(store, "same-1", account).await?;
    passing(store.compact_content().await)?;
    // From the pack that was just written.
    bury(store, &["e-5"], account).await?;
    passing(store.checkpoint().await)?;
    bury(store, &["e-6"], account).await?;
    passing(store.archive(Timestamp::from_ms(i64::MAX)).await)?;
    passing(store.compact_content().await)?;
    call(store, "f-1", account).await?;
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

/// What is half erased is no damage, to a check before the first start. It looks at a copy: whoever opens the index mends it, and the start
/// is to find what the kill left.
fn is_no_damage(folder: &Path) -> Result<(), String> {
    if !folder.join("journal").try_exists().unwrap() {
        return Ok(());
    }
    let aside = scratch();
    copy_of(folder, aside.path());
    let report = verify(aside.path()).map_err(|error| error.to_string())?;
    if !report.content.altered.is_empty() || !report.content.missing.is_empty() {
        return Err(format!("before the first start: {report:?}"));
    }
    Ok(())
}

fn is_erased_at(folder: &Path, account: &Path) -> Result<(), String> {
    let told = |why: &str, error: String| format!("{why}: {error}");
    let before = Facts::read(account);
    runtime().block_on(async {
        let (store, _) = open(folder).map_err(|error| told("a second start", error.to_string()))?;
        acknowledged(&store, &before).await.map_err(|error| told("after a second start", error))?;
        let mut account = Account::open(account);
        let due: Vec<&String> = before.burying.iter().collect();
        bury(&store, &due, &mut account).await.map_err(|error| told("bury", error.to_string()))?;
        // Its result went with it, that of another call too: it is kept anew for one, as the scripts do it.
        if before.burying.contains(SHARING) && !before.buried.contains(SHARING) {
            let kept = call(&store, KEEPING, &mut account).await;
            kept.map_err(|error| told("keep anew", error.to_string()))?;
        }
        store.compact_content().await.map_err(|error| told("compact", error.to_string()))?;
        store.close().await.map_err(|error| told("close", error.to_string()))
    })?;
    let report = fsck(&EmbeddedConfig::new(folder)).map_err(|error| error.to_string())?;
    if !report.is_sound() || !report.is_complete || !report.verify.content.missing.is_empty() {
        return Err(format!("it does not stand the thorough check: {report:?}"));
    }
    let after = Facts::read(account);
    nowhere(folder, &after)?;
    runtime().block_on(async {
        let (store, _) = open(folder).map_err(|error| told("a third start", error.to_string()))?;
        acknowledged(&store, &after).await.map_err(|error| told("after a third start", error))?;
        store.close().await.map_err(|error| told("close", error.to_string()))
    })
}

/// No file has a byte of what was deleted.
fn nowhere(folder: &Path, facts: &Facts) -> Result<(), String> {
    let mut wanted: Vec<String> = Vec::new();
    for key in &facts.buried {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim_end().to_owned();
        wanted.push(text(parked(key)));
        // It was kept anew for another.
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
    /// A life with contents, and an append to their pack that a kill cut short: a new one is begun, and that one may be rewritten.
    fn furnished(name: &'static str, script: &'static str) -> Self {
        let case = Self { sample: SAMPLE, check: is_erased, ..Self::new(name, script) };
        let case = case.lived("furnish");
        let packs = files(&case.template.path().join("data/content")).into_iter();
        let mut packs: Vec<_> =
            packs.filter(|path| path.extension().is_some_and(|kind| kind == "pack")).collect();
        let mut pack = OpenOptions::new().append(true).open(packs.pop().unwrap()).unwrap();
        pack.write_all(b"unfinished").unwrap();
        case
    }

    /// The same, and a deletion or the writing anew of a pack is killed at a call.
    fn erasing(name: &'static str, at: (&'static str, fn(&str) -> bool)) -> Self {
        let (kind, is_it) = at;
        let case = Self::furnished(name, "recover");
        let dry = case.copy();
        let all = events(&[kind], dry.scene("erase"), &dry.log);
        let found: Option<&Event> =
            all.iter().find(|event| !event.is_shadowed && is_it(&event.text));
        let found = found.unwrap_or_else(|| panic!("{name}: none of {all:?}"));
        case.killed_in("erase", found)
    }
}

#[test]
fn the_script_that_deletes_writes_packs_anew() {
    traced();
    let copy = Case::furnished("contents", "erase").copy();
    let renamed = events(&["rename"], copy.scene("erase"), &copy.log);
    let packs = renamed.iter().filter(|event| event.text.contains(".pack\"")).count();
    assert_eq!(packs, 2, "{renamed:?}");
    let archived = renamed.iter().filter(|event| event.text.contains("/archive/")).count();
    assert!(archived > 0, "{renamed:?}");
    is_erased(&copy).unwrap();
}

/// The kill comes after the account and before the entry: what is deleted only by the check goes after others have named it.
#[test]
fn a_deletion_that_was_only_announced_is_made_up_for_and_takes_nothing_else_with_it() {
    traced();
    let copy = Case::furnished("contents", "erase").copy();
    let mut account = Account::open(&copy.account);
    ["e-0", SHARING].iter().for_each(|key| account.say(&format!("burying {key}")));
    is_erased(&copy).unwrap();
    let facts = Facts::read(&copy.account);
    assert!(facts.buried.contains(SHARING) && facts.done.contains_key(KEEPING), "{facts:?}");
}

#[test]
fn a_kill_at_any_system_call_of_deletions_and_compactions_keeps_what_lives_and_brings_nothing_back()
{
    traced();
    let mut tally = Tally::default();
    strike_all(&Case::furnished("contents", "erase"), &mut tally, &[Blow::Kill], &CALLS);
    tally.report("deletions, compactions, archiving", "killed");
}

#[test]
fn a_kill_at_any_system_call_of_the_start_after_a_deletion_cut_short_brings_nothing_back() {
    traced();
    let mut tally = Tally::default();
    let cases = [
        Case::erasing("between zeros and header", ("pwrite64", |text| text.contains("\"PLD"))),
        Case::erasing("a pack to be put in place", ("rename", |text| text.contains(".pack\""))),
        Case::erasing("a pack put in place", ("rename", |text| text.contains("places/manifest\""))),
        Case::erasing("a pack to be removed", ("unlink", |text| text.contains(".pack\""))),
    ];
    for case in cases {
        let case = Case { sample: SAMPLE / 3, ..case };
        strike_all(&case, &mut tally, &[Blow::Kill], &CALLS);
    }
    tally.report("restart within deletions and compactions", "killed");
}

#[test]
fn a_call_that_fails_in_deletions_and_compactions_loses_nothing_and_brings_nothing_back() {
    traced();
    let mut tally = Tally::default();
    let case = Case { sample: SAMPLE / 2, ..Case::furnished("contents", "erase") };
    strike_all(&case, &mut tally, &[EIO], &CALLS);
    strike_all(&case, &mut tally, &[ENOSPC], &GROWING);
    if is_full() {
        let case =
            Case::erasing("a pack to be removed", ("unlink", |text| text.contains(".pack\"")));
        strike_all(&case, &mut tally, &[EIO, ENOSPC], &CALLS);
    }
    tally.report("deletions, compactions, archiving", "failed");
}
