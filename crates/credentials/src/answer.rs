//! The answer of a token service: accepted only if everything about it is as asked for.
//!
//! Owns the checks and the meaning of error codes. A token's own claims are read in [`claims`]. Invariant: what is accepted has the type
//! and the target that were requested, no more than the requested scopes, and is nothing that the service was shown; a readable token
//! contradicts none of that; no text of the response leaves this module but the token itself.

mod claims;

use std::collections::BTreeSet;

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
    config::{ACCESS_TOKEN, Leniency, StsConfig},
    error::BrokerError,
    form::{Actor, Wanted},
    grant::Minted,
    shown::Shown,
};

use self::claims::{Claims, claims_of};

/// The largest answer that is read.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The largest token.
const TOKEN_BYTES_MAX: usize = 32 * 1024;
/// The lifetime assumed for a token whose response does not state one.
const LIFETIME_MS_ASSUMED: i64 = 60_000;
/// A credential is not used in its last moments, when it might expire on its way.
pub(crate) const MARGIN_MS: i64 = 15_000;

/// What an answer is checked against.
pub(crate) struct Check<'a> {
    pub(crate) service: &'a StsConfig,
    pub(crate) wanted: &'a Wanted,
    /// What the service was shown with the request: none of it is an answer.
    pub(crate) shown: &'a Shown,
    /// When the service was asked. Lifetimes count from here, so that time in transit is not used.
    pub(crate) now: Timestamp,
    /// When its response arrived.
    pub(crate) answered: Timestamp,
}

/// The meaning of a response that is not a success.
pub(crate) fn refusal(status: StatusCode, body: &[u8], kind: CredentialKind) -> BrokerError {
    let document = object(body);
    let code = document.as_ref().and_then(|members| members.get("error")).and_then(Value::as_str);
    // A status about us or about the service takes precedence over the body's code: services send codes of their own with these statuses.
    if status == StatusCode::UNAUTHORIZED {
        let code = code.and_then(known).unwrap_or("without a known error code");
        return BrokerError::ClientRefused(code);
    }
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return BrokerError::Unavailable(format!("it answers {}", status.as_u16()));
    }
    match code.and_then(known) {
        // For an exchange, RFC 8693 (section 2.2.2) also prescribes this code where a presented token is rejected, for whatever reason: it
        // does not mean that the request is wrong for good.
        Some(code @ "invalid_request") if kind == CredentialKind::TokenExchange => {
            BrokerError::ExchangeRefused(code)
        }
        Some(code @ ("invalid_request" | "unsupported_grant_type")) => {
            BrokerError::Misconfigured(code)
        }
        Some(code @ "invalid_client") => BrokerError::ClientRefused(code),
        Some(code @ "unauthorized_client") => BrokerError::ClientNotEntitled(code),
        Some(code @ "invalid_grant") => BrokerError::SubjectRefused(code),
        Some(code @ "invalid_target") => BrokerError::TargetRefused(code),
        Some(code @ ("invalid_scope" | "access_denied")) => BrokerError::GrantRefused(code),
        Some("insufficient_user_authentication") => BrokerError::StrongerSignIn,
        // It may be about this subject alone: one person's refusal does not close the service to everybody.
        _ if status == StatusCode::FORBIDDEN => {
            BrokerError::Puzzling("it answers 403 without an error code that is known")
        }
        _ => BrokerError::Puzzling("it answers without an error code that is known"),
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

pub(crate) fn object(body: &[u8]) -> Option<Map<String, Value>> {
    let limits = JsonLimits { bytes_max: ANSWER_BYTES_MAX, ..JsonLimits::default() };
    match parse_strict(body, &limits) {
        Ok(Value::Object(members)) => Some(members),
        Ok(_) | Err(_) => None,
    }
}

/// The bytes allowed in a bearer token (RFC 6750, section 2.1).
const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
}

pub(crate) const fn refused<T>(problem: &'static str) -> Result<T, BrokerError> {
    Err(BrokerError::AnswerRefused(problem))
}

/// The response is malformed, or its times are wrong. That is a fault of the service or of a clock, and the same for every call: it says
/// nothing about the grant, and passes or gets fixed.
pub(crate) const fn unusable<T>(problem: &'static str) -> Result<T, BrokerError> {
    Err(BrokerError::AnswerUnusable(problem))
}

impl Check<'_> {
    /// The credential in an answer of status 200.
    pub(crate) fn success(&self, body: &[u8]) -> Result<Minted, BrokerError> {
        let Some(members) = object(body) else {
            return Err(BrokerError::Unavailable("its answer is no JSON".to_owned()));
        };
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        let token = text("access_token").unwrap_or_default();
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(is_token_byte) {
            return unusable("it holds no token");
        }
        // Checked before any claim, since its claims may well match the request. No exchange returns a caller's token or our own proof, and
        // no target may have either.
        if self.shown.has(token) {
            return refused("the token is one that it was shown");
        }
        if !text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return unusable("the token is not of the type `Bearer`");
        }
        let untyped = self.check_issued_type(members.get("issued_token_type"))?;
        let mut scopes = self.scopes(members.get("scope"))?;
        let mut expires_at = self.expiry(members.get("expires_in"))?;
        let said = members.get("expires_in").and_then(Value::as_i64);
        let mut good_until = said.map(|seconds| self.now.plus_ms(seconds.saturating_mul(1_000)));
        if let Some(Claims { head, claims }) = claims_of(token)? {
            if self.shown.is_in(&head) || self.shown.is_in(&claims) {
                return refused("the token holds what it was shown");
            }
            if let Some(own) = self.cross_check(&claims)? {
                // The target goes by the token's own scopes; a response without `scope` does not state that all of them were granted
                // either.
                scopes.retain(|scope| own.contains(scope.as_str()));
            }
            if let Some(at) = self.own_end(&claims)? {
                expires_at = expires_at.min(at);
                good_until = good_until.max(Some(at));
            }
        }
        // Neither longer than the tokens that it was exchanged for, nor into its own last moments.
        let over_at = self.wanted.over_at();
        expires_at = over_at.map_or(expires_at, |at| expires_at.min(at));
        let expires_at = expires_at.plus_ms(MARGIN_MS.saturating_neg());
        if expires_at <= self.now {
            // A service grants no more time than the presented tokens have left: then those are about to expire, and the response is not at
            // fault.
            let soon = self.now.plus_ms(MARGIN_MS.saturating_mul(2));
            return match over_at {
                Some(ends) if ends <= soon => Err(BrokerError::SubjectExpired),
                Some(_) | None => unusable("its time is as good as over"),
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

    /// Whether the service left it out, which its configuration allows.
    fn check_issued_type(&self, said: Option<&Value>) -> Result<bool, BrokerError> {
        match said {
            // RFC 6749 does not define this member.
            _ if self.wanted.kind != CredentialKind::TokenExchange => Ok(false),
            Some(Value::String(kind)) if kind == ACCESS_TOKEN => Ok(false),
            None if self.service.lenient.contains(&Leniency::IssuedType) => {
                tracing::debug!(sts = %self.service.name, "a token service did not say what it issued");
                Ok(true)
            }
            Some(_) | None => unusable("the token is not of the type that was asked for"),
        }
    }

    /// The scopes granted: those requested, or fewer as long as they suffice.
    fn scopes(&self, said: Option<&Value>) -> Result<BTreeSet<String>, BrokerError> {
        let granted: BTreeSet<String> = match said {
            None => self.wanted.scopes.clone(),
            Some(Value::String(text)) => text.split_ascii_whitespace().map(str::to_owned).collect(),
            Some(_) => return unusable("its scope is no text"),
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
                Some(_) | None => return unusable("its `expires_in` is no time"),
            },
            // RFC 6749 (section 5.1) wants a number: anything else is not guessed at.
            Some(_) => return unusable("its `expires_in` is no number"),
        };
        Ok(self.now.plus_ms(lifetime_ms.min(cap_ms)))
    }

    pub(crate) fn is_exchange(&self) -> bool {
        self.wanted.kind == CredentialKind::TokenExchange
    }

    fn used(&self, token: &str, scopes: BTreeSet<String>, expires_at: Timestamp) -> CredentialUse {
        let tokens = self.wanted.tokens.as_ref().filter(|_| self.is_exchange());
        let actor = match (self.is_exchange(), self.wanted.actor) {
            (false, _) | (_, Actor::Nobody) => None,
            (true, Actor::Assertion) => Some(self.service.client_id.clone()),
            (true, Actor::Token) => tokens
                .and_then(|tokens| tokens.actor.as_ref())
                .map(|actor| actor.facts().subject.clone()),
        };
        let subject = tokens.map_or(&self.service.client_id, |one| &one.subject.facts().subject);
        CredentialUse {
            kind: self.wanted.kind,
            source: self.service.name.clone(),
            subject: Some(subject.clone()),
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
