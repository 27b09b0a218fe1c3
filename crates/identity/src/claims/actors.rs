//! Who acts for whom, as a token says it (RFC 8693): `act`, `may_act`, and the key that a token is bound to (RFC 8705).
//!
//! Owns the form of the three claims. Authorises nobody: [`crate::VerifiedCaller::bind`] does. Invariant: a member that is not understood
//! could be a condition, so it is refused.

use serde_json::{Map, Value};

use super::{optional_text, refused};
use crate::{error::IdentityError, sealed::ActorClaim};

const ACTOR_DEPTH_MAX: usize = 10;
const ACTOR_BYTES_MAX: usize = 8 * 1024;
/// A SHA-256 in base64url without padding.
const THUMBPRINT_CHARS: usize = 43;

/// Who acts for the subject, and who did before.
#[derive(Debug, Default)]
pub(super) struct Actors {
    pub(super) current: Option<ActorClaim>,
    /// The latest first, by their subjects.
    pub(super) prior: Vec<String>,
}

impl Actors {
    /// Reads `act`: the outermost actor is the one that acts now; those within are its history.
    pub(super) fn of(
        claims: &Map<String, Value>,
        issuer: &str,
        subject: &str,
    ) -> Result<Self, IdentityError> {
        const CLAIM: &str = "act";
        let Some(value) = claims.get(CLAIM) else { return Ok(Self::default()) };
        if value.to_string().len() > ACTOR_BYTES_MAX {
            return Err(refused(CLAIM, "it is longer than 8192 bytes"));
        }
        let object = value.as_object().ok_or_else(|| refused(CLAIM, "it must be an object"))?;
        let mut all = Vec::new();
        let mut link = Some(value);
        while let Some(actor) = link {
            let name = actor.get("sub").and_then(Value::as_str).filter(|text| !text.is_empty());
            let Some(name) = name.filter(|_| all.len() < ACTOR_DEPTH_MAX) else {
                return Err(refused(CLAIM, "it must be at most ten actors, each with its subject"));
            };
            let elsewhere = actor.get("iss").is_some_and(|named| named.as_str() != Some(issuer));
            if name == subject && !elsewhere {
                return Err(refused(CLAIM, "an actor is the subject itself"));
            }
            all.push(name.to_owned());
            link = actor.get(CLAIM);
        }
        let prior = all.into_iter().skip(1).collect();
        Ok(Self { current: Some(named_actor(object)?), prior })
    }
}

/// `may_act`: whatever it says that is not understood could be a condition, so it is refused.
pub(super) fn may_act(claims: &Map<String, Value>) -> Result<Option<ActorClaim>, IdentityError> {
    const CLAIM: &str = "may_act";
    let Some(value) = claims.get(CLAIM) else { return Ok(None) };
    let object = value.as_object().ok_or_else(|| refused(CLAIM, "it must be an object"))?;
    if !object.keys().all(|member| ["iss", "sub", "client_id"].contains(&member.as_str())) {
        return Err(refused(CLAIM, "it has a member that is not known"));
    }
    let actor = named_actor(object)?;
    if actor.subject.is_none() && actor.client.is_none() {
        return Err(refused(CLAIM, "it names nobody"));
    }
    Ok(Some(actor))
}

fn named_actor(object: &Map<String, Value>) -> Result<ActorClaim, IdentityError> {
    let text = |member| optional_text(object, member).map(|text| text.map(str::to_owned));
    Ok(ActorClaim { issuer: text("iss")?, subject: text("sub")?, client: text("client_id")? })
}

/// `cnf`: the certificate whose owner alone may use the token. A binding of another kind could not be checked here.
pub(super) fn confirmation(claims: &Map<String, Value>) -> Result<Option<String>, IdentityError> {
    const CLAIM: &str = "cnf";
    let Some(value) = claims.get(CLAIM) else { return Ok(None) };
    let object = value.as_object().filter(|object| object.len() == 1);
    let thumbprint = object.and_then(|object| object.get("x5t#S256")).and_then(Value::as_str);
    let thumbprint = thumbprint.filter(|text| text.len() == THUMBPRINT_CHARS);
    let unknown = || refused(CLAIM, "it must be the thumbprint of one certificate (`x5t#S256`)");
    thumbprint.map(|text| Some(text.to_owned())).ok_or_else(unknown)
}
