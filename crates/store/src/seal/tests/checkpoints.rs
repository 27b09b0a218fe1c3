//! Signed checkpoints and the signer that does not contradict itself.

use std::sync::Arc;

use placet_ledger::proof::Consistency;
use placet_ledger::proof::checkpoint::Checkpoint;
use placet_ledger::proof::note::{NoteError, SignedNote};
use tempfile::tempdir;

use super::super::{CheckpointFile, SealError, Sealer, verify_checkpoint};
use super::{AT, Log, key, name, origin, other_key};
use crate::journal::medium::Disk;
use crate::seal::LogHead;

fn seal(sealer: &mut Sealer, log: &Log) -> Result<SignedNote, SealError> {
    sealer.seal(&log.head(), log.epoch(), AT, |from, to| {
        log.view().consistency(from, to).map_err(|error| error.to_string())
    })
}

#[test]
fn a_checkpoint_verifies_with_its_key_and_says_what_the_log_is() {
    let log = Log::of(21);
    let found = verify_checkpoint(&log.checkpoint(), key().public(), Some(&origin())).unwrap();
    let LogHead { head, chain } = log.head();
    assert_eq!(found, Checkpoint { origin: origin(), head, chain, epoch: log.epoch(), at: AT });
    assert!(verify_checkpoint(&log.checkpoint(), key().public(), None).is_ok());
}

#[test]
fn no_other_text_key_or_log_verifies() {
    let note = Log::of(21).checkpoint();
    let key_id = key().public().id();
    let error = verify_checkpoint(&note, other_key().public(), None).unwrap_err();
    assert!(matches!(&error, SealError::NotSigned { key } if *key == other_key().public().id()));
    let elsewhere = name("placet.example/another");
    let error = verify_checkpoint(&note, key().public(), Some(&elsewhere)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "it is about the log `placet.example/journal`, not `placet.example/another`"
    );
    let mut signatures = 0;
    for (place, _) in note.char_indices() {
        for bit in [place % 8, (place + 3) % 8] {
            let mut changed = note.clone().into_bytes();
            changed[place] ^= 1 << bit;
            let Ok(changed) = String::from_utf8(changed) else { continue };
            let verified = verify_checkpoint(&changed, key().public(), None);
            let error = verified.expect_err(&changed);
            signatures += u32::from(matches!(error, SealError::Signature { key } if key == key_id));
        }
    }
    assert!(signatures > 200, "{signatures}");
}

#[test]
fn a_signature_of_others_beside_ours_does_no_harm_and_none_is_not_enough() {
    let note = SignedNote::parse(&Log::of(3).checkpoint()).unwrap();
    let mut other = note.signatures()[0].clone();
    other.name = name("witness.example");
    other.signature = vec![1, 2, 3];
    let both = vec![other.clone(), note.signatures()[0].clone()];
    let both = SignedNote::new(note.text(), both).unwrap().to_string();
    assert!(verify_checkpoint(&both, key().public(), None).is_ok());
    let alone = SignedNote::new(note.text(), vec![other]).unwrap().to_string();
    let error = verify_checkpoint(&alone, key().public(), None).unwrap_err();
    assert!(matches!(error, SealError::NotSigned { .. }));
    // Two under our name of which one is wrong: somebody has been at it.
    let mut wrong = note.signatures()[0].clone();
    wrong.signature[5] ^= 1;
    let mixed = vec![note.signatures()[0].clone(), wrong];
    let mixed = SignedNote::new(note.text(), mixed).unwrap().to_string();
    let error = verify_checkpoint(&mixed, key().public(), None).unwrap_err();
    assert!(matches!(error, SealError::Signature { .. }));
    let error = verify_checkpoint("", key().public(), None).unwrap_err();
    assert!(matches!(error, SealError::Note(NoteError::Unsigned)));
}

#[test]
fn a_sealer_goes_on_with_the_same_log_across_restarts() {
    let folder = tempdir().unwrap();
    let file = CheckpointFile::new(folder.path().join("checkpoint"), Arc::new(Disk));
    assert_eq!(file.load().unwrap(), None);
    for size in [0, 1, 1, 9, 33] {
        let last = file.load().unwrap();
        let mut sealer = Sealer::new(key(), origin(), last.as_deref()).unwrap();
        assert_eq!(sealer.last().is_some(), last.is_some());
        let note = seal(&mut sealer, &Log::of(size)).unwrap();
        file.store(&note).unwrap();
        assert_eq!(sealer.last().unwrap().head.size, size);
        let signed = verify_checkpoint(&note.to_string(), key().public(), None).unwrap();
        assert_eq!(signed.head, Log::of(size).head().head);
    }
}

#[test]
fn a_sealer_never_signs_a_log_that_does_not_come_after_the_last() {
    let mut sealer = Sealer::new(key(), origin(), None).unwrap();
    seal(&mut sealer, &Log::of(20)).unwrap();
    let other = Log::from_payloads((0..30).map(|number| format!("\"other {number}\"")));
    let same_size = Log::from_payloads((0..20).map(|number| format!("\"other {number}\"")));
    for log in [Log::of(19), Log::of(0), other, same_size] {
        let error = seal(&mut sealer, &log).unwrap_err();
        assert!(matches!(error, SealError::NotAfter { from: 20, .. }), "{error}");
        assert_eq!(sealer.last().unwrap().head, Log::of(20).head().head);
    }
    // The chain and the tree could be made to differ.
    let forked = LogHead { chain: [1; 32], ..Log::of(20).head() };
    let proof = |from, to| Ok(Consistency { from, to, path: Vec::new() });
    assert!(matches!(sealer.seal(&forked, 3, AT, proof), Err(SealError::NotAfter { .. })));
    let lie = |_, _| Ok(Consistency { from: 0, to: 30, path: Vec::new() });
    let error = sealer.seal(&Log::of(30).head(), 3, AT, lie).unwrap_err();
    assert!(error.to_string().ends_with("the proof is about other sizes"), "{error}");
    let failed = |_, _| Err("the tree is damaged".to_owned());
    let error = sealer.seal(&Log::of(30).head(), 3, AT, failed).unwrap_err();
    assert!(error.to_string().ends_with("the tree is damaged"), "{error}");
    seal(&mut sealer, &Log::of(30)).unwrap();
}

#[test]
fn a_sealer_refuses_a_last_checkpoint_that_is_not_its_own() {
    let note = Log::of(5).checkpoint();
    assert!(matches!(
        Sealer::new(other_key(), origin(), Some(&note)),
        Err(SealError::NotSigned { .. })
    ));
    let elsewhere = name("placet.example/another");
    assert!(matches!(Sealer::new(key(), elsewhere, Some(&note)), Err(SealError::Log { .. })));
    assert!(matches!(Sealer::new(key(), origin(), Some("")), Err(SealError::Note(_))));
    let changed = note.replacen("\n5\n", "\n4\n", 1);
    assert!(matches!(
        Sealer::new(key(), origin(), Some(&changed)),
        Err(SealError::Signature { .. })
    ));
}
