//! What the composition root configures of the pipeline.
//!
//! Owns the values with their defaults. Does not read them from anywhere.

use std::collections::{BTreeMap, BTreeSet};

use placet_ledger::keys::time_of;
use placet_types::{
    clock::Timestamp,
    error::{ErrorCode, Refusal},
    ids::{ChannelName, IdempotencyKey, TenantId},
};

/// How the pipeline behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Calls admitted at the same time, over all tenants; one more is `OVERLOADED`.
    pub calls_in_flight_max: usize,
    /// Calls admitted at the same time for one tenant.
    pub calls_in_flight_per_tenant_max: usize,
    /// Held calls that one agent may have at the same time; one more is `OVERLOADED`.
    pub held_per_agent_max: usize,
    /// Actors in each pool of a stage.
    pub stage_workers: usize,
    /// Whether a read waits until its audit entry is synced (`audit.reads: durable`).
    pub durable_reads: bool,
    /// How old a live tool list may be for anything but a destructive call, in milliseconds.
    pub live_list_ms_max: u64,
    /// How often the key sets are refreshed, in milliseconds.
    pub identity_refresh_ms: u64,
    /// How long a finished call's answer is kept in memory for `GET /v1/calls/{id}`, in milliseconds.
    pub answers_kept_ms: u64,
    /// How many of them at most.
    pub answers_kept_max: usize,
    /// The group whose members may list the ledger and resolve unknown outcomes.
    pub operators: placet_types::ids::GroupId,
    /// The channels over which callers may ask to be notified, and the tenants whose callers may.
    pub callbacks: BTreeMap<ChannelName, BTreeSet<TenantId>>,
    /// How records are kept, taken over and asked about.
    pub ledger: LedgerSettings,
}

/// How records are kept, taken over and asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerSettings {
    /// How many operators have to agree before a call with an unknown outcome is sent again: 1 or 2.
    pub rearm_people: u8,
    /// How long records are kept.
    pub retention: Retention,
    /// How long a late answer is awaited, in milliseconds.
    pub late_answers_ms: u64,
    /// How many of them at most.
    pub late_answers_max: usize,
    /// How often a node looks for others that have died, and for policies that others activated, in milliseconds.
    pub fleet_every_ms: u64,
    /// How often calls that other nodes work on are looked up, in milliseconds.
    pub poll_ms: u64,
    /// How often adapters are asked about unknown outcomes, in milliseconds.
    pub ask_every_ms: u64,
    /// How many approvals are read at a time; not 0.
    pub approvals_page: usize,
    /// The epoch of the policies that this start may replace by policies that were active before.
    pub rolls_back: Option<u64>,
}

impl Default for LedgerSettings {
    fn default() -> Self {
        Self {
            rearm_people: 2,
            retention: Retention::default(),
            late_answers_ms: 600_000,
            late_answers_max: 256,
            fleet_every_ms: 2_000,
            poll_ms: 200,
            ask_every_ms: 30_000,
            approvals_page: 1_000,
            rolls_back: None,
        }
    }
}

/// A day in milliseconds.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// How long records are kept (decision 27).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// How long results are kept, in milliseconds; after that a tombstone is left.
    pub results_ms: u64,
    /// How long tombstones whose key tells its age are kept, in milliseconds; such a key is refused from then on. May only be lowered: if
    /// it is raised, keys that were already forgotten are accepted again.
    pub tombstones_ms: u64,
    /// What is different for a tenant.
    pub tenants: BTreeMap<TenantId, TenantRetention>,
    /// How often retention runs, in milliseconds.
    pub sweep_every_ms: u64,
    /// How many records are moved in one commit.
    pub batch: usize,
}

/// What is different for a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantRetention {
    /// How long results are kept, in milliseconds.
    pub results_ms: Option<u64>,
    /// How long tombstones are kept whose key tells its age, in milliseconds.
    pub tombstones_ms: Option<u64>,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            results_ms: 30 * DAY_MS,
            tombstones_ms: 400 * DAY_MS,
            tenants: BTreeMap::new(),
            sweep_every_ms: 3_600_000,
            batch: 200,
        }
    }
}

/// How far ahead of the ledger's clock a key may say it was made, in milliseconds.
const AHEAD_MS_MAX: i64 = 24 * 60 * 60 * 1_000;

/// How much longer than its horizon a tombstone is kept, in milliseconds: the settings of nodes may differ for a while.
const MARGIN_MS: i64 = 24 * 60 * 60 * 1_000;

impl Retention {
    /// Why an unknown key is not accepted.
    pub(crate) fn refuse_key(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
        now: Timestamp,
    ) -> Option<Refusal> {
        let made_at = time_of(key)?;
        if made_at < self.keys_since(Some(tenant), now) {
            return Some(Refusal::new(
                ErrorCode::KeyTooOld,
                "the key says that it was made longer ago than the ledger remembers keys; nothing was executed now",
            ));
        }
        (made_at.since_ms(now) > AHEAD_MS_MAX).then(|| {
            Refusal::new(ErrorCode::ValidationError, "the key says that it was made in the future")
                .with_problem("/idempotency_key", "must not be dated more than a day ahead")
        })
    }

    /// The time before which results of a tenant, or of one without a retention of its own, are due at `now`.
    pub(crate) fn results_since(&self, tenant: Option<&TenantId>, now: Timestamp) -> Timestamp {
        let own = tenant.and_then(|tenant| self.tenants.get(tenant)?.results_ms);
        before(now, own.unwrap_or(self.results_ms))
    }

    /// The time before which keys of a tenant, or of one without a retention of its own, are refused at `now`.
    pub(crate) fn keys_since(&self, tenant: Option<&TenantId>, now: Timestamp) -> Timestamp {
        let own = tenant.and_then(|tenant| self.tenants.get(tenant)?.tombstones_ms);
        before(now, own.unwrap_or(self.tombstones_ms))
    }

    /// The time before which keys of `tenant` may be forgotten at `now`.
    pub(crate) fn forgotten_since(&self, tenant: &TenantId, now: Timestamp) -> Timestamp {
        self.keys_since(Some(tenant), now).plus_ms(MARGIN_MS.saturating_neg())
    }

    /// The latest time before which tombstones of any tenant may be due at `now`.
    pub(crate) fn tombstones_due_first(&self, now: Timestamp) -> Timestamp {
        let own = self.tenants.values().filter_map(|own| own.tombstones_ms);
        before(now, own.fold(self.tombstones_ms, u64::min))
    }
}

fn before(now: Timestamp, ms: u64) -> Timestamp {
    now.plus_ms(i64::try_from(ms).unwrap_or(i64::MAX).saturating_neg())
}
