//! Which calls share what was minted, and which never do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde_json::json;
use tokio::task::JoinSet;

use super::{
    super::{Guarded, World, said, search},
    reads,
};
use crate::harness::{
    client::text,
    setup::{Setup, plan},
};

/// The tokens that a server was shown.
fn bearers(server: &Guarded) -> BTreeSet<String> {
    server.bearers().into_iter().collect()
}

#[tokio::test]
async fn one_exchange_for_a_hundred_concurrent_calls() {
    let mut world = World::new().await;
    // So that it is under way while the others come; those who come later find what it brought.
    world.provider.tell("late 500").await;
    let (agent, alice) = (world.agent(), world.provider.alice.clone());
    let mut calls = JoinSet::new();
    for number in 0..100 {
        let (agent, alice) = (agent.clone(), alice.clone());
        calls.spawn(async move {
            let mut call = search(&format!("s{number}"));
            // Runs of their own: one may not make that many calls.
            call["run"]["run_id"] = json!(format!("run-{number}"));
            let reply = World::call_as(&agent, &call, &alice).await;
            text(&said(&reply.ok()), "jti")
        });
    }
    let tokens: BTreeSet<String> = calls.join_all().await.into_iter().collect();
    assert_eq!((tokens.len(), world.asked().await.len()), (1, 1));
    assert_eq!(world.guarded.calls(), 100);
}

#[tokio::test]
async fn grant_for_host_a_is_refused_at_host_b() {
    let world = World::new().await;
    // Another host that takes the very same tokens, with a record of its own.
    let room = Setup::new();
    let other = Guarded::start(&room, &world.provider.issuer).await;
    world.leaves("post", &other.url, &json!({})).await;
    let world = world.restarted().await;
    world.call(&search("a")).await.ok();
    world.call(&plan("post__search", "b", json!({ "what": "invoices" }))).await.ok();
    let (at_a, at_b) = (bearers(&world.guarded), bearers(&other));
    assert_eq!((at_a.len(), at_b.len()), (1, 1));
    assert!(at_a.is_disjoint(&at_b), "one host was shown what was minted for the other");
    // Not where the one sends us to the other either.
    fs::write(format!("{}.moved", world.guarded.record.display()), &other.url).unwrap();
    let moved = world.call(&search("moved")).await;
    assert_ne!(moved.json()["status"], "succeeded", "{moved:?}");
    assert!(world.guarded.calls() >= 2, "it was not sent to the other");
    assert_eq!((bearers(&other), other.calls()), (at_b, 1));
}

/// What may differ in two calls, from outside: who calls with which tokens, for what, and under which contract.
#[tokio::test]
async fn cache_key_differs_in_every_security_field() {
    let world = World::new().await;
    let url = world.guarded.url.clone();
    let mut contract = world.setup.read_contract("mail");
    // So that nobody has to agree to a call with other scopes.
    let mode = contract["capabilities"]["search"]["mode"].clone();
    reads(&mut contract["capabilities"]["send"], &mode);
    fs::write(world.setup.contract_file("mail"), contract.to_string()).unwrap();
    let own = json!({ "type": "client_credentials", "audience": null, "resource": "urn:mail-api", "scopes_optional": [] });
    for (name, words) in [
        ("same", json!({})),
        ("client", json!({ "sts": "basic" })),
        ("actor", json!({ "actor": "gateway" })),
        ("resource", json!({ "resource": "urn:mail-api" })),
        ("kind", own),
    ] {
        world.leaves(name, &url, &words).await;
    }
    let mut world = world.restarted().await;
    let (agent, alice) = (world.provider.agent.clone(), world.provider.alice.clone());
    let bob = world.provider.bob.clone();
    let again = world.signed(&json!({ "claims": {} })).await;
    let as_agent = json!({ "sub": "agent-1", "client_id": "agent-1", "placet_kind": "agent" });
    let other_actor = world.signed(&json!({ "claims": as_agent })).await;
    let calls = [
        ("nothing", "mail__search", &agent, &alice),
        ("the subject", "mail__search", &agent, &bob),
        ("the subject's token", "mail__search", &agent, &again),
        ("the actor's token", "mail__search", &other_actor, &alice),
        ("the scopes", "mail__send", &agent, &alice),
        ("the contract", "same__search", &agent, &alice),
        ("the client", "client__search", &agent, &alice),
        ("the actor", "actor__search", &agent, &alice),
        ("the resource", "resource__search", &agent, &alice),
        ("the kind", "kind__search", &agent, &alice),
    ];
    let mut first = BTreeMap::new();
    for round in 0..3 {
        for (differs, tool, actor, subject) in &calls {
            let client = world.placet.client(Some((*actor).clone()));
            let step = format!("{round}-{}", differs.replace([' ', '\''], "-"));
            let call = plan(tool, &step, json!({ "what": "invoices" }));
            let reply = World::call_as(&client, &call, subject).await;
            let token = text(&said(&reply.ok()), "jti");
            let before = first.entry(*differs).or_insert_with(|| token.clone());
            assert_eq!(*before, token, "{differs}: what is there serves the same call again");
        }
    }
    let tokens: BTreeSet<&String> = first.values().collect();
    assert_eq!(tokens.len(), calls.len(), "calls share what is not for both: {first:#?}");
    // In our own name there is nothing to exchange.
    assert_eq!(world.asked().await.len(), calls.len() - 1);
}

#[tokio::test]
async fn revoked_subject_purges_grants() {
    let mut world = World::new().await;
    world.call(&search("s1")).await.ok();
    let bob = world.provider.bob.clone();
    let bobs = said(&world.call_for("s2", &bob).await.ok());
    let revoke =
        ["directives", "revoke", "--subject", "alice", "--reason", "laptop lost", "--json"];
    world.types(&revoke).await.json();
    let metrics = world.placet.ask("/metrics").await.text();
    assert!(metrics.contains("placet_subjects_revoked 1\n"), "{metrics}");
    world.call(&search("s3")).await.refused(401, "CREDENTIAL_EXPIRED");
    // Others were not meant, and need nothing new.
    assert_eq!(said(&world.call_for("s4", &bob).await.ok())["jti"], bobs["jti"]);
    assert_eq!((world.asked().await.len(), world.guarded.calls()), (2, 3));
}
