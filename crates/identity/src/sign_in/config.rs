//! The form of the `sign_in` section: with which provider people sign in to the console.
//!
//! Owns the form, its defaults and its check. Invariant: the issuer is one of those whose tokens are trusted, and only hosts that are
//! named here are ever asked.

use std::collections::BTreeSet;

use placet_egress::{Destination, PrivateRanges};
use placet_types::principal::PrincipalKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{
    config::{IssuerConfig, is_scope},
    error::SetupError,
};

const DISCOVERY_PATH: &str = ".well-known/openid-configuration";
const CLIENT_ID_BYTES_MAX: usize = 256;

/// The OpenID provider that people sign in with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignInConfig {
    /// The provider: one of `issuers`, whose tenant, `groups_claim` and keys apply.
    pub issuer: String,
    /// Placet's client id at the provider.
    pub client_id: String,
    /// The name of the secret with the client secret. Absent: a public client, which PKCE protects.
    #[serde(default)]
    pub client_secret: Option<String>,
    /// The scopes to request in addition to `openid`.
    #[serde(default = "default_scopes")]
    pub scopes: BTreeSet<String>,
    /// Further origins that may host the provider's endpoints, such as `https://tokens.example`. Its own origin is always allowed.
    #[serde(default)]
    pub endpoints: BTreeSet<String>,
    /// Whether the provider may have an address in a private range; plain HTTP is then allowed.
    #[serde(default)]
    pub private_network: bool,
}

fn default_scopes() -> BTreeSet<String> {
    ["profile".to_owned()].into()
}

impl SignInConfig {
    /// Checks the section against the issuers.
    ///
    /// # Errors
    /// [`SetupError`] for the first thing that cannot be used.
    pub fn check(&self, issuers: &[IssuerConfig]) -> Result<(), SetupError> {
        let problem = |problem: &str| {
            Err(SetupError::Issuer { issuer: self.issuer.clone(), problem: problem.to_owned() })
        };
        let Some(issuer) = issuers.iter().find(|issuer| issuer.issuer == self.issuer) else {
            return problem("people are to sign in with it, but it is not among `issuers`");
        };
        if !issuer.kinds.allows(|kind| kind == PrincipalKind::User) {
            return problem("people are to sign in with it, but it may not speak for users");
        }
        // An ID token is for its client: where that is an audience as well, it would be taken for an access token.
        if issuer.audiences.contains(&self.client_id) {
            return problem(
                "one of its `audiences` is the `client_id` that people sign in with: its ID tokens would pass as access tokens",
            );
        }
        if issuer.is_agents_client(&self.client_id) {
            return problem(
                "the `client_id` that people sign in with stands for an agent in its `clients` or `act.principals`",
            );
        }
        if self.client_id.is_empty() || self.client_id.len() > CLIENT_ID_BYTES_MAX {
            return problem("`client_id` is empty or too long");
        }
        if !self.scopes.iter().all(|scope| is_scope(scope)) {
            return problem("a word of `scopes` is not a scope");
        }
        self.destinations().map(|_| ())
    }

    /// The origins that are asked, for the egress client's allow-list.
    ///
    /// # Errors
    /// [`SetupError`] when one of them cannot be a destination, such as `http:` outside private ranges.
    pub fn destinations(&self) -> Result<Vec<Destination>, SetupError> {
        let private =
            if self.private_network { PrivateRanges::Allowed } else { PrivateRanges::Refused };
        let destination = |text: &str| {
            let url = Url::parse(text).map_err(|error| error.to_string())?;
            Destination::from_url(&url, private).map_err(|error| error.to_string())
        };
        std::iter::once(&self.issuer)
            .chain(&self.endpoints)
            .map(|text| {
                destination(text).map_err(|problem| SetupError::Issuer {
                    issuer: self.issuer.clone(),
                    problem: format!("`{text}` cannot be asked for sign-in: {problem}"),
                })
            })
            .collect()
    }

    /// Where the provider describes itself (OpenID Connect Discovery, section 4).
    pub(super) fn discovery(&self) -> String {
        format!("{}/{DISCOVERY_PATH}", self.issuer.trim_end_matches('/'))
    }

    /// What is asked for.
    pub(super) fn scope(&self) -> String {
        let others = self.scopes.iter().filter(|scope| *scope != "openid");
        others.fold("openid".to_owned(), |all, scope| format!("{all} {scope}"))
    }
}
