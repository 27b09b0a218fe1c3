//! What goes wrong with a database while it is in use.

use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::{Row as _, raw_sql};

use super::load::{check, load};
use super::proxy::proxy;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_lost_at_its_commit_loses_and_doubles_nothing() {
    let server = Server::shared();
    let database = server.database().await;
    let (port, cuts) = proxy(server.port()).await;
    let url = format!("postgres://placet@127.0.0.1:{port}/{}", database.name);
    let store = open(config(&url, "node-1")).await;
    cuts.on.store(true, Ordering::SeqCst);
    let (seen, tasks) = load(&store, 8);
    let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
    until("enough commits were cut", async || {
        count(&cuts.before) >= 100 && count(&cuts.after) >= 100
    })
    .await;
    seen.stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    assert!(seen.kept() > 100, "{} calls", seen.kept());
    check(server, &database.name, &seen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_killed_in_its_transaction_or_at_its_commit_loses_and_doubles_nothing() {
    // Commits take a few milliseconds, as they do on a disk, so that they can be met.
    let server = Server::start(&[("commit_delay", "4000"), ("commit_siblings", "0")]);
    let database = server.database().await;
    let store = open(database.config("node-1")).await;
    let (seen, tasks) = load(&store, 24);
    let mut killer = database.connect().await;
    let (mut inside, mut at_commit) = (0_i64, 0_i64);
    for round in 0..10_000 {
        let killed = sqlx::query(
            "SELECT count(*) FILTER (WHERE query = 'COMMIT') AS at_commit, count(*) AS kills FROM ( \
               SELECT query, pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE application_name = 'placet' AND datname = current_database() AND pid <> pg_backend_pid() \
                 AND CASE WHEN $1 THEN query = 'COMMIT' AND state = 'active' \
                     ELSE state = 'idle in transaction' OR (state = 'active' AND query <> 'COMMIT') END) AS killed",
        )
        .bind(round % 3 != 0)
        .fetch_one(&mut killer)
        .await
        .unwrap();
        let now_at_commit = killed.get::<i64, _>("at_commit");
        at_commit += now_at_commit;
        inside += killed.get::<i64, _>("kills") - now_at_commit;
        if inside >= 30 && at_commit >= 15 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    seen.stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    assert!(inside >= 30 && at_commit >= 15, "{inside} kills inside, {at_commit} at a commit");
    assert!(seen.kept() > 100, "{} calls", seen.kept());
    check(&server, &database.name, &seen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_and_restarts_under_load_loses_and_doubles_nothing() {
    let server = Server::start(&[]);
    let database = server.database().await;
    let store = open(database.config("node-1")).await;
    let (seen, tasks) = load(&store, 16);
    for how in [Stop::Immediate, Stop::Fast, Stop::Immediate] {
        let before = seen.kept();
        until("calls go on", async || seen.kept() > before + 50).await;
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || {
            server.stop(how);
            server.up();
        })
        .await
        .unwrap();
    }
    let before = seen.kept();
    until("calls go on", async || seen.kept() > before + 50).await;
    seen.stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    check(&server, &database.name, &seen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_with_somebody_else_is_survived() {
    let database = database().await;
    let store = open(database.config("node-1")).await;
    let mut records = vec![make(&*store, "one", false).await, make(&*store, "two", false).await];
    records.sort_by_key(|record| record.record_id);
    let lock = |record: &EffectRecord| {
        let id = hex::encode(record.record_id.digest().as_bytes());
        format!("SELECT 1 FROM placet.effects WHERE record_id = '\\x{id}' FOR UPDATE")
    };
    let mut stranger = database.connect().await;
    let begin = format!("BEGIN; SET LOCAL deadlock_timeout = '60s'; {}", lock(&records[1]));
    raw_sql(sqlx::AssertSqlSafe(begin)).execute(&mut stranger).await.unwrap();
    let commit = {
        let (store, changes) =
            (Arc::clone(&store), puts(&[&succeeded(&records[0]), &succeeded(&records[1])]));
        tokio::spawn(async move { store.commit(changes).await })
    };
    until("the store waits for the stranger", async || {
        let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        !database.sql(waits).await.is_empty()
    })
    .await;
    // Now each waits for the other, and the server ends the store's transaction.
    raw_sql(sqlx::AssertSqlSafe(lock(&records[0]))).execute(&mut stranger).await.unwrap();
    raw_sql("ROLLBACK").execute(&mut stranger).await.unwrap();
    commit.await.unwrap().unwrap();
    for record in &records {
        assert_eq!(store.effect(record.record_id).await.unwrap(), Some(succeeded(record)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_not_to_be_had_is_waited_for_only_so_long() {
    let database = database().await;
    let wait = Duration::from_millis(400);
    let store = open(PostgresConfig { wait, ..database.config("node-1") }).await;
    let sent = make(&*store, "key", false).await;
    let mut stranger = database.connect().await;
    raw_sql("BEGIN; LOCK TABLE placet.effects IN SHARE MODE").execute(&mut stranger).await.unwrap();
    let began = tokio::time::Instant::now();
    let refused = put(&*store, &succeeded(&sent)).await;
    assert!(
        matches!(&refused, Err(StoreError::Unreachable(why)) if why.contains("lock")),
        "{refused:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    // It was refused, so nothing of it was kept.
    assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(sent.clone()));
    raw_sql("ROLLBACK").execute(&mut stranger).await.unwrap();
    put(&*store, &succeeded(&sent)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_connections_are_in_use_a_caller_is_told_within_the_longest_wait() {
    let database = database().await;
    let wait = Duration::from_millis(500);
    let store =
        open(PostgresConfig { wait, connections_max: 2, ..database.config("node-1") }).await;
    let sent = make(&*store, "key", false).await;
    let mut stranger = database.connect().await;
    raw_sql("BEGIN; LOCK TABLE placet.effects IN ACCESS EXCLUSIVE MODE")
        .execute(&mut stranger)
        .await
        .unwrap();
    let began = tokio::time::Instant::now();
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (store, record_id) = (Arc::clone(&store), sent.record_id);
        readers.spawn(async move { store.effect(record_id).await });
    }
    for answer in readers.join_all().await {
        assert!(matches!(answer, Err(StoreError::Unreachable(_))), "{answer:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    raw_sql("ROLLBACK").execute(&mut stranger).await.unwrap();
    assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(sent));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_free_connection_is_survived() {
    let server =
        Server::start(&[("max_connections", "12"), ("superuser_reserved_connections", "0")]);
    let database = server.database().await;
    let wait = Duration::from_millis(500);
    let store = open(PostgresConfig { wait, ..database.config("node-1") }).await;
    let sent = make(&*store, "key", false).await;
    let mut others = Vec::new();
    let options: sqlx::postgres::PgConnectOptions = server.url(&database.name).parse().unwrap();
    while let Ok(other) = sqlx::ConnectOptions::connect(&options).await {
        others.push(other);
    }
    // The store's own connections serve it; a second reader at the same time finds none.
    put(&*store, &succeeded(&sent)).await.unwrap();
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let (store, record_id) = (Arc::clone(&store), sent.record_id);
        readers.spawn(async move { store.effect(record_id).await });
    }
    let answers = readers.join_all().await;
    assert!(answers.iter().all(|answer| match answer {
        Ok(found) => found.is_some(),
        Err(error) => matches!(error, StoreError::Unreachable(_)),
    }));
    drop(others);
    until("connections are free again", async || store.effect(sent.record_id).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_everybody_is_told_so_in_time() {
    let server = Server::start(&[]);
    let database = server.database().await;
    let wait = Duration::from_millis(700);
    let store = open(PostgresConfig { wait, ..database.config("node-1") }).await;
    let sent = make(&*store, "key", false).await;
    server.stop(Stop::Fast);
    let began = tokio::time::Instant::now();
    let refused = put(&*store, &succeeded(&sent)).await;
    assert!(matches!(refused, Err(StoreError::Unreachable(_))), "{refused:?}");
    let refused = store.effect(sent.record_id).await;
    assert!(matches!(refused, Err(StoreError::Unreachable(_))), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    server.up();
    until("the store works again", async || put(&*store, &succeeded(&sent)).await.is_ok()).await;
}

#[tokio::test]
async fn one_commit_that_cannot_be_written_does_not_take_the_others_with_it() {
    let database = database().await;
    let store = open(database.config("node-1")).await;
    drop(database.sql("ALTER TABLE placet.effects ADD CONSTRAINT small CHECK (octet_length(record) < 1000000)").await);
    drop(
        database
            .sql("ALTER TABLE placet.content ADD CONSTRAINT named CHECK (length(tenant) < 9)")
            .await,
    );
    drop(database.sql("ALTER TABLE placet.content ALTER COLUMN tenant TYPE varchar(12)").await);
    let sound = puts(&[&dispatched(&*store, &claim(&*store, "sound"))]);
    let mut long = puts(&[&dispatched(&*store, &claim(&*store, "long"))]);
    long.content.push((tenant("a-tenant-with-a-long-name"), b"bytes".to_vec()));
    let (sound, long) = tokio::join!(store.commit(sound), store.commit(long));
    sound.unwrap();
    assert!(matches!(long, Err(StoreError::TooLarge(_))), "{long:?}");
    make(&*store, "after", true).await;
}

/// The disk of the database is full for whatever writes no entry, a few times.
const FULL: &str = "CREATE SEQUENCE placet.tries; \
    CREATE FUNCTION placet.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
      IF NEW.head_seq = OLD.head_seq AND nextval('placet.tries') <= 3 THEN \
        RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; \
      END IF; \
      RETURN NEW; END $$; \
    CREATE TRIGGER full_disk BEFORE UPDATE ON placet.epochs FOR EACH ROW EXECUTE FUNCTION placet.full()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_may_be_kept_is_not_refused_for_want_of_room_nor_answered_for_another() {
    let server = Server::shared();
    let database = server.database().await;
    let (port, cuts) = proxy(server.port()).await;
    let url = format!("postgres://placet@127.0.0.1:{port}/{}", database.name);
    // So long that the keeper of the lease writes nothing meanwhile.
    let lease = Duration::from_secs(120);
    let store = open(PostgresConfig { lease, ..config(&url, "node-1") }).await;
    raw_sql(FULL).execute(&mut database.connect().await).await.unwrap();
    cuts.next_answer.store(true, Ordering::SeqCst);
    let first = make(&*store, "first", false).await;
    assert_eq!(cuts.after.load(Ordering::SeqCst), 1);
    let second = make(&*store, "second", false).await;
    let tries = database.sql("SELECT last_value::text FROM placet.tries").await;
    let tries: u32 = tries[0].get::<String, _>(0).parse().unwrap();
    assert!(tries > 3, "the disk was full {tries} times while the commit was in doubt");
    drop(store);
    let next = open(database.config("node-2")).await;
    for record in [first, second] {
        assert_eq!(next.effect(record.record_id).await.unwrap(), Some(record));
    }
}
