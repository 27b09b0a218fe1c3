//! Why a line could not be written.
//!
//! Owns the one distinction that matters: whether the server can have received any of it.

use placet_adapter::outcome::AdapterError;

use super::Fault;

/// Why a line could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StdioFault {
    /// The pipe was closed before the first byte.
    #[error("the pipe to the server is closed")]
    NotWritten,
    /// The pipe broke within it.
    #[error("the pipe to the server broke within a message")]
    PartlyWritten,
}

impl StdioFault {
    /// What it means for the message.
    pub(crate) fn meaning(self) -> Fault {
        match self {
            Self::NotWritten => Fault::Nothing(AdapterError::Unavailable(self.to_string())),
            Self::PartlyWritten => Fault::Perhaps(self.to_string()),
        }
    }
}
