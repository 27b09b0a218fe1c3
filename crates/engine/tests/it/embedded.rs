//! The same over the embedded store: what one process leaves, the next one takes over.

use std::{path::Path, sync::Arc, time::Duration};

use serde_json::json;

use placet_engine::answer::Answer;
use placet_ledger::{
    record::EffectRecord,
    store::{EffectQuery, Store},
    testing::MemoryStore,
};
use placet_store::embedded::{EmbeddedConfig, EmbeddedStore};
use placet_types::{
    clock::{Clock, Timestamp},
    error::{ErrorCode, Execution},
};

use crate::fake::{Behaviour, Witness};
use crate::world::{Make, World, finished, plan, refused};

#[derive(Debug)]
struct Standing;

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(1_800_000_000_000)
    }
}

pub(crate) async fn open(folder: &Path) -> Arc<EmbeddedStore> {
    open_as(EmbeddedConfig::new(folder)).await
}

async fn open_as(config: EmbeddedConfig) -> Arc<EmbeddedStore> {
    let opening =
        tokio::task::spawn_blocking(move || EmbeddedStore::open(config, Arc::new(Standing)));
    opening.await.unwrap().unwrap().0
}

/// The next process over the folder; the one before is over.
async fn process(store: &Arc<EmbeddedStore>, witness: &Arc<Witness>) -> World {
    process_that(store, witness, false).await
}

/// The same, whose spans go nowhere if it is quiet.
pub(crate) async fn process_that(
    store: &Arc<EmbeddedStore>,
    witness: &Arc<Witness>,
    is_quiet: bool,
) -> World {
    let kept_in: Arc<dyn Store> = Arc::<EmbeddedStore>::clone(store);
    // Fresh ids for each process.
    let epochs = Arc::new(MemoryStore::new(Standing.now()));
    let ids = (0..store.epoch()).fold(epochs, |ids, _| Arc::new(ids.restarted()));
    let witness = Arc::clone(witness);
    let make = Make { store: ids, witness, kept_in: Some(kept_in), ..Make::default() };
    World::with(Make { is_quiet, ..make }).await
}

async fn reaches(store: &EmbeddedStore, state: &str) -> EffectRecord {
    for _ in 0..1_000 {
        let query = EffectQuery { limit: 2, ..EffectQuery::default() };
        let found = store.effects(&query).await.unwrap();
        if let Some(record) = found.into_iter().find(|record| record.state.name() == state) {
            return record;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never {state}");
}

fn long(tool: &str) -> serde_json::Value {
    let mut call = plan(tool, "s1", "a");
    call["run"]["run_budget"] = json!({"tool_latency_ms_max": 600_000});
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_process_takes_over_what_was_under_way_by_class() {
    for (tool, state) in [("note", "indeterminate"), ("send", "succeeded")] {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await;
        let witness = Arc::new(Witness::default());
        witness.behave(tool, Behaviour::Slow(Duration::from_secs(3_600)));
        let before = process(&store, &witness).await;
        drop(before.send(long(tool)).await);
        let under_way = reaches(&store, "dispatched").await;
        store.close().await.unwrap();
        drop(store);

        let store = open(folder.path()).await;
        let witness = Arc::new(Witness::default());
        let after = process(&store, &witness).await;
        let record = reaches(&store, state).await;
        assert_eq!(record.call_id, under_way.call_id);
        if state == "succeeded" {
            let token = under_way.state.attempt().unwrap().token.clone();
            assert_eq!(witness.effects(tool), vec![token]);
            assert!(finished(after.call(long(tool)).await).replayed);
        } else {
            let refusal = refused(after.call(long(tool)).await);
            assert_eq!(
                (refusal.code, refusal.execution),
                (ErrorCode::OutcomeUnknown, Execution::Unknown)
            );
            assert!(witness.effects(tool).is_empty());
        }
        drop(after);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_came_to_light_is_told_after_a_restart_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let witness = Arc::new(Witness::default());
    witness.behave("note", Behaviour::Slow(Duration::from_millis(2_000)));
    let before = process(&store, &witness).await;
    let mut hasty = plan("note", "s1", "a");
    hasty["run"]["run_budget"] = json!({"tool_latency_ms_max": 200});
    assert_eq!(refused(before.call(hasty.clone()).await).code, ErrorCode::OutcomeUnknown);
    reaches(&store, "succeeded").await;
    before.engine.shutdown().await;
    drop((before, store));

    let store = open(folder.path()).await;
    let after = process(&store, &witness).await;
    let result = finished(after.call(hasty).await);
    assert!(result.replayed);
    assert_eq!(result.output["did"], "note");
    assert_eq!(witness.effects("note").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_too_little_room_for_anything_new_results_are_told_and_a_freeze_is_entered() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let witness = Arc::new(Witness::default());
    let before = process(&store, &witness).await;
    finished(before.call(plan("note", "s1", "a")).await);
    store.close().await.unwrap();
    drop((before, store));

    let config = EmbeddedConfig::new(folder.path());
    let config = EmbeddedConfig { free_space_watermark_bytes: 1 << 50, ..config };
    let store = open_as(config).await;
    let after = process(&store, &witness).await;
    // The first ones may still be taken: it is not looked each time.
    let mut taken = 1_usize;
    let refusal = loop {
        let call = plan("note", &format!("new-{taken}"), "a");
        match after.call(call).await {
            Answer::Finished(_) => taken = taken.saturating_add(1),
            other @ (Answer::Refused(_) | Answer::Held(_) | Answer::InProgress(_)) => {
                break refused(other);
            }
        }
        assert!(taken < 200, "there is room for all of them");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(
        (refusal.code, refusal.execution),
        (ErrorCode::LedgerUnavailable, Execution::NotExecuted)
    );
    assert_eq!(witness.effects("note").len(), taken);
    assert!(finished(after.call(plan("note", "s1", "a")).await).replayed);
    let freeze = json!({"kind": "freeze", "name": "no room"});
    after.arrange("fay", freeze, 60_000).await.unwrap();
    store.close().await.unwrap();
}
