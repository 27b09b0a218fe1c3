//! Edits, escalations and entries of the approval service: what each commit changes, and what it does not.

use std::collections::{BTreeMap, BTreeSet};

use placet_types::{
    approval::{ApproverGroup, Escalation, Requirement, Vote, VoteChoice},
    directive::{DirectiveBody, Grant, pattern::ArgumentPattern},
    envelope::proposal::EditedFrom,
    ids::{ApprovalId, DirectiveId, GroupId, PrincipalId},
    mode::ApprovalMode,
    narrowing::Change,
};

use super::world::{Call, World, chain, event, store_error, vote, yes};
use crate::{
    approval::{ApprovalRecord, ApprovalState, VoteError},
    audit::AuditKind,
    directive::{DIRECTIVE_VERSION, Directive, DirectiveNote, DirectiveState},
    ledger::{LedgerError, Replacement},
    parked::ParkedEdit,
    record::EffectState,
    store::{Store, StoreError},
    testing::ready,
};

/// A change to narrower arguments.
pub(super) fn less() -> Change {
    Change { narrower: true, masked: BTreeSet::new() }
}

/// A change to other arguments.
pub(super) fn other() -> Change {
    Change { narrower: false, masked: BTreeSet::new() }
}

/// What the next approvers are shown of an edit.
pub(super) fn shown(approval: &ApprovalRecord, editor: &Vote, change: &Change) -> EditedFrom {
    let editors = editor.voices().map(|voice| voice.person).filter(|_| !change.narrower);
    let masked = approval.edits.iter().flat_map(|edit| &edit.masked).chain(&change.masked);
    EditedFrom {
        by: editor.approver.clone(),
        stands_for: None,
        reason: "too much".to_owned(),
        at: editor.at,
        preview: serde_json::Value::Null,
        preview_masked: BTreeSet::new(),
        request_digest: approval.request_digest,
        authors: approval.authors().chain(editors).cloned().collect(),
        masked: masked.cloned().collect(),
    }
}

/// What the call keeps of it.
fn kept(approval: &ApprovalRecord, editor: &Vote, change: &Change) -> ParkedEdit {
    let by = approval.edits.iter().map(|edit| &edit.by).chain([&editor.approver]);
    let masked = shown(approval, editor, change).masked;
    ParkedEdit { by: by.cloned().collect(), masked }
}

/// The arguments of `call` narrowed to `note`, with an agreement of `editor`.
pub(super) fn edit(
    world: &World,
    call: &Call,
    note: &str,
    approval: &ApprovalRecord,
    editor: Vote,
    requirement: &Requirement,
) -> (Call, Result<ApprovalRecord, LedgerError>) {
    change(world, call, note, &less(), approval, editor, requirement)
}

/// The same with other arguments.
pub(super) fn change(
    world: &World,
    call: &Call,
    note: &str,
    change: &Change,
    approval: &ApprovalRecord,
    editor: Vote,
    requirement: &Requirement,
) -> (Call, Result<ApprovalRecord, LedgerError>) {
    let narrowed = world.call(call.name(), note, call.key.as_str());
    let mut parked = world.parked(&narrowed);
    parked.requested_digest = world.parked(call).requested_digest;
    parked.edited = Some(kept(approval, &editor, change));
    let mut proposal = world.proposal(&narrowed, 1);
    proposal.requirement = requirement.clone();
    proposal.expires_at = approval.expires_at;
    proposal.evidence.edited = Some(shown(approval, &editor, change));
    let replacement = Replacement { parked: &parked, proposal: &proposal, change };
    let edited = ready(world.ledger.edit_approval(approval, replacement, editor, event()));
    (narrowed, edited)
}

pub(super) fn grant(world: &World, id: &str, uses_max: u32, quorum: u32) -> Directive {
    let requirement = Requirement::new(BTreeMap::new(), quorum, 60_000);
    let pay = world.call("pay", "1", "k");
    Directive {
        version: DIRECTIVE_VERSION,
        directive_id: DirectiveId::new(id).unwrap(),
        tenant: chain().actor.tenant_id,
        by: PrincipalId::new("ann").unwrap(),
        reason: "the same every day".to_owned(),
        created_at: world.now(),
        starts_at: world.now(),
        expires_at: world.now().plus_ms(60_000),
        body: DirectiveBody::Grant(Box::new(Grant {
            approval_id: ApprovalId::new("apr-k").unwrap(),
            chain: chain(),
            capability: pay.binding.capability.clone(),
            mode: ApprovalMode::Network,
            contract_digest: pay.binding.contract_digest,
            pattern: ArgumentPattern(BTreeMap::new()),
            uses_max,
            authors: BTreeSet::new(),
        })),
        state: Directive::first_state(&requirement),
        requirement,
        rev: 1,
        votes: Vec::new(),
        uses: 0,
        claimed: None,
    }
}

fn stored(world: &World, id: &str) -> Directive {
    ready(world.store.directive(&DirectiveId::new(id).unwrap())).unwrap().unwrap()
}

#[test]
fn an_edit_changes_what_runs_what_is_shown_and_what_counts_at_once() {
    let world = World::new();
    let call = world.call("erase", "all of it", "k1");
    let held = world.held(&call, 2);
    let held = ready(world.ledger.vote(&held, yes(&held, "ann"), event())).unwrap();
    let (narrowed, edited) =
        edit(&world, &call, "a.txt", &held, yes(&held, "bob"), &held.requirement);
    let edited = edited.unwrap();
    // Ann agreed to something else.
    assert_eq!(
        (&edited.state, edited.ballot().tally()),
        (&ApprovalState::Pending, crate::approval::Tally::Open)
    );
    let record = world.record(&call);
    let parked = ready(world.ledger.parked(&record)).unwrap();
    assert_eq!(parked.binding, narrowed.binding);
    assert_eq!(record.requested_digest, parked.requested_digest, "the agent's retry finds it");
    let shown = ready(world.ledger.proposal(&edited)).unwrap();
    assert_eq!(shown.evidence.request_digest, edited.request_digest);
    let [past] = edited.edits.as_slice() else { panic!("one edit") };
    assert_eq!((past.from_proposal, past.from_request), (held.proposal, held.request_digest));
    let again = ready(world.ledger.vote(&edited, yes(&edited, "bob"), event()));
    assert!(matches!(again, Err(LedgerError::Vote(VoteError::Twice))));
    let stale = ready(world.ledger.vote(&edited, yes(&held, "cyd"), event()));
    assert!(matches!(stale, Err(LedgerError::Vote(VoteError::Stale))));
    // Ann decides again, on the new arguments; only those run.
    let done = ready(world.ledger.vote(&edited, yes(&edited, "ann"), event())).unwrap();
    assert_eq!(done.state, ApprovalState::Approved);
    let record = world.record(&call);
    let wrong = world.dispatch(&call, &record, Some(&held));
    assert!(matches!(wrong, Err(LedgerError::PermitMismatch)));
    world.dispatch(&narrowed, &record, Some(&done)).unwrap();
    let edits: Vec<_> =
        world.store.audit().into_iter().filter(|event| event.kind == AuditKind::Edited).collect();
    let [event] = edits.as_slice() else { panic!("one event") };
    assert_eq!(event.digests["request_before"], held.request_digest);
    assert_eq!(event.digests["request"], edited.request_digest);
}

#[test]
fn an_editor_who_is_enough_approves_by_editing() {
    let world = World::new();
    let call = world.call("erase", "all of it", "k1");
    let held = world.held(&call, 1);
    let (narrowed, edited) =
        edit(&world, &call, "a.txt", &held, yes(&held, "bob"), &held.requirement);
    let edited = edited.unwrap();
    assert_eq!(edited.state, ApprovalState::Approved);
    let record = world.record(&call);
    assert!(matches!(record.state, EffectState::Approved { .. }));
    world.dispatch(&narrowed, &record, Some(&edited)).unwrap();
}

#[test]
fn anyone_who_writes_other_arguments_does_not_decide_on_them() {
    let world = World::new();
    let call = world.call("erase", "all of it", "k1");
    let held = world.held(&call, 1);
    // Cyd acts for Bob: the arguments are Bob's as well.
    let cyd = Vote { stands_for: Some(PrincipalId::new("bob").unwrap()), ..yes(&held, "cyd") };
    let (changed, edited) =
        change(&world, &call, "all else", &other(), &held, cyd, &held.requirement);
    let edited = edited.unwrap();
    assert_eq!((&edited.state, edited.votes.len()), (&ApprovalState::Pending, 0));
    assert!(matches!(world.record(&call).state, EffectState::PendingApproval { .. }));
    let sent = world.dispatch(&changed, &world.record(&call), Some(&edited));
    assert!(sent.is_err(), "nobody has agreed");
    let for_bob =
        |who| Vote { stands_for: Some(PrincipalId::new("bob").unwrap()), ..yes(&edited, who) };
    for vote in [
        yes(&edited, "cyd"),
        yes(&edited, "bob"),
        Vote { choice: VoteChoice::Deny, ..yes(&edited, "cyd") },
        for_bob("dan"),
    ] {
        let refused = ready(world.ledger.vote(&edited, vote, event()));
        assert!(matches!(refused, Err(LedgerError::Vote(VoteError::Author))));
    }
    // Nor may they edit again, and a colleague's narrower edit does not lift that.
    let (_, again) = edit(&world, &call, "some", &edited, yes(&edited, "bob"), &held.requirement);
    assert!(matches!(again, Err(LedgerError::Vote(VoteError::Author))));
    let two = Requirement { quorum: 2, ..held.requirement.clone() };
    let (last, next) = edit(&world, &call, "some", &edited, yes(&edited, "ann"), &two);
    let next = next.unwrap();
    let refused = ready(world.ledger.vote(&next, yes(&next, "cyd"), event()));
    assert!(matches!(refused, Err(LedgerError::Vote(VoteError::Author))));
    let done = ready(world.ledger.vote(&next, yes(&next, "dan"), event())).unwrap();
    assert_eq!(done.state, ApprovalState::Approved);
    world.dispatch(&last, &world.record(&call), Some(&done)).unwrap();
}

#[test]
fn a_changed_masked_value_is_never_agreed_to_by_its_editor_and_always_shown() {
    let world = World::new();
    let call = world.call("erase", "all of it", "k1");
    let held = world.held(&call, 1);
    let masked = BTreeSet::from(["/account".to_owned()]);
    let wrong = Change { narrower: true, masked: masked.clone() };
    let (_, refused) =
        change(&world, &call, "a", &wrong, &held, yes(&held, "bob"), &held.requirement);
    assert!(matches!(refused, Err(LedgerError::EditMismatch)));
    let right = Change { narrower: false, masked };
    // The evidence does not say so.
    let narrowed = world.call("erase", "a", "k1");
    let mut parked = world.parked(&narrowed);
    parked.requested_digest = world.parked(&call).requested_digest;
    parked.edited = Some(kept(&held, &yes(&held, "bob"), &right));
    let mut proposal = world.proposal(&narrowed, 1);
    let told = shown(&held, &yes(&held, "bob"), &right);
    for silent in [
        None,
        Some(EditedFrom { masked: BTreeSet::new(), ..told.clone() }),
        Some(EditedFrom { authors: BTreeSet::new(), ..told.clone() }),
    ] {
        proposal.evidence.edited = silent;
        let replacement = Replacement { parked: &parked, proposal: &proposal, change: &right };
        let refused =
            ready(world.ledger.edit_approval(&held, replacement, yes(&held, "bob"), event()));
        assert!(matches!(refused, Err(LedgerError::EditMismatch)));
    }
    // The parked call does not say whose arguments they are, or what they changed.
    proposal.evidence.edited = Some(told);
    let whole = parked.edited.take().unwrap();
    for silent in [
        None,
        Some(ParkedEdit { by: BTreeSet::new(), ..whole.clone() }),
        Some(ParkedEdit { masked: BTreeSet::new(), ..whole }),
    ] {
        parked.edited = silent;
        let replacement = Replacement { parked: &parked, proposal: &proposal, change: &right };
        let refused =
            ready(world.ledger.edit_approval(&held, replacement, yes(&held, "bob"), event()));
        assert!(matches!(refused, Err(LedgerError::EditMismatch)));
    }
    let (_, edited) =
        change(&world, &call, "a", &right, &held, yes(&held, "bob"), &held.requirement);
    let edited = edited.unwrap();
    assert_eq!((&edited.state, &edited.edits[0].masked), (&ApprovalState::Pending, &right.masked));
    // A later edit may not drop it.
    let (_, next) = edit(&world, &call, "b", &edited, yes(&edited, "ann"), &held.requirement);
    let shown = ready(world.ledger.proposal(&next.unwrap())).unwrap();
    assert_eq!(shown.evidence.edited.unwrap().masked, right.masked);
}

#[test]
fn an_edit_that_came_too_late_changes_nothing() {
    let world = World::new();
    let call = world.call("erase", "all of it", "k1");
    let held = world.held(&call, 2);
    let before = world.record(&call);
    ready(world.ledger.vote(&held, yes(&held, "ann"), event())).unwrap();
    let (_, stale) = edit(&world, &call, "a.txt", &held, yes(&held, "bob"), &held.requirement);
    assert_eq!(store_error(stale), StoreError::Conflict);
    let now = world.approval(&held);
    let (_, same) = edit(&world, &call, "all of it", &now, yes(&now, "bob"), &now.requirement);
    assert!(matches!(same, Err(LedgerError::Vote(VoteError::Unchanged))));
    world.store.advance_ms(60_000);
    let (_, late) = edit(&world, &call, "a.txt", &now, yes(&now, "bob"), &now.requirement);
    assert!(matches!(late, Err(LedgerError::Vote(VoteError::Late { state: "expired" }))));
    assert_eq!((world.record(&call), world.approval(&held)), (before, now));
}

#[test]
fn an_edit_of_another_call_is_refused() {
    let world = World::new();
    let call = world.call("erase", "all of it", "k1");
    let held = world.held(&call, 1);
    let narrowed = world.call("erase", "a.txt", "k1");
    let mut good = world.parked(&narrowed);
    good.edited = Some(kept(&held, &yes(&held, "bob"), &less()));
    let requested_digest = world.parked(&call).requested_digest;
    let proposal = world.proposal(&narrowed, 1);
    let other = world.call("push", "a.txt", "k1");
    for (parked, proposal) in [
        // Duplicates would no longer match it.
        (good.clone(), proposal.clone()),
        (world.parked(&other), world.proposal(&other, 1)),
        (crate::parked::ParkedCall { requested_digest, ..good.clone() }, world.proposal(&call, 1)),
    ] {
        let proposal = placet_types::envelope::proposal::ToolProposalEnvelope {
            evidence: placet_types::envelope::proposal::Evidence {
                edited: Some(shown(&held, &yes(&held, "bob"), &less())),
                ..proposal.evidence
            },
            ..proposal
        };
        let replacement = Replacement { parked: &parked, proposal: &proposal, change: &less() };
        let refused =
            ready(world.ledger.edit_approval(&held, replacement, yes(&held, "bob"), event()));
        assert!(matches!(refused, Err(LedgerError::EditMismatch)));
    }
    assert_eq!(world.approval(&held), held);
}

#[test]
fn what_was_before_an_edit_is_dropped_with_the_rest() {
    let world = World::new();
    let call = world.call("erase", "all of it", "k1");
    let held = world.held(&call, 1);
    let first = world.record(&call).parked;
    let (_, edited) = edit(&world, &call, "a.txt", &held, yes(&held, "bob"), &held.requirement);
    let edited = edited.unwrap();
    let denied =
        ready(world.ledger.end_approval(&edited, ApprovalState::Expired, event())).unwrap();
    let record = world.record(&call);
    let kept = [first, record.parked, held.proposal, denied.proposal];
    let tenant = &record.scope.tenant;
    assert!(kept.iter().all(|digest| ready(world.store.content(tenant, *digest)).is_ok()));
    ready(world.ledger.bury(std::slice::from_ref(&record))).unwrap();
    for digest in kept {
        let gone = ready(world.store.content(tenant, digest));
        assert_eq!(gone, Err(StoreError::ContentMissing(digest)));
    }
}

#[test]
fn the_next_group_is_asked_when_it_is_due_and_what_it_said_before_counts() {
    let world = World::new();
    let call = world.call("erase", "a.txt", "k1");
    let group = |name: &str| ApproverGroup::own(GroupId::new(name).unwrap());
    let mut proposal = world.proposal(&call, 1);
    proposal.requirement.groups = BTreeMap::from([(group("leads"), 1)]);
    proposal.requirement.escalations.push(Escalation {
        after_ms: 1_000,
        group: group("managers"),
        people: 1,
        stands_in_for: BTreeSet::from([group("leads")]),
    });
    let claimed = world.claim(&call);
    let held =
        ready(world.ledger.hold(&claimed, &world.parked(&call), &proposal, event())).unwrap();
    let mut manager = yes(&held, "mo");
    manager.groups.insert("managers".parse().unwrap());
    let voted = ready(world.ledger.vote(&held, manager, event())).unwrap();
    assert_eq!(voted.state, ApprovalState::Pending);
    let early = ready(world.ledger.escalate_approval(&voted, event()));
    assert!(matches!(early, Err(LedgerError::Vote(VoteError::Late { state: "pending" }))));
    world.store.advance_ms(1_000);
    let asked = ready(world.ledger.escalate_approval(&voted, event())).unwrap();
    assert_eq!((asked.escalated, &asked.state), (1, &ApprovalState::Approved));
    assert!(matches!(world.record(&call).state, EffectState::Approved { .. }));
    // Another node's timer.
    let again = ready(world.ledger.escalate_approval(&voted, event()));
    assert!(again.is_err());
    assert_eq!(world.approval(&held), asked);
    world.dispatch(&call, &world.record(&call), Some(&asked)).unwrap();
    let kinds: Vec<_> = world.store.audit().into_iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&AuditKind::Escalated), "{kinds:?}");
}

#[test]
fn an_entry_and_its_event_are_kept_together() {
    let world = World::new();
    let proposed = grant(&world, "dir_1", 2, 1);
    ready(world.ledger.put_directive(proposed.clone(), event())).unwrap();
    let mut agreed =
        vote(&world.held(&world.call("erase", "a", "k1"), 1), "bob", VoteChoice::Approve);
    agreed.shown_digest = proposed.terms();
    let active = proposed.cast(agreed, world.now()).unwrap();
    ready(world.ledger.put_directive(active.clone(), event())).unwrap();
    assert_eq!(stored(&world, "dir_1").state, DirectiveState::Active);
    let stale = ready(world.ledger.put_directive(active.clone(), event()));
    assert_eq!(store_error(stale), StoreError::Conflict);
    let events: Vec<_> = world
        .store
        .audit()
        .into_iter()
        .filter(|event| event.kind == AuditKind::Directive)
        .collect();
    let [made, moved] = events.as_slice() else { panic!("two events: {events:?}") };
    assert_eq!(made.note.as_deref(), Some("grant proposed"));
    assert_eq!(moved.note.as_deref(), Some("grant active"));
    assert!(moved.directives.contains(&active.directive_id));
    assert_eq!(moved.digests["terms"], active.terms());
}

#[test]
fn a_use_of_a_grant_is_counted_with_the_dispatch_and_named_by_its_event() {
    let world = World::new();
    let entry = grant(&world, "dir_1", 2, 0);
    ready(world.ledger.put_directive(entry.clone(), event())).unwrap();
    for (key, uses) in [("k1", 1), ("k2", 2)] {
        let call = world.call("pay", "1", key);
        let claimed = world.claim(&call);
        let permit = world.permit_under(&call, &entry);
        assert_eq!(permit.grant(), Some(&entry.directive_id));
        let armed = ready(world.ledger.dispatch(
            permit,
            world.intent(&call),
            &claimed,
            None,
            world.dedup(&call),
        ));
        armed.unwrap();
        assert_eq!(stored(&world, "dir_1").uses, uses);
        let EffectState::Dispatched(attempt) = world.record(&call).state else { panic!("sent") };
        assert_eq!(
            (attempt.grant.as_ref(), attempt.approval_id),
            (Some(&entry.directive_id), None)
        );
    }
    let named = world.store.audit().into_iter().filter(|event| {
        event.kind == AuditKind::Dispatched && event.directives.contains(&entry.directive_id)
    });
    assert_eq!(named.count(), 2);
    // Used up: the call has not changed, and may be held.
    let call = world.call("pay", "1", "k3");
    let claimed = world.claim(&call);
    let permit = world.permit_under(&call, &entry);
    let spent = ready(world.ledger.dispatch(
        permit,
        world.intent(&call),
        &claimed,
        None,
        world.dedup(&call),
    ));
    assert!(matches!(spent, Err(LedgerError::Store(StoreError::GrantSpent))));
    assert_eq!((world.record(&call).rev, world.calls_used()), (0, 2));
    let proposal = world.proposal(&call, 1);
    ready(world.ledger.hold(&claimed, &world.parked(&call), &proposal, event())).unwrap();
}

#[test]
fn a_grant_that_was_ended_lets_nothing_pass_and_no_call_that_waits_for_people() {
    let world = World::new();
    let entry = grant(&world, "dir_1", 2, 0);
    ready(world.ledger.put_directive(entry.clone(), event())).unwrap();
    let dispatch = |key: &str, record: &crate::record::EffectRecord| {
        let call = world.call("pay", "1", key);
        let permit = world.permit_under(&call, &entry);
        ready(world.ledger.dispatch(permit, world.intent(&call), record, None, world.dedup(&call)))
    };
    let held = world.call("pay", "1", "k1");
    world.held(&held, 1);
    assert!(matches!(store_error(dispatch("k1", &world.record(&held))), StoreError::Illegal(_)));
    let approved = world.call("pay", "1", "k2");
    let (record, _) = world.approved(&approved);
    assert!(matches!(dispatch("k2", &record), Err(LedgerError::PermitMismatch)));
    let note = DirectiveNote {
        by: PrincipalId::new("bob").unwrap(),
        at: world.now(),
        text: "enough".to_owned(),
    };
    ready(world.ledger.put_directive(entry.ended(note).unwrap(), event())).unwrap();
    let fresh = world.call("pay", "1", "k3");
    let claimed = world.claim(&fresh);
    assert!(matches!(dispatch("k3", &claimed), Err(LedgerError::Store(StoreError::GrantSpent))));
    assert_eq!(stored(&world, "dir_1").uses, 0);
}
