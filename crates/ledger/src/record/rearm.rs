//! How an unknown outcome ends: by evidence, or by operators who have the call sent again.
//!
//! Owns these types. Invariant I9: an unknown outcome leaves its state only with a resolution or a re-arm on the record.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use placet_types::envelope::proposal::Rearm;
use placet_types::{digest::Digest, ids::PrincipalId};

use super::Attempt;

/// What resolved an unknown outcome (T8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case", deny_unknown_fields)]
pub enum Resolution {
    /// The adapter answered late.
    LateAnswer {
        /// The attempt that was answered; only that of the record counts.
        attempt: u32,
    },
    /// The adapter was asked.
    Probe {
        /// The attempt that was asked about.
        attempt: u32,
    },
    /// An operator checked.
    Operator {
        /// Who.
        operator: PrincipalId,
    },
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LateAnswer { attempt } => write!(f, "late_answer attempt {attempt}"),
            Self::Probe { attempt } => write!(f, "probe attempt {attempt}"),
            Self::Operator { operator } => write!(f, "operator {operator}"),
        }
    }
}

impl Resolution {
    /// The attempt it is about; an operator's word is about all of them.
    pub const fn attempt(&self) -> Option<u32> {
        match self {
            Self::LateAnswer { attempt } | Self::Probe { attempt } => Some(*attempt),
            Self::Operator { .. } => None,
        }
    }
}

/// An attempt with an unknown outcome, kept while another arm is in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unknown {
    /// The attempt.
    pub attempt: Attempt,
    /// Why it is unknown.
    pub reason: String,
    /// The content digest of the result envelope that says so.
    pub result: Digest,
}
