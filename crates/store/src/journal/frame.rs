//! One frame: its bytes, its checksums, its hash.
//!
//! Owns: encoding and decoding (the layout is in the header of the `journal` module).
//! Not here: a frame's place in the chain (`scan`).
//! Invariant: what decodes was written by `encode`, byte for byte.

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

/// One entry of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its place, from 1, without gaps.
    pub seq: u64,
    /// The epoch of the process that wrote it.
    pub epoch: u64,
    /// When it was appended, in milliseconds since 1970; never before the entry that precedes it.
    pub at_ms: i64,
    /// What kind of record the payload is; opaque to the journal.
    pub kind: u8,
    /// The last entry that was known to be on disk when this one was appended.
    pub durable_seq: u64,
    /// The hash of the entry that precedes it; zeros for the first.
    pub prev: [u8; 32],
    /// The record.
    pub payload: Vec<u8>,
    /// The hash of this entry, which the next one names.
    pub hash: [u8; 32],
    /// The contents that came with it.
    pub contents: Vec<Placed>,
}

impl From<Frame> for LogEntry {
    fn from(frame: Frame) -> Self {
        Self {
            seq: frame.seq,
            epoch: frame.epoch,
            at_ms: frame.at_ms,
            kind: frame.kind,
            durable_seq: frame.durable_seq,
            prev: frame.prev,
            hash: frame.hash,
            payload: frame.payload,
        }
    }
}

/// The fields before the payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    pub(crate) seq: u64,
    pub(crate) epoch: u64,
    pub(crate) at_ms: i64,
    pub(crate) durable_seq: u64,
    pub(crate) prev: [u8; 32],
}

/// Appends the bytes of a frame to `out` and answers its hash. The caller has checked the payload's length.
pub(crate) fn encode(header: &Header, payload: &[u8], out: &mut Vec<u8>) -> [u8; 32] {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, header.kind, 0, 0]);
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&header.seq.to_le_bytes());
    out.extend_from_slice(&header.epoch.to_le_bytes());
    out.extend_from_slice(&header.at_ms.to_le_bytes());
    out.extend_from_slice(&header.durable_seq.to_le_bytes());
    out.extend_from_slice(&header.prev);
    let header_crc = crc32c::crc32c(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&header_crc.to_le_bytes());
    out.extend_from_slice(payload);
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

/// Reads a header and the length of the payload that follows it.
pub(crate) fn decode_header(bytes: &[u8]) -> Result<(Header, usize), Fault> {
    let (whole, checked) =
        bytes.split_first_chunk::<HEADER_BYTES>().map_or((bytes, None), |(head, _)| {
            (
                head.as_slice(),
                head.split_last_chunk::<4>()
                    .map(|(fields, crc)| (fields, u32::from_le_bytes(*crc))),
            )
        });
    let mut rest = whole;
    if take::<4>(&mut rest)? != MAGIC {
        return Err(Fault::Magic);
    }
    let (fields, crc) = checked.ok_or(Fault::Length(to_u64(bytes.len())))?;
    if crc32c::crc32c(fields) != crc {
        return Err(Fault::HeaderChecksum);
    }
    let [version, kind] = take::<2>(&mut rest)?;
    let flags = u16::from_le_bytes(take(&mut rest)?);
    let length = u64::from(u32::from_le_bytes(take(&mut rest)?));
    if version != VERSION {
        return Err(Fault::Version(version));
    }
    if flags != 0 {
        return Err(Fault::Flags(flags));
    }
    let payload_bytes = usize::try_from(length).ok().filter(|bytes| *bytes <= PAYLOAD_BYTES_MAX);
    let payload_bytes = payload_bytes.ok_or(Fault::Length(length))?;
    let header = Header {
        kind,
        seq: u64::from_le_bytes(take(&mut rest)?),
        epoch: u64::from_le_bytes(take(&mut rest)?),
        at_ms: i64::from_le_bytes(take(&mut rest)?),
        durable_seq: u64::from_le_bytes(take(&mut rest)?),
        prev: take(&mut rest)?,
    };
    Ok((header, payload_bytes))
}

/// Reads the frame that begins at the first byte; bytes after it are left alone.
pub(crate) fn decode(bytes: &[u8]) -> Result<Frame, Fault> {
    let (header, payload_bytes) = decode_header(bytes)?;
    let too_short = Fault::Length(to_u64(payload_bytes));
    let (hashed, rest) =
        bytes.split_at_checked(HEADER_BYTES.saturating_add(payload_bytes)).ok_or(too_short)?;
    let ([crc @ .., mark], _) = rest.split_first_chunk::<TRAILER_BYTES>().ok_or(too_short)?;
    if crc32c::crc32c(hashed) != u32::from_le_bytes(*crc) || *mark != END_MARK {
        return Err(Fault::Checksum);
    }
    Ok(Frame {
        seq: header.seq,
        epoch: header.epoch,
        at_ms: header.at_ms,
        kind: header.kind,
        durable_seq: header.durable_seq,
        prev: header.prev,
        payload: hashed.get(HEADER_BYTES..).unwrap_or_default().to_vec(),
        hash: Sha256::digest(hashed).into(),
        contents: Vec::new(),
    })
}

/// Takes the next bytes of a fixed-size field.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Fault> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(Fault::Length(to_u64(bytes.len())))?;
    *bytes = rest;
    Ok(*head)
}
