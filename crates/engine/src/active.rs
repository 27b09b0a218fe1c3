//! What is active: policies, contracts, the directory and the ports to the adapters, as one immutable value.
//!
//! Owns what reloads together. A call takes one such value when it is built and keeps it. Invariant: a call is decided, checked and sent
//! under the same value; dispatch refuses a permit of another epoch (decision 26).

use std::{collections::BTreeSet, ops::Deref, sync::Arc};

use placet_policy::policies::Policies;
use placet_types::{
    ids::{CapabilityId, GroupId},
    principal::PrincipalChain,
};

use arc_swap::ArcSwap;
use moka::sync::Cache;
use tokio::sync::watch;

use placet_identity::{VerifiedCaller, VerifiedToken};

use crate::adapters::ports::Ports;

/// Everything that reloads.
#[derive(Debug, Clone)]
pub(crate) struct Active {
    /// Policies, contracts and directory.
    pub(crate) policies: Arc<Policies>,
    /// The ports to the adapters of the contracts.
    pub(crate) ports: Arc<Ports>,
}

impl Deref for Active {
    type Target = Policies;

    fn deref(&self) -> &Policies {
        &self.policies
    }
}

/// The policy epoch, the caller's chain and the caller's groups.
type SurfaceKey = (u64, PrincipalChain, BTreeSet<GroupId>);

type Surface = Arc<BTreeSet<CapabilityId>>;

/// How many surfaces are remembered; beyond that they are computed again.
const SURFACES_MAX: u64 = 10_000;

/// What decides at this moment, on this node.
#[derive(Debug)]
pub(crate) struct Current {
    active: ArcSwap<Active>,
    surfaces: Cache<SurfaceKey, Surface>,
    /// How often the active value was replaced by a different one.
    changes: watch::Sender<u64>,
    /// Held while something is activated, or an activation of another node is joined.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

impl Current {
    pub(crate) fn new(active: Active) -> Self {
        Self {
            active: ArcSwap::from_pointee(active),
            surfaces: Cache::new(SURFACES_MAX),
            changes: watch::Sender::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// What is active at this moment. A call takes it once, when it is built.
    pub(crate) fn active(&self) -> Arc<Active> {
        self.active.load_full()
    }

    /// Whether `active` is still the active value.
    pub(crate) fn is_active(&self, active: &Arc<Active>) -> bool {
        Arc::ptr_eq(active, &*self.active.load())
    }

    /// Replaces the active value.
    pub(crate) fn set(&self, active: Active) {
        let digest = active.digest();
        let before = self.active.swap(Arc::new(active));
        self.surfaces.invalidate_all();
        if before.digest() != digest {
            self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        }
    }

    /// Notifies of every change of the active value.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The tools that some circumstance could let `caller` call.
    pub(crate) fn surface(&self, active: &Active, caller: &VerifiedCaller) -> Surface {
        let groups =
            caller.delegation.as_ref().map(VerifiedToken::groups).cloned().unwrap_or_default();
        let key = (active.policy.epoch(), caller.chain(), groups);
        if let Some(surface) = self.surfaces.get(&key) {
            return surface;
        }
        let surface = Arc::new(active.policy.surface(&key.1, &key.2));
        self.surfaces.insert(key, Arc::clone(&surface));
        surface
    }
}
