//! Tests of the shared store against real servers, and what they are made of.

mod audit;
mod brake;
mod buried;
mod conformance;
mod content;
mod directives;
mod failover;
mod faults;
mod fleet;
mod inspect;
mod limits;
mod load;
mod outage;
mod proxy;
mod server;
mod start;
mod transfer;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use placet_ledger::record::EffectRecord;
use placet_ledger::store::{ClaimAnswer, Store, StoreError};

use super::{OpenError, PostgresConfig, PostgresStore};
use crate::testing::*;
use server::{Database, Server, Stop, config};

async fn open(config: PostgresConfig) -> Arc<PostgresStore> {
    PostgresStore::open(config).await.expect("the store opens").0
}

/// A database of its own on the shared server.
async fn database() -> Database {
    Server::shared().database().await
}

/// Claims and dispatches a key; the record.
async fn dispatch(store: &PostgresStore, key: &str) -> Result<EffectRecord, StoreError> {
    let claimed = claim(store, key);
    match store.claim(claimed.clone()).await? {
        ClaimAnswer::Claimed => {}
        ClaimAnswer::Taken(_) => return Err(StoreError::Conflict),
    }
    let sent = dispatched(store, &claimed);
    let committed = put(store, &sent).await;
    if committed.is_err() {
        store.release(claimed.record_id).await;
    }
    committed.map(|_| sent)
}

/// Waits for something to become so.
async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    for _ in 0..600 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never: {what}");
}

/// How the store came to its end.
async fn death(store: &PostgresStore) -> String {
    let died = tokio::time::timeout(Duration::from_secs(30), store.died());
    died.await.expect("the store says that it has died")
}
