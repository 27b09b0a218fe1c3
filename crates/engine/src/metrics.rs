//! What the engine counts, in its own terms.
//!
//! Owns the mapping from events of a call to the metrics of `telemetry` (TM-21). Does not name or encode metrics.

use std::time::Duration;

use placet_telemetry::{
    metrics::{Duplicate, Inflight, Metrics},
    trace::Stage,
};
use placet_types::{
    envelope::result::ToolResultEnvelope,
    error::Refusal,
    ids::{AdapterName, CapabilityId},
};

use crate::result::status_of;

/// The metrics of a running engine.
#[derive(Debug, Clone)]
pub(crate) struct EngineMetrics(Metrics);

impl EngineMetrics {
    pub(crate) const fn new(metrics: Metrics) -> Self {
        Self(metrics)
    }

    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.0
    }

    /// A call was executed; `took` excludes the time it was held.
    pub(crate) fn called(&self, result: &ToolResultEnvelope, took: Duration) {
        let Some(id) = &result.capability_id else { return };
        let code = result.error.as_ref().map(|error| error.error_code);
        self.0.record_call(Some(id), result.status, code, took);
        if result.retries > 0 {
            self.0.count_retry(id.adapter().as_str(), id.capability().as_str());
        }
    }

    /// A call was refused; `of` is its operation, where it exists.
    pub(crate) fn refused(&self, of: Option<&CapabilityId>, refusal: &Refusal, took: Duration) {
        self.0.record_call(of, status_of(refusal), Some(refusal.code), took);
    }

    /// Policy denied a call.
    pub(crate) fn denied(&self) {
        self.0.count_permission_violation();
    }

    /// A call has another mode than the one it asked for.
    pub(crate) fn misclassified(&self) {
        self.0.count_mode_misclassified();
    }

    /// Policy decided a call.
    pub(crate) fn decided(&self, took: Duration) {
        self.0.record_decision(took);
    }

    /// The time that a call spent in a stage.
    pub(crate) fn stage(&self, stage: Stage, took: Duration) {
        self.0.record_stage(stage, took);
    }

    /// A call is with its adapter until the guard is dropped.
    pub(crate) fn with_adapter(&self, id: &CapabilityId) -> Inflight {
        self.0.enter_adapter(id.adapter().as_str())
    }

    /// An adapter answered.
    pub(crate) fn adapter_took(&self, id: &CapabilityId, took: Duration) {
        self.0.record_adapter(id.adapter().as_str(), id.capability().as_str(), took);
    }

    /// The outcome of a call became unknown.
    pub(crate) fn indeterminate(&self) {
        self.0.count_indeterminate();
    }

    /// A recorded result was compared with the record before it was replayed.
    pub(crate) fn replay_checked(&self, identical: bool) {
        self.0.count_replay_checked(identical);
    }

    /// A key was repeated.
    pub(crate) fn duplicate(&self, what: Duplicate) {
        self.0.count_duplicate(what);
    }

    /// A standing grant was used.
    pub(crate) fn grant_used(&self) {
        self.0.count_grant_used();
    }

    /// A credential was `minted` or `reused` for a call, or `refused`.
    pub(crate) fn credential(&self, what: &'static str) {
        self.0.count_credential(what);
    }

    /// An actor was restarted; workers count under their stage.
    pub(crate) fn restarted(&self, path: &str) {
        let role = path.trim_start_matches("root/");
        let role = role.trim_end_matches(|c: char| c.is_ascii_digit() || c == '/');
        self.0.count_actor_restart(if role.is_empty() { "root" } else { role });
    }

    /// A breaker opened or closed.
    pub(crate) fn breaker(&self, adapter: &AdapterName, open: bool) {
        self.0.set_breaker(adapter.as_str(), open);
    }
}
