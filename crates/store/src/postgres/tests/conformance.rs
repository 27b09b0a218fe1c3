//! What every store promises, asked of this one.

use super::*;
use crate::testing::conformance::{self, every_promise};

macro_rules! shared {
    ($($name:ident),+ $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let store = open(database().await.config("node-1")).await;
            conformance::$name(store).await;
        })+
    };
}

every_promise!(shared);
