//! Crashes, damage and full disks: what was accepted is there afterwards, and what is not certain is said to be so.
//!
//! Owns the process and its data folder as a whole, from outside; single parts are tested where they are.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness::{
    client::{Client, text},
    placet::Placet,
    setup::{Setup, plan},
    until, within,
};

fn delete(name: &str, step: &str) -> Value {
    plan("files__delete", step, json!({ "path": name }))
}

fn write(name: &str, step: &str) -> Value {
    plan("files__write", step, json!({ "path": name, "content": "x" }))
}

/// The files below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Turns one bit of `needle` wherever it stands in a file below `folder`.
fn flip_all(folder: &Path, needle: &[u8]) {
    let mut flipped = 0_u32;
    for path in files_below(folder) {
        let mut bytes = fs::read(&path).unwrap();
        while let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
            bytes[at] ^= 1;
            flipped = flipped.saturating_add(1);
        }
        fs::write(&path, bytes).unwrap();
    }
    assert!(flipped > 0, "there is nothing to alter below {}", folder.display());
}

fn journal(setup: &Setup) -> PathBuf {
    setup.data().join("ledger/journal")
}

/// The first segment, with its used part.
fn segment(setup: &Setup) -> (PathBuf, Vec<u8>) {
    let path = files_below(&journal(setup))
        .into_iter()
        .find(|path| path.extension().is_some_and(|e| e == "segment"))
        .unwrap();
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

/// Turns one bit of the n-th entry of the journal.
fn flip_entry(setup: &Setup, number: usize) {
    let (path, mut bytes) = segment(setup);
    let mut entries =
        (0..bytes.len().saturating_sub(4)).filter(|at| bytes[*at..].starts_with(b"PLJF"));
    let at = entries.nth(number).expect("the journal has so many entries").saturating_add(90);
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_pending_approval_survives_a_killed_process_and_the_call_runs_once() {
    let setup = Setup::new();
    let first = setup.start().await;
    setup.put("a.txt", "x");
    let held = setup.agent(&first).await.call(&delete("a.txt", "s1")).await.held();
    first.kill().await;

    let second = setup.start().await;
    let (agent, ben) = (setup.agent(&second).await, setup.ben(&second).await);
    let call = format!("/v1/calls/{}", text(&held, "call_id"));
    assert_eq!(agent.get(&call).await.held()["approval_id"], held["approval_id"]);
    ben.decide(&held, "approve").await.ok();
    let result = agent.end_of(&text(&held, "call_id")).await.succeeded();
    assert!(!setup.file("a.txt").try_exists().unwrap());
    second.kill().await;

    let third = setup.start().await;
    setup.put("a.txt", "made again");
    let again = setup.agent(&third).await.call(&delete("a.txt", "s1")).await.succeeded();
    assert_eq!(
        (&again["replayed"], &again["tool_call_id"]),
        (&json!(true), &result["tool_call_id"])
    );
    assert!(setup.file("a.txt").try_exists().unwrap(), "the replay after the crash deleted it");
}

#[tokio::test]
async fn an_approved_call_whose_parked_arguments_were_altered_is_void_and_does_not_run() {
    let setup = Setup::new();
    let first = setup.start().await;
    setup.put("target-of-the-call.txt", "keep me");
    let call = delete("target-of-the-call.txt", "s1");
    let held = setup.agent(&first).await.call(&call).await.held();
    let digest = {
        let path = format!("/v1/approvals/{}", text(&held, "approval_id"));
        text(&setup.ben(&first).await.get(&path).await.ok()["approval"], "digest")
    };
    first.kill().await;
    // The parked call and the frozen evidence are kept apart: both are altered.
    flip_all(&setup.data().join("ledger/journal"), b"target-of-the-call.txt");

    let second = setup.start().await;
    let (agent, ben) = (setup.agent(&second).await, setup.ben(&second).await);
    let (id, call_id) = (text(&held, "approval_id"), text(&held, "call_id"));
    agent.get(&format!("/v1/calls/{call_id}")).await.held();
    let shown = ben.get(&format!("/v1/approvals/{id}")).await;
    assert_ne!(shown.status, 200, "altered evidence is shown to an approver: {shown:?}");
    ben.decide_on(&id, "approve", &digest).await.ok();
    agent.end_of(&call_id).await.refused(409, "APPROVAL_VOID");
    assert!(setup.file("target-of-the-call.txt").try_exists().unwrap(), "it ran");
    assert!(!setup.file("uarget-of-the-call.txt").try_exists().unwrap());
    let void = ben.get("/v1/approvals?state=void").await.ok();
    assert_eq!(void["approvals"][0]["approval_id"], held["approval_id"], "{void:#}");
    // What was approved is over: the same call asks again.
    assert_ne!(agent.call(&call).await.held()["approval_id"], held["approval_id"]);
}

#[tokio::test]
async fn a_call_that_was_under_way_at_a_kill_is_unknown_until_an_operator_resolves_it() {
    let setup = Setup::new().killed_in_between(&write("a.txt", "s1"), "a.txt").await;
    fs::write(setup.file("a.txt"), "untouched since").unwrap();

    let second = setup.start().await;
    let (agent, ben) = (setup.agent(&second).await, setup.ben(&second).await);
    for _ in 0..2 {
        let problem = agent.call(&write("a.txt", "s1")).await.refused(409, "OUTCOME_UNKNOWN");
        assert_eq!(problem["execution"], "unknown");
    }
    assert_eq!(
        fs::read_to_string(setup.file("a.txt")).unwrap(),
        "untouched since",
        "it was sent again"
    );

    let listed = ben.get("/v1/ledger?state=indeterminate").await.ok();
    let record = &listed["records"][0];
    assert_eq!(
        (&record["capability_id"], &record["state"]),
        (&json!("files/write"), &json!("indeterminate"))
    );
    let token = setup.token("user", "ben").await;
    let shown = setup.asks(&second, &token, &["ledger", "list", "--state", "indeterminate"]).await;
    assert!(shown.ok().contains(&text(record, "record_id")), "{shown:?}");

    let path = format!("/v1/ledger/{}/resolution", text(record, "record_id"));
    let request =
        json!({ "outcome": "happened", "evidence": "the file is there", "output": { "bytes": 1 } });
    agent.post(&path, &request).await.refused(403, "POLICY_DENIED");
    let resolved = ben.post(&path, &request).await.ok();
    assert_eq!(resolved["state"], "succeeded", "{resolved:#}");
    let result = agent.call(&write("a.txt", "s1")).await.succeeded();
    assert_eq!((&result["replayed"], &result["output"]["bytes"]), (&json!(true), &json!(1)));
    ben.post(&path, &request).await.refused(400, "VALIDATION_ERROR");
    second.stop().await;
    setup.configured(&["audit", "verify"]).await.ok();
}

#[tokio::test]
async fn an_unknown_call_that_did_not_happen_is_never_sent_again_by_itself() {
    let setup = Setup::new().killed_in_between(&write("a.txt", "s1"), "a.txt").await;
    fs::remove_file(setup.file("a.txt")).unwrap();
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    let record = ben.get("/v1/ledger?state=indeterminate").await.ok()["records"][0].clone();
    let path = format!("/v1/ledger/{}/resolution", text(&record, "record_id"));
    let request = json!({ "outcome": "did_not_happen", "evidence": "there is no file" });
    ben.post(&path, &request).await.ok();
    let problem = agent.call(&write("a.txt", "s1")).await.json();
    assert_eq!(problem["execution"], "not_executed", "{problem:#}");
    assert!(!setup.file("a.txt").try_exists().unwrap());
}

#[tokio::test]
async fn the_audit_chain_verifies_and_one_turned_bit_is_found() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    for step in ["s1", "s2", "s3"] {
        agent.call(&write(&format!("{step}.txt"), step)).await.succeeded();
    }
    let beside = setup.configured(&["audit", "verify", "--json"]).await.json();
    assert_eq!(beside["ok"], true, "beside a running Placet: {beside:#}");
    placet.stop().await;
    let sound = setup.configured(&["audit", "verify", "--json"]).await.json();
    assert!(sound["entries"].as_u64().unwrap() >= 6, "{sound:#}");
    let noted = setup.configured(&["audit", "verify", "--head", &text(&sound, "head")]).await;
    assert!(noted.ok().contains("every link of the chain verified"), "{noted:?}");

    setup.start().await.stop().await;
    let grown = setup.configured(&["audit", "verify", "--head", &text(&sound, "head")]).await;
    let at = format!("is that of entry {}, and more follow", sound["entries"]);
    assert!(grown.code == Some(1) && grown.out.contains(&at), "{grown:?}");
    let other = ["audit", "verify", "--json", "--head", &"ab".repeat(32)];
    let other = setup.configured(&other).await;
    assert!(other.code == Some(1) && other.out.contains("no entry that is here"), "{other:?}");

    flip_entry(&setup, 2);
    let found = setup.configured(&["audit", "verify", "--json"]).await;
    assert_eq!(found.code, Some(1), "{found:?}");
    let found: Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!((&found["ok"], &found["at"]["entry"]), (&json!(false), &json!(3)), "{found:#}");
}

#[tokio::test]
async fn a_damaged_journal_is_never_served_nor_repaired() {
    let setup = Setup::new();
    let placet = setup.start().await;
    setup.agent(&placet).await.call(&write("a.txt", "s1")).await.succeeded();
    placet.stop().await;
    flip_entry(&setup, 1);
    let (_, damaged) = segment(&setup);
    let gone = setup.refuses().await;
    gone.says(&["damaged", "segment"]);
    assert!(segment(&setup).1 == damaged, "it wrote into a damaged journal");
}

#[tokio::test]
async fn a_corrupted_state_is_rebuilt_and_nothing_is_lost() {
    let setup = Setup::new();
    let first = setup.start().await;
    setup.put("a.txt", "x");
    let agent = setup.agent(&first).await;
    let written = agent.call(&write("b.txt", "s1")).await.succeeded();
    let held = agent.call(&delete("a.txt", "s2")).await.held();
    first.stop().await;
    let state = setup.data().join("ledger/state");
    let files = files_below(&state);
    assert!(!files.is_empty(), "there is no state to corrupt");
    for path in files {
        let length = usize::try_from(fs::metadata(&path).unwrap().len()).unwrap();
        fs::write(path, vec![0xA5; length]).unwrap();
    }

    let second = setup.start().await;
    let (agent, ben) = (setup.agent(&second).await, setup.ben(&second).await);
    fs::remove_file(setup.file("b.txt")).unwrap();
    let again = agent.call(&write("b.txt", "s1")).await.succeeded();
    assert_eq!(
        (&again["replayed"], &again["tool_call_id"]),
        (&json!(true), &written["tool_call_id"])
    );
    assert!(!setup.file("b.txt").try_exists().unwrap(), "the write was executed again");
    ben.decide(&held, "approve").await.ok();
    agent.end_of(&text(&held, "call_id")).await.succeeded();
    second.stop().await;
    setup.configured(&["ledger", "fsck"]).await.ok();
    setup.configured(&["ledger", "fsck", "--rebuild"]).await.ok();
    setup.configured(&["ledger", "fsck"]).await.ok();
}

#[tokio::test]
async fn a_second_process_on_the_same_data_is_refused_and_told_who_has_it() {
    let setup = Setup::new();
    let first = setup.start().await;
    let gone = setup.refuses().await;
    gone.says(&[&first.pid().to_string()]);
    let offline = setup.configured(&["ledger", "fsck"]).await;
    assert_eq!(offline.code, Some(3), "{offline:?}");
    assert!(offline.err.contains(&first.pid().to_string()), "{offline:?}");
    setup.agent(&first).await.call(&write("a.txt", "s1")).await.succeeded();
}

#[tokio::test]
async fn asked_to_stop_it_finishes_what_is_under_way_and_takes_nothing_new() {
    let setup = Setup::new().arg("--inject-pause-after-effect-ms").arg("1500");
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let caller = {
        let agent = agent.clone();
        tokio::spawn(async move { agent.call(&write("a.txt", "s1")).await })
    };
    until("the call is under way", || async { setup.file("a.txt").try_exists().unwrap() }).await;
    placet.ask_to_stop();
    let fresh = placet.client(agent.token.clone());
    until("the API is closed", || async { !fresh.is_answered("/").await }).await;
    assert!(!caller.is_finished(), "the pause is over too early for this test to mean anything");
    let result = within("the call under way is answered", caller).await.unwrap().succeeded();
    let gone = placet.gone().await;
    assert!(gone.status.success(), "{}:\n{}", gone.status, gone.said);

    let setup = setup.without_args();
    let second = setup.start().await;
    let again = setup.agent(&second).await.call(&write("a.txt", "s1")).await.succeeded();
    assert_eq!(
        (&again["replayed"], &again["tool_call_id"]),
        (&json!(true), &result["tool_call_id"])
    );
}

#[tokio::test]
async fn asked_to_stop_it_sends_nothing_that_waited_for_its_turn() {
    let setup = Setup::new().files_contract().arg("--inject-pause-after-effect-ms").arg("3000");
    let mut contract = setup.read_contract("files");
    contract["limits"] = json!({"concurrency_max": 1});
    let setup = setup.contract("files", &contract);
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let calls = |name: &'static str, step: &'static str| {
        let agent = agent.clone();
        tokio::spawn(async move { agent.call(&write(name, step)).await })
    };
    let first = calls("a.txt", "s1");
    until("the call is under way", || async { setup.file("a.txt").try_exists().unwrap() }).await;
    let second = calls("b.txt", "s2");
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    placet.ask_to_stop();
    let told = within("the one that waits is answered", second).await.unwrap();
    assert!(!first.is_finished(), "the pause is over too early for this test to mean anything");
    assert_eq!(told.refused(503, "OVERLOADED")["execution"], "not_executed");
    within("the one under way is answered", first).await.unwrap().succeeded();
    let gone = placet.gone().await;
    assert!(gone.status.success(), "{}:\n{}", gone.status, gone.said);
    assert!(!setup.file("b.txt").try_exists().unwrap(), "it was sent after the signal");

    let setup = setup.without_args();
    let second = setup.start().await;
    setup.agent(&second).await.call(&write("b.txt", "s2")).await.succeeded();
}

/// What starts a program with a small disk mounted on its ledger, where this machine lets a test do that.
async fn small_disk(setup: &Setup) -> Option<Vec<OsString>> {
    let script = "mount -t tmpfs -o size=448m tmpfs \"$1\" && shift && exec \"$@\"";
    let ledger = setup.data().join("ledger");
    fs::create_dir(&ledger).unwrap();
    for options in [&["--user", "--map-root-user", "--mount"][..], &["--mount"]] {
        let mut words: Vec<OsString> = vec!["unshare".into()];
        words.extend(options.iter().map(OsString::from));
        words.extend(["sh", "-c", script, "sh"].map(OsString::from));
        words.push(ledger.clone().into_os_string());
        let mut attempt = Command::new(&words[0]);
        attempt.args(&words[1..]).arg("true").stdout(Stdio::null()).stderr(Stdio::null());
        if attempt.status().await.is_ok_and(|status| status.success()) {
            return Some(words);
        }
    }
    None
}

/// A file on the small disk, reached through the process that has it mounted.
fn filler(placet: &Placet, setup: &Setup) -> PathBuf {
    let ledger = setup.data().join("ledger/filler");
    Path::new("/proc")
        .join(placet.pid().to_string())
        .join("root")
        .join(ledger.strip_prefix("/").unwrap())
}

#[tokio::test]
async fn on_a_full_disk_nothing_is_executed_and_it_goes_on_when_there_is_room() {
    let setup = Setup::new();
    let Some(wrapper) = small_disk(&setup).await else {
        return without_a_disk_of_its_own(Setup::new()).await;
    };
    let setup = setup.wrapped(wrapper);
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&write("before.txt", "s1")).await.succeeded();
    let filler = filler(&placet, &setup);
    fs::write(&filler, vec![1_u8; 160 << 20]).unwrap();
    let problem = refused_for_lack_of_room(&agent).await;
    assert_eq!(
        (&problem["execution"], &problem["retryable"]),
        (&json!("not_executed"), &json!(true)),
        "{problem:#}"
    );
    assert!(!setup.file("full.txt").try_exists().unwrap());
    assert_eq!(agent.call(&write("before.txt", "s1")).await.succeeded()["replayed"], true);

    fs::remove_file(&filler).unwrap();
    until("there is room again", || async {
        agent.call(&write("full.txt", "s2")).await.status == 200
    })
    .await;
    assert!(setup.file("full.txt").try_exists().unwrap());
    placet.stop().await;
}

/// The same where no disk can be mounted: the disk of this machine is too small for what the configuration wants free.
async fn without_a_disk_of_its_own(setup: Setup) {
    let setup = setup.with("limits", json!({ "free_space_bytes_min": 1_u64 << 50 }));
    let placet = setup.start().await;
    let problem = refused_for_lack_of_room(&setup.agent(&placet).await).await;
    assert_eq!(problem["execution"], "not_executed", "{problem:#}");
    let unready = placet.ask("/readyz").await;
    assert_eq!(unready.status, 503, "{unready:?}");
    assert!(unready.text().contains("free space"), "{unready:?}");
    assert!(!setup.file("full.txt").try_exists().unwrap());
    placet.stop().await;
    let setup = setup.with("limits", json!({ "free_space_bytes_min": 128 << 20 }));
    let placet = setup.start().await;
    setup.agent(&placet).await.call(&write("full.txt", "s2")).await.succeeded();
    placet.ask("/readyz").await.ok();
    assert!(setup.file("full.txt").try_exists().unwrap());
}

#[tokio::test]
async fn with_less_free_space_than_is_configured_nothing_new_is_executed() {
    without_a_disk_of_its_own(Setup::new()).await;
}

/// The watermark may be looked at now and then only, so the first writes on a full disk can still be taken.
async fn refused_for_lack_of_room(agent: &Client) -> Value {
    for step in 0..200 {
        let reply = agent.call(&write(&format!("last-{step}.txt"), &format!("last-{step}"))).await;
        if reply.status != 200 {
            agent.call(&write("full.txt", "s2")).await.refused(503, "LEDGER_UNAVAILABLE");
            return reply.refused(503, "LEDGER_UNAVAILABLE");
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("writes are taken on a full disk");
}
