//! A session that falls silent where it holds what others need is let go of: at its start, while it makes the tables, in an import, or on its
//! way to a connection. And a caller that waits too long is told who is in the way.
//!
//! Not here: a node that falls silent while it writes (`brake`, `fleet`).

use std::sync::atomic::Ordering;

use sqlx::{Row as _, raw_sql};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::failover::pair;
use super::proxy::{Cuts, proxy};
use super::*;
use crate::postgres::import::Import;
use crate::postgres::{StartReport, limits};

const LEASE: Duration = Duration::from_millis(1_500);

type Opened = Result<(Arc<PostgresStore>, StartReport), OpenError>;

/// A node that falls silent when it is about to say something of `needle`, with its lease.
async fn falls_silent(
    database: &Database,
    needle: &'static str,
    lease: Duration,
) -> (JoinHandle<Opened>, Arc<Cuts>) {
    falls_silent_for(database, needle, (lease, Duration::from_secs(10))).await
}

/// The same, with how long it waits.
async fn falls_silent_for(
    database: &Database,
    needle: &'static str,
    (lease, wait): (Duration, Duration),
) -> (JoinHandle<Opened>, Arc<Cuts>) {
    let (port, cuts) = proxy(database.server.port()).await;
    *cuts.silent_at.lock().unwrap() = Some(needle.as_bytes());
    let url = format!("postgres://placet@127.0.0.1:{port}/{}", database.name);
    let config = PostgresConfig { lease, wait, ..config(&url, "silent") };
    let opening = tokio::spawn(PostgresStore::open(config));
    until("it falls silent", async || cuts.silent.load(Ordering::SeqCst)).await;
    (opening, cuts)
}

fn node(database: &Database, name: &str) -> PostgresConfig {
    PostgresConfig { lease: LEASE, ..database.config(name) }
}

/// A start takes no longer than it takes to let go of somebody silent.
async fn starts_within_a_lease(database: &Database, name: &str) {
    let began = Instant::now();
    open(node(database, name)).await;
    assert!(began.elapsed() < LEASE + Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_falls_silent_at_its_start_holds_nobody_up_for_longer_than_its_lease() {
    let database = database().await;
    let one = open(node(&database, "one")).await;
    let (silent, _cuts) = falls_silent(&database, "INSERT INTO placet.epochs", LEASE).await;
    make(&*one, "meanwhile", false).await;
    starts_within_a_lease(&database, "two").await;
    assert!(!silent.is_finished());
    assert_eq!(database.sql("SELECT 1 FROM placet.epochs WHERE node = 'silent'").await.len(), 0);
    silent.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_falls_silent_while_it_makes_the_tables_holds_nobody_up_for_longer_than_its_lease()
 {
    let database = database().await;
    let (silent, _cuts) = falls_silent(&database, "SET schema_digest", LEASE).await;
    starts_within_a_lease(&database, "one").await;
    silent.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_falls_silent_lets_nodes_start_after_some_leases() {
    let database = database().await;
    let lease = Duration::from_millis(400);
    let short = PostgresConfig { lease, ..database.config("import") };
    let _silent = Import::begin(&short).await.unwrap();
    starts_within_a_lease(&database, "one").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_at_its_start_keeps_nobody_from_reading_where_a_standby_has_to_confirm() {
    let (primary, _standby) = pair().await;
    let database = primary.database().await;
    let wait = Duration::from_secs(2);
    let one = open(PostgresConfig { wait, ..database.config("one") }).await;
    let sent = make(&*one, "key", false).await;
    // For longer than this test lasts.
    let lease = Duration::from_secs(600);
    let (silent, _cuts) = falls_silent(&database, "INSERT INTO placet.epochs", lease).await;
    // All connections are cut, but for the silent one's.
    drop(
        database
            .sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'placet' \
                 AND datname = current_database() AND state <> 'idle in transaction'",
            )
            .await,
    );
    for number in 0..3 {
        assert_eq!(one.effect(sent.record_id).await.unwrap(), Some(sent.clone()));
        make(&*one, &format!("key-{number}"), false).await;
    }
    silent.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_cannot_be_confirmed_leaves_no_session_behind() {
    let (primary, _standby) = pair().await;
    let database = primary.database().await;
    let wait = Duration::from_millis(500);
    let one = open(PostgresConfig { wait, ..database.config("one") }).await;
    let record_id = claim(&*one, "key").record_id;
    let mut stranger = database.connect().await;
    raw_sql("BEGIN; SELECT 1 FROM placet.confirmations FOR UPDATE")
        .execute(&mut stranger)
        .await
        .unwrap();
    for _ in 0..4 {
        let refused = one.effect(record_id).await;
        assert!(matches!(refused, Err(StoreError::Unreachable(_))), "{refused:?}");
    }
    tokio::time::sleep(wait).await;
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    assert_eq!(database.sql(waits).await.len(), 0);
    raw_sql("ROLLBACK").execute(&mut stranger).await.unwrap();
    until("it reads", async || one.effect(record_id).await == Ok(None)).await;
}

/// A stranger whose session nothing ends.
async fn holding(database: &Database, row: &'static str) -> sqlx::postgres::PgConnection {
    let mut stranger = database.connect().await;
    let hold = format!("BEGIN; SELECT 1 FROM {row} FOR UPDATE");
    raw_sql(sqlx::AssertSqlSafe(hold)).execute(&mut stranger).await.unwrap();
    stranger
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_somebody_holds_up_for_ever_is_refused_in_time() {
    let database = database().await;
    open(node(&database, "one")).await.close().await.unwrap();
    let wait = Duration::from_secs(1);
    let mut stranger = holding(&database, "placet.ledger").await;
    let other = tokio::spawn(PostgresStore::open(database.config("other")));
    let began = Instant::now();
    let config = PostgresConfig { wait, ..node(&database, "two") };
    let refused = PostgresStore::open(config).await.unwrap_err();
    let took = began.elapsed();
    let OpenError::LockTimeout { what, why } = &refused else { panic!("{refused}") };
    assert_eq!(*what, "give this node an epoch");
    assert!(why.contains("pg_locks") && why.contains("pg_terminate_backend"), "{why}");
    assert!(took >= LEASE && took < LEASE * 2 + wait * 3, "{took:?}");
    raw_sql("ROLLBACK").execute(&mut stranger).await.unwrap();
    other.await.unwrap().expect("it waits for longer").0.close().await.unwrap();
    let mut stranger = holding(&database, "placet.ledger").await;
    let refused = Import::begin(&PostgresConfig { wait, ..node(&database, "import") }).await;
    assert!(matches!(refused, Err(OpenError::LockTimeout { .. })), "{refused:?}");
    raw_sql("ROLLBACK").execute(&mut stranger).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_session_was_ended_while_it_stood_still_says_so() {
    let database = database().await;
    let (silent, cuts) = falls_silent(&database, "INSERT INTO placet.epochs", LEASE).await;
    tokio::time::sleep(LEASE + Duration::from_millis(500)).await;
    cuts.silent.store(false, Ordering::SeqCst);
    let refused = silent.await.unwrap().unwrap_err();
    assert!(matches!(refused, OpenError::Lost { .. }), "{refused}");
}

/// A start to which nothing comes any more once it says something of `needle` ends, and says so.
async fn ends_in_time(needle: &'static str) {
    let (database, wait) = (database().await, Duration::from_secs(1));
    let (opening, _cuts) = falls_silent_for(&database, needle, (LEASE, wait)).await;
    let began = Instant::now();
    let ended = tokio::time::timeout(Duration::from_secs(20), opening).await;
    let refused = ended.expect("it ends").unwrap().unwrap_err();
    let OpenError::Lost { what, why } = &refused else { panic!("{needle}: {refused}") };
    assert_eq!(*what, "start this node");
    assert!(why.contains("fallen silent") && why.contains("synchronous_standby_names"), "{why}");
    let took = began.elapsed();
    assert!(took > wait * 2 && took < wait.max(LEASE) * 8, "{needle}: {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_whose_database_falls_silent_ends_in_time() {
    tokio::join!(
        ends_in_time("to_regclass"),
        // The first one is that of the tables.
        ends_in_time("COMMIT\0"),
        ends_in_time("has_table_privilege"),
        ends_in_time("INSERT INTO placet.epochs"),
    );
}

#[tokio::test]
async fn no_transaction_is_without_limits_whatever_a_session_was_set_to() {
    let database = database().await;
    let mut session = database.connect().await;
    limits::settle(&mut session, Duration::from_millis(1_234)).await.unwrap();
    let shown = async |session: &mut sqlx::postgres::PgConnection| {
        let shown = "SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('lock_timeout'), \
            current_setting('statement_timeout'), current_setting('transaction_isolation'), current_setting('transaction_read_only')";
        let row = raw_sql(shown).fetch_one(session).await.unwrap();
        [0, 1, 2, 3, 4].map(|place| row.get::<String, _>(place))
    };
    let usual = ["1min", "1234ms", "1234ms", "read committed", "off"];
    assert_eq!(shown(&mut session).await, usual);
    let limits = |statement| limits::Limits {
        lock: Duration::from_micros(5),
        silence: Duration::from_secs(30),
        statement,
    };
    for (kind, statement, expected) in [
        (limits::Kind::Writing, None, ["30s", "1ms", "0", "read committed", "off"]),
        (
            limits::Kind::Looking,
            Some(Duration::from_millis(7)),
            ["30s", "1ms", "7ms", "read committed", "on"],
        ),
        (
            limits::Kind::Snapshot,
            Some(Duration::MAX),
            ["30s", "1ms", "2147483647ms", "repeatable read", "on"],
        ),
    ] {
        limits::begin(&mut session, kind, limits(statement)).await.unwrap();
        assert_eq!(shown(&mut session).await, expected, "{kind:?}");
        raw_sql("ROLLBACK").execute(&mut session).await.unwrap();
        assert_eq!(shown(&mut session).await, usual);
    }
}
