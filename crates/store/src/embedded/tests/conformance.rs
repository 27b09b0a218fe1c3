//! What every store promises, asked of this one and of the ledger's reference store in memory.

use std::sync::Arc;

use placet_ledger::testing::MemoryStore;
use placet_types::clock::Timestamp;
use tempfile::tempdir;

use super::*;
use crate::testing::conformance::{self, every_promise};

/// Each test runs against both stores.
macro_rules! both {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            use super::*;
            $(#[tokio::test] async fn $name() {
                let store = MemoryStore::new(Timestamp::from_ms(NOW_MS));
                conformance::$name(Arc::new(store)).await;
            })+
        }
        mod journal {
            use super::*;
            $(#[tokio::test] async fn $name() {
                let folder = tempdir().unwrap();
                conformance::$name(open(&config(folder.path())).0).await;
            })+
        }
    };
}

every_promise!(both);
