//! One table: opened, looked up in, read through.
//!
//! Owns what of it is in memory: where its blocks are, and its filter. Not here: writing. Invariant: what is answered stood in
//! a block that verified.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::TableError;
use super::bloom::{Bloom, Probe, hash};
use super::encoding::{checksum, take_slice, take_u32, take_u64, take_varint};
use crate::journal::medium::{Medium, MediumFile, read_full_at, to_u64, to_usize};

pub(super) const MAGIC: [u8; 8] = *b"PLTABLE\x01";
pub(super) const FOOTER_MAGIC: [u8; 4] = *b"PLTE";
pub(super) const FOOTER_BYTES: usize = 48;
const CRC_BYTES: u64 = 4;
const EXTENSION: &str = "table";
/// How many blocks lie between two fences.
const FENCE_EVERY: usize = 64;
/// No block, index or filter is larger; a larger number is damage.
const PART_BYTES_MAX: u64 = 1 << 32;

/// How a table is named where it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableName {
    /// Its number, which is also its file's.
    pub(crate) number: u64,
    /// The length of its file.
    pub(crate) length: u64,
    /// How many entries it has.
    pub(crate) entries: u64,
}

/// The file of a table.
pub(crate) fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:012}.{EXTENSION}"))
}

/// The number in a table's file name; `None` for other files.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    digits.parse().ok().filter(|_| digits.len() == 12)
}

/// The name of the table in this file, as the file itself says it: for whoever has lost what names it.
pub(super) fn name_of(
    medium: &Arc<dyn Medium>,
    directory: &Path,
    number: u64,
) -> Result<TableName, TableError> {
    let path = path_of(directory, number);
    let file = medium.open_read(&path).map_err(TableError::io("open", &path))?;
    let length = file.length().map_err(TableError::io("look at", &path))?;
    let footer_at = length.saturating_sub(to_u64(FOOTER_BYTES));
    let footer = Footer::decode(&read(&*file, &path, footer_at, FOOTER_BYTES)?);
    let name = footer.map(|footer| TableName { number, length, entries: footer.entries });
    name.ok_or_else(|| TableError::damaged(&path, "its footer does not verify"))
}

/// An opened table.
#[derive(Debug)]
pub(crate) struct Table {
    name: TableName,
    path: PathBuf,
    file: Box<dyn MediumFile>,
    /// The separators of all blocks, one behind the other.
    separators: Vec<u8>,
    blocks: Vec<BlockRef>,
    /// The beginning of every [`FENCE_EVERY`]th separator: few enough to stay in the processor's cache.
    fences: Vec<u64>,
    filter: Bloom,
}

#[derive(Debug, Clone, Copy)]
struct BlockRef {
    /// Where its separator ends.
    separator_end: u32,
    length: u32,
    offset: u64,
}

impl Table {
    /// Opens the table of this name; it must be exactly the one that was named.
    pub(crate) fn open(
        medium: &Arc<dyn Medium>,
        directory: &Path,
        name: TableName,
    ) -> Result<Self, TableError> {
        let path = path_of(directory, name.number);
        let file = medium.open_read(&path).map_err(TableError::io("open", &path))?;
        let length = file.length().map_err(TableError::io("look at", &path))?;
        if length != name.length {
            return Err(TableError::damaged(&path, "it has another length"));
        }
        let footer_at = length.saturating_sub(to_u64(FOOTER_BYTES));
        let footer = read(&*file, &path, footer_at, FOOTER_BYTES)?;
        let footer = Footer::decode(&footer)
            .filter(|footer| footer.is(&name))
            .ok_or_else(|| TableError::damaged(&path, "its footer does not verify"))?;
        let end = |at: u64| at.saturating_sub(CRC_BYTES);
        let index = part(&*file, &path, name.number, (footer.index_at, end(footer.filter_at)))?;
        let filter = part(&*file, &path, name.number, (footer.filter_at, end(footer_at)))?;
        let filter = Bloom::from_bytes(filter)
            .ok_or_else(|| TableError::damaged(&path, "its filter has an impossible length"))?;
        let (separators, blocks) = decode_index(&index)
            .ok_or_else(|| TableError::damaged(&path, "its index is malformed"))?;
        let mut table = Self { name, path, file, separators, blocks, fences: Vec::new(), filter };
        let fenced = (0..table.blocks.len()).step_by(FENCE_EVERY);
        table.fences = fenced.map(|at| beginning(table.separator(at))).collect();
        Ok(table)
    }

    /// How it is named.
    pub(crate) const fn name(&self) -> TableName {
        self.name
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Which filtered keys may be here.
    pub(super) fn filter(&self) -> &Bloom {
        &self.filter
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        let Some(at) = self.block_of(key) else { return Ok(None) };
        let block = self.block(at)?;
        let mut entries = Entries::new(&block);
        while let Some(value) = entries.next(&self.path)? {
            match entries.key.as_slice().cmp(key) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(Some(value.to_vec())),
                std::cmp::Ordering::Greater => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Reads all blocks, so that damage is found.
    pub(crate) fn verify(&self) -> Result<(), TableError> {
        let mut entries: u64 = 0;
        for at in 0..self.blocks.len() {
            let block = self.block(at)?;
            let mut read = Entries::new(&block);
            while read.next(&self.path)?.is_some() {
                entries = entries.saturating_add(1);
            }
        }
        if entries == self.name.entries {
            Ok(())
        } else {
            Err(TableError::damaged(&self.path, "it has another number of entries"))
        }
    }

    /// The block in which a key is, if it is anywhere; `None` before the first.
    pub(super) fn block_of(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = self.between_fences(key);
        // The number of blocks whose separator is not after the key.
        while low < high {
            let middle = low.midpoint(high);
            if self.separator(middle) <= key {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }

    /// Between which blocks the last one lies whose separator is not after the key. Fences are of eight bytes, so that several may
    /// be those of the key.
    fn between_fences(&self, key: &[u8]) -> (usize, usize) {
        let wanted = beginning(key);
        let before = self.fences.partition_point(|fence| *fence < wanted).saturating_sub(1);
        let after = self.fences.partition_point(|fence| *fence <= wanted);
        let at = |fence: usize| fence.saturating_mul(FENCE_EVERY).min(self.blocks.len());
        (at(before), at(after))
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The entries of a block, verified.
    pub(super) fn block(&self, at: usize) -> Result<Vec<u8>, TableError> {
        let block = self.blocks.get(at).copied();
        let block = block.ok_or_else(|| TableError::damaged(&self.path, "a block is missing"))?;
        let end = block.offset.saturating_add(u64::from(block.length));
        part(&*self.file, &self.path, self.name.number, (block.offset, end))
    }

    fn separator(&self, at: usize) -> &[u8] {
        let end = |at: usize| self.blocks.get(at).map_or(0, |block| block.separator_end);
        let start = at.checked_sub(1).map_or(0, end);
        let range = to_usize(u64::from(start))..to_usize(u64::from(end(at)));
        self.separators.get(range).unwrap_or_default()
    }
}

/// The first eight bytes of a key as a number that is ordered as they are; what is missing counts as zeros.
fn beginning(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(key) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}

/// The hash by which filters are asked.
pub(super) fn probe_of(key: &[u8]) -> Probe {
    Probe::of(hash(key))
}

/// The entries of one block, in order.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    rest: &'a [u8],
    /// The key of the entry that was answered last.
    pub(super) key: Vec<u8>,
}

impl<'a> Entries<'a> {
    pub(super) fn new(block: &'a [u8]) -> Self {
        Self { rest: block, key: Vec::new() }
    }

    /// Goes on where an earlier reading of the same block had come to.
    pub(super) fn resume(block: &'a [u8], at: usize, key: Vec<u8>) -> Self {
        Self { rest: block.get(at..).unwrap_or_default(), key }
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next value; its key stands in `key`.
    pub(super) fn next(&mut self, path: &Path) -> Result<Option<&'a [u8]>, TableError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let value =
            self.step().ok_or_else(|| TableError::damaged(path, "an entry is malformed"))?;
        Ok(Some(value))
    }

    fn step(&mut self) -> Option<&'a [u8]> {
        let shared = to_usize(take_varint(&mut self.rest)?);
        let rest_length = take_varint(&mut self.rest)?;
        let value_length = take_varint(&mut self.rest)?;
        let rest = take_slice(&mut self.rest, rest_length)?;
        if shared > self.key.len() {
            return None;
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        take_slice(&mut self.rest, value_length)
    }
}

struct Footer {
    number: u64,
    index_at: u64,
    filter_at: u64,
    entries: u64,
    length: u64,
}

impl Footer {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (fields, mut end) = bytes.split_at_checked(40)?;
        let crc = take_u32(&mut end)?;
        if end != FOOTER_MAGIC || crc32c::crc32c(fields) != crc {
            return None;
        }
        let mut rest = fields;
        Some(Self {
            number: take_u64(&mut rest)?,
            index_at: take_u64(&mut rest)?,
            filter_at: take_u64(&mut rest)?,
            entries: take_u64(&mut rest)?,
            length: take_u64(&mut rest)?,
        })
    }

    fn is(&self, name: &TableName) -> bool {
        self.number == name.number && self.entries == name.entries && self.length == name.length
    }
}

fn decode_index(bytes: &[u8]) -> Option<(Vec<u8>, Vec<BlockRef>)> {
    let (mut separators, mut blocks) = (Vec::new(), Vec::new());
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = take_varint(&mut rest)?;
        separators.extend_from_slice(take_slice(&mut rest, length)?);
        let separator_end = u32::try_from(separators.len()).ok()?;
        let offset = take_u64(&mut rest)?;
        blocks.push(BlockRef { separator_end, offset, length: take_u32(&mut rest)? });
    }
    separators.shrink_to_fit();
    blocks.shrink_to_fit();
    Some((separators, blocks))
}

/// The bytes of a part, from its beginning to its checksum, which must be right.
fn part(
    file: &dyn MediumFile,
    path: &Path,
    number: u64,
    (start, end): (u64, u64),
) -> Result<Vec<u8>, TableError> {
    let length = end.checked_sub(start).filter(|length| *length < PART_BYTES_MAX);
    let length = length.ok_or_else(|| TableError::damaged(path, "a part has no length"))?;
    let mut bytes = read(file, path, start, to_usize(length.saturating_add(CRC_BYTES)))?;
    let sound = bytes
        .split_last_chunk::<4>()
        .is_some_and(|(bytes, crc)| checksum(number, start, bytes) == u32::from_le_bytes(*crc));
    if !sound {
        return Err(TableError::damaged(path, "a checksum is wrong"));
    }
    bytes.truncate(to_usize(length));
    Ok(bytes)
}

fn read(
    file: &dyn MediumFile,
    path: &Path,
    offset: u64,
    length: usize,
) -> Result<Vec<u8>, TableError> {
    let mut bytes = vec![0; length];
    let count = read_full_at(file, &mut bytes, offset).map_err(TableError::io("read", path))?;
    if count == length {
        Ok(bytes)
    } else {
        // That is no refusal of the operating system: it was read, and is not what was written.
        Err(TableError::damaged(path, "it is cut short"))
    }
}
