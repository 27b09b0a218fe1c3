//! How well tools did recently, for aliases that have to be earned (TM-13).
//!
//! Owns the score: at least 20 calls with an outcome in the last seven days, 95 % of which succeeded. Read from the audit chain, like every
//! number of a report; without a chain no tool scores.

use std::{collections::BTreeSet, sync::Arc};

use placet_types::{clock::Timestamp, ids::CapabilityId};

use super::{Count, Reading, Tally};
use crate::{aliases::Scores, context::Context};

/// How far back calls count, in milliseconds.
const SCORED_MS: i64 = 7 * 86_400_000;
/// How many calls it takes.
const CALLS_MIN: u64 = 20;
/// How many of them must have succeeded.
const SUCCESS_RATE_MIN: f64 = 0.95;

/// Scores the tools if something was activated since the last scoring, or if `again` is set.
pub(crate) async fn round(context: &Arc<Context>, again: bool) {
    let active = context.current.active();
    if context.aliases.are_scored(&active, again) {
        return;
    }
    let Some(notary) = &context.notary else { return };
    let now = context.ledger.store().now();
    let mut reading = Reading::new(None, (now.plus_ms(SCORED_MS.saturating_neg()), end()));
    if let Err(error) = reading.read(notary.log().as_ref()).await {
        tracing::warn!(%error, "tools could not be scored, so no alias rests on a score");
        return;
    }
    let good = good(&reading.count());
    context.aliases.score(Scores { epoch: active.policy.epoch(), good });
}

const fn end() -> Timestamp {
    Timestamp::from_ms(i64::MAX)
}

fn good(count: &Count) -> BTreeSet<CapabilityId> {
    let scored = count.rows.iter().filter(|(_, tally)| {
        let numbers = Tally::clone(tally).numbers();
        let ended =
            numbers.succeeded.saturating_add(numbers.failed).saturating_add(numbers.unknown);
        ended >= CALLS_MIN && numbers.success_rate.is_some_and(|rate| rate >= SUCCESS_RATE_MIN)
    });
    scored.filter_map(|(id, _)| id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Happened, Reading};
    use super::*;

    #[test]
    fn a_tool_scores_with_enough_calls_that_went_well() {
        let mut reading = Reading::new(None, (Timestamp::from_ms(0), end()));
        for (tool, well, badly) in [("t/often", 19, 1), ("t/rare", 19, 0), ("t/bad", 40, 3)] {
            for number in 0..well + badly {
                let code = (number >= well).then_some("ADAPTER_FAILED");
                let event = json!({
                    "kind": "read_settled", "tenant": "acme", "call_id": format!("{}{number}", tool.replace('/', "-")), "capability": tool, "code": code,
                });
                reading.happened.push(serde_json::from_value::<Happened>(event).unwrap());
            }
        }
        let names: Vec<String> = good(&reading.count()).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["t/often"]);
    }
}
