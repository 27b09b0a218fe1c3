//! How long the leases of the other nodes have stood still.
//!
//! Owns what this node has observed of them. Not here: fencing a node that fell silent (`node`). Invariants: a lease has stood still for
//! long enough when this process has watched it, without a move, for a third more than its length, by this process's own clock. Time in
//! which nobody could look does not count, so that an outage of the database fences nobody.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Row as _, query};
use tokio::time::Instant;

use super::config::LEASE_MAX;
use super::rows::column;

/// The parts a lease is divided into; one look counts for at most one part. A node renews three times in a lease.
const PARTS: u32 = 3;

/// How many parts a lease has to stand still for. With one more than a lease has, an outage unnoticed by any look, wherever between two
/// looks it was, leaves the owner two consecutive parts, before or after it, in which it could have renewed.
const PARTS_STILL: u32 = 4;

/// What a node has observed of the others' leases.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    leases: HashMap<i64, Sighting>,
    /// When the last look was answered.
    last: Option<Instant>,
}

/// A lease, and for how long it was watched without moving.
#[derive(Debug)]
struct Sighting {
    lease: Lease,
    still: Duration,
}

/// Another node's lease, as stored in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    /// The epoch that holds it.
    pub(super) epoch: i64,
    /// When it ends, in microseconds since 1970: only whether this moves counts, since the database's clock may jump.
    pub(super) until: i64,
    /// How long it is, in milliseconds.
    pub(super) length_ms: i64,
}

impl Lease {
    fn of(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            epoch: row.try_get("epoch")?,
            until: row.try_get("lease_until")?,
            length_ms: row.try_get("lease_ms")?,
        })
    }

    fn part(self) -> Duration {
        let length = u64::try_from(self.length_ms).map_or(LEASE_MAX, Duration::from_millis);
        length.min(LEASE_MAX).checked_div(PARTS).unwrap_or(LEASE_MAX)
    }
}

/// A silent node: its epoch, and the end of its lease as observed.
pub(super) type Silent = (i64, i64);

impl Sightings {
    /// Records a look at the others' leases, asked for and answered at these moments, right after this node renewed its own lease of length
    /// `own`. Time since the last look counts for at most one part of a lease; after a whole lease without a look all watching starts
    /// again.
    pub(super) fn look(
        &mut self,
        seen: &[Lease],
        asked: Instant,
        answered: Instant,
        own: Duration,
    ) {
        let step = self.last.map_or(Duration::ZERO, |last| asked.saturating_duration_since(last));
        self.last = Some(answered);
        if step > own {
            self.leases.clear();
        }
        self.leases.retain(|epoch, _| seen.iter().any(|lease| lease.epoch == *epoch));
        for lease in seen {
            // A lease that is new, or has moved, is watched from now on.
            let known = self.leases.get(&lease.epoch).filter(|known| known.lease == *lease);
            let still = known
                .map_or(Duration::ZERO, |known| known.still.saturating_add(step.min(lease.part())));
            self.leases.insert(lease.epoch, Sighting { lease: *lease, still });
        }
    }

    /// The nodes that fell silent, if the last look is not older than this node's lease.
    pub(super) fn silent(&self, own: Duration) -> Vec<Silent> {
        if self.last.is_none_or(|last| last.elapsed() > own) {
            return Vec::new();
        }
        let is_over =
            |seen: &&Sighting| seen.still >= seen.lease.part().saturating_mul(PARTS_STILL);
        let over = self.leases.values().filter(is_over);
        over.map(|seen| (seen.lease.epoch, seen.lease.until)).collect()
    }
}

/// The leases of the other live nodes.
pub(super) async fn leases(
    connection: &mut PgConnection,
    own: u64,
) -> Result<Vec<Lease>, sqlx::Error> {
    let rows = query(
        "SELECT epoch, (extract(epoch FROM lease_until) * 1000000)::bigint AS lease_until, lease_ms \
         FROM placet.epochs WHERE fenced_by IS NULL AND closed_ms IS NULL AND epoch <> $1",
    )
    .bind(column(own))
    .fetch_all(connection)
    .await?;
    rows.iter().map(Lease::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(9);

    /// A lease of nine seconds.
    fn lease(epoch: i64, until: i64) -> Lease {
        Lease { epoch, until, length_ms: 9_000 }
    }

    /// A look so many milliseconds later; the nodes that are silent then.
    async fn after(sightings: &mut Sightings, ms: u64, seen: &[Lease]) -> Vec<Silent> {
        tokio::time::advance(Duration::from_millis(ms)).await;
        sightings.look(seen, Instant::now(), Instant::now(), LEASE);
        sightings.silent(LEASE)
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_silent_whose_lease_was_watched_for_a_third_more_than_it_is_long() {
        let mut sightings = Sightings::default();
        for (until, ms) in (1..).zip([0, 3_000, 3_000, 3_000]) {
            assert_eq!(after(&mut sightings, ms, &[lease(1, 10), lease(2, until)]).await, []);
        }
        assert_eq!(after(&mut sightings, 2_999, &[lease(1, 10), lease(2, 9)]).await, []);
        assert_eq!(after(&mut sightings, 1, &[lease(1, 10), lease(2, 9)]).await, [(1, 10)]);
        // What was seen is not used for ever, and who is gone from the list is forgotten.
        tokio::time::advance(LEASE).await;
        assert_eq!(sightings.silent(LEASE), [(1, 10)]);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(sightings.silent(LEASE), []);
        assert_eq!(after(&mut sightings, 0, &[]).await, []);
        assert_eq!(after(&mut sightings, 1, &[lease(1, 10)]).await, []);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_could_look_is_not_watched() {
        let mut sightings = Sightings::default();
        for ms in [0, 3_000, 3_000, 3_000] {
            assert_eq!(after(&mut sightings, ms, &[lease(1, 10)]).await, []);
        }
        // Longer than a lease: all is watched again, for just as long.
        for ms in [9_001, 3_000, 3_000, 3_000] {
            assert_eq!(after(&mut sightings, ms, &[lease(1, 10)]).await, []);
        }
        assert_eq!(after(&mut sightings, 3_000, &[lease(1, 10)]).await, [(1, 10)]);
        // Shorter: it counts for no more than a third.
        for (until, ms) in [(20, 1), (20, 8_999), (20, 3_000), (20, 3_000)] {
            assert_eq!(after(&mut sightings, ms, &[lease(1, until)]).await, []);
        }
        assert_eq!(after(&mut sightings, 3_000, &[lease(1, 20)]).await, [(1, 20)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_waited_for_as_long_as_its_own_lease_is() {
        let mut sightings = Sightings::default();
        let seen = [
            Lease { length_ms: 3_000, ..lease(1, 10) },
            Lease { length_ms: 60_000, ..lease(2, 10) },
            Lease { length_ms: i64::MAX, ..lease(3, 10) },
        ];
        assert_eq!(after(&mut sightings, 0, &seen).await, []);
        let (mut first, mut waited_ms) = (HashMap::new(), 0_u64);
        while first.len() < 3 {
            waited_ms = waited_ms.saturating_add(3_000);
            for (epoch, _) in after(&mut sightings, 3_000, &seen).await {
                first.entry(epoch).or_insert(waited_ms);
            }
        }
        // However short its lease is, four looks are needed; however long it says that it is, no lease is longer than ten minutes.
        assert_eq!(first, HashMap::from([(1, 12_000), (2, 81_000), (3, 801_000)]));
    }
}
