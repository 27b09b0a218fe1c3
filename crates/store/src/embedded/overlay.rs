//! Records that are prepared and not yet in the state.
//!
//! Owns the records, besides the state, that new changes are decided against. Not here: the checks (`rules`), the tree. Invariant: a commit
//! is decided against everything prepared before it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::Directive;
use placet_ledger::record::EffectRecord;
use placet_types::digest::Digest;
use placet_types::ids::{ApprovalId, DirectiveId, RecordId, TenantId};

/// The prepared values of one kind, each with its entry; `None`: removed.
#[derive(Debug)]
pub(super) struct Prepared<K, V>(HashMap<K, (u64, Option<V>)>);

impl<K, V> Default for Prepared<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V: Clone> Prepared<K, V> {
    /// The prepared value of a key, else the one that the state has.
    pub(super) fn or<S: Into<V>, E>(
        &self,
        key: &K,
        stored: impl FnOnce() -> Result<Option<S>, E>,
    ) -> Result<Option<V>, E> {
        match self.0.get(key) {
            Some((_, prepared)) => Ok(prepared.clone()),
            None => Ok(stored()?.map(S::into)),
        }
    }

    /// Records the changes that entry `seq` makes.
    pub(super) fn extend(&mut self, seq: u64, changed: impl IntoIterator<Item = (K, Option<V>)>) {
        self.0.extend(changed.into_iter().map(|(key, value)| (key, (seq, value))));
    }

    /// Everything up to entry `seq` is in the state.
    pub(super) fn arrived(&mut self, seq: u64) {
        self.0.retain(|_, (prepared, _)| *prepared > seq);
    }
}

/// Everything prepared.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    pub(super) effects: Prepared<RecordId, Arc<EffectRecord>>,
    pub(super) approvals: Prepared<ApprovalId, Arc<ApprovalRecord>>,
    pub(super) directives: Prepared<DirectiveId, Arc<Directive>>,
    /// Contents added or deleted.
    pub(super) contents: Prepared<(TenantId, Digest), ()>,
}

impl Overlay {
    /// Everything up to entry `seq` is in the state.
    pub(super) fn arrived(&mut self, seq: u64) {
        self.effects.arrived(seq);
        self.approvals.arrived(seq);
        self.directives.arrived(seq);
        self.contents.arrived(seq);
    }
}
