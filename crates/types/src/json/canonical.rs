//! The canonical bytes of a strict value (RFC 8785).
//!
//! Owns the writing of canonical JSON; what may be written was decided by the strict rules before. It is written here rather
//! than taken from a library because it has to be total, and because it must not merge integers that are beyond doubles.
//!
//! Invariant: equal values have equal bytes and different values have different bytes, for every value that
//! [`crate::json::parse_strict`] or [`crate::json::check_value`] returned.

use serde_json::Value;

use super::number;
use crate::digest::Digest;

/// The canonical bytes of a value that went through the strict rules.
///
/// A value that did not is written without loss too, but then its bytes are not those of RFC 8785.
pub fn canonical_bytes(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_value(value, &mut out);
    out
}

/// The digest of the canonical bytes.
pub fn canonical_digest(value: &Value) -> Digest {
    Digest::of(&canonical_bytes(value))
}

fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        // The escapes that serde_json writes are those of RFC 8785 §3.2.2.2.
        Value::Null | Value::Bool(_) | Value::String(_) => {
            out.extend_from_slice(value.to_string().as_bytes());
        }
        Value::Number(number) => out.extend_from_slice(number::text(number).as_bytes()),
        Value::Array(elements) => {
            out.push(b'[');
            for (position, element) in elements.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_value(element, out);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            // RFC 8785 §3.2.3: by UTF-16 code units, which differs from the order of the UTF-8 bytes above U+FFFF.
            members.sort_unstable_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push(b'{');
            for (position, (key, member)) in members.into_iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_value(&Value::from(key.as_str()), out);
                out.push(b':');
                write_value(member, out);
            }
            out.push(b'}');
        }
    }
}
