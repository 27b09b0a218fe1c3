//! Asking about tokens: tools whose target can say whether an effect happened.
//!
//! Owns the order of probes. A target may answer «not found» for a finished call until the settle delay has passed, and not after.

use super::{Called, Run, SETTLE_WAIT_MS_MAX, Standing};
use crate::outcome::{Answer, Probe};

pub(super) const NO_EFFECT: &str = "asking has no effect";
const STRANGE: &str = "a token that was never sent is not found";
const UNSENT: &str = "the token of a call that was not sent is not found";
const COMMITTED: &str = "the token of a finished call is committed";
const RESULT: &str = "the probe tells the result that the call was answered with";
/// The longest pause between two questions, in milliseconds.
const PAUSE_MS_MAX: u64 = 2_000;

pub(super) async fn queryable(run: &mut Run<'_>, settle_delay_ms: u64) {
    let before = run.baseline().await;
    strangers(run).await;
    if before.is_some() {
        run.counts(NO_EFFECT, before, 0).await;
    }
    let Some(unsent) = run.without_time().await else { return };
    let probe = run.probe(&unsent).await;
    run.judge(UNSENT, matches!(probe, Probe::NotFound), named(&probe));
    let Some(called) = run.done("it can be called", "one").await else { return };
    run.note("it can be called", Standing::Passed, "it was done");
    committed(run, &called, settle_delay_ms).await;
    strangers(run).await;
    run.counts("one call and every question have one effect", before, 1).await;
}

/// Probes twice for the same unknown token: a probe that records tokens gives itself away.
pub(super) async fn strangers(run: &mut Run<'_>) {
    let token = run.bench.strange_token();
    let (first, second) = (run.probe(&token).await, run.probe(&token).await);
    let both = matches!((&first, &second), (Probe::NotFound, Probe::NotFound));
    run.judge(STRANGE, both, format!("asked twice: {}, {}", named(&first), named(&second)));
}

/// Asks about a finished call until its target has to know it.
pub(super) async fn committed(run: &mut Run<'_>, called: &Called, settle_delay_ms: u64) {
    let wait_ms = settle_delay_ms.min(SETTLE_WAIT_MS_MAX);
    let until = called.deadline_ms.saturating_add(wait_ms);
    let mut pause_ms = 50;
    let mut probe = run.probe(&called.token).await;
    while matches!(probe, Probe::NotFound) && run.bench.elapsed_ms() < until {
        run.bench.pause(pause_ms).await;
        pause_ms = pause_ms.saturating_mul(2).min(PAUSE_MS_MAX);
        probe = run.probe(&called.token).await;
    }
    match &probe {
        Probe::Committed(told) => {
            run.note(COMMITTED, Standing::Passed, "committed");
            compare(run, &called.answer, told);
        }
        Probe::NotFound if wait_ms < settle_delay_ms => run.note(
            COMMITTED,
            Standing::NotChecked,
            format!("not found yet; only {wait_ms} ms of the settle delay were waited for"),
        ),
        Probe::NotFound => run.note(
            COMMITTED,
            Standing::Failed,
            "not found, with the settle delay over: after a crash the effect would be done again",
        ),
        Probe::Unknown => run.note(COMMITTED, Standing::Failed, "the target cannot say"),
    }
}

fn compare(run: &mut Run<'_>, answered: &Answer, told: &Answer) {
    // A compiled-in adapter has no plan, and always tells the result.
    let tells = run.capability.probe().is_none_or(|plan| plan.result.is_some());
    if !tells {
        let why = "the contract does not say where the result is: `dedup.probe.result`";
        return run.note(RESULT, Standing::NotChecked, why);
    }
    let structured = |answer: &Answer| answer.output.get("structured").cloned();
    // If the probe returns the structured content only, that is compared.
    let same = answered.output == told.output
        || (told.output.get("content").is_none() && structured(told) == structured(answered));
    let seen = if same { "both are equal" } else { "the two differ" };
    run.judge(RESULT, same, seen);
}

fn named(probe: &Probe) -> &'static str {
    match probe {
        Probe::Committed(_) => "committed",
        Probe::NotFound => "not found",
        Probe::Unknown => "cannot say",
    }
}
