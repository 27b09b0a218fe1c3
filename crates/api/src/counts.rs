//! Counts per key.
//!
//! Owns the counting. Invariant: a key whose count is zero is not stored.

use std::{collections::HashMap, hash::Hash};

/// Counts by key.
#[derive(Debug)]
pub(crate) struct Counts<K> {
    all: usize,
    by_key: HashMap<K, usize>,
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self { all: 0, by_key: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Counts<K> {
    /// The total count.
    pub(crate) const fn all(&self) -> usize {
        self.all
    }

    /// The count of a key.
    pub(crate) fn of(&self, key: &K) -> usize {
        self.by_key.get(key).copied().unwrap_or_default()
    }

    /// Adds one.
    pub(crate) fn add(&mut self, key: &K) {
        self.all = self.all.saturating_add(1);
        let count = self.by_key.entry(key.clone()).or_default();
        *count = count.saturating_add(1);
    }

    /// Removes one.
    pub(crate) fn remove(&mut self, key: &K) {
        self.all = self.all.saturating_sub(1);
        let left = self.of(key).saturating_sub(1);
        if left == 0 {
            self.by_key.remove(key);
        } else {
            self.by_key.insert(key.clone(), left);
        }
    }

    /// Whether no key is remembered.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.all == 0 && self.by_key.is_empty()
    }
}
