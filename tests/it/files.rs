//! The built-in `files` adapter behind the built program: what is allowed, held, decided, executed and replayed.
//!
//! Owns the way of a call as its callers and approvers see it, over HTTP and on the command line.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    client::{Client, text},
    placet::Placet,
    setup::{Setup, plan},
    until, within,
};

/// A running Placet with the agent and the approver of the development directory.
struct World {
    setup: Setup,
    placet: Placet,
    agent: Client,
    ben: Client,
}

impl World {
    async fn new() -> Self {
        let setup = Setup::new();
        let placet = setup.start().await;
        let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
        Self { setup, placet, agent, ben }
    }

    fn is_there(&self, name: &str) -> bool {
        self.setup.file(name).is_file()
    }
}

fn delete(name: &str, step: &str) -> Value {
    plan("files__delete", step, json!({ "path": name }))
}

#[tokio::test]
async fn a_bad_argument_is_refused_with_the_place_to_repair_and_repaired_it_runs() {
    let world = World::new().await;
    world.setup.put("a.txt", "hello");
    let bad = world
        .agent
        .call(&plan("files__read", "s1", json!({ "pth": "a.txt", "offset": "x" })))
        .await;
    let problem = bad.refused(400, "VALIDATION_ERROR");
    assert_eq!(problem["execution"], "not_executed");
    let pointers = bad.pointers();
    assert!(pointers.iter().any(|pointer| pointer == "/args/pth"), "{problem:#}");
    assert!(pointers.iter().any(|pointer| pointer == "/args/offset"), "{problem:#}");
    let repaired = world.agent.call(&plan("files__read", "s1", json!({ "path": "a.txt" }))).await;
    assert_eq!(repaired.succeeded()["output"]["content"], "hello");
}

#[tokio::test]
async fn a_read_is_allowed_and_changes_nothing() {
    let world = World::new().await;
    world.setup.put("a.txt", "hello");
    let result =
        world.agent.call(&plan("files__read", "s1", json!({ "path": "a.txt" }))).await.succeeded();
    assert_eq!(result["output"]["content"], "hello");
    assert_eq!((&result["mutations"], &result["replayed"]), (&json!([]), &json!(false)));
    assert!(result.get("idempotency_key").is_none(), "{result:#}");
    let listed = world.agent.call(&plan("files__list", "s2", json!({}))).await.succeeded();
    assert_eq!(listed["output"]["entries"][0]["name"], "a.txt");
}

#[tokio::test]
async fn a_path_out_of_the_directory_is_refused_whatever_it_looks_like() {
    let world = World::new().await;
    std::fs::write(world.setup.data().join("outside.txt"), "secret").unwrap();
    std::fs::create_dir_all(world.setup.data().join("files/local")).unwrap();
    std::os::unix::fs::symlink("../outside.txt", world.setup.file("link")).unwrap();
    for (step, path) in
        ["../outside.txt", "/etc/passwd", "a/../../outside.txt", "link"].into_iter().enumerate()
    {
        let reply = world
            .agent
            .call(&plan("files__read", &format!("s{step}"), json!({ "path": path })))
            .await;
        assert_ne!(reply.json()["status"], "succeeded", "{path}: {reply:?}");
        assert!(!reply.text().contains("secret"), "{path}: {reply:?}");
    }
}

#[tokio::test]
async fn a_write_happens_once_and_says_what_it_changed() {
    let world = World::new().await;
    let write = plan(
        "files__write",
        "s1",
        json!({ "path": "notes/a.txt", "content": "one", "create_directories": true }),
    );
    let first = world.agent.call(&write).await.succeeded();
    assert_eq!(std::fs::read_to_string(world.setup.file("notes/a.txt")).unwrap(), "one");
    let mutations = first["mutations"].as_array().unwrap();
    assert!(
        mutations.iter().any(|mutation| text(mutation, "target") == "notes/a.txt"),
        "{first:#}"
    );
    world.setup.put("notes/a.txt", "changed by hand");
    let again = world.agent.call(&write).await.succeeded();
    assert_eq!(
        (&again["replayed"], &again["tool_call_id"]),
        (&json!(true), &first["tool_call_id"])
    );
    assert_eq!(
        std::fs::read_to_string(world.setup.file("notes/a.txt")).unwrap(),
        "changed by hand"
    );
}

#[tokio::test]
async fn a_delete_waits_for_somebody_else_runs_once_and_is_replayed() {
    let world = World::new().await;
    world.setup.put("a.txt", "keep me");
    let held = world.agent.call(&delete("a.txt", "s1")).await.held();
    assert!(world.is_there("a.txt"));
    let pending = world.ben.get("/v1/approvals?state=pending").await.ok();
    assert_eq!(pending["approvals"][0]["approval_id"], held["approval_id"], "{pending:#}");
    let shown = world.ben.get(&format!("/v1/approvals/{}", text(&held, "approval_id"))).await.ok();
    assert_eq!(shown["proposal"]["call"]["args"]["path"], "a.txt", "{shown:#}");
    assert_eq!(world.ben.decide(&held, "approve").await.ok()["state"], "approved");

    let result = world.agent.end_of(&text(&held, "call_id")).await.succeeded();
    assert_eq!(
        (&result["approval_id"], &result["replayed"]),
        (&held["approval_id"], &json!(false))
    );
    assert!(!world.is_there("a.txt") && !result["mutations"].as_array().unwrap().is_empty());

    world.setup.put("a.txt", "somebody made it again");
    let again = world.agent.call(&delete("a.txt", "s1")).await.succeeded();
    assert_eq!(
        (&again["replayed"], &again["tool_call_id"]),
        (&json!(true), &result["tool_call_id"])
    );
    assert!(world.is_there("a.txt"), "the replay deleted it");

    world.setup.put("b.txt", "another");
    world.agent.call(&delete("b.txt", "s1")).await.refused(422, "IDEMPOTENCY_CONFLICT");
    assert!(world.is_there("b.txt"));
}

#[tokio::test]
async fn a_write_that_replaces_a_file_waits_for_people() {
    let world = World::new().await;
    world.setup.put("a.txt", "precious");
    let kept = || std::fs::read_to_string(world.setup.file("a.txt")).unwrap() == "precious";
    let write = |step: &str, overwrite: Option<bool>, mode: Option<&str>| {
        let mut args = json!({ "path": "a.txt", "content": "" });
        if let Some(overwrite) = overwrite {
            args["overwrite"] = json!(overwrite);
        }
        let mut call = plan("files__write", step, args);
        call.as_object_mut().unwrap().remove("approval_mode_requested");
        if let Some(mode) = mode {
            call["approval_mode_requested"] = json!(mode);
        }
        call
    };
    // Nothing is replaced unless the call says so, and the refusal says what to ask for.
    for (step, overwrite) in [("s1", None), ("s2", Some(false))] {
        let refused = world.agent.call(&write(step, overwrite, Some("local_write"))).await;
        assert_ne!(refused.json()["status"], "succeeded", "{refused:?}");
        assert!(refused.text().contains("overwrite: true"), "{refused:?}");
        assert!(kept());
    }
    let weak = world.agent.call(&write("s3", Some(true), Some("local_write"))).await;
    weak.refused(403, "MODE_UPGRADED");
    let held = world.agent.call(&write("s4", Some(true), None)).await.held();
    assert!(kept());
    world.ben.decide(&held, "approve").await.ok();
    world.agent.end_of(&text(&held, "call_id")).await.succeeded();
    assert_eq!(std::fs::read_to_string(world.setup.file("a.txt")).unwrap(), "");
}

#[tokio::test]
async fn a_key_of_the_callers_own_binds_its_arguments_too() {
    let world = World::new().await;
    let write = |content: &str, step: &str| {
        plan("files__write", step, json!({ "path": "a.txt", "content": content }))
    };
    let first =
        world.agent.call_with(&write("one", "s1"), "Idempotency-Key", "my-key").await.succeeded();
    assert_eq!(first["idempotency_key"], "my-key");
    let again =
        world.agent.call_with(&write("one", "s2"), "Idempotency-Key", "my-key").await.succeeded();
    assert_eq!(again["replayed"], true);
    let other = world.agent.call_with(&write("two", "s3"), "Idempotency-Key", "my-key").await;
    other.refused(422, "IDEMPOTENCY_CONFLICT");
    assert_eq!(std::fs::read_to_string(world.setup.file("a.txt")).unwrap(), "one");
}

#[tokio::test]
async fn neither_the_caller_nor_its_owner_nor_a_stale_look_can_approve() {
    let world = World::new().await;
    world.setup.put("a.txt", "keep me");
    let ana = world.setup.client(&world.placet, "user", "ana").await;
    let held = world.agent.call(&delete("a.txt", "s1")).await.held();
    let id = text(&held, "approval_id");
    let digest =
        text(&world.ben.get(&format!("/v1/approvals/{id}")).await.ok()["approval"], "digest");
    for (who, client) in [("the agent", &world.agent), ("its owner", &ana)] {
        let reply = client.decide_on(&id, "approve", &digest).await;
        assert!(matches!(reply.status, 403 | 404), "{who}: {reply:?}");
    }
    let stale = world.ben.decide_on(&id, "approve", &format!("sha256:{}", "0".repeat(64))).await;
    stale.refused(400, "VALIDATION_ERROR");
    assert_eq!(stale.pointers(), ["/digest"]);
    assert_eq!(
        world.agent.get(&format!("/v1/calls/{}", text(&held, "call_id"))).await.held()["state"],
        "pending"
    );
    assert!(world.is_there("a.txt"));
}

#[tokio::test]
async fn a_denied_call_says_so_again_and_never_runs() {
    let world = World::new().await;
    world.setup.put("a.txt", "keep me");
    let held = world.agent.call(&delete("a.txt", "s1")).await.held();
    assert_eq!(world.ben.decide(&held, "deny").await.ok()["state"], "denied");
    world.agent.end_of(&text(&held, "call_id")).await.refused(403, "APPROVAL_DENIED");
    world.agent.call(&delete("a.txt", "s1")).await.refused(403, "APPROVAL_DENIED");
    assert!(world.is_there("a.txt"));
}

#[tokio::test]
async fn a_caller_that_waits_gets_the_result_when_people_agree() {
    let world = World::new().await;
    world.setup.put("a.txt", "x");
    let mut waiting = delete("a.txt", "s1");
    waiting["wait_ms"] = json!(20_000);
    let agent = world.agent.clone();
    let answer = tokio::spawn(async move { agent.call(&waiting).await });
    until("the call is held", || async { !pending(&world.ben).await.is_empty() }).await;
    assert!(!answer.is_finished());
    let held = pending(&world.ben).await.remove(0);
    world.ben.decide(&held, "approve").await.ok();
    within("the waiting caller is answered", answer).await.unwrap().succeeded();
    assert!(!world.is_there("a.txt"));
}

#[tokio::test]
async fn a_wait_that_ends_before_people_do_is_answered_with_where_to_ask() {
    let world = World::new().await;
    world.setup.put("a.txt", "x");
    let mut waiting = delete("a.txt", "s1");
    waiting["wait_ms"] = json!(150);
    let held = world.agent.call(&waiting).await.held();
    assert_eq!(held["state"], "pending");
}

#[tokio::test]
async fn a_held_call_is_followed_by_events_to_its_end() {
    let world = World::new().await;
    world.setup.put("a.txt", "x");
    let held = world.agent.call(&delete("a.txt", "s1")).await.held();
    let mut events = world.agent.events(&text(&held, "call_id")).await;
    let (name, data) = events.next().await.unwrap();
    assert_eq!((name.as_str(), &data["approval_id"]), ("held", &held["approval_id"]));
    world.ben.decide(&held, "approve").await.ok();
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event);
    }
    let (name, data) = last.expect("the stream ended without an end of the call");
    assert_eq!((name.as_str(), &data["status"]), ("finished", &json!("succeeded")));
    assert!(!world.is_there("a.txt"));
}

#[tokio::test]
async fn an_approved_call_runs_though_its_caller_has_gone() {
    let world = World::new().await;
    world.setup.put("a.txt", "x");
    let mut waiting = delete("a.txt", "s1");
    waiting["wait_ms"] = json!(60_000);
    let agent = world.setup.agent(&world.placet).await;
    let caller = tokio::spawn(async move { agent.call(&waiting).await });
    until("the call is held", || async { !pending(&world.ben).await.is_empty() }).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    let held = pending(&world.ben).await.remove(0);
    world.ben.decide(&held, "approve").await.ok();
    until("the call is executed and settled", || async {
        world.agent.call(&delete("a.txt", "s1")).await.status == 200
    })
    .await;
    assert!(!world.is_there("a.txt"));
}

#[tokio::test]
async fn many_callers_of_the_same_call_share_one_effect() {
    let world = World::new().await;
    let write = plan("files__write", "s1", json!({ "path": "a.txt", "content": "x" }));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (agent, write) = (world.agent.clone(), write.clone());
        calls.spawn(async move { agent.call(&write).await.succeeded() });
    }
    let results = within("all are answered", calls.join_all()).await;
    assert_eq!(results.iter().filter(|result| result["replayed"] == false).count(), 1);
    assert!(results.iter().all(|result| result["tool_call_id"] == results[0]["tool_call_id"]));
}

#[tokio::test]
async fn another_agent_does_not_see_a_call_an_approval_or_a_record() {
    let world = World::new().await;
    world.setup.put("a.txt", "x");
    let held = world.agent.call(&delete("a.txt", "s1")).await.held();
    let other = world.setup.client(&world.placet, "agent", "another-agent").await;
    let call = format!("/v1/calls/{}", text(&held, "call_id"));
    let hidden = other.get(&call).await.refused(404, "NOT_FOUND");
    let absent =
        other.get("/v1/calls/call_01J0000000000000000000000").await.refused(404, "NOT_FOUND");
    assert_eq!(hidden, absent, "what is hidden and what is absent answer alike");
    other
        .get(&format!("/v1/approvals/{}", text(&held, "approval_id")))
        .await
        .refused(404, "NOT_FOUND");
    assert_eq!(other.get("/v1/approvals").await.ok()["approvals"], json!([]));
    other.get("/v1/ledger").await.refused(403, "POLICY_DENIED");
}

#[tokio::test]
async fn the_command_line_does_the_same_and_its_exit_codes_say_how_it_went() {
    let world = World::new().await;
    let (setup, placet) = (&world.setup, &world.placet);
    let agent = setup.token("agent", "dev-agent").await;
    let ben = setup.token("user", "ben").await;
    let tools = setup.asks(placet, &agent, &["tools", "--json"]).await.json();
    assert!(tools.to_string().contains("files__delete"), "{tools}");
    let write = [
        "call",
        "files__write",
        "--arg",
        "path=a.txt",
        "--arg",
        "content=hi",
        "--mode",
        "local_write",
        "--json",
    ];
    assert_eq!(setup.asks(placet, &agent, &write).await.json()["status"], "succeeded");
    let delete = [
        "call",
        "files__delete",
        "--arg",
        "path=a.txt",
        "--mode",
        "destructive",
        "--run",
        "r1",
        "--json",
    ];
    let held = setup.asks(placet, &agent, &delete).await;
    assert_eq!(held.code, Some(4), "a held call is not done: {held:?}");
    let held: Value = serde_json::from_str(&held.out).unwrap();
    let id = text(&held, "approval_id");
    let listed = setup.asks(placet, &ben, &["approvals", "list"]).await;
    assert!(listed.ok().contains(&id), "{listed:?}");
    let shown = setup.asks(placet, &ben, &["approvals", "show", &id, "--json"]).await.json();
    let digest = text(&shown["approval"], "digest");
    let blind =
        setup.asks(placet, &ben, &["approvals", "approve", &id, "--reason", "agreed"]).await;
    assert_eq!(blind.code, Some(2), "an approval without a look is a wrong use: {blind:?}");
    let approve = ["approvals", "approve", &id, "--reason", "agreed", "--digest", &digest];
    setup.asks(placet, &ben, &approve).await.ok();
    until("it is deleted", || async { !world.is_there("a.txt") }).await;
    assert_eq!(setup.asks(placet, &agent, &delete).await.json()["replayed"], true);
    let refused = setup.asks(placet, &agent, &["call", "files__read", "--arg", "pth=a"]).await;
    assert_eq!(refused.code, Some(5));
    assert!(
        refused.err.contains("VALIDATION_ERROR") && refused.err.contains("/args/pth"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_person_s_own_token_calls_nothing_and_an_agent_for_a_user_does() {
    let world = World::new().await;
    world.setup.put("a.txt", "x");
    let read = plan("files__read", "s1", json!({ "path": "a.txt" }));
    let own = world.ben.call(&read).await;
    assert!(matches!(own.status, 403 | 404), "{own:?}");
    let delegation =
        world.setup.configured(&["token", "user", "ana", "--for-agent", "dev-agent"]).await;
    world.agent.call_with(&read, "Placet-Delegation", delegation.ok().trim()).await.succeeded();
    let foreign =
        world.setup.configured(&["token", "user", "ana", "--for-agent", "another-agent"]).await;
    let refused = world.agent.call_with(&read, "Placet-Delegation", foreign.ok().trim()).await;
    refused.refused(401, "UNAUTHENTICATED");
}

#[tokio::test]
async fn a_call_stronger_than_its_run_is_refused_before_anybody_is_asked() {
    let world = World::new().await;
    world.setup.put("a.txt", "x");
    let mut weak = delete("a.txt", "s1");
    weak["run"] = json!({ "run_id": "weak", "safety_mode": "local_write" });
    world.agent.call(&weak).await.refused(403, "POLICY_DENIED");
    let mut modest = delete("a.txt", "s1");
    modest["approval_mode_requested"] = json!("read_only");
    world.agent.call(&modest).await.refused(403, "MODE_UPGRADED");
    assert!(pending(&world.ben).await.is_empty() && world.is_there("a.txt"));
}

#[tokio::test]
async fn a_held_call_that_is_asked_again_attaches_to_the_same_approval() {
    let world = World::new().await;
    world.setup.put("a.txt", "x");
    let first = world.agent.call(&delete("a.txt", "s1")).await.held();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let second = world.agent.call(&delete("a.txt", "s1")).await.held();
    assert_eq!(
        (&first["approval_id"], &first["call_id"]),
        (&second["approval_id"], &second["call_id"])
    );
    assert_eq!(pending(&world.ben).await.len(), 1);
}

/// The approvals that wait for a person.
async fn pending(person: &Client) -> Vec<Value> {
    let list = person.get("/v1/approvals?state=pending").await.ok();
    list["approvals"].as_array().unwrap().clone()
}
