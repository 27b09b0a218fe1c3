//! The handlers, by what they are about.
//!
//! Own what each route takes and gives. Every extractor after the caller runs only once the caller is verified (`router`).

pub(crate) mod about;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod calls;
pub(crate) mod credentials;
pub(crate) mod decisions;
pub(crate) mod desk;
pub(crate) mod inbox;
pub(crate) mod ledger;
pub(crate) mod report;
pub(crate) mod status;
pub(crate) mod tools;

/// What to send as `after` for the page behind a full one.
fn next_after<T, I>(page: &[T], limit: usize, id: impl Fn(&T) -> I) -> Option<I> {
    page.last().filter(|_| page.len() >= limit).map(id)
}

/// A state to filter by, if it is one of those that exist.
fn checked_state(
    state: Option<String>,
    states: &[&str],
) -> Result<Option<String>, crate::problem::Failure> {
    match state {
        Some(state) if !states.contains(&state.as_str()) => {
            let list = states.join("`, `");
            Err(crate::problem::Failure::malformed(format!("`state` must be one of `{list}`")))
        }
        known => Ok(known),
    }
}
