//! The possible results of a decision.
//!
//! Owns [`Verdict`]. A caller gets a [`Denial`]'s code and nothing else.

use placet_types::{approval::Requirement, error::ErrorCode};

use crate::{
    decision::{Decision, DenialKind, PolicyEffect},
    permit::Permit,
};

/// What happens to a call.
#[derive(Debug)]
#[must_use = "a verdict that is dropped is a call that nobody answers"]
pub enum Verdict {
    /// It may be dispatched, once.
    Permit(Permit),
    /// It waits for people.
    Hold(Hold),
    /// It does not happen.
    Deny(Denial),
}

impl Verdict {
    /// How the verdict came about.
    pub fn decision(&self) -> &Decision {
        match self {
            Self::Permit(permit) => permit.decision(),
            Self::Hold(hold) => &hold.decision,
            Self::Deny(denial) => &denial.decision,
        }
    }
}

/// A call that would be allowed with an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Who has to agree in all, votes already given included.
    pub requirement: Requirement,
    /// How this came about.
    pub decision: Decision,
}

/// A call that does not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The code that the caller gets.
    pub code: ErrorCode,
    /// The kind of reason.
    pub kind: DenialKind,
    /// How this came about; never shown to the caller, but for [`Denial::words_for_agent`].
    pub decision: Decision,
}

impl Denial {
    /// What the policies that refused the call tell the agent, in the order of their ids: the `@reason` of those with
    /// `@tell("agent")`, and every `@feedback`.
    pub fn words_for_agent(&self) -> impl Iterator<Item = &str> {
        let refusing = self.decision.determining.iter();
        let refusing = refusing.filter(|policy| policy.effect == PolicyEffect::Forbid);
        refusing.flat_map(|policy| {
            let reason = policy.reason.as_deref().filter(|_| policy.tells_agent);
            reason.into_iter().chain(policy.feedback.as_deref())
        })
    }
}
