//! `placet serve --ledger postgres://…`: one ledger for several processes, on a real server.
//!
//! Owns what callers, approvers and operators see of it, from outside; the store by itself is tested where it is.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{
    client::text,
    placet::Placet,
    postgres::Database,
    setup::{Ran, Setup, files_policy, plan},
    until,
};
use crate::workspace;

fn delete(name: &str, step: &str) -> Value {
    plan("files__delete", step, json!({ "path": name }))
}

fn write(name: &str, step: &str) -> Value {
    plan("files__write", step, json!({ "path": name, "content": "x" }))
}

#[tokio::test]
async fn a_retry_is_replayed_after_a_restart_and_after_a_kill() {
    let database = Database::start().await;
    // The address on the command line alone.
    let setup = Setup::new().arg("--ledger").arg(&database.url);
    let first = setup.start().await;
    let done = setup.agent(&first).await.call(&write("a.txt", "s1")).await.succeeded();
    assert_eq!(done["replayed"], false);
    first.stop().await;
    for _ in 0..2 {
        fs::remove_file(setup.file("a.txt")).unwrap_or_default();
        let next = setup.start().await;
        let agent = setup.agent(&next).await;
        let again = agent.call(&write("a.txt", "s1")).await.succeeded();
        assert_eq!(
            (&again["replayed"], &again["tool_call_id"]),
            (&json!(true), &done["tool_call_id"])
        );
        assert!(!setup.file("a.txt").try_exists().unwrap(), "it was written again");
        let other = delete("b.txt", "s1");
        assert_ne!(agent.call(&other).await.status, 200, "another call under the same key");
        next.kill().await;
    }
    assert_eq!(database.epochs().await, 3);
}

#[tokio::test]
async fn what_is_held_on_one_node_and_approved_there_is_answered_by_the_other() {
    let database = Database::start().await;
    let (one, two) = database.two_nodes().await;
    let (a, b) = (one.start().await, two.start().await);
    one.put("a.txt", "x");
    let held = one.agent(&a).await.call(&delete("a.txt", "s1")).await.held();
    // The same call on the other node attaches to it.
    let elsewhere = two.agent(&b).await;
    assert_eq!(elsewhere.call(&delete("a.txt", "s1")).await.held()["call_id"], held["call_id"]);
    one.ben(&a).await.decide(&held, "approve").await.ok();
    let result = elsewhere.end_of(&text(&held, "call_id")).await.succeeded();
    assert!(!one.file("a.txt").try_exists().unwrap());
    one.put("a.txt", "made again");
    for (setup, node) in [(&one, &a), (&two, &b)] {
        let again = setup.agent(node).await.call(&delete("a.txt", "s1")).await.succeeded();
        assert_eq!(again["tool_call_id"], result["tool_call_id"]);
    }
    assert!(one.file("a.txt").try_exists().unwrap(), "it ran on both nodes");
    // Decided already, on whichever node.
    let second = two.ben(&b).await.decide(&held, "approve").await;
    assert_ne!(second.status, 200, "{second:?}");
}

#[tokio::test]
async fn what_became_of_a_call_is_news_on_the_node_that_neither_asked_nor_ran_it() {
    let database = Database::start().await;
    let (one, two) = database.two_nodes().await;
    let (a, b) = (one.start().await, two.start().await);
    let mut news = two.ben(&b).await.approval_events().await;
    one.put("a.txt", "x");
    let held = one.agent(&a).await.call(&delete("a.txt", "s1")).await.held();
    let approval = text(&held, "approval_id");
    // It was not over between two looks at the records.
    news.until("asked", &approval).await;
    one.ben(&a).await.decide(&held, "approve").await.ok();
    let call = text(&held, "call_id");
    let told = news.until("settled", &approval).await;
    assert_eq!(told["call_id"], call.as_str(), "{told:#}");
    two.agent(&b).await.end_of(&call).await.succeeded();
    assert!(!one.file("a.txt").try_exists().unwrap());
}

#[tokio::test]
async fn a_node_that_is_killed_is_taken_over_with_what_it_held_and_what_it_had_sent() {
    let database = Database::start().await;
    let (one, two) = database.two_nodes().await;
    let one = one.arg("--inject-pause-after-effect-ms").arg("60000");
    let (a, b) = (one.start().await, two.start().await);
    one.put("held.txt", "x");
    let held = one.agent(&a).await.call(&delete("held.txt", "s1")).await.held();
    let agent = one.agent(&a).await;
    let request = agent
        .request(http::Method::POST, "/v1/calls")
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&write("sent.txt", "s2")).unwrap().into())
        .unwrap();
    let sending = tokio::spawn(async move { agent.is_answered_to(request).await });
    until("the effect has happened", || async { one.file("sent.txt").try_exists().unwrap() }).await;
    a.kill().await;
    assert!(!sending.await.unwrap(), "a killed process answered");
    fs::write(one.file("sent.txt"), "untouched since").unwrap();

    let agent = two.agent(&b).await;
    // What was held waits for people still, and runs here.
    two.ben(&b).await.decide(&held, "approve").await.ok();
    agent.end_of(&text(&held, "call_id")).await.succeeded();
    assert!(!one.file("held.txt").try_exists().unwrap());
    // What was sent may have happened: nobody sends it again.
    until("the call of the dead node is unknown", || async {
        agent.call(&write("sent.txt", "s2")).await.status == 409
    })
    .await;
    let problem = agent.call(&write("sent.txt", "s2")).await.refused(409, "OUTCOME_UNKNOWN");
    assert_eq!(problem["execution"], "unknown");
    assert_eq!(fs::read_to_string(one.file("sent.txt")).unwrap(), "untouched since");
    let listed = two.ben(&b).await.get("/v1/ledger?state=indeterminate").await.ok();
    assert_eq!(listed["records"].as_array().unwrap().len(), 1, "{listed:#}");
    assert_eq!(
        database.number("SELECT count(*) FROM placet.epochs WHERE fenced_by IS NOT NULL").await,
        1
    );
    // The dead node comes back, and knows what became of its calls.
    let back = one.without_args();
    let a = back.start().await;
    let again = back.agent(&a).await.call(&delete("held.txt", "s1")).await.succeeded();
    assert_eq!(again["replayed"], true);
    back.agent(&a).await.call(&write("sent.txt", "s2")).await.refused(409, "OUTCOME_UNKNOWN");
}

/// Sets a setting of the server and waits until it counts.
async fn set(database: &Database, setting: &str, value: &str) {
    let server = &database.server;
    server.ask(&format!("ALTER SYSTEM SET {setting} = {value}")).await.unwrap();
    server.ask("SELECT pg_reload_conf()").await.unwrap();
    until("the server has reloaded", || async {
        server.ask(&format!("SHOW {setting}")).await.unwrap() == value
    })
    .await;
}

#[tokio::test]
async fn a_server_that_would_lose_what_it_acknowledged_is_refused_by_name() {
    let database = Database::start().await;
    let setup = database.node("one");
    for setting in ["fsync", "full_page_writes"] {
        set(&database, setting, "off").await;
        let gone = setup.refuses().await;
        gone.says(&[&format!("`{setting}` is `off`"), "set it to `on`"]);
        let doctor = setup.configured(&["doctor"]).await;
        assert_eq!(doctor.code, Some(1), "{doctor:?}");
        assert!(doctor.out.contains(&format!("`{setting}` is `off`")), "{doctor:?}");
        set(&database, setting, "on").await;
    }
    // Also where it is set for the database alone.
    let name = database.server.database();
    let alter = format!("ALTER DATABASE {name} SET synchronous_commit = off");
    database.server.ask(&alter).await.unwrap();
    setup.refuses().await.says(&["`synchronous_commit` is `off`"]);
    database.server.ask(&format!("ALTER DATABASE {name} RESET synchronous_commit")).await.unwrap();
    setup.start().await.stop().await;
}

#[tokio::test]
async fn a_wrong_password_and_an_unreachable_server_are_told_without_the_password() {
    const SECRET: &str = "n0t-the-p4ssword";
    let database = Database::start().await;
    let server = &database.server;
    server.ask("CREATE ROLE ada LOGIN PASSWORD 'another'").await.unwrap();
    // Everybody else needs none, as before.
    server
        .ask(
            "DO $$ BEGIN EXECUTE format('COPY (VALUES (''host all ada all scram-sha-256''), (''host all all all trust'')) TO %L', \
             current_setting('hba_file')); END $$",
        )
        .await
        .unwrap();
    server.ask("SELECT pg_reload_conf()").await.unwrap();
    let asked = database.url.replace("placet@", "ada@");
    assert_ne!(asked, database.url);
    let free = placet_testkit::port::free_port().unwrap();
    let away = format!("postgres://ada@127.0.0.1:{free}/placet");
    for (address, words) in
        [(asked, ["password authentication failed", "ada"]), (away, ["takes writes", "127.0.0.1"])]
    {
        let mut ledger = database.ledger("one");
        ledger["store"] = json!(address);
        ledger["wait_ms"] = json!(1_000);
        ledger["password"] = json!({ "file": "password" });
        let in_a_file = Setup::new().with("ledger", ledger);
        fs::write(in_a_file.path("password"), format!("{SECRET}\n")).unwrap();
        let with = address.replace("ada@", &format!("ada:{SECRET}@"));
        let on_the_line = Setup::new().arg("--ledger").arg(&with);
        for setup in [in_a_file, on_the_line] {
            let gone = setup.refuses().await;
            gone.says(&words);
            assert!(!gone.said.contains(SECRET), "{}", gone.said);
        }
    }
}

fn ledger_check(ran: &Ran) -> Value {
    let checks: Value = serde_json::from_str(&ran.out).unwrap();
    let found = checks.as_array().unwrap().iter().find(|check| check["about"] == "ledger").cloned();
    found.unwrap_or_else(|| panic!("{ran:?}"))
}

#[tokio::test]
async fn the_doctor_says_how_the_database_is_and_writes_nothing() {
    let database = Database::start().await;
    let setup = database.node("one");
    let check = ledger_check(&setup.configured(&["doctor", "--json"]).await);
    assert_eq!(check["level"], "ok", "{check:#}");
    assert!(text(&check, "found").contains("no tables yet"), "{check:#}");
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'placet'";
    assert_eq!(database.number(schemas).await, 0, "the doctor made tables");
    // Nothing could be checked, which is no finding.
    for (command, code) in [(["ledger", "fsck"], 3), (["audit", "verify"], 1)] {
        let ran = setup.configured(&command).await;
        assert!(ran.code == Some(code), "{ran:?}");
        assert!(ran.err.contains("no ledger can be read there"), "{ran:?}");
        assert!(!ran.err.contains("damaged"), "{ran:?}");
    }

    let placet = setup.start().await;
    let before = database.epochs().await;
    for _ in 0..3 {
        let ran = setup.configured(&["doctor", "--json"]).await;
        let check = ledger_check(&ran);
        assert_eq!(check["level"], "ok", "{check:#}");
        assert!(text(&check, "found").contains("1 nodes at work"), "{check:#}");
    }
    assert_eq!(database.epochs().await, before, "the doctor took an epoch");
    // It goes on as before.
    setup.agent(&placet).await.call(&write("a.txt", "s1")).await.succeeded();
    placet.stop().await;

    // A role that may not use the tables.
    database.server.ask("CREATE ROLE clerk LOGIN").await.unwrap();
    database.server.ask_data("GRANT USAGE ON SCHEMA placet TO clerk").await.unwrap();
    database.server.ask_data("GRANT SELECT ON ALL TABLES IN SCHEMA placet TO clerk").await.unwrap();
    let mut ledger = database.ledger("one");
    ledger["store"] = json!(database.url.replace("placet@", "clerk@"));
    let ran = Setup::new().with("ledger", ledger).configured(&["doctor", "--json"]).await;
    let check = ledger_check(&ran);
    assert_eq!((&check["level"], ran.code), (&json!("fail"), Some(1)), "{check:#}");
    assert!(text(&check, "found").contains("lacks the right"), "{check:#}");
}

/// Verifies, expecting this exit code.
async fn verified(setup: &Setup, arguments: &[&str], code: i32) -> Value {
    let words = [&["audit", "verify", "--json"], arguments].concat();
    let ran = setup.configured(&words).await;
    assert_eq!(ran.code, Some(code), "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

async fn printed(setup: &Setup, placet: &Placet, arguments: &[&str]) -> String {
    let token = setup.token("agent", "dev-agent").await;
    setup.asks(placet, &token, arguments).await.ok().to_owned()
}

#[tokio::test]
async fn the_logs_of_a_database_verify_beside_a_running_node_and_one_changed_byte_is_found() {
    let database = Database::start().await;
    let setup = database.node("one");
    let first = setup.start().await;
    let agent = setup.agent(&first).await;
    let done = agent.call(&write("a.txt", "s1")).await.succeeded();
    agent.call(&write("b.txt", "s2")).await.succeeded();
    // A checkpoint is signed once for each head.
    let ben = setup.ben(&first).await;
    let checkpoints = ben.get("/v1/audit/checkpoints").await.ok();
    assert_eq!(ben.get("/v1/audit/checkpoints").await.ok(), checkpoints, "signed again");
    let beside = verified(&setup, &[], 0).await;
    assert_eq!((&beside["ok"], &beside["logs"][0]["log"]), (&json!(true), &json!("epoch-1")));
    assert_eq!(beside["logs"][0]["sealed_entries"], checkpoints["checkpoints"][0]["size"]);
    // A receipt is checked with the public key alone.
    let key = printed(&setup, &first, &["audit", "key"]).await;
    let call = text(&done, "tool_call_id");
    let receipt = setup.path("receipt");
    fs::write(&receipt, printed(&setup, &first, &["audit", "receipt", &call]).await).unwrap();
    let receipt = receipt.to_str().unwrap();
    let words = ["audit", "verify-receipt", receipt, "--key", key.trim(), "--json"];
    assert_eq!(setup.bare(&words).await.json()["claims"]["log"], "placet/epoch-1");
    first.stop().await;

    let second = setup.start().await;
    setup.agent(&second).await.call(&write("c.txt", "s3")).await.succeeded();
    second.stop().await;
    let sound = verified(&setup, &[], 0).await;
    assert_eq!(sound["logs"].as_array().unwrap().len(), 2, "{sound:#}");
    let head = text(&sound["logs"][0], "head");
    verified(&setup, &["--head", &head], 0).await;
    verified(&setup, &["--head", &"ab".repeat(32)], 1).await;
    exported(&setup, &sound).await;

    // A byte of an entry; an entry with everything after it, the end moved along; a log as a whole.
    let change = "UPDATE placet.entries SET payload = overlay(payload placing ' '::bytea from 1 for 0) WHERE epoch = 1 AND seq = 2";
    for (change, wanted) in [
        (change, "entry 2 is not what its hash says"),
        ("DELETE FROM placet.entries WHERE epoch = 1 AND seq = 2", "where entry 2 is due"),
        ("DELETE FROM placet.entries WHERE epoch = 1 AND seq > 2", "there are 2 entries"),
        ("DELETE FROM placet.epochs WHERE epoch = 1", "there is no log `epoch-1`"),
    ] {
        let keep = "CREATE TABLE kept_entries AS TABLE placet.entries; CREATE TABLE kept_epochs AS TABLE placet.epochs";
        database.server.ask_data(keep).await.unwrap();
        database.server.ask_data(change).await.unwrap();
        let found = verified(&setup, &[], 1).await;
        let problems = found["problems"].to_string();
        assert!(problems.contains(wanted), "{change}: {found:#}");
        assert!(!problems.contains("log `epoch-2`"), "the other log is sound: {found:#}");
        let back = "DELETE FROM placet.entries; DELETE FROM placet.epochs; INSERT INTO placet.entries TABLE kept_entries; \
                    INSERT INTO placet.epochs TABLE kept_epochs; DROP TABLE kept_entries; DROP TABLE kept_epochs";
        database.server.ask_data(back).await.unwrap();
    }
    verified(&setup, &[], 0).await;
}

/// Exports: one log to a file, all of them to a folder.
async fn exported(setup: &Setup, sound: &Value) {
    let file = setup.path("log.jsonl");
    let file = file.to_str().unwrap();
    let several = setup.configured(&["audit", "export", file]).await;
    assert_ne!(several.code, Some(0), "two logs in a file: {several:?}");
    assert!(several.err.contains("epoch-1, epoch-2") && several.err.contains("--log"));
    let none = setup.configured(&["audit", "export", file, "--log", "epoch-9"]).await;
    assert_ne!(none.code, Some(0), "{none:?}");
    setup.configured(&["audit", "export", file, "--log", "epoch-2"]).await.ok();
    let folder = setup.path("logs");
    fs::create_dir(&folder).unwrap();
    setup.configured(&["audit", "export", folder.to_str().unwrap()]).await.ok();
    for log in sound["logs"].as_array().unwrap() {
        let text =
            fs::read_to_string(folder.join(format!("{}.jsonl", log["log"].as_str().unwrap())));
        let lines: Vec<Value> =
            text.unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(json!(lines[1..].len()), log["entries"]);
        assert_eq!(lines[0]["origin"], format!("placet/{}", log["log"].as_str().unwrap()));
        assert_eq!(lines.last().unwrap()["hash"], log["head"]);
    }
    let alone = fs::read(setup.path("log.jsonl")).unwrap();
    assert_eq!(alone, fs::read(folder.join("epoch-2.jsonl")).unwrap());
}

/// The shipped policies with a word more, that changes nothing but their digest.
fn other_policies(setup: &Setup) {
    let folder = setup.path("policies");
    fs::create_dir(&folder).unwrap();
    for file in fs::read_dir(workspace::root().join("policies")).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "cedar") {
            fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
        }
    }
    files_policy(setup);
    fs::write(folder.join("99-other.cedar"), "// Another bundle.\n").unwrap();
}

#[tokio::test]
async fn a_node_with_replaced_policies_does_not_start_unless_an_operator_says_so() {
    let database = Database::start().await;
    let (one, two) = database.two_nodes().await;
    let (a, b) = (one.start().await, two.start().await);
    a.stop().await;
    other_policies(&one);
    let one = one.with("policies", json!("policies"));
    let a = one.start().await;
    one.agent(&a).await.call(&write("a.txt", "s1")).await.succeeded();
    // The other one was left behind; what restarts it does not bring its policies back.
    b.kill().await;
    let gone = two.refuses().await;
    gone.says(&[
        "was active before",
        "was replaced at",
        "--roll-back-policies 2",
        "the other nodes have",
    ]);
    assert!(!gone.status.success());
    one.agent(&a).await.call(&write("b.txt", "s2")).await.succeeded();
    let wrong = two.arg("--roll-back-policies").arg("1");
    wrong.refuses().await.says(&["--roll-back-policies 2"]);
    let two = wrong.without_args().arg("--roll-back-policies").arg("2");
    let b = two.start().await;
    two.agent(&b).await.call(&write("c.txt", "s3")).await.succeeded();
    let lacks_them = || async { a.ask("/readyz").await.status == 503 };
    until("the other node lacks the active policies", lacks_them).await;
    let noted = "SELECT count(*) FROM placet.entries WHERE convert_from(payload, 'UTF8') LIKE '%a roll-back: %'";
    assert_eq!(database.number(noted).await, 1);
    // The option is used up: with the new policies active again it brings nothing back.
    a.stop().await;
    let again = one.arg("--roll-back-policies").arg("3");
    let a = again.start().await;
    b.kill().await;
    two.refuses().await.says(&["--roll-back-policies 4"]);
    a.stop().await;
}

#[tokio::test]
async fn no_node_begins_a_write_inside_a_freeze_that_another_one_has_acknowledged() {
    let database = Database::start().await;
    let people = json!({
        "groups": { "approvers": {}, "operators": {}, "freeze-approvers": {}, "emergency": {} },
        "users": { "ana": { "groups": [] }, "ben": { "groups": ["approvers", "operators", "freeze-approvers", "emergency"] } },
        "agents": { "dev-agent": { "owner": "ana" } },
    });
    let nodes = database.nodes(["one", "two", "three"]).await.map(|node| {
        let directory = json!({ "tenants": { "local": people } }).to_string();
        fs::write(node.path("directory.yaml"), directory).unwrap();
        node.with("directory", json!("directory.yaml"))
    });
    let mut running = Vec::new();
    for node in &nodes {
        running.push(node.start().await);
    }
    for round in 0..3 {
        let freezing = &nodes[round % 3];
        let ben = freezing.ben(&running[round % 3]).await;
        let wanted = json!({ "arrange": { "kind": "freeze", "name": "now" }, "reason": "closed", "lasts_ms": 3_600_000 });
        let entry = ben.post("/v1/directives", &wanted).await.ok();
        // Not one of them looks first: each has what it read a moment ago.
        for (number, (node, placet)) in nodes.iter().zip(&running).enumerate() {
            let name = format!("r{round}-{number}.txt");
            node.agent(placet).await.call(&write(&name, &name)).await.held();
            assert!(!node.file(&name).try_exists().unwrap(), "{name} was written in the freeze");
        }
        let end = json!({ "act": "end", "reason": "over" });
        ben.post(&format!("/v1/directives/{}/acts", text(&entry, "directive_id")), &end).await.ok();
        // That less is forbidden they learn within their next rounds.
        for (number, (node, placet)) in nodes.iter().zip(&running).enumerate() {
            let agent = node.agent(placet).await;
            let tries = std::cell::Cell::new(0_u32);
            until("each node knows that it is over", || async {
                tries.set(tries.get() + 1);
                let name = format!("after-{round}-{number}-{}.txt", tries.get());
                agent.call(&write(&name, &name)).await.status == 200
            })
            .await;
        }
    }
}
