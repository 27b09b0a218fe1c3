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

use super::codec::{decode_place, encode_place, encode_value};
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

/// The edits of some entries, in order.
pub(super) fn edits_of(tree: &Tree, changes: &[Change]) -> Result<Edits, TreeFault> {
    let mut edits = Edits::new();
    // Every call changes several runs: only their last version is written.
    let mut runs: HashMap<&RunKey, (u64, &RunRecord)> = HashMap::new();
    for change in changes {
        contents(tree, change, &mut edits)?;
        for subject in &change.subjects {
            edits.insert(keys::subject(subject, Some(change.seq)), Some(HERE.to_vec()));
        }
        if let Some(outbox) = &change.outbox {
            messages(outbox, change.seq, &mut edits)?;
        }
        for op in &change.ops {
            if let Op::Run(run) = op {
                runs.insert(&run.key, (change.seq, run));
            }
            edit(op, change.seq, &mut edits)?;
        }
    }
    for (key, (seq, run)) in runs {
        put(&mut edits, keys::run(key), seq, run)?;
    }
    Ok(edits)
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

fn edit(op: &Op, seq: u64, edits: &mut Edits) -> Result<(), TreeFault> {
    match op {
        Op::Effect { before, after } => replace(before.as_deref(), after.as_deref(), seq, edits),
        Op::Approval { before, after } => replace(before.as_deref(), after.as_deref(), seq, edits),
        Op::Directive { before, after } => replace(before.as_deref(), after.as_deref(), seq, edits),
        // Runs of all entries are written together.
        Op::Run(_) => Ok(()),
    }
}

/// Replaces a record by its next version. A list that contains both stays as it is.
fn replace<R: Listed>(
    before: Option<&R>,
    after: Option<&R>,
    seq: u64,
    edits: &mut Edits,
) -> Result<(), TreeFault> {
    let was = before.map(R::lists).unwrap_or_default();
    let is = after.map(R::lists).unwrap_or_default();
    let left = was.iter().filter(|pair| !is.contains(pair));
    edits.extend(left.map(|(key, _)| (key.clone(), None)));
    let entered = is.iter().filter(|pair| !was.contains(pair));
    edits.extend(entered.map(|(key, value)| (key.clone(), Some(value.clone()))));
    if let Some(record) = after {
        put(edits, record.key(), seq, record)?;
    } else if let Some(record) = before {
        edits.insert(record.key(), None);
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

/// A record that lists contain.
trait Listed: Serialize {
    /// The key of the record itself.
    fn key(&self) -> Vec<u8>;
    /// Its keys in lists, with their values.
    fn lists(&self) -> Vec<(Vec<u8>, Vec<u8>)>;
}

impl Listed for EffectRecord {
    fn key(&self) -> Vec<u8> {
        keys::effect(&self.record_id)
    }

    fn lists(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let place = keys::effect_place(&self.place());
        let state = [keys::effect_list(self.state.name()), place].concat();
        let tenant = self.scope.tenant.as_str().as_bytes().to_vec();
        let call = keys::call(&self.call_id);
        vec![(state, tenant), (call, self.record_id.digest().as_bytes().to_vec())]
    }
}

impl Listed for ApprovalRecord {
    fn key(&self) -> Vec<u8> {
        keys::approval(&self.approval_id)
    }

    fn lists(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (tenant, state) = (self.chain.tenant(), self.state.name());
        let place = keys::place(self.created_at, self.approval_id.as_str().as_bytes());
        let own = [
            keys::approval_list(None, state, &place),
            keys::approval_list(Some(tenant), state, &place),
            keys::capability_list(tenant, &self.capability, state, &place),
            keys::call_approval(&self.call_id, &place),
        ];
        let external = self.external_tenants.iter();
        let external = external.map(|tenant| keys::external_list(tenant, state, &place));
        own.into_iter().chain(external).map(only).collect()
    }
}

impl Listed for Directive {
    fn key(&self) -> Vec<u8> {
        keys::directive(&self.directive_id)
    }

    fn lists(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (kind, id) = (self.kind(), self.directive_id.as_str().as_bytes());
        let made = keys::place(self.created_at, id);
        let open = self.open_until().map(|until| keys::place(until, id));
        let lists = [None, Some(&self.tenant)].into_iter().flat_map(|tenant| {
            let open = open.as_ref().map(|place| keys::directive_open(tenant, kind, place));
            [keys::directive_by_age(tenant, kind, &made)].into_iter().chain(open)
        });
        lists.map(only).collect()
    }
}

/// The value of a key that carries no information but its presence.
const HERE: &[u8] = &[1];

fn only(key: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    (key, HERE.to_vec())
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
