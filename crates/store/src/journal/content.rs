//! Contents: the bytes that entries name by their digest, in the same segment, right before the entry that brought them.
//!
//! Owns the record around a content (the layout stands in the header of the `journal` module), and its place. Not here: which contents
//! are kept, and by whom they are named. A content is outside of the hash chain, so that its bytes can be erased.
//! Invariant: the header of a content verifies, also after its bytes were erased: a segment can always be read to its end.

use placet_types::digest::Digest;
use placet_types::ids::TenantId;
use serde::{Deserialize, Serialize};

use super::error::JournalError;
use super::frame::take;
use super::medium::{to_u64, to_usize};
use super::window::Window;

/// The largest content that is kept.
pub const CONTENT_BYTES_MAX: usize = 16 << 20;

const MAGIC: [u8; 4] = *b"PLJC";
const VERSION: u8 = 1;
/// Bytes before the tenant's name.
const FIXED_BYTES: usize = 48;
/// The longest header.
const HEADER_BYTES_MAX: usize = FIXED_BYTES + 255;

/// A content that is to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Whose it is.
    pub tenant: TenantId,
    /// The SHA-256 of the bytes.
    pub digest: Digest,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Content {
    /// A content of these bytes for a tenant.
    pub fn of(tenant: TenantId, bytes: Vec<u8>) -> Self {
        Self { tenant, digest: Digest::of(&bytes), bytes }
    }

    /// How many bytes it takes in its segment.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.tenant.as_str().len().saturating_add(FIXED_BYTES).saturating_add(self.bytes.len())
    }

    /// Appends its record to `out`; answers the offset of the content's bytes within that record.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let tenant = self.tenant.as_str().as_bytes();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, u8::try_from(tenant.len()).unwrap_or(u8::MAX), 0, 0]);
        out.extend_from_slice(&u32::try_from(self.bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(self.digest.as_bytes());
        let fixed = crc32c::crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&crc32c::crc32c_append(fixed, tenant).to_le_bytes());
        out.extend_from_slice(tenant);
        let body = out.len().saturating_sub(start);
        out.extend_from_slice(&self.bytes);
        body
    }
}

/// Where the bytes of a content are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The number of the segment.
    pub segment: u64,
    /// Where they begin in its file.
    pub offset: u64,
    /// How many there are.
    pub bytes: u32,
}

impl Place {
    /// Where they end.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.bytes))
    }
}

/// A content that is in a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Whose it is.
    pub tenant: TenantId,
    /// The SHA-256 of the bytes, unless they were erased.
    pub digest: Digest,
    /// Where they are.
    pub place: Place,
}

/// The content whose record begins here; `None` where none does, or its header does not verify.
pub(crate) fn content_at(
    window: &mut Window,
    segment: u64,
    offset: u64,
) -> Result<Option<Placed>, JournalError> {
    if window.at(offset, MAGIC.len())? != MAGIC.as_slice() {
        return Ok(None);
    }
    Ok(decode(window.at(offset, HEADER_BYTES_MAX)?, segment, offset))
}

/// How many bytes at the start of `bytes` are whole records of contents.
pub(crate) fn whole_contents(bytes: &[u8]) -> usize {
    let mut end: usize = 0;
    while let Some(placed) = bytes.get(end..).and_then(|rest| decode(rest, 0, 0)) {
        let next = end.saturating_add(to_usize(placed.place.end()));
        if next > bytes.len() {
            break;
        }
        end = next;
    }
    end
}

/// Whether a record of a content begins here whose header verifies.
pub(crate) fn is_begun(bytes: &[u8]) -> bool {
    decode(bytes, 0, 0).is_some()
}

/// Whether a record of a content begins here but its end is missing.
pub(crate) fn is_cut_short(bytes: &[u8]) -> bool {
    let begins = bytes.iter().zip(MAGIC).all(|(found, expected)| *found == expected);
    begins
        && decode(bytes, 0, 0).map_or(bytes.len() < HEADER_BYTES_MAX, |placed| {
            to_usize(placed.place.end()) > bytes.len()
        })
}

fn decode(bytes: &[u8], segment: u64, offset: u64) -> Option<Placed> {
    let (fixed, rest) = bytes.split_first_chunk::<FIXED_BYTES>()?;
    let (fields, crc) = fixed.split_last_chunk::<4>()?;
    let mut fields_left = fields;
    let magic = take::<4>(&mut fields_left)?;
    let [version, tenant_bytes, ..] = take::<4>(&mut fields_left)?;
    let tenant = rest.get(..usize::from(tenant_bytes))?;
    let sum = crc32c::crc32c_append(crc32c::crc32c(fields), tenant);
    if (magic, version, sum) != (MAGIC, VERSION, u32::from_le_bytes(*crc)) {
        return None;
    }
    let bytes = u32::from_le_bytes(take(&mut fields_left)?);
    let digest = Digest::from_bytes(take(&mut fields_left)?);
    let tenant = TenantId::new(std::str::from_utf8(tenant).ok()?).ok()?;
    let header = to_u64(FIXED_BYTES).saturating_add(u64::from(tenant_bytes));
    let place = Place { segment, offset: offset.saturating_add(header), bytes };
    Some(Placed { tenant, digest, place })
}
