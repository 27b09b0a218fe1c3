//! Signed checkpoints: signing them, verifying them and what they cover.
//!
//! Owns the check that a signer does not contradict itself. Not here: the text (`placet_ledger::proof::checkpoint`), which checkpoint was
//! signed last (`notary`). Invariant: what does not begin with the log of the last checkpoint is refused.

use placet_ledger::proof::Consistency;
use placet_ledger::proof::checkpoint::Checkpoint;
use placet_ledger::proof::note::{NoteName, NoteSignature, SignedNote};

use super::{SealError, SealKey, SealPublic};

/// Signs a checkpoint. Who signs several of one log has to see to it that each extends the one before.
///
/// # Errors
/// [`SealError::Note`]: it has no form in which it could be signed.
pub fn sign_checkpoint(key: &SealKey, checkpoint: &Checkpoint) -> Result<SignedNote, SealError> {
    let text = checkpoint.to_string();
    let public = key.public();
    let signature = NoteSignature {
        name: public.name().clone(),
        key_hash: public.hash(),
        signature: key.sign(text.as_bytes()).to_vec(),
    };
    Ok(SignedNote::new(text, vec![signature])?)
}

/// Refuses a checkpoint that does not extend the last one of its log, as the proof has to show.
pub(crate) fn check_after(
    last: &Checkpoint,
    next: &Checkpoint,
    proof: &Consistency,
) -> Result<(), SealError> {
    let (from, to) = (last.head.size, next.head.size);
    let not_after = |why: String| SealError::NotAfter { from, to, why };
    if to < from {
        return Err(not_after("it has fewer entries".to_owned()));
    }
    if to == from && last.chain != next.chain {
        return Err(not_after("its last entry is another one".to_owned()));
    }
    if (proof.from, proof.to) != (from, to) {
        return Err(not_after("the proof is about other sizes".to_owned()));
    }
    proof.verify(&last.head.root, &next.head.root).map_err(|error| not_after(error.to_string()))
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
