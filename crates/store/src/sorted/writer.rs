//! Writing a table: keys in ascending order, one pass, bounded memory.
//!
//! Owns the making of blocks, index, filter and footer. Not here: reading them. Invariants: a file under a table's name is
//! complete and durable; keys that do not ascend are refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bloom::{Bloom, hash};
use super::encoding::{checksum, put_varint, shared_prefix};
use super::table::{FOOTER_MAGIC, MAGIC, TableName, path_of};
use super::{Table, TableError};
use crate::journal::medium::{Medium, MediumFile, beside, to_u64, write_all_at};

/// The size that blocks are filled up to: what a disk reads at once.
const BLOCK_BYTES: usize = 4 << 10;
/// How much is gathered before it is given to the operating system.
const BUFFER_BYTES: usize = 1 << 20;

/// A table in the making.
#[derive(Debug)]
pub(crate) struct TableWriter {
    medium: Arc<dyn Medium>,
    directory: PathBuf,
    number: u64,
    temporary: PathBuf,
    file: Box<dyn MediumFile>,
    /// What is in the file.
    written: u64,
    buffer: Vec<u8>,
    block: Vec<u8>,
    last_key: Vec<u8>,
    last_of_block_before: Vec<u8>,
    index: Vec<u8>,
    hashes: Vec<u64>,
    entries: u64,
}

impl TableWriter {
    /// Begins the table of this number in a folder that is there.
    pub(crate) fn new(
        medium: Arc<dyn Medium>,
        directory: &Path,
        number: u64,
    ) -> Result<Self, TableError> {
        let temporary = beside(&path_of(directory, number));
        let file = medium.create(&temporary).map_err(TableError::io("create", &temporary))?;
        Ok(Self {
            medium,
            directory: directory.to_owned(),
            number,
            temporary,
            file,
            written: 0,
            buffer: MAGIC.to_vec(),
            block: Vec::new(),
            last_key: Vec::new(),
            last_of_block_before: Vec::new(),
            index: Vec::new(),
            hashes: Vec::new(),
            entries: 0,
        })
    }

    /// Adds the next key, which must be greater than the one before; `filtered`: its absence is asked for often.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        filtered: bool,
    ) -> Result<(), TableError> {
        if self.entries > 0 && key <= self.last_key.as_slice() {
            return Err(TableError::damaged(&self.temporary, "its keys do not ascend"));
        }
        if self.block.is_empty() {
            self.begin_block(key);
        }
        let shared = if self.block.is_empty() { 0 } else { shared_prefix(&self.last_key, key) };
        let rest = key.get(shared..).unwrap_or_default();
        put_varint(to_u64(shared), &mut self.block);
        put_varint(to_u64(rest.len()), &mut self.block);
        put_varint(to_u64(value.len()), &mut self.block);
        self.block.extend_from_slice(rest);
        self.block.extend_from_slice(value);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.entries = self.entries.saturating_add(1);
        if filtered {
            self.hashes.push(hash(key));
        }
        if self.block.len() >= BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    /// Completes the table, makes it durable under its name and opens it.
    pub(crate) fn finish(mut self) -> Result<Table, TableError> {
        self.end_block()?;
        let index_at = self.offset();
        let index = std::mem::take(&mut self.index);
        self.part(&index, index_at)?;
        let filter_at = self.offset();
        let filter = Bloom::of(&self.hashes);
        self.part(filter.bytes(), filter_at)?;
        let length = self.offset().saturating_add(48);
        let mut footer = Vec::with_capacity(48);
        for number in [self.number, index_at, filter_at, self.entries, length] {
            footer.extend_from_slice(&number.to_le_bytes());
        }
        footer.extend_from_slice(&crc32c::crc32c(&footer).to_le_bytes());
        footer.extend_from_slice(&FOOTER_MAGIC);
        self.buffer.extend_from_slice(&footer);
        self.flush()?;
        self.file.sync_data().map_err(TableError::io("sync", &self.temporary))?;
        let path = path_of(&self.directory, self.number);
        self.medium
            .rename(&self.temporary, &path)
            .map_err(TableError::io("put in place", &path))?;
        self.medium
            .sync_dir(&self.directory)
            .map_err(TableError::io("sync the folder", &self.directory))?;
        let name = TableName { number: self.number, length, entries: self.entries };
        Table::open(&self.medium, &self.directory, name)
    }

    /// The block before ends somewhere before `key`: the shortest text between them leads to this one.
    fn begin_block(&mut self, key: &[u8]) {
        let keep = shared_prefix(&self.last_of_block_before, key).saturating_add(1);
        let separator = key.get(..keep).unwrap_or(key);
        put_varint(to_u64(separator.len()), &mut self.index);
        self.index.extend_from_slice(separator);
    }

    fn end_block(&mut self) -> Result<(), TableError> {
        if self.block.is_empty() {
            return Ok(());
        }
        let offset = self.offset();
        let block = std::mem::take(&mut self.block);
        self.index.extend_from_slice(&offset.to_le_bytes());
        let length = u32::try_from(block.len()).unwrap_or(u32::MAX);
        self.index.extend_from_slice(&length.to_le_bytes());
        self.part(&block, offset)?;
        self.block = block;
        self.block.clear();
        self.last_of_block_before.clone_from(&self.last_key);
        Ok(())
    }

    fn part(&mut self, bytes: &[u8], offset: u64) -> Result<(), TableError> {
        self.buffer.extend_from_slice(bytes);
        let crc = checksum(self.number, offset, bytes);
        self.buffer.extend_from_slice(&crc.to_le_bytes());
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn offset(&self) -> u64 {
        self.written.saturating_add(to_u64(self.buffer.len()))
    }

    fn flush(&mut self) -> Result<(), TableError> {
        write_all_at(&*self.file, &self.buffer, self.written)
            .map_err(TableError::io("write", &self.temporary))?;
        self.written = self.offset();
        self.buffer.clear();
        Ok(())
    }
}
