//! Slips: what the index says of a record beside the entry that holds it, and the keys under which that is found.
//!
//! Owns the form of a slip, and which keys of the index a move of a record writes and takes away. Not here: the records
//! themselves, the tree. Invariant: the keys of a record follow from its slip alone, so that the index is made from the journal, and
//! taken apart again, without reading other records.

use std::collections::BTreeSet;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::Directive;
use placet_ledger::record::EffectRecord;
use placet_types::clock::Timestamp;
use placet_types::ids::{ApprovalId, CapabilityId, RecordId, TenantId, ToolCallId};

use super::codec::encode_value;
use super::keys;
use crate::rules::Op;

/// The form of the slip of an effect record.
const VERSION: u8 = 1;
/// The form of the slip of an approval.
const APPROVAL_VERSION: u8 = 2;
/// The same of an approval that asks other tenants.
const EXTERNAL_TENANTS_VERSION: u8 = 3;

/// What the index says of an effect record or an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slip {
    /// The code of its state.
    pub(super) code: u8,
    /// Its revision.
    pub(super) rev: u64,
    /// When the effect record last moved; when the approval was made.
    pub(super) at: Timestamp,
    pub(super) tenant: TenantId,
    pub(super) call_id: ToolCallId,
    /// The operation: of an approval.
    pub(super) capability: Option<CapabilityId>,
    /// The other tenants that are asked: of an approval.
    pub(super) external_tenants: BTreeSet<TenantId>,
}

impl Slip {
    pub(super) fn of_effect(record: &EffectRecord) -> Self {
        Self {
            code: keys::effect_code(&record.state),
            rev: record.rev,
            at: record.updated_at,
            tenant: record.scope.tenant.clone(),
            call_id: record.call_id.clone(),
            capability: None,
            external_tenants: BTreeSet::new(),
        }
    }

    pub(super) fn of_approval(approval: &ApprovalRecord) -> Self {
        Self {
            code: keys::approval_code(&approval.state),
            rev: approval.rev,
            at: approval.created_at,
            tenant: approval.chain.tenant().clone(),
            call_id: approval.call_id.clone(),
            capability: Some(approval.capability.clone()),
            external_tenants: approval.external_tenants.clone(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let version = match (&self.capability, self.external_tenants.is_empty()) {
            (None, _) => VERSION,
            (Some(_), true) => APPROVAL_VERSION,
            (Some(_), false) => EXTERNAL_TENANTS_VERSION,
        };
        let mut out = vec![version, self.code];
        out.extend_from_slice(&self.rev.to_le_bytes());
        out.extend_from_slice(&keys::ordered(self.at));
        put_short(self.tenant.as_str().as_bytes(), &mut out);
        let call_id = self.call_id.as_str().as_bytes();
        if let Some(capability) = &self.capability {
            put_short(call_id, &mut out);
            for external in &self.external_tenants {
                put_short(external.as_str().as_bytes(), &mut out);
            }
            if !self.external_tenants.is_empty() {
                // No name is empty.
                out.push(0);
            }
            out.extend_from_slice(capability.to_string().as_bytes());
        } else {
            out.extend_from_slice(call_id);
        }
        out
    }

    /// Reads a slip; `None`: these bytes are none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let ([version, code], rest) = bytes.split_first_chunk::<2>()?;
        let (rev, rest) = rest.split_first_chunk::<8>()?;
        let (at, rest) = rest.split_first_chunk::<8>()?;
        let (tenant, rest) = take_short(rest)?;
        let mut external_tenants = BTreeSet::new();
        let (call_id, capability) = match *version {
            VERSION => (rest, None),
            APPROVAL_VERSION | EXTERNAL_TENANTS_VERSION => {
                let (call_id, mut rest) = take_short(rest)?;
                if *version == EXTERNAL_TENANTS_VERSION {
                    (external_tenants, rest) = take_external_tenants(rest)?;
                }
                (call_id, Some(std::str::from_utf8(rest).ok()?.parse().ok()?))
            }
            _ => return None,
        };
        Some(Self {
            code: *code,
            rev: u64::from_le_bytes(*rev),
            at: keys::from_ordered(*at),
            tenant: TenantId::new(std::str::from_utf8(tenant).ok()?).ok()?,
            call_id: ToolCallId::new(std::str::from_utf8(call_id).ok()?).ok()?,
            capability,
            external_tenants,
        })
    }
}

/// The tenants up to an empty name, and what comes after.
fn take_external_tenants(bytes: &[u8]) -> Option<(BTreeSet<TenantId>, &[u8])> {
    let (mut external_tenants, mut rest) = (BTreeSet::new(), bytes);
    loop {
        let (external, after) = take_short(rest)?;
        rest = after;
        if external.is_empty() {
            return Some((external_tenants, rest));
        }
        external_tenants.insert(TenantId::new(std::str::from_utf8(external).ok()?).ok()?);
    }
}

/// A short text with its length before it.
fn put_short(text: &[u8], out: &mut Vec<u8>) {
    out.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(text);
}

/// The text with its length before it, and what comes after.
fn take_short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

/// A key and what it is to hold; nothing: the key is gone.
pub(super) type Edit = (Vec<u8>, Vec<u8>);

/// What the value of a key that has nothing to say but that it is there is.
const HERE: &[u8] = &[1];

/// The edits of a change of anything but a run, in order: where one key comes twice, the later one counts.
pub(super) fn edits_of(op: &Op, seq: u64, out: &mut Vec<Edit>) {
    match op {
        Op::Effect { before, after } => {
            let before = before.as_deref().map(Slip::of_effect);
            effect(&after.record_id, (before.as_ref(), Some(&Slip::of_effect(after))), seq, out);
        }
        Op::Removed(before) => {
            effect(&before.record_id, (Some(&Slip::of_effect(before)), None), seq, out);
        }
        Op::Approval { before, after } => {
            let before = before.as_deref().map(Slip::of_approval);
            approval(&after.approval_id, (before.as_ref(), &Slip::of_approval(after)), seq, out);
        }
        Op::Directive { before, after, body } => {
            directives((before.as_deref(), after), seq, body, out)
        }
        Op::ApprovalGone(before) => {
            approval_gone(&before.approval_id, &Slip::of_approval(before), out);
        }
        Op::DirectiveGone(before) => dir_gone(before, out),
        // The index makes those of a whole batch at once.
        Op::Run(_) => {}
    }
}

/// A record that stands in the index itself.
pub(super) fn run_edit(key: Vec<u8>, seq: u64, body: &[u8]) -> Edit {
    let value = encode_value(&key, seq, body);
    (key, value)
}

/// The edits of an effect record's move, its beginning or its end.
pub(super) fn effect(
    record_id: &RecordId,
    (before, after): (Option<&Slip>, Option<&Slip>),
    seq: u64,
    out: &mut Vec<Edit>,
) {
    if let Some(before) = before {
        out.push((keys::effect_state_at(before.code, Some(record_id)), Vec::new()));
        if keys::is_settled_code(before.code) {
            out.push((keys::settled_at(before.code, Some((before.at, record_id))), Vec::new()));
        }
        if after.is_none_or(|after| after.call_id != before.call_id) {
            out.push((keys::call(&before.call_id), Vec::new()));
        }
    }
    let key = keys::effect(record_id);
    let Some(after) = after else {
        out.push((key, Vec::new()));
        return;
    };
    let tenant = after.tenant.as_str().as_bytes();
    out.push((keys::effect_state_at(after.code, Some(record_id)), tenant.to_vec()));
    if keys::is_settled_code(after.code) {
        out.push((keys::settled_at(after.code, Some((after.at, record_id))), tenant.to_vec()));
    }
    if before.is_none_or(|before| before.call_id != after.call_id) {
        out.push((keys::call(&after.call_id), record_id.digest().as_bytes().to_vec()));
    }
    let value = encode_value(&key, seq, &after.encode());
    out.push((key, value));
}

/// The edits of an approval's move, or its beginning.
pub(super) fn approval(
    approval_id: &ApprovalId,
    (before, after): (Option<&Slip>, &Slip),
    seq: u64,
    out: &mut Vec<Edit>,
) {
    if let Some(before) = before.filter(|before| before.code != after.code || before.at != after.at)
    {
        not_listed(approval_id, before, out);
    }
    let (tenant, place) = (after.tenant.as_str().as_bytes(), Some((after.at, approval_id)));
    out.push((keys::approval_list(None, after.code, place), tenant.to_vec()));
    out.push((keys::approval_list(Some(&after.tenant), after.code, place), tenant.to_vec()));
    if let Some(capability) = &after.capability {
        let list = keys::capability_list(&after.tenant, capability, after.code, place);
        out.push((list, HERE.to_vec()));
    }
    for external in &after.external_tenants {
        out.push((keys::external_list(external, after.code, place), HERE.to_vec()));
    }
    if before.is_none() {
        out.push((keys::call_approval(&after.call_id, place), HERE.to_vec()));
    }
    let key = keys::approval(approval_id);
    let value = encode_value(&key, seq, &after.encode());
    out.push((key, value));
}

/// Takes an approval out of the lists of its state.
fn not_listed(approval_id: &ApprovalId, before: &Slip, out: &mut Vec<Edit>) {
    let place = Some((before.at, approval_id));
    out.push((keys::approval_list(None, before.code, place), Vec::new()));
    out.push((keys::approval_list(Some(&before.tenant), before.code, place), Vec::new()));
    if let Some(capability) = &before.capability {
        let list = keys::capability_list(&before.tenant, capability, before.code, place);
        out.push((list, Vec::new()));
    }
    for external in &before.external_tenants {
        out.push((keys::external_list(external, before.code, place), Vec::new()));
    }
}

/// The edits of an approval's end.
pub(super) fn approval_gone(approval_id: &ApprovalId, before: &Slip, out: &mut Vec<Edit>) {
    not_listed(approval_id, before, out);
    let place = Some((before.at, approval_id));
    out.push((keys::call_approval(&before.call_id, place), Vec::new()));
    out.push((keys::approval(approval_id), Vec::new()));
}

/// The edits of the end of an entry of the approval service.
pub(super) fn dir_gone(before: &Directive, out: &mut Vec<Edit>) {
    let (kind, id, tenant) = (before.kind(), &before.directive_id, Some(&before.tenant));
    if let Some(until) = before.open_until() {
        out.push((keys::directive_open(None, kind, Some((until, id))), Vec::new()));
        out.push((keys::directive_open(tenant, kind, Some((until, id))), Vec::new()));
    }
    out.push((keys::directive_by_age(None, kind, Some(before.place())), Vec::new()));
    out.push((keys::directive_by_age(tenant, kind, Some(before.place())), Vec::new()));
    out.push((keys::directives(id), Vec::new()));
}

/// The edits of a move of an entry of the approval service, or its beginning. It stands in the index itself.
pub(super) fn directives(
    (before, after): (Option<&Directive>, &Directive),
    seq: u64,
    body: &[u8],
    out: &mut Vec<Edit>,
) {
    let (kind, id, tenant) = (after.kind(), &after.directive_id, after.tenant.as_str().as_bytes());
    let until = after.open_until();
    if let Some(gone) = before.and_then(Directive::open_until).filter(|gone| Some(*gone) != until) {
        out.push((keys::directive_open(None, kind, Some((gone, id))), Vec::new()));
        out.push((keys::directive_open(Some(&after.tenant), kind, Some((gone, id))), Vec::new()));
    }
    if let Some(until) = until {
        out.push((keys::directive_open(None, kind, Some((until, id))), tenant.to_vec()));
        out.push((
            keys::directive_open(Some(&after.tenant), kind, Some((until, id))),
            HERE.to_vec(),
        ));
    }
    if before.is_none() {
        let place = Some(after.place());
        out.push((keys::directive_by_age(None, kind, place), tenant.to_vec()));
        out.push((keys::directive_by_age(Some(&after.tenant), kind, place), HERE.to_vec()));
    }
    out.push(run_edit(keys::directives(id), seq, body));
}
