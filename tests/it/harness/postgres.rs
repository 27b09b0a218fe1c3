//! A private PostgreSQL server, and nodes that share a database of it.
//!
//! Owns what nodes have in common: the database, the key of development tokens, the files they work on. The server itself is
//! `placet-testkit`'s.

use std::{fs, path::Path};

use placet_testkit::{machine::Machine, postgres::Postgres};
use serde_json::{Value, json};

use super::{setup::Setup, watcher, within};
use crate::workspace;

/// A server with one database.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) server: Postgres,
    pub(crate) url: String,
}

impl Database {
    pub(crate) async fn start() -> Self {
        let machine = Machine::look();
        let starting = Postgres::start(&machine);
        let mut server = within("a database server starts", starting).await.unwrap();
        watcher::watch(server.primary_pid());
        let url = server.fresh_database().await.unwrap();
        Self { server, url }
    }

    /// A set-up on this database.
    pub(crate) fn node(&self, name: &str) -> Setup {
        Setup::new().with("ledger", self.ledger(name))
    }

    /// The part of the configuration.
    pub(crate) fn ledger(&self, name: &str) -> Value {
        json!({ "store": self.url, "node": name, "lease_ms": 1_000, "checkpoint_every_s": 1 })
    }

    /// Two nodes whose `files` are the first one's, with the same key for development tokens.
    pub(crate) async fn two_nodes(&self) -> (Setup, Setup) {
        let [first, second] = self.nodes(["one", "two"]).await;
        (first, second)
    }

    /// The same of as many nodes as there are names.
    pub(crate) async fn nodes<const N: usize>(&self, names: [&str; N]) -> [Setup; N] {
        let nodes = names.map(|name| self.node(name));
        let first = &nodes[0];
        first.token("agent", "dev-agent").await;
        for node in &nodes[1..] {
            fs::create_dir_all(node.data()).unwrap();
            fs::copy(key(first), key(node)).unwrap();
        }
        let files = first.data().join("files");
        fs::create_dir_all(&files).unwrap();
        nodes.map(|node| sharing(node, &files))
    }

    /// The one number that a question is answered with.
    pub(crate) async fn number(&self, sql: &str) -> u64 {
        self.server.ask_data(sql).await.unwrap().parse().unwrap()
    }

    /// How many starts there were.
    pub(crate) async fn epochs(&self) -> u64 {
        self.number("SELECT count(*) FROM placet.epochs").await
    }
}

fn key(setup: &Setup) -> std::path::PathBuf {
    setup.data().join("dev-key.jwk")
}

fn sharing(setup: Setup, files: &Path) -> Setup {
    let sample = workspace::read("adapters/files/contracts/files.yaml");
    let mut contract: Value = serde_saphyr::from_str(&sample).unwrap();
    contract["transport"]["root"] = json!(files);
    setup.contract("files", &contract)
}
