//! Numbers of few bytes, and taking fields from bytes.
//!
//! Not here: the layout they stand in. Invariant: reading never goes past the end; what is cut short is `None`.

/// Appends a number in groups of seven bits, low ones first.
pub(super) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    loop {
        let [low, ..] = (number & 0x7F).to_le_bytes();
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Takes such a number.
pub(super) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number: u64 = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Takes a length and that many bytes.
pub(super) fn take_slice<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// Takes eight bytes as a number.
pub(super) fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*head))
}

/// Takes four bytes as a number.
pub(super) fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*head))
}

/// The checksum of a part of a table: a part of another table, or from another place, does not verify.
pub(super) fn checksum(number: u64, offset: u64, bytes: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&number.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &offset.to_le_bytes()), bytes)
}

/// How many bytes two keys begin with in common.
pub(super) fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
