//! From an entry of the chain to notices.
//!
//! Owns which entry gives which notice. Does not decide who gets it. Invariant: what an entry means does not depend on when it is read.

use std::collections::BTreeSet;

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::{AuditEvent, AuditKind, TRIED},
    directive::{Directive, DirectiveState},
    log::LogEntry,
};
use placet_types::{
    approval::ApproverGroup,
    clock::Timestamp,
    digest::DigestBuilder,
    directive::DirectiveBody,
    error::ErrorCode,
    ids::{CapabilityId, TenantId, ToolCallId},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::notice::{
    About, Asked, CallEnd, CallFacts, CredentialFacts, DirectiveFacts, Notice, NoticeKind,
};

/// The content of an entry.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The notices; the ends of calls are in `ends`.
    pub(crate) notices: Vec<Notice>,
    /// Calls that ended; only the store knows whether they were held.
    pub(crate) ends: Vec<Ended>,
    /// Events about approved calls that wait for their callers to return with another token.
    pub(crate) lacking: Vec<AuditEvent>,
    /// Approvals in their new state.
    pub(crate) approvals: Vec<ApprovalRecord>,
}

/// A call that ended with an outcome.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) call_id: ToolCallId,
    pub(crate) rev: u64,
    pub(crate) end: CallEnd,
}

/// The parts of an entry that are read.
#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    effects: Vec<Value>,
    #[serde(default)]
    approvals: Vec<Value>,
    #[serde(default)]
    directives: Vec<Value>,
    #[serde(default)]
    audit: Vec<Value>,
}

/// Texts without which a payload holds nothing of interest: most entries of a busy ledger have none of them, and parsing is expensive.
const WORDS: [&str; 6] = [
    "\"approvals\":",
    "\"directives\":",
    "\"settled\"",
    "\"resolved\"",
    "\"security\"",
    "\"awaits_credential\"",
];

/// Reads an entry. An entry in a later format gives nothing.
pub(crate) fn read(entry: &LogEntry) -> Found {
    let mut found = Found::default();
    let Ok(text) = std::str::from_utf8(&entry.payload) else { return found };
    if !WORDS.iter().any(|word| text.contains(word)) {
        return found;
    }
    let Ok(payload) = serde_json::from_str::<Payload>(text) else { return found };
    let at = Timestamp::from_ms(entry.at_ms);
    let events: Vec<AuditEvent> = each(payload.audit).collect();
    found.approvals = each(payload.approvals).collect();
    for approval in &found.approvals {
        let mut kinds =
            events.iter().filter(|event| event.approval_id.as_ref() == Some(&approval.approval_id));
        if let Some(kind) = kinds.find_map(|event| kind_of(event.kind, &approval.state)) {
            found.notices.push(of_approval(approval, kind, at));
        }
    }
    let mut acts = events.iter().filter(|event| event.kind == AuditKind::Directive);
    if let Some(act) = acts.next() {
        for entry in each::<Directive>(payload.directives) {
            // A further vote on an entry that is still proposed changes nothing.
            if entry.rev == 1 || entry.state != DirectiveState::Proposed {
                found.notices.push(of_directive(&entry, act, at));
            }
        }
    }
    found.notices.extend(events.iter().filter_map(|event| of_credential(event, at)));
    found.ends = payload.effects.iter().filter_map(|effect| end_of(effect, &events)).collect();
    found.lacking = events;
    found.lacking.retain(|event| event.kind == AuditKind::AwaitsCredential);
    found
}

fn each<T: DeserializeOwned>(values: Vec<Value>) -> impl Iterator<Item = T> {
    values.into_iter().filter_map(|value| serde_json::from_value(value).ok())
}

/// The notice for an event, given the approval's state after it.
fn kind_of(event: AuditKind, state: &ApprovalState) -> Option<NoticeKind> {
    let kinds = [
        (AuditKind::Held, NoticeKind::Held),
        (AuditKind::Voted, NoticeKind::Voted),
        (AuditKind::Edited, NoticeKind::Edited),
        (AuditKind::Escalated, NoticeKind::Escalated),
        (AuditKind::ApprovalEnded, NoticeKind::Void),
    ];
    let waiting = kinds.into_iter().find_map(|(kind, notice)| (kind == event).then_some(notice))?;
    match state {
        ApprovalState::Pending => Some(waiting),
        ApprovalState::Approved => Some(NoticeKind::Approved),
        ApprovalState::Denied => Some(NoticeKind::Denied),
        ApprovalState::Expired => Some(NoticeKind::Expired),
        ApprovalState::Withdrawn { .. } => Some(NoticeKind::Withdrawn),
        ApprovalState::Void { .. } => Some(NoticeKind::Void),
        ApprovalState::Consumed { .. } => None,
    }
}

/// A notice of an approval in its current state.
pub(crate) fn of_approval(approval: &ApprovalRecord, kind: NoticeKind, at: Timestamp) -> Notice {
    let tenant = approval.chain.tenant();
    Notice {
        of: format!("{}:{}:{kind}", approval.approval_id, approval.rev),
        kind,
        tenant: tenant.clone(),
        at,
        asked: groups(approval.asked(), tenant),
        callback: approval.callback.clone().filter(|_| kind.is_for_callers()),
        about: About::Call(Box::new(CallFacts {
            call_id: approval.call_id.clone(),
            approval_id: approval.approval_id.clone(),
            operation: approval.capability.clone(),
            mode: approval.mode,
            chain: approval.chain.clone(),
            state: approval.state.name().to_owned(),
            quorum: approval.requirement.quorum,
            reasons: approval.requirement.reasons.clone(),
            decisions: approval
                .counted_votes()
                .map(|vote| {
                    let by = vote.voices().next().map(|voice| voice.to_string());
                    (by.unwrap_or_default(), vote.choice)
                })
                .collect(),
            expires_at: approval.expires_at,
            proposal: approval.proposal,
            code: kind.code(),
            end: None,
        })),
    }
}

/// A notice of the end of a held call.
pub(crate) fn of_end(approval: &ApprovalRecord, ended: &Ended, at: Timestamp) -> Notice {
    let mut notice = of_approval(approval, NoticeKind::Finished, at);
    notice.of = format!("{}:{}:finished", ended.call_id, ended.rev);
    if let About::Call(call) = &mut notice.about {
        let state = match ended.end.outcome.as_str() {
            "succeeded" => "succeeded",
            "indeterminate" => "unknown",
            _ => "failed",
        };
        state.clone_into(&mut call.state);
        call.end = Some(ended.end.clone());
    }
    notice
}

/// A notice that an approved call waits for its caller; `None` if it no longer does.
pub(crate) fn of_lacking(
    approval: &ApprovalRecord,
    event: &AuditEvent,
    at: Timestamp,
) -> Option<Notice> {
    if approval.state != ApprovalState::Approved {
        return None;
    }
    let mut notice = of_approval(approval, NoticeKind::AwaitsCredential, at);
    // Several nodes may note it, and one node again after a start. A different unsuitable token is a new notice.
    let tried = event.digests.get(TRIED).map(ToString::to_string).unwrap_or_default();
    let hour = at.as_ms().div_euclid(FAULT_MS);
    notice.of = format!("{}:awaits_credential:{tried}:{hour}", approval.approval_id);
    if let About::Call(call) = &mut notice.about {
        call.code = event.code;
    }
    Some(notice)
}

/// A notice of an entry as `act` left it.
fn of_directive(entry: &Directive, act: &AuditEvent, at: Timestamp) -> Notice {
    let by = act.chain.as_ref().map_or(&entry.by, |chain| &chain.actor.id);
    let kind = NoticeKind::from(entry.kind());
    let is_ahead = matches!(entry.state, DirectiveState::Active) && at < entry.starts_at;
    let state = if is_ahead { "scheduled" } else { entry.state.name() };
    Notice {
        of: format!("{}:{}:{kind}", entry.directive_id, entry.rev),
        kind,
        tenant: entry.tenant.clone(),
        at,
        asked: groups(entry.requirement.groups.keys(), &entry.tenant),
        callback: None,
        about: About::Directive(Box::new(DirectiveFacts {
            directive_id: entry.directive_id.clone(),
            state: state.to_owned(),
            by: by.to_string(),
            lockdown: matches!(&entry.body, DirectiveBody::Freeze(freeze) if freeze.lockdown),
            operation: operation(&entry.body),
            starts_at: entry.starts_at,
            expires_at: entry.expires_at,
            terms: entry.terms(),
        })),
    }
}

/// How long the same trouble is one message, or the same wait for a caller, whichever node noted it, in milliseconds.
pub(crate) const FAULT_MS: i64 = 3_600_000;

/// A notice of a credential that an operator has to fix. For an approved call, the notice is about the call instead.
fn of_credential(event: &AuditEvent, at: Timestamp) -> Option<Notice> {
    let is_fault = event.kind == AuditKind::Security
        && event.code.is_some_and(ErrorCode::lacks_credential)
        && event.call_id.is_none();
    let used = event.credential.as_deref().filter(|_| is_fault)?;
    let (tenant, problem) = (event.tenant.clone()?, event.note.clone()?);
    let digest = DigestBuilder::new("placet.fault.v1")
        .field("tenant", tenant.as_str())
        .field("source", &used.source)
        .field("problem", &problem)
        .finish();
    let fault = format!("fault:{digest}");
    Some(Notice {
        // Several nodes may note the same trouble.
        of: format!("{fault}:{}", at.as_ms().div_euclid(FAULT_MS)),
        kind: NoticeKind::CredentialRefused,
        tenant,
        at,
        asked: BTreeSet::new(),
        callback: None,
        about: About::Credential(Box::new(CredentialFacts {
            fault,
            source: used.source.clone(),
            of: used.kind,
            operation: event.capability.clone(),
            problem,
        })),
    })
}

/// Groups with their tenants.
fn groups<'a>(
    groups: impl IntoIterator<Item = &'a ApproverGroup>,
    tenant: &TenantId,
) -> BTreeSet<Asked> {
    let of = |group: &ApproverGroup| group.external_tenant().unwrap_or(tenant).clone();
    groups.into_iter().map(|group| (of(group), group.group().clone())).collect()
}

fn operation(body: &DirectiveBody) -> Option<CapabilityId> {
    match body {
        DirectiveBody::Grant(grant) => Some(grant.capability.clone()),
        DirectiveBody::BreakGlass(glass) => glass.capability.clone(),
        DirectiveBody::Freeze(_) | DirectiveBody::Delegation(_) | DirectiveBody::Revocation(_) => {
            None
        }
    }
}

/// The final states of a record.
const ENDS: [&str; 4] = ["succeeded", "failed_final", "failed_retriable", "indeterminate"];

fn end_of(effect: &Value, events: &[AuditEvent]) -> Option<Ended> {
    let record = effect.get("put")?;
    let outcome = record.pointer("/state/state")?.as_str().filter(|name| ENDS.contains(name))?;
    let call_id: ToolCallId = record.get("call_id")?.as_str()?.parse().ok()?;
    let settles = |event: &&AuditEvent| {
        event.call_id.as_ref() == Some(&call_id)
            && matches!(event.kind, AuditKind::Settled | AuditKind::Resolved)
    };
    let event = events.iter().find(settles)?;
    let end = CallEnd {
        outcome: outcome.to_owned(),
        code: event.code,
        result: event.digests.get("result").copied(),
    };
    let rev = record.get("rev")?.as_u64()?;
    Some(Ended { call_id, rev, end })
}
