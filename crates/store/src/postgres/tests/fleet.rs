//! Several nodes on one database.

use std::sync::atomic::{AtomicUsize, Ordering};

use placet_ledger::approval::ApprovalState;
use placet_ledger::meter::{Meter, Metered, Window};
use placet_ledger::policies::PolicyState;
use placet_ledger::record::{Attempt, EffectState};
use placet_ledger::reservation::Reservation;
use placet_ledger::run::RunRecord;
use placet_ledger::store::{Changes, EffectQuery};
use placet_ledger::testing::policy_digests;
use placet_policy::policies::PolicyDigests;
use placet_types::run_context::RunBudget;

use super::*;
use crate::embedded::SyncObserver;

const SHORT: Duration = Duration::from_millis(600);

async fn two(database: &Database) -> [Arc<PostgresStore>; 2] {
    [open(database.config("node-1")).await, open(database.config("node-2")).await]
}

fn short(database: &Database, node: &str) -> PostgresConfig {
    PostgresConfig { lease: SHORT, ..database.config(node) }
}

fn orphans() -> EffectQuery {
    EffectQuery { orphaned: true, limit: 10, ..EffectQuery::default() }
}

/// The record with its attempt's duty taken over by `store`.
fn adopted(record: &EffectRecord, store: &PostgresStore) -> EffectRecord {
    let EffectState::Dispatched(attempt) = record.state.clone() else { panic!("not dispatched") };
    moved(record, EffectState::Dispatched(Attempt { adopted_by: Some(store.epoch()), ..attempt }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_that_take_one_key_one_wins() {
    let database = database().await;
    let stores = two(&database).await;
    for round in 0..40 {
        let mut racers = tokio::task::JoinSet::new();
        for (number, store) in stores.iter().enumerate() {
            let store = Arc::clone(store);
            racers.spawn(async move {
                let mut mine = claim(&*store, &format!("key-{round}"));
                mine.call_id =
                    placet_types::ids::ToolCallId::new(format!("call-{round}-{number}")).unwrap();
                if store.claim(mine.clone()).await.unwrap() != ClaimAnswer::Claimed {
                    return (mine, None);
                }
                let sent = dispatched(&*store, &mine);
                let kept = put(&*store, &sent).await;
                if kept.is_err() {
                    // What the loser finds is what the winner wrote, not its own claim.
                    assert_eq!(kept, Err(StoreError::Conflict));
                    let found = store.effect(mine.record_id).await.unwrap().unwrap();
                    assert_ne!(found.call_id, mine.call_id);
                    assert_eq!(found.state.name(), "dispatched");
                }
                (mine, kept.is_ok().then_some(sent))
            });
        }
        let ended = racers.join_all().await;
        let winners: Vec<_> = ended.iter().filter_map(|(_, kept)| kept.clone()).collect();
        assert_eq!(winners.len(), 1, "round {round}");
        for store in &stores {
            let stored = store.effect(winners[0].record_id).await.unwrap();
            assert_eq!(stored.as_ref(), Some(&winners[0]));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_that_decide_on_one_approval_one_wins() {
    let database = database().await;
    let stores = two(&database).await;
    for round in 0..20 {
        let claimed = claim(&*stores[0], &format!("key-{round}"));
        let asked = approval(&claimed, &format!("apr_{round}"), NOW_MS);
        let waiting = hold(&*stores[0], &claimed, &asked).await;
        let mut racers = tokio::task::JoinSet::new();
        for (store, state) in stores.iter().zip([ApprovalState::Approved, ApprovalState::Denied]) {
            let (store, asked, waiting) = (Arc::clone(store), asked.clone(), waiting.clone());
            racers.spawn(async move {
                let decided = approval_moved(&asked, state);
                let next = match &decided.state {
                    ApprovalState::Approved => approved(&waiting, &asked),
                    _ => moved(
                        &waiting,
                        EffectState::Denied {
                            code: placet_types::error::ErrorCode::ApprovalDenied,
                            approval_id: asked.approval_id.clone(),
                        },
                    ),
                };
                let mut changes = puts(&[&next]);
                changes.approvals.push(decided.clone());
                store.commit(changes).await.map(|_| (decided, next))
            });
        }
        let ended = racers.join_all().await;
        let (won, lost): (Vec<_>, Vec<_>) = ended.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 1), "round {round}");
        assert_eq!(lost[0], Err(StoreError::Conflict));
        let (decided, next) = won[0].as_ref().unwrap();
        assert_eq!(stores[1].approval(&asked.approval_id).await.unwrap().as_ref(), Some(decided));
        assert_eq!(stores[0].effect(next.record_id).await.unwrap().as_ref(), Some(next));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_never_overdraw_one_run() {
    let database = database().await;
    let stores = two(&database).await;
    let opened = RunRecord {
        budget: RunBudget { cost_cents_max: 300, ..run("run_1", 300).budget },
        ..run("run_1", 300)
    };
    let mut racers = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (store, opened) = (Arc::clone(&stores[number % 2]), opened.clone());
        racers.spawn(async move {
            let mut taken = 0;
            loop {
                let mut changes = synced();
                changes.runs.push(opened.clone());
                changes.reserve = Some(reservation(&opened, 1));
                match store.commit(changes).await {
                    Ok(_) => taken += 1,
                    Err(StoreError::BudgetExhausted) => return taken,
                    Err(other) => panic!("{other}"),
                }
            }
        });
    }
    assert_eq!(racers.join_all().await.into_iter().sum::<u32>(), 300);
    let used = stores[0].run(&opened.key).await.unwrap().unwrap();
    assert_eq!((used.calls_used, used.cents_used), (300, 300));
    // What is given back can be used by the other node.
    let mut changes = synced();
    changes.refund = Some(reservation(&opened, 1));
    stores[0].commit(changes).await.unwrap();
    let mut changes = synced();
    changes.reserve = Some(reservation(&opened, 1));
    stores[1].commit(changes).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_share_the_windows_of_an_agent() {
    let database = database().await;
    let stores = two(&database).await;
    let (window, cents_max) = (Window::Day, None);
    let since = window.begins(stores[0].now());
    let meter = Meter { of: Metered::Agent, window, since, calls_max: 60, cents_max };
    let capability = Metered::Capability("files/read".parse().unwrap());
    let meters = [Meter { of: capability, calls_max: 1_000, ..meter.clone() }, meter];
    let mut racers = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (store, meters) = (Arc::clone(&stores[number % 2]), meters.to_vec());
        let opened = run(&format!("run_{number}"), 300);
        racers.spawn(async move {
            let mut taken = 0;
            loop {
                let mut changes = synced();
                changes.runs.push(opened.clone());
                let meters = meters.clone();
                changes.reserve = Some(Reservation { meters, ..reservation(&opened, 0) });
                match store.commit(changes).await {
                    Ok(_) => taken += 1,
                    Err(StoreError::WindowExhausted(_)) => return taken,
                    Err(other) => panic!("{other}"),
                }
            }
        });
    }
    assert_eq!(racers.join_all().await.into_iter().sum::<u32>(), 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_come_together_are_synced_together() {
    let database = database().await;
    let (syncs, entries) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (Arc::clone(&syncs), Arc::clone(&entries));
    let observer = SyncObserver::new(move |kept, _took| {
        counted.0.fetch_add(1, Ordering::Relaxed);
        counted.1.fetch_add(usize::try_from(kept).unwrap(), Ordering::Relaxed);
    });
    let store = open(PostgresConfig { on_sync: Some(observer), ..database.config("node-1") }).await;
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..256 {
        let store = Arc::clone(&store);
        callers.spawn(async move { make(&*store, &format!("key-{number}"), true).await });
    }
    assert_eq!(callers.join_all().await.len(), 256);
    assert_eq!(entries.load(Ordering::Relaxed), 512);
    let syncs = syncs.load(Ordering::Relaxed);
    assert!(syncs <= 64, "{syncs} transactions for 512 commits");
}

#[tokio::test]
async fn a_database_that_has_forgotten_entries_of_another_node_is_noticed_and_not_started_with() {
    let database = database().await;
    let folder = tempfile::tempdir().unwrap();
    let config =
        PostgresConfig { witness: Some(folder.path().to_owned()), ..short(&database, "node-2") };
    let [first, second] = [open(database.config("node-1")).await, open(config.clone()).await];
    make(&*first, "key", true).await;
    until("its entries are seen", async || second.state.entries() >= 2).await;
    tokio::time::sleep(SHORT).await;
    database.sql("UPDATE placet.epochs SET head_seq = 0 WHERE node = 'node-1'").await;
    assert!(death(&second).await.contains("entries of other nodes"));
    drop(second);
    let refused = PostgresStore::open(config).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("the logs of its nodes have"), "{refused}");
}

#[tokio::test]
async fn policies_are_activated_for_all_nodes_at_once() {
    let database = database().await;
    let [first, second] = two(&database).await;
    let policy = |epoch, name: &str| PolicyState { epoch, digests: policy_digests(name) };
    let activate = |policy| {
        let mut changes = synced();
        changes.activate = Some(policy);
        changes
    };
    let under = |store: &PostgresStore, key: &str, epoch| {
        let mut changes = puts(&[&dispatched(store, &claim(store, key))]);
        changes.expect_policy = Some(epoch);
        changes
    };
    assert_eq!(first.policy().await.unwrap(), None);
    first.commit(activate(policy(1, "one"))).await.unwrap();
    // The other node starts with the same bundle: nothing new, and no conflict.
    second.commit(activate(policy(1, "one"))).await.unwrap();
    assert_eq!(second.policy().await.unwrap(), Some(policy(1, "one")));
    second.commit(under(&second, "a", 1)).await.unwrap();
    assert_eq!(first.commit(activate(policy(3, "three"))).await, Err(StoreError::Conflict));
    first.commit(activate(policy(2, "two"))).await.unwrap();
    assert_eq!(second.commit(under(&second, "b", 1)).await, Err(StoreError::PolicyMoved));
    let absent = claim(&*second, "b").record_id;
    assert_eq!(first.effect(absent).await.unwrap(), None);
    second.commit(under(&second, "b", 2)).await.unwrap();
    // A node that starts later decides under what is active.
    let third = open(database.config("node-3")).await;
    assert_eq!(third.commit(under(&third, "c", 1)).await, Err(StoreError::PolicyMoved));
    third.commit(under(&third, "c", 2)).await.unwrap();
}

fn activates(epoch: u64, name: &str, rolls_back: Option<u64>) -> Changes {
    let mut changes = synced();
    changes.activate = Some(PolicyState { epoch, digests: policy_digests(name) });
    changes.rolls_back = rolls_back;
    changes
}

#[tokio::test]
async fn policies_that_were_replaced_come_back_only_by_a_roll_back_that_names_what_is_active() {
    let database = database().await;
    let [first, second] = two(&database).await;
    first.commit(activates(1, "old", None)).await.unwrap();
    first.commit(activates(2, "new", None)).await.unwrap();
    first.commit(activates(3, "newer", None)).await.unwrap();
    let refused = |answer: Result<_, StoreError>| match answer {
        Err(StoreError::PoliciesReplaced(replaced)) => *replaced,
        other => panic!("{other:?}"),
    };
    // By whichever node, one that starts later too.
    let third = open(database.config("node-3")).await;
    for store in [&first, &second, &third] {
        let replaced = refused(store.commit(activates(4, "old", None)).await);
        assert_eq!(replaced.digest, policy_digests("old").whole());
        assert_eq!(replaced.replaced_by, policy_digests("new").whole());
        let active = PolicyState { epoch: 3, digests: policy_digests("newer") };
        assert_eq!(replaced.active, active);
        let age = store.now().since_ms(replaced.replaced_at);
        assert!((0..60_000).contains(&age), "replaced {age} ms ago");
    }
    refused(second.commit(activates(4, "new", Some(2))).await);
    // Nor by an edit of another part on a node that was left behind.
    let mut behind = activates(4, "new", None);
    let digests = policy_digests("new");
    let policy = PolicyDigests { policies: digests.policies, ..policy_digests("newest") };
    behind.activate = Some(PolicyState { epoch: 4, digests: policy });
    let replaced = refused(second.commit(behind).await);
    assert_eq!((replaced.what, replaced.digest), ("policies", digests.policies));
    // Nothing of a refused activation is kept, whatever else it was to do.
    assert_eq!(second.policy().await.unwrap().unwrap().epoch, 3);
    second.commit(activates(4, "new", Some(3))).await.unwrap();
    // What was rolled back is a thing of the past now; what it was rolled back to is not.
    refused(third.commit(activates(5, "newer", None)).await);
    third.commit(activates(4, "new", None)).await.unwrap();
    third.commit(activates(5, "newest", None)).await.unwrap();
    assert_eq!(refused(first.commit(activates(6, "new", None)).await).active.epoch, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_old_node_and_a_new_one_that_start_at_once_the_old_one_never_wins() {
    let database = database().await;
    let stores = two(&database).await;
    let start = async |store: &PostgresStore, name: &str, sure: u64| {
        let digests = policy_digests(name);
        for _ in 0..100 {
            let epoch = match store.policy().await.unwrap() {
                Some(active) if active.digests == digests => active.epoch,
                active => active.map_or(0, |active| active.epoch) + 1,
            };
            match store.commit(activates(epoch, name, None)).await {
                Ok(_) => return true,
                Err(StoreError::Conflict) => {}
                Err(StoreError::PoliciesReplaced(_)) => return false,
                Err(error) => panic!("round {sure}: {error}"),
            }
        }
        panic!("round {sure}: never decided");
    };
    assert!(start(&stores[0], "bundle-0", 0).await);
    for round in 1..=20 {
        let (old, new) = (format!("bundle-{}", round - 1), format!("bundle-{round}"));
        let (_, came_up) =
            tokio::join!(start(&stores[0], &old, round), start(&stores[1], &new, round));
        assert!(came_up, "round {round}: what is new is taken");
        let active = stores[0].policy().await.unwrap().unwrap();
        let new = policy_digests(&new);
        assert_eq!(active, PolicyState { epoch: round + 1, digests: new });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_nodes_that_activate_at_once_one_wins_each_time() {
    let database = database().await;
    let stores = two(&database).await;
    for epoch in 1..=20 {
        let mut racers = tokio::task::JoinSet::new();
        for (number, store) in stores.iter().enumerate() {
            let store = Arc::clone(store);
            racers.spawn(async move {
                let mut changes = synced();
                let digests = policy_digests(&format!("{epoch}-{number}"));
                changes.activate = Some(PolicyState { epoch, digests });
                let kept = store.commit(changes).await;
                assert!(matches!(kept, Ok(_) | Err(StoreError::Conflict)), "{kept:?}");
                kept.is_ok().then_some(digests)
            });
        }
        let won: Vec<_> = racers.join_all().await.into_iter().flatten().collect();
        assert_eq!(won.len(), 1, "epoch {epoch}");
        let active = stores[0].policy().await.unwrap();
        assert_eq!(active, Some(PolicyState { epoch, digests: won[0] }));
    }
}

#[tokio::test]
async fn the_attempt_of_a_node_that_lives_is_nobody_elses() {
    let database = database().await;
    let [first, second] = two(&database).await;
    let sent = dispatch(&first, "key").await.unwrap();
    assert_eq!(second.effects(&orphans()).await.unwrap(), Vec::new());
    assert_eq!(put(&*second, &adopted(&sent, &second)).await, Err(StoreError::Conflict));
    assert_eq!(second.fence_dead().await.unwrap(), Vec::<u64>::new());
    put(&*first, &succeeded(&sent)).await.unwrap();
}

#[tokio::test]
async fn what_a_node_left_behind_in_order_is_taken_over_at_once() {
    let database = database().await;
    let [first, second] = two(&database).await;
    let sent = dispatch(&first, "key").await.unwrap();
    first.close().await.unwrap();
    assert_eq!(second.effects(&orphans()).await.unwrap(), vec![sent.clone()]);
    let mine = adopted(&sent, &second);
    put(&*second, &mine).await.unwrap();
    assert_eq!(second.effects(&orphans()).await.unwrap(), Vec::new());
    put(&*second, &succeeded(&mine)).await.unwrap();
}

#[tokio::test]
async fn an_older_node_takes_over_from_one_that_started_after_it() {
    let database = database().await;
    let [older, younger] = two(&database).await;
    assert!(older.epoch() < younger.epoch());
    let sent = dispatch(&younger, "key").await.unwrap();
    assert_eq!(put(&*older, &adopted(&sent, &older)).await, Err(StoreError::Conflict));
    younger.close().await.unwrap();
    assert_eq!(older.effects(&orphans()).await.unwrap(), vec![sent.clone()]);
    let mine = adopted(&sent, &older);
    put(&*older, &mine).await.unwrap();
    put(&*older, &succeeded(&mine)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_is_fenced_after_its_lease_and_one_survivor_takes_over() {
    let database = database().await;
    let dead = open(short(&database, "node-1")).await;
    let survivors =
        [open(short(&database, "node-2")).await, open(short(&database, "node-3")).await];
    let sent = dispatch(&dead, "key").await.unwrap();
    let epoch = dead.epoch();
    drop(dead);
    let mut fenced = Vec::new();
    while fenced.is_empty() {
        for store in &survivors {
            fenced.extend(store.fence_dead().await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(fenced, vec![epoch]);
    let mut won = 0;
    for store in &survivors {
        assert!(won == 1 || store.effects(&orphans()).await.unwrap() == vec![sent.clone()]);
        match put(&**store, &adopted(&sent, store)).await {
            Ok(_) => won += 1,
            Err(error) => assert_eq!(error, StoreError::Conflict),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(survivors[0].fence_dead().await.unwrap(), Vec::<u64>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_held_past_its_lease_is_fenced_and_says_so() {
    let database = database().await;
    let [paused, survivor] =
        [open(short(&database, "node-1")).await, open(short(&database, "node-2")).await];
    let sent = dispatch(&paused, "key").await.unwrap();
    assert!(paused.leads().await.unwrap() && !survivor.leads().await.unwrap());
    paused.state.hold.send_replace(true);
    let late = {
        let (paused, done) = (Arc::clone(&paused), succeeded(&sent));
        tokio::spawn(async move { put(&*paused, &done).await })
    };
    until("the paused node is fenced", async || {
        survivor.fence_dead().await.unwrap() == vec![paused.epoch()]
    })
    .await;
    assert!(paused.lease_has_expired());
    assert!(survivor.leads().await.unwrap(), "nobody does what one of them has to do");
    let mine = adopted(&sent, &survivor);
    put(&*survivor, &mine).await.unwrap();
    paused.state.hold.send_replace(false);
    // Its late write is refused, and nothing of it is kept.
    assert_eq!(late.await.unwrap(), Err(StoreError::Fenced));
    assert!(death(&paused).await.contains("took its work over"));
    assert_eq!(paused.effect(sent.record_id).await, Err(StoreError::Fenced));
    assert_eq!(paused.leads().await, Err(StoreError::Fenced));
    assert_eq!(survivor.effect(sent.record_id).await.unwrap(), Some(mine));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_in_a_transaction_holds_nobody_up_for_longer_than_its_lease() {
    let database = database().await;
    let [stopped, survivor] =
        [open(short(&database, "node-1")).await, open(short(&database, "node-2")).await];
    let sent = dispatch(&stopped, "key").await.unwrap();
    stopped.state.hold_commit.send_replace(true);
    let late = {
        let (stopped, done) = (Arc::clone(&stopped), succeeded(&sent));
        tokio::spawn(async move { put(&*stopped, &done).await })
    };
    until("the stopped node is fenced", async || {
        survivor.fence_dead().await.unwrap() == vec![stopped.epoch()]
    })
    .await;
    let mine = adopted(&sent, &survivor);
    put(&*survivor, &mine).await.unwrap();
    stopped.state.hold_commit.send_replace(false);
    // The server has ended its transaction; the caller is not told that nothing was kept, since the node could not know.
    assert!(matches!(late.await.unwrap(), Err(StoreError::Uncertain(_) | StoreError::Fenced)));
    assert!(death(&stopped).await.contains("took its work over"));
    assert_eq!(survivor.effect(sent.record_id).await.unwrap(), Some(mine));
}
