//! What a token service answers: more than was asked for, something else, nothing, the way to somebody else.

use serde_json::{Value, json};

use super::super::{World, files_with, said, search, send};
use crate::{
    harness::{
        client::text,
        search::{part, plain_canary},
        until,
    },
    notifications::Receiver,
};

/// That calls get no credential while the provider answers with these members, and that none reaches the server.
async fn refuses_answers(mut world: World, answers: &[Value]) {
    // What is wrong with all its answers is for operators.
    for (number, answer) in answers.iter().enumerate() {
        world.provider.tell(&format!("answer {answer}")).await;
        let step = format!("odd-{number}");
        world.call(&search(&step)).await.refused(502, "CREDENTIAL_MISCONFIGURED");
    }
    assert_eq!(world.asked().await.len(), answers.len(), "each was asked for");
    assert_eq!(world.guarded.calls(), 0);
    world.provider.tell("answer {}").await;
    world.call(&search("good")).await.ok();
    assert_eq!(world.guarded.calls(), 1);
}

#[tokio::test]
async fn scope_may_narrow_never_widen() {
    let mut world = World::new().await;
    // Wider, wider in other words, and too narrow: asked for are `mail.read`, and `mail.labels` as far as there is any.
    let granted = ["mail.read mail.labels mail.send", "mail.read MAIL.READ", "mail.labels"];
    for (number, scopes) in granted.iter().enumerate() {
        world.provider.tell(&format!("grant {scopes}")).await;
        let step = format!("odd-{number}");
        world.call(&search(&step)).await.refused(403, "CREDENTIAL_REFUSED");
    }
    // A wide token in an answer that says less.
    world.provider.tell("grant mail.read mail.send").await;
    world.provider.tell(&format!("answer {}", json!({ "scope": "mail.read" }))).await;
    world.call(&search("hidden")).await.refused(403, "CREDENTIAL_REFUSED");
    assert_eq!(world.guarded.calls(), 0);
    world.provider.tell("answer {}").await;
    world.provider.tell("grant asked").await;
    assert_eq!(said(&world.call(&search("good")).await.ok())["scope"], "mail.read");
    let asked = world.asked().await;
    assert_eq!(asked.len(), 5);
    assert!(asked.iter().all(|form| form["scope"] == "mail.labels mail.read"), "{asked:#?}");
}

#[tokio::test]
async fn wrong_issued_type_is_refused() {
    let of = |name: &str| json!(format!("urn:ietf:params:oauth:token-type:{name}"));
    let types = [of("refresh_token"), of("id-jag"), json!("access_token"), json!(null)];
    let answers = types.map(|kind| json!({ "issued_token_type": kind }));
    refuses_answers(World::new().await, &answers).await;
}

#[tokio::test]
async fn na_token_type_is_not_forwarded() {
    let types = [json!("N_A"), json!("DPoP"), json!(""), json!(null)];
    let answers = types.map(|kind| json!({ "token_type": kind }));
    refuses_answers(World::new().await, &answers).await;
}

#[tokio::test]
async fn sts_redirect_is_not_followed() {
    let mut world = World::new().await;
    let elsewhere = Receiver::start(0).await;
    // To another host, and to where the way out is open: itself.
    let itself = format!("{}/token", world.provider.issuer);
    let statuses = [301, 302, 303, 307, 308];
    let answers = statuses.into_iter().flat_map(|status| {
        [elsewhere.url(), itself.clone()]
            .map(|location| json!({ "status": status, "location": location }))
    });
    for (number, answer) in (1..).zip(answers) {
        world.provider.tell(&format!("fail {answer}")).await;
        let reply = world.call(&search(&format!("s{number}"))).await;
        reply.refused(502, "CREDENTIAL_MISCONFIGURED");
        assert_eq!(world.asked().await.len(), number, "it went on after {answer}");
    }
    assert!(elsewhere.taken().is_empty(), "the caller's token went elsewhere");
    assert_eq!(world.guarded.calls(), 0);
    world.provider.tell("fail none").await;
    world.call(&search("good")).await.ok();
}

#[tokio::test]
async fn idp_error_text_never_reaches_the_caller() {
    let mut world = World::new().await;
    let canary = plain_canary("idp");
    // Services repeat what they were shown too.
    let words = format!("{canary} {}", world.provider.alice);
    let described = |code: &str| json!({ "error": code, "error_description": words });
    let answers = [
        (400, described("invalid_grant")),
        (400, described("invalid_request")),
        (400, described(&canary)),
        (403, json!(words)),
        (200, described("none")),
        (200, json!({ "access_token": words })),
        (500, json!(words)),
        // The last one: who is refused as a client asks no more.
        (401, described("invalid_client")),
    ];
    let mut before = 0;
    for (number, (status, body)) in answers.iter().enumerate() {
        world.provider.tell(&format!("fail {}", json!({ "status": status, "body": body }))).await;
        let reply = world.call(&search(&format!("s{number}"))).await;
        assert!([401, 403, 502, 503].contains(&reply.status), "{status} {body}: {reply:?}");
        let shown = format!("{:?} {}", reply.headers, reply.text());
        assert!(!shown.contains(&canary), "{shown}");
        assert!(!shown.contains(&part(&world.provider.alice)), "{shown}");
        let asked = world.asked().await.len();
        assert!(asked > before, "{status} {body}: nobody said anything");
        before = asked;
    }
    assert_eq!(world.guarded.calls(), 0);
    let (data, alice) = (world.setup.data(), part(&world.provider.alice));
    let log = world.placet.stop().await;
    for canary in [&canary, &alice] {
        assert!(!log.contains(canary.as_str()), "it is in the log");
        assert_eq!(files_with(&data, canary), Vec::<String>::new());
    }
    assert!(!files_with(&data, "CREDENTIAL_MISCONFIGURED").is_empty(), "the search finds nothing");
}

#[tokio::test]
async fn sts_down_means_no_call_and_no_fallback() {
    let mut world = World::new().await;
    assert_eq!(world.call(&search("s1")).await.status, 200);
    let calls = world.guarded.calls();
    world.provider.child.kill().await.unwrap();
    // What is there serves on; another kind of call has nothing, and is not made with what another one has.
    assert_eq!(world.call(&search("s2")).await.status, 200);
    let bobs = world.call_for("s3", &world.provider.bob).await;
    bobs.refused(503, "ADAPTER_UNAVAILABLE");
    let held = world.call(&send("w1")).await.held();
    let tries = || world.placet.log().matches("a token service is asked once more").count();
    let before = tries();
    world.ben().await.decide(&held, "approve").await.ok();
    until("its credential is asked for", async || tries() > before).await;
    let call_id = text(&held, "call_id");
    let is_approved =
        async || world.look(&call_id, 0).await.json()["pending_approval"]["state"] == "approved";
    until("it waits again, approved", is_approved).await;
    assert_eq!(world.guarded.calls(), calls + 1);
}
