//! Many who sign at the same time, while the log grows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use placet_ledger::audit::Subject;
use placet_ledger::log::{AuditLog, LogEntry, TreeHead};
use placet_ledger::proof::TreeView;
use placet_ledger::proof::checkpoint::Checkpoint;
use placet_ledger::proof::note::NoteName;
use placet_ledger::proof::tiles::{Appender, MemoryTiles};
use placet_ledger::record::{EffectRecord, EffectState};
use placet_ledger::store::StoreError;
use placet_types::clock::Timestamp;
use placet_types::contract::Dedup;
use placet_types::digest::Digest;
use placet_types::ids::RecordId;
use tempfile::tempdir;

use super::{Notary, NotaryError};
use crate::embedded::encode_entry;
use crate::seal::{SealError, SealKey, sign_checkpoint, verify_checkpoint, verify_receipt};
use crate::testing::{attempt, claim_of, moved, puts, succeeded};

const AT: Timestamp = Timestamp::from_ms(1_800_000_000_000);

/// A log that others append to while it answers: between its reading and its answer, others get their turn.
#[derive(Debug, Default)]
struct Growing {
    tree: Mutex<(Appender, MemoryTiles, [u8; 32])>,
    /// How often it still answers that it cannot be reached.
    away: AtomicU64,
    /// What the one entry that stands for a record says.
    says: Mutex<Option<LogEntry>>,
}

impl Growing {
    fn grow(&self) {
        let (appender, tiles, last) = &mut *self.tree.lock().unwrap();
        *last = *Digest::of(last).as_bytes();
        appender.append(last);
        for part in appender.take() {
            tiles.write(part).unwrap();
        }
    }

    fn head(&self) -> TreeHead {
        let (appender, _, last) = &*self.tree.lock().unwrap();
        let head = appender.frontier().head();
        let root = *head.root.as_bytes();
        TreeHead { log: "one".to_owned(), size: head.size, root, head: *last, epoch: 1, at: AT }
    }
}

#[async_trait]
impl AuditLog for Growing {
    async fn heads(&self) -> Result<Vec<TreeHead>, StoreError> {
        let head = self.head();
        for _ in 0..head.size % 7 {
            tokio::task::yield_now().await;
        }
        Ok(vec![head])
    }

    async fn entries(&self, _: &str, _: u64, _: usize) -> Result<Vec<LogEntry>, StoreError> {
        Ok(self.says.lock().unwrap().clone().into_iter().collect())
    }

    async fn entries_about(&self, _: &Subject) -> Result<Vec<(String, u64)>, StoreError> {
        Ok(Vec::new())
    }

    async fn entry_of(&self, _: RecordId) -> Result<Option<(String, u64)>, StoreError> {
        Ok(self.says.lock().unwrap().as_ref().map(|entry| ("one".to_owned(), entry.seq)))
    }

    async fn inclusion(&self, _: &str, _: u64, _: u64) -> Result<Vec<[u8; 32]>, StoreError> {
        Ok(Vec::new())
    }

    async fn consistency(&self, _: &str, from: u64, to: u64) -> Result<Vec<[u8; 32]>, StoreError> {
        let take = |left: u64| left.checked_sub(1);
        if self.away.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            return Err(StoreError::Unreachable("gone for a moment".to_owned()));
        }
        let (appender, tiles, _) = &*self.tree.lock().unwrap();
        let proof = TreeView::new(tiles, appender.frontier().head()).consistency(from, to).unwrap();
        Ok(proof.path.iter().map(|hash| *hash.as_bytes()).collect())
    }
}

fn notary(log: &Arc<Growing>, folder: &std::path::Path) -> Notary {
    let name = || NoteName::new("placet.example").unwrap();
    let key = Arc::new(SealKey::from_seed(name(), &[7; 32]));
    Notary::new(key, name(), Arc::<Growing>::clone(log), folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_may_sign_while_the_log_grows() {
    let folder = tempdir().unwrap();
    let log = Arc::new(Growing::default());
    log.grow();
    let notary = Arc::new(notary(&log, folder.path()));
    let ended = Arc::new(AtomicBool::new(false));
    let growing = tokio::spawn({
        let (log, ended) = (Arc::clone(&log), Arc::clone(&ended));
        async move {
            while !ended.load(Ordering::SeqCst) {
                log.grow();
                tokio::task::yield_now().await;
            }
        }
    });
    let signers: Vec<_> = (0..24)
        .map(|_| {
            let notary = Arc::clone(&notary);
            tokio::spawn(async move {
                let mut last = 0;
                for _ in 0..20 {
                    let sealed = notary.seal().await.unwrap().remove(0);
                    assert!(sealed.size >= last, "{} after {last}", sealed.size);
                    last = sealed.size;
                    let signed = verify_checkpoint(&sealed.note, notary.key(), None).unwrap();
                    assert_eq!(signed.head.size, sealed.size);
                }
                last
            })
        })
        .collect();
    let mut largest = 0;
    for signer in signers {
        largest = largest.max(signer.await.unwrap());
    }
    ended.store(true, Ordering::SeqCst);
    growing.await.unwrap();
    assert!(largest > 1);
    // What is kept is what was signed last, and the next start goes on from there.
    let again = self::notary(&log, folder.path());
    assert!(again.seal().await.unwrap()[0].size >= largest);
}

#[tokio::test]
async fn a_store_that_cannot_be_asked_says_nothing_about_the_log() {
    let folder = tempdir().unwrap();
    let log = Arc::new(Growing::default());
    log.grow();
    let notary = notary(&log, folder.path());
    notary.seal().await.unwrap();
    log.grow();
    log.away.store(1, Ordering::SeqCst);
    let refused = notary.seal().await;
    assert!(matches!(refused, Err(NotaryError::Store(StoreError::Unreachable(_)))), "{refused:?}");
    assert_eq!(notary.seal().await.unwrap()[0].size, 2);
}

#[tokio::test]
async fn an_empty_log_beside_a_signed_checkpoint_has_forgotten() {
    let folder = tempdir().unwrap();
    let log = Arc::new(Growing::default());
    assert_eq!(notary(&log, folder.path()).seal().await.unwrap(), [], "nothing to sign yet");
    log.grow();
    assert_eq!(notary(&log, folder.path()).seal().await.unwrap()[0].size, 1);
    let emptied = Arc::new(Growing::default());
    let refused = notary(&emptied, folder.path()).seal().await.unwrap_err();
    let NotaryError::Seal(SealError::NotAfter { from: 1, to: 0, .. }) = refused else {
        panic!("{refused}");
    };
}

#[tokio::test]
async fn a_kept_checkpoint_is_continued_and_one_that_is_not_its_own_is_refused() {
    let folder = tempdir().unwrap();
    let log = Arc::new(Growing::default());
    let mut notes = Vec::new();
    for size in 1..=9 {
        log.grow();
        let sealed = notary(&log, folder.path()).seal().await.unwrap().remove(0);
        assert_eq!(sealed.size, size);
        let again = notary(&log, folder.path()).seal().await.unwrap().remove(0);
        assert_eq!(again, sealed, "what is unchanged is not signed again");
        notes.push(sealed.note);
    }
    let (file, own) = (folder.path().join("one.note"), notes.last().unwrap());
    let name = || NoteName::new("placet.example").unwrap();
    let checkpoint = verify_checkpoint(own, notary(&log, folder.path()).key(), None).unwrap();
    let of_another = sign_checkpoint(&SealKey::from_seed(name(), &[8; 32]), &checkpoint).unwrap();
    let elsewhere = Checkpoint { origin: name(), ..checkpoint };
    let about_another = sign_checkpoint(&SealKey::from_seed(name(), &[7; 32]), &elsewhere).unwrap();
    let changed = own.replacen("\n9\n", "\n8\n", 1);
    for kept in [String::new(), changed, of_another.to_string(), about_another.to_string()] {
        std::fs::write(&file, &kept).unwrap();
        let refused = notary(&log, folder.path()).seal().await;
        assert!(matches!(refused, Err(NotaryError::Kept { .. })), "{kept}: {refused:?}");
    }
    // An older one of its own is no contradiction.
    std::fs::write(&file, &notes[3]).unwrap();
    assert_eq!(notary(&log, folder.path()).seal().await.unwrap()[0].size, 9);
}

/// The entry that made a record what it is.
fn entry_for(record: &EffectRecord) -> LogEntry {
    let (kind, payload) = encode_entry(&mut puts(&[record])).unwrap();
    let (prev, hash) = ([0; 32], *Digest::of(&[0; 32]).as_bytes());
    LogEntry { seq: 1, epoch: 1, at_ms: AT.as_ms(), kind, durable_seq: 0, prev, payload, hash }
}

#[tokio::test]
async fn a_receipt_never_contradicts_the_entry_it_names() {
    let folder = tempdir().unwrap();
    let log = Arc::new(Growing::default());
    log.grow();
    let notary = notary(&log, folder.path());
    let claimed = claim_of("acme", "key", 1);
    let sent = moved(&claimed, EffectState::Dispatched(attempt(&claimed, 1, Dedup::Opaque)));
    let done = succeeded(&sent);
    assert!(matches!(notary.receipt(&sent, None, AT).await, Err(NotaryError::NoEntry)));
    // It was read as dispatched, and has succeeded by the time its entry is looked for.
    *log.says.lock().unwrap() = Some(entry_for(&done));
    assert!(matches!(notary.receipt(&sent, None, AT).await, Err(NotaryError::Moved)));
    let receipt = notary.receipt(&done, None, AT).await.unwrap();
    assert_eq!(verify_receipt(&receipt, notary.key()).unwrap().state, "succeeded");
    // Its result is dropped after a while; what became of the call stays.
    let was = done.state.name().to_owned();
    let buried = moved(&done, EffectState::Tombstone { was, code: None, settled_at: AT });
    *log.says.lock().unwrap() = Some(entry_for(&buried));
    let receipt = notary.receipt(&buried, None, AT).await.unwrap();
    assert_eq!(verify_receipt(&receipt, notary.key()).unwrap().state, "succeeded");
    *log.says.lock().unwrap() = Some(LogEntry { payload: b"{".to_vec(), ..entry_for(&done) });
    assert!(matches!(notary.receipt(&done, None, AT).await, Err(NotaryError::Unread { .. })));
}
