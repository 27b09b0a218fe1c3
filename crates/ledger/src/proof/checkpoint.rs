//! Checkpoints: the state of a log at one moment, as a text to be signed, in the form of C2SP tlog-checkpoint.
//!
//! ```text
//! placet.example/journal            the log
//! 41                                how many entries
//! 3f1c…=                            root of the tree, base64
//! chain 9b0e…                       chain hash of the last entry, hexadecimal
//! epoch 3                           epoch of the process that says so
//! at 1800000000000                  when, milliseconds since 1970
//! ```
//!
//! Owns the text. Not here: the signature (`placet-store`), the note around it ([`super::note`]). Invariant: one checkpoint has one text; a
//! number or hash in another spelling is refused. Lines after these are left to later versions and ignored.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;

use super::TreeHead;
use super::note::{NoteError, NoteName};

/// The state of a log at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log.
    pub origin: NoteName,
    /// How many entries it had, and the root over them.
    pub head: TreeHead,
    /// The chain hash of the last entry; zeros in an empty log.
    pub chain: [u8; 32],
    /// The epoch of the process that made it; not before that of the last entry.
    pub epoch: u64,
    /// When it was made.
    pub at: Timestamp,
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.origin)?;
        writeln!(f, "{}", self.head.size)?;
        writeln!(f, "{}", BASE64.encode(self.head.root.as_bytes()))?;
        writeln!(f, "chain {}", hex::encode(self.chain))?;
        writeln!(f, "epoch {}", self.epoch)?;
        writeln!(f, "at {}", self.at.as_ms())
    }
}

impl FromStr for Checkpoint {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let body = text.strip_suffix('\n').ok_or(NoteError::Text)?;
        let mut lines = body.split('\n');
        let mut line = |what| lines.next().ok_or(NoteError::Checkpoint(what));
        let origin = NoteName::new(line("origin")?)?;
        let size = number(line("size")?, "size")?;
        let root = root(line("root")?).ok_or(NoteError::Checkpoint("root"))?;
        let chain = value(line("chain hash")?, "chain ").and_then(chain);
        let chain = chain.ok_or(NoteError::Checkpoint("chain hash"))?;
        let epoch = value(line("epoch")?, "epoch ").ok_or(NoteError::Checkpoint("epoch"))?;
        let epoch = number(epoch, "epoch")?;
        let at = value(line("time")?, "at ").ok_or(NoteError::Checkpoint("time"))?;
        let at = Timestamp::from_ms(number(at, "time")?);
        if lines.any(str::is_empty) {
            return Err(NoteError::Checkpoint("line after the time"));
        }
        Ok(Self { origin, head: TreeHead { size, root }, chain, epoch, at })
    }
}

fn value<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.strip_prefix(name)
}

/// A number in its only valid spelling: no sign unless negative, no leading zeros.
fn number<N: FromStr + ToString>(text: &str, what: &'static str) -> Result<N, NoteError> {
    let number = text.parse::<N>().ok().filter(|number| number.to_string() == text);
    number.ok_or(NoteError::Checkpoint(what))
}

fn root(text: &str) -> Option<Digest> {
    let bytes: [u8; 32] = BASE64.decode(text).ok()?.try_into().ok()?;
    Some(Digest::from_bytes(bytes))
}

fn chain(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    (hex::encode(bytes) == text).then_some(bytes)
}
