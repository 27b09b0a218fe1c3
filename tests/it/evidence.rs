//! What Placet gives others to hold against it: receipts, signed checkpoints, proofs, backups, exports; and what operators do about
//! a call nobody knows the outcome of.
//!
//! Owns the program's side, from outside; how proofs and signatures are made is tested where it is done.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::harness::{
    client::{Client, text},
    placet::Placet,
    setup::{Ran, Setup, plan},
    until,
};

fn write(name: &str, step: &str) -> Value {
    plan("files__write", step, json!({ "path": name, "content": "x" }))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn keep(setup: &Setup, name: &str, content: &str) -> String {
    let path = setup.path(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

/// What a command that asks a running Placet prints for an operator.
async fn printed_for_operator(setup: &Setup, placet: &Placet, arguments: &[&str]) -> String {
    let token = setup.token("user", "ben").await;
    setup.asks(placet, &token, arguments).await.ok().to_owned()
}

/// What a command that asks a running Placet prints for the agent.
async fn printed(setup: &Setup, placet: &Placet, arguments: &[&str]) -> String {
    let token = setup.token("agent", "dev-agent").await;
    setup.asks(placet, &token, arguments).await.ok().to_owned()
}

async fn key(setup: &Setup, placet: &Placet) -> String {
    printed(setup, placet, &["audit", "key"]).await.trim().to_owned()
}

async fn checkpoint(setup: &Setup, placet: &Placet, name: &str) -> (String, Value) {
    let list = setup.ben(placet).await.get("/v1/audit/checkpoints").await.ok();
    let checkpoint = list["checkpoints"][0].clone();
    assert_eq!(checkpoint["log"], "journal", "{list:#}");
    (keep(setup, name, &text(&checkpoint, "note")), checkpoint)
}

fn found(ran: &Ran, words: &[&str]) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for word in words {
        assert!(ran.out.contains(word) || ran.err.contains(word), "`{word}` is not in {ran:?}");
    }
}

#[tokio::test]
async fn a_receipt_verifies_with_the_published_key_alone_and_not_with_a_byte_changed() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let result = agent.call(&write("a.txt", "s1")).await.succeeded();
    let call = text(&result, "tool_call_id");
    let key = key(&setup, &placet).await;
    let receipt = printed(&setup, &placet, &["audit", "receipt", &call]).await;

    // A call that only reads has no record, and so no receipt.
    let read = plan("files__read", "s2", json!({ "path": "a.txt" }));
    let read = text(&agent.call(&read).await.succeeded(), "tool_call_id");
    let none = agent.get(&format!("/v1/calls/{read}/receipt")).await.refused(404, "NOT_FOUND");
    assert!(text(&none, "detail").contains("recorded calls"), "{none:#}");
    // And nobody gets that of another one's call.
    let stranger = setup.client(&placet, "user", "ana").await;
    stranger.get(&format!("/v1/calls/{call}/receipt")).await.refused(404, "NOT_FOUND");
    // An operator does.
    setup.ben(&placet).await.get(&format!("/v1/calls/{call}/receipt")).await.ok();
    placet.stop().await;

    let file = keep(&setup, "receipt", &receipt);
    let verified = setup.bare(&["audit", "verify-receipt", &file, "--key", &key, "--json"]).await;
    let claims = &verified.json()["claims"];
    assert_eq!((&claims["call_id"], &claims["state"]), (&json!(call), &json!("succeeded")));
    assert!(
        claims["request_digest"].is_string() && claims["result_digest"].is_string(),
        "{claims:#}"
    );

    let parts: Vec<&str> = receipt.trim().split('.').collect();
    for part in 0..3 {
        let mut changed: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
        let at = changed[part].len() / 2;
        let other = if changed[part].as_bytes()[at] == b'A' { "B" } else { "A" };
        changed[part].replace_range(at..=at, other);
        let file = keep(&setup, "changed", &changed.join("."));
        found(&setup.bare(&["audit", "verify-receipt", &file, "--key", &key]).await, &["WRONG"]);
    }
    // Nor with the key of another deployment.
    let other = Setup::new();
    let elsewhere = other.start().await;
    let foreign = self::key(&other, &elsewhere).await;
    assert_ne!(foreign, key);
    found(&setup.bare(&["audit", "verify-receipt", &file, "--key", &foreign]).await, &["WRONG"]);
}

#[tokio::test]
async fn later_checkpoints_go_on_from_earlier_ones_and_a_receipt_is_joined_to_either() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&write("a.txt", "s1")).await.succeeded();
    let (_, before) = checkpoint(&setup, &placet, "before").await;
    let call = text(&agent.call(&write("b.txt", "s2")).await.succeeded(), "tool_call_id");
    let receipt = printed(&setup, &placet, &["audit", "receipt", &call]).await;
    let receipt = keep(&setup, "receipt", &receipt);
    agent.call(&write("c.txt", "s3")).await.succeeded();
    let (after_file, after) = checkpoint(&setup, &placet, "after").await;
    let (from, to) = (before["size"].to_string(), after["size"].to_string());
    assert!(before["size"].as_u64() < after["size"].as_u64(), "{before:#} {after:#}");
    let (key, ben) = (key(&setup, &placet).await, setup.ben(&placet).await);

    let proof =
        printed_for_operator(&setup, &placet, &["audit", "prove", "--from", &from, "--to", &to])
            .await;
    assert!(!serde_json::from_str::<Value>(&proof).unwrap()["path"].as_array().unwrap().is_empty());
    let entry = printed_for_operator(&setup, &placet, &["audit", "prove", "--seq", "2"]).await;
    assert_eq!(serde_json::from_str::<Value>(&entry).unwrap()["size"], after["size"]);

    // The receipt is of a size in between: without the proof that joins them nothing is said to agree.
    let words = ["audit", "verify-receipt", &receipt, "--key", &key, "--checkpoint", &after_file];
    let unjoined = setup.bare(&words).await;
    found(&unjoined, &["WRONG", "--proof"]);
    let claims = setup.bare(&["audit", "verify-receipt", &receipt, "--key", &key, "--json"]).await;
    let size = claims.json()["claims"]["tree_size"].to_string();
    let joint =
        printed_for_operator(&setup, &placet, &["audit", "prove", "--from", &size, "--to", &to])
            .await;
    let joint = keep(&setup, "joint", &joint);
    setup.bare(&[&words[..], &["--proof", &joint]].concat()).await.ok();
    let wrong = keep(&setup, "wrong", &proof);
    found(&setup.bare(&[&words[..], &["--proof", &wrong]].concat()).await, &["WRONG"]);

    for query in [
        "log=journal&seq=0",
        "log=journal",
        "seq=1",
        "log=journal&seq=9&size=3",
        "log=journal&seq=1&x=1",
    ] {
        ben.get(&format!("/v1/audit/inclusion?{query}")).await.refused(400, "VALIDATION_ERROR");
    }
    ben.get("/v1/audit/inclusion?log=nothing&seq=1").await.refused(404, "NOT_FOUND");
    ben.get("/v1/audit/consistency?log=journal&from=1&to=99999").await.refused(404, "NOT_FOUND");
}

#[tokio::test]
async fn only_operators_learn_how_long_the_log_is() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let call = text(&agent.call(&write("a.txt", "s1")).await.succeeded(), "tool_call_id");
    for number in 2..6 {
        let path = format!("b{number}.txt");
        agent.call(&write(&path, &format!("s{number}"))).await.succeeded();
    }
    let ana = setup.client(&placet, "user", "ana").await;
    for path in [
        "/v1/audit/checkpoints",
        "/v1/audit/inclusion?log=journal&seq=1",
        "/v1/audit/inclusion?log=journal&seq=1&size=999999",
        "/v1/audit/inclusion?log=nothing&seq=1",
        "/v1/audit/consistency?log=journal&from=1&to=2",
        "/v1/audit/consistency?log=journal&from=1&to=999999",
    ] {
        agent.get(path).await.refused(403, "POLICY_DENIED");
        ana.get(path).await.refused(403, "POLICY_DENIED");
    }
    // The receipt proves the caller's own entry, and ends with it.
    let key = key(&setup, &placet).await;
    let receipt = printed(&setup, &placet, &["audit", "receipt", &call]).await;
    let file = keep(&setup, "receipt", &receipt);
    let verified = setup.bare(&["audit", "verify-receipt", &file, "--key", &key, "--json"]).await;
    let claims = &verified.json()["claims"];
    assert_eq!(claims["tree_size"], claims["seq"], "{claims:#}");
}

#[tokio::test]
async fn a_log_that_is_not_what_was_signed_is_found_out_and_not_served() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&write("a.txt", "s1")).await.succeeded();
    let key = key(&setup, &placet).await;
    let (early, _) = checkpoint(&setup, &placet, "early").await;
    placet.stop().await;
    let ledger = setup.data().join("ledger");
    copy(&ledger, &setup.path("old"));
    let placet = setup.start().await;
    setup.agent(&placet).await.call(&write("b.txt", "s2")).await.succeeded();
    let (late, _) = checkpoint(&setup, &placet, "late").await;
    placet.stop().await;

    for kept in [&early, &late] {
        let words = ["audit", "verify", "--key", &key, "--checkpoint", kept];
        setup.configured(&words).await.ok();
    }
    // Another ledger, sound in itself, is not the one that was signed.
    let other = Setup::new();
    let elsewhere = other.start().await;
    for step in ["s1", "s2", "s3"] {
        let write = write(&format!("{step}.txt"), step);
        other.agent(&elsewhere).await.call(&write).await.succeeded();
    }
    elsewhere.stop().await;
    let verify = ["audit", "verify", "--key", &key, "--checkpoint", &early];
    fs::remove_dir_all(other.data().join("ledger/sealed")).unwrap();
    found(&other.configured(&verify).await, &["WRONG", "rebuilt"]);

    // An old copy, put back with what was signed since: the start is refused, and the verification says why.
    copy(&ledger.join("sealed"), &setup.path("sealed"));
    fs::remove_dir_all(&ledger).unwrap();
    copy(&setup.path("old"), &ledger);
    fs::remove_dir_all(ledger.join("sealed")).unwrap();
    copy(&setup.path("sealed"), &ledger.join("sealed"));
    found(&setup.configured(&["audit", "verify"]).await, &["WRONG", "cut off"]);
    setup.refuses().await.says(&["signed", "old copy"]);
    found(
        &setup.configured(&["audit", "verify", "--key", &key, "--checkpoint", &late]).await,
        &["WRONG"],
    );

    // Nor is an empty ledger begun in the place of the one that was signed.
    for part in ["journal", "state", "snapshots"] {
        fs::remove_dir_all(ledger.join(part)).unwrap_or_default();
    }
    fs::remove_file(ledger.join("trusted")).unwrap_or_default();
    for _ in ["the first start", "one that finds what the first has made"] {
        setup.refuses().await.says(&["signed", "restore the newest copy"]);
    }

    // A note that was changed is not taken for a checkpoint.
    let note = fs::read_to_string(&late).unwrap().replacen("\nepoch ", "\nepoch 1", 1);
    let forged = keep(&setup, "forged", &note);
    let words = ["audit", "verify", "--key", &key, "--checkpoint", &forged];
    found(&setup.configured(&words).await, &["WRONG", "signature"]);
}

#[tokio::test]
async fn what_a_start_needs_of_the_seal_is_named_by_it_and_by_the_doctor() {
    let setup = Setup::new();
    let placet = setup.start().await;
    setup.agent(&placet).await.call(&write("a.txt", "s1")).await.succeeded();
    placet.stop().await;
    let ledger = setup.data().join("ledger");
    let note = fs::read_dir(ledger.join("sealed")).unwrap().next().unwrap().unwrap().path();
    let kept = fs::read(&note).unwrap();
    fs::write(&note, "").unwrap();
    let name = note.file_name().unwrap().to_str().unwrap();
    setup.refuses().await.says(&[name, "cannot be used", "restore that file"]);
    fs::write(&note, kept).unwrap();
    let key = ledger.join("seal.key");
    let kept = fs::read(&key).unwrap();
    for change in ["empty", "gone"] {
        match change {
            "empty" => fs::write(&key, "").unwrap(),
            _ => fs::remove_file(&key).unwrap(),
        }
        setup.refuses().await.says(&["seal.key"]);
        let ran = setup.configured(&["doctor"]).await;
        assert!(ran.code == Some(1) && ran.out.contains("seal.key"), "{change}: {ran:?}");
    }
    fs::write(&key, kept).unwrap();
    let unreadable = setup.with("telemetry", json!({ "log_filter": "info,placet=lots" }));
    let ran = unreadable.configured(&["doctor"]).await;
    assert!(ran.code == Some(1) && ran.out.contains("the log filter"), "{ran:?}");
}

/// A call that was under way when the process was killed, and did not happen.
async fn unknown(setup: Setup) -> (Setup, Placet, String) {
    let setup = setup.killed_in_between(&write("a.txt", "s1"), "a.txt").await;
    fs::remove_file(setup.file("a.txt")).unwrap();
    let placet = setup.start().await;
    setup.agent(&placet).await.call(&write("a.txt", "s1")).await.refused(409, "OUTCOME_UNKNOWN");
    let listed = setup.ben(&placet).await.get("/v1/ledger?state=indeterminate").await.ok();
    let record = text(&listed["records"][0], "record_id");
    (setup, placet, record)
}

async fn operator(setup: &Setup, name: &str) -> String {
    let words = ["token", "user", name, "--groups", "operators"];
    setup.configured(&words).await.ok().trim().to_owned()
}

#[tokio::test]
async fn two_operators_have_an_unknown_call_sent_again_and_one_alone_cannot() {
    let (setup, placet, record) = unknown(Setup::new()).await;
    let agent = setup.agent(&placet).await;
    let (ben, ana) = (operator(&setup, "ben").await, operator(&setup, "ana").await);
    let words = ["ledger", "rearm", &record, "--evidence", "the file is not there"];
    let body = json!({ "evidence": "the file is not there" });
    agent.post(&format!("/v1/ledger/{record}/rearm"), &body).await.refused(403, "POLICY_DENIED");

    let first = setup.asks(&placet, &ben, &words).await;
    assert!(first.ok().contains("another operator has to agree"), "{first:?}");
    found(&setup.asks(&placet, &ben, &words).await, &["another person"]);
    agent.call(&write("a.txt", "s1")).await.refused(409, "OUTCOME_UNKNOWN");
    assert!(!setup.file("a.txt").try_exists().unwrap(), "one operator was enough");

    setup.asks(&placet, &ana, &words).await.ok();
    until("it is sent again", || async { setup.file("a.txt").try_exists().unwrap() }).await;
    let ben = setup.ben(&placet).await;
    until("it is settled", || async {
        ben.get(&format!("/v1/ledger/{record}")).await.ok()["state"] == "succeeded"
    })
    .await;
    fs::write(setup.file("a.txt"), "untouched since").unwrap();
    assert_eq!(agent.call(&write("a.txt", "s1")).await.succeeded()["replayed"], true);
    assert_eq!(fs::read_to_string(setup.file("a.txt")).unwrap(), "untouched since");
    assert_eq!(ben.get(&format!("/v1/ledger/{record}")).await.ok()["arm"], 1);
    placet.stop().await;
    setup.configured(&["ledger", "fsck"]).await.ok();
}

#[tokio::test]
async fn where_one_operator_is_enough_the_first_word_sends_it() {
    let config = json!({ "rearm_people": 1 });
    let (setup, placet, record) = unknown(Setup::new().with("ledger", config)).await;
    let ben = operator(&setup, "ben").await;
    setup.asks(&placet, &ben, &["ledger", "rearm", &record, "--evidence", "it is gone"]).await.ok();
    until("it is sent again", || async { setup.file("a.txt").try_exists().unwrap() }).await;
}

#[tokio::test]
async fn a_result_past_its_retention_is_gone_and_the_call_is_never_executed_again() {
    let setup = Setup::new().with("ledger", json!({ "retention": { "results_s": 1 } }));
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&write("a.txt", "s1")).await.succeeded();
    fs::remove_file(setup.file("a.txt")).unwrap();
    until("the result is past its retention", || async {
        agent.call(&write("a.txt", "s1")).await.status == 410
    })
    .await;
    agent.call(&write("a.txt", "s1")).await.refused(410, "RESULT_EXPIRED");
    assert!(!setup.file("a.txt").try_exists().unwrap(), "it was executed again");
    placet.stop().await;

    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&write("a.txt", "s1")).await.refused(410, "RESULT_EXPIRED");
    placet.stop().await;
    setup.configured(&["audit", "verify"]).await.ok();
    setup.configured(&["ledger", "fsck"]).await.ok();
}

async fn replayed(client: &Client, step: &str, of: &Value) {
    let again = client.call(&write("a.txt", step)).await.succeeded();
    assert_eq!((&again["replayed"], &again["tool_call_id"]), (&json!(true), &of["tool_call_id"]));
}

#[tokio::test]
async fn a_backup_of_a_running_placet_opens_verifies_and_replays() {
    let setup = Setup::new().with("ledger", json!({ "backups": "backups" }));
    let placet = setup.start().await;
    let result = setup.agent(&placet).await.call(&write("a.txt", "s1")).await.succeeded();
    let key = key(&setup, &placet).await;
    let admin = placet.admin.to_string();
    let made = setup.bare(&["ledger", "backup", "--admin-url", &admin, "--json"]).await.json();
    // It goes on, and the copy stays as it was.
    setup.agent(&placet).await.call(&write("b.txt", "s2")).await.succeeded();
    placet.stop().await;

    let copy = setup.path("backups").join(text(&made, "folder"));
    let copy: PathBuf = copy.canonicalize().unwrap();
    let data = copy.to_str().unwrap();
    setup
        .bare(&["audit", "verify", "--data", data, "--key", &key, "--head", &text(&made, "head")])
        .await
        .ok();
    setup.bare(&["ledger", "fsck", "--data", data]).await.ok();
    // The key is not part of it: without it nothing is signed in the same name.
    let restored = Setup::new().arg("--data").arg(data);
    restored.refuses().await.says(&["key"]);
    fs::copy(setup.data().join("ledger/seal.key"), copy.join("ledger/seal.key")).unwrap();
    let placet = restored.start().await;
    let token =
        setup.bare(&["token", "agent", "dev-agent", "--data", data]).await.ok().trim().to_owned();
    let agent = placet.client(Some(token));
    replayed(&agent, "s1", &result).await;
    assert_eq!(agent.call(&write("b.txt", "s2")).await.succeeded()["replayed"], false);
}

#[tokio::test]
async fn without_a_folder_for_them_there_are_no_backups() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let admin = placet.admin.to_string();
    let refused = setup.bare(&["ledger", "backup", "--admin-url", &admin]).await;
    found(&refused, &["ledger.backups"]);
    assert!(
        !format!("{refused:?}").contains("the path and the id"),
        "advice about calls: {refused:?}"
    );
}

#[tokio::test]
async fn what_is_exported_and_imported_elsewhere_gives_the_same_replay() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let result = setup.agent(&placet).await.call(&write("a.txt", "s1")).await.succeeded();
    let file = setup.path("ledger.jsonl");
    let file = file.to_str().unwrap();
    // While it is served it cannot be exported.
    assert_ne!(setup.configured(&["ledger", "export", file]).await.code, Some(0));
    placet.stop().await;
    let exported = setup.configured(&["ledger", "export", file, "--json"]).await.json();
    assert_ne!(setup.configured(&["ledger", "export", file]).await.code, Some(0), "overwritten");

    let other = Setup::new();
    let imported = other.configured(&["ledger", "import", file, "--json"]).await.json();
    assert_eq!(imported, exported);
    // Into a ledger with something in it nothing is imported.
    assert_ne!(other.configured(&["ledger", "import", file]).await.code, Some(0));
    let placet = other.start().await;
    replayed(&other.agent(&placet).await, "s1", &result).await;
    placet.stop().await;
    other.configured(&["ledger", "fsck"]).await.ok();

    // An export that is not whole is not taken.
    let whole = fs::read_to_string(file).unwrap();
    let cut: String =
        whole.lines().take(whole.lines().count() - 1).map(|line| format!("{line}\n")).collect();
    let cut = keep(&setup, "cut.jsonl", &cut);
    let third = Setup::new();
    let refused = third.configured(&["ledger", "import", &cut]).await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(!third.data().join("ledger").try_exists().unwrap());
    // An empty ledger in its place would write it again.
    third.refuses().await.says(&["ledger.importing", "run it again"]);
    assert!(!third.data().join("ledger/journal").try_exists().unwrap());
    for command in [&["doctor"][..], &["ledger", "fsck"], &["audit", "verify"]] {
        found(&third.configured(command).await, &["an import into", "was cut short"]);
    }
    third.configured(&["ledger", "import", file]).await.ok();
    let placet = third.start().await;
    replayed(&third.agent(&placet).await, "s1", &result).await;
}

#[tokio::test]
async fn half_a_backup_is_refused_by_whatever_would_look_at_it() {
    let setup = Setup::new();
    let placet = setup.start().await;
    setup.agent(&placet).await.call(&write("a.txt", "s1")).await.succeeded();
    placet.stop().await;
    fs::write(setup.data().join("ledger/unfinished-copy"), "").unwrap();
    let chain = setup.path("chain.jsonl");
    let export = ["audit", "export", chain.to_str().unwrap()];
    for command in [&export[..], &["audit", "verify"], &["ledger", "fsck"], &["doctor"]] {
        found(&setup.configured(command).await, &["is a backup that was not finished"]);
    }
    assert!(!chain.try_exists().unwrap());
}

#[tokio::test]
async fn a_check_names_altered_results_and_what_it_could_not_look_at() {
    let setup = Setup::new();
    let placet = setup.start().await;
    setup.agent(&placet).await.call(&write("a.txt", "s1")).await.succeeded();
    placet.stop().await;
    setup.configured(&["ledger", "fsck"]).await.ok();
    let state = setup.data().join("ledger/state");
    let (there, away) = (state.join("db"), state.join("away"));
    fs::rename(&there, &away).unwrap();
    std::os::unix::fs::symlink("db", &there).unwrap();
    let ran = setup.configured(&["ledger", "fsck"]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.out.contains("could not be looked at") && !ran.out.contains("rebuild"), "{ran:?}");
    fs::remove_file(&there).unwrap();
    fs::rename(&away, &there).unwrap();

    // What was written and what came of it name the file; nothing else in the journal does.
    let segment = setup.data().join("ledger/journal/000000000001.segment");
    let mut bytes = fs::read(&segment).unwrap();
    let named: Vec<usize> =
        (0..bytes.len() - 5).filter(|at| bytes[*at..].starts_with(b"a.txt")).collect();
    named.iter().for_each(|at| bytes[*at] = b'b');
    fs::write(&segment, bytes).unwrap();
    found(&setup.configured(&["ledger", "fsck"]).await, &["2 ALTERED", "altered: sha256:"]);
    let file = setup.path("lost.jsonl");
    let refused = setup.configured(&["ledger", "export", file.to_str().unwrap()]).await;
    found(&refused, &["2 are altered", "fsck"]);
    assert!(!file.try_exists().unwrap());
}
