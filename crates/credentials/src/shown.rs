//! The proofs that a token service was shown, so that none of them is accepted as a minted token.
//!
//! Owns the comparison. Invariant: padding, alphabets of Base64 and separators make no difference; a text within another one is found.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};
use url::form_urlencoded::{byte_serialize, parse};
use zeroize::Zeroizing;

use crate::form::Wanted;

/// The parameters that are proofs. Other parameters (scopes, names) may well recur in a token.
const PROOFS: [&str; 4] = ["subject_token", "actor_token", "client_assertion", "client_secret"];
/// A shorter proof, in bytes, is not searched for inside other texts: it would be found by chance.
const WORD_BYTES_MIN: usize = 16;
/// If the last part of a token has at least this many characters, it is a signature, which belongs to one token alone.
const SIGNATURE_CHARS_MIN: usize = 43;

/// What proves somebody, in the form of [`plain`]. No `Debug`: it holds tokens and secrets.
pub(crate) struct Shown(Vec<Zeroizing<String>>);

impl Shown {
    /// The proofs in this request for `wanted`, made by this client with `secret`.
    pub(crate) fn of(
        request: &Request<Bytes>,
        wanted: &Wanted,
        client_id: &str,
        secret: &SecretString,
    ) -> Self {
        let mut shown = Self(Vec::new());
        for (name, value) in parse(request.body()) {
            let value = Zeroizing::new(value.into_owned());
            if PROOFS.contains(&&*name) {
                shown.proof(&value);
            }
        }
        // Also what this request does not show: the service may have it from another one.
        let tokens = wanted.tokens.iter();
        for token in tokens.flat_map(|tokens| std::iter::once(&tokens.subject).chain(&tokens.actor))
        {
            shown.proof(token.expose_to_token_service());
        }
        let sent = request.headers().get(header::AUTHORIZATION).map(HeaderValue::to_str);
        if let Some(Ok(basic)) = sent {
            shown.proof(basic.trim_start_matches("Basic "));
        }
        shown.client(client_id, secret.expose_secret());
        shown
    }

    /// The client's secret, as it is and in each form that some service takes or shows it in.
    fn client(&mut self, client_id: &str, secret: &str) {
        // Enough capacity from the start: a string that grows leaves copies behind that are not overwritten.
        let mut escaped = Zeroizing::new(String::with_capacity(secret.len().saturating_mul(3)));
        escaped.extend(byte_serialize(secret.as_bytes()));
        for form in [secret, &escaped] {
            self.proof(form);
        }
        if secret.is_empty() {
            // The connection authenticates us.
            return;
        }
        let pair = Zeroizing::new([client_id, ":", secret].concat());
        for text in [secret, &pair] {
            self.proof(&Zeroizing::new(STANDARD.encode(text)));
        }
    }

    fn proof(&mut self, text: &str) {
        let mut parts = text.rsplit('.').filter(|part| !part.is_empty());
        let signature = parts.next().filter(|_| parts.nth(1).is_some()).unwrap_or_default();
        let signature = Some(plain(signature)).filter(|one| one.len() >= SIGNATURE_CHARS_MIN);
        let whole = Some(plain(text)).filter(|text| !text.is_empty());
        let is_token = signature.is_some();
        self.0.extend(whole.into_iter().chain(signature).map(|mut form| {
            // The last character of a signature has spare bits, so it is not compared.
            if is_token {
                form.pop();
            }
            form
        }));
    }

    /// Whether a token is one of them, or holds one.
    pub(crate) fn has(&self, token: &str) -> bool {
        let token = plain(token);
        self.0.contains(&token) || self.is_within(&token)
    }

    /// Whether a token's claims contain one of the proofs, at any depth.
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
        self.is_within(&plain(text))
    }

    fn is_within(&self, text: &str) -> bool {
        let words = self.0.iter().filter(|proof| proof.len() >= WORD_BYTES_MIN);
        words.into_iter().any(|proof| text.contains(proof.as_str()))
    }
}

/// A text without the differences of its encodings: padding, the Base64 alphabet, separators.
pub(crate) fn plain(text: &str) -> Zeroizing<String> {
    let mut plain = Zeroizing::new(String::with_capacity(text.len()));
    plain.extend(text.chars().filter_map(|one| match one {
        '+' => Some('-'),
        '/' => Some('_'),
        other => (other.is_ascii_alphanumeric() || matches!(other, '-' | '_')).then_some(other),
    }));
    plain
}
