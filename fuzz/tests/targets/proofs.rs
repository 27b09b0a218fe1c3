//! Signed notes, checkpoints, receipts and proofs.

use placet_ledger::proof::checkpoint::Checkpoint;
use placet_ledger::proof::note::{NoteName, NoteSignature, SignedNote};
use placet_ledger::proof::receipt::ReceiptClaims;
use placet_ledger::proof::{Frontier, TreeHead};
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::json::{JsonError, JsonLimits, from_value_strict, parse_strict};

use crate::fuzz;

fn name(text: &str) -> NoteName {
    NoteName::new(text).unwrap()
}

fn checkpoint() -> Checkpoint {
    let head = TreeHead { size: 5, root: Digest::of(b"root") };
    Checkpoint {
        origin: name("here/journal"),
        head,
        chain: [7; 32],
        epoch: 3,
        at: Timestamp::from_ms(1_000),
    }
}

#[test]
fn a_note_that_is_read_is_written_as_it_was() {
    let signature = |key: &str| NoteSignature {
        name: name(key),
        key_hash: [1, 2, 3, 4],
        signature: vec![9; 64],
    };
    let one = SignedNote::new(checkpoint().to_string(), vec![signature("here")]).unwrap();
    let two =
        SignedNote::new("first\n\nlast\n", vec![signature("here"), signature("there")]).unwrap();
    let documents = [one.to_string(), two.to_string()];
    fuzz!(20_000, move |input| {
        let Ok(text) = String::from_utf8(input.apply(&documents)) else { return };
        let Ok(note) = SignedNote::parse(&text) else { return };
        assert_eq!(note.to_string(), text, "a note has two forms");
        if let Ok(read) = note.text().parse::<Checkpoint>() {
            // Lines that a later build may add stand after ours.
            assert!(note.text().starts_with(&read.to_string()), "a checkpoint has two forms");
        }
    });
}

#[test]
fn a_receipt_proves_only_what_it_was_made_for() {
    let sound = receipt();
    assert!(claims(sound.as_bytes()).unwrap().check().is_ok());
    let made: ReceiptClaims = serde_json::from_str(&sound).unwrap();
    fuzz!(10_000, move |input| {
        let bytes = input.apply(&[sound.as_bytes()]);
        let Ok(read) = claims(&bytes) else { return };
        if read.check().is_ok() && read.root == made.root && read.tree_size == made.tree_size {
            assert_eq!(
                (read.seq, read.entry),
                (made.seq, made.entry),
                "another entry is in the tree"
            );
        }
    });
}

fn claims(bytes: &[u8]) -> Result<ReceiptClaims, JsonError> {
    parse_strict(bytes, &JsonLimits::default()).and_then(from_value_strict)
}

/// The third of five entries.
fn receipt() -> String {
    let entry = |number: u8| [number; 32];
    let node = |left: &Digest, right: &Digest| placet_ledger::proof::node_hash(left, right);
    let leaves: Vec<Digest> =
        (1..=5).map(|number| placet_ledger::proof::leaf_hash(&entry(number))).collect();
    let first = node(&leaves[0], &leaves[1]);
    let root = node(&node(&first, &node(&leaves[2], &leaves[3])), &leaves[4]);
    serde_json::json!({
        "version": 1, "iss": "here", "iat": 1_800_000_000_i64, "call_id": "call-1",
        "record_id": placet_types::ids::RecordId::derive(&scope(), &placet_types::ids::IdempotencyKey::new("key").unwrap()),
        "tenant": "acme", "capability": "notes/erase", "state": "succeeded",
        "requested_digest": Digest::of(b"requested"), "result_digest": Digest::of(b"result"), "replayed": false,
        "log": "here/journal", "seq": 3, "entry": Digest::from_bytes(entry(3)), "at": Timestamp::from_ms(1_000),
        "tree_size": 5, "root": root, "path": [leaves[3], first, leaves[4]],
    })
    .to_string()
}

fn scope() -> placet_types::principal::KeyScope {
    placet_types::principal::KeyScope {
        tenant: placet_types::ids::TenantId::new("acme").unwrap(),
        kind: placet_types::principal::PrincipalKind::Agent,
        agent: placet_types::ids::PrincipalId::new("scribe").unwrap(),
        on_behalf_of: None,
        capability: "notes/erase".parse().unwrap(),
    }
}

#[test]
fn a_frontier_that_is_read_is_written_as_it_was() {
    let mut frontier = Frontier::default();
    for number in 0..11 {
        frontier.append(&[number; 32], &mut |_, _| {});
    }
    let document = frontier.to_bytes();
    fuzz!(10_000, move |input| {
        let bytes = input.apply(&[&document]);
        if let Some(read) = Frontier::from_bytes(&bytes) {
            assert_eq!(read.to_bytes(), bytes);
            assert_eq!(read.head().root, read.root());
        }
    });
}
