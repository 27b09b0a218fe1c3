//! The answer of a token service: accepted only if everything about it is as asked for.
//!
//! Owns the checks and the meaning of error codes. Invariant: what is accepted has the type, the target and no more than the scopes that
//! were asked for; a token that can be read contradicts none of that; no text of the answer leaves this module but the token itself.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::StatusCode;
use placet_types::{
    binding::CredentialUse,
    clock::Timestamp,
    contract::credential::CredentialKind,
    digest::Digest,
    json::{JsonLimits, parse_strict},
};
use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::{
    config::{Leniency, StsConfig},
    error::BrokerError,
    form::{ACCESS_TOKEN, Actor, Wanted},
    grant::Minted,
};

/// The largest answer that is read.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The largest token.
const TOKEN_BYTES_MAX: usize = 32 * 1024;
/// How long a token is assumed to live whose answer does not say.
const LIFETIME_MS_ASSUMED: i64 = 60_000;
/// A credential is not used in its last moments, when it might expire on its way.
pub(crate) const MARGIN_MS: i64 = 15_000;
const AUDIENCES_MAX: usize = 64;
const ACT_BYTES_MAX: usize = 8 * 1024;

/// What an answer is checked against.
#[derive(Debug)]
pub(crate) struct Check<'a> {
    pub(crate) service: &'a StsConfig,
    pub(crate) wanted: &'a Wanted,
    pub(crate) now: Timestamp,
}

/// The meaning of an answer that is no success.
pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> BrokerError {
    let document = object(body);
    let code = document.as_ref().and_then(|members| members.get("error")).and_then(Value::as_str);
    // What the status says of us or of the service goes before what the body says of the request: services give codes of their own with them.
    if status == StatusCode::UNAUTHORIZED {
        let code = code.and_then(known).unwrap_or("without a known error code");
        return BrokerError::ClientRefused { code };
    }
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return BrokerError::Unavailable { problem: format!("it answers {}", status.as_u16()) };
    }
    match code.and_then(known) {
        Some(code @ ("invalid_request" | "unsupported_grant_type")) => {
            BrokerError::Misconfigured { code }
        }
        Some(code @ "invalid_client") => BrokerError::ClientRefused { code },
        Some(code @ "unauthorized_client") => BrokerError::ClientNotEntitled { code },
        Some(code @ "invalid_grant") => BrokerError::SubjectRefused { code },
        Some(code @ "invalid_target") => BrokerError::TargetRefused { code },
        Some(code @ ("invalid_scope" | "access_denied")) => BrokerError::GrantRefused { code },
        Some("insufficient_user_authentication") => BrokerError::StrongerSignIn,
        // It may be about this subject alone: one person's refusal does not close the service to everybody.
        _ if status == StatusCode::FORBIDDEN => {
            BrokerError::Puzzling { problem: "it answers 403 without an error code that is known" }
        }
        _ => BrokerError::Puzzling { problem: "it answers without an error code that is known" },
    }
}

/// The code as the RFCs write it; what else a service says is not repeated anywhere.
fn known(code: &str) -> Option<&'static str> {
    const KNOWN: [&str; 9] = [
        "invalid_request",
        "unsupported_grant_type",
        "invalid_client",
        "unauthorized_client",
        "invalid_grant",
        "invalid_target",
        "invalid_scope",
        "access_denied",
        "insufficient_user_authentication",
    ];
    KNOWN.into_iter().find(|known| *known == code)
}

fn object(body: &[u8]) -> Option<Map<String, Value>> {
    let limits = JsonLimits { bytes_max: ANSWER_BYTES_MAX, ..JsonLimits::default() };
    match parse_strict(body, &limits) {
        Ok(Value::Object(members)) => Some(members),
        Ok(_) | Err(_) => None,
    }
}

const fn refused<T>(problem: &'static str) -> Result<T, BrokerError> {
    Err(BrokerError::AnswerRefused { problem })
}

impl Check<'_> {
    /// The credential in an answer of status 200.
    pub(crate) fn success(&self, body: &[u8]) -> Result<Minted, BrokerError> {
        let Some(members) = object(body) else {
            return Err(BrokerError::Unavailable { problem: "its answer is no JSON".to_owned() });
        };
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        let token = text("access_token").unwrap_or_default();
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(is_token_byte) {
            return refused("it holds no token");
        }
        if !text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return refused("the token is not of the type `Bearer`");
        }
        let untyped = self.check_issued_type(members.get("issued_token_type"))?;
        let scopes = self.scopes(members.get("scope"))?;
        let mut expires_at = self.expiry(members.get("expires_in"))?;
        let said = members.get("expires_in").and_then(Value::as_i64);
        let mut good_until = said.map(|seconds| self.now.plus_ms(seconds.saturating_mul(1_000)));
        if let Some(claims) = claims_of(token)? {
            self.cross_check(&claims)?;
            if let Some(at) = claims.get("exp").and_then(Value::as_i64) {
                let at = Timestamp::from_ms(at.saturating_mul(1_000));
                expires_at = expires_at.min(at);
                good_until = good_until.max(Some(at));
            }
        }
        // Neither longer than the token that it was exchanged for, nor into its own last moments.
        if let Some(tokens) = &self.wanted.tokens {
            expires_at = expires_at.min(tokens.subject.expires_at());
        }
        let expires_at = expires_at.plus_ms(MARGIN_MS.saturating_neg());
        if expires_at <= self.now {
            // A service gives no more than is left of the subject's own time: then that is what is short, and not its answer.
            let subject = self.wanted.tokens.as_ref().map(|tokens| tokens.subject.expires_at());
            let soon = self.now.plus_ms(MARGIN_MS.saturating_mul(2));
            return match subject {
                Some(ends) if ends <= soon => Err(BrokerError::SubjectExpired),
                Some(_) | None => refused("its time is as good as over"),
            };
        }
        Ok(Minted {
            used: self.used(token, scopes, expires_at),
            value: SecretString::from(token),
            expires_at,
            good_until,
            untyped,
        })
    }

    /// Whether the service was let off saying it.
    fn check_issued_type(&self, said: Option<&Value>) -> Result<bool, BrokerError> {
        match said {
            // RFC 6749 does not know it.
            _ if self.wanted.kind != CredentialKind::TokenExchange => Ok(false),
            Some(Value::String(kind)) if kind == ACCESS_TOKEN => Ok(false),
            None if self.service.is_let_off(Leniency::IssuedType) => {
                tracing::debug!(sts = %self.service.name, "a token service did not say what it issued");
                Ok(true)
            }
            Some(_) | None => refused("the token is not of the type that was asked for"),
        }
    }

    /// What is granted: what was asked for, or less as long as it is enough.
    fn scopes(&self, said: Option<&Value>) -> Result<BTreeSet<String>, BrokerError> {
        let granted: BTreeSet<String> = match said {
            None => self.wanted.scopes.clone(),
            Some(Value::String(text)) => text.split_ascii_whitespace().map(str::to_owned).collect(),
            Some(_) => return refused("its scope is no text"),
        };
        if !granted.is_subset(&self.wanted.scopes) {
            return refused("it grants more than was asked for");
        }
        if !self.wanted.scopes_needed.is_subset(&granted) {
            return Err(BrokerError::TooNarrow);
        }
        Ok(granted)
    }

    fn expiry(&self, said: Option<&Value>) -> Result<Timestamp, BrokerError> {
        let cap_ms = i64::try_from(self.service.lifetime_ms_max).unwrap_or(LIFETIME_MS_ASSUMED);
        let lifetime_ms = match said {
            None => LIFETIME_MS_ASSUMED,
            Some(Value::Number(seconds)) => match seconds.as_i64() {
                Some(seconds) if seconds > 0 => seconds.saturating_mul(1_000),
                Some(_) | None => return refused("its `expires_in` is no time"),
            },
            Some(_) => return refused("its `expires_in` is no number"),
        };
        Ok(self.now.plus_ms(lifetime_ms.min(cap_ms)))
    }

    /// A token that can be read is read; not as a proof, which it is for its target alone, but to notice a mix-up.
    fn cross_check(&self, claims: &Map<String, Value>) -> Result<(), BrokerError> {
        let named = audiences(claims.get("aud"));
        let targets = [&self.wanted.audience, &self.wanted.resource];
        let fits = targets.into_iter().flatten().any(|target| named.contains(&target.as_str()));
        if !fits && !self.service.is_let_off(Leniency::Audience) {
            return refused("the token is for another audience");
        }
        self.check_own_scopes(claims)?;
        let Some(tokens) = self.wanted.tokens.as_ref().filter(|_| self.is_exchange()) else {
            return Ok(());
        };
        let subject = claims.get("sub").and_then(Value::as_str);
        if subject != Some(tokens.subject.subject()) && !self.service.is_let_off(Leniency::Subject)
        {
            return refused("the token is about another subject");
        }
        self.check_actor(claims.get("act"))
    }

    /// What the token says of its scopes itself, whatever the answer around it says.
    fn check_own_scopes(&self, claims: &Map<String, Value>) -> Result<(), BrokerError> {
        let own: BTreeSet<String> = match claims.get("scope").or_else(|| claims.get("scp")) {
            None => return Ok(()),
            Some(Value::String(text)) => text.split_ascii_whitespace().map(str::to_owned).collect(),
            Some(Value::Array(several)) => {
                let words = several.iter().map(|word| word.as_str().map(str::to_owned));
                match words.collect::<Option<_>>() {
                    Some(words) => words,
                    None => return refused("the token's scope is no text"),
                }
            }
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                return refused("the token's scope is no text");
            }
        };
        if !own.is_subset(&self.wanted.scopes) {
            return refused("the token has more scopes than were asked for");
        }
        if self.wanted.scopes_needed.is_subset(&own) { Ok(()) } else { Err(BrokerError::TooNarrow) }
    }

    fn check_actor(&self, act: Option<&Value>) -> Result<(), BrokerError> {
        let tokens = self.wanted.tokens.as_ref();
        let expected: Vec<&str> = match self.wanted.actor {
            Actor::Token => {
                let actor = tokens.and_then(|tokens| tokens.actor.as_ref());
                actor
                    .iter()
                    .flat_map(|one| one.client().into_iter().chain([one.subject()]))
                    .collect()
            }
            Actor::Assertion => vec![self.service.client_id.as_str()],
            Actor::Nobody => {
                return if act.is_none() { Ok(()) } else { refused("the token names an actor") };
            }
        };
        let Some(act) = act else {
            return if self.service.is_let_off(Leniency::Actor) {
                Ok(())
            } else {
                refused("the token does not name who acts")
            };
        };
        if act.to_string().len() > ACT_BYTES_MAX {
            return refused("the token's `act` is too large");
        }
        match act.get("sub").and_then(Value::as_str) {
            Some(named) if expected.contains(&named) => Ok(()),
            Some(_) | None => refused("the token names another actor"),
        }
    }

    fn is_exchange(&self) -> bool {
        self.wanted.kind == CredentialKind::TokenExchange
    }

    fn used(&self, token: &str, scopes: BTreeSet<String>, expires_at: Timestamp) -> CredentialUse {
        let tokens = self.wanted.tokens.as_ref().filter(|_| self.is_exchange());
        let actor = match (self.is_exchange(), self.wanted.actor) {
            (false, _) | (_, Actor::Nobody) => None,
            (true, Actor::Assertion) => Some(self.service.client_id.clone()),
            (true, Actor::Token) => tokens
                .and_then(|tokens| tokens.actor.as_ref())
                .map(|actor| actor.subject().to_owned()),
        };
        let subject = tokens.map_or(self.service.client_id.as_str(), |one| one.subject.subject());
        CredentialUse {
            kind: self.wanted.kind,
            source: self.service.name.clone(),
            subject: Some(subject.to_owned()),
            actor,
            audience: self.wanted.audience.clone(),
            resource: self.wanted.resource.clone(),
            scopes: scopes.into_iter().collect(),
            expires_at: Some(expires_at),
            digest: Some(Digest::of(token.as_bytes())),
            reused: false,
        }
    }
}

/// What can stand in a bearer token (RFC 6750, section 2.1).
const fn is_token_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
}

/// The claims of a token that is a JWT; its signature is for its target to check.
fn claims_of(token: &str) -> Result<Option<Map<String, Value>>, BrokerError> {
    let parts: Vec<&str> = token.split('.').collect();
    let &[head, claims, _] = parts.as_slice() else { return Ok(None) };
    let read = |part: &str| object(&URL_SAFE_NO_PAD.decode(part).ok()?);
    // Three words with dots between them are no JWT yet.
    if !read(head).is_some_and(|head| head.contains_key("alg")) {
        return Ok(None);
    }
    read(claims).map_or_else(|| refused("the token cannot be read"), |claims| Ok(Some(claims)))
}

fn audiences(said: Option<&Value>) -> Vec<&str> {
    match said {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => {
            several.iter().take(AUDIENCES_MAX).filter_map(Value::as_str).collect()
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            Vec::new()
        }
    }
}
