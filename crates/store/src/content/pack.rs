//! One pack file: records behind each other.
//!
//! Owns: the layout of a record and the reading of a pack's headers. Not here: the index, the order of syncs.
//! Invariant: what `read_records` names has a header that verifies and lies wholly in the file; whether its bytes are the
//! digest's is proven at every reading, not here. A record that was deleted keeps its place: its content is zeros, and its
//! header says so.

use std::io;

use crate::journal::medium::{MediumFile, read_full_at, to_u64, to_usize};

/// Bytes before a record's content.
pub(crate) const RECORD_HEADER_BYTES: usize = 44;
const MAGIC: [u8; 4] = *b"PLC\x01";
const DEAD_MAGIC: [u8; 4] = *b"PLD\x01";

/// Where one record's content lies in its pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) digest: [u8; 32],
    /// Where the content begins, after the record's header.
    pub(crate) offset: u64,
    pub(crate) length: u32,
    /// It was deleted.
    pub(crate) is_dead: bool,
}

impl Record {
    /// Where its header begins.
    pub(crate) fn begin(&self) -> u64 {
        self.offset.saturating_sub(to_u64(RECORD_HEADER_BYTES))
    }

    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }
}

/// What reading a pack's headers found.
#[derive(Debug, Default)]
pub(crate) struct PackRecords {
    pub(crate) records: Vec<Record>,
    /// The length of the file.
    pub(crate) length: u64,
    /// Bytes that belong to no record although records follow.
    pub(crate) damaged_bytes: u64,
    /// Bytes that belong to no record at the end.
    pub(crate) torn_bytes: u64,
}

/// Appends a record to `out`.
pub(crate) fn encode(digest: &[u8; 32], content: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&header(MAGIC, digest, length));
    out.extend_from_slice(content);
}

/// The header of a record that was deleted.
pub(crate) fn dead_header(digest: &[u8; 32], length: u32) -> [u8; RECORD_HEADER_BYTES] {
    header(DEAD_MAGIC, digest, length)
}

fn header(magic: [u8; 4], digest: &[u8; 32], length: u32) -> [u8; RECORD_HEADER_BYTES] {
    let mut fields = magic.to_vec();
    fields.extend_from_slice(&length.to_le_bytes());
    fields.extend_from_slice(digest);
    let crc = crc32c::crc32c(&fields);
    fields.extend_from_slice(&crc.to_le_bytes());
    fields.try_into().unwrap_or([0; RECORD_HEADER_BYTES])
}

/// Whether the record whose content begins at `offset` was deleted.
pub(crate) fn is_dead(file: &dyn MediumFile, offset: u64) -> io::Result<bool> {
    Ok(record_at(file, offset)?.is_some_and(|record| record.is_dead))
}

/// The record whose content begins at `offset`, if its header verifies.
pub(crate) fn record_at(file: &dyn MediumFile, offset: u64) -> io::Result<Option<Record>> {
    let Some(at) = offset.checked_sub(to_u64(RECORD_HEADER_BYTES)) else { return Ok(None) };
    let mut header = [0; RECORD_HEADER_BYTES];
    read_full_at(file, &mut header, at)?;
    Ok(decode(&header, at))
}

/// Reads the headers of a pack from a place on at which a record begins.
pub(crate) fn read_records(file: &dyn MediumFile, from: u64) -> io::Result<PackRecords> {
    let mut found = PackRecords { length: file.length()?, ..PackRecords::default() };
    let mut at = from;
    while at < found.length {
        let mut header = [0; RECORD_HEADER_BYTES];
        read_full_at(file, &mut header, at)?;
        let next = match decode(&header, at).filter(|record| record.end() <= found.length) {
            Some(record) => Some((at, record)),
            None => resume(file, at, found.length)?,
        };
        let Some((start, record)) = next else {
            found.torn_bytes = found.length.saturating_sub(at);
            break;
        };
        found.damaged_bytes = found.damaged_bytes.saturating_add(start.saturating_sub(at));
        found.records.push(record);
        at = record.end();
    }
    Ok(found)
}

/// Looks for the next record after bytes that are none; answers where it begins.
fn resume(file: &dyn MediumFile, at: u64, length: u64) -> io::Result<Option<(u64, Record)>> {
    let mut bytes = vec![0; to_usize(length.saturating_sub(at))];
    read_full_at(file, &mut bytes, at)?;
    let mut candidates = bytes.windows(RECORD_HEADER_BYTES).enumerate().skip(1);
    Ok(candidates.find_map(|(index, header)| {
        let start = at.saturating_add(to_u64(index));
        let header = header.first_chunk()?;
        if !header.starts_with(&MAGIC) && !header.starts_with(&DEAD_MAGIC) {
            return None;
        }
        decode(header, start).filter(|record| record.end() <= length).map(|record| (start, record))
    }))
}

fn decode(header: &[u8; RECORD_HEADER_BYTES], at: u64) -> Option<Record> {
    let (fields, crc) = header.split_last_chunk::<4>()?;
    let (magic, rest) = fields.split_first_chunk::<4>()?;
    let (length, digest) = rest.split_first_chunk::<4>()?;
    let known = *magic == MAGIC || *magic == DEAD_MAGIC;
    let sound = known && crc32c::crc32c(fields) == u32::from_le_bytes(*crc);
    sound.then_some(Record {
        digest: *digest.first_chunk()?,
        offset: at.saturating_add(to_u64(RECORD_HEADER_BYTES)),
        length: u32::from_le_bytes(*length),
        is_dead: *magic == DEAD_MAGIC,
    })
}
