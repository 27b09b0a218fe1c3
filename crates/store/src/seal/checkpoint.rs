//! Signed checkpoints: making them, keeping the last one, verifying them and what they cover.
//!
//! Owns the rule that a signer never contradicts itself. Not here: the text (`placet_ledger::proof::checkpoint`). Invariant: two
//! checkpoints of one [`Sealer`] are always of one log, the later beginning with the earlier, across restarts too.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use placet_ledger::proof::Consistency;
use placet_ledger::proof::checkpoint::Checkpoint;
use placet_ledger::proof::note::{NOTE_BYTES_MAX, NoteName, NoteSignature, SignedNote};
use placet_types::clock::Timestamp;

use super::{SealError, SealKey, SealPublic};
use crate::journal::medium::{Medium, read_full_at, replace_file};
use crate::seal::LogHead;

/// Signs the checkpoints of one log.
#[derive(Debug)]
pub struct Sealer {
    key: Arc<SealKey>,
    origin: NoteName,
    last: Option<Checkpoint>,
}

impl Sealer {
    /// Continues after the last signed checkpoint, if any.
    ///
    /// # Errors
    /// The last checkpoint is not signed with this key or is about another log.
    pub fn new(key: Arc<SealKey>, origin: NoteName, last: Option<&str>) -> Result<Self, SealError> {
        let last = match last {
            Some(note) => Some(verify_checkpoint(note, key.public(), Some(&origin))?),
            None => None,
        };
        Ok(Self { key, origin, last })
    }

    /// The last checkpoint that was signed.
    pub const fn last(&self) -> Option<&Checkpoint> {
        self.last.as_ref()
    }

    /// The name of the log.
    pub const fn origin(&self) -> &NoteName {
        &self.origin
    }

    /// Signs the current log. `prove` makes the proof that it extends the last checkpoint, which is verified here. Keep the note where
    /// [`Sealer::new`] will find it before anybody else gets it.
    ///
    /// # Errors
    /// [`SealError::NotAfter`]: the log no longer extends the last checkpoint.
    pub fn seal(
        &mut self,
        log: &LogHead,
        epoch: u64,
        at: Timestamp,
        prove: impl FnOnce(u64, u64) -> Result<Consistency, String>,
    ) -> Result<SignedNote, SealError> {
        let next =
            Checkpoint { origin: self.origin.clone(), head: log.head, chain: log.chain, epoch, at };
        if let Some(last) = &self.last {
            check_after(last, &next, prove)?;
        }
        let text = next.to_string();
        let public = self.key.public();
        let signature = NoteSignature {
            name: public.name().clone(),
            key_hash: public.hash(),
            signature: self.key.sign(text.as_bytes()).to_vec(),
        };
        let note = SignedNote::new(text, vec![signature])?;
        self.last = Some(next);
        Ok(note)
    }
}

fn check_after(
    last: &Checkpoint,
    next: &Checkpoint,
    prove: impl FnOnce(u64, u64) -> Result<Consistency, String>,
) -> Result<(), SealError> {
    let (from, to) = (last.head.size, next.head.size);
    let not_after = |why: String| SealError::NotAfter { from, to, why };
    if to < from {
        return Err(not_after("it has fewer entries".to_owned()));
    }
    if to == from && last.chain != next.chain {
        return Err(not_after("its last entry is another one".to_owned()));
    }
    let proof = prove(from, to).map_err(not_after)?;
    if (proof.from, proof.to) != (from, to) {
        return Err(not_after("the proof is about other sizes".to_owned()));
    }
    proof.verify(&last.head.root, &next.head.root).map_err(|error| not_after(error.to_string()))
}

/// Where the last checkpoint of a log is kept, as its signed note.
#[derive(Debug, Clone)]
pub struct CheckpointFile {
    path: PathBuf,
    medium: Arc<dyn Medium>,
}

impl CheckpointFile {
    /// Keeps it in this file.
    pub fn new(path: impl Into<PathBuf>, medium: Arc<dyn Medium>) -> Self {
        Self { path: path.into(), medium }
    }

    /// The note, if one was kept.
    ///
    /// # Errors
    /// What the operating system answers, or it is not text or too long for a note.
    pub fn load(&self) -> Result<Option<String>, SealError> {
        let failed = || SealError::io("read the checkpoint", &self.path);
        let file = match self.medium.open_read(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed()(error)),
        };
        let mut bytes = vec![0; NOTE_BYTES_MAX.saturating_add(1)];
        let read = read_full_at(&*file, &mut bytes, 0).map_err(failed())?;
        bytes.truncate(read);
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|error| failed()(io::Error::new(io::ErrorKind::InvalidData, error)))
    }

    /// Puts a note in place durably.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn store(&self, note: &SignedNote) -> Result<(), SealError> {
        replace_file(&*self.medium, &self.path, note.to_string().as_bytes())
            .map_err(SealError::io("write the checkpoint", &self.path))
    }
}

/// Checks a signed checkpoint: that it is signed with this key, and, if a log is named, about it.
///
/// # Errors
/// [`SealError`] says what is wrong with it.
pub fn verify_checkpoint(
    note: &str,
    key: &SealPublic,
    origin: Option<&NoteName>,
) -> Result<Checkpoint, SealError> {
    let note = SignedNote::parse(note)?;
    let mut ours = note
        .signatures()
        .iter()
        .filter(|signature| signature.name == *key.name() && signature.key_hash == key.hash())
        .peekable();
    if ours.peek().is_none() {
        return Err(SealError::NotSigned { key: key.id() });
    }
    for signature in ours {
        key.verify(note.text().as_bytes(), &signature.signature)?;
    }
    let checkpoint: Checkpoint = note.text().parse()?;
    match origin.filter(|origin| **origin != checkpoint.origin) {
        Some(expected) => Err(SealError::Log {
            expected: expected.to_string(),
            found: checkpoint.origin.to_string(),
        }),
        None => Ok(checkpoint),
    }
}
