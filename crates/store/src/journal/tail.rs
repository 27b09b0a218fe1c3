//! What the bytes after the last sound frame of the last segment are: what a crash leaves, or damage.
//!
//! Owns: that one judgement, as a pure function. Not here: reading the bytes, and what is done about them.
//! Invariant: bytes are called torn only if a crash can have left them there *and* no frame in them was known to be durable;
//! everything else is damage. A crash leaves a frame cut short, or (the disk writes sectors in any order) sectors of an
//! unsynced batch that still hold the zeros of the allocation. It never leaves a frame that is whole but wrong.

use super::content::{self, is_begun, whole_contents};
use super::frame::{HEADER_BYTES, MAGIC, decode, decode_header, frame_bytes};
use super::medium::{to_u64, to_usize};

/// The unit that a disk writes as a whole.
const SECTOR_BYTES: u64 = 512;

/// The judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// The end of an append that never became durable: may be cut off.
    Torn,
    /// Bytes that were written whole and are not what they were.
    Damaged,
}

/// Judges `tail`, which begins at `offset` in its file where the frame after `last_seq` must begin and ends with its last
/// byte that is not zero.
pub(crate) fn judge(tail: &[u8], offset: u64, last_seq: u64) -> Tail {
    // Contents precede their entry: whole ones at the end belong to an entry that was cut off.
    let contents = whole_contents(tail);
    let offset = offset.saturating_add(to_u64(contents));
    let tail = tail.get(contents..).unwrap_or_default();
    if tail.is_empty() {
        return Tail::Torn;
    }
    // Everything that follows is part of that content, whatever it looks like.
    if is_begun(tail) {
        return Tail::Torn;
    }
    let later = later_frames(tail, last_seq);
    if later.durable_seq > last_seq {
        return Tail::Damaged;
    }
    let first = later.first_at.unwrap_or(tail.len());
    let lost = tail.get(..first).unwrap_or(tail);
    let cut_short = later.first_at.is_none() && is_cut_short(tail);
    if cut_short || has_lost_sector(lost, offset) { Tail::Torn } else { Tail::Damaged }
}

struct Later {
    first_at: Option<usize>,
    durable_seq: u64,
}

/// Looks for later sound frames with a plausible sequence number, and for what they state to be durable.
fn later_frames(tail: &[u8], last_seq: u64) -> Later {
    let mut later = Later { first_at: None, durable_seq: 0 };
    // A frame takes many bytes, so a sequence number so far ahead cannot be reached within this tail.
    let highest = last_seq.saturating_add(to_u64(tail.len()));
    let starts =
        tail.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| *bytes == MAGIC.as_slice());
    for (at, _) in starts {
        let Ok(frame) = decode(tail.get(at..).unwrap_or_default()) else { continue };
        if frame.seq > last_seq && frame.seq <= highest {
            later.first_at = later.first_at.or(Some(at));
            later.durable_seq = later.durable_seq.max(frame.durable_seq);
        }
    }
    later
}

/// Whether the frame at the start is cut short. A whole frame ends with a mark that is never zero, and a header has its own checksum, so an
/// altered frame is not mistaken for a short one.
fn is_cut_short(tail: &[u8]) -> bool {
    if content::is_cut_short(tail) {
        return true;
    }
    decode_header(tail).map_or(tail.len() < HEADER_BYTES, |(_, payload_bytes)| {
        tail.len() < frame_bytes(payload_bytes)
    })
}

/// Whether a whole sector, or the part of the first one in `bytes`, holds only zeros.
pub(crate) fn has_lost_sector(bytes: &[u8], offset: u64) -> bool {
    let to_boundary = SECTOR_BYTES.saturating_sub(offset.checked_rem(SECTOR_BYTES).unwrap_or(0));
    let (head, rest) = bytes.split_at_checked(to_usize(to_boundary)).unwrap_or((bytes, &[]));
    let whole = rest.chunks_exact(to_usize(SECTOR_BYTES));
    std::iter::once(head)
        .chain(whole)
        .any(|sector| !sector.is_empty() && sector.iter().all(|byte| *byte == 0))
}
