//! What the composition root decides about the pipeline.
//!
//! Owns the values with their defaults. Does not read them from anywhere.

use placet_types::ids::EnvironmentName;

/// How the pipeline behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The environment this process serves.
    pub environment: EnvironmentName,
    /// Calls admitted at the same time, over all tenants; one more is `OVERLOADED`.
    pub calls_in_flight_max: usize,
    /// Calls admitted at the same time for one tenant.
    pub calls_in_flight_per_tenant_max: usize,
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
    /// The group whose people may list the ledger and resolve unknown outcomes.
    pub operators: placet_types::ids::GroupId,
}
