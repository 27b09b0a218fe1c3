//! The evaluation report (TM-21): how the calls of one tenant went in a range of time, by adapter and capability.
//!
//! Owns what is counted and how. Invariant: everything is computed from the audit chain, so that it is the same for either store, for all
//! nodes and after a restart; a report that may lack something says so.

pub(crate) mod scores;

use std::collections::{BTreeMap, HashMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use placet_approvals::timeline::first_at;
use placet_ledger::{
    audit::AuditKind,
    log::{AuditLog, LogEntry},
    refusal::lookup_refusal,
    store::StoreError,
};
use placet_types::{
    clock::Timestamp,
    error::{ErrorCode, Refusal},
    ids::{AdapterName, ApprovalId, CapabilityId, TenantId, ToolCallId},
    mode::ApprovalMode,
};

use crate::{context::Context, views::decisions::CallOutcome};

/// The longest range of a report, in milliseconds: 31 days.
pub const RANGE_MS_MAX: i64 = 31 * 86_400_000;
/// The range of a report that names no beginning, in milliseconds: one day.
pub const RANGE_MS_DEFAULT: i64 = 86_400_000;
/// The most entries of the chain that are read for one report.
const ENTRIES_MAX: u64 = 100_000;
/// How many are read at a time.
const READ: u64 = 512;
/// The name of the adapter and the capability of calls of tools that do not exist.
pub const UNRESOLVED: &str = "unresolved";

/// The range of a report, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReportRange {
    /// Its first moment; absent: a day before its end.
    pub from: Option<Timestamp>,
    /// Its end, which is not in it; absent: now.
    pub to: Option<Timestamp>,
}

/// A report on the calls of a tenant in a time range (TM-21).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReportView {
    /// The start of the range (inclusive).
    pub from: Timestamp,
    /// The end of the range (exclusive).
    pub to: Timestamp,
    /// The number of audit entries that were read.
    pub entries_read: u64,
    /// Whether the report is incomplete: there were more entries than one report reads, or a part of the chain is gone. Use a shorter
    /// range.
    pub incomplete: bool,
    /// The numbers of all calls of the tenant.
    pub total: ReportNumbers,
    /// The same numbers by adapter, in order of name.
    pub adapters: Vec<AdapterRow>,
    /// The same numbers by adapter and capability, in order of name.
    pub rows: Vec<ReportRow>,
}

/// The calls of one adapter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdapterRow {
    /// The name of the adapter; `unresolved` for tools that do not exist.
    pub adapter: String,
    /// The numbers of the adapter.
    pub numbers: ReportNumbers,
}

/// The calls of one capability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReportRow {
    /// The name of the adapter; `unresolved` for tools that do not exist.
    pub adapter: String,
    /// The name of the capability; `unresolved` for tools that do not exist.
    pub capability: String,
    /// The alias that the capability has now (TM-13); absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// The numbers of the capability.
    pub numbers: ReportNumbers,
}

/// The five evaluation metrics and the numbers behind them. A rate is null if it cannot be computed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReportNumbers {
    /// Calls that were refused, held, sent or replayed.
    pub calls: u64,
    /// Calls that were executed and succeeded.
    pub succeeded: u64,
    /// Calls that were executed and failed.
    pub failed: u64,
    /// Calls whose outcome was unknown when they ended.
    pub unknown: u64,
    /// Calls that were sent, but are known to have had no effect.
    pub not_executed: u64,
    /// Calls that were refused before they were sent.
    pub refused: u64,
    /// Success rate: `succeeded` divided by the sum of `succeeded`, `failed` and `unknown`; from 0 to 1.
    pub success_rate: Option<f64>,
    /// Calls that policy decided on.
    pub decided: u64,
    /// Decided calls that requested another approval mode than the one that governed them.
    pub misclassified: u64,
    /// Approval-mode misclassification rate: `misclassified` divided by `decided`; from 0 to 1.
    pub misclassification_rate: Option<f64>,
    /// Calls that policy denied, and calls of tools that the caller does not have.
    pub violations: u64,
    /// Permission-violation rate: `violations` divided by `calls`; from 0 to 1.
    pub violation_rate: Option<f64>,
    /// The number of calls behind the two latencies: those that were sent and answered within the range.
    pub timed: u64,
    /// Mean time from dispatch to the recorded outcome, in milliseconds.
    pub latency_mean_ms: Option<u64>,
    /// 99th percentile of that time, in milliseconds (nearest rank).
    pub latency_p99_ms: Option<u64>,
    /// Repeated calls that got the recorded result.
    pub replayed: u64,
    /// Repeated calls whose recorded result could not be returned unchanged. Each of them is a fault.
    pub replays_differed: u64,
    /// Calls refused because their idempotency key came with other arguments.
    pub conflicts: u64,
    /// Idempotent-replay correctness: `replayed` divided by all repeated calls that had a recorded result; from 0 to 1.
    pub replay_correctness: Option<f64>,
}

/// The report of a tenant.
pub(crate) async fn of(
    context: &Context,
    tenant: &TenantId,
    range: ReportRange,
) -> Result<ReportView, Refusal> {
    let (from, to) = bounds(range, context.ledger.store().now())?;
    let Some(notary) = &context.notary else {
        return Err(Refusal::new(
            ErrorCode::NotFound,
            "this service keeps no audit chain to report on",
        ));
    };
    let mut reading = Reading::new(Some(tenant.clone()), (from, to));
    reading.read(notary.log().as_ref()).await.map_err(|error| lookup_refusal(&error))?;
    let active = context.current.active();
    Ok(reading.view(|id| {
        let target = active.catalog.resolve(tenant, id)?;
        context.aliases.of(&active, &target.capability).map(|alias| alias.name.clone())
    }))
}

fn bounds(range: ReportRange, now: Timestamp) -> Result<(Timestamp, Timestamp), Refusal> {
    let to = range.to.unwrap_or(now);
    let from = range.from.unwrap_or_else(|| to.plus_ms(RANGE_MS_DEFAULT.saturating_neg()));
    let wrong = |pointer: &str, problem: &str| {
        Refusal::new(ErrorCode::ValidationError, "the range of the report is not usable")
            .with_problem(pointer, problem)
    };
    if to <= from {
        return Err(wrong("/to", "must be after `from`"));
    }
    if to.since_ms(from) > RANGE_MS_MAX {
        return Err(wrong("/from", "must be at most 31 days before `to`"));
    }
    Ok((from, to))
}

/// The part of an entry that is read: its events.
#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    audit: Vec<Happened>,
}

/// The part of an event that is read.
#[derive(Deserialize)]
struct Happened {
    kind: AuditKind,
    #[serde(default)]
    tenant: Option<TenantId>,
    #[serde(default)]
    call_id: Option<ToolCallId>,
    #[serde(default)]
    approval_id: Option<ApprovalId>,
    #[serde(default)]
    capability: Option<CapabilityId>,
    #[serde(default)]
    code: Option<ErrorCode>,
    #[serde(default)]
    note: Option<String>,
    #[serde(default)]
    decision: Option<Modes>,
    #[serde(skip)]
    at_ms: i64,
}

/// The part of a policy decision that is read.
#[derive(Deserialize)]
struct Modes {
    mode_requested: Option<ApprovalMode>,
    mode_effective: Option<ApprovalMode>,
}

/// The chain as far as it was read.
struct Reading {
    /// The tenant whose calls are counted; absent: all, the newest first.
    tenant: Option<TenantId>,
    range: (Timestamp, Timestamp),
    happened: Vec<Happened>,
    entries: u64,
    incomplete: bool,
}

impl Reading {
    const fn new(tenant: Option<TenantId>, range: (Timestamp, Timestamp)) -> Self {
        Self { tenant, range, happened: Vec::new(), entries: 0, incomplete: false }
    }

    async fn read(&mut self, log: &dyn AuditLog) -> Result<(), StoreError> {
        let (from, to) = self.range;
        for head in log.heads().await? {
            let name = head.log.as_str();
            let mut next = first_at(log, name, head.size, from).await?;
            let until = first_at(log, name, head.size, to).await?;
            // Scores need recent calls: if there are more entries than are read, the last ones count.
            if self.tenant.is_none() {
                next = next.max(until.saturating_sub(ENTRIES_MAX));
            }
            while next < until {
                let left = ENTRIES_MAX.saturating_sub(self.entries);
                if left == 0 {
                    self.incomplete = true;
                    return Ok(());
                }
                let many = until.saturating_sub(next).min(READ).min(left);
                let entries =
                    log.entries(name, next, usize::try_from(many).unwrap_or(usize::MAX)).await?;
                // A part of the chain that was removed has no entries.
                self.incomplete |= entries.first().is_none_or(|first| first.seq > next);
                let Some(last) = entries.last() else { break };
                next = last.seq.saturating_add(1);
                self.entries = self.entries.saturating_add(many);
                entries.iter().for_each(|entry| self.take(entry));
            }
        }
        Ok(())
    }

    fn take(&mut self, entry: &LogEntry) {
        let (from, to) = self.range;
        if entry.at_ms < from.as_ms() || entry.at_ms >= to.as_ms() {
            return;
        }
        // An entry without events has none to count.
        let Ok(payload) = serde_json::from_slice::<Payload>(&entry.payload) else { return };
        let tenant = self.tenant.as_ref();
        let own = payload
            .audit
            .into_iter()
            .filter(|event| tenant.is_none() || event.tenant.as_ref() == tenant);
        self.happened.extend(own.map(|event| Happened { at_ms: entry.at_ms, ..event }));
    }

    fn count(&mut self) -> Count {
        // Nodes have logs of their own: one may send a call and another settle it.
        self.happened.sort_by_key(|event| event.at_ms);
        let mut count = Count::default();
        for event in &self.happened {
            count.take(event);
        }
        count
    }

    fn view(mut self, alias_of: impl Fn(&CapabilityId) -> Option<String>) -> ReportView {
        let Count { total, adapters, rows, .. } = self.count();
        let named = |name: Option<&str>| name.unwrap_or(UNRESOLVED).to_owned();
        let adapters = adapters.into_iter().map(|(adapter, tally)| AdapterRow {
            adapter: named(adapter.as_ref().map(AdapterName::as_str)),
            numbers: tally.numbers(),
        });
        let rows = rows.into_iter().map(|(capability, tally)| ReportRow {
            adapter: named(capability.as_ref().map(|id| id.adapter().as_str())),
            capability: named(capability.as_ref().map(|id| id.capability().as_str())),
            alias: capability.as_ref().and_then(&alias_of),
            numbers: tally.numbers(),
        });
        let (from, to) = self.range;
        ReportView {
            from,
            to,
            entries_read: self.entries,
            incomplete: self.incomplete,
            total: total.numbers(),
            adapters: adapters.collect(),
            rows: rows.collect(),
        }
    }
}

/// What was counted so far.
#[derive(Default)]
struct Count {
    total: Tally,
    adapters: BTreeMap<Option<AdapterName>, Tally>,
    rows: BTreeMap<Option<CapabilityId>, Tally>,
    seen: HashSet<ToolCallId>,
    decided: HashSet<ToolCallId>,
    refused: HashSet<ToolCallId>,
    sent: HashMap<ToolCallId, i64>,
}

/// What was counted for one capability, for one adapter, or for all.
#[derive(Clone, Default)]
struct Tally {
    numbers: ReportNumbers,
    took_ms: Vec<u64>,
}

/// One of the counts.
type Counter = fn(&mut ReportNumbers) -> &mut u64;

impl Count {
    fn take(&mut self, event: &Happened) {
        let Some(call_id) = &event.call_id else { return };
        let is_of_call = matches!(
            event.kind,
            AuditKind::Refused
                | AuditKind::Security
                | AuditKind::Held
                | AuditKind::Dispatched
                | AuditKind::ReadDispatched
                | AuditKind::Settled
                | AuditKind::ReadSettled
                | AuditKind::Replayed
        );
        // A refusal to an approver is not a call.
        let is_of_approver = event.kind == AuditKind::Security && event.approval_id.is_some();
        if !is_of_call || is_of_approver {
            return;
        }
        let row = self.rows.entry(event.capability.clone()).or_default();
        let adapter = event.capability.as_ref().map(|id| id.adapter().clone());
        let mut tallies = [row, self.adapters.entry(adapter).or_default(), &mut self.total];
        let mut one_more = |counter: Counter| {
            for tally in &mut tallies {
                let count = counter(&mut tally.numbers);
                *count = count.saturating_add(1);
            }
        };
        let is_end = matches!(event.kind, AuditKind::Settled | AuditKind::ReadSettled);
        if !is_end && self.seen.insert(call_id.clone()) {
            one_more(|numbers| &mut numbers.calls);
        }
        if let Some(Modes { mode_requested: Some(requested), mode_effective: Some(effective) }) =
            &event.decision
            && self.decided.insert(call_id.clone())
        {
            one_more(|numbers| &mut numbers.decided);
            if requested != effective {
                one_more(|numbers| &mut numbers.misclassified);
            }
        }
        if is_end {
            one_more(ended(event));
            if let Some(sent_ms) = self.sent.remove(call_id) {
                let took = u64::try_from(event.at_ms.saturating_sub(sent_ms)).unwrap_or(0);
                tallies.iter_mut().for_each(|tally| tally.took_ms.push(took));
            }
        } else if matches!(event.kind, AuditKind::Dispatched | AuditKind::ReadDispatched) {
            self.sent.entry(call_id.clone()).or_insert(event.at_ms);
        } else if event.kind == AuditKind::Replayed {
            one_more(match event.code {
                None => |numbers| &mut numbers.replayed,
                Some(_) => |numbers| &mut numbers.replays_differed,
            });
        } else if let Some(code) = event.code
            && !self.sent.contains_key(call_id)
            && self.refused.insert(call_id.clone())
        {
            one_more(|numbers| &mut numbers.refused);
            // A tool that exists but not for this caller is a violation just like a policy denial.
            let is_outside = code == ErrorCode::ToolNotFound && event.capability.is_some();
            if code == ErrorCode::PolicyDenied || is_outside {
                one_more(|numbers| &mut numbers.violations);
            }
            if code == ErrorCode::IdempotencyConflict {
                one_more(|numbers| &mut numbers.conflicts);
            }
        }
    }
}

/// What the end of an attempt counts as.
fn ended(event: &Happened) -> Counter {
    match CallOutcome::of_event(event.kind, event.note.as_deref(), event.code) {
        Some(CallOutcome::Succeeded) => |numbers| &mut numbers.succeeded,
        Some(CallOutcome::Failed) => |numbers| &mut numbers.failed,
        Some(CallOutcome::Unknown) => |numbers| &mut numbers.unknown,
        Some(CallOutcome::NotExecuted) | None => |numbers| &mut numbers.not_executed,
    }
}

impl Tally {
    /// The counts with their rates.
    fn numbers(mut self) -> ReportNumbers {
        self.took_ms.sort_unstable();
        let numbers = self.numbers;
        let timed = u64::try_from(self.took_ms.len()).unwrap_or(u64::MAX);
        let sum = self.took_ms.iter().fold(0_u64, |sum, took| sum.saturating_add(*took));
        let executed =
            numbers.succeeded.saturating_add(numbers.failed).saturating_add(numbers.unknown);
        let repeated = numbers.replayed.saturating_add(numbers.replays_differed);
        ReportNumbers {
            success_rate: rate(numbers.succeeded, executed),
            misclassification_rate: rate(numbers.misclassified, numbers.decided),
            violation_rate: rate(numbers.violations, numbers.calls),
            timed,
            latency_mean_ms: sum.checked_div(timed),
            latency_p99_ms: p99(&self.took_ms),
            replay_correctness: rate(numbers.replayed, repeated),
            ..numbers
        }
    }
}

/// A share of a whole, from 0 to 1; `None` if the whole is 0.
fn rate(part: u64, whole: u64) -> Option<f64> {
    let of = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    (whole > 0).then(|| of(part) / of(whole))
}

/// The 99th percentile of sorted numbers, by nearest rank.
fn p99(sorted: &[u64]) -> Option<u64> {
    let rank = sorted.len().saturating_mul(99).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests;
