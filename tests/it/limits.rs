//! Limits that hold whatever run, node or process a call is made in: rates, budgets over a window, held calls, backups, disk space.
//!
//! Owns what callers and operators see of them. The arithmetic of windows is tested where it is.

use std::{fs, time::Duration};

use http::header;
use serde_json::{Value, json};

use crate::harness::{
    client::{Client, Reply, text},
    postgres::Database,
    seconds,
    setup::{Setup, plan},
};
use crate::workspace;

/// A deployment whose agent is in a class with these limits, as is a second agent.
pub(crate) fn with_class(setup: Setup, class: &Value) -> Setup {
    let agent = json!({ "owner": "ana", "classes": ["small"] });
    let directory = json!({ "tenants": { "local": {
        "groups": { "approvers": {}, "operators": {}, "freeze-approvers": {}, "emergency": {} },
        "users": { "ana": {}, "ben": { "groups": ["approvers", "operators", "freeze-approvers", "emergency"] } },
        "agents": { "dev-agent": agent, "second": agent },
        "classes": { "small": class },
    } } });
    fs::write(setup.path("directory.yaml"), directory.to_string()).unwrap();
    setup.with("directory", json!("directory.yaml"))
}

/// The built-in adapter with a rate for each of its tools.
fn with_rate(setup: Setup, calls_per_minute_max: u32) -> Setup {
    let mut contract: Value =
        serde_saphyr::from_str(&workspace::read("adapters/files/contracts/files.yaml")).unwrap();
    contract["limits"]["calls_per_minute_max"] = json!(calls_per_minute_max);
    setup.contract("files", &contract)
}

/// A call in a run of its own.
fn list(step: &str) -> Value {
    let mut call = plan("files__list", step, json!({}));
    call["run"]["run_id"] = json!(format!("run-{step}"));
    call
}

fn write(step: &str) -> Value {
    let arguments = json!({ "path": format!("{step}.txt"), "content": "x" });
    let mut call = plan("files__write", step, arguments);
    call["run"]["run_id"] = json!(format!("run-{step}"));
    call
}

fn delete(step: &str) -> Value {
    plan("files__delete", step, json!({ "path": "a.txt" }))
}

/// Waits until a minute has so much left that a test is over before it ends.
async fn within_a_minute() {
    while seconds() % 60 > 35 {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Refused, with a time to come again in the header and in the body that are the same and not after the end of the window.
fn comes_again(reply: &Reply, status: u16, code: &str, within_s: u64) -> Value {
    let problem = reply.refused(status, code);
    assert_eq!(problem["execution"], "not_executed", "{problem:#}");
    let after_s: u64 = reply.headers[header::RETRY_AFTER].to_str().unwrap().parse().unwrap();
    let after_ms = problem["retry_after_ms"].as_u64().unwrap();
    assert!((1..=within_s).contains(&after_s), "{after_s}");
    assert_eq!(after_ms.div_ceil(1_000), after_s, "{problem:#}");
    problem
}

fn limited(reply: &Reply) {
    assert_eq!(comes_again(reply, 429, "RATE_LIMITED", 60)["retryable"], true);
}

#[tokio::test]
async fn an_agents_rate_holds_over_runs_and_a_kill() {
    let setup = with_class(Setup::new(), &json!({ "calls_per_minute_max": 3 }));
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    within_a_minute().await;
    agent.call(&list("s1")).await.succeeded();
    agent.call(&list("s2")).await.succeeded();
    agent.call(&write("s3")).await.succeeded();
    limited(&agent.call(&list("s4")).await);
    limited(&agent.call(&write("s5")).await);
    assert!(!setup.file("s5.txt").try_exists().unwrap());
    // An answer that is there already costs nothing.
    assert_eq!(agent.call(&write("s3")).await.succeeded()["replayed"], true);
    placet.kill().await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    limited(&agent.call(&list("s6")).await);
    limited(&agent.call(&write("s5")).await);
}

#[tokio::test]
async fn a_tools_rate_is_shared_by_all_agents_of_a_tenant() {
    let setup = with_rate(with_class(Setup::new(), &json!({})), 2);
    let placet = setup.start().await;
    let first = setup.agent(&placet).await;
    let second = placet.client(Some(setup.token("agent", "second").await));
    within_a_minute().await;
    first.call(&list("s1")).await.succeeded();
    second.call(&list("s2")).await.succeeded();
    limited(&first.call(&list("s3")).await);
    limited(&second.call(&list("s4")).await);
    // Another tool has a rate of its own.
    first.call(&write("s5")).await.succeeded();
    placet.kill().await;
    let placet = setup.start().await;
    limited(&setup.agent(&placet).await.call(&list("s6")).await);
}

#[tokio::test]
async fn two_nodes_share_the_rate_of_an_agent() {
    let database = Database::start().await;
    let (one, two) = database.two_nodes().await;
    let class = json!({ "calls_per_minute_max": 4 });
    let (one, two) = (with_class(one, &class), with_class(two, &class));
    let (a, b) = (one.start().await, two.start().await);
    let agents = [one.agent(&a).await, two.agent(&b).await];
    within_a_minute().await;
    for step in 0..4_usize {
        agents[step % 2].call(&list(&format!("s{step}"))).await.succeeded();
    }
    for agent in &agents {
        limited(&agent.call(&list("more")).await);
    }
}

#[tokio::test]
async fn a_new_run_is_no_new_budget() {
    let class = json!({ "calls_max": 3, "budget_window": "day" });
    let setup = with_class(Setup::new(), &class);
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    for step in ["s1", "s2", "s3"] {
        agent.call(&list(step)).await.succeeded();
    }
    let refused = agent.call(&list("s4")).await;
    comes_again(&refused, 403, "BUDGET_EXHAUSTED", 86_400);
    // The budget is each agent's.
    let second = placet.client(Some(setup.token("agent", "second").await));
    second.call(&list("s5")).await.succeeded();
}

#[tokio::test]
async fn a_run_cannot_take_the_name_of_a_meter() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let mut call = list("s1");
    call["run"]["run_id"] = json!("placet/meter/minute/agent");
    let refused = setup.agent(&placet).await.call(&call).await;
    refused.refused(400, "VALIDATION_ERROR");
    assert_eq!(refused.pointers(), ["/run/run_id"]);
}

#[tokio::test]
async fn an_agent_holds_no_more_calls_than_configured() {
    let setup = Setup::new().with("limits", json!({ "held_per_agent_max": 3 }));
    let placet = setup.start().await;
    setup.put("a.txt", "x");
    let agent = setup.agent(&placet).await;
    let calls = ["s1", "s2", "s3", "s4", "s5"].map(delete);
    let [c1, c2, c3, c4, c5] = calls.each_ref().map(|call| agent.call(call));
    let replies: [Reply; 5] = tokio::join!(c1, c2, c3, c4, c5).into();
    let held: Vec<Value> =
        replies.iter().filter(|reply| reply.status == 202).map(Reply::held).collect();
    assert_eq!(held.len(), 3);
    for reply in replies.iter().filter(|reply| reply.status != 202) {
        let problem = comes_again(reply, 503, "OVERLOADED", 60);
        assert_eq!(problem["retryable"], true);
    }
    placet.kill().await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&delete("more")).await.refused(503, "OVERLOADED");
    setup.ben(&placet).await.decide(&held[0], "deny").await.ok();
    agent.call(&delete("more")).await.held();
    agent.call(&delete("too-many")).await.refused(503, "OVERLOADED");
}

fn with_backups(interval_s: u64) -> Setup {
    let ledger = json!({ "backups": "backups", "backup_interval_s": interval_s, "backups_max": 2 });
    Setup::new().with("ledger", ledger)
}

async fn backup(admin: &Client) -> Reply {
    admin.post("/backups", &json!({})).await
}

#[tokio::test]
async fn a_backup_is_made_once_in_an_interval() {
    let setup = with_backups(60);
    let placet = setup.start().await;
    let admin = Client::new(placet.admin.clone(), None);
    backup(&admin).await.ok();
    comes_again(&backup(&admin).await, 429, "RATE_LIMITED", 60);
}

#[tokio::test]
async fn the_oldest_backups_are_deleted_and_nothing_else() {
    let setup = with_backups(0);
    let placet = setup.start().await;
    let folder = setup.path("backups");
    fs::create_dir_all(folder.join("backup-of-mine")).unwrap();
    let admin = Client::new(placet.admin.clone(), None);
    let mut made = Vec::new();
    for _ in 0..4 {
        made.push(text(&backup(&admin).await.ok(), "folder"));
    }
    let found = fs::read_dir(&folder).unwrap();
    let mut found: Vec<String> =
        found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, [made[2].as_str(), made[3].as_str(), "backup-of-mine"]);
}

fn write_in(run: &str, safety_mode: Option<&str>, step: &str) -> Value {
    let mut call = write(step);
    call["run"] = match safety_mode {
        Some(mode) => json!({ "run_id": run, "safety_mode": mode }),
        None => json!({ "run_id": run }),
    };
    call["approval_mode_requested"] = json!("local_write");
    call
}

#[tokio::test]
async fn a_run_keeps_its_ceiling_where_later_calls_name_none() {
    let setup = with_class(Setup::new(), &json!({}));
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&write_in("named", Some("local_write"), "s1")).await.succeeded();
    agent.call(&write_in("named", None, "s2")).await.succeeded();
    let other = agent.call(&write_in("named", Some("network"), "s3")).await;
    let problem = other.refused(400, "VALIDATION_ERROR").to_string();
    assert!(problem.contains("leave it out, or begin another run"), "{problem}");
    agent.call(&write_in("unnamed", None, "s4")).await.refused(403, "POLICY_DENIED");
}

#[tokio::test]
async fn a_run_that_names_no_ceiling_has_its_class_limit() {
    let setup = with_class(Setup::new(), &json!({ "safety_mode_max": "local_write" }));
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&write_in("run", None, "s1")).await.succeeded();
    let mut delete = delete("s2");
    delete["run"] = json!({ "run_id": "run" });
    agent.call(&delete).await.refused(403, "POLICY_DENIED");
}
