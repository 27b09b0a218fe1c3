//! What is active: policies, contracts, the directory and the ways to the adapters, as one value that never changes.
//!
//! Owns what reloads together. A call takes one such value when it is built and keeps it. Invariant: what decides about a call, what it is
//! checked against and where it is sent are of the same value; dispatch refuses a permit of another epoch (decision 26).

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use placet_policy::snapshot::Snapshot;
use placet_types::{
    clock::Timestamp,
    digest::{Digest, DigestBuilder},
    directory::Directory,
    error::{ErrorCode, Refusal},
    ids::AdapterName,
    json::canonical_digest,
    principal::PrincipalChain,
};

use crate::{
    adapters::ports::Ports, call::Brokered, catalog::Catalog, context::Context, reload::Read,
    views::status::DiskState,
};

/// Everything that reloads.
#[derive(Debug, Clone)]
pub(crate) struct Active {
    pub(crate) policy: Arc<Snapshot>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) ports: Arc<Ports>,
    /// The digest of what the configuration says about issuers.
    pub(crate) issuers: Digest,
    /// Since when this node decides by it.
    pub(crate) since: Timestamp,
}

impl Active {
    /// What is activated: policies, contracts, directory and issuers together.
    pub(crate) fn digest(&self) -> Digest {
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
    pub(crate) fn changes_since(&self, before: &Self) -> Vec<String> {
        let digests = |active: &Self| -> BTreeMap<AdapterName, Digest> {
            let contracts = active.catalog.contracts();
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
    pub(crate) fn at_epoch(&self, epoch: u64) -> Self {
        let policy = Arc::new(Snapshot::clone(&self.policy).at_epoch(epoch));
        Self { policy, ..self.clone() }
    }

    /// Whether the directory says the same about anyone who calls.
    fn describes_alike(&self, other: &Self, chain: &PrincipalChain) -> bool {
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

/// Moves a call that is on its way over to what is active now, where that says the same of its tool and of its caller.
///
/// # Errors
/// [`ErrorCode::Overloaded`] where it does not: what was checked and bound under one value is not decided under another.
pub(crate) fn renew(context: &Context, stage: &mut Brokered) -> Result<(), Refusal> {
    let now = context.active();
    let before = &stage.built.active;
    if Arc::ptr_eq(&now, before) {
        return Ok(());
    }
    let chain = &stage.identity.chain;
    let target = now.catalog.resolve(chain.tenant(), &stage.binding.capability);
    let target = target.filter(|target| {
        target.contract.digest == stage.built.target.contract.digest
            && now.describes_alike(before, chain)
    });
    let Some(target) = target else {
        return Err(Refusal::new(
            ErrorCode::Overloaded,
            "the tool's contract or the caller's entry in the directory was reloaded while this call was on its way; nothing was executed; repeat it",
        )
        .with_retry_after_ms(50));
    };
    stage.built.target = target;
    stage.built.active = now;
    Ok(())
}

/// How the files stand to what is active.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    known: Mutex<Known>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    read: Option<Digest>,
    state: DiskState,
    needs_restart: Vec<String>,
}

impl Disk {
    /// The files as they were read for what is active.
    pub(crate) fn were_read(&self, read: Read) {
        let Read { fingerprint, needs_restart } = read;
        *self.lock() = Known { read: Some(fingerprint), state: DiskState::Same, needs_restart };
    }

    /// The files as they are now.
    pub(crate) fn are(&self, fingerprint: Result<Digest, String>) {
        let mut known = self.lock();
        let Some(read) = known.read else { return };
        let state = match fingerprint {
            Ok(now) if now == read => DiskState::Same,
            Ok(_) => DiskState::Differs,
            Err(_) => DiskState::Unreadable,
        };
        if state != known.state {
            tracing::info!(state = state.as_str(), "the configured files changed on disk");
        }
        known.state = state;
    }

    /// How they stand, and the keys whose change needs a restart.
    pub(crate) fn state(&self) -> (DiskState, Vec<String>) {
        let known = self.lock();
        (known.state, known.needs_restart.clone())
    }
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}
