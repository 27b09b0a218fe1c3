//! The callers, approvers and operators: two tenants with agents, their owners, approvers and operators, and their tokens.
//!
//! Owns the directory of the nodes and everybody's tokens, minted with a development key that all nodes
//! share. Invariant: a token is valid some hours before and after the run, so that a clock jump does not invalidate it.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, Result, anyhow};
use placet_identity::{DevKey, MintRequest};
use placet_types::principal::PrincipalKind;
use serde_json::{Value, json};

use placet_testkit::clock::SystemClock;

use crate::http::Bearer;

/// The tenant with most of the activity, and the one that must see nothing of it.
pub(crate) const TENANTS: [&str; 2] = ["acme", "rival"];
pub(crate) const AGENTS: [&str; 2] = ["clerk", "porter"];
/// The owner of the agents, who therefore may not approve.
pub(crate) const OWNER: &str = "ana";
pub(crate) const APPROVERS: [&str; 3] = ["ben", "cleo", "dora"];
pub(crate) const OPERATORS: [&str; 2] = ["olga", "omar"];
/// The user that some calls are made for.
pub(crate) const USER: &str = "uma";
/// The audience of tokens: the default of the configuration.
const AUDIENCE: &str = "placet";

/// Half of the longest life of a token, in milliseconds.
const HALF_LIFE_MS: i64 = 6 * 60 * 60 * 1_000;

/// Everybody's tokens.
/// No `Debug` of the tokens.
#[derive(Clone)]
pub(crate) struct People {
    bearers: BTreeMap<(String, String), Bearer>,
    delegated: BTreeMap<(String, String), Bearer>,
}

pub(crate) fn directory() -> Value {
    let tenants = TENANTS.iter().map(|tenant| ((*tenant).to_owned(), tenant_entry())).collect();
    json!({ "tenants": Value::Object(tenants) })
}

fn tenant_entry() -> Value {
    let mut users = serde_json::Map::new();
    users.insert(OWNER.to_owned(), json!({}));
    users.insert(USER.to_owned(), json!({}));
    users.extend(APPROVERS.map(|name| {
        (name.to_owned(), json!({ "groups": ["approvers", "freeze-approvers", "emergency"] }))
    }));
    users.extend(OPERATORS.map(|name| (name.to_owned(), json!({ "groups": ["operators"] }))));
    let agents =
        AGENTS.map(|name| (name.to_owned(), json!({ "owner": OWNER, "classes": ["load"] })));
    json!({
        "groups": { "approvers": {}, "operators": {}, "freeze-approvers": {}, "emergency": {} },
        "users": users,
        "agents": serde_json::Map::from_iter(agents),
        "classes": { "load": { "calls_per_minute_max": 1_000_000 } },
    })
}

impl std::fmt::Debug for People {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("People").finish_non_exhaustive()
    }
}

impl People {
    /// Mints everybody's tokens with the key in `folder`, created if there is none.
    pub(crate) fn mint(folder: &Path) -> Result<Self> {
        let key = DevKey::load_or_create(folder).context("no development key can be made")?;
        let clock = SystemClock { moved_ms: -HALF_LIFE_MS };
        let (mut bearers, mut delegated) = (BTreeMap::new(), BTreeMap::new());
        for tenant in TENANTS {
            let token = |kind, name: &str, act: Option<&str>| -> Result<String> {
                let id = |text: &str| text.parse().map_err(|error| anyhow!("`{text}`: {error}"));
                let tenant = tenant.parse().map_err(|error| anyhow!("`{tenant}`: {error}"))?;
                let mut request = MintRequest::new(tenant, kind, id(name)?, AUDIENCE);
                request.lifetime_s = placet_identity::DEV_LIFETIME_S_MAX;
                request.act = act.map(id).transpose()?;
                key.mint(&request, &clock).context("a token cannot be minted")
            };
            for agent in AGENTS {
                let bearer = Bearer::new(&token(PrincipalKind::Agent, agent, None)?)?;
                let user = token(PrincipalKind::User, USER, Some(agent))?;
                let place = (tenant.to_owned(), agent.to_owned());
                delegated.insert(place.clone(), bearer.clone().on_behalf(&user)?);
                bearers.insert(place, bearer);
            }
            for person in [OWNER].iter().chain(&APPROVERS).chain(&OPERATORS) {
                let bearer = Bearer::new(&token(PrincipalKind::User, person, None)?)?;
                bearers.insert((tenant.to_owned(), (*person).to_owned()), bearer);
            }
        }
        Ok(Self { bearers, delegated })
    }

    pub(crate) fn bearer(&self, tenant: &str, name: &str) -> Result<&Bearer> {
        let place = (tenant.to_owned(), name.to_owned());
        self.bearers.get(&place).with_context(|| format!("there is no `{tenant}/{name}`"))
    }

    /// An agent that acts for the user.
    pub(crate) fn on_behalf(&self, tenant: &str, agent: &str) -> Result<&Bearer> {
        let place = (tenant.to_owned(), agent.to_owned());
        self.delegated.get(&place).with_context(|| format!("there is no agent `{tenant}/{agent}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::{AGENTS, OWNER, People, TENANTS, directory};

    #[test]
    fn the_directory_is_one_and_everybody_in_it_has_a_token() {
        let directory: placet_types::directory::Directory =
            serde_json::from_value(directory()).unwrap();
        directory.check().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let people = People::mint(folder.path()).unwrap();
        for tenant in TENANTS {
            people.bearer(tenant, OWNER).unwrap();
            for agent in AGENTS {
                people.bearer(tenant, agent).unwrap();
                people.on_behalf(tenant, agent).unwrap();
            }
        }
        assert!(people.bearer("acme", "nobody").is_err());
    }
}
