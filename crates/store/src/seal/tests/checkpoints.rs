//! Signed checkpoints, and the check that a signer does not contradict itself.

use placet_ledger::proof::Consistency;
use placet_ledger::proof::checkpoint::Checkpoint;
use placet_ledger::proof::note::{NoteError, SignedNote};

use super::super::{SealError, check_after, verify_checkpoint};
use super::{Log, key, name, origin, other_key};

#[test]
fn a_checkpoint_verifies_with_its_key_and_says_what_the_log_is() {
    let log = Log::of(21);
    let found = verify_checkpoint(&log.checkpoint(), key().public(), Some(&origin())).unwrap();
    assert_eq!(found, log.statement());
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
fn a_log_comes_after_the_last_checkpoint_only_if_it_begins_with_its_log() {
    let last = Log::of(20).statement();
    let after = |log: &Log| {
        let to = log.frontier().size();
        let proof = log.view().consistency(20.min(to), to).unwrap();
        check_after(&last, &log.statement(), &proof)
    };
    let other = Log::from_payloads((0..30).map(|number| format!("\"other {number}\"")));
    let same_size = Log::from_payloads((0..20).map(|number| format!("\"other {number}\"")));
    for log in [Log::of(19), Log::of(0), other, same_size] {
        let error = after(&log).unwrap_err();
        assert!(matches!(error, SealError::NotAfter { from: 20, .. }), "{error}");
    }
    for log in [Log::of(20), Log::of(21), Log::of(33)] {
        after(&log).unwrap();
    }
    // The chain and the tree could be made to differ.
    let forked = Checkpoint { chain: [1; 32], ..last.clone() };
    let proof = Consistency { from: 20, to: 20, path: Vec::new() };
    assert!(matches!(check_after(&last, &forked, &proof), Err(SealError::NotAfter { .. })));
    let lie = Consistency { from: 0, to: 30, path: Vec::new() };
    let error = check_after(&last, &Log::of(30).statement(), &lie).unwrap_err();
    assert!(error.to_string().ends_with("the proof is about other sizes"), "{error}");
}
