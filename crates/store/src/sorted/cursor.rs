//! Reading in order: through one table, and through several sources at once.
//!
//! Owns [`Cursor`] (one table from a key on) and [`Merged`] (sources, newest first, in which the newest form of a key counts).
//! Not here: look-ups of one key (`set`). Invariant: keys come in ascending order, each once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::TableError;
use super::table::{Entries, Table};

/// A key and its value.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// What is read in order: a table, or something beside the tables.
pub(crate) type Source = Box<dyn Iterator<Item = Result<Pair, TableError>> + Send>;

/// A table from a key on.
#[derive(Debug)]
pub(crate) struct Cursor {
    table: Arc<Table>,
    /// The next block.
    next_block: usize,
    block: Vec<u8>,
    at: usize,
    key: Vec<u8>,
    from: Vec<u8>,
}

impl Cursor {
    /// Begins at `from`, or at the first key after it.
    pub(crate) fn new(table: Arc<Table>, from: &[u8]) -> Self {
        let next_block = table.block_of(from).unwrap_or(0);
        Self { table, next_block, block: Vec::new(), at: 0, key: Vec::new(), from: from.to_vec() }
    }

    fn step(&mut self) -> Result<Option<Pair>, TableError> {
        loop {
            if self.at >= self.block.len() {
                if self.next_block >= self.table.blocks() {
                    return Ok(None);
                }
                self.block = self.table.block(self.next_block)?;
                self.next_block = self.next_block.saturating_add(1);
                self.at = 0;
                self.key.clear();
            }
            let key = std::mem::take(&mut self.key);
            let mut entries = Entries::resume(&self.block, self.at, key);
            let value = entries.next(self.table.path())?.map(<[u8]>::to_vec);
            self.at = self.block.len().saturating_sub(entries.left());
            self.key = entries.key;
            if let Some(value) = value
                && self.key >= self.from
            {
                return Ok(Some((self.key.clone(), value)));
            }
        }
    }
}

impl Iterator for Cursor {
    type Item = Result<Pair, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        let pair = self.step().transpose();
        if matches!(pair, Some(Err(_))) {
            self.next_block = self.table.blocks();
            self.block.clear();
        }
        pair
    }
}

/// Several sources as one; the first one is the newest. What is marked as gone is answered as such: with an empty value.
pub(crate) struct Merged {
    sources: Vec<Source>,
    heads: BTreeMap<(Vec<u8>, usize), Vec<u8>>,
    failed: Option<TableError>,
}

impl fmt::Debug for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merged").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

impl Merged {
    pub(crate) fn new(sources: Vec<Source>) -> Self {
        let count = sources.len();
        let mut merged = Self { sources, heads: BTreeMap::new(), failed: None };
        for at in 0..count {
            merged.advance(at);
        }
        merged
    }

    fn advance(&mut self, at: usize) {
        match self.sources.get_mut(at).and_then(Iterator::next) {
            Some(Ok((key, value))) => drop(self.heads.insert((key, at), value)),
            Some(Err(error)) => drop(self.failed.get_or_insert(error)),
            None => {}
        }
    }

    /// The next key with its newest value; `None` at the end.
    fn step(&mut self) -> Option<Pair> {
        let ((key, at), value) = self.heads.pop_first()?;
        self.advance(at);
        while let Some(entry) = self.heads.first_entry() {
            if entry.key().0 != key {
                break;
            }
            let ((_, older), _) = entry.remove_entry();
            self.advance(older);
        }
        Some((key, value))
    }
}

impl Iterator for Merged {
    type Item = Result<Pair, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            self.heads.clear();
            self.sources.clear();
            return Some(Err(error));
        }
        self.step().map(Ok)
    }
}
