//! The claims of a token whose signature was checked, in the only forms that are accepted.
//!
//! Owns the rules of every claim. Does not check signatures. Invariant: a claim of an unexpected type is
//! refused, never skipped; times, audience and type are judged before anything else is read.

use std::collections::BTreeSet;

mod actors;
mod shown;
mod svid;

use actors::{Actors, confirmation, may_act};
use placet_types::{
    clock::Timestamp,
    digest::DigestBuilder,
    ids::{GroupId, PrincipalId},
    principal::{Principal, PrincipalKind},
    proof::AuthType,
};
use serde_json::{Map, Value};

use crate::{
    config::{IssuerConfig, KIND_CLAIM, KindRule, is_scope},
    error::IdentityError,
    spiffe::SPIFFE_SCHEME,
    token::{TokenRole, VerifiedToken},
};

const AUDIENCES_MAX: usize = 32;
const AUDIENCE_BYTES_MAX: usize = 512;
const GROUPS_MAX: usize = 1_000;
const SCOPES_MAX: usize = 200;
const SUBJECT_BYTES_MAX: usize = 512;
const DISPLAY_CHARS_MAX: usize = 128;
const MS_PER_S: i64 = 1_000;

/// What claims are checked against.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    pub(crate) issuer: &'a IssuerConfig,
    pub(crate) role: TokenRole,
    pub(crate) now: Timestamp,
    pub(crate) leeway_s: u64,
}

impl Judge<'_> {
    /// All facts in the claims, if every claim is acceptable.
    pub(crate) fn token(
        &self,
        claims: &Map<String, Value>,
        signed: &str,
    ) -> Result<VerifiedToken, IdentityError> {
        let issuer = self.issuer;
        let subject = required_text(claims, "sub")?;
        if subject.starts_with(SPIFFE_SCHEME) {
            return Err(refused("sub", "a SPIFFE id is believed from its own trust domain alone"));
        }
        let audiences = self.audiences(claims)?;
        let (issued_at, expires_at) = self.times(claims)?;
        let authenticated_at = self.authenticated_at(claims)?;
        let kind = self.kind(claims)?;
        self.required(claims)?;
        let Actors { current: actor, prior: prior_actors } =
            Actors::of(claims, &issuer.issuer, subject)?;
        if actor.is_some() && self.role == TokenRole::Actor {
            return Err(refused(
                "act",
                "a delegated token is presented as a delegation, not as the caller's own",
            ));
        }
        let client = self.client(claims)?;
        let client_principal =
            client.as_ref().and_then(|client| issuer.clients.get(client)).cloned();
        let may_act = may_act(claims)?;
        let bound_to = confirmation(claims)?;
        Ok(VerifiedToken {
            role: self.role,
            auth_type: match bound_to {
                _ if issuer.is_for_development => AuthType::Development,
                Some(_) => AuthType::BoundJwt,
                None => AuthType::Jwt,
            },
            issuer_attests: issuer.attests_workloads,
            claims: shown::claims(claims, &issuer.policy_claims)?,
            principal: self.principal(claims, kind)?,
            issuer: issuer.issuer.clone(),
            subject: subject.to_owned(),
            further_subjects: Vec::new(),
            audiences,
            groups: self.groups(claims)?,
            scopes: scopes(claims)?,
            issued_at,
            is_undated: false,
            expires_at,
            authenticated_at,
            is_held: may_act.is_some()
                || client_principal.is_some()
                || !issuer.is_persons_client(client.as_deref()),
            for_anybody: issuer.delegations_for_anybody,
            client_principal,
            client,
            actor,
            prior_actors,
            may_act,
            bound_to,
            token_ref: self.token_ref(claims, signed)?,
            sealed: None,
        })
    }

    /// Checks the claims that the configuration requires beyond those of every token.
    fn required(&self, claims: &Map<String, Value>) -> Result<(), IdentityError> {
        for (claim, values) in &self.issuer.required_claims {
            let there = claims.get(claim).filter(|value| !value.is_null());
            let there = there.ok_or_else(|| missing(claim))?;
            let fits = |value: &Value| value.as_str().is_some_and(|text| values.contains(text));
            let accepted = there.as_array().map_or_else(|| fits(there), |all| all.iter().any(fits));
            if !values.is_empty() && !accepted {
                return Err(refused(claim, "it is none of the required values"));
            }
        }
        Ok(())
    }

    fn audiences(&self, claims: &Map<String, Value>) -> Result<BTreeSet<String>, IdentityError> {
        let said = claims.get("aud").ok_or_else(|| missing("aud"))?;
        let problem = "it must be a string or a list of strings, and no more than 32 audiences";
        let named = strings(said, AUDIENCES_MAX).ok_or_else(|| refused("aud", problem))?;
        // All of them are recorded.
        if !named.iter().all(|audience| is_audience(audience)) {
            let problem = "an audience must be 1 to 512 bytes without control characters";
            return Err(refused("aud", problem));
        }
        if !named.iter().any(|audience| self.issuer.audiences.contains(*audience)) {
            return Err(IdentityError::AudienceRefused(self.issuer.issuer.clone()));
        }
        Ok(named.into_iter().map(str::to_owned).collect())
    }

    fn times(&self, claims: &Map<String, Value>) -> Result<(Timestamp, Timestamp), IdentityError> {
        let issuer = || self.issuer.issuer.clone();
        let expires_at = time(claims, "exp")?.ok_or_else(|| missing("exp"))?;
        let issued_at = time(claims, "iat")?.ok_or_else(|| missing("iat"))?;
        let latest_start = self.now.plus_ms(ms(self.leeway_s));
        if issued_at > latest_start {
            return Err(IdentityError::NotYetValid { issuer: issuer(), claim: "iat" });
        }
        if time(claims, "nbf")?.is_some_and(|not_before| not_before > latest_start) {
            return Err(IdentityError::NotYetValid { issuer: issuer(), claim: "nbf" });
        }
        if expires_at.plus_ms(ms(self.leeway_s)) <= self.now {
            return Err(IdentityError::Expired(issuer()));
        }
        if expires_at <= issued_at {
            return Err(refused("exp", "it does not lie after `iat`"));
        }
        let lifetime_s_max = self.issuer.lifetime_s_max;
        if expires_at.since_ms(issued_at) > ms(lifetime_s_max) {
            return Err(IdentityError::LifetimeTooLong { issuer: issuer(), lifetime_s_max });
        }
        Ok((issued_at, expires_at))
    }

    fn authenticated_at(
        &self,
        claims: &Map<String, Value>,
    ) -> Result<Option<Timestamp>, IdentityError> {
        let at = time(claims, "auth_time")?;
        let Some(age_s_max) = self.issuer.auth_age_s_max else { return Ok(at) };
        let since = at.ok_or_else(|| missing("auth_time"))?;
        if since.plus_ms(ms(age_s_max)).plus_ms(ms(self.leeway_s)) <= self.now {
            return Err(IdentityError::AuthenticationTooOld(self.issuer.issuer.clone()));
        }
        Ok(at)
    }

    fn kind(&self, claims: &Map<String, Value>) -> Result<PrincipalKind, IdentityError> {
        let kind = match &self.issuer.kinds {
            KindRule::Fixed(kind) => *kind,
            KindRule::Claim(allowed) => {
                let named = required_text(claims, KIND_CLAIM)?;
                let kind = allowed.iter().find(|kind| kind.as_str() == named);
                *kind.ok_or_else(|| {
                    refused(KIND_CLAIM, "the issuer may not assert this kind of principal")
                })?
            }
        };
        if self.role == TokenRole::Delegation && kind != PrincipalKind::User {
            return Err(refused(KIND_CLAIM, "only a user can delegate"));
        }
        Ok(kind)
    }

    fn principal(
        &self,
        claims: &Map<String, Value>,
        kind: PrincipalKind,
    ) -> Result<Principal, IdentityError> {
        let claim = self.issuer.principal_claim.as_str();
        let name = required_text(claims, claim)?;
        let Ok(id) = PrincipalId::new(format!("{}{name}", self.issuer.principal_prefix)) else {
            return Err(refused(claim, "it cannot be the name of a principal"));
        };
        let display = optional_text(claims, "name")?
            .map(|name| {
                name.chars().filter(|c| !c.is_control()).take(DISPLAY_CHARS_MAX).collect::<String>()
            })
            .filter(|name| !name.is_empty());
        Ok(Principal { kind, id, tenant_id: self.issuer.tenant.clone(), display })
    }

    fn groups(&self, claims: &Map<String, Value>) -> Result<BTreeSet<GroupId>, IdentityError> {
        let Some(claim) = self.issuer.groups_claim.as_deref() else { return Ok(BTreeSet::new()) };
        // Some issuers replace a long list by a pointer to it: then the groups are unknown.
        if claims.get("_claim_names").is_some_and(|names| names.get(claim).is_some()) {
            return Err(refused(claim, "the list is not in the token"));
        }
        let problem = "it must be a list of at most 1000 strings";
        let Some(said) = claims.get(claim) else { return Ok(BTreeSet::new()) };
        let texts = strings(said, GROUPS_MAX).filter(|_| said.is_array());
        let texts = texts.ok_or_else(|| refused(claim, problem))?;
        Ok(texts.into_iter().filter_map(|name| GroupId::new(name).ok()).collect())
    }

    fn client(&self, claims: &Map<String, Value>) -> Result<Option<String>, IdentityError> {
        let client = optional_text(claims, "client_id")?;
        let party = optional_text(claims, "azp")?;
        if client.is_some() && party.is_some() && client != party {
            return Err(refused("azp", "it differs from `client_id`"));
        }
        Ok(client.or(party).map(str::to_owned))
    }

    /// A handle that is stable for one token, also when its signature is written in another valid form.
    fn token_ref(
        &self,
        claims: &Map<String, Value>,
        signed: &str,
    ) -> Result<String, IdentityError> {
        let (name, value) = match optional_text(claims, "jti")? {
            Some(id) => ("jti", id),
            None => ("signed", signed),
        };
        let digest = DigestBuilder::new("placet.token.v1")
            .field("issuer", &self.issuer.issuer)
            .field(name, value)
            .finish();
        let hex =
            digest.as_bytes().iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>();
        Ok(format!("tok_{hex}"))
    }
}

/// What an ID token must say beyond what its issuer's configuration asks for.
#[derive(Clone, Copy)]
pub(crate) struct IdTokenRules<'a> {
    /// The client that it has to be for.
    pub(crate) client_id: &'a str,
    /// The nonce of the sign-in.
    pub(crate) nonce: &'a str,
}

/// Checks what only an ID token must contain: this sign-in, a person, and no other client as `azp`, which several audiences require.
pub(crate) fn check_id_token(
    claims: &Map<String, Value>,
    rules: &IdTokenRules<'_>,
    verified: &VerifiedToken,
) -> Result<(), IdentityError> {
    let nonce = required_text(claims, "nonce")?;
    if nonce != rules.nonce {
        return Err(refused("nonce", "it is of another sign-in"));
    }
    if verified.kind() != PrincipalKind::User {
        return Err(refused(KIND_CLAIM, "only a person can sign in"));
    }
    let party = optional_text(claims, "azp")?;
    if party.is_some_and(|party| party != rules.client_id) {
        return Err(refused("azp", "it was issued to another client"));
    }
    if verified.audiences.len() > 1 && party.is_none() {
        return Err(missing("azp"));
    }
    Ok(())
}

fn missing(claim: &str) -> IdentityError {
    IdentityError::ClaimMissing(claim.to_owned())
}

fn refused(claim: &str, problem: &'static str) -> IdentityError {
    IdentityError::ClaimRefused { claim: claim.to_owned(), problem }
}

fn ms(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(MS_PER_S)
}

fn optional_text<'a>(
    claims: &'a Map<String, Value>,
    claim: &str,
) -> Result<Option<&'a str>, IdentityError> {
    match claims.get(claim) {
        None => Ok(None),
        Some(Value::String(text)) if text.len() <= SUBJECT_BYTES_MAX => Ok(Some(text)),
        Some(_) => Err(refused(claim, "it must be a string of at most 512 bytes")),
    }
}

fn required_text<'a>(
    claims: &'a Map<String, Value>,
    claim: &str,
) -> Result<&'a str, IdentityError> {
    let text = optional_text(claims, claim)?.ok_or_else(|| missing(claim))?;
    if text.is_empty() { Err(refused(claim, "it is empty")) } else { Ok(text) }
}

/// The strings of a single string, or of a list of at most `count_max`.
fn strings(value: &Value, count_max: usize) -> Option<Vec<&str>> {
    match value {
        Value::String(one) => Some(vec![one]),
        Value::Array(several) if several.len() <= count_max => {
            several.iter().map(Value::as_str).collect()
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            None
        }
    }
}

/// A time in whole seconds since the epoch.
fn time(claims: &Map<String, Value>, claim: &str) -> Result<Option<Timestamp>, IdentityError> {
    let Some(value) = claims.get(claim) else { return Ok(None) };
    let seconds = value.as_i64().filter(|seconds| *seconds >= 0);
    let at = seconds.and_then(|seconds| seconds.checked_mul(MS_PER_S));
    at.map(|at| Some(Timestamp::from_ms(at)))
        .ok_or_else(|| refused(claim, "it must be a whole number of seconds"))
}

/// `scope` (RFC 9068: words in one string), or `scp` (a list or words), as some issuers write it.
fn scopes(claims: &Map<String, Value>) -> Result<BTreeSet<String>, IdentityError> {
    let problem = "it must be words or a list of them";
    let (claim, value) = match (claims.get("scope"), claims.get("scp")) {
        (Some(value), _) => ("scope", value),
        (None, Some(value)) => ("scp", value),
        (None, None) => return Ok(BTreeSet::new()),
    };
    let words = strings(value, SCOPES_MAX).ok_or_else(|| refused(claim, problem))?;
    let words: Vec<&str> = if value.is_string() {
        words.into_iter().flat_map(|text| text.split(' ')).filter(|word| !word.is_empty()).collect()
    } else {
        words
    };
    if words.len() > SCOPES_MAX || !words.iter().all(|word| is_scope(word)) {
        return Err(refused(claim, "a word in it is not a scope, or there are too many"));
    }
    Ok(words.into_iter().map(str::to_owned).collect())
}

fn is_audience(text: &str) -> bool {
    (1..=AUDIENCE_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}
