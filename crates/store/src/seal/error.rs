//! What can go wrong with keys, checkpoints and receipts.
//!
//! Not here: what is wrong with an exported log (`verify`). Invariant: no message holds a secret.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_ledger::proof::ProofError;
use placet_ledger::proof::note::NoteError;

/// Why something was not signed, or does not verify.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SealError {
    /// The operating system refused an operation.
    #[error("cannot {what} `{}`: {source}", .path.display())]
    Io {
        /// What was attempted, as a verb phrase.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// Others than the owner may read or change the key file.
    #[error("the key file `{}` has mode {mode:03o}: only its owner may have access, as with 600", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is not a key file.
    #[error("`{}` is not a signing key", .path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
    },
    /// The operating system gave no random bytes.
    #[error("no random bytes for a signing key: {0}")]
    Random(String),
    /// The text is not a public key.
    #[error("a public key is written `NAME+HASH+BASE64`")]
    PublicKey,
    /// The text is not a signed checkpoint.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// There is no signature of this key.
    #[error("it is not signed with the key `{key}`")]
    NotSigned {
        /// The name and hash of the key.
        key: String,
    },
    /// It names the key, but the signature is not one of this text with this key.
    #[error("the signature with the key `{key}` is wrong: what was signed is something else")]
    Signature {
        /// The name and hash of the key.
        key: String,
    },
    /// It is about another log.
    #[error("it is about the log `{found}`, not `{expected}`")]
    Log {
        /// The log asked about.
        expected: String,
        /// The log it names.
        found: String,
    },
    /// What should come after an earlier checkpoint does not.
    #[error("the log of {to} entries does not come after that of {from}: {why}")]
    NotAfter {
        /// The size of the earlier checkpoint.
        from: u64,
        /// The size of what should come after it.
        to: u64,
        /// The difference.
        why: String,
    },
    /// A proof does not verify.
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// An entry cannot be exported.
    #[error("it cannot be exported: {0}")]
    Export(&'static str),
    /// The text is not a receipt.
    #[error("it is not a receipt: {0}")]
    Receipt(&'static str),
}

impl SealError {
    /// Puts an operating-system error in words; for `map_err`.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source: Arc::new(source) }
    }
}
