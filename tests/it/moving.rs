//! From the embedded ledger to a database, through `placet ledger export` and `import`.
//!
//! Owns what operators and callers see of it: nothing is missing, and nothing runs again.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{
    client::text,
    placet::Placet,
    postgres::Database,
    setup::{Setup, plan},
};

fn write(name: &str, step: &str) -> Value {
    plan("files__write", step, json!({ "path": name, "content": "x" }))
}

fn delete(name: &str, step: &str) -> Value {
    plan("files__delete", step, json!({ "path": name }))
}

fn ids(records: &Value) -> impl Iterator<Item = String> {
    records.as_array().unwrap().iter().map(|record| text(record, "record_id"))
}

/// The ids of all records, page by page, the last changed one first.
async fn in_pages(setup: &Setup, placet: &Placet) -> Vec<String> {
    let ben = setup.ben(placet).await;
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = ben.get(&format!("/v1/ledger?limit=7{after}")).await.ok();
        found.splice(0..0, ids(&page["records"]).collect::<Vec<_>>().into_iter().rev());
        match page["next_after"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return found,
        }
    }
}

/// `placet ledger list` and the approvals, as an operator gets them.
async fn listed(setup: &Setup, placet: &Placet) -> (String, Value, Value) {
    let token = setup.token("user", "ben").await;
    let table = setup.asks(placet, &token, &["ledger", "list"]).await.ok().to_owned();
    let records = setup.asks(placet, &token, &["ledger", "--json", "list"]).await.json();
    assert_eq!(in_pages(setup, placet).await, ids(&records).collect::<Vec<_>>());
    let approvals = setup.ben(placet).await.get("/v1/approvals?state=pending").await.ok();
    (table, records, approvals)
}

async fn export(setup: &Setup, name: &str) -> (String, Value) {
    let file = setup.path(name).to_str().unwrap().to_owned();
    let counts = setup.configured(&["ledger", "--json", "export", &file]).await.json();
    (file, counts)
}

fn same_counts(before: &Value, after: &Value, names: &[&str]) {
    for name in names {
        assert!(before[*name].as_u64().is_some(), "{before:#}");
        assert_eq!(before[*name], after[*name], "{name}: {before:#} {after:#}");
    }
}

const ALL: [&str; 5] = ["entries", "records", "approvals", "runs", "contents"];

/// The set-up of another ledger with the key for tokens and the files of this one.
fn beside(setup: &Setup, other: Setup) -> Setup {
    fs::copy(setup.data().join("dev-key.jwk"), other.data().join("dev-key.jwk")).unwrap();
    let files = setup.data().join("files/local");
    for entry in fs::read_dir(files).unwrap() {
        let entry = entry.unwrap();
        other.put(entry.file_name().to_str().unwrap(), "x");
    }
    other
}

#[tokio::test]
async fn a_ledger_moves_to_a_database_and_loses_nothing() {
    let database = Database::start().await;
    let home = Setup::new();
    let placet = home.start().await;
    let agent = home.agent(&placet).await;
    for step in 0..20 {
        agent.call(&write(&format!("{step}.txt"), &format!("s{step}"))).await.succeeded();
    }
    let refused = agent.call(&delete("3.txt", "denied")).await.held();
    home.ben(&placet).await.decide(&refused, "deny").await.ok();
    let waiting = agent.call(&delete("1.txt", "waits")).await.held();
    let before = listed(&home, &placet).await;
    let key = text(&home.ben(&placet).await.get("/v1/audit/key").await.ok(), "vkey");
    placet.stop().await;
    let (file, exported) = export(&home, "home.jsonl").await;
    assert_eq!(exported["records"], 22, "{exported:#}");

    let there = beside(&home, database.node("one"));
    let imported = there.configured(&["ledger", "--json", "import", &file]).await.json();
    same_counts(&exported, &imported, &ALL);
    let again = there.configured(&["ledger", "import", &file]).await;
    assert_ne!(again.code, Some(0), "imported into a ledger that is not empty: {again:?}");
    let placet = there.start().await;
    assert_eq!(listed(&there, &placet).await, before);
    let agent = there.agent(&placet).await;
    // What was done is replayed; what was held is held still, and runs once somebody agrees.
    fs::remove_file(there.file("0.txt")).unwrap();
    assert_eq!(agent.call(&write("0.txt", "s0")).await.succeeded()["replayed"], true);
    assert!(!there.file("0.txt").try_exists().unwrap(), "it was written again");
    assert_eq!(
        agent.call(&delete("1.txt", "waits")).await.held()["approval_id"],
        waiting["approval_id"]
    );
    there.ben(&placet).await.decide(&waiting, "approve").await.ok();
    agent.end_of(&text(&waiting, "call_id")).await.succeeded();
    placet.stop().await;
    let (file, _) = export(&there, "there.jsonl").await;
    there.configured(&["audit", "verify"]).await.ok();
    // What the first ledger signed is compared with its own log, which came along.
    let note = home.data().join("ledger/sealed/journal.note").display().to_string();
    let verify = ["audit", "verify", "--key", &key, "--checkpoint", &note];
    let verified = there.configured(&verify).await;
    let of_journal = verified.ok().lines().find(|line| line.contains("journal: ")).unwrap();
    assert!(of_journal.contains("signed checkpoint"), "{verified:?}");
    what_is_wrong_with_a_database_is_found(&database, &there).await;
    // Nor is what was executed in the database executed again by a ledger of the same folder.
    let alone = there.with("ledger", json!({}));
    alone.refuses().await.says(&["node of a database", "--ledger"]);
    assert!(!alone.data().join("ledger/journal").try_exists().unwrap());
    let looked_at = alone.configured(&["doctor"]).await;
    assert!(looked_at.code == Some(1) && looked_at.out.contains("node of a database"));

    // There is no way back into a data folder, and nothing is left of the try.
    let back = beside(&alone, Setup::new());
    let refused = back.configured(&["ledger", "import", &file]).await;
    let says = "an export of a database is imported into a database";
    assert!(refused.code == Some(1) && refused.err.contains(says), "{refused:?}");
    back.start().await.stop().await;
}

/// Altered and lost contents and an altered entry, one after the other; nothing else is asked of the database afterwards.
async fn what_is_wrong_with_a_database_is_found(database: &Database, node: &Setup) {
    let sound = node.configured(&["ledger", "fsck"]).await;
    assert!(sound.ok().contains("content  ok: "), "{sound:?}");
    let changed = |what: &str| format!("WITH c AS ({what} RETURNING 1) SELECT count(*) FROM c");
    for (change, finding) in [
        ("UPDATE placet.content SET bytes = 'x'", "WRONG: content"),
        ("DELETE FROM placet.content", "are lost"),
        ("UPDATE placet.entries SET at_ms = at_ms + 1 WHERE seq = 3", "WRONG: log `"),
    ] {
        assert_ne!(database.number(&changed(change)).await, 0, "{change}");
        let found = node.configured(&["ledger", "fsck"]).await;
        assert!(found.code == Some(1) && found.out.contains(finding), "{found:?}");
    }
    let found = node.configured(&["ledger", "fsck", "--json"]).await;
    assert!(found.out.contains("\"ok\": false"), "{found:?}");
}
