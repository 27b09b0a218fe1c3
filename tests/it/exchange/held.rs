//! An agent that holds a user's token is not that user: what the token says the agent may do for the user, it says with the agent's own beside it.
//!
//! Owns the tokens as an agent holds them. The rules one by one are tested in `placet-identity`.

use serde_json::{Value, json};

use super::{World, search, send};
use crate::harness::client::{Client, text};

/// A client with a token like alice's, with other claims, alone.
async fn alone(world: &mut World, claims: Value) -> (Client, String) {
    let asked = json!({ "claims": claims });
    let token = text(&world.provider.tell(&format!("sign {asked}")).await, "token");
    (world.placet.client(Some(token.clone())), token)
}

#[tokio::test]
async fn an_agent_that_holds_an_approvers_token_does_not_approve_its_own_call() {
    let mut world = World::new().await;
    let held = world.call(&send("w1")).await.held();
    let approval = text(&held, "approval_id");
    let shown = world.ben().await.get(&format!("/v1/approvals/{approval}")).await.ok();
    let digest = text(&shown["approval"], "digest");
    // By the client that stands for the agent, by the agent's own name, and by the word of who may act.
    for claims in [
        json!({ "sub": "ben" }),
        json!({ "sub": "ben", "client_id": "agent-1" }),
        json!({ "sub": "ben", "client_id": "cli", "may_act": { "sub": "agent-1" } }),
    ] {
        let (agent, token) = alone(&mut world, claims).await;
        let refused = agent.decide_on(&approval, "approve", &digest).await;
        assert!(refused.text().contains("sign in at the console"), "{refused:?}");
        refused.refused(403, "POLICY_DENIED");
        for path in ["/v1/approvals", "/v1/tools"] {
            agent.get(path).await.refused(403, "POLICY_DENIED");
        }
        agent.call(&search("s1")).await.refused(403, "POLICY_DENIED");
        // It stays what it is: the user's word that the agent may act.
        let delegation = format!("Bearer {token}");
        world.agent().call_with(&search("s1"), "placet-delegation", &delegation).await.ok();
    }
    // By a client that nobody has called a person's; no agent has ever come with it.
    let unknown = alone(&mut world, json!({ "sub": "ben", "client_id": "portal" })).await.0;
    unknown.decide_on(&approval, "approve", &digest).await.refused(403, "POLICY_DENIED");
    let calls = world.guarded.calls();
    assert_eq!(world.look(&text(&held, "call_id"), 0).await.status, 202, "nobody has agreed");
    let (ben, _) = alone(&mut world, json!({ "sub": "ben", "client_id": "cli" })).await;
    ben.decide_on(&approval, "approve", &digest).await.ok();
    let call_id = text(&held, "call_id");
    world.end_of(&call_id).await;
    // By which token somebody decided is on the record, and shown.
    let approval = world.ben().await.get(&format!("/v1/approvals/{approval}")).await.ok();
    let vote = &approval["approval"]["votes"][0];
    assert_eq!((&vote["approver"], &vote["client"]), (&json!("ben"), &json!("cli")), "{vote:#}");
    let token_ref = text(vote, "token_ref");
    assert!(token_ref.starts_with("tok_"), "{token_ref}");
    let timeline = world.ben().await.get(&format!("/v1/calls/{call_id}/timeline")).await.ok();
    let said = format!("approved with {token_ref} of client cli");
    let steps = timeline["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["note"] == said.as_str()), "{timeline:#}");
    assert_eq!(world.guarded.calls(), calls + 1);
}
