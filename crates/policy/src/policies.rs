//! The basis of decisions: policies, contracts and the directory, as one immutable value.
//!
//! Owns what is activated together, its digest, and the differences of two of them. Holds no connection and no credential. Invariant: the
//! policies that decide a call and the contracts it is checked against are of the same value (decision 26).

use std::{collections::BTreeMap, sync::Arc};

use placet_types::{
    clock::Timestamp,
    digest::{Digest, DigestBuilder},
    directory::Directory,
    ids::AdapterName,
    json::canonical_digest,
    principal::PrincipalChain,
};

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

impl Policies {
    /// What is activated: policies, contracts, directory and issuers together.
    pub fn digest(&self) -> Digest {
        let directory = serde_json::to_value(self.directory.as_ref()).unwrap_or_default();
        let mut contracts: Vec<_> =
            self.catalog.contracts().map(|contract| contract.digest).collect();
        contracts.sort_unstable();
        let builder = DigestBuilder::new("placet.activation.v1")
            .field("bundle", self.policy.digest().as_bytes())
            .field("directory", canonical_digest(&directory).as_bytes())
            .field("issuers", self.issuers.as_bytes());
        let with = |builder: DigestBuilder, contract: Digest| {
            builder.field("contract", contract.as_bytes())
        };
        contracts.into_iter().fold(builder, with).finish()
    }

    /// What differs from `before`, for people to read.
    pub fn changes_since(&self, before: &Self) -> Vec<String> {
        let digests = |policies: &Self| -> BTreeMap<AdapterName, Digest> {
            let contracts = policies.catalog.contracts();
            contracts.map(|one| (one.adapter.clone(), one.digest)).collect()
        };
        let (old, new) = (digests(before), digests(self));
        let parts = [
            ("policies", self.policy.digest() == before.policy.digest()),
            ("directory", self.directory == before.directory),
            ("issuers", self.issuers == before.issuers),
        ];
        let parts = parts.into_iter().filter(|(_, is_same)| !is_same);
        let changed = new.iter().filter_map(|(name, digest)| match old.get(name) {
            None => Some(format!("contract {name}: new")),
            Some(known) => (known != digest).then(|| format!("contract {name}: changed")),
        });
        let gone = old.keys().filter(|name| !new.contains_key(*name));
        let gone = gone.map(|name| format!("contract {name}: removed"));
        parts.map(|(name, _)| name.to_owned()).chain(changed).chain(gone).collect()
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
