//! Signed notes: a text with signatures under it, in the form of C2SP signed-note.
//!
//! Owns the form and its limits, and what a name may be. Not here: keys, making and checking signatures (`placet-store`).
//! Invariant: one note has one text form; what parses is printed again byte for byte.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

/// The longest name of a log or key.
pub const NAME_BYTES_MAX: usize = 255;
/// The longest note.
pub const NOTE_BYTES_MAX: usize = 64 << 10;
/// The most signatures under a note.
pub const SIGNATURES_MAX: usize = 16;

const SIGNATURE_MARK: &str = "\u{2014} ";

/// The name of a log (its origin) or of a key: not empty, without white space, control characters and `+`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NoteName(String);

impl NoteName {
    /// Checks a name.
    ///
    /// # Errors
    /// It has a character that a name cannot have, is empty or too long.
    pub fn new(name: impl Into<String>) -> Result<Self, NoteError> {
        let name = name.into();
        let bad = |c: char| c.is_whitespace() || c.is_control() || c == '+';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(bad) {
            return Err(NoteError::Name);
        }
        Ok(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NoteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for NoteName {
    type Err = NoteError;

    fn from_str(name: &str) -> Result<Self, NoteError> {
        Self::new(name)
    }
}

impl TryFrom<String> for NoteName {
    type Error = NoteError;

    fn try_from(name: String) -> Result<Self, NoteError> {
        Self::new(name)
    }
}

impl From<NoteName> for String {
    fn from(name: NoteName) -> Self {
        name.0
    }
}

/// Why a text is not a signed note, or not a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// A name of a log or key is invalid.
    #[error(
        "a name has 1 to {NAME_BYTES_MAX} bytes, without white space, control characters and `+`"
    )]
    Name,
    /// It is longer than a note may be.
    #[error("the note is longer than {NOTE_BYTES_MAX} bytes")]
    TooLong,
    /// It has characters that a note cannot have.
    #[error("the note has control characters")]
    ControlCharacter,
    /// It has no text that ends in a line end.
    #[error("the text of the note is empty or does not end in a line end")]
    Text,
    /// There is no empty line with signatures after it.
    #[error("the note has no signatures")]
    Unsigned,
    /// A signature line is malformed.
    #[error("signature {line} is not of the form `\u{2014} NAME BASE64`")]
    Signature {
        /// Which, from 1.
        line: usize,
    },
    /// It has more signatures than a note may have.
    #[error("the note has more than {SIGNATURES_MAX} signatures")]
    TooManySignatures,
    /// A line of a checkpoint is missing or malformed.
    #[error("the checkpoint has no valid {0}")]
    Checkpoint(&'static str),
}

/// One signature under a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    /// The name of the key.
    pub name: NoteName,
    /// Distinguishes keys of one name: the beginning of a hash over name and key.
    pub key_hash: [u8; 4],
    /// The signature itself.
    pub signature: Vec<u8>,
}

/// A text and the signatures under it, which are not verified here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    text: String,
    signatures: Vec<NoteSignature>,
}

impl SignedNote {
    /// Puts signatures under a text.
    ///
    /// # Errors
    /// The text or the number of signatures is not valid in a note.
    pub fn new(text: impl Into<String>, signatures: Vec<NoteSignature>) -> Result<Self, NoteError> {
        let note = Self { text: text.into(), signatures };
        let written = note.to_string();
        // Read back, so that no note is made that another reader would read differently.
        if Self::parse(&written)? == note { Ok(note) } else { Err(NoteError::Text) }
    }

    /// Reads a note.
    ///
    /// # Errors
    /// [`NoteError`].
    pub fn parse(note: &str) -> Result<Self, NoteError> {
        if note.len() > NOTE_BYTES_MAX {
            return Err(NoteError::TooLong);
        }
        if note.chars().any(|c| c.is_ascii_control() && c != '\n') {
            return Err(NoteError::ControlCharacter);
        }
        let (text, signatures) = note.rsplit_once("\n\n").ok_or(NoteError::Unsigned)?;
        if text.is_empty() {
            return Err(NoteError::Text);
        }
        let signatures = signatures.strip_suffix('\n').ok_or(NoteError::Unsigned)?;
        let signatures =
            (1..).zip(signatures.split('\n')).map(|(line, text)| signature(text, line));
        let signatures: Vec<_> =
            signatures.take(SIGNATURES_MAX.saturating_add(1)).collect::<Result<_, _>>()?;
        if signatures.len() > SIGNATURES_MAX {
            return Err(NoteError::TooManySignatures);
        }
        Ok(Self { text: format!("{text}\n"), signatures })
    }

    /// The text, which is what is signed, including its final line end.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The signatures, in their order.
    pub fn signatures(&self) -> &[NoteSignature] {
        &self.signatures
    }
}

impl fmt::Display for SignedNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        for NoteSignature { name, key_hash, signature } in &self.signatures {
            let bytes = [key_hash.as_slice(), signature].concat();
            writeln!(f, "{SIGNATURE_MARK}{name} {}", BASE64.encode(bytes))?;
        }
        Ok(())
    }
}

fn signature(line: &str, number: usize) -> Result<NoteSignature, NoteError> {
    let malformed = || NoteError::Signature { line: number };
    let rest = line.strip_prefix(SIGNATURE_MARK).ok_or_else(malformed)?;
    let (name, encoded) = rest.split_once(' ').ok_or_else(malformed)?;
    let name = NoteName::new(name).map_err(|_name| malformed())?;
    let bytes = BASE64.decode(encoded).map_err(|_base64| malformed())?;
    let (key_hash, signature) = bytes.split_first_chunk::<4>().ok_or_else(malformed)?;
    if signature.is_empty() {
        return Err(malformed());
    }
    Ok(NoteSignature { name, key_hash: *key_hash, signature: signature.to_vec() })
}
