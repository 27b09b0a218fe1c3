//! What a readable token, a JWT, says about itself.
//!
//! Owns the reading of claims in a response. Checks no signature: only the target can rely on the token, but a mix-up is noticed here.
//! Invariant: a claim that is read and malformed is refused, never skipped; what no request can have asked for (an audience besides the
//! target, an extra scope in any claim, an actor of another issuer) is refused as such.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use placet_identity::{LEEWAY_S_MAX, SubjectToken};
use placet_types::clock::Timestamp;
use serde_json::{Map, Value};

use super::{Check, object, refused, unusable};
use crate::{config::Leniency, error::BrokerError, form::Actor, shown::plain};

const AUDIENCES_MAX: usize = 64;
const ACT_BYTES_MAX: usize = 8 * 1024;
const MS_PER_S: i64 = 1_000;
/// The claims in which services write scopes. What people are (`roles`, `groups`, `permissions`, `entitlements`) is not a grant, and nobody
/// requests it.
const SCOPES: [&str; 3] = ["scope", "scp", "scopes"];

/// A token that is a JWT.
pub(crate) struct Claims {
    pub(crate) head: Map<String, Value>,
    pub(crate) claims: Map<String, Value>,
}

/// The claims of a token that is a JWT; `None` where nobody could read it as one. A token that its target may read but this code cannot is
/// refused: an odd encoding would take it past every check.
pub(crate) fn claims_of(token: &str) -> Result<Option<Claims>, BrokerError> {
    let parts: Vec<&str> = token.split('.').collect();
    let [head, rest @ ..] = parts.as_slice() else { return Ok(None) };
    let read = |part: &str| object(&URL_SAFE_NO_PAD.decode(part).ok()?);
    match (read(head), rest) {
        // Words separated by dots are not a JWT, nor is a header without `alg`.
        (Some(head), _) if !head.contains_key("alg") => Ok(None),
        (Some(head), [claims, _]) => match read(claims) {
            Some(claims) => Ok(Some(Claims { head, claims })),
            None => refused("the token cannot be read"),
        },
        // Encrypted, for its target alone.
        (Some(head), [_, _, _, _]) if head.contains_key("enc") => Ok(None),
        (Some(_), _) => refused("the token cannot be read"),
        (None, [_, _]) if may_be_object(head) => refused("the token cannot be read"),
        (None, _) => Ok(None),
    }
}

/// Whether a lenient decoder would see the start of a JSON object in this part of a token. Any other word begins so by chance only once in
/// 65,536 times.
fn may_be_object(part: &str) -> bool {
    let part = plain(part);
    // Only whole groups, so that spare bits do not matter.
    let begin = part.get(..part.len() & !3).and_then(|whole| URL_SAFE_NO_PAD.decode(whole).ok());
    let begin = begin.unwrap_or_default();
    let text = begin.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&begin);
    let inner = text.trim_ascii_start().strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    inner.is_some_and(|inner| inner.starts_with(b"\"") || inner.starts_with(b"}"))
}

/// Who a token may name as its actor: one of these names and, if it names an issuer, one of these issuers.
struct Expected<'a> {
    names: Vec<&'a str>,
    issuers: Vec<&'a str>,
}

impl Check<'_> {
    /// Checks that a readable token is for the target, has no more scopes than were requested, and is about those whose tokens were shown.
    /// Returns the scopes that it claims; `None` where it claims none.
    pub(crate) fn cross_check<'c>(
        &self,
        claims: &'c Map<String, Value>,
    ) -> Result<Option<BTreeSet<&'c str>>, BrokerError> {
        self.check_audience(claims.get("aud"))?;
        let own = self.check_own_scopes(claims)?;
        let Some(tokens) = self.wanted.tokens.as_ref().filter(|_| self.is_exchange()) else {
            return Ok(own);
        };
        let subject = claims.get("sub").and_then(Value::as_str);
        if subject != Some(&tokens.subject.facts().subject)
            && !self.service.lenient.contains(&Leniency::Subject)
        {
            return refused("the token is about another subject");
        }
        self.check_actor(claims.get("act"))?;
        Ok(own)
    }

    /// When the token itself says that it expires. A token that is not yet valid when its response arrives is useless.
    pub(crate) fn own_end(
        &self,
        claims: &Map<String, Value>,
    ) -> Result<Option<Timestamp>, BrokerError> {
        let (begins, ends) = (time(claims, "nbf")?, time(claims, "exp")?);
        time(claims, "iat")?;
        // Services have their own clocks.
        let leeway_ms = i64::try_from(LEEWAY_S_MAX).unwrap_or(0).saturating_mul(MS_PER_S);
        if begins.is_some_and(|begins| begins > self.answered.plus_ms(leeway_ms)) {
            return unusable("the token's time has not begun");
        }
        Ok(ends)
    }

    /// Every audience it names must be the target, which may have two names: the requested audience and resource.
    fn check_audience(&self, said: Option<&Value>) -> Result<(), BrokerError> {
        if self.service.lenient.contains(&Leniency::Audience) {
            return Ok(());
        }
        let named = audiences(said).unwrap_or_default();
        let is_target = |name: &&str| {
            let targets = [&self.wanted.audience, &self.wanted.resource];
            targets.into_iter().flatten().any(|target| target == name)
        };
        if !named.iter().any(is_target) {
            return refused("the token is for another audience");
        }
        if !named.iter().all(is_target) {
            return refused("the token is for other audiences too");
        }
        Ok(())
    }

    /// The scopes that the token itself claims, in whichever claim, whatever the response around it says.
    fn check_own_scopes<'c>(
        &self,
        claims: &'c Map<String, Value>,
    ) -> Result<Option<BTreeSet<&'c str>>, BrokerError> {
        let mut own: Option<BTreeSet<&str>> = None;
        for said in SCOPES.into_iter().filter_map(|claim| claims.get(claim)) {
            let Some(words) = words(said) else { return refused("the token's scope is no text") };
            own.get_or_insert_default().extend(words);
        }
        let Some(own) = own else { return Ok(None) };
        if !own.iter().all(|scope| self.wanted.scopes.contains(*scope)) {
            return refused("the token has more scopes than were asked for");
        }
        if self.wanted.scopes_needed.iter().all(|scope| own.contains(scope.as_str())) {
            Ok(Some(own))
        } else {
            Err(BrokerError::TooNarrow)
        }
    }

    fn check_actor(&self, act: Option<&Value>) -> Result<(), BrokerError> {
        let Some(expected) = self.expected_actor() else {
            return if act.is_none() { Ok(()) } else { refused("the token names an actor") };
        };
        let Some(act) = act else {
            return if self.service.lenient.contains(&Leniency::Actor) {
                Ok(())
            } else {
                refused("the token does not name who acts")
            };
        };
        if act.to_string().len() > ACT_BYTES_MAX {
            return refused("the token's `act` is too large");
        }
        match act.get("sub").and_then(Value::as_str) {
            Some(named) if expected.names.contains(&named) => {}
            Some(_) | None => return refused("the token names another actor"),
        }
        // Names are unique within an issuer alone.
        match act.get("iss").map(Value::as_str) {
            None => Ok(()),
            Some(Some(issuer)) if expected.issuers.contains(&issuer) => Ok(()),
            Some(_) => refused("the token names an actor of another issuer"),
        }
    }

    /// Nothing where nobody is to be named.
    fn expected_actor(&self) -> Option<Expected<'_>> {
        let (us, service) = (self.service.client_id.as_str(), self.service.issuer.as_str());
        match self.wanted.actor {
            Actor::Token => {
                let actor = self.wanted.tokens.as_ref().and_then(|tokens| tokens.actor.as_ref());
                let actor = actor.map(SubjectToken::facts);
                let names =
                    actor.map(|one| one.client.as_deref().into_iter().chain([&*one.subject]));
                // By its own issuer's name, or by the one that the service uses for it.
                let issuers = actor.map(|one| one.issuer.as_str()).into_iter().chain([service]);
                Some(Expected {
                    names: names.into_iter().flatten().collect(),
                    issuers: issuers.collect(),
                })
            }
            // The assertion we sign names us as its issuer.
            Actor::Assertion => Some(Expected { names: vec![us], issuers: vec![us, service] }),
            Actor::Nobody => None,
        }
    }
}

/// Every audience that is named; `None` where they cannot be read.
fn audiences(said: Option<&Value>) -> Option<Vec<&str>> {
    match said? {
        Value::String(one) => Some(vec![one]),
        Value::Array(several) if several.len() <= AUDIENCES_MAX => {
            several.iter().map(Value::as_str).collect()
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            None
        }
    }
}

/// Scopes, as words in one string or as a list of strings; `None` for anything else.
fn words(said: &Value) -> Option<Vec<&str>> {
    match said {
        Value::String(text) => Some(text.split_ascii_whitespace().collect()),
        Value::Array(several) => several.iter().map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// A time in whole seconds since the epoch; fractions are dropped (RFC 7519, section 2: services write them).
fn time(claims: &Map<String, Value>, claim: &str) -> Result<Option<Timestamp>, BrokerError> {
    let Some(said) = claims.get(claim) else { return Ok(None) };
    let seconds = said.as_number().and_then(|number| {
        let text = number.to_string();
        let (seconds, fraction) = text.split_once('.').unwrap_or((&text, ""));
        // No sign and no exponent: nobody means either in a time.
        let digits = seconds.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
        seconds.parse::<i64>().ok().filter(|_| digits)?.checked_mul(MS_PER_S)
    });
    match seconds {
        Some(ms) => Ok(Some(Timestamp::from_ms(ms))),
        None => unusable("a time of the token cannot be read"),
    }
}
