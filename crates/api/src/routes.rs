//! The handlers, by what they are about.
//!
//! Own what each route takes and gives. Every extractor after the caller runs only once the caller is verified (`router`).

use crate::query::Params;

pub(crate) mod about;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod calls;
pub(crate) mod credentials;
pub(crate) mod decisions;
pub(crate) mod directives;
pub(crate) mod inbox;
pub(crate) mod ledger;
pub(crate) mod report;
pub(crate) mod status;
pub(crate) mod tools;

/// What to send as `after` for the page behind a full one.
fn next_after<T, I>(page: &[T], limit: usize, id: impl Fn(&T) -> I) -> Option<I> {
    page.last().filter(|_| page.len() >= limit).map(id)
}

/// What the parameter `name` filters by, if it is one of those that exist.
fn one_of(
    params: &mut Params,
    name: &str,
    known: &[&str],
) -> Result<Option<String>, crate::problem::Failure> {
    match params.text(name) {
        Some(value) if !known.contains(&value.as_str()) => {
            let list = known.join("`, `");
            Err(crate::problem::Failure::malformed(format!("`{name}` must be one of `{list}`")))
        }
        known => Ok(known),
    }
}
