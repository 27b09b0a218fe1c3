//! What every store promises about the approval service, and about the lists that approvers look at.

use std::sync::Arc;

use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_ledger::directive::Directive;
use placet_ledger::store::{ApprovalQuery, ClaimAnswer, DirectiveQuery, Store, StoreError};
use placet_types::clock::Timestamp;
use placet_types::directive::{DirectiveBasis, DirectiveKind};

use super::super::*;

pub(crate) async fn directives_move_as_their_machine_says(store: Arc<dyn Store>) {
    let proposed = directive("dir_1", grant_body(3), 1, store.now());
    let voted = proposed.cast(directive_vote(&proposed, "ben"), store.now()).unwrap();
    let offer = |entry: &Directive| puts_directive(&[entry]);
    for wrong in [&voted, &Directive { uses: 1, ..proposed.clone() }] {
        assert_eq!(store.commit(offer(wrong)).await, Err(StoreError::Conflict));
    }
    assert_eq!(directives_of(&*store, "dir_1").await, None);
    put_directive(&*store, &proposed).await;
    let ended = voted.ended(note("ben", store.now())).unwrap();
    for wrong in [
        proposed.clone(),
        Directive { rev: 3, ..voted.clone() },
        Directive { reason: "something else".to_owned(), ..voted.clone() },
        Directive { body: grant_body(4), ..voted.clone() },
        Directive { tenant: tenant("globex"), ..voted.clone() },
        ended.clone(),
    ] {
        assert_eq!(store.commit(offer(&wrong)).await, Err(StoreError::Conflict), "{wrong:?}");
        assert_eq!(directives_of(&*store, "dir_1").await.as_ref(), Some(&proposed));
    }
    // Several steps of one entry in one commit.
    store.commit(puts_directive(&[&voted, &ended])).await.unwrap();
    assert_eq!(directives_of(&*store, "dir_1").await.as_ref(), Some(&ended));
    let back = Directive { state: voted.state.clone(), rev: 4, ..ended };
    assert_eq!(store.commit(offer(&back)).await, Err(StoreError::Conflict));
}

pub(crate) async fn a_grant_is_used_exactly_as_often_as_it_says(store: Arc<dyn Store>) {
    put_directive(&*store, &grant("dir_1", 5, store.now())).await;
    let mut racers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = Arc::clone(&store);
        racers.spawn(async move {
            let mut used = 0_u32;
            for _ in 0..3 {
                match store.commit(spends("dir_1")).await {
                    Ok(_) => used += 1,
                    Err(refused) => assert_eq!(refused, StoreError::GrantSpent),
                }
                tokio::task::yield_now().await;
            }
            used
        });
    }
    assert_eq!(racers.join_all().await.into_iter().sum::<u32>(), 5);
    let spent = directives_of(&*store, "dir_1").await.unwrap();
    assert_eq!((spent.uses, spent.rev, spent.uses_left()), (5, 6, Some(0)));
    // Who ends it has to have read its last use.
    let stale = grant("dir_1", 5, spent.created_at).ended(note("ben", store.now())).unwrap();
    assert_eq!(store.commit(puts_directive(&[&stale])).await, Err(StoreError::Conflict));
    put_directive(&*store, &spent.ended(note("ben", store.now())).unwrap()).await;
}

pub(crate) async fn a_grant_that_is_not_in_force_lets_nothing_pass(store: Arc<dyn Store>) {
    let (now, minute) = (store.now(), 60_000);
    let shifted = |id: &str, by: i64| {
        let entry = grant(id, 5, now);
        Directive {
            starts_at: entry.starts_at.plus_ms(by),
            expires_at: entry.starts_at.plus_ms(by + minute),
            ..entry
        }
    };
    for entry in [
        shifted("over", -minute),
        shifted("later", minute),
        directive("proposed", grant_body(5), 1, now),
        directive("glass", glass_body(), 0, now),
        grant("none", 0, now),
        grant("ended", 5, now),
    ] {
        put_directive(&*store, &entry).await;
    }
    let ended = grant("ended", 5, now).ended(note("ben", now)).unwrap();
    put_directive(&*store, &ended).await;
    let opened = run("run_1", 5);
    let mut changes = synced();
    changes.runs.push(opened.clone());
    store.commit(changes).await.unwrap();
    let claimed = claim(&*store, "key");
    assert_eq!(store.claim(claimed.clone()).await.unwrap(), ClaimAnswer::Claimed);
    let dispatching = |id: &str| {
        let mut changes = puts(&[&dispatched(&*store, &claimed)]);
        changes.spend = Some(directive_id(id));
        changes.reserve = Some(reservation(&opened, 1));
        changes.audit.push(event("sent"));
        changes
    };
    for id in ["over", "later", "proposed", "glass", "none", "ended", "absent"] {
        let refused = store.commit(dispatching(id)).await;
        assert_eq!(refused, Err(StoreError::GrantSpent), "{id}");
        assert!(directives_of(&*store, id).await.is_none_or(|entry| entry.uses == 0));
    }
    // All of it or nothing: the claim and the budget are as they were.
    assert_eq!(store.effect(claimed.record_id).await.unwrap(), Some(claimed.clone()));
    assert_eq!(store.run(&opened.key).await.unwrap(), Some(opened.clone()));
    put_directive(&*store, &shifted("now", -minute / 2)).await;
    store.commit(dispatching("now")).await.unwrap();
    assert_eq!(directives_of(&*store, "now").await.unwrap().uses, 1);
    // A refused commit is no use either.
    assert_eq!(store.commit(dispatching("now")).await, Err(StoreError::Conflict));
    assert_eq!(directives_of(&*store, "now").await.unwrap().uses, 1);
}

/// A dispatch by a permit that knew of so many times that directives became stricter, and until when that lasts.
fn under(store: &dyn Store, key: &str, rev: u64, until: Option<Timestamp>) -> Changes {
    let mut changes = puts(&[&dispatched(store, &claim(store, key))]);
    changes.expect_directives = Some(DirectiveBasis { rev, until });
    changes
}

pub(crate) async fn what_was_permitted_before_directives_became_stricter_is_not_dispatched(
    store: Arc<dyn Store>,
) {
    let now = store.now();
    let rev = async || store.restriction_version().await.unwrap();
    let first = rev().await;
    store.commit(under(&*store, "a", first, None)).await.unwrap();
    // What allows more, or is only asked for, changes nothing for those who knew less.
    let glass = directive("glass", glass_body(), 0, now);
    let asked_for = directive("asked", freeze_body(), 1, now);
    for entry in
        [&glass, &asked_for, &grant("grant", 3, now), &directive("duty", delegation_body(), 0, now)]
    {
        put_directive(&*store, entry).await;
    }
    store.commit(spends("grant")).await.unwrap();
    let grant = directives_of(&*store, "grant").await.unwrap();
    put_directive(&*store, &grant.ended(note("ben", now)).unwrap()).await;
    assert_eq!(rev().await, first);
    let agreed = asked_for.cast(directive_vote(&asked_for, "ben"), store.now()).unwrap();
    let stricter = [
        directive("freeze", freeze_body(), 0, now),
        agreed,
        glass.ended(note("ben", now)).unwrap(),
    ];
    for (number, entry) in stricter.iter().enumerate() {
        let before = rev().await;
        put_directive(&*store, entry).await;
        let key = format!("b{number}");
        let stale = store.commit(under(&*store, &key, before, None)).await;
        assert_eq!(stale, Err(StoreError::DirectiveMoved), "{entry:?}");
        assert_eq!(store.effect(claim(&*store, &key).record_id).await.unwrap(), None);
        assert_eq!(rev().await, before + 1);
        store.commit(under(&*store, &key, before + 1, None)).await.unwrap();
    }
    // By time alone.
    let last = rev().await;
    let over = store.commit(under(&*store, "c", last, Some(now))).await;
    assert_eq!(over, Err(StoreError::DirectiveMoved));
    store.commit(under(&*store, "c", last, Some(store.now().plus_ms(60_000)))).await.unwrap();
}

async fn directive_list(store: &dyn Store, query: DirectiveQuery) -> String {
    let found = store.directives(&query).await.unwrap();
    let ids = found.iter().map(|entry| entry.directive_id.as_str().to_owned());
    ids.collect::<Vec<_>>().join(" ")
}

/// Six entries, made out of order, two of them at the same moment.
async fn furnish(store: &dyn Store, now: Timestamp) -> DirectiveQuery {
    let made = |entry: Directive, tenant_name: &str, by: i64| Directive {
        created_at: now.plus_ms(by),
        tenant: tenant(tenant_name),
        ..entry
    };
    let glass = made(directive("c", glass_body(), 1, now), "acme", 20);
    for entry in [
        made(grant("a", 1, now), "acme", 30),
        made(grant("b", 1, now), "globex", 10),
        glass.clone(),
        made(directive("d", freeze_body(), 0, now), "acme", 20),
        made(directive("e", delegation_body(), 0, now), "acme", -5),
        made(directive("f", grant_body(7), 1, now), "acme", 40),
    ] {
        put_directive(store, &entry).await;
    }
    put_directive(store, &glass.cast(directive_vote(&glass, "ben"), now).unwrap()).await;
    DirectiveQuery { limit: 10, ..DirectiveQuery::default() }
}

pub(crate) async fn directives_are_listed_oldest_first(store: Arc<dyn Store>) {
    let now = store.now();
    let all = furnish(&*store, now).await;
    let list = |query: DirectiveQuery| directive_list(&*store, query);
    let acme = || DirectiveQuery { tenant: Some(tenant("acme")), ..all.clone() };
    let kind = |kind| DirectiveQuery { kind: Some(kind), ..all.clone() };
    assert_eq!(list(all.clone()).await, "e b c d a f");
    assert_eq!(list(acme()).await, "e c d a f");
    assert_eq!(list(kind(DirectiveKind::Grant)).await, "b a f");
    assert_eq!(list(DirectiveQuery { kind: Some(DirectiveKind::Grant), ..acme() }).await, "a f");
    assert_eq!(list(kind(DirectiveKind::Delegation)).await, "e");
    assert_eq!(list(DirectiveQuery { tenant: Some(tenant("acm")), ..all.clone() }).await, "");
    assert_eq!(list(DirectiveQuery { limit: 2, ..all.clone() }).await, "e b");
    assert_eq!(list(DirectiveQuery { limit: 0, ..all.clone() }).await, "");
    let after = |id: &str, query| DirectiveQuery { after: Some(directive_id(id)), ..query };
    assert_eq!(list(DirectiveQuery { limit: 2, ..after("c", acme()) }).await, "d a");
    assert_eq!(list(after("f", all.clone())).await, "");
}

pub(crate) async fn directives_are_listed_newest_first_too(store: Arc<dyn Store>) {
    let now = store.now();
    let all = DirectiveQuery { newest_first: true, ..furnish(&*store, now).await };
    let list = |query: DirectiveQuery| directive_list(&*store, query);
    let acme = || DirectiveQuery { tenant: Some(tenant("acme")), ..all.clone() };
    let after = |id: &str, query| DirectiveQuery { after: Some(directive_id(id)), ..query };
    assert_eq!(list(all.clone()).await, "f a d c b e");
    assert_eq!(list(DirectiveQuery { kind: Some(DirectiveKind::Grant), ..acme() }).await, "f a");
    assert_eq!(list(DirectiveQuery { limit: 2, ..all.clone() }).await, "f a");
    assert_eq!(list(DirectiveQuery { limit: 0, ..all.clone() }).await, "");
    assert_eq!(list(DirectiveQuery { limit: 2, ..after("d", acme()) }).await, "c e");
    assert_eq!(list(after("e", all.clone())).await, "");
    // Made before a time, in both orders: what was made at that time is not among them.
    let before = |query| DirectiveQuery { made_before: Some(now.plus_ms(20)), ..query };
    assert_eq!(list(before(all.clone())).await, "b e");
    assert_eq!(list(DirectiveQuery { limit: 1, ..before(all.clone()) }).await, "b");
    assert_eq!(list(DirectiveQuery { newest_first: false, ..before(all.clone()) }).await, "e b");
    assert_eq!(list(after("b", before(all.clone()))).await, "e");
    assert_eq!(list(after("a", before(all.clone()))).await, "b e");
    let open = |at| DirectiveQuery { open_at: Some(at), ..all.clone() };
    assert_eq!(list(open(now)).await, "f a d c b e");
    assert_eq!(list(DirectiveQuery { limit: 2, ..after("d", open(now)) }).await, "c b");
    assert_eq!(list(before(open(now))).await, "b e");
}

pub(crate) async fn open_directives_are_those_that_may_still_matter(store: Arc<dyn Store>) {
    let now = store.now();
    let all = furnish(&*store, now).await;
    let list = |query: DirectiveQuery| directive_list(&*store, query);
    let open = |at| DirectiveQuery { open_at: Some(at), ..all.clone() };
    assert_eq!(list(open(now)).await, "e b c d a f");
    let after = DirectiveQuery { after: Some(directive_id("c")), limit: 2, ..open(now) };
    assert_eq!(list(after).await, "d a");
    // Used up: over. Its time over: over, but for the glass, which waits for its review.
    store.commit(spends("a")).await.unwrap();
    assert_eq!(list(open(now)).await, "e b c d f");
    let end = directives_of(&*store, "b").await.unwrap().expires_at;
    assert_eq!(list(open(end.plus_ms(-1))).await, "e b c d f");
    assert_eq!(list(open(end)).await, "c");
    let grants = DirectiveQuery {
        kind: Some(DirectiveKind::Grant),
        tenant: Some(tenant("globex")),
        ..open(now)
    };
    assert_eq!(list(grants).await, "b");
    let glass = directives_of(&*store, "c").await.unwrap();
    let ended = glass.ended(note("ben", now)).unwrap();
    put_directive(&*store, &ended).await;
    assert_eq!(list(open(end)).await, "c");
    put_directive(&*store, &ended.reviewed(note("eve", now)).unwrap()).await;
    assert_eq!(list(open(end)).await, "");
    assert_eq!(list(open(now)).await, "e b d f");
    assert_eq!(list(all.clone()).await, "e b c d a f");
}

pub(crate) async fn approvals_are_listed_in_both_orders_and_by_operation(store: Arc<dyn Store>) {
    // Some at one moment, some years apart, one before 1970.
    let year = 31_536_000_000;
    let times = [-50, 0, 5, 5, 5, 6, year, year + 1, 40 * year, NOW_MS - 70_000, NOW_MS, NOW_MS];
    for (number, created_ms) in times.into_iter().enumerate() {
        let tenant = if number % 4 == 0 { "globex" } else { "acme" };
        let claimed = claim_of(tenant, &format!("key-{number}"), store.epoch());
        let mut asked = approval(&claimed, &format!("apr_{number:02}"), created_ms);
        asked.capability =
            if number % 3 == 0 { "notes/push" } else { "notes/erase" }.parse().unwrap();
        hold(&*store, &claimed, &asked).await;
        if number % 2 == 0 {
            let mut changes = synced();
            changes.approvals.push(approval_moved(&asked, ApprovalState::Denied));
            store.commit(changes).await.unwrap();
        }
    }
    let everything = ApprovalQuery { limit: 99, ..ApprovalQuery::default() };
    let all = store.approvals(&everything).await.unwrap();
    assert_eq!(all.len(), times.len());
    for tenant_name in [None, Some("acme"), Some("globex"), Some("nobody")] {
        for state in [None, Some("pending"), Some("denied")] {
            for capability in [None, Some("notes/push"), Some("notes/erase"), Some("notes/pus")] {
                for (newest_first, decided) in
                    [(false, false), (false, true), (true, false), (true, true)]
                {
                    let fits = |approval: &&ApprovalRecord| {
                        tenant_name.is_none_or(|name| approval.chain.tenant().as_str() == name)
                            && state.is_none_or(|state| approval.state.name() == state)
                            && (!decided || approval.state != ApprovalState::Pending)
                            && capability
                                .is_none_or(|wanted| approval.capability.to_string() == wanted)
                    };
                    let mut wanted: Vec<_> = all.iter().filter(fits).cloned().collect();
                    if newest_first {
                        wanted.reverse();
                    }
                    let query = ApprovalQuery {
                        tenant: tenant_name.map(tenant),
                        state: state.map(str::to_owned),
                        capability: capability.map(|capability| capability.parse().unwrap()),
                        newest_first,
                        decided,
                        ..everything.clone()
                    };
                    assert_eq!(paged(&*store, &query, 2).await, wanted, "{query:?}");
                    assert_eq!(store.approvals(&query).await.unwrap(), wanted, "{query:?}");
                    let marks = store.approval_marks(&query).await.unwrap();
                    let marks = marks.into_iter().map(|mark| (mark.approval_id, mark.rev));
                    let of = wanted.iter().map(|one| (one.approval_id.clone(), one.rev));
                    assert!(marks.eq(of), "{query:?}");
                }
            }
        }
    }
    let nothing = ApprovalQuery { newest_first: true, ..ApprovalQuery::default() };
    assert_eq!(store.approvals(&nothing).await.unwrap(), Vec::new());
}

async fn paged(store: &dyn Store, query: &ApprovalQuery, limit: usize) -> Vec<ApprovalRecord> {
    let mut found: Vec<ApprovalRecord> = Vec::new();
    loop {
        let after = found.last().map(|last| last.approval_id.clone());
        let page = store.approvals(&ApprovalQuery { after, limit, ..query.clone() }).await.unwrap();
        let is_last = page.len() < limit;
        found.extend(page);
        if is_last {
            return found;
        }
    }
}

/// What a list of approvals holds.
async fn approvals_of(store: &dyn Store, query: ApprovalQuery) -> Vec<String> {
    let found = store.approvals(&ApprovalQuery { limit: 9, ..query }).await.unwrap();
    found.iter().map(|approval| approval.approval_id.as_str().to_owned()).collect()
}

pub(crate) async fn ended_directives_can_be_dropped_and_nothing_else(store: Arc<dyn Store>) {
    let mut all = Vec::new();
    for number in 0..2 {
        let claimed = claim(&*store, &format!("key-{number}"));
        let asked = ApprovalRecord {
            external_tenants: [tenant("globex")].into(),
            ..approval(&claimed, &format!("apr_{number}"), store.now().as_ms())
        };
        hold(&*store, &claimed, &asked).await;
        all.push(asked);
    }
    let denied = approval_moved(&all[0], ApprovalState::Denied);
    let mut changes = synced();
    changes.approvals.push(denied.clone());
    store.commit(changes).await.unwrap();
    let (open, over) = (grant("dir_1", 1, store.now()), grant("dir_2", 1, store.now()));
    put_directive(&*store, &open).await;
    put_directive(&*store, &over).await;
    let ended = over.ended(note("ben", store.now())).unwrap();
    put_directive(&*store, &ended).await;

    let forget = |approvals: &[(&ApprovalRecord, u64)], directives: &[(&Directive, u64)]| {
        let mut changes = synced();
        let gone = |(one, rev): &(&ApprovalRecord, u64)| (one.approval_id.clone(), *rev);
        changes.forget_approvals = approvals.iter().map(gone).collect();
        changes.forget_directive =
            directives.iter().map(|(one, rev)| (one.directive_id.clone(), *rev)).collect();
        changes
    };
    for wrong in [
        forget(&[(&denied, denied.rev), (&all[1], all[1].rev)], &[]),
        forget(&[(&denied, denied.rev - 1)], &[]),
        forget(&[], &[(&ended, ended.rev), (&open, open.rev)]),
        forget(&[], &[(&ended, ended.rev - 1)]),
    ] {
        assert_eq!(store.commit(wrong).await, Err(StoreError::Conflict));
        assert_eq!(store.approval(&denied.approval_id).await.unwrap().as_ref(), Some(&denied));
        assert_eq!(directives_of(&*store, "dir_2").await.as_ref(), Some(&ended));
    }
    let both = || forget(&[(&denied, denied.rev)], &[(&ended, ended.rev)]);
    store.commit(both()).await.unwrap();
    assert_eq!(store.commit(both()).await, Err(StoreError::Conflict), "they are gone");
    assert_eq!(store.approval(&denied.approval_id).await.unwrap(), None);
    assert_eq!(store.approval_of_call(&denied.call_id).await.unwrap(), None);
    let (acme, globex) = (Some(tenant("acme")), Some(tenant("globex")));
    for query in [
        ApprovalQuery::default(),
        ApprovalQuery { tenant: acme.clone(), ..ApprovalQuery::default() },
        ApprovalQuery { external: globex, ..ApprovalQuery::default() },
        ApprovalQuery { tenant: acme.clone(), newest_first: true, ..ApprovalQuery::default() },
        ApprovalQuery {
            tenant: acme,
            capability: Some(denied.capability.clone()),
            ..ApprovalQuery::default()
        },
    ] {
        assert_eq!(approvals_of(&*store, query.clone()).await, ["apr_1"], "{query:?}");
        let of_state = ApprovalQuery { state: Some("denied".to_owned()), ..query };
        assert!(approvals_of(&*store, of_state).await.is_empty());
    }
    assert_eq!(directives_of(&*store, "dir_2").await, None);
    let entries = store.directives(&DirectiveQuery { limit: 9, ..DirectiveQuery::default() }).await;
    assert_eq!(entries.unwrap(), [open]);
}
