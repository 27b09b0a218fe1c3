//! Receipts: what a caller keeps verifies for ever, and nothing else does.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use placet_ledger::proof::receipt::{RECEIPT_VERSION, ReceiptClaims};
use placet_ledger::proof::{Consistency, ProofError};
use placet_types::digest::Digest;
use serde_json::{Value, json};

use super::super::{
    SealError, sign_receipt, verify_checkpoint, verify_receipt, verify_receipt_under,
};
use super::{AT, Log, key, name, origin, other_key};

fn claims(log: &Log, seq: u64) -> ReceiptClaims {
    let size = log.frontier().size();
    let entry = &log.entries[usize::try_from(seq - 1).unwrap()];
    ReceiptClaims {
        version: RECEIPT_VERSION,
        iss: name("placet.example"),
        iat: AT.as_ms() / 1000,
        call_id: "call-1".parse().unwrap(),
        record_id: Digest::of(b"record").to_string().parse().unwrap(),
        tenant: "acme".parse().unwrap(),
        capability: "mail/send".parse().unwrap(),
        state: "succeeded".to_owned(),
        code: None,
        requested_digest: Digest::of(b"requested"),
        request_digest: None,
        result_digest: Some(Digest::of(b"result")),
        replayed: false,
        log: origin(),
        seq,
        entry: Digest::from_bytes(entry.hash),
        at: AT,
        tree_size: size,
        root: log.frontier().root(),
        path: log.view().inclusion(seq, size).unwrap().0.path,
    }
}

/// A JWS with any header and claims, signed with our key.
fn signed(header: &Value, claims: &Value) -> String {
    let text = |value: &Value| BASE64.encode(value.to_string());
    let signed = format!("{}.{}", text(header), text(claims));
    format!("{signed}.{}", BASE64.encode(key().sign(signed.as_bytes())))
}

#[test]
fn a_receipt_verifies_with_the_public_key_alone() {
    let log = Log::of(40);
    for seq in [1, 13, 39, 40] {
        let claims = claims(&log, seq);
        let receipt = sign_receipt(&key(), &claims).unwrap();
        assert_eq!(verify_receipt(&receipt, key().public()).unwrap(), claims);
        let header: Value =
            serde_json::from_slice(&BASE64.decode(receipt.split('.').next().unwrap()).unwrap())
                .unwrap();
        let kid = key().public().id();
        assert_eq!(header, json!({"alg": "EdDSA", "typ": "placet-receipt+jwt", "kid": kid}));
    }
}

#[test]
fn a_turned_bit_anywhere_in_a_receipt_is_refused() {
    let receipt = sign_receipt(&key(), &claims(&Log::of(5), 3)).unwrap();
    let mut tried = 0;
    // One bit of every third place: verifying is slow without optimisation.
    for place in (0..receipt.len()).step_by(3) {
        let mut changed = receipt.clone().into_bytes();
        changed[place] ^= 1 << (place % 7);
        let changed = String::from_utf8(changed).unwrap();
        assert!(verify_receipt(&changed, key().public()).is_err(), "{place}");
        tried += 1;
    }
    assert!(tried > 300, "{tried}");
}

#[test]
fn another_key_type_or_algorithm_is_not_taken_whatever_the_header_says() {
    let log = Log::of(5);
    let receipt = sign_receipt(&key(), &claims(&log, 3)).unwrap();
    let error = verify_receipt(&receipt, other_key().public()).unwrap_err();
    assert!(matches!(error, SealError::NotSigned { .. }));
    let kid = key().public().id();
    let claims = serde_json::to_value(claims(&log, 3)).unwrap();
    let good = json!({"alg": "EdDSA", "typ": "placet-receipt+jwt", "kid": kid});
    verify_receipt(&signed(&good, &claims), key().public()).unwrap();
    for header in [
        json!({"alg": "none", "typ": "placet-receipt+jwt", "kid": kid}),
        json!({"alg": "HS256", "typ": "placet-receipt+jwt", "kid": kid}),
        json!({"alg": "eddsa", "typ": "placet-receipt+jwt", "kid": kid}),
        json!({"alg": "EdDSA", "typ": "JWT", "kid": kid}),
        json!({"alg": "EdDSA", "kid": kid}),
        json!({"alg": "EdDSA", "typ": "placet-receipt+jwt"}),
        json!({"alg": "EdDSA", "typ": "placet-receipt+jwt", "kid": "another"}),
        json!({"alg": "EdDSA", "typ": "placet-receipt+jwt", "kid": kid, "crit": ["b64"], "b64": false}),
        json!({"alg": "EdDSA", "typ": "placet-receipt+jwt", "kid": kid, "jwk": {}}),
        json!("EdDSA"),
    ] {
        assert!(verify_receipt(&signed(&header, &claims), key().public()).is_err(), "{header}");
    }
}

#[test]
fn claims_that_do_not_hold_are_refused_though_the_signature_is_good() {
    let header = json!({"alg": "EdDSA", "typ": "placet-receipt+jwt", "kid": key().public().id()});
    let sound = serde_json::to_value(claims(&Log::of(5), 3)).unwrap();
    let with = |name: &str, value: Value| {
        let mut changed = sound.clone();
        changed[name] = value;
        verify_receipt(&signed(&header, &changed), key().public())
    };
    // What a later version adds is not looked at.
    assert!(with("later", json!(1)).is_ok());
    let digest = json!(Digest::of(b"other"));
    for (name, value) in [
        ("seq", json!(2)),
        ("tree_size", json!(17)),
        ("entry", digest.clone()),
        ("root", digest.clone()),
    ] {
        assert!(matches!(with(name, value), Err(SealError::Proof(_))), "{name}");
    }
    for (name, value) in [
        ("version", json!(2)),
        ("iss", json!("another")),
        ("seq", json!("3")),
        ("root", json!("x")),
        ("path", Value::Null),
    ] {
        assert!(matches!(with(name, value), Err(SealError::Receipt(_))), "{name}");
    }
    let mut path = sound["path"].as_array().unwrap().clone();
    path[0] = digest;
    let error = with("path", json!(path)).unwrap_err();
    assert!(matches!(error, SealError::Proof(ProofError::Mismatch)));
}

#[test]
fn what_is_not_a_receipt_is_refused() {
    let receipt = sign_receipt(&key(), &claims(&Log::of(5), 3)).unwrap();
    for text in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        &format!("{receipt}."),
        &format!("{receipt}="),
        &format!(" {receipt}"),
        &receipt.replacen('.', "..", 1),
        &"x".repeat(70_000),
    ] {
        assert!(verify_receipt(text, key().public()).is_err(), "{text:.20}");
    }
}

#[test]
fn a_receipt_whose_proof_does_not_hold_is_not_signed() {
    let claims = claims(&Log::of(5), 3);
    let wrong = ReceiptClaims { seq: 2, ..claims.clone() };
    assert!(matches!(sign_receipt(&key(), &wrong), Err(SealError::Proof(ProofError::Mismatch))));
    let wrong = ReceiptClaims { iss: name("another"), ..claims.clone() };
    assert!(matches!(sign_receipt(&key(), &wrong), Err(SealError::Receipt(_))));
    let wrong = ReceiptClaims { version: 9, ..claims };
    assert!(matches!(sign_receipt(&key(), &wrong), Err(SealError::Receipt(_))));
}

#[test]
fn a_receipt_is_joined_to_an_older_or_newer_checkpoint_of_its_log_only() {
    let (small, large) = (Log::of(12), Log::of(50));
    let checkpoint =
        |log: &Log| verify_checkpoint(&log.checkpoint(), key().public(), None).unwrap();
    let proof = large.view().consistency(12, 50).unwrap();
    verify_receipt_under(&claims(&small, 7), &checkpoint(&large), &proof).unwrap();
    verify_receipt_under(&claims(&large, 7), &checkpoint(&small), &proof).unwrap();
    let same = Consistency { from: 12, to: 12, path: Vec::new() };
    verify_receipt_under(&claims(&small, 7), &checkpoint(&small), &same).unwrap();
    let other = Log::from_payloads((0..50).map(|number| format!("\"other {number}\"")));
    let error = verify_receipt_under(&claims(&small, 7), &checkpoint(&other), &proof).unwrap_err();
    assert!(matches!(error, SealError::Proof(ProofError::Mismatch)));
    let error = verify_receipt_under(&claims(&small, 7), &checkpoint(&large), &same).unwrap_err();
    assert!(matches!(error, SealError::NotAfter { from: 12, to: 50, .. }));
    let elsewhere = ReceiptClaims { log: name("elsewhere"), ..claims(&small, 7) };
    let error = verify_receipt_under(&elsewhere, &checkpoint(&large), &proof).unwrap_err();
    assert!(matches!(error, SealError::Log { .. }));
}
