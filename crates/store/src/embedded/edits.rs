//! Edits: the keys of the state that an entry writes and removes.
//!
//! Owns which lists a record is in. Not here: the form of the keys (`keys`), the tree. Invariant: the keys of a record follow from the
//! record alone, so that they can be removed when it moves on.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::audit::Subject;
use placet_ledger::directive::Directive;
use placet_ledger::outbox::OutboxChange;
use placet_ledger::record::EffectRecord;
use placet_ledger::run::{RunKey, RunRecord};
use placet_types::digest::Digest;
use placet_types::ids::TenantId;

use super::codec::{Counts, decode_place, encode_place, encode_value};
use super::keys;
use super::tree::{Tree, TreeFault};
use crate::journal::{Place, Placed};
use crate::rules::Op;

/// Keys with their new values; `None`: the key is removed.
pub(super) type Edits = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Everything that one entry changes.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) seq: u64,
    pub(super) ops: Vec<Op>,
    /// The contents that came with the entry.
    pub(super) contents: Vec<Placed>,
    /// The contents that the entry says are deleted.
    pub(super) deleted: Vec<(TenantId, Digest)>,
    /// The subjects of its events.
    pub(super) subjects: BTreeSet<Subject>,
    /// Its changes to the messages for people.
    pub(super) outbox: Option<Box<OutboxChange>>,
}

/// The edits of some entries, in order, and how many records there are afterwards.
pub(super) fn edits_of(
    tree: &Tree,
    changes: &[Change],
    mut counts: Counts,
) -> Result<(Edits, Counts), TreeFault> {
    let mut edits = Edits::new();
    // Every call changes several runs: only their last version is written.
    let mut runs: HashMap<&RunKey, (u64, &RunRecord)> = HashMap::new();
    for change in changes {
        contents(tree, change, &mut edits)?;
        for subject in &change.subjects {
            edits.extend([here(only(keys::subject(subject, Some(change.seq))))]);
        }
        if let Some(outbox) = &change.outbox {
            messages(outbox, change.seq, &mut edits)?;
        }
        for op in &change.ops {
            if let Op::Run(run) = op {
                runs.insert(&run.key, (change.seq, run));
            }
            edit(op, change.seq, &mut edits)?;
            count(op, &mut counts);
        }
    }
    for (key, (seq, run)) in runs {
        let key = keys::run(key);
        if tree.get(&key)?.is_none() {
            counts.runs = counts.runs.saturating_add(1);
        }
        put(&mut edits, key, seq, run)?;
    }
    Ok((edits, counts))
}

fn count(op: &Op, counts: &mut Counts) {
    let (counter, was, is) = match op {
        Op::Effect { before, after } => (&mut counts.effects, before.is_some(), after.is_some()),
        Op::Approval { before, after } => {
            (&mut counts.approvals, before.is_some(), after.is_some())
        }
        Op::Directive { before, after } => {
            (&mut counts.directives, before.is_some(), after.is_some())
        }
        Op::Run(_) => return,
    };
    *counter = counter.saturating_add(u64::from(is)).saturating_sub(u64::from(was));
}

/// Records where the contents of an entry are, and that those it deletes are to be erased.
fn contents(tree: &Tree, change: &Change, edits: &mut Edits) -> Result<(), TreeFault> {
    let mut place = |tenant: &TenantId, digest: Digest, place: Option<Vec<u8>>| {
        let key = keys::content(tenant, digest);
        let held = match edits.get(&key) {
            Some(edited) => edited.clone(),
            None => tree.get(&key)?.map(|value| value.to_vec()),
        };
        if held.is_some() || place.is_some() {
            edits.insert(key, place);
        }
        // A content that is written again was found altered, and most of it may still be there.
        if let Some(held) = held {
            edits.insert(keys::to_erase(&held), Some(HERE.to_vec()));
        }
        Ok::<_, TreeFault>(())
    };
    for placed in &change.contents {
        place(&placed.tenant, placed.digest, Some(encode_place(&placed.place)))?;
    }
    for (tenant, digest) in &change.deleted {
        place(tenant, *digest, None)?;
    }
    Ok(())
}

fn messages(outbox: &OutboxChange, seq: u64, edits: &mut Edits) -> Result<(), TreeFault> {
    if let Some(read_to) = &outbox.read_to {
        put(edits, keys::read_to(), seq, read_to)?;
    }
    for message in &outbox.put {
        put(edits, keys::message(Some(&message.key)), seq, message)?;
    }
    edits.extend(outbox.done.iter().map(|key| (keys::message(Some(key)), None)));
    Ok(())
}

/// The value of a key that carries no information but its presence.
const HERE: &[u8] = &[1];

fn edit(op: &Op, seq: u64, edits: &mut Edits) -> Result<(), TreeFault> {
    match op {
        Op::Effect { before, after } => {
            if let Some(before) = before {
                edits.extend(effect_lists(before).map(gone));
                edits.insert(keys::effect(&before.record_id), None);
            }
            if let Some(after) = after {
                edits.extend(effect_lists(after).map(here));
                put(edits, keys::effect(&after.record_id), seq, &**after)?;
            }
        }
        Op::Approval { before, after } => {
            if let Some(before) = before {
                edits.extend(approval_lists(before).map(gone));
                edits.insert(keys::approval(&before.approval_id), None);
            }
            if let Some(after) = after {
                edits.extend(approval_lists(after).map(here));
                put(edits, keys::approval(&after.approval_id), seq, &**after)?;
            }
        }
        Op::Directive { before, after } => {
            if let Some(before) = before {
                edits.extend(directive_lists(before).map(gone));
                edits.insert(keys::directive(&before.directive_id), None);
            }
            if let Some(after) = after {
                edits.extend(directive_lists(after).map(here));
                put(edits, keys::directive(&after.directive_id), seq, &**after)?;
            }
        }
        // Runs of all entries are written together.
        Op::Run(_) => {}
    }
    Ok(())
}

fn put(
    edits: &mut Edits,
    key: Vec<u8>,
    seq: u64,
    record: &impl Serialize,
) -> Result<(), TreeFault> {
    let body = serde_json::to_vec(record)
        .map_err(|error| TreeFault::Sled(format!("a record has no JSON form: {error}")))?;
    let value = encode_value(&key, seq, &body);
    edits.insert(key, Some(value));
    Ok(())
}

/// A key of a list, with its value.
type Listed = (Vec<u8>, Vec<u8>);

fn gone(listed: Listed) -> (Vec<u8>, Option<Vec<u8>>) {
    (listed.0, None)
}

fn here(listed: Listed) -> (Vec<u8>, Option<Vec<u8>>) {
    (listed.0, Some(listed.1))
}

/// A key that carries no information but its presence.
fn only(key: Vec<u8>) -> Listed {
    (key, HERE.to_vec())
}

/// The lists that contain an effect record, with its tenant.
fn effect_lists(record: &EffectRecord) -> impl Iterator<Item = Listed> {
    let (state, id) = (record.state.name(), record.record_id.digest());
    let tenant = || record.scope.tenant.as_str().as_bytes().to_vec();
    let place = || keys::place(record.updated_at, id.as_bytes());
    let settled = keys::is_for_retention(&record.state)
        .then(|| (keys::settled_at(state, &place()), tenant()));
    let state = (keys::effect_state_at(state, Some(&record.record_id)), tenant());
    let call = (keys::call(&record.call_id), id.as_bytes().to_vec());
    [state, call].into_iter().chain(settled)
}

/// The lists that contain an approval.
fn approval_lists(approval: &ApprovalRecord) -> impl Iterator<Item = Listed> {
    let (tenant, state) = (approval.chain.tenant(), approval.state.name());
    let place = keys::place(approval.created_at, approval.approval_id.as_str().as_bytes());
    let external = approval.external_tenants.iter();
    [
        keys::approval_list(None, state, &place),
        keys::approval_list(Some(tenant), state, &place),
        keys::capability_list(tenant, &approval.capability, state, &place),
        keys::call_approval(&approval.call_id, &place),
    ]
    .into_iter()
    .chain(external.map(move |external| keys::external_list(external, state, &place)))
    .map(only)
}

/// The lists that contain a directive.
fn directive_lists(directive: &Directive) -> impl Iterator<Item = Listed> {
    let (kind, id) = (directive.kind(), directive.directive_id.as_str().as_bytes());
    let tenants = [None, Some(&directive.tenant)].into_iter();
    let lists = tenants.flat_map(move |tenant| {
        let made = keys::directive_by_age(tenant, kind, &keys::place(directive.created_at, id));
        let open = directive.open_until();
        let open = open.map(|until| keys::directive_open(tenant, kind, &keys::place(until, id)));
        [made].into_iter().chain(open)
    });
    lists.map(only)
}

/// The contents that edits say are to be erased.
pub(super) fn to_erase(edits: &Edits) -> impl Iterator<Item = Place> {
    edits.range(vec![keys::TO_ERASE]..).map_while(|(key, value)| {
        let place = key.strip_prefix(&[keys::TO_ERASE])?;
        value.as_ref().and_then(|_| decode_place(place))
    })
}

/// The edits that say that contents were erased.
pub(super) fn erased(places: &[Place]) -> Edits {
    places.iter().map(|place| (keys::to_erase(&encode_place(place)), None)).collect()
}
