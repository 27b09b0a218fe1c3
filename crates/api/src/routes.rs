//! The handlers, by subject.
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

use placet_types::error::{ErrorCode, Refusal};

use crate::{problem::Failure, query::WAIT_MS_MAX};

/// What to send as `after` for the page behind a full one.
fn next_after<T, I>(page: &[T], limit: usize, id: impl Fn(&T) -> I) -> Option<I> {
    page.last().filter(|_| page.len() >= limit).map(id)
}

/// How long a request waits for people, if its body asks for that.
fn wait_ms(said: Option<u64>) -> Result<u64, Failure> {
    let wait_ms = said.unwrap_or_default();
    if wait_ms <= WAIT_MS_MAX {
        return Ok(wait_ms);
    }
    let refusal = Refusal::new(ErrorCode::ValidationError, "`wait_ms` is too large");
    Err(Failure::new(refusal.with_problem("/wait_ms", format!("at most {WAIT_MS_MAX}"))))
}
