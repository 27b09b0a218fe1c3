//! Sorted tables: immutable files of keys and values, in order, for what is too much for memory.
//!
//! Owns the format of a table, its filter, cursors over it, and the set of tables that lies under a memory of recent changes
//! (newest first, the newest form of a key counts). Not here: what keys and values mean, and which tables are current: a
//! checkpoint or a manifest names them.
//! Invariants: a table is never changed once it has its name; every block that is read verifies, else it is an error and
//! never an absence; memory is bounded by a few bytes for each block and two for each key in the filter.
//!
//! # On disk
//!
//! Numbers are little-endian, CRC is CRC-32C.
//!
//! ```text
//! table:  "PLTABLE" 01, blocks, index, filter, footer
//! block:  entries, then a CRC over the table's number (8 bytes), the block's offset (8 bytes) and the entries
//! entry:  varint shared with the key before, varint length of the rest, varint length of the value, rest, value
//! index:  for each block: varint length of its separator, separator (not after its first key), 8 bytes offset, 4 bytes length;
//!         then a CRC over the number and all of that
//! filter: 64-byte blocks of a Bloom filter, then a CRC over the number and all of that
//! footer: 8 bytes each of number, offset of the index, offset of the filter, entries, length of the file; CRC; "PLTE"
//! ```
//!
//! An empty value is the mark of a key that is gone: it hides the key in older tables.

mod bloom;
mod cursor;
mod encoding;
mod map;
mod set;
mod table;
mod writer;

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "small numbers in tests")]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use cursor::{Merged, Source};
pub(crate) use map::SpillMap;
pub(crate) use set::{Marks, TableSet};
pub(crate) use table::{Table, TableName, number_of as table_number, path_of as table_path};
pub(crate) use writer::TableWriter;

/// Why a table cannot be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum TableError {
    /// The operating system refused an operation.
    #[error("cannot {what} `{}`: {source}", .path.display())]
    Io {
        /// What was attempted, as a verb phrase.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// The bytes are not those that were written.
    #[error("the table `{}` is damaged: {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The source beside the tables failed.
    #[error("{0}")]
    Source(String),
}

impl TableError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source: Arc::new(source) }
    }

    fn damaged(path: &Path, what: &'static str) -> Self {
        Self::Damaged { path: path.to_owned(), what }
    }
}
