//! Policy decisions about calls, looked up in the audit chain.
//!
//! Owns who may see which, and how the chain is searched. Invariants: everything comes from the chain, so that it is the same on all nodes
//! and after a restart; one search reads a bounded number of entries and says so where there may be more; nobody sees a decision of
//! another tenant.

use std::collections::HashMap;

use placet_approvals::{reviewer, timeline::first_at, views::DirectiveView};
use placet_identity::VerifiedCaller;
use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    keys::time_of,
    log::{AuditLog, LogEntry, TreeHead},
    refusal::lookup_refusal,
    store::StoreError,
};
use placet_policy::decision::{Decision, Determining, Outcome, PolicyEffect};
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    error::{ErrorCode, Refusal},
    ids::{DecisionId, IdempotencyKey, ToolCallId},
};
use serde::Deserialize;
use serde_json::Value;

use super::Engine;
use crate::{
    context::Context,
    registry::Owner,
    sight::Sight,
    views::decisions::{
        CallOutcome, DECISIONS_PAGE_MAX, DecisionPolicy, DecisionVerdict, DecisionView,
        DecisionsPage, DecisionsQuery,
    },
};

/// The most entries of the chain that are read for one answer.
const ENTRIES_MAX: u64 = 50_000;
/// How many are read at a time.
const READ: u64 = 512;
/// How many decisions a page has by default.
const PAGE_DEFAULT: usize = 50;
/// How far back a list goes by default: one day.
const RANGE_MS: i64 = 86_400_000;
/// How long before and after the time in its id a decision is searched for: it is recorded when its call was held, refused or sent.
const BEFORE_MS: i64 = 60_000;
const AFTER_MS: i64 = 600_000;

impl Engine {
    /// A page of the policy decisions about calls that the caller may see, the newest first.
    ///
    /// # Errors
    /// [`Refusal`] for callers that are not people, for an unusable range, or when the audit chain cannot be read.
    pub async fn decisions(
        &self,
        caller: &VerifiedCaller,
        query: DecisionsQuery,
    ) -> Result<DecisionsPage, Refusal> {
        let mut sight = sight_of(&self.context, caller)?;
        let relied_on = match &query.directive {
            Some(id) => self.approvals().entry(caller, id).await.ok(),
            None => None,
        };
        sight.sees_all |= relied_on.as_ref().is_some_and(|entry| reviews(caller, entry));
        let limit = match query.limit {
            0 => PAGE_DEFAULT,
            limit => limit.min(DECISIONS_PAGE_MAX),
        };
        let to = query.to.unwrap_or_else(|| self.context.ledger.store().now().plus_ms(1));
        let from = query.from.or(relied_on.map(|entry| entry.starts_at));
        let from = from.unwrap_or_else(|| to.plus_ms(RANGE_MS.saturating_neg()));
        if to <= from {
            let message = "the range of time is not usable";
            return Err(Refusal::new(ErrorCode::ValidationError, message)
                .with_problem("/to", "must be after `from`"));
        }
        let wants = |view: &DecisionView| wants(&query, view);
        let wanted = Wanted { from, to, limit, wants: &wants };
        search(&sight, log_of(&self.context)?, wanted).await
    }

    /// One policy decision about a call.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] for decisions that the caller may not see.
    pub async fn decision(
        &self,
        caller: &VerifiedCaller,
        id: &DecisionId,
    ) -> Result<DecisionView, Refusal> {
        let unknown = || Refusal::new(ErrorCode::NotFound, "there is no such decision");
        let sight = sight_of(&self.context, caller)?;
        let mut all = sight;
        all.sees_all = true;
        let made = made_at(id).ok_or_else(unknown)?;
        let wanted = Wanted {
            from: made.plus_ms(BEFORE_MS.saturating_neg()),
            to: made.plus_ms(AFTER_MS),
            limit: 1,
            wants: &|view| view.decision_id == *id,
        };
        let found = search(&all, log_of(&self.context)?, wanted).await?;
        // A call that was held and then sent has two decisions: one that held it, and one that sent it.
        let found = found.decisions.into_iter().next().ok_or_else(unknown)?;
        if sight.sees(&Owner::of(&found.principal_chain)) {
            return Ok(found);
        }
        for id in &found.directives {
            let entry = self.approvals().entry(caller, id).await;
            if entry.is_ok_and(|entry| reviews(caller, &entry)) {
                return Ok(found);
            }
        }
        Err(unknown())
    }
}

/// Whether the caller has to review this entry, or did: its review is about what was done under it.
fn reviews(caller: &VerifiedCaller, entry: &DirectiveView) -> bool {
    let reviewed = entry.review.iter().any(|note| note.by == caller.actor.principal().id);
    entry.standing.may_review || reviewed
}

/// People only: the agent that is refused must not learn which policy denied it.
fn sight_of<'a>(context: &'a Context, caller: &'a VerifiedCaller) -> Result<Sight<'a>, Refusal> {
    if reviewer::is_person(caller) {
        return Ok(Sight::of(context, caller));
    }
    Err(Refusal::new(
        ErrorCode::PolicyDenied,
        "decisions are for people: operators, auditors, the agent's owner and the user it acts for",
    ))
}

fn log_of(context: &Context) -> Result<&dyn AuditLog, Refusal> {
    let notary = context.notary.as_ref().ok_or_else(|| {
        Refusal::new(ErrorCode::NotFound, "this service keeps no audit chain to look in")
    })?;
    Ok(notary.log().as_ref())
}

/// When a decision was made, from its id: `dec_` and a ULID.
fn made_at(id: &DecisionId) -> Option<Timestamp> {
    time_of(&IdempotencyKey::new(id.as_str().strip_prefix("dec_")?).ok()?)
}

fn wants(query: &DecisionsQuery, view: &DecisionView) -> bool {
    let DecisionsQuery { agent, tool, verdict, outcome, policy, run, directive, .. } = query;
    agent.as_ref().is_none_or(|agent| view.principal_chain.actor.id == *agent)
        && tool.as_ref().is_none_or(|tool| {
            let id = &view.capability_id;
            *tool == id.to_string() || *tool == id.tool_name()
        })
        && run.as_ref().is_none_or(|run| view.run_id.as_ref() == Some(run))
        && directive.as_ref().is_none_or(|directive| view.directives.contains(directive))
        && verdict.is_none_or(|verdict| view.verdict == verdict)
        && outcome.is_none_or(|outcome| view.outcome == Some(outcome))
        && policy.as_ref().is_none_or(|policy| {
            let mut named = view.policies.iter().chain(&view.lowered_by);
            named.any(|one| one.policy == *policy)
        })
}

/// The part of an entry that is read.
#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    audit: Vec<Value>,
}

/// Which decisions are wanted, and how many.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    from: Timestamp,
    to: Timestamp,
    limit: usize,
    wants: &'a (dyn Fn(&DecisionView) -> bool + Sync),
}

async fn search(
    sight: &Sight<'_>,
    log: &dyn AuditLog,
    wanted: Wanted<'_>,
) -> Result<DecisionsPage, Refusal> {
    let mut found =
        Found { decisions: Vec::new(), ends: HashMap::new(), left: ENTRIES_MAX, read_to: None };
    for head in log.heads().await.map_err(|error| lookup_refusal(&error))? {
        let read = read(sight, log, &head, wanted, &mut found).await;
        read.map_err(|error| lookup_refusal(&error))?;
    }
    let Found { mut decisions, read_to, .. } = found;
    // If a range has too many entries, what is older than the last one read may be incomplete.
    if let Some(read_to) = read_to {
        decisions.retain(|view| view.at >= read_to);
    }
    decisions.sort_by_key(|view| std::cmp::Reverse((view.at, view.seq)));
    // A page ends between two timestamps, so that the next page begins where it ended.
    let last = wanted.limit.checked_sub(1).and_then(|last| decisions.get(last)).map(|last| last.at);
    let mut next_to = read_to;
    if let Some(last) = last.filter(|_| decisions.len() > wanted.limit) {
        let all = decisions.len();
        decisions.retain(|view| view.at >= last);
        next_to = (decisions.len() < all).then_some(last).or(next_to);
    }
    Ok(DecisionsPage { decisions, next_to, incomplete: read_to.is_some() })
}

/// Reads a log backwards until a page is full or nothing is left to read.
async fn read(
    sight: &Sight<'_>,
    log: &dyn AuditLog,
    head: &TreeHead,
    wanted: Wanted<'_>,
    found: &mut Found,
) -> Result<(), StoreError> {
    let Wanted { from, to, limit, wants } = wanted;
    let (name, size) = (head.log.as_str(), head.size);
    let first = first_at(log, name, size, from).await?;
    let mut until = first_at(log, name, size, to).await?;
    let mut own: Vec<DecisionView> = Vec::new();
    // One more than the page holds, to know whether there are others.
    while until > first && own.len() <= limit {
        if found.left == 0 {
            let at = log
                .entries(name, until, 1)
                .await?
                .first()
                .map_or(to, |entry| Timestamp::from_ms(entry.at_ms));
            found.read_to = found.read_to.max(Some(at));
            break;
        }
        let many = until.saturating_sub(first).min(READ).min(found.left);
        let start = until.saturating_sub(many);
        let entries = log.entries(name, start, usize::try_from(many).unwrap_or(0)).await?;
        found.left = found.left.saturating_sub(many);
        // Backwards: the end of a call is read before its decision.
        for entry in entries.iter().rev().filter(|entry| entry.seq < until) {
            let here = decisions_in(sight, name, entry, &mut found.ends).into_iter();
            own.extend(
                here.filter(|view| wants(view) && sight.sees(&Owner::of(&view.principal_chain))),
            );
        }
        until = start;
    }
    found.decisions.extend(own);
    Ok(())
}

fn decisions_in(
    sight: &Sight<'_>,
    log: &str,
    entry: &LogEntry,
    ends: &mut HashMap<ToolCallId, CallOutcome>,
) -> Vec<DecisionView> {
    let Ok(payload) = serde_json::from_slice::<Payload>(&entry.payload) else {
        return Vec::new();
    };
    let events = payload.audit.into_iter();
    let events = events.filter_map(|event| serde_json::from_value::<AuditEvent>(event).ok());
    let tenant = sight.caller.tenant();
    let own: Vec<AuditEvent> =
        events.filter(|event| event.tenant.as_ref() == Some(tenant)).collect();
    for event in &own {
        let outcome = CallOutcome::of_event(event.kind, event.note.as_deref(), event.code);
        if let (Some(outcome), Some(call)) = (outcome, &event.call_id) {
            // Of several attempts the last one counts, which is read first.
            ends.entry(call.clone()).or_insert(outcome);
        }
    }
    let decided = own.into_iter().filter(|event| decides(event.kind));
    decided
        .filter_map(|event| view_of(log, entry, event))
        .map(|view| DecisionView { outcome: ends.get(&view.call_id).copied(), ..view })
        .collect()
}

/// Whether an event records a decision about a call; the end of a read repeats the decision of its beginning.
const fn decides(kind: AuditKind) -> bool {
    !matches!(kind, AuditKind::Edited | AuditKind::Settled | AuditKind::ReadSettled)
}

/// What was found so far, in all logs.
struct Found {
    decisions: Vec<DecisionView>,
    /// How calls ended.
    ends: HashMap<ToolCallId, CallOutcome>,
    /// How many entries may still be read.
    left: u64,
    /// How far back a log was read that was not read to its end.
    read_to: Option<Timestamp>,
}

/// The decision in an event, if there is one.
fn view_of(log: &str, entry: &LogEntry, event: AuditEvent) -> Option<DecisionView> {
    let decision: Decision = serde_json::from_value(event.decision?).ok()?;
    let (verdict, denial) = match decision.outcome {
        Outcome::Allow => (DecisionVerdict::Allow, None),
        Outcome::Hold => (DecisionVerdict::Hold, None),
        Outcome::Deny(kind) => (DecisionVerdict::Deny, Some(kind.as_str().to_owned())),
    };
    let named = |policies: Vec<Determining>| -> Vec<DecisionPolicy> {
        let named = policies.into_iter().map(|one| DecisionPolicy {
            policy: one.policy,
            permits: one.effect == PolicyEffect::Permit,
            about: one.link.as_str().to_owned(),
            reason: one.reason,
        });
        named.collect()
    };
    Some(DecisionView {
        decision_id: decision.id,
        at: Timestamp::from_ms(entry.at_ms),
        verdict,
        denial,
        outcome: None,
        code: event.code,
        call_id: event.call_id?,
        run_id: event.run_id,
        trace_id: event.trace_id,
        approval_id: event.approval_id,
        directives: event.directives,
        capability_id: decision.capability,
        principal_chain: event.chain?,
        mode_requested: decision.mode_requested,
        mode_effective: decision.mode_effective,
        mode_highest: decision.mode_highest,
        lowered_by: named(decision.lowered_by),
        policies: named(decision.determining),
        errors: decision.errors,
        notes: decision.notes,
        bundle_digest: decision.bundle_digest,
        log: log.to_owned(),
        seq: entry.seq,
        hash: Digest::from_bytes(entry.hash).to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::made_at;

    #[test]
    fn the_id_of_a_decision_says_when_it_was_made() {
        let at =
            |id: &str| made_at(&id.parse().unwrap()).map(placet_types::clock::Timestamp::as_ms);
        assert_eq!(at("dec_01ARZ3NDEKTSV4RRFFQ69G5FAV"), Some(1_469_922_850_259));
        for id in ["dec_1", "dec_01ARZ3NDEKTSV4RRFFQ69G5FA", "01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
            assert_eq!(at(id), None, "{id}");
        }
    }
}
