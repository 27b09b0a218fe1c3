//! Pins at call time: the live definition must be the one that was reviewed (TM-14).
//!
//! Owns the cached tool list and how old it may be. Invariant: a call is not sent when its tool cannot be compared.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

use placet_adapter::{adapter::Adapter, outcome::AdapterError};
use placet_types::{contract::Capability, digest::Digest};

/// The live definitions as last listed.
#[derive(Debug, Default)]
pub(crate) struct LivePins {
    listed: Mutex<Option<Listed>>,
    /// Counts the connections: a list from one says nothing about the next.
    connections: AtomicU64,
}

#[derive(Debug)]
struct Listed {
    at: Instant,
    generation: u64,
    /// The connection that listed it.
    by: (u64, usize),
    digests: BTreeMap<String, Digest>,
}

impl LivePins {
    /// The connection was replaced.
    pub(crate) fn forget(&self) {
        self.connections.fetch_add(1, Ordering::AcqRel);
    }

    /// Compares the live definition of `capability` with its pin, from a list at most `fresh_ms` old.
    pub(crate) async fn check(
        &self,
        adapter: &dyn Adapter,
        capability: &Capability,
        fresh_ms: u64,
    ) -> Result<(), AdapterError> {
        let asked_at = Instant::now();
        let by = (self.connections.load(Ordering::Acquire), std::ptr::from_ref(adapter).addr());
        let mut listed = self.listed.lock().await;
        let usable = listed.as_ref().is_some_and(|list| {
            let fresh = list.at + Duration::from_millis(fresh_ms) > asked_at || list.at > asked_at;
            fresh && list.by == by && list.generation == adapter.generation()
        });
        if !usable {
            *listed = Some(list(adapter, capability, by).await?);
        }
        let live = listed.as_ref().and_then(|list| list.digests.get(capability.tool.as_str()));
        match (live, capability.pin) {
            (Some(live), Some(pin)) if *live == pin => Ok(()),
            (Some(live), Some(pin)) => Err(AdapterError::SchemaMismatch(format!(
                "`{}` is {} live and {} in the contract",
                capability.id,
                live.short(),
                pin.short()
            ))),
            (Some(_), None) => {
                Err(AdapterError::SchemaMismatch(format!("`{}` has no pin", capability.id)))
            }
            (None, _) => Err(AdapterError::SchemaMismatch(format!(
                "`{}` is not offered any more",
                capability.id
            ))),
        }
    }
}

async fn list(
    adapter: &dyn Adapter,
    capability: &Capability,
    by: (u64, usize),
) -> Result<Listed, AdapterError> {
    let generation = adapter.generation();
    let tools = adapter.discover().await?;
    let at = Instant::now();
    let digests = tools
        .iter()
        .map(|tool| (tool.name.clone(), tool.digest(capability.id.adapter())))
        .collect();
    Ok(Listed { at, generation, by, digests })
}
