//! Lying stores, adapters and contracts, to see whether the checker of the chaos runs notices.
//!
//! Exists only with the feature `sabotage`, which no default build has, and in unit tests, so that it is linted with everything else. Owns
//! the list of guards that can be taken out, the reading of `PLACET_SABOTAGE`, the warning, and what the composition root wraps.
//! Invariant: nothing behind a wrapper knows of it; every guard breaks its promise as seen from outside.

mod adapter;
mod store;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, OnceLock},
};

use clap::ValueEnum;
use placet_engine::engine::Connectors;
use placet_ledger::store::Store;
use placet_types::contract::{Contract, Dedup};

use self::{adapter::LyingConnector, store::LyingStore};
use crate::{environment::Environment, failure::Failure, output};

/// The variable with the names of the guards, separated by commas.
const VARIABLE: &str = "PLACET_SABOTAGE";
/// How long a target allegedly remembers a call that it does not remember at all, in milliseconds.
const WINDOW_MS: u64 = 3_600_000;

/// What can be taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Guard {
    /// The intent is durable before the adapter is called (T3, I2): the store keeps dispatches in memory.
    DispatchNotDurable,
    /// A duplicate with other arguments gets no result (I5): the store shows each caller the fingerprint of the caller's own call.
    FingerprintUnchecked,
    /// A node that was asked to stop begins nothing more (I8): the store lets dispatches wait, so that a stop overtakes them.
    DispatchAfterStop,
    /// A record is shown only once it is durable (I6): the store shows results before it has written them.
    VisibilityGateOff,
    /// What is said to be kept is kept (I3): the store keeps results in memory only.
    ResultNeverWritten,
    /// An outcome is durable before anybody is told (I6): the store says "kept" before it has written.
    ResultBeforeCommit,
    /// An approval is consumed in the commit of its dispatch (I10): the store makes two commits of it.
    ApprovalOutsideTransaction,
    /// A standing grant is used no more often than it says (I10): the store does not count.
    GrantUsesUncounted,
    /// A permit counts only in its policy epoch (I10): the store does not compare.
    PolicyEpochUnchecked,
    /// An unknown outcome becomes known by evidence only (I9): the adapter says that what the target does not know has happened.
    ProbeGuesses,
    /// What nobody answered may have happened (I12): the adapter says that it did not.
    UnknownNotExecuted,
    /// An opaque call is not sent again by itself (I1): the contract says that its target recognises calls.
    RetryOpaque,
    /// What people have agreed to is taken up and runs (I13): the store shows agreements as open.
    AgreedNotTakenUp,
    /// Only those error answers mean "not executed" that count as the contract says (I1, I12): for the adapter all of them do.
    RefusalUndeclared,
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

static REMOVED: OnceLock<BTreeSet<Guard>> = OnceLock::new();

/// Whether a guard was removed from this process.
fn lacks(guard: Guard) -> bool {
    REMOVED.get().is_some_and(|removed| removed.contains(&guard))
}

/// Removes the guards that the environment names.
pub(crate) fn remove_guards(environment: &Environment) -> Result<(), Failure> {
    output::note(
        "WARNING: this build can be sabotaged. It is for testing the tests; never use it for anything else.",
    );
    let names = environment.get(VARIABLE).unwrap_or_default();
    let removed = guards_of(&names)
        .map_err(|why| Failure::usage(format!("`{VARIABLE}` cannot be used")).because(why))?;
    for guard in REMOVED.get_or_init(|| removed) {
        output::note(format!(
            "WARNING: the guard `{guard}` is OUT: what this process promises does not hold."
        ));
    }
    Ok(())
}

fn guards_of(names: &str) -> Result<BTreeSet<Guard>, String> {
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    names
        .map(|name| {
            Guard::from_str(name, false).map_err(|_unknown| format!("there is no guard `{name}`"))
        })
        .collect()
}

/// The store, wrapped.
pub(crate) fn store(honest: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(LyingStore::over(honest))
}

/// The connectors, wrapped.
pub(crate) fn connectors(honest: Connectors) -> Connectors {
    Connectors {
        internal: Arc::new(LyingConnector::over(honest.internal)),
        mcp: Arc::new(LyingConnector::over(honest.mcp)),
        http: Arc::new(LyingConnector::over(honest.http)),
    }
}

/// The contracts, with lies.
pub(crate) fn contracts(honest: Vec<Arc<Contract>>) -> Vec<Arc<Contract>> {
    if !lacks(Guard::RetryOpaque) {
        return honest;
    }
    let recognised = |contract: Arc<Contract>| {
        let mut contract = Arc::unwrap_or_clone(contract);
        for capability in contract.capabilities.values_mut() {
            if capability.dedup == Dedup::Opaque {
                capability.dedup = Dedup::Keyed { window_ms: WINDOW_MS };
            }
        }
        Arc::new(contract)
    };
    honest.into_iter().map(recognised).collect()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::{Guard, guards_of, lacks};

    #[test]
    fn every_guard_is_found_by_its_name_and_in_place() {
        for guard in Guard::value_variants() {
            assert_eq!(guards_of(&format!(" {guard},")).unwrap(), [*guard].into());
            assert!(!lacks(*guard), "{guard}");
        }
        assert!(guards_of("no-such-guard").is_err());
    }
}
