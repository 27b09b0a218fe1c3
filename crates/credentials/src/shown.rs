//! What a request shows a token service, so that none of it is taken for an answer.
//!
//! Owns the comparison. Keeps digests of what proves somebody, and no copy of it. Invariant: two texts that anyone who decodes them
//! generously takes for the same are the same in here, whatever alphabet, padding or spare bits they are written with.

use std::collections::BTreeSet;

use base64::{
    Engine as _, alphabet,
    engine::{
        DecodePaddingMode,
        general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD},
    },
};
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use placet_types::digest::Digest;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};
use url::form_urlencoded::byte_serialize;
use zeroize::Zeroizing;

use crate::form::Wanted;

/// The parameters that prove somebody. What else a request says (scopes, names) a token may well repeat.
const PROOFS: [&[u8]; 4] =
    [b"subject_token", b"actor_token", b"client_assertion", b"client_secret"];
/// Below this, in bytes, a word within a text is not taken for a proof: it would be one by chance.
const WORD_BYTES_MIN: usize = 16;
/// From this on, in bytes, the last part of a token is a signature, which belongs to one token alone.
const SIGNATURE_BYTES_MIN: usize = 32;

/// As generous as any who decodes Base64: the rest is left out by [`plain`].
const GENEROUS: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Everything that a request shows a service, as digests.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// All of it: none of this is a token.
    all: BTreeSet<Digest>,
    /// What proves somebody: no token holds any of this either.
    proofs: BTreeSet<Digest>,
}

impl Shown {
    /// What this request shows. It is for `wanted`, and was made by a client of this name with `secret`.
    pub(crate) fn of(
        request: &Request<Bytes>,
        wanted: &Wanted,
        client_id: &str,
        secret: &SecretString,
    ) -> Self {
        let mut shown = Self::default();
        for pair in request.body().split(|byte| *byte == b'&') {
            let Some(at) = pair.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = pair.split_at(at);
            let value = decoded(value.get(1..).unwrap_or_default());
            if PROOFS.contains(&name) {
                shown.proof(&value);
            } else {
                shown.all.extend(face(&value));
            }
        }
        // Also what this request does not show: the service may have it from another one.
        for one in
            wanted.tokens.iter().flat_map(|one| std::iter::once(&one.subject).chain(&one.actor))
        {
            shown.proof(one.expose_to_token_service().as_bytes());
        }
        let sent = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        if let Some(basic) = sent.and_then(|value| value.strip_prefix(b"Basic ")) {
            shown.proof(basic);
        }
        shown.client(client_id, secret.expose_secret());
        shown
    }

    /// The client's secret, and what a header is made of with it, in each form that some service takes or shows it in.
    fn client(&mut self, client_id: &str, secret: &str) {
        if secret.is_empty() {
            // A connection proves who we are.
            return;
        }
        let (name, sent) = (escaped(client_id), escaped(secret));
        let pairs = [joined(client_id, secret), joined(&name, &sent)];
        self.proof(secret.as_bytes());
        self.proof(sent.as_bytes());
        self.proof(&base64(secret.as_bytes()));
        for pair in pairs {
            self.proof(pair.as_bytes());
            self.proof(&base64(pair.as_bytes()));
        }
    }

    fn proof(&mut self, value: &[u8]) {
        let faces = || face(value).into_iter().chain(signature(value));
        self.all.extend(faces());
        if value.len() >= WORD_BYTES_MIN {
            self.proofs.extend(faces());
            // As one part of something.
            self.proofs.insert(Digest::of(&plain(value)));
        }
    }

    /// Whether a token is one of them, or has the signature of one.
    pub(crate) fn has(&self, token: &str) -> bool {
        face(token.as_bytes()).is_some_and(|face| self.all.contains(&face))
            || self.is_proof(token.as_bytes())
    }

    /// Whether what a token says holds what proves somebody, at whatever depth.
    pub(crate) fn is_in(&self, said: &Map<String, Value>) -> bool {
        said.iter().any(|(name, value)| self.is_in_text(name) || self.is_in_value(value))
    }

    fn is_in_value(&self, said: &Value) -> bool {
        match said {
            Value::String(text) => self.is_in_text(text),
            Value::Array(several) => several.iter().any(|one| self.is_in_value(one)),
            Value::Object(members) => self.is_in(members),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    fn is_in_text(&self, text: &str) -> bool {
        // A word ends where no token and nothing that is percent-encoded goes on.
        let words = text.as_bytes().split(|byte| !is_token_byte(*byte) && *byte != b'%');
        words.filter(|word| word.len() >= WORD_BYTES_MIN).any(|word| {
            // Either may stand in a token as well as between two of them.
            let further = word.split(|byte| matches!(byte, b'=' | b'/'));
            self.is_proof(word) || further.into_iter().any(|word| self.is_proof(word))
        })
    }

    fn is_proof(&self, word: &[u8]) -> bool {
        let parts = word.split(|byte| *byte == b'.').filter(|part| part.len() >= WORD_BYTES_MIN);
        let parts = parts.map(|part| Digest::of(&plain(part)));
        let whole = face(word).filter(|_| word.len() >= WORD_BYTES_MIN);
        whole.into_iter().chain(parts).any(|face| self.proofs.contains(&face))
    }
}

/// What can stand in a bearer token (RFC 6750, section 2.1).
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
}

/// The bytes that a part of a token stands for, for anyone who decodes it most generously: either alphabet, no matter which padding, whatever
/// is in neither left out. What cannot be decoded at all stands for itself.
pub(crate) fn plain(part: &[u8]) -> Zeroizing<Vec<u8>> {
    // Room enough from the start, here and below: what a text leaves behind where it grows is not overwritten.
    let mut text = Zeroizing::new(Vec::with_capacity(part.len()));
    text.extend(part.iter().filter_map(|byte| match byte {
        b'+' => Some(b'-'),
        b'/' => Some(b'_'),
        b'-' | b'_' => Some(*byte),
        other => other.is_ascii_alphanumeric().then_some(*other),
    }));
    let shorter = text.len().saturating_sub(1);
    for length in [text.len(), shorter] {
        let mut bytes = Zeroizing::new(Vec::with_capacity(part.len()));
        let whole = text.get(..length).unwrap_or_default();
        if GENEROUS.decode_vec(whole, &mut bytes).is_ok() && !bytes.is_empty() {
            return bytes;
        }
    }
    text
}

/// A text as what its parts stand for; nothing where they stand for nothing.
fn face(text: &[u8]) -> Option<Digest> {
    let mut parts = Vec::new();
    for part in text.split(|byte| *byte == b'.').map(plain).filter(|part| !part.is_empty()) {
        parts.extend_from_slice(Digest::of(&part).as_bytes());
    }
    (!parts.is_empty()).then(|| Digest::of(&parts))
}

/// The last part of a text of three or more, where it is long enough to belong to this text alone.
fn signature(text: &[u8]) -> Option<Digest> {
    text.rsplit(|byte| *byte == b'.').filter(|part| !part.is_empty()).nth(2)?;
    text.rsplit(|byte| *byte == b'.').find(|part| !part.is_empty()).and_then(long_enough)
}

fn long_enough(part: &[u8]) -> Option<Digest> {
    let bytes = plain(part);
    (bytes.len() >= SIGNATURE_BYTES_MIN).then(|| Digest::of(&bytes))
}

fn escaped(text: &str) -> Zeroizing<String> {
    let mut all = Zeroizing::new(String::with_capacity(text.len().saturating_mul(3)));
    all.extend(byte_serialize(text.as_bytes()));
    all
}

fn joined(client_id: &str, secret: &str) -> Zeroizing<String> {
    let length = client_id.len().saturating_add(secret.len()).saturating_add(1);
    let mut all = Zeroizing::new(String::with_capacity(length));
    all.extend([client_id, ":", secret]);
    all
}

fn base64(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(STANDARD.encode(bytes).into_bytes())
}

/// A value of a form, as it was before it was put there.
fn decoded(value: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut all = Zeroizing::new(Vec::with_capacity(value.len()));
    let mut bytes = value.iter();
    while let Some(byte) = bytes.next() {
        all.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next(), bytes.next()].map(|byte| byte.copied().unwrap_or(b'0'));
                let digits = std::str::from_utf8(&digits).unwrap_or_default();
                u8::from_str_radix(digits, 16).unwrap_or_default()
            }
            other => *other,
        });
    }
    all
}
