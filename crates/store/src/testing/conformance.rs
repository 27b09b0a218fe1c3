//! What every store promises, whatever it is kept in.
//!
//! Owns the suite. Each store calls [`every_promise`] with a macro that makes a test of each name.

mod directives;
mod external_tenants;
mod outbox;
mod runs;

pub(crate) use directives::{
    a_grant_is_used_exactly_as_often_as_it_says, a_grant_that_is_not_in_force_lets_nothing_pass,
    approvals_are_listed_in_both_orders_and_by_operation, directives_are_listed_newest_first_too,
    directives_are_listed_oldest_first, directives_move_as_their_machine_says,
    ended_directives_can_be_dropped_and_nothing_else,
    open_directives_are_those_that_may_still_matter,
    what_was_permitted_before_directives_became_stricter_is_not_dispatched,
};
pub(crate) use external_tenants::an_external_approver_tenant_finds_what_it_is_asked_about;
pub(crate) use outbox::a_message_is_kept_until_it_is_done;
pub(crate) use runs::{
    a_run_is_opened_once_and_never_overdrawn, a_run_keeps_whatever_came_into_its_context,
    a_run_that_is_only_written_is_seen_at_once, a_session_gets_what_its_runs_are_brought,
    a_window_holds_for_all_runs_until_it_ends,
};

use std::sync::Arc;

use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_ledger::record::EffectState;
use placet_ledger::store::{
    ApprovalQuery, ClaimAnswer, EffectChange, EffectQuery, Store, StoreError,
};
use placet_types::clock::Timestamp;
use placet_types::contract::Dedup;
use placet_types::digest::Digest;
use placet_types::ids::ApprovalId;

use super::*;

/// Hands the names of all promises to a macro.
macro_rules! every_promise {
    ($make:ident) => {
        $make!(
            a_key_is_claimed_once_until_it_is_released,
            a_record_is_seen_by_its_id_and_by_its_call,
            a_change_from_another_revision_is_refused,
            a_move_that_the_machine_does_not_know_is_refused,
            a_key_returns_to_absent_only_where_nothing_has_happened,
            a_refused_commit_leaves_nothing_behind,
            a_run_is_opened_once_and_never_overdrawn,
            a_run_that_is_only_written_is_seen_at_once,
            a_run_keeps_whatever_came_into_its_context,
            a_session_gets_what_its_runs_are_brought,
            a_window_holds_for_all_runs_until_it_ends,
            approvals_move_as_their_machine_says,
            an_approval_is_not_used_by_a_commit_that_comes_too_late,
            a_reopened_approval_takes_its_effect_with_it,
            approvals_are_listed_oldest_first,
            an_external_approver_tenant_finds_what_it_is_asked_about,
            approvals_are_listed_in_both_orders_and_by_operation,
            directives_move_as_their_machine_says,
            directives_are_listed_oldest_first,
            directives_are_listed_newest_first_too,
            open_directives_are_those_that_may_still_matter,
            a_grant_is_used_exactly_as_often_as_it_says,
            a_grant_that_is_not_in_force_lets_nothing_pass,
            what_was_permitted_before_directives_became_stricter_is_not_dispatched,
            ended_directives_can_be_dropped_and_nothing_else,
            effects_are_listed_by_their_last_move,
            open_effects_are_found_among_many_closed_ones,
            content_is_kept_per_tenant,
            a_message_is_kept_until_it_is_done,
            a_commit_takes_several_steps_of_one_record,
            of_many_claims_of_one_key_one_wins,
            entries_are_numbered_and_never_go_back_in_time,
            a_closed_store_takes_nothing,
        );
    };
}
pub(crate) use every_promise;

pub(crate) async fn a_key_is_claimed_once_until_it_is_released(store: Arc<dyn Store>) {
    let first = claim(&*store, "key");
    assert_eq!(store.claim(first.clone()).await.unwrap(), ClaimAnswer::Claimed);
    let taken = ClaimAnswer::Taken(Box::new(first.clone()));
    assert_eq!(store.claim(first.clone()).await.unwrap(), taken);
    assert_eq!(store.effect(first.record_id).await.unwrap(), Some(first.clone()));
    assert_eq!(store.effect_of_call(&first.call_id).await.unwrap(), Some(first.clone()));
    store.release(claim(&*store, "other-key").record_id).await;
    assert_eq!(store.claim(first.clone()).await.unwrap(), taken);
    store.release(first.record_id).await;
    assert_eq!(store.effect(first.record_id).await.unwrap(), None);
    assert_eq!(store.effect_of_call(&first.call_id).await.unwrap(), None);
    assert_eq!(store.claim(first).await.unwrap(), ClaimAnswer::Claimed);
}

pub(crate) async fn a_record_is_seen_by_its_id_and_by_its_call(store: Arc<dyn Store>) {
    let sent = make(&*store, "key", false).await;
    let done = make(&*store, "other", true).await;
    for record in [&sent, &done] {
        assert_eq!(store.effect(record.record_id).await.unwrap().as_ref(), Some(record));
        assert_eq!(store.effect_of_call(&record.call_id).await.unwrap().as_ref(), Some(record));
        let again = claim(&*store, record.key.as_str());
        let taken = ClaimAnswer::Taken(Box::new(record.clone()));
        assert_eq!(store.claim(again).await.unwrap(), taken);
        // What is durable cannot be given back.
        store.release(record.record_id).await;
        assert_eq!(store.effect(record.record_id).await.unwrap().as_ref(), Some(record));
    }
    let absent = claim(&*store, "absent");
    assert_eq!(store.effect(absent.record_id).await.unwrap(), None);
    assert_eq!(store.effect_of_call(&absent.call_id).await.unwrap(), None);
}

pub(crate) async fn a_change_from_another_revision_is_refused(store: Arc<dyn Store>) {
    let sent = make(&*store, "key", false).await;
    for rev in [0, 1, 3, u64::MAX] {
        let wrong = EffectRecord { rev, ..succeeded(&sent) };
        assert_eq!(put(&*store, &wrong).await, Err(StoreError::Conflict), "{rev}");
    }
    assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(sent.clone()));
    put(&*store, &succeeded(&sent)).await.unwrap();
    assert_eq!(put(&*store, &succeeded(&sent)).await, Err(StoreError::Conflict));
}

pub(crate) async fn a_move_that_the_machine_does_not_know_is_refused(store: Arc<dyn Store>) {
    let claimed = claim(&*store, "claimed");
    store.claim(claimed.clone()).await.unwrap();
    let sent = make(&*store, "sent", false).await;
    let done = make(&*store, "done", true).await;
    let again = EffectState::Dispatched(attempt(&sent, store.epoch(), Dedup::Opaque));
    for (from, to) in [
        (&claimed, succeeded(&claimed).state),
        (&sent, again),
        (&done, dispatched(&*store, &done).state),
        (&done, done.state.clone()),
    ] {
        let refused = put(&*store, &moved(from, to)).await;
        assert!(matches!(refused, Err(StoreError::Illegal(_))), "{refused:?}");
        assert_eq!(store.effect(from.record_id).await.unwrap().as_ref(), Some(from));
    }
    // The claim was not lost by the refusal.
    put(&*store, &dispatched(&*store, &claimed)).await.unwrap();
}

pub(crate) async fn a_key_returns_to_absent_only_where_nothing_has_happened(store: Arc<dyn Store>) {
    let claimed = claim(&*store, "held");
    let asked = approval(&claimed, "apr_1", NOW_MS);
    let waiting = hold(&*store, &claimed, &asked).await;
    let sent = make(&*store, "sent", false).await;
    let remove = |record: &EffectRecord, rev| {
        let mut changes = synced();
        changes.effects.push(EffectChange::Remove { record_id: record.record_id, rev });
        changes
    };
    for (record, rev) in [(&sent, 1), (&waiting, 2), (&claim(&*store, "absent"), 0)] {
        assert_eq!(store.commit(remove(record, rev)).await, Err(StoreError::Conflict));
    }
    store.commit(remove(&waiting, 1)).await.unwrap();
    assert_eq!(store.effect(waiting.record_id).await.unwrap(), None);
    assert_eq!(store.effect_of_call(&waiting.call_id).await.unwrap(), None);
    assert_eq!(store.claim(claimed.clone()).await.unwrap(), ClaimAnswer::Claimed);
    put(&*store, &dispatched(&*store, &claimed)).await.unwrap();
}

pub(crate) async fn a_refused_commit_leaves_nothing_behind(store: Arc<dyn Store>) {
    let (sent, wanted) = (make(&*store, "sent", false).await, run("run_1", 5));
    let claimed = claim(&*store, "new");
    store.claim(claimed.clone()).await.unwrap();
    let asked = approval(&claimed, "apr_1", NOW_MS);
    let whole = || {
        let mut changes = puts(&[&succeeded(&sent), &pending(&claimed, &asked)]);
        changes.runs.push(wanted.clone());
        changes.reserve = Some(reservation(&wanted, 10));
        changes.approvals.push(asked.clone());
        changes.audit.push(event("all of it"));
        changes
    };
    let mut stale = whole();
    stale.approvals[0].rev = 2;
    assert_eq!(store.commit(stale).await, Err(StoreError::Conflict));
    let mut illegal = whole();
    illegal.effects[1] = EffectChange::Put(Box::new(succeeded(&claimed)));
    assert!(matches!(store.commit(illegal).await, Err(StoreError::Illegal(_))));
    let mut dear = whole();
    dear.reserve = Some(reservation(&wanted, 101));
    assert_eq!(store.commit(dear).await, Err(StoreError::BudgetExhausted));

    assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(sent.clone()));
    assert_eq!(store.effect(claimed.record_id).await.unwrap(), Some(claimed.clone()));
    assert_eq!(store.approval(&asked.approval_id).await.unwrap(), None);
    assert_eq!(store.run(&wanted.key).await.unwrap(), None);

    store.commit(whole()).await.unwrap();
    assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(succeeded(&sent)));
    assert_eq!(store.effect(claimed.record_id).await.unwrap(), Some(pending(&claimed, &asked)));
    assert_eq!(store.approval(&asked.approval_id).await.unwrap(), Some(asked.clone()));
    assert_eq!(store.run(&wanted.key).await.unwrap(), wanted.reserved(10));
}

pub(crate) async fn approvals_move_as_their_machine_says(store: Arc<dyn Store>) {
    let claimed = claim(&*store, "held");
    let asked = approval(&claimed, "apr_1", NOW_MS);
    hold(&*store, &claimed, &asked).await;
    let offer = |approval: ApprovalRecord| {
        let mut changes = synced();
        changes.approvals.push(approval);
        changes
    };
    let yes = approval_moved(&asked, ApprovalState::Approved);
    let used = ApprovalState::Consumed { arm: 1, at: Timestamp::from_ms(NOW_MS) };
    for wrong in [
        asked.clone(),
        ApprovalRecord { rev: 3, ..yes.clone() },
        approval_moved(&asked, used.clone()),
    ] {
        assert_eq!(store.commit(offer(wrong)).await, Err(StoreError::Conflict));
    }
    store.commit(offer(yes.clone())).await.unwrap();
    store.commit(offer(approval_moved(&yes, used.clone()))).await.unwrap();
    let spent = approval_moved(&yes, used);
    let back = approval_moved(&spent, ApprovalState::Pending);
    assert_eq!(store.commit(offer(back)).await, Err(StoreError::Conflict));
    assert_eq!(store.approval(&asked.approval_id).await.unwrap(), Some(spent));
    assert_eq!(store.approval(&ApprovalId::new("apr_2").unwrap()).await.unwrap(), None);
}

pub(crate) async fn an_approval_is_not_used_by_a_commit_that_comes_too_late(store: Arc<dyn Store>) {
    let claimed = claim(&*store, "held");
    let now = store.now();
    let mut asked = approval(&claimed, "apr_1", NOW_MS);
    asked.expires_at = now;
    hold(&*store, &claimed, &asked).await;
    let yes = approval_moved(&asked, ApprovalState::Approved);
    let mut changes = synced();
    changes.approvals.push(yes.clone());
    store.commit(changes).await.unwrap();
    // The caller of this commit believes that the agreement is still good.
    let mut changes = synced();
    let used = ApprovalState::Consumed { arm: 0, at: now.plus_ms(-1) };
    changes.approvals.push(approval_moved(&yes, used));
    assert_eq!(store.commit(changes).await, Err(StoreError::Conflict));
    assert_eq!(store.approval(&asked.approval_id).await.unwrap(), Some(yes));
}

pub(crate) async fn a_reopened_approval_takes_its_effect_with_it(store: Arc<dyn Store>) {
    let claimed = claim(&*store, "held");
    let asked = approval(&claimed, "apr_1", NOW_MS);
    let waiting = hold(&*store, &claimed, &asked).await;
    let (agreed, yes) =
        (approved(&waiting, &asked), approval_moved(&asked, ApprovalState::Approved));
    let mut changes = puts(&[&agreed]);
    changes.approvals.push(yes.clone());
    store.commit(changes).await.unwrap();
    let back = pending(&agreed, &asked);
    let mut changes = puts(&[&back]);
    changes.approvals.push(approval_moved(&yes, ApprovalState::Pending));
    store.commit(changes).await.unwrap();
    assert_eq!(store.effect(claimed.record_id).await.unwrap(), Some(back));
    let seen = store.approval(&asked.approval_id).await.unwrap().unwrap();
    assert_eq!((seen.rev, seen.state), (3, ApprovalState::Pending));
}

pub(crate) async fn approvals_are_listed_oldest_first(store: Arc<dyn Store>) {
    let mut all = Vec::new();
    // Created out of order, two of them at the same moment, one before 1970.
    for (number, created_ms) in [(1, 300), (2, 100), (3, 200), (4, 200), (5, -50), (6, 400)] {
        let tenant = if number % 2 == 0 { "acme" } else { "globex" };
        let claimed = claim_of(tenant, &format!("key-{number}"), store.epoch());
        let asked = approval(&claimed, &format!("apr_{number}"), created_ms);
        hold(&*store, &claimed, &asked).await;
        all.push(asked);
    }
    let denied = approval_moved(&all[2], ApprovalState::Denied);
    let mut changes = synced();
    changes.approvals.push(denied);
    store.commit(changes).await.unwrap();
    let list = |tenant_name: Option<&str>, state: Option<&str>, after: Option<&str>, limit| {
        let store = Arc::clone(&store);
        let query = ApprovalQuery {
            tenant: tenant_name.map(tenant),
            state: state.map(str::to_owned),
            after: after.map(|id| ApprovalId::new(id).unwrap()),
            limit,
            ..ApprovalQuery::default()
        };
        async move {
            let found = store.approvals(&query).await.unwrap();
            let ids = found.iter().map(|found| found.approval_id.as_str().to_owned());
            ids.collect::<Vec<_>>().join(" ")
        }
    };
    assert_eq!(list(None, None, None, 10).await, "apr_5 apr_2 apr_3 apr_4 apr_1 apr_6");
    assert_eq!(list(None, Some("pending"), None, 10).await, "apr_5 apr_2 apr_4 apr_1 apr_6");
    assert_eq!(list(None, Some("denied"), None, 10).await, "apr_3");
    assert_eq!(list(None, Some("no such state"), None, 10).await, "");
    assert_eq!(list(Some("acme"), None, None, 10).await, "apr_2 apr_4 apr_6");
    assert_eq!(list(Some("globex"), Some("pending"), None, 10).await, "apr_5 apr_1");
    assert_eq!(list(Some("acm"), None, None, 10).await, "");
    assert_eq!(list(None, None, None, 2).await, "apr_5 apr_2");
    assert_eq!(list(None, None, Some("apr_2"), 2).await, "apr_3 apr_4");
    assert_eq!(list(Some("acme"), Some("pending"), Some("apr_2"), 9).await, "apr_4 apr_6");
    assert_eq!(list(None, None, Some("apr_6"), 2).await, "");
    assert_eq!(list(None, None, None, 0).await, "");
}

pub(crate) async fn effects_are_listed_by_their_last_move(store: Arc<dyn Store>) {
    let mut all = Vec::new();
    for number in 0..24 {
        let tenant = if number % 3 == 0 { "globex" } else { "acme" };
        let key = format!("key-{number}");
        all.push(make_for(&*store, tenant, &key, number % 2 == 0).await);
    }
    store.claim(claim(&*store, "only-claimed")).await.unwrap();
    all.sort_by_key(EffectRecord::place);
    let wanted = |tenant_name: Option<&str>, state: Option<&str>, open_only: bool| {
        let fits = |record: &&EffectRecord| {
            tenant_name.is_none_or(|name| record.scope.tenant.as_str() == name)
                && state.is_none_or(|state| record.state.name() == state)
                && (!open_only || record.state.is_open())
        };
        all.iter().filter(fits).cloned().collect::<Vec<_>>()
    };
    for tenant_name in [None, Some("acme"), Some("globex"), Some("nobody")] {
        for state in [None, Some("succeeded"), Some("dispatched"), Some("denied"), Some("x")] {
            for open_only in [false, true] {
                for limit in [1, 5, 100] {
                    let mut paged = Vec::new();
                    loop {
                        let query = EffectQuery {
                            tenant: tenant_name.map(tenant),
                            state: state.map(str::to_owned),
                            open_only,
                            after: paged.last().map(EffectRecord::place),
                            limit,
                            ..EffectQuery::default()
                        };
                        let page = store.effects(&query).await.unwrap();
                        assert!(page.len() <= limit);
                        let is_last = page.len() < limit;
                        paged.extend(page);
                        if is_last {
                            break;
                        }
                    }
                    assert_eq!(paged, wanted(tenant_name, state, open_only));
                }
            }
        }
    }
    let none = store.effects(&EffectQuery { limit: 0, ..EffectQuery::default() }).await;
    assert_eq!(none.unwrap(), Vec::new());
    // One that moves on while the list is read comes later in it.
    let read = all.iter().position(|record| record.state.is_open()).unwrap();
    let updated_at = all.last().unwrap().updated_at.plus_ms(1);
    let moved = EffectRecord { updated_at, ..succeeded(&all[read]) };
    put(&*store, &moved).await.unwrap();
    let after = Some(all[read].place());
    let rest = EffectQuery { after, limit: usize::MAX, ..EffectQuery::default() };
    let mut expected = all.split_off(read + 1);
    expected.push(moved);
    assert_eq!(store.effects(&rest).await.unwrap(), expected);
}

pub(crate) async fn open_effects_are_found_among_many_closed_ones(store: Arc<dyn Store>) {
    let mut open = Vec::new();
    for number in 0..400 {
        let finish = number % 50 != 0;
        let record = make(&*store, &format!("key-{number}"), finish).await;
        open.extend((!finish).then_some(record));
    }
    open.sort_by_key(EffectRecord::place);
    let query = EffectQuery { open_only: true, limit: usize::MAX, ..EffectQuery::default() };
    assert_eq!(store.effects(&query).await.unwrap(), open);
    put(&*store, &succeeded(&open[3])).await.unwrap();
    open.remove(3);
    assert_eq!(store.effects(&query).await.unwrap(), open);
}

pub(crate) async fn content_is_kept_per_tenant(store: Arc<dyn Store>) {
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let large = vec![7; 300 << 10];
    let mut changes = synced();
    changes.content = vec![
        (acme.clone(), b"arguments".to_vec()),
        (acme.clone(), large.clone()),
        (acme.clone(), Vec::new()),
    ];
    changes.audit.push(event("contents"));
    store.commit(changes).await.unwrap();
    for bytes in [b"arguments".to_vec(), large, Vec::new()] {
        let digest = Digest::of(&bytes);
        assert_eq!(store.content(&acme, digest).await.unwrap(), bytes);
        let missing = Err(StoreError::ContentMissing(digest));
        assert_eq!(store.content(&globex, digest).await, missing);
    }
    let digest = Digest::of(b"never kept");
    assert_eq!(store.content(&acme, digest).await, Err(StoreError::ContentMissing(digest)));
}

pub(crate) async fn a_commit_takes_several_steps_of_one_record(store: Arc<dyn Store>) {
    let claimed = claim(&*store, "key");
    store.claim(claimed.clone()).await.unwrap();
    let sent = dispatched(&*store, &claimed);
    let done = succeeded(&sent);
    let wrong = store.commit(puts(&[&sent, &sent])).await;
    assert_eq!(wrong, Err(StoreError::Conflict));
    store.commit(puts(&[&sent, &done])).await.unwrap();
    assert_eq!(store.effect(claimed.record_id).await.unwrap(), Some(done));
}

pub(crate) async fn of_many_claims_of_one_key_one_wins(store: Arc<dyn Store>) {
    for round in 0..20 {
        let mut racers = tokio::task::JoinSet::new();
        for number in 0..8 {
            let store = Arc::clone(&store);
            racers.spawn_blocking(move || {
                let mut mine = claim(&*store, &format!("key-{round}"));
                mine.call_id = ToolCallId::new(format!("call-{round}-{number}")).unwrap();
                let answer = placet_ledger::testing::ready(store.claim(mine)).unwrap();
                answer == ClaimAnswer::Claimed
            });
        }
        let wins = racers.join_all().await.into_iter().filter(|won| *won).count();
        assert_eq!(wins, 1, "round {round}");
    }
}

pub(crate) async fn entries_are_numbered_and_never_go_back_in_time(store: Arc<dyn Store>) {
    let mut last: Option<Committed> = None;
    for number in 0..20 {
        let mut changes = synced();
        changes.audit.push(event(&number.to_string()));
        let kept = store.commit(changes).await.unwrap();
        if let Some(last) = last {
            assert_eq!(kept.seq, last.seq + 1);
            assert!(kept.at >= last.at);
        }
        assert!(store.now() >= kept.at);
        last = Some(kept);
    }
}

pub(crate) async fn a_closed_store_takes_nothing(store: Arc<dyn Store>) {
    make(&*store, "key", true).await;
    store.close().await.unwrap();
    let mut changes = synced();
    changes.audit.push(event("too late"));
    assert!(matches!(store.commit(changes).await, Err(StoreError::Stopped(_))));
    store.close().await.unwrap();
}
