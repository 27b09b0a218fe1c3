//! The timeline of one call: its steps from plan to effect, from the audit chain.
//!
//! Owns where in the chain is looked. The chain has no index by call: what the ledger keeps of it says when it moved, and the entries
//! around those moments are read, a bounded number of them. Invariants: anyone who may not see the call learns nothing, not even that there
//! is one; a timeline that may lack steps says so.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::ApprovalRecord,
    audit::AuditEvent,
    log::{AuditLog, LogEntry},
    record::EffectRecord,
    refusal::lookup_refusal,
    store::StoreError,
};
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    error::{ErrorCode, Refusal},
    ids::ToolCallId,
};

use crate::{
    reviewer,
    service::Approvals,
    views::{TimelineStep, TimelineView},
};

/// How many entries between the first and the last moment are read without looking for the moments between.
const SPAN_MAX: u64 = 8_192;
/// How many entries are read after each moment, where there are more.
const AFTER_EACH: u64 = 512;
/// How many are read at a time.
const READ: u64 = 256;
/// For how long after a moment its entry may have been written, in milliseconds.
const LATER_MS: i64 = 5_000;
/// The most moments that are looked for where not everything is read: the last ones, and the first.
const MOMENTS_MAX: usize = 64;

/// What is known of a call.
struct Traced {
    record: Option<EffectRecord>,
    approval: Option<ApprovalRecord>,
}

impl Approvals {
    /// The timeline of one call from plan to effect, from the audit chain.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] for calls that the caller may not see.
    pub async fn timeline(
        &self,
        caller: &VerifiedCaller,
        call_id: &ToolCallId,
    ) -> Result<TimelineView, Refusal> {
        let store = self.ledger.store();
        let record = store.effect_of_call(call_id).await.map_err(|error| lookup_refusal(&error))?;
        let approval =
            store.approval_of_call(call_id).await.map_err(|error| lookup_refusal(&error))?;
        let traced = Traced { record, approval };
        if !may_see(self, caller, &traced) {
            return Err(Refusal::new(ErrorCode::NotFound, "there is no such call"));
        }
        let Some(log) = &self.audit else {
            return Err(Refusal::new(
                ErrorCode::NotFound,
                "this self keeps no audit chain to show",
            ));
        };
        let moments = moments_of(&traced, store.now());
        let search = Search { log: log.as_ref(), call_id, traced: &traced };
        let mut timeline =
            search.timeline(&moments).await.map_err(|error| lookup_refusal(&error))?;
        let steps = &mut timeline.steps;
        if !reviewer::is_person(caller) {
            // A note may name a policy, which is nothing for the one who is refused; and what else an approver's token is for is not an agent's to know.
            for step in steps.iter_mut() {
                step.note = None;
                step.audiences.clear();
                step.caller = None;
            }
        }
        steps.sort_by(|one, other| {
            (one.at, &one.log, one.seq).cmp(&(other.at, &other.log, other.seq))
        });
        Ok(timeline)
    }
}

fn may_see(service: &Approvals, caller: &VerifiedCaller, traced: &Traced) -> bool {
    let chain = caller.chain();
    let viewer = reviewer::viewer(service, caller);
    let by_record = traced.record.as_ref().is_some_and(|record| {
        chain.key_scope(&record.scope.capability) == record.scope
            || (viewer.is_auditor && record.scope.tenant == viewer.tenant)
    });
    // An external approver sees what to decide on, not what the asking tenant did around it.
    let by_approval = traced.approval.as_ref().is_some_and(|approval| {
        !reviewer::is_external(caller, approval) && reviewer::may_view(service, caller, approval)
    });
    by_record || by_approval
}

/// When the call moved, as far as its records say.
fn moments_of(traced: &Traced, now: Timestamp) -> Vec<Timestamp> {
    let mut moments = BTreeSet::new();
    let mut is_over = true;
    if let Some(record) = &traced.record {
        moments.extend([record.created_at, record.updated_at]);
        is_over = record.state.is_settled();
        if let Some(attempt) = record.state.attempt() {
            moments.insert(attempt.first_dispatched_at);
        }
        // Of an earlier arm, before operators had it sent again.
        moments.extend(record.unknown.as_ref().map(|unknown| unknown.attempt.first_dispatched_at));
    }
    if let Some(approval) = &traced.approval {
        moments.insert(approval.created_at);
        moments.extend(approval.votes.iter().map(|vote| vote.at));
        moments.extend(approval.edits.iter().map(|edit| edit.at));
        let made = usize::try_from(approval.escalated).unwrap_or(0);
        let escalations = approval.requirement.escalations.iter().take(made);
        // Each was made so long after people were asked, or asked again.
        let asked_at = std::iter::once(approval.created_at)
            .chain(approval.edits.iter().map(|edit| edit.at))
            .chain(approval.reopened_at);
        moments.extend(approval.reopened_at);
        moments.extend(escalations.flat_map(|escalation| {
            let after_ms = i64::try_from(escalation.after_ms).unwrap_or(i64::MAX);
            asked_at.clone().map(move |at| at.plus_ms(after_ms)).filter(|at| *at <= now)
        }));
        if let placet_ledger::approval::ApprovalState::Consumed { at, .. } = &approval.state {
            moments.insert(*at);
        }
        if approval.expires_at <= now {
            moments.insert(approval.expires_at);
        }
    }
    if !is_over {
        moments.insert(now);
    }
    moments.into_iter().collect()
}

struct Search<'a> {
    log: &'a dyn AuditLog,
    call_id: &'a ToolCallId,
    traced: &'a Traced,
}

/// What is read of an entry: the events in it.
#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    audit: Vec<Value>,
}

impl Search<'_> {
    async fn timeline(&self, moments: &[Timestamp]) -> Result<TimelineView, StoreError> {
        let mut timeline = TimelineView { steps: Vec::new(), incomplete: false };
        let (Some(first), Some(last)) = (moments.first(), moments.last()) else {
            return Ok(timeline);
        };
        for head in self.log.heads().await? {
            let (name, size) = (head.log.as_str(), head.size);
            let from = first_at(self.log, name, size, *first).await?;
            let until = first_at(self.log, name, size, last.plus_ms(LATER_MS)).await?;
            let until = until.saturating_add(1).min(head.size.saturating_add(1));
            if until.saturating_sub(from) <= SPAN_MAX {
                self.read(name, from, until, &mut timeline).await?;
                continue;
            }
            // Whatever has no moment of its own, such as somebody's vain attempt to decide, is found by chance only.
            timeline.incomplete = true;
            let left_out = moments.len().saturating_sub(MOMENTS_MAX);
            let mut read_to = from;
            for moment in std::iter::once(first).chain(moments.iter().skip(left_out.max(1))) {
                let at = first_at(self.log, name, size, *moment).await?.max(read_to);
                read_to = at.saturating_add(AFTER_EACH).min(head.size.saturating_add(1));
                self.read(name, at, read_to, &mut timeline).await?;
            }
        }
        Ok(timeline)
    }

    async fn read(
        &self,
        log: &str,
        from: u64,
        until: u64,
        timeline: &mut TimelineView,
    ) -> Result<(), StoreError> {
        let mut next = from;
        while next < until {
            let many = until.saturating_sub(next).min(READ);
            let entries =
                self.log.entries(log, next, usize::try_from(many).unwrap_or(usize::MAX)).await?;
            // A part that was taken away has no entries.
            timeline.incomplete |= entries.first().is_none_or(|first| first.seq > next);
            let Some(last) = entries.last() else { return Ok(()) };
            next = last.seq.saturating_add(1);
            for entry in &entries {
                self.steps_in(log, entry, &mut timeline.steps);
            }
        }
        Ok(())
    }

    fn steps_in(&self, log: &str, entry: &LogEntry, steps: &mut Vec<TimelineStep>) {
        // An entry without events, or of a later form, is no step.
        let Ok(payload) = serde_json::from_slice::<Payload>(&entry.payload) else { return };
        let events = payload.audit.into_iter();
        let events = events.filter_map(|event| serde_json::from_value::<AuditEvent>(event).ok());
        steps.extend(events.filter(|event| self.is_of(event)).map(|event| step(log, entry, event)));
    }

    fn is_of(&self, event: &AuditEvent) -> bool {
        if let Some(call_id) = &event.call_id {
            return call_id == self.call_id;
        }
        let approval = self.traced.approval.as_ref();
        event.approval_id.is_some()
            && event.approval_id.as_ref() == approval.map(|approval| &approval.approval_id)
    }
}

/// The first entry of a log, of so many, that was written at that moment or later: entries are in the order of time.
///
/// # Errors
/// [`StoreError`] when the log cannot be read.
pub async fn first_at(
    log: &dyn AuditLog,
    name: &str,
    size: u64,
    at: Timestamp,
) -> Result<u64, StoreError> {
    let (mut low, mut high) = (1_u64, size.saturating_add(1));
    while low < high {
        let middle = low.midpoint(high);
        let entry = log.entries(name, middle, 1).await?.into_iter().next();
        if entry.is_none_or(|entry| entry.at_ms >= at.as_ms()) {
            high = middle;
        } else {
            low = middle.saturating_add(1);
        }
    }
    Ok(low)
}

fn step(log: &str, entry: &LogEntry, event: AuditEvent) -> TimelineStep {
    let kind = serde_json::to_value(event.kind).ok();
    let by = event.chain.as_ref().map(|chain| match &chain.on_behalf_of {
        Some(user) => format!("{} for {}", chain.actor.id, user.id),
        None => chain.actor.id.to_string(),
    });
    let mut digests: BTreeMap<String, Digest> = event.digests;
    digests.retain(|_, digest| *digest != Digest::of(b""));
    TimelineStep {
        log: log.to_owned(),
        seq: entry.seq,
        at: Timestamp::from_ms(entry.at_ms),
        kind: kind.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned(),
        by,
        code: event.code,
        note: event.note,
        audiences: event.audiences,
        caller: event.caller,
        taint: event.taint,
        digests,
        hash: Digest::from_bytes(entry.hash).to_string(),
    }
}

#[cfg(test)]
mod tests;
