//! The timeline of one call: its steps from plan to effect, from the audit chain.
//!
//! Owns which parts of the chain are shown, and to whom. Not here: which entries are about a call, which the log knows. Invariants: a
//! caller who may not see the call learns nothing, not even that it exists; a timeline that lacks steps says so.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::ApprovalRecord,
    audit::{AuditEvent, AuditKind, Subject},
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
        let unread = |error: StoreError| lookup_refusal(&error);
        let record = store.effect_of_call(call_id).await.map_err(unread)?;
        let approval = store.approval_of_call(call_id).await.map_err(unread)?;
        let no_such = |what| Refusal::new(ErrorCode::NotFound, what);
        if !may_see(self, caller, record.as_ref(), approval.as_ref()) {
            return Err(no_such("there is no such call"));
        }
        let log = self.audit.as_ref();
        let log = log.ok_or_else(|| no_such("this server keeps no audit chain to show"))?;
        let mut subjects = vec![Subject::Call(call_id.clone())];
        subjects.extend(approval.map(|approval| Subject::Approval(approval.approval_id)));
        let (mut steps, incomplete) = steps_about(log.as_ref(), &subjects).await.map_err(unread)?;
        if !reviewer::is_person(caller) {
            // A note may name a policy, which is hidden from the refused caller; and the other audiences of an approver's token are hidden
            // from agents.
            for step in &mut steps {
                step.note = None;
                step.audiences.clear();
                step.caller = None;
                step.directives.clear();
            }
        }
        steps.sort_by(|one, other| {
            (one.at, &one.log, one.seq).cmp(&(other.at, &other.log, other.seq))
        });
        Ok(TimelineView { call_id: call_id.clone(), steps, incomplete })
    }
}

fn may_see(
    service: &Approvals,
    caller: &VerifiedCaller,
    record: Option<&EffectRecord>,
    approval: Option<&ApprovalRecord>,
) -> bool {
    let chain = caller.chain();
    let viewer = reviewer::viewer(service, caller);
    let by_record = record.is_some_and(|record| {
        chain.key_scope(&record.scope.capability) == record.scope
            || (viewer.is_auditor && record.scope.tenant == viewer.tenant)
    });
    // An external approver sees what to decide on, not what the asking tenant did about it.
    let by_approval = approval.is_some_and(|approval| {
        !reviewer::is_external(caller, approval) && reviewer::may_view(service, caller, approval)
    });
    by_record || by_approval
}

/// The part of an entry that is read: its events.
#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    audit: Vec<Value>,
}

/// The log's steps about these subjects, and whether some are missing.
async fn steps_about(
    log: &dyn AuditLog,
    subjects: &[Subject],
) -> Result<(Vec<TimelineStep>, bool), StoreError> {
    let (mut steps, mut incomplete) = (Vec::new(), false);
    let mut places = BTreeSet::new();
    for subject in subjects {
        places.extend(log.entries_about(subject).await?);
    }
    for (name, seq) in places {
        let found = log.entries(&name, seq, 1).await;
        let entry = found.ok().and_then(|found| found.into_iter().find(|entry| entry.seq == seq));
        // A part of the log that was removed has no entries.
        let Some(entry) = entry else {
            incomplete = true;
            continue;
        };
        // An entry of a later version is not a step.
        let Ok(payload) = serde_json::from_slice::<Payload>(&entry.payload) else { continue };
        let events = payload.audit.into_iter();
        let events = events.filter_map(|event| serde_json::from_value::<AuditEvent>(event).ok());
        let events =
            events.filter(|event| event.subject().is_some_and(|it| subjects.contains(&it)));
        steps.extend(events.map(|event| step(&name, &entry, event)));
    }
    Ok((steps, incomplete))
}

/// The first of a log's `size` entries that was written at that time or later: entries are in the order of time.
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

/// Whether an event happened by itself, as time passed or policies changed: its chain is then that of the call.
fn is_of_no_person(event: &AuditEvent) -> bool {
    let has_run_out =
        matches!(event.code, Some(ErrorCode::ApprovalExpired | ErrorCode::ApprovalVoid));
    event.kind == AuditKind::Escalated
        || (event.kind == AuditKind::ApprovalEnded && has_run_out)
        // There is a note only where people are asked again.
        || (event.kind == AuditKind::Held && event.note.is_some())
}

fn step(log: &str, entry: &LogEntry, event: AuditEvent) -> TimelineStep {
    let kind = serde_json::to_value(event.kind).ok();
    let by = event.chain.as_ref().filter(|_| !is_of_no_person(&event)).map(|chain| {
        match &chain.on_behalf_of {
            Some(user) => format!("{} for {}", chain.actor.id, user.id),
            None => chain.actor.id.to_string(),
        }
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
        directives: event.directives,
        digests,
        hash: Digest::from_bytes(entry.hash).to_string(),
    }
}
