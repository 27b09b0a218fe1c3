//! What a run has in its context, from outside: declared over HTTP and on the command line, brought by results, kept over restarts and
//! on every node, and shown to the one who is asked.

use serde_json::{Value, json};

use crate::harness::{
    client::{Client, text},
    npm,
    postgres::Database,
    setup::{Setup, plan},
};
use crate::workspace;

/// The contract of the built-in adapter.
fn contract() -> Value {
    serde_saphyr::from_str(&workspace::read("adapters/files/contracts/files.yaml")).unwrap()
}

/// The built-in adapter, whose files hold secrets and whose writes leave the house.
fn leaky(setup: Setup, root: Option<&std::path::Path>) -> Setup {
    let mut contract = contract();
    contract["limits"]["calls_per_minute_max"] = json!(100_000);
    contract["capabilities"]["read"]["result_taint"] = json!(["secret"]);
    contract["capabilities"]["write"]["also"] = json!(["network"]);
    if let Some(root) = root {
        contract["transport"]["root"] = json!(root);
    }
    setup.contract("files", &contract)
}

fn of(run: &str, mut call: Value) -> Value {
    call["run"]["run_id"] = json!(run);
    call
}

fn write(run: &str, step: &str) -> Value {
    of(
        run,
        plan("files__write", step, json!({ "path": format!("{run}-{step}.txt"), "content": "x" })),
    )
}

fn read(run: &str, step: &str) -> Value {
    of(run, plan("files__read", step, json!({ "path": "key.txt" })))
}

async fn waits(agent: &Client, call: &Value) -> Value {
    let held = agent.call(call).await.held();
    // No other policy holds such a call; which one does is not the caller's to know.
    assert_eq!(held["requirement"]["once_only"], true, "{held:#}");
    held
}

#[tokio::test]
async fn a_run_that_has_read_a_secret_sends_nothing_out_unseen_even_after_a_restart() {
    let setup = leaky(Setup::new(), None);
    setup.put("key.txt", "hunter2");
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&write("r1", "s1")).await.succeeded();
    agent.call(&read("r1", "s2")).await.succeeded();
    let held = waits(&agent, &write("r1", "s3")).await;
    agent.call(&write("r2", "s1")).await.succeeded();
    // Killed, not stopped: what an answer brought is kept as firmly as the answer.
    placet.kill().await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    waits(&agent, &write("r1", "s4")).await;
    agent.call(&write("r2", "s2")).await.succeeded();

    let token = setup.token("user", "ben").await;
    let shown =
        setup.asks(&placet, &token, &["approvals", "show", &text(&held, "approval_id")]).await;
    assert!(shown.ok().contains("the run has in it: secret"), "{shown:?}");
    let ben = setup.ben(&placet).await;
    let path = format!("/v1/approvals/{}", text(&held, "approval_id"));
    let proposal = ben.get(&path).await.ok()["proposal"].clone();
    assert_eq!(proposal["requirement"]["reasons"][0]["policy"], "tainted-egress", "{proposal:#}");
    assert_eq!(proposal["evidence"]["taint"], json!(["secret"]));
    let timeline = ben.get(&format!("/v1/calls/{}/timeline", text(&held, "call_id"))).await.ok();
    let asked = timeline["steps"].as_array().unwrap().iter().find(|step| step["kind"] == "held");
    assert_eq!(asked.unwrap()["taint"], json!(["secret"]), "{timeline:#}");
    ben.decide(&held, "approve").await.ok();
    agent.end_of(&text(&held, "call_id")).await.succeeded();
    assert!(setup.file("r1-s3.txt").is_file());
}

#[tokio::test]
async fn what_a_call_declares_stays_and_another_word_is_refused_with_those_there_are() {
    let setup = leaky(Setup::new(), None);
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let mut wrong = write("r1", "s1");
    wrong["run"]["taint"] = json!(["secrets"]);
    let problem = agent.call(&wrong).await.refused(400, "VALIDATION_ERROR");
    let detail = problem.to_string();
    assert!(detail.contains("secrets") && detail.contains("untrusted_content"), "{problem:#}");
    agent.call(&write("r1", "s1")).await.succeeded();
    let token = setup.token("agent", "dev-agent").await;
    let list =
        ["call", "files__list", "--run", "r1", "--step", "s2", "--safety-mode", "destructive"];
    let declaring = [&list[..], &["--taint", "pii,secret"]].concat();
    setup.asks(&placet, &token, &declaring).await.ok();
    let held = waits(&agent, &write("r1", "s3")).await;
    let path = format!("/v1/approvals/{}", text(&held, "approval_id"));
    let shown = setup.ben(&placet).await.get(&path).await.ok();
    assert_eq!(shown["proposal"]["evidence"]["taint"], json!(["secret", "pii"]));
}

#[tokio::test]
async fn a_remote_tool_waits_while_a_secret_is_in_the_context() {
    let setup = Setup::new().with("contracts", json!("contracts"));
    let (_server, url) = npm::stub_over_http(&setup.path("record")).await;
    let import = ["adapters", "import", "--name", "remote", "--mode-default", "read_only"];
    let remote = ["--url", url.as_str(), "--private-network"];
    setup.configured(&[&import[..], &remote].concat()).await.ok();
    let mut contract = setup.read_contract("remote");
    let look = contract["capabilities"]["look"].as_object_mut().unwrap();
    // What the import writes down holds without it as well.
    assert_eq!(look.remove("also"), Some(json!(["network"])));
    let setup = setup.contract("remote", &contract);
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let look = |run, step| of(run, plan("remote__look", step, json!({ "what": "x" })));
    agent.call(&look("r1", "s1")).await.succeeded();
    let mut tainted = look("r2", "s1");
    tainted["run"]["taint"] = json!(["secret"]);
    waits(&agent, &tainted).await;
}

fn in_session(session: &str, mut call: Value) -> Value {
    call["run"]["session_id"] = json!(session);
    call
}

#[tokio::test]
async fn taint_follows_a_session_into_its_other_runs() {
    let setup = leaky(Setup::new(), None);
    setup.put("key.txt", "hunter2");
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    // Begun before the secret is read, and after it.
    agent.call(&in_session("chat", write("r1", "s1"))).await.succeeded();
    agent.call(&in_session("chat", read("r2", "s2"))).await.succeeded();
    waits(&agent, &in_session("chat", write("r1", "s3"))).await;
    waits(&agent, &in_session("chat", write("r3", "s4"))).await;
    // What a run has once, it has without naming the session too.
    waits(&agent, &write("r3", "s5")).await;
    agent.call(&in_session("other", write("r4", "s6"))).await.succeeded();
    agent.call(&write("r5", "s7")).await.succeeded();
    // A run that had read a secret by itself brings it into a session that it names later.
    agent.call(&read("r6", "s8")).await.succeeded();
    agent
        .call(&in_session("late", of("r6", plan("files__list", "s9", json!({})))))
        .await
        .succeeded();
    waits(&agent, &in_session("late", write("r7", "s10"))).await;
    placet.kill().await;
    let placet = setup.start().await;
    waits(&setup.agent(&placet).await, &in_session("chat", write("r8", "s11"))).await;
}

#[tokio::test]
async fn what_one_node_has_read_keeps_back_what_another_would_send() {
    let database = Database::start().await;
    let (one, two) = database.two_nodes().await;
    let files = one.data().join("files");
    let (one, two) = (leaky(one, Some(&files)), leaky(two, Some(&files)));
    one.put("key.txt", "hunter2");
    let (a, b) = (one.start().await, two.start().await);
    let (here, there) = (one.agent(&a).await, two.agent(&b).await);
    there.call(&write("r1", "s1")).await.succeeded();
    here.call(&read("r1", "s2")).await.succeeded();
    waits(&there, &write("r1", "s3")).await;
    there.call(&write("r2", "s1")).await.succeeded();
    // The same when the node that read it is gone.
    a.kill().await;
    waits(&there, &write("r1", "s4")).await;
}

#[tokio::test]
async fn a_contract_with_a_taint_that_there_is_not_does_not_load() {
    let mut contract = contract();
    contract["capabilities"]["read"]["result_taint"] = json!(["poison"]);
    let gone = Setup::new().contract("files", &contract).refuses().await;
    gone.says(&["poison", "untrusted_content"]);
}
