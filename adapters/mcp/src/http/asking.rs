//! Requests that are not calls: in whose name, and with which credential.
//!
//! Owns the speaker of a session and the course of its requests. Invariants: the contract's own session carries the contract's own secret
//! or nothing, and never the credential of a call; a session of callers carries the credentials of its calls, and never the contract's
//! secret, nor an expired one, nor an earlier one after a later one.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use http::{HeaderMap, Response, StatusCode, header};
use placet_egress::EgressBody;
use placet_types::contract::credential::CredentialFile;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use super::{
    EgressHttp, Outgoing, Target,
    headers::{CallHeaders, secret_header},
};
use crate::failure::HttpFault;
use crate::settings::SecretVersions;

/// In whose name the requests of a session are made that are not calls.
#[derive(Debug)]
pub(crate) enum Speaker {
    /// The contract, for nobody in particular.
    Contract {
        /// Whether it shows its secret: from the start, or since the server has asked for it.
        shows_secret: AtomicBool,
    },
    /// The owner of the session's calls, with the credential of the latest of them.
    Callers(Mutex<CallHeaders>),
}

impl Speaker {
    /// The contract; `shows_secret` says whether it shows its own secret before the server asks for it.
    pub(crate) const fn contract(shows_secret: bool) -> Self {
        Self::Contract { shows_secret: AtomicBool::new(shows_secret) }
    }

    /// The owner of a call with these headers.
    pub(crate) fn callers(call: &CallHeaders) -> Self {
        Self::Callers(Mutex::new(call.for_session()))
    }

    /// Replaces the credential by that of a later call of the same owner.
    pub(crate) fn goes_on_with(&self, later: Self) {
        if let (Self::Callers(carried), Self::Callers(later)) = (self, later) {
            let later = later.into_inner();
            let mut carried = carried.lock();
            // Of two concurrent calls, the one with the earlier credential may come later.
            let is_earlier = matches!((later.ends(), carried.ends()), (Some(a), Some(b)) if a < b);
            if !is_earlier {
                *carried = later;
            }
        }
    }

    /// When the callers' credential that it carries expires.
    pub(crate) fn ends(&self) -> Option<Instant> {
        let Self::Callers(carried) = self else { return None };
        carried.lock().ends()
    }

    pub(super) const fn is_contract(&self) -> bool {
        matches!(self, Self::Contract { .. })
    }
}

impl EgressHttp {
    /// Sends a request that is not a call.
    pub(super) async fn ask(&self, request: &Outgoing) -> Result<Response<EgressBody>, HttpFault> {
        let shows_secret = match &self.own.speaker {
            Speaker::Contract { shows_secret } => shows_secret,
            Speaker::Callers(carried) => {
                let carried = carried.lock().clone();
                return self.ask_for_callers(request, &carried).await;
            }
        };
        if shows_secret.load(Ordering::Acquire) {
            return self.ask_as_ourselves(request).await;
        }
        let bare = self.target.request(request, &HeaderMap::new());
        let response = self.target.client.stream(bare).await?;
        if response.status() != StatusCode::UNAUTHORIZED || self.target.credential.is_none() {
            return Ok(response);
        }
        // Having no effect, it may be sent again with the contract's credential when the server asks.
        shows_secret.store(true, Ordering::Release);
        self.ask_as_ourselves(request).await
    }

    async fn ask_for_callers(
        &self,
        request: &Outgoing,
        carried: &CallHeaders,
    ) -> Result<Response<EgressBody>, HttpFault> {
        let own = self.target.headers_of(carried)?;
        Ok(self.target.client.stream(self.target.request(request, own)).await?)
    }

    /// Sends a request without effects with the contract's credential; once more if the server accepts only another live version of it.
    pub(super) async fn ask_as_ourselves(
        &self,
        request: &Outgoing,
    ) -> Result<Response<EgressBody>, HttpFault> {
        let target = &self.target;
        let Some((file, name)) = target.own_secret() else {
            let bare = target.request(request, &HeaderMap::new());
            return Ok(target.client.stream(bare).await?);
        };
        let (used, own) = usable(file, target.versions(name).await?)?;
        let response = target.client.stream(target.request(request, &own)).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        // Rotated in the meantime, or here earlier than there.
        let Some(other) = target.versions(name).await?.other_than(&used) else {
            return Ok(response);
        };
        let Ok(own) = own_credential(file, &other) else { return Ok(response) };
        Ok(target.client.stream(target.request(request, &own)).await?)
    }
}

impl Target {
    /// The headers of a call, if they are for this host and have not expired.
    pub(super) fn headers_of<'a>(&self, call: &'a CallHeaders) -> Result<&'a HeaderMap, HttpFault> {
        if call.ends().is_some_and(|ends| Instant::now() >= ends) {
            return Err(HttpFault::CredentialOver);
        }
        call.map_for(&self.origin).ok_or_else(|| {
            HttpFault::NotMade("the credential of the call is for another host".to_owned())
        })
    }

    /// The contract's own secret, for requests that are not calls: a minted credential is for a permitted call and goes nowhere else.
    fn own_secret(&self) -> Option<(&CredentialFile, &str)> {
        let file = self.credential.as_ref()?;
        Some((file, file.secret.as_deref()?))
    }

    async fn versions(&self, name: &str) -> Result<SecretVersions, HttpFault> {
        let found = self.secrets.secret(name).await;
        found.map_err(|why| HttpFault::NotMade(format!("the secret `{name}`: {why}")))
    }
}

/// The newest version that a header can hold, with that header, as for calls: a half-written version, or one with an extra line break,
/// does not prevent the use of the previous one.
fn usable(
    file: &CredentialFile,
    versions: SecretVersions,
) -> Result<(SecretString, HeaderMap), HttpFault> {
    match (own_credential(file, &versions.newest), versions.previous) {
        (Ok(own), _) => Ok((versions.newest, own)),
        (Err(_), Some(previous)) => own_credential(file, &previous).map(|own| (previous, own)),
        (Err(error), None) => Err(error),
    }
}

/// The header of a contract's credential.
fn own_credential(file: &CredentialFile, secret: &SecretString) -> Result<HeaderMap, HttpFault> {
    let name = file.header.to_ascii_lowercase();
    let (name, value) = if name == header::AUTHORIZATION.as_str() {
        let value = SecretString::from(format!("Bearer {}", secret.expose_secret()));
        secret_header(&name, value.expose_secret())
    } else {
        secret_header(&name, secret.expose_secret())
    }
    .map_err(|error| HttpFault::NotMade(error.to_string()))?;
    Ok(HeaderMap::from_iter([(name, value)]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_version_that_no_header_can_hold_is_passed_over_for_the_one_before_it() {
        let file: CredentialFile =
            serde_json::from_value(json!({ "type": "static_secret", "secret": "key" })).unwrap();
        let used = |newest: &str, previous: Option<&str>| {
            let versions = SecretVersions {
                newest: newest.into(),
                previous: previous.map(SecretString::from),
            };
            usable(&file, versions).ok().map(|(used, _)| used.expose_secret().to_owned())
        };
        assert_eq!(used("new", Some("old")).as_deref(), Some("new"));
        assert_eq!(used("n\new", Some("old")).as_deref(), Some("old"));
        assert_eq!(used("n\new", None), None);
        assert_eq!(used("n\new", Some("o\nld")), None);
    }
}
