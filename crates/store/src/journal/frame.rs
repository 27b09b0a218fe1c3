//! One frame: its bytes, its checksums, its hash.
//!
//! Owns: encoding and decoding (the layout is in the header of the `journal` module).
//! Not here: a frame's place in the chain (`scan`).
//! Invariant: what decodes was written by `encode`, byte for byte.

use std::ops::Deref;

use placet_ledger::log::LogEntry;
use sha2::{Digest as _, Sha256};

use super::content::Placed;
use super::error::Fault;
use super::medium::to_u64;

/// The largest payload of a frame.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

pub(crate) const MAGIC: [u8; 4] = *b"PLJF";
pub(crate) const VERSION: u8 = 1;
/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 80;
/// Bytes after the payload: checksum and end mark.
pub(crate) const TRAILER_BYTES: usize = 5;
/// Never zero, so that a frame written to its end can be told from one that a crash cut short.
const END_MARK: u8 = 0xED;

/// One entry of the journal, with what came with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The entry. To the journal, its kind and payload are opaque.
    pub entry: LogEntry,
    /// The contents that came with it.
    pub contents: Vec<Placed>,
}

impl Deref for Frame {
    type Target = LogEntry;

    fn deref(&self) -> &LogEntry {
        &self.entry
    }
}

/// Appends the bytes of an entry's frame to `out` and answers the hash that it has by them, whatever it says itself. The caller has
/// checked the payload's length.
pub(crate) fn encode(entry: &LogEntry, out: &mut Vec<u8>) -> [u8; 32] {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, entry.kind, 0, 0]);
    out.extend_from_slice(&u32::try_from(entry.payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&entry.seq.to_le_bytes());
    out.extend_from_slice(&entry.epoch.to_le_bytes());
    out.extend_from_slice(&entry.at_ms.to_le_bytes());
    out.extend_from_slice(&entry.durable_seq.to_le_bytes());
    out.extend_from_slice(&entry.prev);
    let header_crc = crc32c::crc32c(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&header_crc.to_le_bytes());
    out.extend_from_slice(&entry.payload);
    let hashed = out.get(start..).unwrap_or_default();
    let hash = Sha256::digest(hashed).into();
    let crc = crc32c::crc32c(hashed);
    out.extend_from_slice(&crc.to_le_bytes());
    out.push(END_MARK);
    hash
}

/// How many bytes a frame with this payload takes.
pub(crate) fn frame_bytes(payload_bytes: usize) -> usize {
    payload_bytes.saturating_add(HEADER_BYTES).saturating_add(TRAILER_BYTES)
}

/// Reads an entry up to its payload, and the length of the payload that follows.
pub(crate) fn decode_header(bytes: &[u8]) -> Result<(LogEntry, usize), Fault> {
    let too_short = || impossible(to_u64(bytes.len()));
    if *bytes.first_chunk::<4>().ok_or_else(too_short)? != MAGIC {
        return Err(Fault::new("no frame begins here, yet bytes follow"));
    }
    let head = bytes.first_chunk::<HEADER_BYTES>().ok_or_else(too_short)?;
    let mut rest =
        checked(head, &MAGIC).ok_or_else(|| Fault::new("the header's checksum is wrong"))?;
    fields(&mut rest).ok_or_else(too_short)?
}

/// The fields of a header behind its magic; `None` where bytes are missing.
fn fields(rest: &mut &[u8]) -> Option<Result<(LogEntry, usize), Fault>> {
    let [version, kind] = take(rest)?;
    let flags = u16::from_le_bytes(take(rest)?);
    let length = u64::from(u32::from_le_bytes(take(rest)?));
    let entry = LogEntry {
        kind,
        seq: u64::from_le_bytes(take(rest)?),
        epoch: u64::from_le_bytes(take(rest)?),
        at_ms: i64::from_le_bytes(take(rest)?),
        durable_seq: u64::from_le_bytes(take(rest)?),
        prev: take(rest)?,
        hash: [0; 32],
        payload: Vec::new(),
    };
    let payload_bytes = usize::try_from(length).ok().filter(|bytes| *bytes <= PAYLOAD_BYTES_MAX);
    if version != VERSION {
        return Some(Err(Fault::new(format!("unknown frame version {version}"))));
    }
    if flags != 0 {
        return Some(Err(Fault::new(format!("unknown frame flags {flags}"))));
    }
    Some(payload_bytes.map(|bytes| (entry, bytes)).ok_or_else(|| impossible(length)))
}

/// Reads the entry whose frame begins at the first byte; bytes after it are left alone.
pub(crate) fn decode(bytes: &[u8]) -> Result<LogEntry, Fault> {
    let (mut entry, payload_bytes) = decode_header(bytes)?;
    let too_short = || impossible(to_u64(payload_bytes));
    let end = HEADER_BYTES.saturating_add(payload_bytes);
    let (hashed, rest) = bytes.split_at_checked(end).ok_or_else(too_short)?;
    let ([crc @ .., mark], _) = rest.split_first_chunk::<TRAILER_BYTES>().ok_or_else(too_short)?;
    if crc32c::crc32c(hashed) != u32::from_le_bytes(*crc) || *mark != END_MARK {
        return Err(Fault::new("the frame's checksum is wrong"));
    }
    entry.payload = hashed.get(HEADER_BYTES..).unwrap_or_default().to_vec();
    entry.hash = Sha256::digest(hashed).into();
    Ok(entry)
}

fn impossible(bytes: u64) -> Fault {
    Fault::new(format!("a payload of {bytes} bytes is impossible here"))
}

/// What stands between these first bytes and the checksum over both at the end; `None` where either is not as it must be.
pub(crate) fn checked<'a>(bytes: &'a [u8], magic: &[u8]) -> Option<&'a [u8]> {
    let (sealed, crc) = bytes.split_last_chunk::<4>()?;
    let is_sound = crc32c::crc32c(sealed) == u32::from_le_bytes(*crc);
    sealed.strip_prefix(magic).filter(|_| is_sound)
}

/// Takes the next bytes of a fixed-size field.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}
