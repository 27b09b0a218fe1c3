//! What the programs that hurt a data folder share: a caller of the store that keeps its own account of what it was told, and the
//! checks of a folder against such an account.
//!
//! Owns the account (one line for each fact, appended to a file outside the folder, so that a killed process loses none of it), the
//! caller, and the checks I3 and I4; the records are in [`records`]. Not here: who kills, fails or alters what.
//! Invariant: a check reads the account and the folder only; it believes nothing that the caller has in memory.

pub(crate) mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use placet_ledger::audit::{AuditEvent, AuditKind};
use placet_ledger::record::{EffectRecord, EffectState};
use placet_ledger::store::{
    Admission, Changes, ClaimAnswer, Durability, EffectChange, Store as _, StoreError,
};
use placet_store::embedded::{EmbeddedConfig, EmbeddedStore, OpenError, RecoveryReport};
use placet_store::journal::JournalError;
use placet_testkit::clock::TestClock;
use placet_types::digest::Digest;
use placet_types::ids::TenantId;
use tempfile::TempDir;

use records::{NOW, attempt, claim};

/// Small, so that a handful of calls runs over into further segments.
const SEGMENT_BYTES: u64 = 8 << 10;
/// A result that gets a segment of its own.
const LARGE_BYTES: usize = (256 << 10) + 1;

/// A folder in memory where there is room: a killed process loses nothing of what it gave to the system there either.
pub(crate) fn scratch() -> TempDir {
    const ROOM_BYTES: u64 = 512 << 20;
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory)
        .map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
    let made = if room < ROOM_BYTES { tempfile::tempdir() } else { tempfile::tempdir_in(memory) };
    made.unwrap()
}

/// Opens the store of a folder. A process that was forked and has not yet become another program may hold the lock for a moment.
pub(crate) fn open(folder: &Path) -> Result<(Arc<EmbeddedStore>, RecoveryReport), OpenError> {
    let config = EmbeddedConfig {
        segment_bytes: SEGMENT_BYTES,
        free_space_watermark_bytes: 0,
        ..EmbeddedConfig::new(folder)
    };
    let mut tries = 0_u32;
    loop {
        match EmbeddedStore::open(config.clone(), TestClock::at(NOW.as_ms())) {
            Err(OpenError::Journal(JournalError::Locked { .. })) if tries < 1_000 => {
                tries = tries.saturating_add(1);
                std::thread::park_timeout(Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
}

/// A runtime without a reactor: it makes no system calls of its own.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

pub(crate) fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

pub(crate) fn parked(key: &str) -> Vec<u8> {
    format!("{{\"parked\":\"{key}\"}}").into_bytes()
}

/// The result of a call; every fourth is large, and some have one and the same.
pub(crate) fn result(key: &str) -> Vec<u8> {
    let key = if key.starts_with("same") { "same" } else { key };
    let mut bytes = format!("{{\"result of\":\"{key}\"}}").into_bytes();
    if key.ends_with(['3', '7']) {
        bytes.resize(LARGE_BYTES, b' ');
    }
    bytes
}

/// The account: what happened outside the folder, and what the store has acknowledged.
#[derive(Debug)]
pub(crate) struct Account {
    file: File,
}

impl Account {
    pub(crate) fn open(path: &Path) -> Self {
        Self { file: OpenOptions::new().create(true).append(true).open(path).unwrap() }
    }

    /// One line in one `writev`, which none of the enumerations counts.
    pub(crate) fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        let written = self.file.write_vectored(&[IoSlice::new(line.as_bytes())]).unwrap();
        assert_eq!(written, line.len(), "a line of the account was cut short");
    }
}

/// What an account says.
#[derive(Debug, Default, Clone)]
pub(crate) struct Facts {
    /// Keys whose dispatch was acknowledged.
    pub(crate) sent: BTreeSet<String>,
    /// How often the effect of a key happened.
    pub(crate) effects: BTreeMap<String, u32>,
    /// Keys whose success was acknowledged or replayed, with the digests of the results.
    pub(crate) done: BTreeMap<String, BTreeSet<String>>,
    /// Keys whose outcome was acknowledged as unknown.
    pub(crate) unknown: BTreeSet<String>,
    /// Keys whose contents were to be deleted.
    pub(crate) burying: BTreeSet<String>,
    /// Keys of which it was acknowledged that their contents are deleted.
    pub(crate) buried: BTreeSet<String>,
    /// Copies and ledgers of which it was acknowledged that they are whole, by the names of their folders.
    pub(crate) made: BTreeSet<String>,
    /// Whether anything was acknowledged after the first failure.
    pub(crate) went_on: bool,
    /// Why the first thing that failed did.
    pub(crate) failed: Option<String>,
    /// The script came to its end.
    pub(crate) ended: bool,
}

impl Facts {
    pub(crate) fn read(path: &Path) -> Self {
        let mut facts = Self::default();
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
            let is_told = matches!(verb, "sent" | "done" | "unknown" | "buried" | "made");
            facts.went_on |= facts.failed.is_some() && is_told;
            match verb {
                "sent" => drop(facts.sent.insert(rest.to_owned())),
                "effect" => {
                    let count = facts.effects.entry(rest.to_owned()).or_default();
                    *count = count.saturating_add(1);
                }
                "done" => {
                    let (key, digest) = rest.split_once(' ').unwrap();
                    facts.done.entry(key.to_owned()).or_default().insert(digest.to_owned());
                }
                "unknown" => drop(facts.unknown.insert(rest.to_owned())),
                "burying" => drop(facts.burying.insert(rest.to_owned())),
                "buried" => drop(facts.buried.insert(rest.to_owned())),
                "made" => drop(facts.made.insert(rest.to_owned())),
                "failed" => facts.failed = facts.failed.or(Some(rest.to_owned())),
                "ended" => facts.ended = true,
                other => panic!("the account has a line of another kind: {other}"),
            }
        }
        facts
    }
}

/// Commits a move of a record with what it names.
async fn moved(
    store: &EmbeddedStore,
    record: &EffectRecord,
    state: EffectState,
    content: Vec<u8>,
) -> Result<EffectRecord, StoreError> {
    let next = record.moved(state, store.now())?;
    let mut changes = Changes::new(Durability::Synced, Admission::Completion);
    changes.content.push((tenant(), content));
    changes.effects.push(EffectChange::Put(Box::new(next.clone())));
    changes.audit.push(AuditEvent::new(AuditKind::Settled));
    store.commit(changes).await?;
    Ok(next)
}

/// One call of an opaque tool under `key`, as a gateway makes it: it is sent if nobody knows the key, and otherwise answered from
/// what is recorded. Facts go to the account at the moment at which they are facts.
pub(crate) async fn call(
    store: &EmbeddedStore,
    key: &str,
    account: &mut Account,
) -> Result<(), StoreError> {
    let claimed = claim(key, &parked(key), store.epoch());
    let taken = match store.claim(claimed.clone()).await? {
        ClaimAnswer::Taken(record) => return replay(store, key, *record, account).await,
        ClaimAnswer::Claimed => claimed,
    };
    let dispatched = EffectState::Dispatched(attempt(&taken, store.epoch()));
    let sent = moved(store, &taken, dispatched, parked(key)).await?;
    account.say(&format!("sent {key}"));
    account.say(&format!("effect {key}"));
    let bytes = result(key);
    let digest = Digest::of(&bytes);
    moved(store, &sent, EffectState::Succeeded { result: digest, resolved_by: None }, bytes)
        .await?;
    account.say(&format!("done {key} {digest}"));
    Ok(())
}

/// The answer from a record that was there.
async fn replay(
    store: &EmbeddedStore,
    key: &str,
    record: EffectRecord,
    account: &mut Account,
) -> Result<(), StoreError> {
    match &record.state {
        EffectState::Succeeded { result, .. } => {
            let bytes = store.content(&tenant(), *result).await?;
            account.say(&format!("done {key} {}", Digest::of(&bytes)));
        }
        EffectState::Dispatched(sent) => {
            assert!(sent.epoch < store.epoch(), "`{key}` is under way in this process");
            let bytes = b"{\"unknown\":true}".to_vec();
            let unknown = EffectState::Indeterminate {
                attempt: sent.clone(),
                reason: "the process ended".to_owned(),
                result: Digest::of(&bytes),
                rearm: None,
            };
            moved(store, &record, unknown, bytes).await?;
            account.say(&format!("unknown {key}"));
        }
        EffectState::Indeterminate { .. } => account.say(&format!("unknown {key}")),
        EffectState::Tombstone { .. } => account.say(&format!("buried {key}")),
        other => panic!("`{key}` is {}, where this caller never takes it", other.name()),
    }
    Ok(())
}

/// An entry that is about no record.
pub(crate) async fn note(store: &EmbeddedStore) -> Result<(), StoreError> {
    let mut changes = Changes::new(Durability::Synced, Admission::Completion);
    changes.audit.push(AuditEvent::new(AuditKind::Settled));
    store.commit(changes).await.map(drop)
}

/// I3 and I4: what was acknowledged is there, in the state that was told or a later one; what was deleted is not.
pub(crate) async fn acknowledged(store: &EmbeddedStore, facts: &Facts) -> Result<(), String> {
    // The results that some call has, also one that nobody was told of.
    let mut kept = BTreeSet::new();
    for key in facts.sent.iter().chain(facts.effects.keys()) {
        let found = store.effect(claim(key, &[], 1).record_id).await;
        let found = found.map_err(|error| format!("`{key}` cannot be read: {error}"))?;
        let state = found.map_or("absent", |found| found.state.name());
        let (is_done, is_unknown) = (facts.done.contains_key(key), facts.unknown.contains(key));
        let may_be = match (facts.buried.contains(key), facts.burying.contains(key)) {
            (true, _) => &["tombstone"][..],
            (false, true) => &["succeeded", "tombstone"],
            (false, false) if is_done => &["succeeded"],
            (false, false) if is_unknown => &["indeterminate"],
            (false, false) => &["dispatched", "succeeded", "indeterminate"],
        };
        if !may_be.contains(&state) {
            return Err(format!("`{key}` is {state}, but was acknowledged to be {may_be:?}"));
        }
        if state == "succeeded" {
            kept.insert(Digest::of(&result(key)));
        }
    }
    for (key, digests) in &facts.done {
        let digest = Digest::of(&result(key));
        if digests.iter().any(|told| *told != digest.to_string()) {
            return Err(format!("`{key}` was answered with {digests:?}"));
        }
        match store.content(&tenant(), digest).await {
            Ok(bytes) if kept.contains(&digest) && bytes == result(key) => {}
            Err(StoreError::ContentMissing(_)) if !kept.contains(&digest) => {}
            Ok(_) if kept.contains(&digest) => {
                return Err(format!("the result of `{key}` is another one"));
            }
            Ok(_) => return Err(format!("the result of `{key}` is there, and was deleted")),
            Err(error) => return Err(format!("the result of `{key}`: {error}")),
        }
    }
    Ok(())
}

/// A folder with everything in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).unwrap();
        if path.is_dir() {
            copy(&path, &target)
        } else {
            fs::copy(&path, &target).map(drop).unwrap()
        }
    }
}

/// All files below a folder, by their paths in it, in order.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}
