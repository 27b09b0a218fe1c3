//! Random histories, on this store and on the reference store at once: the same answers, over restarts too.

use placet_ledger::meter::{Meter, Metered, Window};
use placet_ledger::reservation::Reservation;
use placet_ledger::store::{ApprovalQuery, ClaimAnswer, DirectiveQuery, EffectQuery};
use placet_ledger::testing::MemoryStore;
use placet_types::taint::Taint;
use proptest::prelude::*;
use tempfile::tempdir;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Claim(u8),
    Release(u8),
    Dispatch(u8),
    Hold(u8),
    Agree(u8),
    Deny(u8),
    Void(u8),
    Succeed(u8),
    Stale(u8),
    Reserve(u64),
    Taint(Taint),
    Grant(u8),
    Spend(u8),
    End(u8),
    Snapshot,
    Restart { orderly: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..4_u8;
    prop_oneof![
        4 => key().prop_map(Step::Claim),
        1 => key().prop_map(Step::Release),
        4 => key().prop_map(Step::Dispatch),
        3 => key().prop_map(Step::Hold),
        2 => key().prop_map(Step::Agree),
        1 => key().prop_map(Step::Deny),
        1 => key().prop_map(Step::Void),
        3 => key().prop_map(Step::Succeed),
        1 => key().prop_map(Step::Stale),
        1 => (0..60_u64).prop_map(Step::Reserve),
        1 => proptest::sample::select(Taint::ALL.to_vec()).prop_map(Step::Taint),
        1 => (0..3_u8).prop_map(Step::Grant),
        2 => (0..3_u8).prop_map(Step::Spend),
        1 => (0..3_u8).prop_map(Step::End),
        1 => Just(Step::Snapshot),
        1 => any::<bool>().prop_map(|orderly| Step::Restart { orderly }),
    ]
}

/// What a step offers to a store that stands as `model` does; both stores are offered the same.
async fn changes_of(step: &Step, model: &MemoryStore, epoch: u64) -> Option<Changes> {
    let (Step::Dispatch(key)
    | Step::Hold(key)
    | Step::Agree(key)
    | Step::Deny(key)
    | Step::Void(key)
    | Step::Succeed(key)
    | Step::Stale(key)) = step
    else {
        if let Step::Reserve(cents) = step {
            let mut changes = synced();
            let meters = meters(*cents).to_vec();
            changes.reserve = Some(Reservation { meters, ..reservation(&run("run_1", 6), *cents) });
            return Some(changes);
        }
        if let Step::Taint(taint) = step {
            let mut changes = synced();
            changes.taint = vec![brought(&run("run_1", 6), &[*taint])];
            return Some(changes);
        }
        return directive_changes_of(step, model).await;
    };
    let claimed = claim_of("acme", &format!("key-{key}"), epoch);
    let record = model.effect(claimed.record_id).await.unwrap()?;
    let held = approval_of(&record);
    let asked = match &held {
        Some(id) => model.approval(id).await.unwrap(),
        None => None,
    };
    let mut changes = synced();
    let next = match step {
        Step::Dispatch(_) => {
            moved(&record, EffectState::Dispatched(attempt(&record, epoch, Dedup::Opaque)))
        }
        Step::Hold(_) => {
            let id = format!("apr_{key}_{}", model.commits());
            let asked = approval(&record, &id, NOW_MS + i64::from(*key));
            changes.approvals.push(asked.clone());
            pending(&record, &asked)
        }
        Step::Agree(_) => {
            let asked = asked?;
            changes.approvals.push(approval_moved(&asked, ApprovalState::Approved));
            approved(&record, &asked)
        }
        Step::Deny(_) => {
            let (asked, approval_id) = (asked?, held?);
            changes.approvals.push(approval_moved(&asked, ApprovalState::Denied));
            let code = placet_types::error::ErrorCode::ApprovalDenied;
            moved(&record, EffectState::Denied { code, approval_id })
        }
        Step::Void(_) => {
            let reason = "changed".to_owned();
            changes.approvals.push(approval_moved(&asked?, ApprovalState::Void { reason }));
            let (record_id, rev) = (record.record_id, record.rev);
            changes.effects.push(EffectChange::Remove { record_id, rev });
            return Some(changes);
        }
        Step::Stale(_) => EffectRecord { rev: record.rev, ..succeeded(&record) },
        _ => succeeded(&record),
    };
    changes.effects.push(EffectChange::Put(Box::new(next)));
    Some(changes)
}

async fn directive_changes_of(step: &Step, model: &MemoryStore) -> Option<Changes> {
    let now = Timestamp::from_ms(NOW_MS);
    match step {
        Step::Grant(number) => {
            let entry = grant(&format!("dir_{number}"), u32::from(*number) + 1, now);
            Some(puts_directive(&[&entry]))
        }
        Step::Spend(number) => Some(spends(&format!("dir_{number}"))),
        Step::End(number) => {
            let entry = directives_of(model, &format!("dir_{number}")).await?;
            Some(puts_directive(&[&entry.ended(note("ben", now)).ok()?]))
        }
        _ => None,
    }
}

fn approval_of(record: &EffectRecord) -> Option<ApprovalId> {
    match &record.state {
        EffectState::PendingApproval { approval_id, .. }
        | EffectState::Approved { approval_id, .. } => Some(approval_id.clone()),
        _ => None,
    }
}

/// The reference store has one epoch for ever; claims are compared without it.
fn timeless(mut record: EffectRecord) -> EffectRecord {
    if let EffectState::Claimed { epoch } = &mut record.state {
        *epoch = 0;
    }
    record
}

async fn same(store: &EmbeddedStore, model: &MemoryStore) {
    for key in 0..4 {
        let claimed = claim_of("acme", &format!("key-{key}"), 1);
        let found = store.effect(claimed.record_id).await.unwrap().map(timeless);
        let expected = model.effect(claimed.record_id).await.unwrap().map(timeless);
        assert_eq!(found, expected);
        let found = store.effect_of_call(&claimed.call_id).await.unwrap().map(timeless);
        let expected = model.effect_of_call(&claimed.call_id).await.unwrap().map(timeless);
        assert_eq!(found, expected);
    }
    for state in [None, Some("pending"), Some("approved"), Some("void")] {
        let state = state.map(str::to_owned);
        for newest_first in [false, true] {
            let query = ApprovalQuery {
                state: state.clone(),
                newest_first,
                limit: 99,
                ..ApprovalQuery::default()
            };
            let found = store.approvals(&query).await.unwrap();
            assert_eq!(found, model.approvals(&query).await.unwrap());
        }
    }
    for (state, open_only) in [(None, false), (None, true), (Some("succeeded"), false)] {
        let state = state.map(str::to_owned);
        let query = EffectQuery { state, open_only, limit: 99, ..EffectQuery::default() };
        let found = store.effects(&query).await.unwrap();
        assert_eq!(found, model.effects(&query).await.unwrap());
    }
    for open_at in [None, Some(Timestamp::from_ms(NOW_MS))] {
        for newest_first in [false, true] {
            let query =
                DirectiveQuery { open_at, newest_first, limit: 99, ..DirectiveQuery::default() };
            let found = store.directives(&query).await.unwrap();
            assert_eq!(found, model.directives(&query).await.unwrap());
        }
    }
    let key = run("run_1", 6).key;
    for key in meters(0).iter().map(|meter| meter.key(&key)).chain([key.clone()]) {
        assert_eq!(store.run(&key).await.unwrap(), model.run(&key).await.unwrap());
    }
}

/// What a dispatch is counted in, by a clock that goes back and forth.
fn meters(cents: u64) -> [Meter; 2] {
    let at = Timestamp::from_ms(NOW_MS).plus_ms(i64::from(cents.is_multiple_of(3)) * 60_000);
    let since = Window::Minute.begins(at);
    let (window, cents_max) = (Window::Minute, None);
    let rate = Meter { of: Metered::Agent, window, since, calls_max: 2, cents_max };
    [Meter { window: Window::Day, cents_max: Some(80), ..rate.clone() }, rate]
}

async fn play(steps: Vec<Step>) {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let mut model = MemoryStore::new(Timestamp::from_ms(NOW_MS));
    let (mut store, _) = open(&config);
    let mut changes = synced();
    changes.runs.push(run("run_1", 6));
    store.commit(changes.clone()).await.unwrap();
    model.commit(changes).await.unwrap();
    for step in steps {
        match &step {
            Step::Claim(key) => {
                let claimed = claim_of("acme", &format!("key-{key}"), store.epoch());
                let found = store.claim(claimed.clone()).await.unwrap();
                let expected = model.claim(claimed).await.unwrap();
                assert_eq!(found == ClaimAnswer::Claimed, expected == ClaimAnswer::Claimed);
            }
            Step::Release(key) => {
                let record_id = claim_of("acme", &format!("key-{key}"), 1).record_id;
                store.release(record_id).await;
                model.release(record_id).await;
            }
            Step::Restart { orderly } => {
                if *orderly {
                    store.close().await.unwrap();
                }
                drop(store);
                store = open(&config).0;
                // Claims end with the process.
                model = model.restarted();
            }
            Step::Snapshot => drop(store.snapshot().await.unwrap()),
            _ => {
                if let Some(changes) = changes_of(&step, &model, store.epoch()).await {
                    let found = store.commit(changes.clone()).await;
                    let expected = model.commit(changes).await;
                    assert_eq!(found.as_ref().err(), expected.as_ref().err(), "{step:?}");
                }
            }
        }
        same(&store, &model).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_end_as_on_the_reference_store(
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(steps));
    }
}
