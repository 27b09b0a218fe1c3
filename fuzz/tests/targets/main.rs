//! Everything that reads bytes from outside, fed with what nobody meant to send.
//!
//! Each target takes a sound document and a list of edits, so that inputs get past the first check, and holds a property besides "it
//! does not panic". `cargo test` tries a bounded number of random edits; `PLACET_FUZZ_SECONDS=3600` tries for so long per target; `cargo
//! bolero test -p placet-fuzz TARGET` is guided by coverage (it needs a nightly compiler and cargo-bolero).

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "the whole program is a test, its helpers too"
)]

mod contracts;
mod edits;
mod journals;
mod json;
mod policies;
mod proofs;
mod tokens;

/// Runs a target over edits of its documents: `ITERATIONS` times, or for as long as the environment says.
macro_rules! fuzz {
    ($iterations:expr, $each:expr) => {{
        let seconds = std::env::var("PLACET_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
        let target = bolero::check!().with_type::<$crate::edits::Input>();
        match seconds {
            Some(seconds) => target
                .with_iterations(usize::MAX)
                .with_test_time(std::time::Duration::from_secs(seconds))
                .for_each($each),
            None => target.with_iterations($iterations).for_each($each),
        }
    }};
}
pub(crate) use fuzz;
