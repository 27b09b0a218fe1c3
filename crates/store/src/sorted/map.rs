//! A map that may be larger than memory, for the length of one piece of work.
//!
//! Owns what is held in memory, and the tables that the rest goes into. Not here: removing the folder afterwards. Invariant: it
//! reads like a map in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Marks, Merged, Source, TableError, TableSet, TableWriter};
use crate::journal::medium::{Disk, Medium};

/// How many bytes are held in memory.
const BYTES_MAX: usize = 32 << 20;
const ENTRY_BYTES: usize = 96;

/// The map.
#[derive(Debug)]
pub(crate) struct SpillMap {
    directory: PathBuf,
    tables: TableSet,
    held: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
    next_table: u64,
}

impl SpillMap {
    /// An empty map whose tables go into a folder, made if it is not there.
    pub(crate) fn new(directory: &Path) -> Result<Self, TableError> {
        Disk.create_dir(directory).map_err(TableError::io("make the folder", directory))?;
        Ok(Self {
            directory: directory.to_owned(),
            tables: TableSet::default(),
            held: BTreeMap::new(),
            bytes: 0,
            next_table: 1,
        })
    }

    /// What a key holds.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        let found = match self.held.get(key) {
            Some(value) => Some(value.clone()),
            None => self.tables.get_filtered(key)?,
        };
        Ok(found.filter(|value| !value.is_empty()))
    }

    /// Lets a key hold a value; an empty one takes the key away.
    pub(crate) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), TableError> {
        let bytes = key.len().saturating_add(value.len()).saturating_add(ENTRY_BYTES);
        self.bytes = self.bytes.saturating_add(bytes);
        self.held.insert(key, value);
        if self.bytes < BYTES_MAX {
            return Ok(());
        }
        let mut writer = self.writer()?;
        for (key, value) in std::mem::take(&mut self.held) {
            writer.put(&key, &value, true)?;
        }
        self.bytes = 0;
        self.tables = self.tables.with(writer.finish()?);
        if let Some(count) = self.tables.due_for_merge() {
            let writer = self.writer()?;
            let merged = self.tables.merge(count, writer, (|_: &[u8]| true, Marks::Drop))?;
            for table in self.tables.tables().iter().take(count) {
                let path = table.path();
                Disk.remove(path).map_err(TableError::io("remove", path))?;
            }
            self.tables = self.tables.replaced(count, merged);
        }
        Ok(())
    }

    /// All keys that hold something, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<super::cursor::Pair, TableError>> {
        let held: Vec<_> = self.held.iter().map(|(k, v)| Ok((k.clone(), v.clone()))).collect();
        let held: Source = Box::new(held.into_iter());
        let sources = std::iter::once(held).chain(self.tables.cursors(&[])).collect();
        Merged::new(sources).filter(|pair| !matches!(pair, Ok((_, value)) if value.is_empty()))
    }

    fn writer(&mut self) -> Result<TableWriter, TableError> {
        let number = self.next_table;
        self.next_table = number.saturating_add(1);
        TableWriter::new(Arc::new(Disk), &self.directory, number)
    }
}
