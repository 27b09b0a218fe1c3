//! Strict JSON and its canonical bytes.
//!
//! Owns the only parser for untrusted JSON, the rules about which numbers are accepted, and the canonical form that
//! digests are computed over. It knows nothing of schemas or envelopes.
//!
//! Invariant: two strict values are equal exactly if their canonical bytes are equal, and what a parser elsewhere could read
//! in two ways (duplicate keys, numbers that doubles cannot carry, lone surrogates, bytes after the value) is refused.

mod canonical;
mod number;
mod parser;
#[cfg(test)]
mod tests;

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

pub use self::canonical::{canonical_bytes, canonical_digest};

/// The most bytes of input echoed in a message.
const ECHO_BYTES_MAX: usize = 64;

/// The nesting that no configuration can exceed: code that reads a value may recurse this deep.
const DEPTH_CEILING: usize = 128;

/// The limits of one JSON document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonLimits {
    /// The whole text.
    pub bytes_max: usize,
    /// Nested arrays and objects; 128 at most, whatever is set here.
    pub depth_max: usize,
    /// One string or key, after its escapes are resolved.
    pub string_bytes_max: usize,
    /// Members of one object, elements of one array.
    pub members_max: usize,
    /// Values in the whole document.
    pub nodes_max: usize,
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self {
            bytes_max: 1024 * 1024,
            depth_max: 64,
            string_bytes_max: 1024 * 1024,
            members_max: 10_000,
            nodes_max: 100_000,
        }
    }
}

/// The rule by which a JSON document was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonFault {
    /// It starts with a byte order mark.
    ByteOrderMark,
    /// It is not UTF-8.
    NotUtf8,
    /// It is not JSON.
    Syntax,
    /// Something follows the value.
    TrailingBytes,
    /// An object has a key twice.
    DuplicateKey,
    /// It, or a part of it, is larger than a limit.
    Limit,
    /// A number that programs would read differently.
    Number,
    /// An escape that is half of a character.
    LoneSurrogate,
    /// The JSON is sound, but not of the expected form.
    Shape,
}

/// Why a JSON document was refused.
///
/// A message echoes at most 64 bytes of a piece of input, without control characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", place(pointer))]
pub struct JsonError {
    fault: JsonFault,
    pub(crate) pointer: String,
    pub(crate) problem: String,
}

impl JsonError {
    /// The whole document breaks a rule.
    pub fn new(fault: JsonFault, problem: impl Into<String>) -> Self {
        Self { fault, pointer: String::new(), problem: problem.into() }
    }

    /// The rule.
    pub const fn fault(&self) -> JsonFault {
        self.fault
    }

    /// The place of the problem as RFC 6901 pointer, empty for the whole document; long keys are shortened in it.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// The same problem, seen from the array or object around it.
    fn under(mut self, token: &str) -> Self {
        self.pointer.insert_str(0, &shown_token(token));
        self
    }
}

/// Reads one strict JSON value.
///
/// # Errors
/// If the text is not UTF-8 JSON, is ambiguous, or exceeds a limit.
pub fn parse_strict(bytes: &[u8], limits: &JsonLimits) -> Result<Value, JsonError> {
    check_size(bytes.len(), limits)?;
    if bytes.starts_with(b"\xef\xbb\xbf") {
        let problem = "it starts with a byte order mark, send plain UTF-8";
        return Err(JsonError::new(JsonFault::ByteOrderMark, problem));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let problem = format!("it is not UTF-8 at byte {}", error.valid_up_to());
        JsonError::new(JsonFault::NotUtf8, problem)
    })?;
    parser::parse(text, limits)
}

/// Applies the same rules to a value that something else has built, and returns it in strict form.
///
/// What such a value no longer shows (duplicate keys, the digits a number was written with) is not checked: a double
/// counts as its shortest form.
///
/// # Errors
/// If a number would not survive, or a limit is exceeded.
pub fn check_value(value: &Value, limits: &JsonLimits) -> Result<Value, JsonError> {
    let text = value.to_string();
    check_size(text.len(), limits)?;
    parser::parse(&text, limits)
}

fn check_size(bytes: usize, limits: &JsonLimits) -> Result<(), JsonError> {
    let bytes_max = limits.bytes_max;
    if bytes <= bytes_max {
        return Ok(());
    }
    let problem = format!("it has {bytes} bytes, at most {bytes_max} are accepted");
    Err(JsonError::new(JsonFault::Limit, problem))
}

/// Reads a typed document from a strict value.
///
/// # Errors
/// If the value is not of the expected form; a string in it is never part of the message.
pub fn from_value_strict<T: DeserializeOwned>(value: Value) -> Result<T, JsonError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        use serde_path_to_error::Segment;
        let mut pointer = String::new();
        for segment in error.path() {
            match segment {
                Segment::Seq { index } => pointer.push_str(&shown_token(&index.to_string())),
                Segment::Map { key } => pointer.push_str(&shown_token(key)),
                // A variant's name is already there as a key; an unknown one has no name.
                Segment::Enum { .. } | Segment::Unknown => {}
            }
        }
        let problem = shape_problem(&error.inner().to_string());
        JsonError { fault: JsonFault::Shape, pointer, problem }
    })
}

/// Reads a struct from an object only. Serde also accepts an array of its fields, which no schema of ours allows.
///
/// # Errors
/// If the value is not an object, or not of the expected form.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    struct Object<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_map(Object(PhantomData))
}

/// Whether a value equals its default, so that serde leaves it out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Serde's message, without the values it quotes.
fn shape_problem(message: &str) -> String {
    const EXPECTED_BYTES_MAX: usize = 256;
    if message.starts_with("data did not match any variant of untagged enum") {
        return "has none of the accepted forms".to_owned();
    }
    let (found, expected) =
        match message.rfind(", expected ").and_then(|at| message.split_at_checked(at)) {
            Some((found, expected)) => (found, clip(&in_json(expected), EXPECTED_BYTES_MAX)),
            None => (message, String::new()),
        };
    // Such a message quotes the value.
    if found.starts_with("invalid type: ") || found.starts_with("invalid value: ") {
        let kind = found.split(['"', '`']).next().unwrap_or_default().trim_end();
        return format!("{kind}{expected}");
    }
    format!("{}{expected}", clip(found, ECHO_BYTES_MAX.saturating_mul(2)))
}

/// What serde expected, without the names of types that only this program knows.
fn in_json(expected: &str) -> String {
    let Some(what) = expected.strip_prefix(", expected ") else { return expected.to_owned() };
    let is_one_of = |heads: &[&str]| heads.iter().any(|head| what.starts_with(head));
    let said = match what {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        _ if is_one_of(&["struct ", "internally tagged enum ", "adjacently tagged enum "]) => {
            "an object"
        }
        _ if is_one_of(&["tuple struct ", "tuple variant "]) => "a list",
        _ if is_one_of(&["enum "]) => "one of the known names",
        _ => what,
    };
    format!(", expected {said}")
}

/// A reference token of a pointer with its slash, in full length.
pub fn token(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Whether a text is a pointer (RFC 6901).
pub(crate) fn is_pointer(text: &str) -> bool {
    let escapes = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    escapes && (text.is_empty() || text.starts_with('/'))
}

/// Whether one pointer leads to the same place as the other, or to a place inside it.
pub fn is_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A reference token, shortened for a message.
fn shown_token(name: &str) -> String {
    token(&clip(name, ECHO_BYTES_MAX))
}

/// A pointer in a message.
pub(crate) fn place(pointer: &str) -> String {
    if pointer.is_empty() {
        "the document".to_owned()
    } else {
        format!("`{}`", clip(pointer, ECHO_BYTES_MAX))
    }
}

/// At most `bytes_max` bytes of foreign text, without control characters, so that it cannot fake a line of a log.
pub(crate) fn clip(text: &str, bytes_max: usize) -> String {
    let kept = text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default();
    let mut clipped: String =
        kept.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if kept.len() < text.len() {
        clipped.push('…');
    }
    clipped
}
