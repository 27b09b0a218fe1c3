//! Crashes, standbys and old copies: what the database itself may lose.

use std::sync::atomic::Ordering;

use sqlx::Row as _;

use super::load::{check, load};
use super::*;

/// A primary with one synchronous standby.
pub(super) async fn pair() -> (Arc<Server>, Arc<Server>) {
    let primary = Server::start(&[]);
    let standby = primary.standby();
    primary.set("synchronous_standby_names", "*").await;
    until("the standby is synchronous", async || {
        !primary
            .sql("postgres", "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
            .await
            .is_empty()
    })
    .await;
    (primary, standby)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_synchronous_standby_loses_and_doubles_nothing() {
    let (primary, standby) = pair().await;
    let database = primary.database().await;
    let url = format!(
        "postgres://placet@127.0.0.1:{},127.0.0.1:{}/{}",
        primary.port(),
        standby.port(),
        database.name
    );
    let store = open(config(&url, "node-1")).await;
    let (seen, tasks) = load(&store, 16);
    until("calls go on", async || seen.kept() > 200).await;
    primary.stop(Stop::Immediate);
    let before = seen.kept();
    standby.promote();
    until("calls go on", async || seen.kept() > before + 200).await;
    seen.stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    check(&standby, &database.name, &seen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_standby_that_lags_stops_the_store() {
    let (primary, standby) = pair().await;
    let database = primary.database().await;
    let url = format!(
        "postgres://placet@127.0.0.1:{},127.0.0.1:{}/{}",
        primary.port(),
        standby.port(),
        database.name
    );
    let store = open(config(&url, "node-1")).await;
    make(&*store, "both-have-it", true).await;
    // From here on the primary does without its standby, as an operator may tell it to.
    standby.stop(Stop::Fast);
    primary.set("synchronous_standby_names", "").await;
    make(&*store, "one-has-it", true).await;
    primary.stop(Stop::Immediate);
    standby.up();
    standby.promote();
    let refused = put(&*store, &dispatched(&*store, &claim(&*store, "key"))).await;
    assert!(
        matches!(&refused, Err(StoreError::Stopped(why)) if why.contains("forgotten")),
        "{refused:?}"
    );
    let said = death(&store).await;
    assert!(said.contains("the database has forgotten"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_node_notices_that_the_database_was_set_back() {
    let server = Server::start(&[]);
    let database = server.database().await;
    let config = PostgresConfig { lease: Duration::from_secs(3), ..database.config("node-1") };
    let store = open(config).await;
    server.stop(Stop::Fast);
    let copy = server.copy();
    server.up();
    until("the server answers", async || store.policy().await.is_ok()).await;
    make(&*store, "later", true).await;
    server.stop(Stop::Fast);
    server.restore(&copy);
    server.up();
    let said = death(&store).await;
    assert!(said.contains("the database has forgotten"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_standby_has_is_not_acknowledged_even_after_the_connection_was_lost() {
    let server = Server::start(&[]);
    let database = server.database().await;
    let store = open(database.config("node-1")).await;
    let claimed = claim(&*store, "key");
    store.claim(claimed.clone()).await.unwrap();
    server.set("synchronous_standby_names", "*").await;
    let sent = dispatched(&*store, &claimed);
    let waiting = {
        let (store, sent) = (Arc::clone(&store), sent.clone());
        tokio::spawn(async move { put(&*store, &sent).await })
    };
    let waits = "SELECT pid FROM pg_stat_activity WHERE application_name = 'placet' AND wait_event = 'SyncRep'";
    for _ in 0..3 {
        until("the commit waits for a standby", async || {
            !server.sql("postgres", waits).await.is_empty()
        })
        .await;
        drop(
            server
                .sql("postgres", &format!("SELECT pg_terminate_backend(pid) FROM ({waits}) AS w"))
                .await,
        );
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished(), "acknowledged though no standby has it");
    }
    server.set("synchronous_standby_names", "").await;
    waiting.await.unwrap().unwrap();
    assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(sent));
    let entries = database.sql("SELECT 1 FROM placet.entries").await;
    assert_eq!(entries.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_standby_has_is_not_shown_after_the_server_was_restarted() {
    let server = Server::start(&[]);
    let database = server.database().await;
    let store = open(database.config("node-1")).await;
    let wait = Duration::from_millis(500);
    let reader = open(PostgresConfig { wait, ..database.config("node-2") }).await;
    let sent = make(&*store, "key", false).await;
    assert_eq!(reader.effect(sent.record_id).await.unwrap(), Some(sent.clone()));
    server.set("synchronous_standby_names", "*").await;
    let done = succeeded(&sent);
    let waiting = {
        let (store, done) = (Arc::clone(&store), done.clone());
        tokio::spawn(async move { put(&*store, &done).await })
    };
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query = 'COMMIT'";
    until("the commit waits for a standby", async || {
        !server.sql("postgres", waits).await.is_empty()
    })
    .await;
    assert_eq!(reader.effect(sent.record_id).await.unwrap(), Some(sent.clone()));
    server.stop(Stop::Immediate);
    server.up();
    // The server itself shows it now; the store does not, since a failover would lose it.
    let stored = database.sql("SELECT state FROM placet.effects").await;
    assert_eq!(stored[0].get::<String, _>("state"), "succeeded");
    let refused = reader.effect(sent.record_id).await;
    assert!(matches!(refused, Err(StoreError::Unreachable(_))), "{refused:?}");
    assert!(!waiting.is_finished());
    server.set("synchronous_standby_names", "").await;
    waiting.await.unwrap().unwrap();
    until("it is shown", async || reader.effect(sent.record_id).await == Ok(Some(done.clone())))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_closed_in_time_though_the_database_is_gone() {
    let server = Server::start(&[]);
    let database = server.database().await;
    let wait = Duration::from_millis(500);
    let store = open(PostgresConfig { wait, ..database.config("node-1") }).await;
    let sent = make(&*store, "key", false).await;
    server.set("synchronous_standby_names", "*").await;
    let waiting = {
        let (store, done) = (Arc::clone(&store), succeeded(&sent));
        tokio::spawn(async move { put(&*store, &done).await })
    };
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query = 'COMMIT'";
    until("the commit waits for a standby", async || {
        !server.sql("postgres", waits).await.is_empty()
    })
    .await;
    server.stop(Stop::Immediate);
    let closed = tokio::time::timeout(Duration::from_secs(10), store.close()).await;
    assert!(closed.expect("it does not wait for ever").is_err());
    // What became of the commit is not known, and nobody is told otherwise.
    assert!(matches!(waiting.await.unwrap(), Err(StoreError::Uncertain(_))));
}
