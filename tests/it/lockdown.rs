//! Lockdown: no call runs until somebody lifts it.

use serde_json::{Value, json};

use crate::harness::setup::{Setup, plan};

fn read(step: &str) -> Value {
    plan("files__read", step, json!({ "path": "a.txt" }))
}

#[tokio::test]
async fn in_a_lockdown_no_call_runs_until_it_is_lifted() {
    let setup = Setup::new().files_contract();
    let file = setup.put("a.txt", "x");
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    agent.call(&read("s1")).await.succeeded();
    let delete = plan("files__delete", "s2", json!({ "path": "a.txt" }));
    let held = agent.call(&delete).await.held();

    let set = ["directives", "freeze", "--lockdown", "--name", "Incident", "--for", "1h"];
    let set = [&set[..], &["--reason", "an agent misbehaves"]].concat();
    let ana = setup.token("user", "ana").await;
    let refused = setup.asks(&placet, &ana, &set).await;
    assert!(refused.err.contains("POLICY_DENIED"), "{refused:?}");
    let token = setup.token("user", "ben").await;
    let entered = setup.asks(&placet, &token, &set).await;
    let id = entered.ok().split_whitespace().find(|word| word.starts_with("dir_")).unwrap();
    let id = id.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_').to_owned();

    let status = setup.asks(&placet, &token, &["reload", "--status"]).await;
    assert!(status.ok().contains("lockdown: no call runs"), "{status:?}");
    let problem = agent.call(&read("s3")).await.refused(403, "POLICY_DENIED");
    assert!(problem["detail"].as_str().unwrap().contains("lockdown"), "{problem:#}");
    assert_eq!(ben.decide(&held, "approve").await.ok()["state"], "approved");
    let waits = agent.call(&delete).await;
    assert!(waits.status == 202 && file.try_exists().unwrap(), "{waits:?}");

    let lift = ["directives", "end", &id, "--reason", "it is stopped"];
    setup.asks(&placet, &token, &lift).await.ok();
    let status = setup.asks(&placet, &token, &["reload", "--status"]).await;
    assert!(!status.ok().contains("lockdown"), "{status:?}");
    agent.call(&read("s4")).await.succeeded();
    crate::harness::until("the approved call runs", || async { !file.try_exists().unwrap() }).await;
}

#[tokio::test]
async fn a_lockdown_of_one_adapter_leaves_the_others() {
    let setup = Setup::new().files_contract();
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let ben = setup.token("user", "ben").await;
    let unknown = ["directives", "freeze", "--lockdown", "--name", "x", "--for", "1h"];
    let of =
        |adapter: &'static str| [&unknown[..], &["--adapters", adapter, "--reason", "x"]].concat();
    let refused = setup.asks(&placet, &ben, &of("mail")).await;
    assert!(refused.err.contains("there is no adapter `mail`"), "{refused:?}");
    setup.asks(&placet, &ben, &of("files")).await.ok();
    agent.call(&read("s1")).await.refused(403, "POLICY_DENIED");
}
