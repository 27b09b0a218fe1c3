//! Who speaks in a test: agents and people with tokens of its key.

use std::{collections::BTreeSet, sync::Arc};

use placet_identity::{
    ClientAuthority, DevKey, IdentityConfig, MintRequest, TokenRole, VerifiedCaller, Verifier,
};
use placet_types::{
    clock::{Clock, Timestamp},
    ids::TenantId,
    principal::PrincipalKind,
};

/// The time at which all tests start.
pub const NOW_MS: i64 = 1_800_000_000_000;

pub const AUDIENCE: &str = "placet";

/// A clock that stands still.
#[derive(Debug, Default)]
pub struct StandingClock;

impl Clock for StandingClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(NOW_MS)
    }
}

/// Who makes tokens, and who verifies them.
#[derive(Debug, Clone)]
pub struct People {
    pub key: DevKey,
    pub verifier: Verifier,
}

impl Default for People {
    fn default() -> Self {
        Self::new()
    }
}

impl People {
    /// Those of a key, and the workloads of these authorities.
    pub fn of(key: DevKey, client_authorities: Vec<ClientAuthority>) -> Self {
        let issuer = |tenant: &str| {
            let audiences = BTreeSet::from([AUDIENCE.to_owned()]);
            let loopback = std::net::IpAddr::from([127, 0, 0, 1]);
            key.issuer_config(loopback, tenant.parse().unwrap(), audiences).unwrap()
        };
        let issuers = vec![issuer("acme"), issuer("globex")];
        let config = IdentityConfig { issuers, client_authorities, ..IdentityConfig::default() };
        let verifier = Verifier::new(config, Arc::new(StandingClock), None).unwrap();
        Self { key, verifier }
    }

    pub fn new() -> Self {
        Self::of(DevKey::generate().unwrap(), Vec::new())
    }

    /// A token of somebody of `acme`, or of the tenant after `@`; the bots are agents, and all others people.
    pub fn token(&self, who: &str) -> String {
        self.token_for(who, 60 * 60)
    }

    pub fn token_for(&self, who: &str, lifetime_s: u64) -> String {
        let (id, tenant) = who.split_once('@').unwrap_or((who, "acme"));
        let tenant = TenantId::new(tenant).unwrap();
        let kind = if id == "bot" { PrincipalKind::Agent } else { PrincipalKind::User };
        let request = MintRequest::new(tenant, kind, id.parse().unwrap(), AUDIENCE);
        let request = MintRequest { lifetime_s, ..request };
        self.key.mint(&request, &StandingClock).unwrap()
    }

    pub async fn caller(&self, who: &str) -> VerifiedCaller {
        let token = self.verifier.verify(&self.token(who), TokenRole::Actor).await.unwrap();
        VerifiedCaller::bind(token, None).unwrap()
    }
}
