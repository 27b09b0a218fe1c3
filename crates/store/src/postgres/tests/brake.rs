//! A freeze gets through, whichever node hangs, and it is told in time where nothing helps.

use placet_types::directive::DirectiveBasis;
use sqlx::raw_sql;

use super::*;

const WAIT: Duration = Duration::from_millis(1_000);
const LEASE: Duration = Duration::from_secs(4);

async fn node(database: &Database, name: &str) -> Arc<PostgresStore> {
    open(PostgresConfig { wait: WAIT, lease: LEASE, ..database.config(name) }).await
}

/// Somebody who holds the row of a node.
async fn holding(database: &Database, node: &PostgresStore) -> sqlx::postgres::PgConnection {
    let mut stranger = database.connect().await;
    let epoch = node.epoch();
    let hold = format!("BEGIN; SELECT 1 FROM placet.epochs WHERE epoch = {epoch} FOR UPDATE");
    raw_sql(sqlx::AssertSqlSafe(hold)).execute(&mut stranger).await.unwrap();
    stranger
}

fn freezing(
    store: &Arc<PostgresStore>,
) -> tokio::task::JoinHandle<(Result<(), StoreError>, Duration)> {
    freezing_as(store, "freeze".to_owned())
}

fn freezing_as(
    store: &Arc<PostgresStore>,
    name: String,
) -> tokio::task::JoinHandle<(Result<(), StoreError>, Duration)> {
    let store = Arc::clone(store);
    tokio::spawn(async move {
        let began = tokio::time::Instant::now();
        let mut changes = synced();
        changes.directives.push(directive(&name, freeze_body(), 0, store.now()));
        let frozen = store.commit(changes).await.map(drop);
        (frozen, began.elapsed())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_outlasts_a_lock_of_three_seconds_and_holds_nothing_else_up() {
    let database = database().await;
    let (one, two) = (node(&database, "one").await, node(&database, "two").await);
    let mut stranger = holding(&database, &two).await;
    let frozen = freezing(&one);
    let until = tokio::time::Instant::now() + Duration::from_secs(3);
    let mut others = 0;
    while tokio::time::Instant::now() < until {
        make(&*one, &format!("key-{others}"), false).await;
        others += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(others > 10, "{others} calls went on");
    assert!(!frozen.is_finished());
    raw_sql("ROLLBACK").execute(&mut stranger).await.unwrap();
    let (frozen, took) = frozen.await.unwrap();
    assert_eq!(frozen, Ok(()));
    assert!(took >= Duration::from_secs(3) && took < Duration::from_secs(5), "{took:?}");
    assert_eq!(two.restriction_version().await, Ok(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_that_somebody_holds_up_for_ever_is_refused_in_time_with_what_to_do() {
    let database = database().await;
    let (one, two) = (node(&database, "one").await, node(&database, "two").await);
    let mut stranger = holding(&database, &two).await;
    let (refused, took) = freezing(&one).await.unwrap();
    let Err(StoreError::LockTimeout(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("pg_locks") && why.contains("pg_terminate_backend"), "{why}");
    assert!(took >= LEASE && took < LEASE + WAIT * 3, "{took:?}");
    assert_eq!(
        (directives_of(&*one, "freeze").await, one.restriction_version().await),
        (None, Ok(0))
    );
    make(&*one, "afterwards", false).await;
    raw_sql("ROLLBACK").execute(&mut stranger).await.unwrap();
    assert_eq!(freezing(&one).await.unwrap().0, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_is_answered_in_time_however_many_others_arrive_behind_it() {
    let database = database().await;
    let (one, two) = (node(&database, "one").await, node(&database, "two").await);
    let mut stranger = holding(&database, &two).await;
    let first = freezing(&one);
    let until = tokio::time::Instant::now() + LEASE + WAIT * 3;
    let mut others = Vec::new();
    while tokio::time::Instant::now() < until {
        others.push(freezing_as(&one, format!("freeze-{}", others.len())));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(first.is_finished(), "the first is not delayed by those behind it");
    let (refused, took) = first.await.unwrap();
    assert!(matches!(refused, Err(StoreError::LockTimeout(_))), "{refused:?}");
    assert!(took >= LEASE, "{took:?}");
    raw_sql("ROLLBACK").execute(&mut stranger).await.unwrap();
    // The last ones have time left.
    let (last, _) = others.pop().unwrap().await.unwrap();
    assert_eq!(last, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_outlasts_a_node_that_hangs_in_its_transaction_and_binds_it() {
    let database = database().await;
    let (one, two) = (node(&database, "one").await, node(&database, "two").await);
    two.state.hold_commit.send_replace(true);
    let mut changes = puts(&[&dispatched(&*two, &claim(&*two, "key"))]);
    changes.expect_directives = Some(DirectiveBasis { rev: 0, until: None });
    let sent = {
        let two = Arc::clone(&two);
        tokio::spawn(async move { two.commit(changes).await })
    };
    until("the other node hangs in its transaction", async || {
        let hangs = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()";
        !database.sql(hangs).await.is_empty()
    })
    .await;
    let (frozen, took) = freezing(&one).await.unwrap();
    assert_eq!(frozen, Ok(()), "after {took:?}");
    assert!(took > WAIT, "{took:?}");
    two.state.hold_commit.send_replace(false);
    let sent = sent.await.unwrap();
    assert!(matches!(sent, Err(StoreError::DirectiveMoved)), "{sent:?}");
}
