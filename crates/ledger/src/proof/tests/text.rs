//! The texts: names, notes, checkpoints, receipts.

use placet_types::clock::Timestamp;
use proptest::prelude::*;

use super::super::checkpoint::Checkpoint;
use super::super::note::{
    NAME_BYTES_MAX, NOTE_BYTES_MAX, NoteError, NoteName, NoteSignature, SIGNATURES_MAX, SignedNote,
};
use super::super::receipt::{RECEIPT_VERSION, ReceiptClaims};
use super::super::{Frontier, Inclusion, ProofError, TreeHead};
use super::{All, Digest, entry, turned};

fn name(name: &str) -> NoteName {
    NoteName::new(name).unwrap()
}

fn signature() -> NoteSignature {
    NoteSignature { name: name("placet.example"), key_hash: [1, 2, 3, 4], signature: vec![7; 64] }
}

fn checkpoint() -> Checkpoint {
    Checkpoint {
        origin: name("placet.example/journal"),
        head: TreeHead { size: 41, root: Digest::of(b"root") },
        chain: entry(41),
        epoch: 3,
        at: Timestamp::from_ms(1_800_000_000_000),
    }
}

const TEXT: &str = "placet.example/journal\n41\nSBNJTRN+FjG7owHVrKtue7eqdM4RhdRWVl71HXN2d7I=\n\
    chain 1d1eba3f93b9fd2b1b2fa7fcf2a3ff7df1fd3f2e0ba84e33a9e9b6bd3fe4bd0d\nepoch 3\nat 1800000000000\n";

#[test]
fn a_checkpoint_has_one_text() {
    let text = checkpoint().to_string();
    let lines: Vec<_> = text.split('\n').collect();
    let expected: Vec<_> = TEXT.split('\n').collect();
    assert_eq!(lines.len(), expected.len());
    assert_eq!(
        (lines[0], lines[1], lines[4], lines[5], lines[6]),
        ("placet.example/journal", "41", "epoch 3", "at 1800000000000", "")
    );
    assert_eq!(lines[2], expected[2]);
    assert_eq!(lines[3], format!("chain {}", hex::encode(entry(41))));
    assert_eq!(text.parse(), Ok(checkpoint()));
}

#[test]
fn a_checkpoint_in_another_spelling_is_refused() {
    let text = checkpoint().to_string();
    let wrong = |from: &str, to: &str, what| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        assert_eq!(changed.parse::<Checkpoint>(), Err(NoteError::Checkpoint(what)), "{changed}");
    };
    wrong("\n41\n", "\n041\n", "size");
    wrong("\n41\n", "\n+41\n", "size");
    wrong("\n41\n", "\n-1\n", "size");
    wrong("\n41\n", "\n 41\n", "size");
    wrong("\n41\n", "\n18446744073709551616\n", "size");
    wrong("=\n", "\n", "root");
    wrong("SBNJ", "SBNJSBNJ", "root");
    wrong("SBNJ", "SB-J", "root");
    wrong("chain ", "", "chain hash");
    wrong("chain ", "chain 0", "chain hash");
    wrong(&hex::encode(entry(41)), &hex::encode_upper(entry(41)), "chain hash");
    wrong("epoch 3", "epoch 03", "epoch");
    wrong("epoch 3\n", "", "epoch");
    wrong("at 18", "at +18", "time");
    wrong("at 1800000000000\n", "", "time");
    wrong("00000\n", "00000\n\n", "line after the time");
    assert_eq!(text.trim_end().parse::<Checkpoint>(), Err(NoteError::Text));
    assert_eq!(format!(" {text}").parse::<Checkpoint>(), Err(NoteError::Name));
    assert_eq!("".parse::<Checkpoint>(), Err(NoteError::Text));
}

#[test]
fn a_later_version_may_say_more() {
    let text = format!("{}witnessed by nobody\n", checkpoint());
    assert_eq!(text.parse(), Ok(checkpoint()));
}

#[test]
fn a_note_is_its_text_and_the_signatures_under_it() {
    let text = checkpoint().to_string();
    let note = SignedNote::new(text.as_str(), vec![signature(), signature()]).unwrap();
    let written = note.to_string();
    let line = "\u{2014} placet.example AQIDBAcHBwcH";
    assert!(written.starts_with(&format!("{text}\n{line}")), "{written}");
    assert_eq!(SignedNote::parse(&written), Ok(note.clone()));
    assert_eq!(note.text(), text);
    assert_eq!(note.signatures().len(), 2);
    // Everything before the last empty line is text, including empty lines.
    let inner = SignedNote::new("one\n\ntwo\n", vec![signature()]).unwrap();
    assert_eq!(SignedNote::parse(&inner.to_string()).unwrap().text(), "one\n\ntwo\n");
}

#[test]
fn what_is_not_a_note_is_refused() {
    let line = "\u{2014} placet.example AQIDBAcHBwcH\n";
    let error = |note: &str| SignedNote::parse(note).unwrap_err();
    assert_eq!(error(""), NoteError::Unsigned);
    assert_eq!(error("text\n"), NoteError::Unsigned);
    assert_eq!(error("text\n\n"), NoteError::Unsigned);
    assert_eq!(error(&format!("\n\n{line}")), NoteError::Text);
    assert_eq!(error(&format!("text\n{line}")), NoteError::Unsigned);
    assert_eq!(error(format!("text\n\n{line}").trim_end()), NoteError::Unsigned);
    assert_eq!(error(&format!("te\rxt\n\n{line}")), NoteError::ControlCharacter);
    assert_eq!(error(&format!("te\0xt\n\n{line}")), NoteError::ControlCharacter);
    for bad in [
        "- a AQIDBAcH",
        "\u{2014} a",
        "\u{2014} a AQIDBA==",
        "\u{2014} a AQIDBAc",
        "\u{2014} a AQIDB*cH",
        "\u{2014}  AQIDBAcH",
        "\u{2014} a+b AQIDBAcH",
        " \u{2014} a AQIDBAcH",
        "\u{2014} a AQIDBAcH ",
    ] {
        let note = format!("text\n\n{line}{bad}\n");
        assert_eq!(error(&note), NoteError::Signature { line: 2 }, "{bad}");
    }
    let many = format!("text\n\n{}", line.repeat(SIGNATURES_MAX + 1));
    assert_eq!(error(&many), NoteError::TooManySignatures);
    assert!(SignedNote::parse(&format!("text\n\n{}", line.repeat(SIGNATURES_MAX))).is_ok());
    let long = format!("{}\n\n{line}", "x".repeat(NOTE_BYTES_MAX));
    assert_eq!(error(&long), NoteError::TooLong);
}

#[test]
fn a_note_that_another_reader_would_take_for_something_else_is_not_made() {
    assert_eq!(SignedNote::new("text\n", Vec::new()), Err(NoteError::Unsigned));
    assert!(SignedNote::new("text", vec![signature()]).is_err());
    assert!(SignedNote::new("", vec![signature()]).is_err());
    assert_eq!(SignedNote::new("te\u{7}xt\n", vec![signature()]), Err(NoteError::ControlCharacter));
    let empty = NoteSignature { signature: Vec::new(), ..signature() };
    assert!(SignedNote::new("text\n", vec![empty]).is_err());
}

#[test]
fn a_name_has_no_white_space_no_plus_and_an_end() {
    for good in ["a", "placet.example/journal", "münchen", &"x".repeat(NAME_BYTES_MAX)] {
        assert_eq!(NoteName::new(good).unwrap().as_str(), good);
    }
    for bad in
        ["", "a b", "a\tb", "a\n", "a+b", "a\u{a0}b", "a\u{0}", &"x".repeat(NAME_BYTES_MAX + 1)]
    {
        assert_eq!(NoteName::new(bad), Err(NoteError::Name), "{bad:?}");
        assert!(serde_json::from_value::<NoteName>(bad.into()).is_err(), "{bad:?}");
    }
}

fn claims() -> ReceiptClaims {
    let (mut all, frontier) = All::of(21);
    ReceiptClaims {
        version: RECEIPT_VERSION,
        iss: name("placet.example"),
        iat: 1_800_000_000,
        call_id: "call-1".parse().unwrap(),
        record_id: Digest::of(b"record").to_string().parse().unwrap(),
        tenant: "acme".parse().unwrap(),
        capability: "mail/send".parse().unwrap(),
        state: "succeeded".to_owned(),
        code: None,
        requested_digest: Digest::of(b"requested"),
        request_digest: Some(Digest::of(b"request")),
        result_digest: Some(Digest::of(b"result")),
        replayed: false,
        log: name("placet.example/journal"),
        seq: 13,
        entry: Digest::from_bytes(entry(13)),
        at: Timestamp::from_ms(1_800_000_000_000),
        tree_size: 21,
        root: frontier.root(),
        path: Inclusion::build(&mut all, 13, 21).unwrap().path,
    }
}

#[test]
fn a_receipt_carries_its_own_proof() {
    let claims = claims();
    assert_eq!(claims.check(), Ok(()));
    assert_eq!(claims.head(), TreeHead { size: 21, root: claims.root });
    let json = serde_json::to_string(&claims).unwrap();
    assert_eq!(serde_json::from_str::<ReceiptClaims>(&json).unwrap(), claims);
    assert!(!json.contains("null"), "{json}");
}

#[test]
fn a_receipt_whose_proof_is_of_something_else_is_refused() {
    let other = ReceiptClaims { seq: 14, ..claims() };
    assert_eq!(other.check(), Err(ProofError::Mismatch));
    let other = ReceiptClaims { entry: Digest::from_bytes(entry(14)), ..claims() };
    assert_eq!(other.check(), Err(ProofError::Mismatch));
    let other = ReceiptClaims { root: turned(&claims().root, 0), ..claims() };
    assert_eq!(other.check(), Err(ProofError::Mismatch));
    let other =
        ReceiptClaims { root: Frontier::new().root(), tree_size: 0, path: Vec::new(), ..claims() };
    assert_eq!(other.check(), Err(ProofError::NoSuchEntry { seq: 13, size: 0 }));
}

proptest! {
    #[test]
    fn any_text_is_a_note_or_refused_and_what_is_read_is_written_again(text in "[ -~\n\u{2014}]{0,200}") {
        let line = "\u{2014} a AQIDBAcHBwcH\n";
        for note in [text.clone(), format!("{text}\n\n{line}"), format!("{text}{line}")] {
            if let Ok(read) = SignedNote::parse(&note) {
                prop_assert_eq!(read.to_string(), note);
            }
        }
    }

    #[test]
    fn any_checkpoint_survives_its_text(size: u64, epoch: u64, at: i64, root: [u8; 32], chain: [u8; 32]) {
        let head = TreeHead { size, root: Digest::from_bytes(root) };
        let said = Checkpoint { head, chain, epoch, at: Timestamp::from_ms(at), ..checkpoint() };
        prop_assert_eq!(said.to_string().parse(), Ok(said));
    }
}
