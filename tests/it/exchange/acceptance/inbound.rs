//! What arrives: tokens that are none for us, and everything else that a request brings along.

use std::fs;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::super::{CLIENT_SECRET, DIRECTORY, World, search};
use crate::harness::{
    client::text,
    search::{Places, canary, part},
    seconds,
};

/// The same with another word about the issuer.
async fn with_issuer(world: World, key: &str, value: Value) -> World {
    let mut issuers = world.provider.issuers();
    issuers[0][key] = value;
    world.set(|setup| setup.with("issuers", issuers)).await
}

#[tokio::test]
async fn no_inbound_byte_reaches_an_upstream() {
    let mut world = World::new().await;
    let odd: Vec<(&str, String)> = [
        "cookie",
        "x-api-key",
        "x-forwarded-access-token",
        "x-amzn-oidc-data",
        "forwarded",
        "baggage",
    ]
    .map(|name| (name, canary(&name.replace('-', ""))))
    .into();
    let agent = world.agent();
    let mut request = agent.request(Method::POST, "/v1/calls");
    for (name, value) in &odd {
        request = request.header(*name, format!("session={value}"));
    }
    let request = request
        .header("content-type", "application/json")
        .header("placet-delegation", format!("Bearer {}", world.provider.alice));
    let body = Bytes::from(search("s1").to_string());
    let called = agent.send(request.body(body).unwrap()).await;
    called.ok();
    let query = canary("query");
    let path = format!("/v1/tools?access_token={}", query.replace(['+', '/'], "."));
    let asked = agent.get(&path).await;

    // The token service is shown the two tokens, each in its own place, once.
    let exchanges = world.asked().await;
    assert_eq!(exchanges.len(), 1);
    let mut exchange = exchanges[0].clone();
    for (field, token) in
        [("actor_token", &world.provider.agent), ("subject_token", &world.provider.alice)]
    {
        assert_eq!(exchange[field].take(), json!(token), "{field}");
    }
    let mut places = Places::default();
    places.add("the token service", exchange.to_string());
    places.add("the server", world.guarded.shown());
    places.add("the answer", format!("{called:?} {}", called.text()));
    places.add("the other answer", format!("{asked:?} {}", asked.text()));
    assert!(places.has("the server", "Bearer ") && places.has("the server", "tools/call"));
    assert!(places.has("the token service", "client_assertion"));
    places.add_folder(&world.setup.data());
    places.add("the log", world.placet.stop().await);
    places.would_find(&canary("planted"));
    // Of a token what nothing else has: its number and its signature.
    let of_token = |token: &String| {
        let parts: Vec<&str> = token.split('.').collect();
        let claims = URL_SAFE_NO_PAD.decode(parts[1]).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        [text(&claims, "jti"), part(parts[2])]
    };
    let mut canaries: Vec<String> = odd.into_iter().map(|(_, value)| value).collect();
    canaries.extend([&world.provider.agent, &world.provider.alice].into_iter().flat_map(of_token));
    canaries.push(query.replace(['+', '/'], "."));
    for canary in canaries {
        assert_eq!(places.with(&canary), Vec::<String>::new(), "{canary}");
    }
}

#[tokio::test]
async fn what_a_token_service_returns_reaches_no_upstream() {
    let world = World::new().await;
    // Let off everything that a service can be let off.
    let mut services = world.provider.services();
    services[0]["lenient"] = json!(["issued_type", "audience", "subject", "actor"]);
    let mut world = world.set(|setup| setup.with("sts", services)).await;
    let scope = "mail.read";
    let alice = world.signed(&json!({ "claims": { "scope": scope } })).await;
    let agent =
        json!({ "sub": "agent-1", "client_id": "agent-1", "placet_kind": "agent", "scope": scope });
    let agent = world.signed(&json!({ "claims": agent })).await;
    let client = world.placet.client(Some(agent.clone()));
    // As they are, and as somebody may write them who means the same.
    let padded = |token: &str| token.replacen('.', "=.", 1);
    let other = |token: &str| token.replace('-', "+").replace('_', "/");
    let echoes = [
        ("subject", alice.clone()),
        ("actor", agent.clone()),
        ("padded-subject", padded(&alice)),
        ("padded-actor", padded(&agent)),
        ("other-alphabet", other(&alice) + "="),
        ("within", format!("v1.{alice}")),
    ];
    for (step, token) in &echoes {
        world.provider.tell(&format!("answer {}", json!({ "access_token": token }))).await;
        let refused = World::call_as(&client, &search(step), &alice).await;
        refused.refused(403, "CREDENTIAL_REFUSED");
        assert_eq!(world.guarded.calls(), 0, "the {step}'s token reached the server");
    }
    assert_eq!(world.asked().await.len(), echoes.len());
    world.provider.tell("answer {}").await;
    World::call_as(&client, &search("good"), &alice).await.ok();
    let shown = world.guarded.shown();
    assert_eq!(world.guarded.calls(), 1);
    for token in [alice, agent] {
        let signature = part(token.rsplit('.').next().unwrap());
        assert!(!shown.contains(&signature), "the server was shown what is not for it");
    }
}

#[tokio::test]
async fn the_header_that_proves_placet_to_a_token_service_reaches_no_upstream() {
    let world = World::new().await;
    let mut world = world.with_credential(json!({ "sts": "basic" })).await;
    let pair = format!("placet-basic:{CLIENT_SECRET}");
    let echoes = [STANDARD.encode(&pair), URL_SAFE_NO_PAD.encode(&pair), CLIENT_SECRET.to_owned()];
    for (step, echo) in echoes.iter().enumerate() {
        world.provider.tell(&format!("answer {}", json!({ "access_token": echo }))).await;
        let refused = world.call(&search(&format!("s{step}"))).await;
        refused.refused(403, "CREDENTIAL_REFUSED");
    }
    assert_eq!(world.asked().await.len(), echoes.len());
    assert_eq!(world.guarded.calls(), 0);
    world.provider.tell("answer {}").await;
    world.call(&search("good")).await.ok();
    assert_eq!(world.guarded.calls(), 1);
}

#[tokio::test]
async fn id_token_is_not_an_access_token() {
    let mut world = World::new().await;
    let signed_in = world.provider.tell("sign-in alice").await;
    world.takes_not(&text(&signed_in, "id_token")).await;
    // One that is for us says by its type what it is.
    let typed = world.signed(&json!({ "typ": "JWT", "claims": {} })).await;
    world.takes_not(&typed).await;
    // Where that type is taken, by what only an ID token has.
    let mut world = with_issuer(world, "accept_typ_jwt", json!(true)).await;
    world.takes_not(&text(&signed_in, "id_token")).await;
    for hash in ["at_hash", "c_hash"] {
        let odd = world.signed(&json!({ "typ": "JWT", "claims": { hash: "x" } })).await;
        world.takes_not(&odd).await;
    }
    world.call_for("typed", &typed).await.ok();
    world.call_for("good", &text(&signed_in, "token")).await.ok();
}

#[tokio::test]
async fn missing_aud_is_refused() {
    let mut world = World::new().await;
    for aud in [json!(null), json!([]), json!("urn:mail-api")] {
        let odd = world.signed(&json!({ "claims": { "aud": aud } })).await;
        world.takes_not(&odd).await;
    }
    let good = world.signed(&json!({ "claims": { "aud": ["placet"] } })).await;
    world.call_for("good", &good).await.ok();
}

#[tokio::test]
async fn iss_array_is_refused() {
    let mut world = World::new().await;
    let issuer = world.provider.issuer.clone();
    for iss in [json!([issuer]), json!(["https://evil.example", issuer])] {
        let odd = world.signed(&json!({ "claims": { "iss": iss } })).await;
        world.takes_not(&odd).await;
    }
    let good = world.signed(&json!({ "claims": { "iss": issuer } })).await;
    world.call_for("good", &good).await.ok();
}

#[tokio::test]
async fn future_iat_is_refused() {
    let mut world = World::new().await;
    // Far enough ahead that it is still to come when it arrives, on whatever machine.
    let ahead = |by: u64| {
        let issued = seconds().saturating_add(by);
        json!({ "iat": issued, "exp": issued.saturating_add(200) })
    };
    for by in [600, 86_400 * 365] {
        let odd = world.signed(&json!({ "claims": ahead(by) })).await;
        world.takes_not(&odd).await;
    }
    let good = world.signed(&json!({ "claims": ahead(0) })).await;
    world.call_for("good", &good).await.ok();
}

#[tokio::test]
async fn empty_may_act_authorizes_nobody() {
    let mut world = with_issuer(World::new().await, "act", json!({})).await;
    let issuer = world.provider.issuer.clone();
    for may_act in [
        json!({}),
        json!([]),
        json!(["agent-1"]),
        json!("agent-1"),
        json!({ "sub": null }),
        json!({ "iss": issuer }),
        json!({ "sub": "agent-2" }),
        json!({ "sub": "agent-1", "until": 1 }),
    ] {
        // Of two tokens, and as one that says both.
        let two = world.signed(&json!({ "claims": { "may_act": may_act } })).await;
        world.acts_not(&two).await;
        let act = json!({ "sub": "agent-1" });
        let one = world.signed(&json!({ "claims": { "may_act": may_act, "act": act } })).await;
        world.takes_not(&one).await;
    }
    let named = json!({ "sub": "agent-1" });
    let two = world.signed(&json!({ "claims": { "may_act": named } })).await;
    world.call_for("good", &two).await.ok();
    let one = world.signed(&json!({ "claims": { "may_act": named, "act": named } })).await;
    world.placet.client(Some(one)).get("/v1/tools").await.ok();
}

#[tokio::test]
async fn actor_token_never_equals_subject_token() {
    let world = World::new().await;
    let people = DIRECTORY.replace(r#""ana": {}"#, r#""ana": {}, "agent-1": {}"#);
    fs::write(world.setup.path("directory.yaml"), people).unwrap();
    let mut world = world.restarted().await;
    // A user of the agent's own name: everything about the two tokens is right, but that they are about the same subject.
    let namesake = world.signed(&json!({ "claims": { "sub": "agent-1" } })).await;
    let alike = world.signed(&json!({ "claims": {} })).await;
    let acting = world.signed(&json!({ "claims": { "placet_kind": "agent" } })).await;
    let (agent, alice) = (world.provider.agent.clone(), world.provider.alice.clone());
    // The same token twice, and another one of the same subject.
    for (actor, subject) in [
        (&agent, &agent),
        (&alice, &alice),
        (&alike, &alice),
        (&acting, &alice),
        (&acting, &acting),
        (&agent, &namesake),
    ] {
        let client = world.placet.client(Some(actor.clone()));
        let reply = World::call_as(&client, &search("same"), subject).await;
        assert!([401, 403].contains(&reply.status), "{reply:?}");
    }
    assert!(world.asked().await.is_empty(), "a token was shown");
    assert_eq!(world.guarded.calls(), 0);
    world.call(&search("good")).await.ok();
    let asked = world.asked().await;
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (&asked[0]["subject_token"], &asked[0]["actor_token"]),
        (&json!(alice), &json!(agent))
    );
}
