//! The notary: signs the heads of a store's logs, and writes receipts.
//!
//! Owns which checkpoint of each log was signed last; a log that does not extend it is not signed, for it was changed or is an old copy.
//! Not here: how a proof is made (`embedded`, `postgres`) and what a signature looks like (`seal`).
//!
//! Invariants: two checkpoints of one log never contradict each other, across restarts too: the later one begins with the earlier; a
//! checkpoint is kept before anybody gets it, and before the next one; a receipt is about a durable state.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::Arc;

use placet_ledger::log::{AuditLog, LogEntry, TreeHead};
use placet_ledger::proof::checkpoint::Checkpoint;
use placet_ledger::proof::note::NoteName;
use placet_ledger::proof::receipt::{RECEIPT_VERSION, ReceiptClaims};
use placet_ledger::proof::{self, Consistency, Inclusion, ProofError, leaf_hash};
use placet_ledger::record::{EffectRecord, EffectState};
use placet_ledger::store::{EffectChange, StoreError};
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use crate::embedded::decode_entry;
use crate::journal::medium::{Disk, replace_file};
use crate::seal::{
    SealError, SealKey, SealPublic, check_after, sign_checkpoint, sign_receipt, verify_checkpoint,
};

/// How much is read of a file with a checkpoint: far more than one has.
const FILE_BYTES_MAX: u64 = 128 << 10;

/// Why the notary did not sign.
#[derive(Debug, thiserror::Error)]
pub enum NotaryError {
    /// The store cannot answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log does not extend what was signed before, or the checkpoint cannot be kept.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The checkpoint that was kept last is damaged, or was signed with another key or for another log.
    #[error("the checkpoint in `{}` cannot be used: {source}", .file.display())]
    Kept {
        /// Where it is kept.
        file: PathBuf,
        /// What is wrong with it.
        source: SealError,
    },
    /// No entry records it.
    #[error("no entry of the log stands for it")]
    NoEntry,
    /// The record has moved on since it was read; read it again.
    #[error("the record has moved on since it was read")]
    Moved,
    /// The log cannot be read in the form that this build writes.
    #[error("entry {seq} of log `{log}` cannot be read: {why}")]
    Unread {
        /// The log.
        log: String,
        /// The entry.
        seq: u64,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such log.
    #[error("there is no log `{0}`")]
    NoLog(String),
}

/// A signed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The log's name within the store.
    pub log: String,
    /// How many entries it covers.
    pub size: u64,
    /// The signed note (C2SP signed-note, tlog-checkpoint).
    pub note: String,
}

/// What was signed last for one log, and where it is kept.
#[derive(Debug)]
struct Book {
    origin: NoteName,
    path: PathBuf,
    last: Option<(Checkpoint, Sealed)>,
}

/// Signs checkpoints and receipts of one store.
pub struct Notary {
    key: Arc<SealKey>,
    deployment: NoteName,
    log: Arc<dyn AuditLog>,
    folder: PathBuf,
    books: Mutex<BTreeMap<String, Book>>,
}

impl std::fmt::Debug for Notary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notary").field("deployment", &self.deployment).finish_non_exhaustive()
    }
}

impl Notary {
    /// A notary for `log`, whose checkpoints are kept in `folder`, one file for each log.
    pub fn new(
        key: Arc<SealKey>,
        deployment: NoteName,
        log: Arc<dyn AuditLog>,
        folder: impl Into<PathBuf>,
    ) -> Self {
        Self { key, deployment, log, folder: folder.into(), books: Mutex::default() }
    }

    /// The public key that verifies what is signed here.
    pub fn key(&self) -> &SealPublic {
        self.key.public()
    }

    /// A secret of the same key for another purpose; see [`SealKey::secret_for`].
    pub fn secret_for(&self, purpose: &str) -> Zeroizing<[u8; 32]> {
        self.key.secret_for(purpose)
    }

    /// The log itself.
    pub fn log(&self) -> &Arc<dyn AuditLog> {
        &self.log
    }

    /// Signs each log as it stands, unless that was signed already. Answers all checkpoints, including the earlier ones of unchanged logs.
    ///
    /// # Errors
    /// [`NotaryError::Seal`] with [`SealError::NotAfter`]: a log does not extend what was signed before. An operator has to look.
    pub async fn seal(&self) -> Result<Vec<Sealed>, NotaryError> {
        let mut books = self.books.lock().await;
        // Read under the lock: earlier heads would be older than what another caller signs meanwhile.
        let heads = self.log.heads().await?;
        let mut sealed = Vec::with_capacity(heads.len());
        for head in heads {
            let book = match books.remove(&head.log) {
                Some(book) => book,
                None => self.open(&head.log)?,
            };
            // There is nothing to sign in an empty log, unless it was not empty before: then it has forgotten.
            if head.size == 0 && book.last.is_none() {
                continue;
            }
            let (book, signed) = self.sign(book, &head).await?;
            books.insert(head.log, book);
            sealed.push(signed);
        }
        Ok(sealed)
    }

    /// A receipt for the outcome of a record.
    ///
    /// # Errors
    /// [`NotaryError::NoEntry`] when nothing about it is durable, [`NotaryError::Moved`] when its latest entry says something else than
    /// `record`: a receipt never contradicts its entry.
    pub async fn receipt(
        &self,
        record: &EffectRecord,
        request_digest: Option<Digest>,
        now: Timestamp,
    ) -> Result<String, NotaryError> {
        let (log, seq) = self.log.entry_of(record.record_id).await?.ok_or(NotaryError::NoEntry)?;
        let entry =
            self.log.entries(&log, seq, 1).await?.into_iter().next().ok_or(NotaryError::NoEntry)?;
        if !stands_for(&entry, &log, record)? {
            return Err(NotaryError::Moved);
        }
        let (root, path) = self.up_to(&log, &entry).await?;
        let claims = ReceiptClaims {
            version: RECEIPT_VERSION,
            iss: self.key().name().clone(),
            iat: now.as_ms().div_euclid(1_000),
            call_id: record.call_id.clone(),
            record_id: record.record_id,
            tenant: record.scope.tenant.clone(),
            capability: record.scope.capability.clone(),
            state: ended_as(&record.state).to_owned(),
            code: record.state.code(),
            requested_digest: record.requested_digest,
            request_digest,
            result_digest: record.state.result(),
            replayed: false,
            log: self.origin(&log)?,
            seq,
            entry: Digest::from_bytes(entry.hash),
            at: Timestamp::from_ms(entry.at_ms),
            tree_size: seq,
            root,
            path,
        };
        Ok(sign_receipt(&self.key, &claims)?)
    }

    /// The root of the tree that ends with an entry, and the path from the entry to it: the result covers no later entry. Fails unless the
    /// current log extends that tree.
    async fn up_to(
        &self,
        log: &str,
        entry: &LogEntry,
    ) -> Result<(Digest, Vec<Digest>), NotaryError> {
        let (seq, head) = (entry.seq, self.head(log).await?);
        let disagrees = |error: ProofError| {
            StoreError::Damaged(format!(
                "the tree over log `{log}` does not agree with it: {error}"
            ))
        };
        let path = self.inclusion(log, seq, seq).await?.path;
        let proof = Inclusion { seq, size: seq, path };
        let root = proof.root_from(&leaf_hash(&entry.hash)).map_err(disagrees)?;
        let joined = self.consistency(log, seq, head.size).await?;
        joined.verify(&root, &Digest::from_bytes(head.root)).map_err(disagrees)?;
        Ok((root, proof.path))
    }

    /// The proof that entry `seq` is in the tree over the first `size` entries of `log`.
    ///
    /// # Errors
    /// [`NotaryError::NoLog`], or the log has no such entry.
    pub async fn inclusion(
        &self,
        log: &str,
        seq: u64,
        size: u64,
    ) -> Result<Inclusion, NotaryError> {
        self.within(log, size).await?;
        let path = self.log.inclusion(log, seq, size).await?;
        Ok(Inclusion { seq, size, path: path.into_iter().map(Digest::from_bytes).collect() })
    }

    /// The proof that the tree over `from` entries of `log` is a prefix of that over `to`.
    ///
    /// # Errors
    /// [`NotaryError::NoLog`], or the log has fewer entries.
    pub async fn consistency(
        &self,
        log: &str,
        from: u64,
        to: u64,
    ) -> Result<Consistency, NotaryError> {
        self.within(log, to).await?;
        let path = self.log.consistency(log, from, to).await?;
        Ok(Consistency { from, to, path: path.into_iter().map(Digest::from_bytes).collect() })
    }

    async fn within(&self, log: &str, size: u64) -> Result<(), NotaryError> {
        if size <= self.head(log).await?.size { Ok(()) } else { Err(NotaryError::NoEntry) }
    }

    async fn head(&self, log: &str) -> Result<TreeHead, NotaryError> {
        let heads = self.log.heads().await?;
        let head = heads.into_iter().find(|head| head.log == log);
        head.ok_or_else(|| NotaryError::NoLog(log.to_owned()))
    }

    fn origin(&self, log: &str) -> Result<NoteName, SealError> {
        NoteName::new(format!("{}/{log}", self.deployment)).map_err(SealError::from)
    }

    /// Opens what is kept of a log: the last checkpoint that was signed.
    fn open(&self, log: &str) -> Result<Book, NotaryError> {
        let (origin, path) = (self.origin(log)?, self.folder.join(format!("{log}.note")));
        let mut note = String::new();
        let read =
            File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut note));
        let last = match read {
            Ok(_) => {
                let kept = verify_checkpoint(&note, self.key(), Some(&origin));
                let kept =
                    kept.map_err(|source| NotaryError::Kept { file: path.clone(), source })?;
                let sealed = Sealed { log: log.to_owned(), size: kept.head.size, note };
                Some((kept, sealed))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(SealError::io("read the checkpoint", &path)(error).into()),
        };
        Ok(Book { origin, path, last })
    }

    async fn sign(&self, mut book: Book, head: &TreeHead) -> Result<(Book, Sealed), NotaryError> {
        let tree = proof::TreeHead { size: head.size, root: Digest::from_bytes(head.root) };
        let (origin, chain) = (book.origin.clone(), head.head);
        let next = Checkpoint { origin, head: tree, chain, epoch: head.epoch, at: head.at };
        if let Some((last, sealed)) = &book.last {
            if last.head == next.head {
                let sealed = sealed.clone();
                return Ok((book, sealed));
            }
            let from = last.head.size;
            // A failure to reach the store says nothing about its contents.
            let proof = match from <= head.size {
                true => self.consistency(&head.log, from, head.size).await?,
                false => Consistency { from, to: head.size, path: Vec::new() },
            };
            check_after(last, &next, &proof)?;
        }
        let note = sign_checkpoint(&self.key, &next)?.to_string();
        replace_file(&Disk, &book.path, note.as_bytes())
            .map_err(SealError::io("write the checkpoint", &book.path))?;
        let sealed = Sealed { log: head.log.clone(), size: head.size, note };
        book.last = Some((next, sealed.clone()));
        Ok((book, sealed))
    }
}

/// The state it ended in, also after its result was dropped.
fn ended_as(state: &EffectState) -> &str {
    if let EffectState::Tombstone { was, .. } = state { was } else { state.name() }
}

/// Whether the entry gave the record this state.
fn stands_for(entry: &LogEntry, log: &str, record: &EffectRecord) -> Result<bool, NotaryError> {
    let read = decode_entry(entry.kind, &entry.payload);
    let read = read.map_err(|error| NotaryError::Unread {
        log: log.to_owned(),
        seq: entry.seq,
        why: error.to_string(),
    })?;
    let of_record = read.effects.iter().rev().find_map(|effect| match effect {
        EffectChange::Put(put) => (put.record_id == record.record_id).then_some(Some(put)),
        EffectChange::Remove { record_id, .. } | EffectChange::Forget { record_id, .. } => {
            (*record_id == record.record_id).then_some(None)
        }
    });
    let put = of_record.flatten();
    Ok(put.is_some_and(|put| (put.rev, &put.state) == (record.rev, &record.state)))
}
