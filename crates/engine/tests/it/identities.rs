//! What the audit and approvers are shown of how a caller proved who it is.

use placet_ledger::audit::{AuditEvent, AuditKind};
use placet_types::proof::AuthType;

use crate::world::{World, finished, held, plan, refused};

fn event(world: &World, kind: AuditKind) -> AuditEvent {
    let events = world.store.audit();
    events.into_iter().rfind(|event| event.kind == kind).expect("there is such an entry")
}

#[tokio::test]
async fn entries_of_a_call_say_how_its_caller_proved_itself() {
    let world = World::new().await;
    finished(world.call(plan("look", "s1", "a")).await);
    finished(world.call(plan("note", "s2", "a")).await);
    refused(world.call(plan("nothing", "s3", "a")).await);
    held(world.call(plan("erase", "s4", "a")).await);
    for kind in
        [AuditKind::ReadDispatched, AuditKind::Dispatched, AuditKind::Refused, AuditKind::Held]
    {
        let caller = event(&world, kind).caller.expect("the entry says who called");
        assert_eq!(caller.agent_urn, "urn:placet:agent:acme:bot", "{kind:?}");
        assert_eq!((caller.lifecycle.as_str(), caller.attested), ("active", true), "{kind:?}");
        assert_eq!(caller.auth_type, AuthType::Development, "{kind:?}");
        assert_eq!((caller.workload_identity, caller.delegation), (None, None), "{kind:?}");
    }
}

#[tokio::test]
async fn approvers_see_the_delegation_and_never_a_token() {
    let world = World::new().await;
    let asked = held(world.call_as(world.agent_for("ana").await, plan("erase", "s1", "a")).await);
    let entry = event(&world, AuditKind::Held).caller.expect("the entry says who called");
    let detail =
        world.engine.approvals().approval(&world.person("ben").await, &asked.approval_id).await;
    let proposal = detail.unwrap().proposal.unwrap();
    let shown = proposal.evidence.caller.expect("the proposal says who called");
    assert_eq!(shown, *entry);
    let delegation = shown.delegation.as_ref().expect("there is a user");
    assert_eq!((delegation.subject.as_str(), delegation.auth_type), ("ana", AuthType::Development));
    let text = serde_json::to_string(&shown).unwrap();
    assert!(!text.contains("tok_"), "{text}");
}
