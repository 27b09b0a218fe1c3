//! How far the periodic rounds have come: over records in a state, and over unknown outcomes.
//!
//! Owns the cursors, so that each round continues where the previous one stopped. In memory only: after a restart each begins at the front.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use placet_ledger::{
    record::{Attempt, EffectRecord},
    store::{EffectQuery, Store, StoreError},
};
use placet_types::{
    clock::Timestamp,
    ids::{RecordId, RecordPlace},
};

use crate::adapters::ports::backoff;

/// For how many unknown outcomes the time of the last question is remembered.
const ASKED_KEPT: usize = 10_000;
/// For how many attempts it is remembered when this process first knew of them; after that the wait begins again.
const KNOWN_KEPT: usize = 100_000;

/// The state of every round.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pub(crate) asked: Asked,
    pub(crate) asking: Cursor,
    pub(crate) overdue: Cursor,
    pub(crate) rearmed: Cursor,
}

/// The cursor over the records in a state: each round continues where the previous one stopped, so that none is left out.
#[derive(Debug, Default)]
pub(crate) struct Cursor(Mutex<Option<Pass>>);

/// A pass over a whole list.
#[derive(Debug, Clone, Copy)]
struct Pass {
    began: Timestamp,
    after: RecordPlace,
}

impl Cursor {
    /// The next records, `limit` at most. After the last that was there when the pass began, the next round begins at the front: what has
    /// come since would keep the oldest ones waiting.
    pub(crate) async fn next(
        &self,
        store: &dyn Store,
        state: &str,
        limit: usize,
    ) -> Result<Vec<EffectRecord>, StoreError> {
        let pass = *self.0.lock();
        let began = pass.map_or_else(|| store.now(), |pass| pass.began);
        let (state, after) = (Some(state.to_owned()), pass.map(|pass| pass.after));
        let page =
            store.effects(&EffectQuery { state, after, limit, ..EffectQuery::default() }).await?;
        let last = page.last().filter(|last| page.len() >= limit && last.updated_at < began);
        *self.0.lock() = last.map(|last| Pass { began, after: last.place() });
        Ok(page)
    }
}

/// When each unknown outcome was last asked about, and how often.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    due: Mutex<HashMap<RecordId, (Instant, u32)>>,
    /// The attempt of each record that this process knows of, and since when.
    known: Mutex<HashMap<RecordId, (u32, Instant)>>,
}

impl Asked {
    /// Whether the record is due; if so, sets when it is due next.
    pub(crate) fn is_due(&self, record_id: RecordId) -> bool {
        let mut asked = self.due.lock();
        if asked.len() >= ASKED_KEPT {
            asked.clear();
        }
        let now = Instant::now();
        let (due, times) = asked.get(&record_id).copied().unwrap_or((now, 0));
        if due > now {
            return false;
        }
        // From half a minute to an hour, whatever the interval of the rounds.
        let pause =
            backoff(times.saturating_add(8)).max(Duration::from_secs(u64::from(times) * 60));
        let pause = pause.min(Duration::from_secs(3_600));
        asked.insert(record_id, (now + pause, times.saturating_add(1)));
        true
    }

    /// How long this process has known of the attempt, by the monotonic clock.
    pub(crate) fn known_for(&self, record_id: RecordId, attempt: &Attempt) -> Duration {
        let mut all = self.known.lock();
        if all.len() >= KNOWN_KEPT {
            all.clear();
        }
        let known = all.entry(record_id).or_insert((attempt.number, Instant::now()));
        if known.0 != attempt.number {
            *known = (attempt.number, Instant::now());
        }
        known.1.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use placet_ledger::{
        record::{EffectState, RECORD_VERSION, dispatch_token},
        store::{Changes, EffectChange},
        testing::{MemoryStore, ready},
    };
    use placet_types::{
        contract::Dedup,
        digest::Digest,
        ids::IdempotencyKey,
        principal::{KeyScope, PrincipalKind},
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_ms(1_790_000_000_000);

    /// Dispatches a call; answers when.
    fn dispatch(store: &MemoryStore, name: &str) -> Timestamp {
        let scope = KeyScope {
            tenant: "acme".parse().unwrap(),
            kind: PrincipalKind::Agent,
            agent: "bot".parse().unwrap(),
            on_behalf_of: None,
            capability: "notes/erase".parse().unwrap(),
        };
        let (key, digest) = (IdempotencyKey::new(name).unwrap(), Digest::of(name.as_bytes()));
        let (record_id, now) = (RecordId::derive(&scope, &key), store.now());
        let claimed = EffectRecord {
            version: RECORD_VERSION,
            record_id,
            call_id: format!("call-{name}").parse().unwrap(),
            scope,
            key,
            run_id: "run".parse().unwrap(),
            requested_digest: digest,
            parked: digest,
            created_at: now,
            updated_at: now,
            rev: 0,
            arm: 1,
            attempts: 0,
            unknown: None,
            state: EffectState::Claimed { epoch: store.epoch() },
        };
        ready(store.claim(claimed.clone())).unwrap();
        let attempt = Attempt {
            number: 1,
            token: dispatch_token(&record_id, 1),
            class: Dedup::Opaque,
            deadline_at: now,
            first_dispatched_at: now,
            after_unknown: false,
            epoch: store.epoch(),
            adopted_by: None,
            decision_id: "dec_1".parse().unwrap(),
            bundle_digest: digest,
            request_digest: digest,
            contract_digest: digest,
            approval_id: None,
            grant: None,
            reserve: None,
        };
        let (attempts, state) = (1, EffectState::Dispatched(attempt));
        let sent = EffectRecord { state, attempts, rev: 1, ..claimed };
        let effects = vec![EffectChange::Put(Box::new(sent))];
        ready(store.commit(Changes { effects, ..Changes::default() })).unwrap();
        now
    }

    #[test]
    fn what_comes_meanwhile_does_not_keep_the_oldest_waiting() {
        let (store, cursor) = (MemoryStore::new(NOW), Cursor::default());
        let mut sent = Vec::new();
        let mut more = |store: &MemoryStore| {
            store.advance_ms(1);
            let name = format!("call-{}", sent.len());
            sent.push(dispatch(store, &name));
            sent.len()
        };
        for _ in 0..5 {
            more(&store);
        }
        store.advance_ms(1);
        let mut first_seen = Vec::new();
        for _ in 0..6 {
            let page = ready(cursor.next(&store, "dispatched", 2)).unwrap();
            first_seen.push(page.first().unwrap().updated_at.since_ms(NOW));
            // As many come as are read.
            more(&store);
            more(&store);
        }
        assert_eq!(first_seen, [1, 3, 5, 1, 3, 5], "each pass ends with what it began with");
    }
}
