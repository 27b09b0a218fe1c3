//! The keys of the state.
//!
//! Owns the key layout. Not here: the values (`codec`), the tree (`tree`), which keys an entry changes (`edits`).
//! Invariants: keys of one kind begin with one letter; what is listed by age is ordered by age.
//!
//! ```text
//! m                                          how far the state goes
//! e record                                   an effect record
//! c call                                     the record that a call made
//! s state 00 moved record                    the tenant; effect records by state, the one that moved last at the end
//! a approval                                 an approval
//! q call 00 created approval                 the approvals of a call, oldest first
//! l state 00 created approval                approvals by state, oldest first
//! t tenant 00 state 00 created approval      the same within a tenant
//! p tenant 00 capability 00 state 00 created approval   approvals of an operation within a tenant
//! h tenant 00 state 00 created approval      approvals of other tenants that ask this one
//! g directive                                a directive of the approval service
//! i kind created directive                   directives by kind, oldest first
//! j tenant 00 kind created directive         the same within a tenant
//! o kind until directive                     directives that are open until a time
//! u tenant 00 kind until directive           the same within a tenant
//! r SHA-256(run key)                         a run
//! x tenant 00 SHA-256(content)               where a content is: segment, offset, length
//! z segment offset length                    a content that is to be erased
//! n level tile                               up to 256 hashes of the Merkle tree
//! v subject 00 entry                         an entry with events about a call, or an approval
//! w                                          how far the log was read for messages to people
//! y channel 00 of                            a message that waits
//! ```

use std::str::FromStr;

use placet_ledger::audit::Subject;
use placet_ledger::outbox::MessageKey;
use placet_ledger::proof::tiles::TileId;
use placet_ledger::record::EffectState;
use placet_ledger::run::RunKey;
use placet_types::clock::Timestamp;
use placet_types::digest::{Digest, DigestBuilder};
use placet_types::directive::DirectiveKind;
use placet_types::ids::{
    ApprovalId, CapabilityId, DirectiveId, RecordId, RecordPlace, TenantId, ToolCallId,
};

pub(super) const META: &[u8] = b"m";
pub(super) const EFFECT: u8 = b'e';
pub(super) const CALL: u8 = b'c';
pub(super) const EFFECT_STATE: u8 = b's';
pub(super) const APPROVAL: u8 = b'a';
pub(super) const CALL_APPROVAL: u8 = b'q';
pub(super) const APPROVAL_STATE: u8 = b'l';
pub(super) const APPROVAL_TENANT: u8 = b't';
pub(super) const APPROVAL_CAPABILITY: u8 = b'p';
pub(super) const APPROVAL_EXTERNAL: u8 = b'h';
pub(super) const DIRECTIVE: u8 = b'g';
const DIRECTIVE_AGE: [u8; 2] = *b"ij";
const DIRECTIVE_OPEN: [u8; 2] = *b"ou";
pub(super) const RUN: u8 = b'r';
pub(super) const CONTENT: u8 = b'x';
pub(super) const TO_ERASE: u8 = b'z';
pub(super) const TILE: u8 = b'n';
pub(super) const SUBJECT: u8 = b'v';
const READ_TO: u8 = b'w';
const MESSAGE: u8 = b'y';

/// States that recovery looks at ([`EffectState::is_open`]).
pub(super) const OPEN_STATES: [&str; 5] =
    ["claimed", "pending_approval", "approved", "dispatched", "rearmed"];

/// The names of all states of an effect.
pub(super) fn effect_states() -> Vec<&'static str> {
    EffectState::NAMES.into_iter().chain(["claimed"]).collect()
}

fn key(prefix: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = vec![prefix];
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

pub(super) fn effect(record_id: &RecordId) -> Vec<u8> {
    key(EFFECT, &[record_id.digest().as_bytes()])
}

pub(super) fn call(call_id: &ToolCallId) -> Vec<u8> {
    key(CALL, &[call_id.as_str().as_bytes()])
}

/// The list of the effects in a state.
pub(super) fn effect_list(state: &str) -> Vec<u8> {
    key(EFFECT_STATE, &[state.as_bytes(), &[0]])
}

/// A place in such a list.
pub(super) fn effect_place(at: &RecordPlace) -> Vec<u8> {
    place(at.updated_at, at.record_id.digest().as_bytes())
}

/// The place in such a list at this rest of a key; `None`: it is none.
pub(super) fn effect_place_of(rest: &[u8]) -> Option<RecordPlace> {
    let (time, digest) = rest.split_first_chunk::<8>()?;
    let record_id = record_id(digest)?;
    Some(RecordPlace { updated_at: from_ordered(*time), record_id })
}

/// The record whose digest these bytes are.
pub(super) fn record_id(bytes: &[u8]) -> Option<RecordId> {
    Digest::from_bytes(bytes.try_into().ok()?).to_string().parse().ok()
}

/// A place in a list that is ordered by a time: the time, then an id. The empty one is before all of them.
pub(super) fn place(at: Timestamp, id: &[u8]) -> Vec<u8> {
    [ordered(at).as_slice(), id].concat()
}

/// The id in a place; `None`: it is not one.
pub(super) fn id_at<I: FromStr>(place: &[u8]) -> Option<I> {
    let (_time, id) = place.split_first_chunk::<8>()?;
    std::str::from_utf8(id).ok()?.parse().ok()
}

/// Times as bytes in the same order: the sign bit is flipped.
pub(super) fn ordered(at: Timestamp) -> [u8; 8] {
    (at.as_ms() ^ i64::MIN).to_be_bytes()
}

/// A time from such bytes.
pub(super) fn from_ordered(bytes: [u8; 8]) -> Timestamp {
    Timestamp::from_ms(i64::from_be_bytes(bytes) ^ i64::MIN)
}

/// Whether the key holds a record: its value has a checksum.
pub(super) fn is_record(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(EFFECT | APPROVAL | DIRECTIVE | RUN | READ_TO | MESSAGE)))
}

/// Where a tenant's content is.
pub(super) fn content(tenant: &TenantId, digest: Digest) -> Vec<u8> {
    // No tenant's name has a zero byte.
    key(CONTENT, &[tenant.as_str().as_bytes(), &[0], digest.as_bytes()])
}

/// The content of such a key.
pub(super) fn content_of(key: &[u8]) -> Option<(TenantId, Digest)> {
    let (before, digest) = key.split_last_chunk::<32>()?;
    let tenant = before.strip_prefix(&[CONTENT])?.strip_suffix(&[0])?;
    let tenant = TenantId::new(std::str::from_utf8(tenant).ok()?).ok()?;
    Some((tenant, Digest::from_bytes(*digest)))
}

/// Marks a content as to be erased, by its place as encoded in the value of its key.
pub(super) fn to_erase(place: &[u8]) -> Vec<u8> {
    key(TO_ERASE, &[place])
}

/// The position in the list of a subject's entries at an entry, or before all of them.
pub(super) fn subject(subject: &Subject, seq: Option<u64>) -> Vec<u8> {
    let mut out = key(SUBJECT, &[subject.to_string().as_bytes(), &[0]]);
    out.extend(seq.iter().flat_map(|seq| seq.to_be_bytes()));
    out
}

/// How far the log was read for messages to people.
pub(super) fn read_to() -> Vec<u8> {
    vec![READ_TO]
}

/// A waiting message, or the position before all of them.
pub(super) fn message(message: Option<&MessageKey>) -> Vec<u8> {
    let parts = message.map(|key| [key.channel.as_str().as_bytes(), &[0], key.of.as_bytes()]);
    key(MESSAGE, parts.as_ref().map_or(&[], |parts| parts))
}

/// Whether the key is that of a waiting message.
pub(super) fn is_message(key: &[u8]) -> bool {
    key.first() == Some(&MESSAGE)
}

/// A tile of the Merkle tree.
pub(super) fn tile(tile: TileId) -> Vec<u8> {
    key(TILE, &[&[tile.level], &tile.index.to_be_bytes()])
}

/// A key in the list of a call's approvals, at a place.
pub(super) fn call_approval(call_id: &ToolCallId, place: &[u8]) -> Vec<u8> {
    // No call's name has a zero byte, so that one name is never the beginning of another's keys.
    key(CALL_APPROVAL, &[call_id.as_str().as_bytes(), &[0], place])
}

pub(super) fn approval(approval_id: &ApprovalId) -> Vec<u8> {
    key(APPROVAL, &[approval_id.as_str().as_bytes()])
}

/// A key in one of the two lists of approvals, in a state, at a place.
pub(super) fn approval_list(tenant: Option<&TenantId>, state: &str, place: &[u8]) -> Vec<u8> {
    let state = state.as_bytes();
    match tenant {
        // No tenant's name has a zero byte, so that one name is never the beginning of another's keys.
        Some(tenant) => {
            key(APPROVAL_TENANT, &[tenant.as_str().as_bytes(), &[0], state, &[0], place])
        }
        None => key(APPROVAL_STATE, &[state, &[0], place]),
    }
}

/// A key in the list of approvals that other tenants ask of this one, in a state, at a place.
pub(super) fn external_list(external: &TenantId, state: &str, place: &[u8]) -> Vec<u8> {
    let external = external.as_str().as_bytes();
    key(APPROVAL_EXTERNAL, &[external, &[0], state.as_bytes(), &[0], place])
}

/// A key in the list of approvals of an operation within a tenant, in a state, at a place.
pub(super) fn capability_list(
    tenant: &TenantId,
    capability: &CapabilityId,
    state: &str,
    place: &[u8],
) -> Vec<u8> {
    let (tenant, name) = (tenant.as_str().as_bytes(), capability.to_string());
    let state = state.as_bytes();
    key(APPROVAL_CAPABILITY, &[tenant, &[0], name.as_bytes(), &[0], state, &[0], place])
}

/// A directive.
pub(super) fn directive(directive_id: &DirectiveId) -> Vec<u8> {
    key(DIRECTIVE, &[directive_id.as_str().as_bytes()])
}

/// The code of a kind in keys. Codes never change.
const fn directive_code(kind: DirectiveKind) -> u8 {
    match kind {
        DirectiveKind::Grant => 0,
        DirectiveKind::BreakGlass => 1,
        DirectiveKind::Freeze => 2,
        DirectiveKind::Delegation => 3,
        DirectiveKind::Revocation => 4,
    }
}

/// A key in a list of directives: of one kind, by a time, at a place.
fn directive_list(
    [all, of_tenant]: [u8; 2],
    tenant: Option<&TenantId>,
    kind: DirectiveKind,
    place: &[u8],
) -> Vec<u8> {
    let code = directive_code(kind);
    match tenant {
        Some(tenant) => key(of_tenant, &[tenant.as_str().as_bytes(), &[0, code], place]),
        None => key(all, &[&[code], place]),
    }
}

/// The same by age.
pub(super) fn directive_by_age(
    tenant: Option<&TenantId>,
    kind: DirectiveKind,
    place: &[u8],
) -> Vec<u8> {
    directive_list(DIRECTIVE_AGE, tenant, kind, place)
}

/// The same by the time until which they are open.
pub(super) fn directive_open(
    tenant: Option<&TenantId>,
    kind: DirectiveKind,
    place: &[u8],
) -> Vec<u8> {
    directive_list(DIRECTIVE_OPEN, tenant, kind, place)
}

pub(super) fn run(run: &RunKey) -> Vec<u8> {
    let digest = DigestBuilder::new("placet.run-key.v1")
        .field("tenant", run.tenant.as_str())
        .field("agent", run.agent.as_str())
        .optional("on_behalf_of", run.on_behalf_of.as_ref().map(|user| user.as_str().as_bytes()))
        .field("run", run.run_id.as_str())
        .finish();
    key(RUN, &[digest.as_bytes()])
}
