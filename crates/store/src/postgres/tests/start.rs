//! What a node finds at its start, and refuses.

use super::*;
use crate::postgres::DatabaseUrl;

async fn refusal(config: PostgresConfig) -> OpenError {
    PostgresStore::open(config).await.expect_err("the store does not open")
}

/// The setting that the server is refused for.
async fn unsafe_setting(config: PostgresConfig) -> &'static str {
    match refusal(config).await {
        OpenError::Unsafe { setting, .. } => setting,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_server_that_may_lose_what_it_acknowledged_is_refused() {
    let server = Server::start(&[]);
    let database = server.database().await;
    let config = || database.config("node-1");
    for (setting, value, safe) in [
        ("fsync", "off", "on"),
        ("full_page_writes", "off", "on"),
        ("zero_damaged_pages", "on", "off"),
        ("synchronous_commit", "off", "on"),
    ] {
        server.set(setting, value).await;
        assert_eq!(unsafe_setting(config()).await, setting);
        server.set(setting, safe).await;
    }
    // Without standbys, these are as good as `on`; with them, a failover may lose what was acknowledged.
    for value in ["local", "remote_write"] {
        let name = &database.name;
        drop(
            database.sql(&format!("ALTER DATABASE {name} SET synchronous_commit = {value}")).await,
        );
        let store = open(config()).await;
        store.close().await.unwrap();
        server.set("synchronous_standby_names", "*").await;
        assert_eq!(unsafe_setting(config()).await, "synchronous_commit");
        server.set("synchronous_standby_names", "").await;
    }
}

#[tokio::test]
async fn a_commit_waits_for_the_disk_whatever_the_server_was_set_to_meanwhile() {
    let server = Server::start(&[]);
    let database = server.database().await;
    // So long that the node does not ask the server again during the test.
    let lease = Duration::from_secs(600);
    let store = open(PostgresConfig { lease, ..database.config("node-1") }).await;
    let watched = "CREATE TABLE public.seen (value text NOT NULL); \
        CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS \
          'BEGIN INSERT INTO public.seen VALUES (current_setting(''synchronous_commit'')); RETURN NULL; END'; \
        CREATE TRIGGER see AFTER INSERT ON placet.entries EXECUTE FUNCTION public.see()";
    let mut stranger = database.connect().await;
    sqlx::raw_sql(watched).execute(&mut stranger).await.unwrap();
    // Its connections were made while the server was safe; a new one would be refused.
    dispatch(&store, "before").await.unwrap();
    database.sql("DELETE FROM public.seen").await;
    for (set, expected) in [("off", "on"), ("remote_apply", "remote_apply")] {
        server.set("synchronous_commit", set).await;
        dispatch(&store, set).await.unwrap();
        let seen = database.sql("SELECT DISTINCT value FROM public.seen").await;
        let seen: Vec<String> = seen.iter().map(|row| sqlx::Row::get(row, "value")).collect();
        assert_eq!(seen, [expected], "the server is set to `{set}`");
        database.sql("DELETE FROM public.seen").await;
    }
}

#[tokio::test]
async fn a_server_that_becomes_unsafe_stops_the_store() {
    let server = Server::start(&[]);
    let database = server.database().await;
    let lease = Duration::from_millis(600);
    let store = open(PostgresConfig { lease, ..database.config("node-1") }).await;
    server.set("fsync", "off").await;
    let said = death(&store).await;
    assert!(said.contains("`fsync` is `off`"), "{said}");
    let refused = put(&*store, &dispatched(&*store, &claim(&*store, "key"))).await;
    assert!(matches!(refused, Err(StoreError::Stopped(_))), "{refused:?}");
}

#[tokio::test]
async fn a_database_that_takes_no_writes_or_not_every_name_is_refused() {
    let server = Server::shared();
    let database = server.database().await;
    let name = &database.name;
    drop(
        server
            .sql(
                "postgres",
                &format!("ALTER DATABASE {name} SET default_transaction_read_only = on"),
            )
            .await,
    );
    let refused = refusal(database.config("node-1")).await.to_string();
    assert!(refused.contains("takes no writes"), "{refused}");
    drop(
        server
            .sql(
                "postgres",
                "CREATE DATABASE narrow TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'",
            )
            .await,
    );
    let narrow = Database { name: "narrow".to_owned(), ..database };
    assert_eq!(unsafe_setting(narrow.config("node-1")).await, "server_encoding");
}

#[tokio::test]
async fn what_is_wrong_with_the_address_is_said_without_its_password() {
    let server = Server::shared();
    drop(server.sql("postgres", "CREATE ROLE ada LOGIN PASSWORD 'right'").await);
    let port = server.port();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (url, wanted) in [
        (
            format!("postgres://ada:s3cret@127.0.0.1:{port}/postgres"),
            "password authentication failed",
        ),
        (format!("postgres://ada:right@127.0.0.1:{port}/nowhere"), "\"nowhere\" does not exist"),
        (format!("postgres://ada:s3cret@127.0.0.1:{free}/postgres"), "no database at `127.0.0.1"),
    ] {
        let config = config(&url, "node-1");
        let shown = format!("{config:?} {}", config.url);
        let error = refusal(config).await;
        let said = format!("{error} {error:?} {shown}");
        assert!(said.contains(wanted), "{said}");
        assert!(!said.contains("s3cret") && !said.contains("right"), "{said}");
    }
}

#[tokio::test]
async fn a_role_without_rights_on_a_table_of_a_later_build_is_told_at_the_start_which_one() {
    let database = database().await;
    let (name, role) = (database.name.clone(), format!("heir_{}", database.name));
    let url = format!("postgres://{role}@127.0.0.1:{}/{name}", database.server.port());
    open(database.config("owner")).await.close().await.unwrap();
    let given = format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA placet TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA placet TO {role}; REVOKE ALL ON placet.console_sessions FROM {role}"
    );
    drop(database.sql(&given).await);
    let refused = PostgresStore::open(config(&url, "heir")).await.unwrap_err();
    assert!(matches!(&refused, OpenError::Refused { .. }), "{refused}");
    let told = refused.to_string();
    assert!(told.contains("`console_sessions`") && told.contains("GRANT SELECT"), "{told}");
    // It was refused before it took an epoch.
    assert_eq!(database.sql("SELECT 1 FROM placet.epochs WHERE node = 'heir'").await.len(), 0);
    drop(
        database
            .sql(&format!(
                "GRANT SELECT, INSERT, UPDATE, DELETE ON placet.console_sessions TO {role}"
            ))
            .await,
    );
    open(config(&url, "heir")).await.close().await.unwrap();
}

#[tokio::test]
async fn a_role_that_may_not_make_tables_is_enough_once_they_are_there() {
    let database = database().await;
    let (name, role) = (database.name.clone(), format!("clerk_{}", database.name));
    drop(database.sql(&format!("CREATE ROLE {role} LOGIN")).await);
    let url = format!("postgres://{role}@127.0.0.1:{}/{name}", database.server.port());
    let refused = refusal(config(&url, "node-1")).await.to_string();
    assert!(refused.contains("make the tables"), "{refused}");
    let first = open(database.config("node-1")).await;
    make(&*first, "key", true).await;
    drop(database.sql(&format!(
        "GRANT USAGE ON SCHEMA placet TO {role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA placet TO {role}"
    )).await);
    let store = open(config(&url, "node-2")).await;
    make(&*store, "other", true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_at_once_make_the_tables_once_and_get_epochs_of_their_own() {
    let database = database().await;
    let mut starts = tokio::task::JoinSet::new();
    for number in 0..8 {
        let config = database.config(&format!("node-{number}"));
        starts.spawn(async move { PostgresStore::open(config).await.expect("the store opens") });
    }
    let stores = starts.join_all().await;
    let mut epochs: Vec<u64> = stores.iter().map(|(store, _)| store.epoch()).collect();
    epochs.sort_unstable();
    assert_eq!(epochs, (1..=8).collect::<Vec<_>>());
    assert!(stores.iter().all(|(_, report)| report.fenced.is_empty()));
    assert_eq!(database.sql("SELECT 1 FROM placet.ledger").await.len(), 1);
}

#[tokio::test]
async fn tables_of_another_build_are_refused() {
    let database = database().await;
    open(database.config("node-1")).await.close().await.unwrap();
    drop(database.sql("UPDATE placet.ledger SET schema_digest = 'x'").await);
    let refused = refusal(database.config("node-1")).await;
    assert!(
        matches!(&refused, OpenError::Schema { why } if why.contains("another build")),
        "{refused}"
    );
}

#[tokio::test]
async fn a_node_that_starts_again_fences_whom_it_was_before() {
    let database = database().await;
    let before = open(database.config("node-1")).await;
    let other = open(database.config("node-2")).await;
    let sent = dispatch(&before, "key").await.unwrap();
    let (after, report) = PostgresStore::open(database.config("node-1")).await.unwrap();
    assert_eq!((report.fenced, report.others), (vec![before.epoch()], 1));
    let late = put(&*before, &succeeded(&sent)).await.unwrap_err().to_string();
    assert!(late.contains("another process was started as node `node-1`"), "{late}");
    assert!(death(&before).await.contains("`ledger.node`"));
    make(&*other, "other", true).await;
    // A node that ended in order has nothing to be fenced.
    after.close().await.unwrap();
    let unknown =
        "UPDATE placet.effects SET state = 'indeterminate' WHERE call_id = 'call-acme-key'";
    drop(database.sql(unknown).await);
    let (_again, report) = PostgresStore::open(database.config("node-1")).await.unwrap();
    assert_eq!((report.fenced, report.indeterminate), (Vec::new(), 1));
}

#[tokio::test]
async fn an_old_copy_of_the_database_is_recognised_by_the_witness() {
    let server = Server::start(&[]);
    let database = server.database().await;
    let folder = tempfile::tempdir().unwrap();
    let config = || PostgresConfig {
        witness: Some(folder.path().to_owned()),
        lease: Duration::from_millis(600),
        ..database.config("node-1")
    };
    let store = open(config()).await;
    make(&*store, "first", true).await;
    store.close().await.unwrap();
    server.stop(Stop::Fast);
    let copy = server.copy();
    server.up();
    let store = open(config()).await;
    make(&*store, "second", true).await;
    // The witness is written with the next renewal of the lease.
    let witness = folder.path().join("high-water");
    let before = std::fs::read(&witness).ok();
    until("the witness is written", async || std::fs::read(&witness).ok() != before).await;
    store.close().await.unwrap();
    server.stop(Stop::Fast);
    server.restore(&copy);
    server.up();
    let refused = refusal(config()).await;
    assert!(matches!(refused, OpenError::Forgotten { .. }), "{refused}");
    assert!(refused.to_string().contains("high-water"), "{refused}");
    // An operator who accepts the loss deletes the file.
    std::fs::remove_file(&witness).unwrap();
    open(config()).await;
}

#[tokio::test]
async fn of_several_hosts_the_one_that_takes_writes_is_found() {
    let server = Server::shared();
    let database = server.database().await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url =
        format!("postgres://placet@127.0.0.1:{free},127.0.0.1:{}/{}", server.port(), database.name);
    let config =
        PostgresConfig { url: DatabaseUrl::parse(&url).unwrap(), ..database.config("node-1") };
    let store = open(config).await;
    make(&*store, "key", true).await;
}
