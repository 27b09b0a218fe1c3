//! Looking things up: a decision by the id that a refusal names, a record with its arguments, what an error code means.
//!
//! Owns what people get, over HTTP and on the command line, of calls that were really made.

use http::{Method, header};
use serde_json::{Value, json};

use crate::harness::setup::{Setup, plan};

/// A call that its run is not allowed to make.
fn too_strong() -> Value {
    let mut call = plan("files__delete", "d1", json!({ "path": "a.txt" }));
    call["run"] = json!({ "run_id": "careful", "safety_mode": "read_only" });
    call
}

#[tokio::test]
async fn a_refused_call_leads_to_its_decision_for_those_who_may_see_it() {
    let setup = Setup::new();
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&plan("files__read", "s1", json!({ "path": "a.txt" }))).await.succeeded();
    let refused = agent.call(&too_strong()).await.refused(403, "POLICY_DENIED");
    let id = refused["policy_decision_id"].as_str().unwrap();

    let ben = setup.token("user", "ben").await;
    let shown = setup.asks(&placet, &ben, &["decisions", id]).await;
    for words in
        [&format!("{id}: deny (ceiling)"), "files__delete", "agent dev-agent", "POLICY_DENIED"]
    {
        assert!(shown.ok().contains(words), "{words}: {}", shown.ok());
    }
    // Who answers for the agent may see it; others and the agent may not.
    let ana = setup.token("user", "ana").await;
    assert!(setup.asks(&placet, &ana, &["decisions", id]).await.ok().contains("ceiling"));
    let dana = setup.client(&placet, "user", "dana").await;
    dana.get(&format!("/v1/decisions/{id}")).await.refused(404, "NOT_FOUND");
    agent.get(&format!("/v1/decisions/{id}")).await.refused(403, "POLICY_DENIED");

    let ben = setup.ben(&placet).await;
    let list = |query: &'static str| {
        let ben = &ben;
        async move { ben.get(&format!("/v1/decisions?{query}")).await.ok()["decisions"].clone() }
    };
    let verdicts = |found: Value| -> Vec<String> {
        let found = found.as_array().unwrap().clone();
        found.iter().map(|one| format!("{} {}", one["verdict"], one["capability_id"])).collect()
    };
    let (read, delete) = ("\"allow\" \"files/read\"", "\"deny\" \"files/delete\"");
    assert_eq!(verdicts(list("").await), [delete, read], "the newest first");
    assert_eq!(verdicts(list("verdict=deny").await), [delete]);
    assert_eq!(verdicts(list("tool=files__read").await), [read]);
    assert_eq!(verdicts(list("policy=agents-read-only").await), [read]);
    assert_eq!(verdicts(list("agent=dev-agent&limit=1").await), [delete]);
    assert!(verdicts(list("agent=nobody").await).is_empty());
    assert!(verdicts(list("to=1577836800000").await).is_empty());
}

#[tokio::test]
async fn the_ledger_shows_arguments_and_is_listed_by_time() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    for path in ["one.txt", "two.txt", "three.txt"] {
        let args = json!({ "path": path, "content": "x", "overwrite": false });
        agent.call(&plan("files__write", path, args)).await.succeeded();
    }
    let ben = setup.token("user", "ben").await;
    let records = setup.asks(&placet, &ben, &["ledger", "list", "--json"]).await.json();
    let mut paths = Vec::new();
    for record in records.as_array().unwrap() {
        let id = record["record_id"].as_str().unwrap();
        let shown = setup.asks(&placet, &ben, &["ledger", "show", id]).await;
        assert!(!shown.ok().lines().any(|line| line.trim() == "null"), "{}", shown.ok());
        let path = shown.ok().lines().find(|line| line.contains("\"path\"")).map(str::trim);
        paths.push(path.unwrap_or_else(|| panic!("no arguments: {}", shown.ok())).to_owned());
    }
    let own = |path: &str| paths.iter().position(|line| line.contains(path)).unwrap();
    assert!(own("three.txt") < own("two.txt") && own("two.txt") < own("one.txt"), "{paths:?}");
}

#[tokio::test]
async fn the_type_of_a_problem_leads_to_a_page() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let refused = agent.call(&too_strong()).await.refused(403, "POLICY_DENIED");
    let path = refused["type"].as_str().unwrap();
    let anybody = placet.client(None);
    let document = anybody.get(path).await;
    assert_eq!((document.status, &document.json()["error_code"]), (200, &json!("POLICY_DENIED")));
    for (path, status, words) in
        [(path, 200, "What to do"), ("/no/such/page", 404, "There is nothing here")]
    {
        let page = anybody.request(Method::GET, path).header(header::ACCEPT, "text/html");
        let page = anybody.send(page.body(bytes::Bytes::new()).unwrap()).await;
        assert_eq!(page.status, status, "{path}");
        assert!(
            page.text().contains("<!DOCTYPE html>") && page.text().contains(words),
            "{path}: {}",
            page.text()
        );
    }
    anybody.get("/no/such/page").await.refused(404, "NOT_FOUND");
    anybody.get("/errors/NO_SUCH_CODE").await.refused(404, "NOT_FOUND");
}
