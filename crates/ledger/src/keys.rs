//! Keys that tell their own age.
//!
//! Owns how a time is read from an idempotency key (UUID version 7, RFC 9562 section 5.7; ULID). Invariant: a key in another format has no
//! age, and is then remembered for ever (decision 27).

use placet_types::{clock::Timestamp, ids::IdempotencyKey};

/// Times before 2015 do not count: no such key was made then, and a random text may look like one.
const EARLIEST_MS: u64 = 1_420_070_400_000;
/// Nor do times after 2100.
const LATEST_MS: u64 = 4_102_444_800_000;

/// When the key was made, if it says so.
pub fn time_of(key: &IdempotencyKey) -> Option<Timestamp> {
    let ms = uuid_v7(key.as_str()).or_else(|| ulid(key.as_str()))?;
    if !(EARLIEST_MS..LATEST_MS).contains(&ms) {
        return None;
    }
    i64::try_from(ms).ok().map(Timestamp::from_ms)
}

fn uuid_v7(text: &str) -> Option<u64> {
    let bytes: &[u8; 36] = text.as_bytes().try_into().ok()?;
    let mut ms = 0_u64;
    for (place, byte) in bytes.iter().enumerate() {
        let hyphen = matches!(place, 8 | 13 | 18 | 23);
        if hyphen != (*byte == b'-') {
            return None;
        }
        let fits = match place {
            14 => *byte == b'7',
            19 => matches!(byte.to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b'),
            _ => hyphen || byte.is_ascii_hexdigit(),
        };
        if !fits {
            return None;
        }
        if place < 13 && !hyphen {
            ms = ms.checked_mul(16)?.checked_add(u64::from(char::from(*byte).to_digit(16)?))?;
        }
    }
    Some(ms)
}

fn ulid(text: &str) -> Option<u64> {
    const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let bytes: &[u8; 26] = text.as_bytes().try_into().ok()?;
    let mut ms = 0_u64;
    for (place, byte) in bytes.iter().enumerate() {
        let digit = CROCKFORD.iter().position(|one| *one == byte.to_ascii_uppercase())?;
        if place < 10 {
            ms = ms.checked_mul(32)?.checked_add(u64::try_from(digit).ok()?)?;
        }
    }
    Some(ms)
}

#[cfg(test)]
mod tests {
    use placet_types::ids::IdempotencyKey;

    use super::time_of;

    fn ms(key: &str) -> Option<i64> {
        time_of(&IdempotencyKey::new(key).unwrap()).map(|at| at.as_ms())
    }

    #[test]
    fn uuids_of_version_7_and_ulids_tell_when_they_were_made() {
        // The example of RFC 9562, appendix A.6.
        assert_eq!(ms("017F22E2-79B0-7CC3-98C4-DC0C0C07398F"), Some(1_645_557_742_000));
        assert_eq!(ms("01ARZ3NDEKTSV4RRFFQ69G5FAV"), Some(1_469_922_850_259));
        assert_eq!(ms("01arz3ndektsv4rrffq69g5fav"), Some(1_469_922_850_259));
    }

    #[test]
    fn everything_else_tells_nothing() {
        for key in [
            "017F22E2-79B0-4CC3-98C4-DC0C0C07398F",
            "017F22E2-79B0-7CC3-18C4-DC0C0C07398F",
            "017F22E279B07CC398C4DC0C0C07398F",
            "017F22E2-79B0-7CC3-98C4-DC0C0C07398G",
            "00000000-0000-7CC3-98C4-DC0C0C07398F",
            "ffffffff-ffff-7cc3-98c4-dc0c0c07398f",
            "01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "7ZZZZZZZZZTSV4RRFFQ69G5FAV",
            "order-4711",
        ] {
            assert_eq!(ms(key), None, "{key}");
        }
    }
}
