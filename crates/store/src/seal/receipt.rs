//! Receipts as compact JWS (RFC 7515): one signed line that a caller can keep.
//!
//! Owns signing and verifying. Not here: what a receipt claims (`placet_ledger::proof::receipt`). Invariants: exactly one algorithm, one
//! type and one key are accepted, whatever the header asks for; a receipt is signed only if its own proof holds.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use placet_ledger::proof::Consistency;
use placet_ledger::proof::checkpoint::Checkpoint;
use placet_ledger::proof::receipt::{RECEIPT_TYPE, RECEIPT_VERSION, ReceiptClaims};
use serde::{Deserialize, Serialize};

use super::{SealError, SealKey, SealPublic};

const ALGORITHM: &str = "EdDSA";
const RECEIPT_BYTES_MAX: usize = 64 << 10;

/// No other field is allowed in the header: an unknown one could change what the signature means.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    alg: String,
    typ: String,
    kid: String,
}

/// Signs a receipt.
///
/// # Errors
/// Its own proof does not hold, or it names another signer.
pub fn sign_receipt(key: &SealKey, claims: &ReceiptClaims) -> Result<String, SealError> {
    check_claims(claims, key.public())?;
    let header =
        Header { alg: ALGORITHM.to_owned(), typ: RECEIPT_TYPE.to_owned(), kid: key.public().id() };
    let unwritable = |_error| SealError::Receipt("its claims cannot be written");
    let header = serde_json::to_vec(&header).map_err(unwritable)?;
    let claims = serde_json::to_vec(claims).map_err(unwritable)?;
    let signed = format!("{}.{}", BASE64.encode(header), BASE64.encode(claims));
    let signature = key.sign(signed.as_bytes());
    Ok(format!("{signed}.{}", BASE64.encode(signature)))
}

/// Checks a receipt: signature, signer, and that its entry is in the tree it names. Needs nothing but the public key.
///
/// # Errors
/// [`SealError`] says what is wrong with it.
pub fn verify_receipt(receipt: &str, key: &SealPublic) -> Result<ReceiptClaims, SealError> {
    let (header, claims, signature) = split(receipt)?;
    let header: Header = read(header, "its header is not of a receipt")?;
    if header.alg != ALGORITHM || header.typ != RECEIPT_TYPE {
        return Err(SealError::Receipt("its header names another type or algorithm"));
    }
    if header.kid != key.id() {
        return Err(SealError::NotSigned { key: key.id() });
    }
    let signature = decode(signature, "its signature is not base64url")?;
    let signed = receipt.rsplit_once('.').map_or("", |(signed, _signature)| signed);
    key.verify(signed.as_bytes(), &signature)?;
    let claims: ReceiptClaims = read(claims, "its claims are not those of a receipt")?;
    check_claims(&claims, key)?;
    Ok(claims)
}

/// Checks that the tree of a verified receipt is that of a verified checkpoint, or that one extends the other.
///
/// # Errors
/// They are of different logs, or the proof does not join them.
pub fn verify_receipt_under(
    claims: &ReceiptClaims,
    checkpoint: &Checkpoint,
    proof: &Consistency,
) -> Result<(), SealError> {
    if claims.log != checkpoint.origin {
        let (expected, found) = (checkpoint.origin.to_string(), claims.log.to_string());
        return Err(SealError::Log { expected, found });
    }
    let receipt = claims.head();
    let receipt_is_older = receipt.size <= checkpoint.head.size;
    let (older, newer) =
        if receipt_is_older { (receipt, checkpoint.head) } else { (checkpoint.head, receipt) };
    let (from, to) = (older.size, newer.size);
    if (proof.from, proof.to) != (from, to) {
        let why = "the proof is about other sizes".to_owned();
        return Err(SealError::NotAfter { from, to, why });
    }
    Ok(proof.verify(&older.root, &newer.root)?)
}

fn check_claims(claims: &ReceiptClaims, key: &SealPublic) -> Result<(), SealError> {
    if claims.version != RECEIPT_VERSION {
        return Err(SealError::Receipt("it is of an unknown version"));
    }
    if claims.iss != *key.name() {
        return Err(SealError::Receipt("it names another signer than its key"));
    }
    Ok(claims.check()?)
}

fn split(receipt: &str) -> Result<(&str, &str, &str), SealError> {
    if receipt.len() > RECEIPT_BYTES_MAX {
        return Err(SealError::Receipt("it is too long"));
    }
    let mut parts = receipt.split('.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(claims), Some(signature), None) => Ok((header, claims, signature)),
        _ => Err(SealError::Receipt("it does not have three parts")),
    }
}

fn read<T: serde::de::DeserializeOwned>(part: &str, what: &'static str) -> Result<T, SealError> {
    let bytes = decode(part, what)?;
    serde_json::from_slice(&bytes).map_err(|_json| SealError::Receipt(what))
}

fn decode(part: &str, what: &'static str) -> Result<Vec<u8>, SealError> {
    BASE64.decode(part).map_err(|_base64| SealError::Receipt(what))
}
