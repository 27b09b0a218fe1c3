//! Takes guards of the ledger out of this process, to see whether the checker of the chaos runs notices.
//!
//! Exists only with the feature `sabotage`, which no default build has. Owns the reading of `PLACET_SABOTAGE` and the warning.

use placet_ledger::sabotage::{Guard, remove};

use crate::{environment::Environment, failure::Failure, output};

/// The variable with the names of the guards, separated by commas.
const VARIABLE: &str = "PLACET_SABOTAGE";

/// Removes the guards that the environment names.
///
/// # Errors
/// [`Failure`] for a name that no guard has.
pub(crate) fn remove_guards(environment: &Environment) -> Result<(), Failure> {
    output::note(
        "WARNING: this build can be sabotaged. It is for testing the tests; never use it for anything else.",
    );
    let Some(names) = environment.get(VARIABLE) else { return Ok(()) };
    for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let guard: Guard = name.parse().map_err(|error| {
            Failure::usage(format!("`{VARIABLE}` cannot be used")).because(error)
        })?;
        remove(guard);
        output::note(format!(
            "WARNING: the guard `{guard}` is OUT: what this process promises does not hold."
        ));
    }
    Ok(())
}
