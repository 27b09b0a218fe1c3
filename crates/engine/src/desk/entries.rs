//! Entries of the approval service as people see them: standing grants, break-glass records, freezes, delegations.
//!
//! Owns their views. Who sees an entry is Cedar's answer; one that somebody may not see answers as one that does not exist. Invariant: no
//! argument that its schema marks sensitive is in a view, though the digest that people agree to covers it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use placet_identity::VerifiedCaller;
use placet_ledger::{
    desk::{DeskEntry, DeskState},
    store::DeskQuery,
};
use placet_policy::{
    manage::{DeskActKind, EntryFacts, Management},
    review::{ReviewRefusal, Reviewer},
};
use placet_types::{
    approval::Vote,
    clock::Timestamp,
    desk::{
        DeskBody, Grant,
        pattern::{ArgumentPattern, ArgumentRule, is_related},
    },
    error::{ErrorCode, Problem, Refusal},
    ids::{DeskId, GroupId, PrincipalId},
};

use super::{effective_rules, hints, permitted_actions, reviewer};
use crate::{
    context::{Context, ledger_refusal},
    views::desk::{DeskEntryView, DeskNoteView, EntriesPage, EntriesQuery},
};

/// How many entries are read at a time, at least and at most.
const READ: std::ops::RangeInclusive<usize> = 64..=256;
/// How many are looked at for one page, however few of them the caller may see.
const LOOKED_MAX: usize = 2_000;
/// What is shown in the place of a sensitive value.
pub(crate) const MASK: &str = "[sensitive]";

/// A page of the entries that the caller may see.
pub(crate) async fn list(
    context: &Context,
    caller: &VerifiedCaller,
    wanted: &EntriesQuery,
) -> Result<EntriesPage, Refusal> {
    let store = context.ledger.store();
    if let Some(after) = &wanted.after {
        must_be_there(context, caller, after).await?;
    }
    let most = wanted.limit.saturating_add(1).clamp(*READ.start(), *READ.end());
    let mut query = DeskQuery {
        tenant: Some(caller.tenant().clone()),
        kind: wanted.kind,
        open_at: wanted.only_open.then(|| store.now()),
        made_before: wanted.made_before,
        newest_first: wanted.newest_first,
        after: wanted.after.clone(),
        limit: most,
    };
    let (mut page, mut looked) = (EntriesPage::default(), 0_usize);
    loop {
        let read = store.desk_entries(&query).await;
        let read = read.map_err(|error| ledger_refusal(&error.into()))?;
        for entry in read.iter().filter(|entry| may_see(context, caller, entry)) {
            if page.entries.len() >= wanted.limit {
                page.next_after = page.entries.last().map(|last| last.desk_id.clone());
                return Ok(page);
            }
            page.entries.push(view_of(context, caller, entry));
        }
        looked = looked.saturating_add(read.len());
        let Some(last) = read.last().filter(|_| read.len() >= most) else { return Ok(page) };
        query.after = Some(last.desk_id.clone());
        if looked >= LOOKED_MAX {
            page.next_after = query.after;
            return Ok(page);
        }
    }
}

/// A place that is gone has nothing after it, and a list that silently began again would be read twice.
async fn must_be_there(
    context: &Context,
    caller: &VerifiedCaller,
    after: &DeskId,
) -> Result<(), Refusal> {
    let entry = context.ledger.store().desk_entry(after).await;
    let entry = entry.map_err(|error| ledger_refusal(&error.into()))?;
    if entry.is_some_and(|entry| entry.tenant == *caller.tenant()) { Ok(()) } else { Err(gone()) }
}

/// What is said of a place to go on from that is not there.
pub(crate) fn gone() -> Refusal {
    let problem = "the list has no such place any more; read it from the start".to_owned();
    Refusal::new(ErrorCode::ValidationError, "there is no such place to go on from")
        .with_problems(vec![Problem { pointer: "/after".to_owned(), problem }])
}

/// One entry.
pub(crate) async fn show(
    context: &Context,
    caller: &VerifiedCaller,
    desk_id: &DeskId,
) -> Result<DeskEntryView, Refusal> {
    Ok(view_of(context, caller, &visible(context, caller, desk_id).await?))
}

/// An entry that the caller may see.
pub(crate) async fn visible(
    context: &Context,
    caller: &VerifiedCaller,
    desk_id: &DeskId,
) -> Result<DeskEntry, Refusal> {
    let unknown = || Refusal::new(ErrorCode::NotFound, "there is no such entry");
    let entry = context.ledger.store().desk_entry(desk_id).await;
    let entry = entry.map_err(|error| ledger_refusal(&error.into()))?.ok_or_else(unknown)?;
    if may_see(context, caller, &entry) { Ok(entry) } else { Err(unknown()) }
}

/// Whether the caller may see an entry.
pub(crate) fn may_see(context: &Context, caller: &VerifiedCaller, entry: &DeskEntry) -> bool {
    may(context, caller, DeskActKind::View, entry).is_ok()
}

/// Whether policy lets the caller do this in the approval service.
///
/// # Errors
/// Why not.
pub(crate) fn may(
    context: &Context,
    caller: &VerifiedCaller,
    act: DeskActKind,
    entry: &DeskEntry,
) -> Result<(), ReviewRefusal> {
    // An agent that acts for a person is not that person.
    if !reviewer::is_person(caller) {
        return Err(ReviewRefusal {
            code: ErrorCode::NotFound,
            determining: Vec::new(),
            errors: vec!["only people manage approvals".to_owned()],
            needs_fresh_auth: false,
        });
    }
    let decided_by = deciders(entry);
    // What stands is never asked of another tenant.
    let own = entry.requirement.groups.keys().filter(|group| group.external_tenant().is_none());
    let asked: BTreeSet<GroupId> = own.map(|group| group.group().clone()).collect();
    let person = &caller.actor;
    let management = Management {
        reviewer: Reviewer { principal: person.principal(), groups: person.groups() },
        authenticated_at: person.authenticated_at(),
        act,
        entry: Some(EntryFacts {
            tenant: &entry.tenant,
            by: &entry.by,
            decided_by: &decided_by,
            asked: &asked,
            colleague: colleague_of(entry),
        }),
        now: context.ledger.store().now(),
    };
    context.active().policy.may_manage(&management)
}

/// Everybody who has decided on an entry, and for whom.
pub(crate) fn deciders(entry: &DeskEntry) -> BTreeSet<PrincipalId> {
    entry.votes.iter().flat_map(Vote::voices).map(|voice| voice.person.clone()).collect()
}

const fn colleague_of(entry: &DeskEntry) -> Option<&PrincipalId> {
    match &entry.body {
        DeskBody::Delegation(delegation) => Some(&delegation.to),
        DeskBody::Grant(_)
        | DeskBody::BreakGlass(_)
        | DeskBody::Freeze(_)
        | DeskBody::Revocation(_) => None,
    }
}

/// An entry as it is shown to the caller.
pub(crate) fn view_of(
    context: &Context,
    caller: &VerifiedCaller,
    entry: &DeskEntry,
) -> DeskEntryView {
    let now = context.ledger.store().now();
    let note = match &entry.state {
        DeskState::Ended { end: note } | DeskState::Reviewed { review: note } => {
            Some(DeskNoteView { by: note.by.clone(), at: note.at, text: note.text.clone() })
        }
        DeskState::Proposed | DeskState::Active | DeskState::Denied => None,
    };
    DeskEntryView {
        desk_id: entry.desk_id.clone(),
        state: state_of(entry, now).to_owned(),
        in_force: entry.is_in_force(now),
        review_due: effective_rules::is_review_due(entry, now),
        by: entry.by.clone(),
        reason: entry.reason.clone(),
        created_at: entry.created_at,
        starts_at: entry.starts_at,
        expires_at: entry.expires_at,
        body: shown_body(context, entry),
        requirement: entry.requirement.clone(),
        votes: entry.votes.clone(),
        uses: entry.uses,
        note,
        digest: entry.terms(),
        standing: permitted_actions::of(context, caller, entry),
        hint: hints::of(context, entry),
    }
}

/// The state, and by the clock what it has come to.
fn state_of(entry: &DeskEntry, now: Timestamp) -> &'static str {
    match &entry.state {
        DeskState::Proposed | DeskState::Active if now >= entry.expires_at => "expired",
        DeskState::Active if entry.uses_left() == Some(0) => "used_up",
        DeskState::Active if now < entry.starts_at => "scheduled",
        state @ (DeskState::Proposed
        | DeskState::Active
        | DeskState::Denied
        | DeskState::Ended { .. }
        | DeskState::Reviewed { .. }) => state.name(),
    }
}

fn shown_body(context: &Context, entry: &DeskEntry) -> DeskBody {
    match &entry.body {
        DeskBody::Grant(grant) => {
            let pattern = masked(context, entry, grant);
            DeskBody::Grant(Box::new(Grant { pattern, ..grant.as_ref().clone() }))
        }
        body @ (DeskBody::BreakGlass(_)
        | DeskBody::Freeze(_)
        | DeskBody::Delegation(_)
        | DeskBody::Revocation(_)) => body.clone(),
    }
}

/// The pattern with every value masked that stands where the schema marks a value as sensitive.
fn masked(context: &Context, entry: &DeskEntry, grant: &Grant) -> ArgumentPattern {
    let target = context.active().catalog.resolve(&entry.tenant, &grant.capability);
    let schema = target.as_ref().and_then(|target| target.capability.arguments.as_ref().ok());
    // A tool that is gone has no schema to say what may be shown.
    let Some(schema) = schema else {
        return ArgumentPattern(
            grant.pattern.0.iter().map(|(place, rule)| (place.clone(), mask_rule(rule))).collect(),
        );
    };
    let instance = instance_of(&grant.pattern);
    let sensitive = schema.sensitive_pointers(&instance);
    // A place that the instance does not have cannot be looked up in the schema.
    let hides = |place: &str| {
        instance.pointer(place).is_none()
            || sensitive.iter().any(|hidden| is_related(place, hidden))
    };
    let rules = grant.pattern.0.iter().map(|(place, rule)| {
        let rule = if hides(place) { mask_rule(rule) } else { rule.clone() };
        (place.clone(), rule)
    });
    ArgumentPattern(rules.collect())
}

fn mask_rule(rule: &ArgumentRule) -> ArgumentRule {
    let mask = || Value::String(MASK.to_owned());
    match rule {
        ArgumentRule::Equals(_) => ArgumentRule::Equals(mask()),
        ArgumentRule::OneOf(values) => ArgumentRule::OneOf(values.iter().map(|_| mask()).collect()),
        ArgumentRule::StartsWith(_) => ArgumentRule::StartsWith(MASK.to_owned()),
        ArgumentRule::AtMost(_) => ArgumentRule::AtMost(0),
        ArgumentRule::Any(any) => ArgumentRule::Any(*any),
    }
}

/// Arguments with something at every place of a pattern.
pub(crate) fn instance_of(pattern: &ArgumentPattern) -> Value {
    let mut instance = Value::Object(Map::new());
    for (place, rule) in &pattern.0 {
        let value = match rule {
            ArgumentRule::Equals(value) => value.clone(),
            ArgumentRule::OneOf(values) => values.first().cloned().unwrap_or_default(),
            ArgumentRule::AtMost(most) => Value::from(*most),
            ArgumentRule::StartsWith(start) => Value::String(start.clone()),
            ArgumentRule::Any(_) => Value::Null,
        };
        put(&mut instance, place, value);
    }
    instance
}

fn put(instance: &mut Value, place: &str, value: Value) {
    let mut at = instance;
    for token in place.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        if let Ok(index) = token.parse::<usize>()
            && !matches!(at, Value::Object(fields) if !fields.is_empty())
        {
            if !at.is_array() {
                *at = Value::Array(Vec::new());
            }
            let Some(items) = at.as_array_mut() else { return };
            while items.len() <= index && items.len() < 64 {
                items.push(Value::Null);
            }
            let Some(inner) = items.get_mut(index) else { return };
            at = inner;
        } else {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            let Some(fields) = at.as_object_mut() else { return };
            at = fields.entry(token).or_insert(Value::Null);
        }
    }
    *at = value;
}
