//! Strict JSON and its canonical bytes.
//!
//! Owns the only parser that untrusted JSON goes through, the rules of which numbers survive, and the canonical form that
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

/// What one echoed piece of input may take of a message.
const ECHO_BYTES_MAX: usize = 64;

/// Nesting that no configuration can raise: what reads a value may recurse this deep.
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

/// Why a JSON document was refused. A pointer is RFC 6901; the empty one is the whole document.
///
/// A message echoes at most 64 bytes of a piece of input, without control characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is longer than the limit.
    #[error("the document has {bytes} bytes, at most {bytes_max} are accepted")]
    TooLarge {
        /// What was sent.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The text starts with a byte order mark.
    #[error("the document starts with a byte order mark, send plain UTF-8")]
    ByteOrderMark,
    /// The text is not UTF-8.
    #[error("the document is not UTF-8 at byte {offset}")]
    NotUtf8 {
        /// The first byte that is not.
        offset: usize,
    },
    /// The text is not JSON.
    #[error("not JSON in {} at byte {offset}: {expected} expected", place(pointer))]
    Syntax {
        /// The value that was being read.
        pointer: String,
        /// Where in the text.
        offset: usize,
        /// What would have been right there.
        expected: &'static str,
    },
    /// Something follows the value.
    #[error("the value ends at byte {offset}, but more follows")]
    TrailingBytes {
        /// Where the value ended.
        offset: usize,
    },
    /// An object has a key twice.
    #[error("the key {} is there twice, each key may be there once", place(pointer))]
    DuplicateKey {
        /// The member.
        pointer: String,
    },
    /// Arrays and objects are nested too deeply.
    #[error("{} is nested too deeply, at most {depth_max} levels are accepted", place(pointer))]
    TooDeep {
        /// The value that is too deep.
        pointer: String,
        /// The limit.
        depth_max: usize,
    },
    /// A string or key is too long.
    #[error(
        "a string in {} is too long, at most {string_bytes_max} bytes are accepted",
        place(pointer)
    )]
    StringTooLong {
        /// The string, or the object of the key.
        pointer: String,
        /// The limit.
        string_bytes_max: usize,
    },
    /// An array or object has too many members.
    #[error("{} has too many members, at most {members_max} are accepted", place(pointer))]
    TooManyMembers {
        /// The array or object.
        pointer: String,
        /// The limit.
        members_max: usize,
    },
    /// The document has too many values.
    #[error("the document has too many values, at most {nodes_max} are accepted")]
    TooManyNodes {
        /// The limit.
        nodes_max: usize,
    },
    /// A number that programs would read differently.
    #[error("the number `{literal}` in {} cannot be carried exactly: {repair}", place(pointer))]
    Number {
        /// The number.
        pointer: String,
        /// Its text, shortened.
        literal: String,
        /// What to send instead.
        repair: String,
    },
    /// An escape that is half of a character.
    #[error("the escape at byte {offset} in {} is half of a surrogate pair", place(pointer))]
    LoneSurrogate {
        /// The string.
        pointer: String,
        /// Where in the text.
        offset: usize,
    },
    /// The JSON is sound, but not of the expected form.
    #[error("{}: {problem}", place(pointer))]
    Shape {
        /// The value.
        pointer: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl JsonError {
    /// The place of the problem as RFC 6901 pointer, where it has one; long keys are shortened in it.
    pub fn pointer(&self) -> Option<&str> {
        match self {
            Self::Syntax { pointer, .. }
            | Self::DuplicateKey { pointer }
            | Self::TooDeep { pointer, .. }
            | Self::StringTooLong { pointer, .. }
            | Self::TooManyMembers { pointer, .. }
            | Self::Number { pointer, .. }
            | Self::LoneSurrogate { pointer, .. }
            | Self::Shape { pointer, .. } => Some(pointer),
            Self::TooLarge { .. }
            | Self::ByteOrderMark
            | Self::NotUtf8 { .. }
            | Self::TrailingBytes { .. }
            | Self::TooManyNodes { .. } => None,
        }
    }

    /// The same problem, seen from the array or object around it.
    fn under(mut self, token: &str) -> Self {
        match &mut self {
            Self::Syntax { pointer, .. }
            | Self::DuplicateKey { pointer }
            | Self::TooDeep { pointer, .. }
            | Self::StringTooLong { pointer, .. }
            | Self::TooManyMembers { pointer, .. }
            | Self::Number { pointer, .. }
            | Self::LoneSurrogate { pointer, .. }
            | Self::Shape { pointer, .. } => pointer.insert_str(0, &pointer_token(token)),
            Self::TooLarge { .. }
            | Self::ByteOrderMark
            | Self::NotUtf8 { .. }
            | Self::TrailingBytes { .. }
            | Self::TooManyNodes { .. } => {}
        }
        self
    }
}

/// Reads one strict JSON value.
///
/// # Errors
/// If the text is not UTF-8 JSON, is ambiguous, or exceeds a limit.
pub fn parse_strict(bytes: &[u8], limits: &JsonLimits) -> Result<Value, JsonError> {
    if bytes.len() > limits.bytes_max {
        return Err(JsonError::TooLarge { bytes: bytes.len(), bytes_max: limits.bytes_max });
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(JsonError::ByteOrderMark);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => parser::parse(text, limits),
        Err(error) => Err(JsonError::NotUtf8 { offset: error.valid_up_to() }),
    }
}

/// Applies the same rules to a value that something else has built, and returns it in strict form.
///
/// What such a value cannot tell any more (duplicate keys, the digits a number was written with) is not checked: a double
/// counts as its shortest form.
///
/// # Errors
/// If a number would not survive, or a limit is exceeded.
pub fn check_value(value: &Value, limits: &JsonLimits) -> Result<Value, JsonError> {
    let strict = parser::check(value, limits)?;
    let bytes = canonical_bytes(&strict).len();
    if bytes > limits.bytes_max {
        return Err(JsonError::TooLarge { bytes, bytes_max: limits.bytes_max });
    }
    Ok(strict)
}

/// Reads a typed document strictly.
///
/// # Errors
/// As [`parse_strict`], and if the value is not of the expected form.
pub fn from_slice_strict<T: DeserializeOwned>(
    bytes: &[u8],
    limits: &JsonLimits,
) -> Result<T, JsonError> {
    from_value_strict(parse_strict(bytes, limits)?)
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
                Segment::Seq { index } => pointer.push_str(&pointer_token(&index.to_string())),
                Segment::Map { key } => pointer.push_str(&pointer_token(key)),
                // A variant's name is already there as key; what is unknown has no name.
                Segment::Enum { .. } | Segment::Unknown => {}
            }
        }
        JsonError::Shape { pointer, problem: shape_problem(&error.inner().to_string()) }
    })
}

/// Reads a struct from an object and from nothing else. Serde takes an array of its fields for one as well, which no schema of ours says.
///
/// # Errors
/// If the value is no object, or not of the expected form.
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

/// What serde says, without the values it quotes.
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
    for mismatch in ["invalid type: ", "invalid value: "] {
        for kind in ["string", "character", "integer", "floating point", "boolean", "byte array"] {
            if found.strip_prefix(mismatch).is_some_and(|rest| rest.starts_with(kind)) {
                return format!("{mismatch}{kind}{expected}");
            }
        }
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

/// A reference token of a pointer with its slash.
pub(crate) fn pointer_token(token: &str) -> String {
    format!("/{}", clip(token, ECHO_BYTES_MAX).replace('~', "~0").replace('/', "~1"))
}

/// A pointer in a message.
pub(crate) fn place(pointer: &str) -> String {
    if pointer.is_empty() {
        "the document".to_owned()
    } else {
        format!("`{}`", clip(pointer, ECHO_BYTES_MAX))
    }
}

/// At most so many bytes of a text from outside, without control characters, so that it cannot fake a line of a log.
pub(crate) fn clip(text: &str, bytes_max: usize) -> String {
    let kept = text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default();
    let mut clipped: String =
        kept.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if kept.len() < text.len() {
        clipped.push('…');
    }
    clipped
}
