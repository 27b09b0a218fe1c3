//! A group of another tenant is asked: its people see their part, decide on it, and reach nothing else.

use serde_json::{Value, json};

use placet_approvals::views::{
    ApprovalDetail, ApprovalEventKind, BulkDecisionRequest, BulkItem, DecisionRequest, InboxQuery,
    Whose,
};
use placet_policy::bundle::BundleSource;
use placet_types::{approval::VoteChoice, error::ErrorCode};

use super::{of, ran, send, world};
use crate::world::{World, finished, held, refused};

/// A gate that asks the own finance, and the tenant that the call names.
fn two_tenants() -> BundleSource {
    super::gated(
        "send",
        "@approver_group(\"finance, {input.what}/credit-approvers\") @quorum(\"2\") @expires(\"24h\")",
        &format!(
            "context.req.approval.total >= 2 && {} && {}",
            of("finance", 1),
            of("{input.what}/credit-approvers", 1)
        ),
    )
}

fn inbox_of(state: Option<&str>) -> InboxQuery {
    InboxQuery { state: state.map(str::to_owned), ..InboxQuery::default() }
}

/// Whether somebody finds the approval in none of the ways there are.
async fn sees_nothing(world: &World, person: &str, asked: &placet_engine::answer::Held) {
    let caller = world.person(person).await;
    let engine = &world.engine;
    let gone = engine.approvals().approval(&caller, &asked.approval_id).await.unwrap_err();
    assert_eq!(gone.code, ErrorCode::NotFound, "{person}");
    assert!(
        engine.approvals().approvals(&caller, None, None, 50).await.unwrap().is_empty(),
        "{person}"
    );
    let view = engine.approvals().inbox(&caller, InboxQuery::default()).await.unwrap();
    assert_eq!((view.total, view.mine, view.approvals.len()), (Some(0), 0, 0), "{person}");
    let gone = engine.approvals().timeline(&caller, &asked.call_id).await.unwrap_err();
    assert_eq!(gone.code, ErrorCode::NotFound, "{person}");
    let vote = DecisionRequest {
        decision: VoteChoice::Approve,
        reason: "fine".to_owned(),
        digest: placet_types::digest::Digest::of(b"any"),
    };
    let gone = engine.approvals().decide(&caller, &asked.approval_id, vote).await.unwrap_err();
    assert_eq!(gone.code, ErrorCode::NotFound, "{person}");
}

#[tokio::test]
async fn a_call_runs_when_the_own_tenant_and_the_named_one_have_agreed() {
    let world = world(two_tenants()).await;
    let asked = held(world.call(send("s1", "globex")).await);
    assert!(!world.seen("gil@globex", &asked).await.standing.completes);
    assert_eq!(world.vote("finn", &asked, VoteChoice::Approve).await.unwrap(), "pending");
    // Another of the own side is not the other side.
    assert_eq!(world.vote("fia", &asked, VoteChoice::Approve).await.unwrap(), "pending");
    let standing = world.seen("gil@globex", &asked).await.standing;
    assert!(standing.may_approve && standing.may_deny, "{standing:?}");
    assert!(!standing.completes, "how far the others are is not an external approver's to know");
    assert!(!standing.may_edit && !standing.grantable && standing.stands_for.is_none());
    assert_eq!(world.vote("gil@globex", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    finished(world.end_of(&asked).await);
    assert_eq!(world.witness.effects("send").len(), 1);
    let votes = world.seen("finn", &asked).await.approval.votes;
    let external = votes.iter().find(|vote| vote.approver.as_str() == "gil").unwrap();
    assert_eq!(external.tenant.as_ref().unwrap().as_str(), "globex");
    assert!(external.part_digest.is_some_and(|part| part != external.shown_digest));
    let as_what: Vec<_> = external.groups.iter().map(ToString::to_string).collect();
    assert_eq!(as_what, ["credit-approvers"], "what they are asked as, of all their groups");
}

#[tokio::test]
async fn an_external_approver_is_shown_what_to_decide_on_and_nothing_else_of_the_other_tenant() {
    let world = world(two_tenants()).await;
    let mut call = send("s1", "globex");
    call["args"]["pin"] = json!("4711-secret");
    let asked = held(world.call_as(world.agent_for("leo").await, call).await);
    world.vote("finn", &asked, VoteChoice::Approve).await.unwrap();
    let own = world.seen("fia", &asked).await;
    let detail = world.seen("gil@globex", &asked).await;
    assert!(detail.proposal.is_none() && detail.outcome.is_none());
    let part = detail.part.clone().unwrap();
    assert_eq!(part.preview, own.proposal.as_ref().unwrap().evidence.preview);
    assert_eq!(part.preview["pin"], "[sensitive]");
    assert_eq!((part.asked_by.as_str(), part.asked_of.as_str()), ("acme", "globex"));
    assert_eq!(part.requester.id.as_str(), "bot");
    assert_eq!(part.digest(), detail.approval.digest);
    assert_ne!(detail.approval.digest, own.approval.digest);
    let text = serde_json::to_string(&detail).unwrap();
    for hidden in
        ["finn", "leo", "ana", "finance", "budget", "credential", "target", "run_id", "4711"]
    {
        // `credential` is no part of the group's name.
        let text = text.replace("credit-approvers", "");
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    let groups: Vec<_> = detail.standing.progress.iter().map(|of| of.group.to_string()).collect();
    assert_eq!(groups, ["globex/credit-approvers"]);
    // The same in lists.
    let gil = world.person("gil@globex").await;
    let listed = world.engine.approvals().approvals(&gil, Some("pending"), None, 50).await.unwrap();
    assert_eq!(listed, std::slice::from_ref(&detail.approval));
    let page = world.engine.approvals().inbox(&gil, InboxQuery::default()).await.unwrap();
    assert_eq!((page.total, page.mine), (Some(1), 1));
    assert_eq!(page.approvals[0].approval, detail.approval);
    assert_eq!(page.load.waiting_by_group.len(), 0);
    // What an external approver looks for finds nothing that an external approver is not shown.
    for (search, found) in [("leo", 0), ("bot", 1), ("send", 1)] {
        let query = InboxQuery { search: Some(search.to_owned()), ..InboxQuery::default() };
        assert_eq!(
            world.engine.approvals().inbox(&gil, query).await.unwrap().total,
            Some(found),
            "{search}"
        );
    }
    for (group, found) in [("finance", 0), ("credit-approvers", 0), ("globex/credit-approvers", 1)]
    {
        let query = InboxQuery { group: Some(group.parse().unwrap()), ..InboxQuery::default() };
        assert_eq!(
            world.engine.approvals().inbox(&gil, query).await.unwrap().total,
            Some(found),
            "{group}"
        );
    }
    let query = InboxQuery { whose: Whose::Asked, ..InboxQuery::default() };
    assert_eq!(world.engine.approvals().inbox(&gil, query).await.unwrap().total, Some(0));
}

#[tokio::test]
async fn nobody_else_of_the_other_tenant_sees_that_there_is_anything() {
    let world = world(two_tenants()).await;
    let asked = held(world.call(send("s1", "globex")).await);
    // An auditor over there, in a group of the name that is asked here; and a person known by claims alone.
    for person in ["zoe@globex", "una@globex"] {
        sees_nothing(&world, person, &asked).await;
    }
    let bot = world.caller(placet_types::principal::PrincipalKind::Agent, "bot@globex").await;
    assert!(world.engine.approvals().approval(&bot, &asked.approval_id).await.is_err());
    // Where the own group of that name is asked, the other tenant's is not.
    let home = held(world.call(send("s2", "acme")).await);
    sees_nothing(&world, "zoe@globex", &home).await;
    let gil = world.person("gil@globex").await;
    assert!(world.engine.approvals().approval(&gil, &home.approval_id).await.is_err());
}

#[tokio::test]
async fn an_external_approver_reaches_nothing_but_the_decision() {
    let world = world(two_tenants()).await;
    let asked = held(world.call(send("s1", "globex")).await);
    let gil = world.person("gil@globex").await;
    let gone = world.engine.approvals().timeline(&gil, &asked.call_id).await.unwrap_err();
    assert_eq!(gone.code, ErrorCode::NotFound);
    let args = json!({ "what": "globex" });
    let refusal = world.edit("gil@globex", &asked, args).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PolicyDenied, "{refusal:?}");
    let refusal = world.grant("gil@globex", &asked, 3).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PolicyDenied, "{refusal:?}");
    // A decision names the part: the digest that the own side decides by is another one.
    let digest = world.seen("finn", &asked).await.approval.digest;
    let vote = DecisionRequest { decision: VoteChoice::Approve, reason: "ok".to_owned(), digest };
    let stale = world.engine.approvals().decide(&gil, &asked.approval_id, vote).await.unwrap_err();
    assert_eq!(stale.problems[0].pointer, "/digest");
    // Nor is the external approver's part what the own side decides by.
    let digest = world.seen("gil@globex", &asked).await.approval.digest;
    let vote = DecisionRequest { decision: VoteChoice::Approve, reason: "ok".to_owned(), digest };
    let finn = world.person("finn").await;
    assert!(world.engine.approvals().decide(&finn, &asked.approval_id, vote).await.is_err());
    // Nor does a grant come of it for the own side: another tenant agrees to single calls.
    assert!(world.grant("finn", &asked, 3).await.is_err());
    world.vote("gil@globex", &asked, VoteChoice::Approve).await.unwrap();
    let twice = world.vote("gil@globex", &asked, VoteChoice::Deny).await.unwrap_err();
    assert!(twice.message.contains("decided on this approval already"), "{twice:?}");
    assert!(world.seen("gil@globex", &asked).await.standing.why_not.unwrap().contains("decided"));
    assert!(world.witness.effects("send").is_empty());
}

#[tokio::test]
async fn a_no_of_the_named_tenant_ends_it() {
    let world = world(two_tenants()).await;
    let asked = held(world.call(send("s1", "globex")).await);
    world.vote("finn", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(world.vote("ben@globex", &asked, VoteChoice::Deny).await.unwrap(), "denied");
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ApprovalDenied);
    assert!(world.witness.effects("send").is_empty());
    // Anyone who was asked finds it among what is over.
    let gil = world.person("gil@globex").await;
    let over = world.engine.approvals().inbox(&gil, inbox_of(Some("denied"))).await.unwrap();
    assert_eq!((over.total, over.approvals.len(), over.approvals[0].mine), (None, 1, false));
    assert_eq!(over.approvals[0].approval.votes.len(), 1, "the colleague's, and nobody else's");
}

#[tokio::test]
async fn a_tenant_that_is_not_there_refuses_the_call_and_nobody_is_asked() {
    let world = world(two_tenants()).await;
    for (step, what) in
        ["initech", "Globex", "globex/credit-approvers", "*"].into_iter().enumerate()
    {
        let refusal = refused(world.call(send(&format!("s{step}"), what)).await);
        assert_eq!(refusal.code, ErrorCode::PolicyDenied, "{what}");
        assert!(!refusal.message.contains(what), "{}", refusal.message);
    }
    let finn = world.person("finn").await;
    assert!(world.engine.approvals().approvals(&finn, None, None, 9).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_edit_does_not_send_a_call_to_another_tenant() {
    let world = world(two_tenants()).await;
    let asked = held(world.call(send("s1", "globex")).await);
    let elsewhere = world.edit("finn", &asked, json!({ "what": "acme" })).await.unwrap_err();
    assert_eq!(elsewhere.problems[0].pointer, "/args", "{elsewhere:?}");
    let nowhere = world.edit("finn", &asked, json!({ "what": "initech" })).await.unwrap_err();
    assert_eq!(nowhere.code, ErrorCode::PolicyDenied);
    // What keeps the tenant is shown to its people again.
    let before = world.seen("gil@globex", &asked).await;
    world.edit("finn", &asked, json!({ "what": "globex", "pin": "other" })).await.unwrap();
    let after = world.seen("gil@globex", &asked).await;
    let edits = |seen: &ApprovalDetail| seen.part.as_ref().unwrap().edits;
    let masked = after.part.as_ref().unwrap().edited_masked.iter();
    assert_eq!(masked.map(String::as_str).collect::<Vec<_>>(), ["/pin"]);
    assert_eq!((edits(&before), edits(&after)), (0, 1));
    assert_ne!(after.approval.digest, before.approval.digest);
    assert_eq!(world.vote("gil@globex", &asked, VoteChoice::Approve).await.unwrap(), "pending");
    // Finn wrote it: somebody else has to agree at home.
    assert_eq!(world.vote("fia", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    finished(world.end_of(&asked).await);
}

#[tokio::test]
async fn news_reach_an_external_approver_who_is_asked_and_name_their_own_groups() {
    let world = world(two_tenants()).await;
    let mut gil = world.engine.approvals().listen(&world.person("gil@globex").await);
    let mut zoe = world.engine.approvals().listen(&world.person("zoe@globex").await);
    let asked = held(world.call(send("s1", "globex")).await);
    let news = gil.next().await.unwrap();
    let approval_id = Some(asked.approval_id.clone());
    assert_eq!((news.kind, news.approval_id), (ApprovalEventKind::Asked, approval_id.clone()));
    let groups: Vec<_> = news.groups.iter().map(ToString::to_string).collect();
    assert_eq!(groups, ["globex/credit-approvers"]);
    // Neither who else decides nor what becomes of the call is theirs to hear.
    world.vote("finn", &asked, VoteChoice::Approve).await.unwrap();
    world.vote("gil@globex", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    let news = gil.next().await.unwrap();
    assert_eq!((news.kind, news.approval_id), (ApprovalEventKind::Approved, approval_id));
    let silence = tokio::time::timeout(std::time::Duration::from_millis(200), gil.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    let silence = tokio::time::timeout(std::time::Duration::from_millis(200), zoe.next()).await;
    assert!(silence.is_err(), "{silence:?}");
}

#[tokio::test]
async fn several_of_one_kind_are_decided_together_by_external_tenants_too() {
    let world = world(two_tenants()).await;
    let first = held(world.call(send("s1", "globex")).await);
    let second = held(world.call(send("s2", "globex")).await);
    let mut approvals = Vec::new();
    for asked in [&first, &second] {
        let digest = world.seen("gil@globex", asked).await.approval.digest;
        approvals.push(BulkItem { approval_id: asked.approval_id.clone(), digest });
    }
    let request =
        BulkDecisionRequest { decision: VoteChoice::Approve, reason: "both".to_owned(), approvals };
    let gil = world.person("gil@globex").await;
    let view = world.engine.approvals().decide_bulk(&gil, request).await.unwrap();
    assert_eq!((view.decided.len(), view.refused.len()), (2, 0), "{view:?}");
    let names: Value = json!(view);
    assert!(!names.to_string().contains("\"finance\""), "{names}");
}

#[tokio::test]
async fn a_call_of_the_tenants_own_needs_nobody_elsewhere() {
    let world = world(two_tenants()).await;
    assert!(ran(&world.call(crate::world::plan("book", "s1", "globex")).await));
}

/// The gate that asks both tenants, and another one that is the calling tenant's own matter.
fn with_a_suspicion() -> BundleSource {
    let mut source = two_tenants();
    let suspicion = super::gated(
        "send",
        "@approver_group(\"approvers\") @quorum(\"1\") @expires(\"24h\")",
        "context.req.approval.total >= 1",
    );
    let mut file = suspicion.files.into_iter().find(|file| file.name == "99-send.cedar").unwrap();
    file.name = "98-suspicion.cedar".to_owned();
    file.text = file
        .text
        .replace("gate-send", "suspects")
        .replace("People look at send.", "Somebody steals.");
    source.files.push(file);
    source
}

#[tokio::test]
async fn an_external_approver_is_told_the_reasons_of_what_asks_their_own_tenant_alone() {
    let world = world(with_a_suspicion()).await;
    let asked = held(world.call(send("s1", "globex")).await);
    let own = world.seen("finn", &asked).await.approval.requirement;
    assert_eq!(own.reasons.len(), 2);
    let detail = world.seen("gil@globex", &asked).await;
    let part = detail.part.clone().unwrap();
    let policies: Vec<_> = part.requirement.reasons.iter().map(|one| one.policy.as_str()).collect();
    assert_eq!(policies, ["gate-send"]);
    assert_eq!(detail.approval.requirement, part.requirement);
    let gil = world.person("gil@globex").await;
    let all = [
        json!(detail),
        json!(world.engine.approvals().inbox(&gil, InboxQuery::default()).await.unwrap()),
        json!(world.engine.approvals().approvals(&gil, None, None, 9).await.unwrap()),
    ];
    for shown in all {
        let shown = shown.to_string();
        assert!(!shown.contains("steals") && !shown.contains("suspects"), "{shown}");
        assert!(shown.contains("gate-send"), "{shown}");
    }
    // Nor does the answer to their decision say it.
    let digest = detail.approval.digest;
    let vote = DecisionRequest { decision: VoteChoice::Approve, reason: "ok".to_owned(), digest };
    let view = world.engine.approvals().decide(&gil, &asked.approval_id, vote).await.unwrap();
    assert!(!json!(view).to_string().contains("suspects"));
}

/// Of what is shown only how it stands is not in the part: everything else is digested by it.
#[tokio::test]
async fn views_for_an_external_approver_are_made_of_the_part_that_their_decision_names() {
    let world = world(two_tenants()).await;
    let mut call = send("s1", "globex");
    call["args"]["pin"] = json!("0815");
    let asked = held(world.call_as(world.agent_for("leo").await, call).await);
    let detail = world.seen("gil@globex", &asked).await;
    let part = json!(detail.part.unwrap());
    let mut view = json!(detail.approval);
    let view = view.as_object_mut().unwrap();
    for live in ["state", "votes", "digest"] {
        assert!(view.remove(live).is_some(), "{live}");
    }
    let made_of = |field: &str| match field {
        "principal_chain" => json!({ "actor": part["requester"] }),
        "created_at" => part["asked_at"].clone(),
        field => part[field].clone(),
    };
    for (field, shown) in view {
        assert_eq!(*shown, made_of(field), "{field}");
    }
    let text = part.to_string();
    let own = world.seen("finn", &asked).await.proposal.unwrap().evidence;
    for covers_what_is_masked in [own.request_digest, own.effective_args_digest] {
        assert!(!text.contains(&covers_what_is_masked.to_string()));
    }
}

#[tokio::test]
async fn what_is_masked_does_not_tell_two_calls_apart_that_are_decided_together() {
    let world = world(two_tenants()).await;
    let mut approvals = Vec::new();
    for (step, codes) in [("s1", json!([])), ("s2", json!(["a", "b"]))] {
        let mut call = send(step, "globex");
        call["args"]["codes"] = codes;
        let asked = held(world.call(call).await);
        let detail = world.seen("gil@globex", &asked).await;
        assert_eq!(detail.preview()["codes"], "[sensitive]");
        let digest = detail.approval.digest;
        approvals.push(BulkItem { approval_id: asked.approval_id, digest });
    }
    // One that somebody has not looked at sets no standard for the others.
    let mut other = send("s3", "globex");
    other["args"]["pin"] = json!("1");
    let unseen = BulkItem {
        approval_id: held(world.call(other).await).approval_id,
        digest: approvals[0].digest,
    };
    approvals.insert(0, unseen.clone());
    let request =
        BulkDecisionRequest { decision: VoteChoice::Approve, reason: "all".to_owned(), approvals };
    let gil = world.person("gil@globex").await;
    let view = world.engine.approvals().decide_bulk(&gil, request).await.unwrap();
    assert_eq!(view.decided.len(), 2, "{view:?}");
    assert_eq!((view.refused.len(), &view.refused[0].approval_id), (1, &unseen.approval_id));
    assert!(view.refused[0].message.contains("digest"), "{view:?}");
}

#[tokio::test]
async fn external_tenants_hand_nothing_over() {
    let world = world(two_tenants()).await;
    let asked = held(world.call(send("s1", "globex")).await);
    let duty = json!({ "kind": "delegation", "to": "zoe", "groups": ["credit-approvers"] });
    let delegation = world.arrange("gil@globex", duty, 3_600_000).await.unwrap();
    assert!(delegation.in_force, "it is for calls of their own tenant");
    sees_nothing(&world, "zoe@globex", &asked).await;
    // Anyone who handed over still decides, and their word is one.
    assert_eq!(world.vote("gil@globex", &asked, VoteChoice::Approve).await.unwrap(), "pending");
    assert_eq!(world.vote("finn", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    finished(world.end_of(&asked).await);
}

/// What an external approver has agreed to is not put to them under other words: it ends, and the agent asks again.
#[tokio::test]
async fn where_an_external_approvers_groups_are_no_longer_known_the_approval_ends_and_is_asked_for_again()
 {
    let mut gate = two_tenants();
    for file in &mut gate.files {
        file.text = file.text.replace("@expires(\"24h\")", "@expires(\"72h\")");
    }
    let world = world(gate).await;
    let asked = held(world.call(send("s1", "globex")).await);
    let una = world.person_in("una@globex", "credit-approvers").await;
    assert_eq!(world.decides(&una, &asked, VoteChoice::Approve).await.unwrap(), "pending");
    world.store.advance_ms(25 * 3_600_000);
    world.tell_time();
    assert_eq!(world.vote("finn", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ApprovalVoid);
    let again = held(world.call(send("s1", "globex")).await);
    assert_ne!(again.approval_id, asked.approval_id);
    assert!(world.witness.effects("send").is_empty());
}
