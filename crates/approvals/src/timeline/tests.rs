//! What of a long log is read for a timeline, and whether the timeline says so.

use async_trait::async_trait;
use serde_json::json;

use placet_ledger::{audit::AuditKind, log::TreeHead};
use placet_types::ids::RecordId;

use super::*;

/// A log with an entry in every millisecond, some of which are of the call; the first ones are not there any more.
struct Long {
    size: u64,
    gone: u64,
    ours: BTreeSet<u64>,
}

fn our_call() -> ToolCallId {
    ToolCallId::new("call_1").unwrap()
}

#[async_trait]
impl AuditLog for Long {
    async fn heads(&self) -> Result<Vec<TreeHead>, StoreError> {
        Ok(vec![TreeHead {
            log: "journal".to_owned(),
            size: self.size,
            root: [0; 32],
            head: [0; 32],
            epoch: 1,
            at: Timestamp::from_ms(0),
        }])
    }

    async fn entries(&self, _: &str, from: u64, most: usize) -> Result<Vec<LogEntry>, StoreError> {
        let entry = |seq: u64| {
            let mut event = AuditEvent::new(AuditKind::Security);
            event.call_id = self.ours.contains(&seq).then(our_call);
            LogEntry {
                seq,
                epoch: 1,
                at_ms: i64::try_from(seq).unwrap(),
                kind: 0,
                durable_seq: 0,
                prev: [0; 32],
                payload: json!({ "audit": [event] }).to_string().into_bytes(),
                hash: [0; 32],
            }
        };
        let first = from.max(self.gone.saturating_add(1));
        Ok((first..=self.size).take(most).map(entry).collect())
    }

    async fn entry_of(&self, _: RecordId) -> Result<Option<(String, u64)>, StoreError> {
        Ok(None)
    }

    async fn inclusion(&self, _: &str, _: u64, _: u64) -> Result<Vec<[u8; 32]>, StoreError> {
        Ok(Vec::new())
    }

    async fn consistency(&self, _: &str, _: u64, _: u64) -> Result<Vec<[u8; 32]>, StoreError> {
        Ok(Vec::new())
    }
}

/// The places that were found, and whether there may be others.
async fn found(log: Long, moments: &[u64]) -> (Vec<u64>, bool) {
    let moments: Vec<Timestamp> =
        moments.iter().map(|at| Timestamp::from_ms(i64::try_from(*at).unwrap())).collect();
    let traced = Traced { record: None, approval: None };
    let call_id = our_call();
    let search = Search { log: &log, call_id: &call_id, traced: &traced };
    let timeline = search.timeline(&moments).await.unwrap();
    (timeline.steps.iter().map(|step| step.seq).collect(), timeline.incomplete)
}

#[tokio::test]
async fn a_timeline_that_was_read_in_full_does_not_say_otherwise() {
    let log = Long { size: 8_000, gone: 0, ours: [10, 4_000, 7_999].into() };
    assert_eq!(found(log, &[10, 7_999]).await, (vec![10, 4_000, 7_999], false));
}

#[tokio::test]
async fn a_timeline_that_may_lack_steps_says_so() {
    let log = || Long { size: 30_000, gone: 0, ours: [10, 9_000, 15_000, 19_999].into() };
    assert_eq!(found(log(), &[10, 15_000, 19_999]).await, (vec![10, 15_000, 19_999], true));
    // What was taken away cannot be read either.
    let log = Long { size: 1_000, gone: 50, ours: [40, 60].into() };
    assert_eq!(found(log, &[10, 900]).await, (vec![60], true));
}

#[tokio::test]
async fn of_too_many_moments_the_last_ones_and_the_first_are_looked_for() {
    let moments: Vec<u64> = (1..=80).map(|number| number * 1_000).collect();
    let log = Long { size: 100_000, gone: 0, ours: moments.iter().copied().collect() };
    let (found, incomplete) = found(log, &moments).await;
    assert!(incomplete);
    assert_eq!(found.len(), MOMENTS_MAX + 1);
    assert_eq!((found[0], found[1]), (1_000, 17_000));
    assert_eq!(found.last(), Some(&80_000));
}
