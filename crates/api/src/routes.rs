//! The handlers, by what they are about.
//!
//! Own what each route takes and gives. Every extractor after the caller runs only once the caller is verified (`router`).

pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod calls;
pub(crate) mod directives;
pub(crate) mod ledger;
pub(crate) mod reports;
pub(crate) mod runs;
pub(crate) mod service;
pub(crate) mod sessions;

/// What to send as `after` for the page behind a full one.
fn next_after<T, I>(page: &[T], limit: usize, id: impl Fn(&T) -> I) -> Option<I> {
    page.last().filter(|_| page.len() >= limit).map(id)
}
