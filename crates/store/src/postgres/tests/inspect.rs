//! A look at a database, and that it is nothing but one.

use super::*;
use crate::postgres::{inspect, stats};

#[tokio::test]
async fn a_look_says_what_is_there_and_leaves_no_trace() {
    let database = database().await;
    let config = || database.config("node-1");
    let found = inspect(&config()).await.unwrap();
    assert_eq!(found.nodes, None);
    let schemas = database.sql("SELECT 1 FROM pg_namespace WHERE nspname = 'placet'").await;
    assert!(schemas.is_empty(), "it made tables");

    let (store, _) = PostgresStore::open(config()).await.unwrap();
    assert_eq!(inspect(&config()).await.unwrap().nodes, Some(1));
    // Under the node's own name too nobody is fenced.
    make(&*store, "key", true).await;
    assert_eq!(database.sql("SELECT 1 FROM placet.epochs").await.len(), 1);
    let counted = stats(&config()).await.unwrap();
    assert_eq!(counted.records, [("succeeded".to_owned(), 1)].into());
    assert_eq!((counted.runs, counted.messages, counted.approvals.len()), (0, 0, 0));
    assert!(counted.entries > 0, "{counted:?}");
    assert!(counted.bytes["effects"] > 0 && counted.bytes.contains_key("entries"), "{counted:?}");
    store.close().await.unwrap();
    assert_eq!(inspect(&config()).await.unwrap().nodes, Some(0));
}

#[tokio::test]
async fn a_server_that_waits_for_an_absent_standby_is_found() {
    let server = Server::start(&[]);
    let database = server.database().await;
    server.set("synchronous_standby_names", "zz").await;
    let said = inspect(&database.config("node-1")).await.unwrap_err().to_string();
    assert!(said.contains("`synchronous_standby_names`"), "{said}");
    server.set("synchronous_standby_names", "").await;
    inspect(&database.config("node-1")).await.unwrap();
}

#[tokio::test]
async fn what_a_start_would_be_refused_for_is_found_without_one() {
    let database = database().await;
    let clerk = format!("looker_{}", database.name);
    drop(database.sql(&format!("CREATE ROLE {clerk} LOGIN")).await);
    let url = format!("postgres://{clerk}@127.0.0.1:{}/{}", database.server.port(), database.name);
    let why = async |config: PostgresConfig| inspect(&config).await.unwrap_err().to_string();
    let said = why(config(&url, "node-1")).await;
    assert!(said.contains("may not make a schema"), "{said}");

    open(database.config("node-1")).await.close().await.unwrap();
    let grant = format!(
        "GRANT USAGE ON SCHEMA placet TO {clerk}; GRANT SELECT ON ALL TABLES IN SCHEMA placet TO {clerk}"
    );
    drop(database.sql(&grant).await);
    let said = why(config(&url, "node-1")).await;
    assert!(said.contains("lacks the right") && said.contains("`approvals`"), "{said}");
    let grant = format!("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA placet TO {clerk}");
    drop(database.sql(&grant).await);
    inspect(&config(&url, "node-1")).await.unwrap();

    drop(database.sql("UPDATE placet.ledger SET schema_digest = 'x'").await);
    let said = why(database.config("node-1")).await;
    assert!(said.contains("another build"), "{said}");
}
