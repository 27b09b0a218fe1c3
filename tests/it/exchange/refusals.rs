//! Calls that people agreed to and that get no credential: what no waiting fixes ends them, and somebody hears of all of it.

use std::{fs, time::Duration};

use placet_types::digest::Digest;
use serde_json::{Value, json};

use super::{CLIENT_SECRET, World, files_with, said, search, secrets, send};
use crate::harness::{client::text, search::plain_canary, seconds, until, within};

impl World {
    /// How an approval stands, as ben sees it.
    async fn approval(&self, held: &Value) -> Value {
        let id = text(held, "approval_id");
        self.ben().await.get(&format!("/v1/approvals/{id}")).await.ok()["approval"].clone()
    }

    /// The security events of a call, by the audit's own words.
    async fn alarms(&self, held: &Value) -> usize {
        let path = format!("/v1/calls/{}/timeline", text(held, "call_id"));
        let timeline = self.ben().await.get(&path).await.ok();
        let steps = timeline["steps"].as_array().unwrap();
        steps.iter().filter(|step| step["kind"] == "security").count()
    }

    /// Waits until an approved call was tried so often without success, for want of what an operator has to fix: each try is on the record.
    async fn is_tried(&self, held: &Value, times: usize) {
        let path = format!("/v1/calls/{}/timeline", text(held, "call_id"));
        let tried = async || {
            let timeline = self.ben().await.get(&path).await.ok();
            let steps = timeline["steps"].as_array().unwrap();
            let refused = |step: &&Value| step["code"] == "CREDENTIAL_MISCONFIGURED";
            steps.iter().filter(refused).count() >= times
        };
        until("it is tried again", tried).await;
    }
}

#[tokio::test]
async fn a_refusal_that_no_waiting_repairs_ends_the_call_and_alarms() {
    let mut world = World::new().await;
    for (code, expected) in [
        // First: what is refused to this user and target is remembered for some seconds.
        ("unsupported_grant_type", "CREDENTIAL_MISCONFIGURED"),
        ("invalid_target", "CREDENTIAL_REFUSED"),
        ("invalid_scope", "CREDENTIAL_REFUSED"),
        ("access_denied", "CREDENTIAL_REFUSED"),
    ] {
        let held = world.call(&send(code)).await.held();
        world.provider.tell(&format!("refuse {code}")).await;
        let call_id = text(&held, "call_id");
        let agreed = async { world.ben().await.decide(&held, "approve").await.ok() };
        let (told, _) = tokio::join!(world.look(&call_id, 20_000), agreed);
        let over = async {
            while world.approval(&held).await["state"] != "void" {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        within("its approval is over", over).await;
        let approval = world.approval(&held).await;
        assert!(approval.to_string().contains(expected), "{code}: {approval}");
        assert!(world.alarms(&held).await >= 1, "{code}: nobody hears of it");
        // Anyone who waits for it is told why it gets no credential, and not only that its approval is over.
        assert_eq!(text(&told.json(), "error_code"), expected, "{code}");
        world.provider.tell("refuse none").await;
    }
    assert_eq!(world.guarded.calls(), 0);
}

#[tokio::test]
async fn what_an_operator_can_repair_leaves_the_call_approved_and_alarms_once() {
    let answer = |members: Value| format!("answer {members}");
    for fault in [
        "refuse invalid_client".to_owned(),
        "refuse unauthorized_client".to_owned(),
        // Of an exchange it may be about a token.
        "refuse invalid_request".to_owned(),
        answer(json!({ "expires_in": "300" })),
        answer(json!({ "access_token": null })),
        answer(json!({ "token_type": "N_A" })),
        answer(json!({ "expires_in": 10 })),
    ] {
        let mut world = World::new().await;
        let held = world.call(&send("w1")).await.held();
        world.provider.tell(&fault).await;
        world.ben().await.decide(&held, "approve").await.ok();
        world.is_tried(&held, 3).await;
        assert_eq!(world.approval(&held).await["state"], "approved");
        assert_eq!(world.alarms(&held).await, 1);
        assert_eq!(world.placet.log().matches("gets no credential").count(), 1);
        let told = world
            .placet
            .log()
            .matches("credential misconfigured: operator action required")
            .count();
        assert_eq!(told, 1, "an outage is one message, whatever was tried");
        assert_eq!(world.guarded.calls(), 0);
        if fault.starts_with("answer") {
            world.provider.tell("answer {}").await;
            world.end_of(&text(&held, "call_id")).await;
            assert_eq!(world.guarded.calls(), 1, "{fault}");
        }
    }
}

#[tokio::test]
async fn a_secret_that_no_header_can_hold_is_for_operators_and_leaves_the_call_approved() {
    let world = World::new().await;
    let canary = plain_canary("lines");
    fs::write(world.setup.path("tool.txt"), format!("{canary}\nsecond line\n")).unwrap();
    let mut secrets = secrets();
    secrets["tool"] = json!({ "file": "tool.txt" });
    // It is shown for listings to a server that wants one for them.
    let closed = format!("{}.closed", world.guarded.record.display());
    fs::write(&closed, "").unwrap();
    // As what is shown for listings alone, and as the credential of the calls.
    let world = world.set(|setup| setup.with("secrets", secrets)).await;
    let mut world = world.with_credential(json!({ "secret": "tool" })).await;
    for step in ["listing", "sent"] {
        if step == "sent" {
            fs::remove_file(&closed).unwrap();
            let mut contract = world.setup.read_contract("mail");
            contract["credential"] = json!({ "type": "static_secret", "secret": "tool" });
            fs::write(world.setup.contract_file("mail"), contract.to_string()).unwrap();
            world = world.restarted().await;
        }
        let refused = world.call(&search(step)).await;
        let refused = refused.refused(502, "CREDENTIAL_MISCONFIGURED");
        assert_eq!(refused["execution"], "not_executed", "{refused:#}");
        let held = world.call(&send(step)).await.held();
        world.ben().await.decide(&held, "approve").await.ok();
        world.is_tried(&held, 1).await;
        assert_eq!(world.approval(&held).await["state"], "approved", "{step}");
        let log = world.placet.log();
        assert!(log.contains("the secret cannot be sent"), "{step}: {log}");
        assert!(log.contains("the secret `tool` holds what no header can"), "{step}: {log}");
        assert!(!log.contains(&canary), "{step}");
        assert_eq!(world.guarded.calls(), 0);
    }
}

#[tokio::test]
async fn a_misconfigured_broker_refuses_no_caller_and_the_same_call_runs_once_it_is_repaired() {
    let world = World::new().await;
    let file = world.setup.path("sts-secret");
    fs::write(&file, CLIENT_SECRET).unwrap();
    let mut secrets = secrets();
    secrets["sts-secret"] = json!({ "file": "sts-secret" });
    let world = world.set(|setup| setup.with("secrets", secrets)).await;
    let mut world = world.with_credential(json!({ "sts": "basic" })).await;
    let canary = plain_canary("idp");
    let body = json!({ "error": "invalid_client", "error_description": canary });
    world.provider.tell(&format!("fail {}", json!({ "status": 401, "body": body }))).await;
    let reply = world.call(&search("s1")).await;
    let refused = reply.refused(502, "CREDENTIAL_MISCONFIGURED");
    assert_eq!(
        (&refused["execution"], &refused["retryable"]),
        (&json!("not_executed"), &json!(true)),
        "{refused:#}"
    );
    assert!(text(&refused, "detail").contains("the credential broker is misconfigured"));
    let asked = world.look(&text(&refused, "call_id"), 0).await;
    asked.refused(502, "CREDENTIAL_MISCONFIGURED");
    for reply in [&reply, &asked] {
        let shown = format!("{:?} {}", reply.headers, reply.text());
        assert!(!shown.contains(&canary), "{shown}");
    }
    // What people agreed to waits for the same.
    let held = world.call(&send("w1")).await.held();
    world.ben().await.decide(&held, "approve").await.ok();
    world.is_tried(&held, 1).await;
    assert_eq!(world.approval(&held).await["state"], "approved");
    assert_eq!(world.guarded.calls(), 0);
    // With another secret the service is asked again at once.
    world.provider.tell("secret second-geheim").await;
    world.provider.tell("fail none").await;
    fs::write(file.with_extension("next"), "second-geheim").unwrap();
    fs::rename(file.with_extension("next"), &file).unwrap();
    world.call(&search("s1")).await.ok();
    assert_eq!(world.end_of(&text(&held, "call_id")).await["status"], "succeeded");
    assert_eq!(world.guarded.calls(), 2, "each of them once");
    let data = world.setup.data();
    let log = world.placet.stop().await;
    let rotated = log.lines().find(|line| line.contains("a secret was rotated"));
    assert!(
        rotated.is_some_and(|line| line.contains("sts-secret")),
        "its name is masked: {rotated:?}"
    );
    assert!(!log.contains(&canary) && files_with(&data, &canary).is_empty());
    assert!(!files_with(&data, "CREDENTIAL_MISCONFIGURED").is_empty(), "the search finds nothing");
}

#[tokio::test]
async fn a_stronger_sign_in_is_waited_for() {
    let mut world = World::new().await;
    let held = world.call(&send("w1")).await.held();
    world.provider.tell("refuse insufficient_user_authentication").await;
    world.ben().await.decide(&held, "approve").await.ok();
    let call_id = text(&held, "call_id");
    world.awaits_its_caller(&call_id).await;
    assert_eq!(world.approval(&held).await["state"], "approved");
    world.provider.tell("refuse none").await;
    world.provider.alice = text(&world.provider.tell("sign-in alice").await, "token");
    world.call(&send("w1")).await;
    world.end_of(&call_id).await;
    assert_eq!(world.guarded.calls(), 1);
}

#[tokio::test]
async fn an_agents_token_that_is_nearly_over_leaves_its_call_approved() {
    let mut world = World::new().await;
    let claims = json!({
        "sub": "agent-1", "client_id": "agent-1", "placet_kind": "agent", "exp": seconds() + 14,
    });
    let said = world.provider.tell(&format!("sign {}", json!({ "claims": claims }))).await;
    let client = world.placet.client(Some(text(&said, "token")));
    let alice = format!("Bearer {}", world.provider.alice);
    let held = client.call_with(&send("w1"), "placet-delegation", &alice).await.held();
    world.ben().await.decide(&held, "approve").await.ok();
    let call_id = text(&held, "call_id");
    world.awaits_its_caller(&call_id).await;
    assert_eq!(world.approval(&held).await["state"], "approved");
    assert_eq!(world.guarded.calls(), 0);
    // With a new one of its own, and the token of its user that was there.
    world.call(&send("w1")).await;
    world.end_of(&call_id).await;
    assert_eq!(world.guarded.calls(), 1);
}

/// What the server takes no more: the tokens with these `jti`.
fn withdraw(world: &World, tokens: &str) {
    behave(world, "withdrawn", tokens);
}

/// Tells the server how to behave.
fn behave(world: &World, how: &str, words: &str) {
    fs::write(format!("{}.{how}", world.guarded.record.display()), words).unwrap();
}

#[tokio::test]
async fn a_token_that_its_target_takes_no_more_is_minted_again_once() {
    let world = World::new().await;
    let first = said(&world.call(&search("s1")).await.ok());
    withdraw(&world, first["jti"].as_str().unwrap());
    // The one that is kept is refused, and the call is made with a new one.
    let second = said(&world.call(&search("s2")).await.ok());
    assert_ne!(second["jti"], first["jti"]);
    assert_eq!(world.guarded.calls(), 3, "one try with the first, one with the second");
    let third = said(&world.call(&search("s3")).await.ok());
    assert_eq!(third["jti"], second["jti"], "which is kept from then on");
    // A write is done once.
    let held = world.call(&send("w1")).await.held();
    world.ben().await.decide(&held, "approve").await.ok();
    let sent = world.end_of(&text(&held, "call_id")).await;
    let before = world.guarded.calls();
    withdraw(&world, said(&sent)["jti"].as_str().unwrap());
    let held = world.call(&send("w2")).await.held();
    world.ben().await.decide(&held, "approve").await.ok();
    let resent = world.end_of(&text(&held, "call_id")).await;
    assert_eq!(resent["status"], "succeeded", "{resent}");
    assert_ne!(said(&resent)["jti"], said(&sent)["jti"]);
    assert_eq!(world.guarded.calls(), before.saturating_add(2));
    // One that was minted for the call and is refused is not followed by another.
    withdraw(&world, "all");
    world.call(&search("s4")).await.refused(403, "CREDENTIAL_REFUSED");
    let before = world.guarded.calls();
    world.call(&search("s5")).await.refused(403, "CREDENTIAL_REFUSED");
    assert_eq!(
        world.guarded.calls(),
        before.saturating_add(1),
        "it was not minted for another call"
    );
}

#[tokio::test]
async fn a_token_that_does_not_allow_a_call_is_not_followed_by_another() {
    let world = World::new().await;
    let first = said(&world.call(&search("s1")).await.ok());
    behave(&world, "forbids", "");
    withdraw(&world, "all");
    world.call(&search("s2")).await.refused(403, "CREDENTIAL_REFUSED");
    assert_eq!(world.guarded.calls(), 2, "after a 403 nothing is sent once more");
    // It is good all the same, for what it allows.
    withdraw(&world, "");
    let after = said(&world.call(&search("s3")).await.ok());
    assert_eq!(after["jti"], first["jti"]);
}

#[tokio::test]
async fn many_refusals_of_one_token_are_one_exchange() {
    let world = World::new().await;
    let first = said(&world.call(&search("s1")).await.ok());
    withdraw(&world, first["jti"].as_str().unwrap());
    let [one, two, three, four] = [1, 2, 3, 4].map(|step| search(&format!("many-{step}")));
    let (one, two, three, four) =
        tokio::join!(world.call(&one), world.call(&two), world.call(&three), world.call(&four));
    let tokens = [one, two, three, four].map(|reply| text(&said(&reply.ok()), "jti"));
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    assert_ne!(json!(tokens[0]), first["jti"]);
}

/// The digests of the tokens that the server was shown, in their order, each once.
fn shown(world: &World) -> Vec<String> {
    let digest = |token: &String| Digest::of(token.as_bytes()).to_string();
    let mut digests: Vec<String> = world.guarded.bearers().iter().map(digest).collect();
    digests.dedup();
    digests
}

#[tokio::test]
async fn the_token_of_a_second_try_is_on_the_record_before_it_is_sent() {
    let world = World::new().await;
    let sent = async |world: &World, step: &str| {
        let held = world.call(&send(step)).await.held();
        world.ben().await.decide(&held, "approve").await.ok();
        held
    };
    let held = sent(&world, "w1").await;
    let first = said(&world.end_of(&text(&held, "call_id")).await);
    withdraw(&world, first["jti"].as_str().unwrap());
    behave(&world, "silent", "");
    sent(&world, "w2").await;
    let tried = async {
        while world.guarded.calls() < 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("it is sent once more", tried).await;
    let digests = shown(&world);
    let World { setup, placet, .. } = world;
    placet.kill().await;
    let second = digests.last().unwrap();
    assert_ne!(Some(second), digests.first());
    assert!(!files_with(&setup.data(), second).is_empty(), "{second} is not on the record");
}
