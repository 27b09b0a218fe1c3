//! Calls that people agreed to and that get no credential: what no waiting mends ends them, and somebody hears of all of it.

use std::{fs, time::Duration};

use placet_types::digest::Digest;
use serde_json::{Value, json};

use super::{World, files_with, said, search, send};
use crate::harness::{client::text, within};

impl World {
    /// How an approval stands, as ben sees it.
    async fn approval(&self, held: &Value) -> Value {
        let id = text(held, "approval_id");
        self.ben().await.get(&format!("/v1/approvals/{id}")).await.ok()["approval"].clone()
    }

    /// The security events of a call, by the audit's own words.
    async fn alarms(&self, held: &Value) -> usize {
        let path = format!("/v1/calls/{}/trail", text(held, "call_id"));
        let trail = self.ben().await.get(&path).await.ok();
        let steps = trail["steps"].as_array().unwrap();
        steps.iter().filter(|step| step["kind"] == "security").count()
    }
}

#[tokio::test]
async fn a_refusal_that_no_waiting_mends_ends_the_call_and_alarms() {
    let mut world = World::new().await;
    for code in ["invalid_target", "invalid_scope", "access_denied"] {
        let held = world.call(&send(code)).await.json();
        world.provider.tell(&format!("refuse {code}")).await;
        world.ben().await.decide(&held, "approve").await.ok();
        let over = async {
            while world.approval(&held).await["state"] != "void" {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        within("its approval is over", over).await;
        let approval = world.approval(&held).await;
        assert!(approval.to_string().contains("CREDENTIAL_REFUSED"), "{code}: {approval}");
        assert!(world.alarms(&held).await >= 1, "{code}: nobody hears of it");
        let told = world.look(&text(&held, "call_id"), 0).await;
        let told = text(&told.json(), "error_code");
        assert!(["CREDENTIAL_REFUSED", "APPROVAL_VOID"].contains(&told.as_str()), "{code}: {told}");
        world.provider.tell("refuse none").await;
    }
    assert_eq!(world.guarded.calls(), 0);
}

#[tokio::test]
async fn what_an_operator_can_mend_leaves_the_call_approved_and_alarms_once() {
    for code in ["invalid_client", "unauthorized_client"] {
        let mut world = World::new().await;
        let held = world.call(&send("w1")).await.json();
        world.provider.tell(&format!("refuse {code}")).await;
        world.ben().await.decide(&held, "approve").await.ok();
        let tried = async {
            // Each try is on the record.
            let path = format!("/v1/calls/{}/trail", text(&held, "call_id"));
            loop {
                let trail = world.ben().await.get(&path).await.ok();
                let steps = trail["steps"].as_array().unwrap();
                let refused = |step: &&Value| step["code"] == "CREDENTIAL_REFUSED";
                if steps.iter().filter(refused).count() >= 3 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        within("it is tried again", tried).await;
        assert_eq!(world.approval(&held).await["state"], "approved");
        assert_eq!(world.alarms(&held).await, 1);
        assert_eq!(world.placet.log().matches("gets no credential").count(), 1);
        let told = world.placet.log().matches("an operator has to mend a credential").count();
        assert_eq!(told, 1, "an outage is one message, whatever was tried");
        assert_eq!(world.guarded.calls(), 0);
    }
}

#[tokio::test]
async fn a_stronger_sign_in_is_waited_for() {
    let mut world = World::new().await;
    let held = world.call(&send("w1")).await.json();
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

/// What the server takes no more: the tokens with these `jti`.
fn withdraw(world: &World, tokens: &str) {
    behave(world, "withdrawn", tokens);
}

/// Tells the server how to behave.
fn behave(world: &World, how: &str, words: &str) {
    fs::write(format!("{}.{how}", world.guarded.record.display()), words).unwrap();
}

#[tokio::test]
async fn a_token_that_its_target_takes_no_more_is_minted_anew_once() {
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
    for fact in ["credential_replaced", second] {
        assert!(!files_with(&setup.data(), fact).is_empty(), "{fact} is not on the record");
    }
}
