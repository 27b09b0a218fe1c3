//! Edits of a document.

use bolero::TypeGenerator;

/// A choice among documents, and what is done to it.
#[derive(Debug, Clone, TypeGenerator)]
pub(crate) struct Input {
    choice: u8,
    edits: Vec<Edit>,
}

/// One change at a place that is counted from the start, modulo the length.
#[derive(Debug, Clone, TypeGenerator)]
enum Edit {
    Set { at: u16, byte: u8 },
    Flip { at: u16, bit: u8 },
    Insert { at: u16, byte: u8 },
    InsertWord { at: u16, word: u8 },
    Delete { at: u16, count: u8 },
    Repeat { at: u16, count: u8, times: u8 },
    Swap { at: u16, with: u16 },
    Cut { at: u16 },
}

/// Words that parsers have an opinion about.
const WORDS: [&str; 24] = [
    "null",
    "true",
    "-0",
    "1e400",
    "9007199254740993",
    "1.0",
    "\\u0000",
    "\\ud800",
    "\u{feff}",
    "\"\"",
    "{}",
    "[]",
    "[[[[[[[[",
    ",,",
    ": ",
    "\n---\n",
    "&a ",
    "*a",
    "!!binary ",
    "<<: ",
    "\n\n",
    "\u{2014} ",
    "..",
    "eyJhbGciOiJub25lIn0",
];
const EDITS_MAX: usize = 12;
const BYTES_MAX: usize = 1 << 16;

impl Input {
    /// One of the documents, edited.
    pub(crate) fn apply<T: AsRef<[u8]>>(&self, documents: &[T]) -> Vec<u8> {
        let mut bytes = documents[usize::from(self.choice) % documents.len()].as_ref().to_vec();
        for edit in self.edits.iter().take(EDITS_MAX) {
            edit.apply(&mut bytes);
            bytes.truncate(BYTES_MAX);
        }
        bytes
    }

    /// A number that the edits do not depend on.
    pub(crate) fn choice(&self) -> u8 {
        self.choice
    }
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        let place = |at: u16| usize::from(at) % length.max(1);
        if length == 0 {
            return;
        }
        match *self {
            Self::Set { at, byte } => bytes[place(at)] = byte,
            Self::Flip { at, bit } => bytes[place(at)] ^= 1_u8.rotate_left(u32::from(bit)),
            Self::Insert { at, byte } => bytes.insert(place(at), byte),
            Self::InsertWord { at, word } => {
                let word = WORDS[usize::from(word) % WORDS.len()].bytes();
                drop(bytes.splice(place(at)..place(at), word));
            }
            Self::Delete { at, count } => {
                let end = place(at).saturating_add(usize::from(count)).min(length);
                drop(bytes.drain(place(at)..end));
            }
            Self::Repeat { at, count, times } => {
                let end = place(at).saturating_add(usize::from(count)).min(length);
                let part = bytes[place(at)..end].repeat(usize::from(times));
                drop(bytes.splice(end..end, part));
            }
            Self::Swap { at, with } => bytes.swap(place(at), place(with)),
            Self::Cut { at } => bytes.truncate(place(at)),
        }
    }
}
