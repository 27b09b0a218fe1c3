//! Guards that can be taken out, to see whether the checker of the chaos runs notices.
//!
//! Owns the list of guards and the process-wide switch. Invariant: without the feature `sabotage` [`removed`] is the constant
//! `false`, so a default build has every guard and no way to remove one.

use std::{fmt, str::FromStr};

/// One guard of the ledger's promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Guard {
    /// The intent is durable before the adapter is called (T3, I2).
    DispatchNotDurable,
    /// A duplicate with other arguments gets no result (I5).
    FingerprintUnchecked,
    /// A process that is over writes nothing more (I8).
    FenceIgnored,
    /// A record is shown only once it is durable (I6).
    VisibilityGateOff,
    /// The journal is written before the index (I3).
    IndexWithoutJournal,
    /// An approval is consumed in the commit of its dispatch (I10).
    ApprovalOutsideTransaction,
    /// A standing grant is used no more often than it says (I10).
    GrantUsesUncounted,
    /// A permit counts only in its policy epoch (I10).
    PolicyEpochUnchecked,
    /// Late evidence counts only for the attempt it speaks of (T8).
    LateEvidenceUnmatched,
    /// «Not found» means «did not happen» only once the settle delay is over (T7, I12).
    SettleDelayIgnored,
    /// An opaque call is not sent again by itself (I1).
    RetryOpaque,
    /// An outcome is durable before anybody is told (I6).
    ResultBeforeCommit,
    /// What people have agreed to is taken up and runs (I13).
    AgreedNotTakenUp,
    /// Of the error answers to a call that was sent, only those that count as its contract says mean "not executed" (I1, I12).
    RefusalUndeclared,
}

impl Guard {
    /// Every guard.
    pub const ALL: [Self; 14] = [
        Self::DispatchNotDurable,
        Self::FingerprintUnchecked,
        Self::FenceIgnored,
        Self::VisibilityGateOff,
        Self::IndexWithoutJournal,
        Self::ApprovalOutsideTransaction,
        Self::GrantUsesUncounted,
        Self::PolicyEpochUnchecked,
        Self::LateEvidenceUnmatched,
        Self::SettleDelayIgnored,
        Self::RetryOpaque,
        Self::ResultBeforeCommit,
        Self::AgreedNotTakenUp,
        Self::RefusalUndeclared,
    ];

    /// The name of the build without it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DispatchNotDurable => "dispatch-not-durable",
            Self::FingerprintUnchecked => "fingerprint-unchecked",
            Self::FenceIgnored => "fence-ignored",
            Self::VisibilityGateOff => "visibility-gate-off",
            Self::IndexWithoutJournal => "index-without-journal",
            Self::ApprovalOutsideTransaction => "approval-outside-transaction",
            Self::GrantUsesUncounted => "grant-uses-uncounted",
            Self::PolicyEpochUnchecked => "policy-epoch-unchecked",
            Self::LateEvidenceUnmatched => "late-evidence-unmatched",
            Self::SettleDelayIgnored => "settle-delay-ignored",
            Self::RetryOpaque => "retry-opaque",
            Self::ResultBeforeCommit => "result-before-commit",
            Self::AgreedNotTakenUp => "agreed-not-taken-up",
            Self::RefusalUndeclared => "refusal-undeclared",
        }
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No guard has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no guard `{0}`")]
pub struct UnknownGuard(String);

impl FromStr for Guard {
    type Err = UnknownGuard;

    fn from_str(name: &str) -> Result<Self, UnknownGuard> {
        let found = Self::ALL.into_iter().find(|guard| guard.name() == name);
        found.ok_or_else(|| UnknownGuard(name.to_owned()))
    }
}

#[cfg(feature = "sabotage")]
pub use switched::{remove, removed};

/// Whether a guard was taken out of this process: never, in this build.
#[cfg(not(feature = "sabotage"))]
#[must_use]
pub const fn removed(_guard: Guard) -> bool {
    false
}

#[cfg(feature = "sabotage")]
mod switched {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Guard;

    static REMOVED: AtomicU32 = AtomicU32::new(0);

    const fn bit(guard: Guard) -> u32 {
        match guard {
            Guard::DispatchNotDurable => 1,
            Guard::FingerprintUnchecked => 1 << 1,
            Guard::FenceIgnored => 1 << 2,
            Guard::VisibilityGateOff => 1 << 3,
            Guard::IndexWithoutJournal => 1 << 4,
            Guard::ApprovalOutsideTransaction => 1 << 5,
            Guard::PolicyEpochUnchecked => 1 << 6,
            Guard::LateEvidenceUnmatched => 1 << 7,
            Guard::RetryOpaque => 1 << 8,
            Guard::ResultBeforeCommit => 1 << 9,
            Guard::GrantUsesUncounted => 1 << 10,
            Guard::AgreedNotTakenUp => 1 << 11,
            Guard::SettleDelayIgnored => 1 << 12,
            Guard::RefusalUndeclared => 1 << 13,
        }
    }

    /// Takes a guard out of this process, for good.
    pub fn remove(guard: Guard) {
        REMOVED.fetch_or(bit(guard), Ordering::SeqCst);
    }

    /// Whether a guard was taken out of this process.
    #[must_use]
    pub fn removed(guard: Guard) -> bool {
        REMOVED.load(Ordering::SeqCst) & bit(guard) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Guard, removed};

    #[test]
    fn every_guard_is_found_by_its_name_and_in_place() {
        for guard in Guard::ALL {
            assert_eq!(guard.name().parse::<Guard>().unwrap(), guard);
            assert!(!removed(guard), "{guard}");
        }
        assert!("no-such-guard".parse::<Guard>().is_err());
    }
}
