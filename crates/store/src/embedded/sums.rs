//! What a start knows the keys of the state by: how many there are, and a sum over them.
//!
//! Owns the sum. Not here: who keeps it up to date, and what follows when it is another one (`tree`, `open`).

use sled::Db;

use super::codec::decode_value;
use super::fresh::{Fresh, Pairs, Span};
use super::keys;
use super::tree::Order;

/// The keys of a part of the tree.
#[derive(Default)]
pub(super) struct Found {
    pub(super) count: u64,
    pub(super) sum: u64,
}

/// Count and sum of the keys in these parts; `None`: a value does not verify.
pub(super) fn sum_of(
    db: &Db,
    fresh: &Fresh,
    parts: impl Iterator<Item = Span>,
) -> sled::Result<Option<Found>> {
    let mut found = Found::default();
    for part in parts {
        for pair in Pairs::new(db, fresh, part, Order::Ascending) {
            let (key, value) = pair?;
            if key.as_ref() == keys::META {
                continue;
            }
            if keys::is_record(&key) && decode_value(&key, &value).is_none() {
                return Ok(None);
            }
            found.count = found.count.wrapping_add(1);
            found.sum = found.sum.wrapping_add(hash_of(&key, &value));
        }
    }
    Ok(Some(found))
}

/// What a key and its value contribute to the sum.
pub(super) fn hash_of(key: &[u8], value: &[u8]) -> u64 {
    // Two checksums of different beginnings, so that a pair is known by 64 bits.
    let low = crc32c::crc32c_append(crc32c::crc32c(key), value);
    let high = crc32c::crc32c_append(crc32c::crc32c(value), key);
    u64::from(high).wrapping_shl(32) | u64::from(low)
}
