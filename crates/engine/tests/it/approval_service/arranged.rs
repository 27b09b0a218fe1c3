//! Break-glass, freezes and delegations: what is arranged beside single decisions.

use std::sync::Arc;

use serde_json::json;

use placet_approvals::views::{Arrangement, DirectiveAct, DirectiveRequest, EntriesQuery};
use placet_ledger::{
    audit::AuditKind,
    directive::Directive,
    store::{Admission, Changes, Durability, Store as _},
};
use placet_policy::bundle::BundleSource;
use placet_types::{approval::VoteChoice, error::ErrorCode};

use super::{ran, send, two_groups, world};
use crate::world::{World, bundle, finished, held, plan};

/// The shipped policies with the gates of the example, which a broken glass opens.
pub(super) fn breakable() -> BundleSource {
    let mut source = bundle();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/examples");
    let text = std::fs::read_to_string(folder.join("policies/break-glass.cedar")).unwrap();
    for file in &mut source.files {
        if file.name == "20-gates.cedar" {
            file.text = text.clone();
        }
    }
    source
}

fn glass() -> serde_json::Value {
    json!({"kind": "break_glass", "ticket": "INC-1"})
}

#[tokio::test]
async fn a_broken_glass_needs_a_second_person_names_every_call_and_is_reviewed() {
    let world = world(breakable()).await;
    held(world.call(plan("erase", "s1", "x")).await);
    assert!(world.arrange("leo", glass(), 3_600_000).await.is_err(), "not anybody");
    assert!(world.arrange("emil", glass(), 9 * 3_600_000).await.is_err(), "too long");
    let record = world.arrange("emil", glass(), 3_600_000).await.unwrap();
    assert_eq!(record.state, "proposed");
    held(world.call(plan("erase", "s2", "x")).await);
    assert!(world.agree("emil", &record).await.is_err(), "not the same person");
    assert_eq!(world.agree("ema", &record).await.unwrap().state, "active");
    assert!(ran(&world.call(plan("erase", "s3", "x")).await));
    let named = world.store.audit().into_iter().any(|event| {
        event.kind == AuditKind::Dispatched && event.directives.contains(&record.directive_id)
    });
    assert!(named, "the call names the record it ran under");
    let review = || DirectiveAct::Review { note: "it was right".to_owned() };
    let early = world.act("eve", &record.directive_id, review()).await.unwrap_err();
    assert!(early.message.contains("still in force"), "{early:?}");
    let ended = world.end("emil", &record).await.unwrap();
    assert!(ended.review_due);
    held(world.call(plan("erase", "s4", "x")).await);
    let next = World::over(Arc::clone(&world.store), Arc::clone(&world.witness)).await;
    assert_eq!(
        next.engine
            .approvals()
            .inbox(&next.person("eve").await, Default::default())
            .await
            .unwrap()
            .load
            .reviews_due,
        1
    );
    assert!(next.act("ema", &record.directive_id, review()).await.is_err(), "who took part");
    let reviewed = next.act("eve", &record.directive_id, review()).await.unwrap();
    assert_eq!((reviewed.state.as_str(), reviewed.review_due), ("reviewed", false));
    let by = [reviewed.end, reviewed.review].map(|note| note.map(|note| note.by.to_string()));
    assert_eq!(by, [Some("emil".to_owned()), Some("eve".to_owned())], "who ended it stays known");
}

#[tokio::test]
async fn who_sees_an_entry_is_told_what_they_may_do_with_it() {
    let world = world(breakable()).await;
    let record = world.arrange("emil", glass(), 3_600_000).await.unwrap();
    let may = async |person: &str| {
        let caller = world.person(person).await;
        let shown = world.engine.approvals().entry(&caller, &record.directive_id).await.unwrap();
        let listed = world.entries(&caller, EntriesQuery::default()).await;
        assert_eq!(shown.standing, listed[0].standing);
        let may = shown.standing;
        (may.may_agree, may.may_refuse, may.may_end, may.may_review)
    };
    assert_eq!(may("emil").await, (false, false, true, false), "who asks does not agree");
    assert_eq!(may("ema").await, (true, true, true, false));
    assert_eq!(may("eve").await, (false, false, false, false));
    let agreed = world.agree("ema", &record).await.unwrap();
    assert!(agreed.standing.may_end && !agreed.standing.may_agree);
    world.end("emil", &record).await.unwrap();
    assert_eq!(may("ema").await, (false, false, false, false), "who took part does not review");
    assert_eq!(may("eve").await, (false, false, false, true));
}

#[tokio::test]
async fn a_delegate_decides_for_a_colleague_and_the_record_names_both() {
    let world = world(two_groups()).await;
    let asked = held(world.call(send("s1", "a")).await);
    assert!(world.vote("leo", &asked, VoteChoice::Approve).await.is_err());
    let duty = json!({"kind": "delegation", "to": "leo", "groups": ["finance"]});
    let delegation = world.arrange("finn", duty.clone(), 3_600_000).await.unwrap();
    let standing = world.seen("leo", &asked).await.standing;
    assert_eq!(standing.stands_for.as_ref().map(|id| id.as_str()), Some("finn"));
    world.vote("leo", &asked, VoteChoice::Approve).await.unwrap();
    let vote = world.seen("eve", &asked).await.approval.votes.remove(0);
    assert_eq!(vote.approver.as_str(), "leo");
    assert_eq!(vote.stands_for.as_ref().map(|id| id.as_str()), Some("finn"));
    let voice = world.vote("finn", &asked, VoteChoice::Approve).await.unwrap_err();
    assert!(voice.message.contains("already"), "one voice: {voice:?}");
    let standing = world.seen("finn", &asked).await.standing;
    assert!(standing.why_not.unwrap().contains("in your place"));
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    let by_author = held(world.call(send("s3", "c")).await);
    world.vote("finn", &by_author, VoteChoice::Approve).await.unwrap();
    let standing = world.seen("leo", &by_author).await.standing;
    assert!(standing.why_not.unwrap().starts_with("finn, in whose place you decide"));
    // A duty that was handed over is not handed on, and ends when it is taken back.
    let on = json!({"kind": "delegation", "to": "dan", "groups": ["finance"]});
    let chained = world.arrange("leo", on, 3_600_000).await.unwrap_err();
    assert_eq!(chained.code, ErrorCode::ValidationError);
    world.end("finn", &delegation).await.unwrap();
    let later = held(world.call(send("s2", "b")).await);
    assert!(world.vote("leo", &later, VoteChoice::Approve).await.is_err());
}

#[tokio::test]
async fn what_only_a_token_said_is_handed_over_for_a_day_since_the_token() {
    const HOUR: i64 = 3_600_000;
    let world = world(two_groups()).await;
    let nora = world.person_in("nora", "finance").await;
    world.store.advance_ms(23 * HOUR);
    let arrange =
        serde_json::from_value(json!({"kind": "delegation", "to": "leo", "groups": ["finance"]}));
    let request = placet_approvals::views::DirectiveRequest {
        arrange: arrange.unwrap(),
        reason: "away".to_owned(),
        starts_at: None,
        lasts_ms: 8 * 3_600_000,
    };
    world.engine.approvals().arrange(&nora, request).await.unwrap();
    let asked = held(world.call(send("s1", "a")).await);
    assert!(world.seen("leo", &asked).await.standing.may_approve);
    world.store.advance_ms(2 * HOUR);
    let leo = world.person("leo").await;
    let gone = world.engine.approvals().approval(&leo, &asked.approval_id).await;
    assert_eq!(gone.unwrap_err().code, ErrorCode::NotFound, "an old token counts again");
}

#[tokio::test]
async fn nobody_fills_the_approval_service() {
    let world = world(two_groups()).await;
    let duty = json!({"kind": "delegation", "to": "leo", "groups": ["finance"]});
    let mut made = Vec::new();
    for _ in 0..20 {
        made.push(world.arrange("finn", duty.clone(), 3_600_000).await.unwrap());
    }
    let full = world.arrange("finn", duty.clone(), 3_600_000).await.unwrap_err();
    assert_eq!(
        (full.code, full.problems[0].pointer.as_str()),
        (ErrorCode::ValidationError, "/arrange")
    );
    assert!(full.problems[0].problem.contains("20 open delegations"), "{full:?}");
    world.arrange("fia", duty.clone(), 3_600_000).await.unwrap();
    world.end("finn", &made[0]).await.unwrap();
    let (one, two) = tokio::join!(
        world.arrange("finn", duty.clone(), 3_600_000),
        world.arrange("finn", duty, 3_600_000)
    );
    assert!(one.is_ok() != two.is_ok(), "two at once have one place");
}

#[tokio::test]
async fn nobody_stands_in_where_either_has_an_interest() {
    let world = world(two_groups()).await;
    let to_ana = json!({"kind": "delegation", "to": "ana", "groups": ["finance"]});
    world.arrange("finn", to_ana, 3_600_000).await.unwrap();
    let to_leo = json!({"kind": "delegation", "to": "leo", "groups": ["finance"]});
    world.arrange("fia", to_leo, 3_600_000).await.unwrap();
    let asked = held(world.call_as(world.agent_for("fia").await, send("s1", "a")).await);
    // ana answers for the agent; the call is made for fia, for whom leo would decide.
    assert!(world.vote("ana", &asked, VoteChoice::Approve).await.is_err());
    assert!(world.vote("leo", &asked, VoteChoice::Approve).await.is_err());
    assert!(world.seen("eve", &asked).await.approval.votes.is_empty());
}

#[tokio::test]
async fn limits_of_what_can_be_arranged_are_kept() {
    let world = world(bundle()).await;
    let refused = async |person: &str, wanted: serde_json::Value, lasts_ms: u64| {
        world.arrange(person, wanted, lasts_ms).await.unwrap_err().problems.remove(0).pointer
    };
    let day = 86_400_000;
    let freeze = json!({"kind": "freeze", "name": "all year"});
    assert_eq!(refused("dora", freeze, 32 * day).await, "/lasts_ms");
    let freeze = json!({"kind": "freeze", "name": "x", "adapters": ["unheard-of"]});
    assert_eq!(refused("dora", freeze, day).await, "/arrange/adapters");
    let mine = json!({"kind": "delegation", "to": "cy", "groups": ["finance"]});
    assert_eq!(refused("ben", mine, day).await, "/arrange/groups");
    let myself = json!({"kind": "delegation", "to": "ben", "groups": ["approvers"]});
    assert_eq!(refused("ben", myself, day).await, "/arrange/to");
    let gone = json!({"kind": "delegation", "to": "gone", "groups": ["approvers"]});
    assert_eq!(refused("ben", gone, day).await, "/arrange/to");
    for nobody in ["loe", "bot"] {
        let misspelt = json!({"kind": "delegation", "to": nobody, "groups": ["approvers"]});
        assert_eq!(refused("ben", misspelt, day).await, "/arrange/to");
    }
    assert_eq!(
        refused("emil", json!({"kind": "break_glass", "ticket": " "}), 60_000).await,
        "/arrange/ticket"
    );
    let starts_at = Some(world.now().plus_ms(60_000));
    let arrange: Arrangement = serde_json::from_value(glass()).unwrap();
    let later = DirectiveRequest { arrange, reason: "x".to_owned(), starts_at, lasts_ms: 60_000 };
    let later =
        world.engine.approvals().arrange(&world.person("emil").await, later).await.unwrap_err();
    assert_eq!(later.problems[0].pointer, "/starts_at");
    // A window that is over does not become one that begins now.
    let freeze = |ago_ms: i64| DirectiveRequest {
        arrange: serde_json::from_value(json!({"kind": "freeze", "name": "x"})).unwrap(),
        reason: "x".to_owned(),
        starts_at: Some(world.now().plus_ms(-ago_ms)),
        lasts_ms: day,
    };
    let dora = world.person("dora").await;
    let over = world.engine.approvals().arrange(&dora, freeze(180_000)).await.unwrap_err();
    assert_eq!(over.problems[0].pointer, "/starts_at");
    world.engine.approvals().arrange(&dora, freeze(60_000)).await.unwrap();
    assert!(world.arrange("cy", json!({"kind": "freeze", "name": "x"}), day).await.is_err());
}

#[tokio::test]
async fn of_many_entries_the_newest_come_first_and_every_one_is_on_some_page() {
    let world = world(bundle()).await;
    let freeze = || json!({"kind": "freeze", "name": "release"});
    for _ in 0..70 {
        let lifted = world.arrange("fay", freeze(), 60_000).await.unwrap();
        world.end("fay", &lifted).await.unwrap();
        world.store.advance_ms(1);
    }
    let on = world.arrange("fay", freeze(), 60_000).await.unwrap().directive_id;
    let fay = world.person("fay").await;
    let query =
        |after| EntriesQuery { newest_first: true, after, limit: 30, ..EntriesQuery::default() };
    let (mut seen, mut sizes, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page = world.engine.approvals().entries(&fay, &query(after)).await.unwrap();
        sizes.push(page.entries.len());
        seen.extend(page.entries.into_iter().map(|entry| (entry.created_at, entry.directive_id)));
        after = page.next_after;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((sizes, &seen[0].1), (vec![30, 30, 11], &on));
    assert!(seen.is_sorted_by(|a, b| a > b), "newest first, each once");
    // What is not there any more is no place to go on from; nor is another tenant's.
    let gone = Some("dir_gone".parse().unwrap());
    let refused = world.engine.approvals().entries(&fay, &query(gone)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::ValidationError);
    let gil = world.person("gil@globex").await;
    let refused = world.engine.approvals().entries(&gil, &query(Some(on))).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::ValidationError);
}

#[tokio::test]
async fn a_page_of_entries_ends_after_so_many_that_may_not_be_seen_and_says_where_to_go_on() {
    let world = world(bundle()).await;
    let entry = world.arrange("fay", json!({"kind": "freeze", "name": "release"}), 60_000).await;
    let entry = world.store.directive(&entry.unwrap().directive_id).await.unwrap().unwrap();
    let directives = (0..2_100).map(|count| Directive {
        directive_id: format!("dir_{count:04}").parse().unwrap(),
        ..entry.clone()
    });
    let none = Changes::new(Durability::Written, Admission::New);
    let changes = Changes { directives: directives.collect(), ..none };
    world.store.commit(changes).await.unwrap();
    // Only people see entries of the approval service.
    let bot = world.agent().await;
    let query = |after| EntriesQuery { after, limit: 30, ..EntriesQuery::default() };
    let first = world.engine.approvals().entries(&bot, &query(None)).await.unwrap();
    assert!(first.entries.is_empty() && first.next_after.is_some());
    let last = world.engine.approvals().entries(&bot, &query(first.next_after)).await.unwrap();
    assert_eq!(last, placet_approvals::views::EntriesPage::default());
}

#[tokio::test]
async fn a_freeze_that_begins_later_is_in_the_calendar_and_holds_nothing_yet() {
    let world = world(bundle()).await;
    let arrange: Arrangement =
        serde_json::from_value(json!({"kind": "freeze", "name": "release"})).unwrap();
    let starts_at = Some(world.now().plus_ms(60_000));
    let request = DirectiveRequest { arrange, reason: "r".to_owned(), starts_at, lasts_ms: 60_000 };
    let entry =
        world.engine.approvals().arrange(&world.person("fay").await, request).await.unwrap();
    assert_eq!((entry.state.as_str(), entry.in_force), ("scheduled", false));
    assert!(ran(&world.call(plan("note", "s1", "x")).await));
    world.store.advance_ms(60_001);
    world.tell_time();
    held(world.call(plan("note", "s2", "x")).await);
    world.store.advance_ms(60_001);
    world.tell_time();
    assert!(ran(&world.call(plan("note", "s3", "x")).await));
    let fay = world.person("fay").await;
    assert_eq!(world.entries(&fay, EntriesQuery::default()).await[0].state, "expired");
    let open = EntriesQuery { only_open: true, ..EntriesQuery::default() };
    assert!(world.entries(&fay, open).await.is_empty());
}

#[tokio::test]
async fn an_approved_call_names_the_lockdown_that_holds_it_up() {
    let world = world(bundle()).await;
    let asked = held(world.call(plan("erase", "s1", "x")).await);
    let lockdown = json!({"kind": "freeze", "name": "breach", "lockdown": true});
    world.arrange("fay", lockdown, 60_000).await.unwrap();
    assert_eq!(world.vote("ben", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    let seen = world.seen("ben", &asked).await;
    assert_eq!(seen.approval.state, "approved");
    assert!(seen.standing.freezes.iter().any(|freeze| freeze.lockdown), "{:?}", seen.standing);
}
