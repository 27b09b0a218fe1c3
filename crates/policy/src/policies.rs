//! The basis of decisions: policies, contracts and the directory, as one immutable value.
//!
//! Owns what is activated together, its digest, and the differences of two of them. Holds no connection and no credential. Invariant: the
//! policies that decide a call and the contracts it is checked against are of the same value (decision 26).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use placet_types::{
    clock::Timestamp,
    contract::Contract,
    digest::{Digest, DigestBuilder},
    directory::Directory,
    ids::{AdapterName, TenantId},
    json::canonical_digest,
    principal::PrincipalChain,
};
use serde::{Deserialize, Serialize};

use crate::{catalog::Catalog, snapshot::Snapshot};

/// Policies, contracts and directory that were activated together.
#[derive(Debug, Clone)]
pub struct Policies {
    /// The compiled policies.
    pub policy: Arc<Snapshot>,
    /// The contracts.
    pub catalog: Arc<Catalog>,
    /// Who exists.
    pub directory: Arc<Directory>,
    /// The digest of what the configuration says about issuers.
    pub issuers: Digest,
    /// When this node began to decide by them.
    pub since: Timestamp,
}

/// The digests of what is activated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyDigests {
    /// The policies.
    pub policies: Digest,
    /// All contracts.
    pub contracts: Digest,
    /// The directory.
    pub directory: Digest,
    /// What the configuration says about issuers.
    pub issuers: Digest,
}

impl PolicyDigests {
    /// All of them, by name.
    pub const fn parts(&self) -> [(&'static str, Digest); 4] {
        [
            ("policies", self.policies),
            ("contracts", self.contracts),
            ("directory", self.directory),
            ("issuers", self.issuers),
        ]
    }

    /// All of them in one.
    pub fn whole(&self) -> Digest {
        let builder = DigestBuilder::new("placet.activation.v1");
        let with = |builder: DigestBuilder, (name, part): (&str, Digest)| {
            builder.field(name, part.as_bytes())
        };
        self.parts().into_iter().fold(builder, with).finish()
    }
}

impl Policies {
    /// What is activated: policies, contracts, directory and issuers.
    pub fn digests(&self) -> PolicyDigests {
        let directory = serde_json::to_value(self.directory.as_ref()).unwrap_or_default();
        let mut contracts: Vec<_> =
            self.catalog.contracts().map(|contract| contract.digest).collect();
        contracts.sort_unstable();
        let builder = DigestBuilder::new("placet.contracts.v1");
        let with = |builder: DigestBuilder, contract: Digest| {
            builder.field("contract", contract.as_bytes())
        };
        PolicyDigests {
            policies: self.policy.digest(),
            contracts: contracts.into_iter().fold(builder, with).finish(),
            directory: canonical_digest(&directory),
            issuers: self.issuers,
        }
    }

    /// All of that in one digest.
    pub fn digest(&self) -> Digest {
        self.digests().whole()
    }

    /// What differs from `before`, for people to read: those of `reader`, or all. Contracts that admit that tenant neither before nor now
    /// are only counted.
    pub fn changes_since(&self, before: &Self, reader: Option<&TenantId>) -> Vec<String> {
        let (old, new) = (before.contracts(), self.contracts());
        let parts = [
            ("policies", self.policy.digest() == before.policy.digest()),
            ("directory", self.directory == before.directory),
            ("issuers", self.issuers == before.issuers),
        ];
        let parts = parts.into_iter().filter(|(_, is_same)| !is_same);
        let mut changes: Vec<String> = parts.map(|(name, _)| name.to_owned()).collect();
        let mut others = 0_usize;
        let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        for name in names {
            let (was, is) = (old.get(name), new.get(name));
            let how = match (was, is) {
                (None, _) => "new",
                (_, None) => "removed",
                (Some(was), Some(is)) if was.digest != is.digest => "changed",
                (Some(_), Some(_)) => continue,
            };
            let mut versions = was.into_iter().chain(is);
            if reader.is_none_or(|tenant| versions.any(|contract| contract.admits(tenant))) {
                changes.push(format!("contract {name}: {how}"));
            } else {
                others = others.saturating_add(1);
            }
        }
        if others > 0 {
            changes.push(format!("contracts of other tenants: {others}; the log names them"));
        }
        changes
    }

    fn contracts(&self) -> BTreeMap<&AdapterName, &Contract> {
        self.catalog.contracts().map(|one| (&one.adapter, one.as_ref())).collect()
    }

    /// Whether there is no other tenant than this one.
    pub fn are_only_of(&self, tenant: &TenantId) -> bool {
        self.directory.tenants.keys().all(|listed| listed == tenant)
            && self.catalog.contracts().all(|contract| contract.admits(tenant))
    }

    /// The same in the epoch that its activation was given.
    pub fn at_epoch(&self, epoch: u64) -> Self {
        let policy = Arc::new(Snapshot::clone(&self.policy).at_epoch(epoch));
        Self { policy, ..self.clone() }
    }

    /// Whether both directories say the same about the principals of the chain.
    pub fn describes_alike(&self, other: &Self, chain: &PrincipalChain) -> bool {
        let (tenant, actor) = (chain.tenant(), &chain.actor.id);
        let (one, other) = (&self.directory, &other.directory);
        let classes = |directory: &Directory| -> Vec<_> {
            directory.classes_of(tenant, actor).cloned().collect()
        };
        let is_same_user = chain
            .on_behalf_of
            .as_ref()
            .is_none_or(|user| one.user(tenant, &user.id) == other.user(tenant, &user.id));
        is_same_user
            && one.agent(tenant, actor) == other.agent(tenant, actor)
            && one.user(tenant, actor) == other.user(tenant, actor)
            && one.lifecycle(tenant, actor) == other.lifecycle(tenant, actor)
            && classes(one) == classes(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{compile, shipped, world_of};

    /// Those of the shared world, whose contract is of these tenants.
    fn policies(tenants: &str) -> Policies {
        let world = include_str!("testing_world.yaml").replace("tenants: [acme]", tenants);
        let world = world_of(&world);
        Policies {
            policy: Arc::new(compile(&shipped(), &world).unwrap()),
            catalog: Arc::new(Catalog::new(world.contracts.iter().cloned())),
            directory: Arc::new(world.directory),
            issuers: Digest::of(b"issuers"),
            since: Timestamp::from_ms(0),
        }
    }

    #[test]
    fn a_contract_of_other_tenants_is_counted_and_not_named() {
        let (before, now) = (policies("tenants: [acme]"), policies("tenants: [acme, initech]"));
        let told = |reader: &str| now.changes_since(&before, Some(&reader.parse().unwrap()));
        let named = ["contract ops: changed"];
        assert_eq!(now.changes_since(&before, None), named);
        assert_eq!(told("acme"), named);
        assert_eq!(told("initech"), named);
        assert_eq!(told("globex"), ["contracts of other tenants: 1; the log names them"]);
        assert!(!now.are_only_of(&"acme".parse().unwrap()), "the directory has another");
    }
}
