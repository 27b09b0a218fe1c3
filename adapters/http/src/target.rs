//! The one host of a contract, and what its requests carry.
//!
//! Owns the client and the credential of a call. Invariant: a credential goes to the origin that it was made for, and to no other.

use std::{net::SocketAddr, sync::Arc};

use http::{HeaderName, HeaderValue};
use placet_adapter::{adapter::Credential, outcome::AdapterError};
use placet_egress::{
    Destination, EgressClient, EgressError, EgressPolicy, Limits, PrivateRanges, Trust,
};
use placet_types::contract::Contract;
use secrecy::ExposeSecret as _;
use url::Url;

/// The longest time for any call, the wait for a late answer included; each has its own budget.
const REQUEST_MS_MAX: u64 = 1_200_000;

/// How endpoints are reached, apart from their contracts.
#[derive(Debug, Clone, Default)]
pub struct HttpSettings {
    /// Whom to trust, and which certificates to show.
    pub trust: Trust,
    /// Our own listeners, which no contract may lead to.
    pub own_listeners: Vec<SocketAddr>,
}

/// A host, and a client that reaches no other.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) client: EgressClient,
    pub(crate) url: Url,
    origin: String,
}

impl Target {
    /// The target of a contract.
    ///
    /// # Errors
    /// [`AdapterError::Misconfigured`] when its URL cannot be used.
    pub(crate) fn of(
        contract: &Arc<Contract>,
        settings: &HttpSettings,
    ) -> Result<Self, AdapterError> {
        let unusable = |why: &dyn std::fmt::Display| {
            AdapterError::Misconfigured(format!("its url is not usable: {why}"))
        };
        let target = contract.transport.http().ok_or_else(|| unusable(&"there is none"))?;
        let url = Url::parse(target.url).map_err(|error| unusable(&error))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(unusable(&"it has a query or a fragment"));
        }
        let private =
            if target.private_network { PrivateRanges::Allowed } else { PrivateRanges::Refused };
        let destination = Destination::from_url(&url, private).map_err(|error| unusable(&error))?;
        let origin = destination.to_string();
        let policy =
            EgressPolicy::new(vec![destination]).refusing_listeners(settings.own_listeners.clone());
        let limits = Limits {
            request_timeout_ms: REQUEST_MS_MAX,
            response_bytes_max: usize::try_from(contract.limits.result_bytes_max)
                .unwrap_or(usize::MAX),
            ..Limits::default()
        };
        let client = EgressClient::with_trust(policy, limits, &settings.trust)
            .map_err(|error| AdapterError::Misconfigured(error.to_string()))?;
        Ok(Self { client, url, origin })
    }

    /// The header of a credential.
    ///
    /// # Errors
    /// [`AdapterError`] when it is for another host, or is not a valid header value.
    pub(crate) fn header(
        &self,
        credential: &Credential,
    ) -> Result<(HeaderName, HeaderValue), AdapterError> {
        let unusable = |why: &str| AdapterError::Misconfigured(format!("the credential {why}"));
        if credential.origin.as_deref().is_some_and(|origin| origin != self.origin) {
            return Err(unusable("is for another host"));
        }
        let name = HeaderName::try_from(&credential.header)
            .map_err(|_invalid| unusable("names no header"))?;
        let mut value = HeaderValue::try_from(credential.value.expose_secret())
            .map_err(|_invalid| unusable("holds what no header can"))?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

/// A failure before anything was sent, or `None` where the request may have reached the endpoint.
pub(crate) fn unreached(error: &EgressError) -> Option<AdapterError> {
    error.nothing_was_sent().then(|| AdapterError::Unavailable(error.to_string()))
}
