//! The catalog: the contracts of this environment, and what a tool's name means for a tenant.
//!
//! Owns resolution (TM-05). Does not filter by policy: the surface does.

use std::{collections::BTreeMap, sync::Arc};

use placet_types::{
    contract::{Capability, Contract},
    ids::{AdapterName, CapabilityId, CapabilityName, TenantId},
};

/// The contracts of one environment.
#[derive(Debug, Default)]
pub struct Catalog {
    adapters: BTreeMap<AdapterName, Listed>,
}

#[derive(Debug)]
struct Listed {
    contract: Arc<Contract>,
    capabilities: BTreeMap<CapabilityName, Arc<Capability>>,
}

impl Catalog {
    /// A catalog of `contracts`; the last of two with the same adapter name counts.
    pub fn new(contracts: impl IntoIterator<Item = Arc<Contract>>) -> Self {
        let adapters = contracts
            .into_iter()
            .map(|contract| {
                let capabilities = contract
                    .capabilities
                    .iter()
                    .map(|(name, capability)| (name.clone(), Arc::new(capability.clone())))
                    .collect();
                (contract.adapter.clone(), Listed { contract, capabilities })
            })
            .collect();
        Self { adapters }
    }

    /// Every contract.
    pub fn contracts(&self) -> impl Iterator<Item = &Arc<Contract>> {
        self.adapters.values().map(|listed| &listed.contract)
    }

    /// What `id` is for `tenant`; absent when it may not have it at all.
    pub(crate) fn resolve(
        &self,
        tenant: &TenantId,
        id: &CapabilityId,
    ) -> Option<crate::call::Target> {
        let listed = self.adapters.get(id.adapter())?;
        let capability = listed.capabilities.get(id.capability())?;
        (listed.contract.admits(tenant) && capability.is_callable()).then(|| crate::call::Target {
            contract: Arc::clone(&listed.contract),
            capability: Arc::clone(capability),
        })
    }
}
