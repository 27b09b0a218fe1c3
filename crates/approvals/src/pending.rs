//! The index of held calls: a summary of each, in memory.
//!
//! Owns the summary of every held call: who is asked, who has decided, when something is due. Holds nothing that the ledger does not; after
//! a restart it is rebuilt. Invariants: a few hundred bytes per held call, and no task or timer of its own; what has ended according to the
//! ledger does not return through an older reading.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    store::ApprovalMark,
};
use placet_types::{
    approval::ApproverGroup,
    clock::Timestamp,
    directory::Directory,
    ids::{ApprovalId, CapabilityId, PrincipalId, TenantId},
    mode::ApprovalMode,
};

use crate::views::ApprovalEventKind;

pub(crate) mod query;

/// How long after a due approval was returned it is returned again if nothing was done, in milliseconds.
const TOLD_AGAIN_MS: i64 = 2_000;
/// How long it is remembered that an approval has ended, in milliseconds: longer than any reading takes.
const OVER_KEPT_MS: i64 = 120_000;
/// For how many decided approvals of a tenant the waiting time is kept.
const DECIDED_KEPT: usize = 1_000;

/// The position of a row: in the order of request.
type Place = (Timestamp, u64);

/// The index.
#[derive(Debug, Default)]
pub struct PendingIndex {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    rows: BTreeMap<Place, Row>,
    by_id: HashMap<Arc<ApprovalId>, Place>,
    due: BTreeSet<(Timestamp, Place)>,
    over: HashSet<Arc<ApprovalId>>,
    over_in_order: VecDeque<(Timestamp, Arc<ApprovalId>)>,
    decided: HashMap<TenantId, VecDeque<u64>>,
    serial: u64,
    sweep: u32,
    pending: usize,
    /// How many rows an agent of a tenant has, including places that are reserved.
    of_agent: HashMap<(TenantId, PrincipalId), usize>,
}

/// A place reserved for a held call of an agent, until its row is here or it is not held after all.
#[derive(Debug)]
pub struct HeldPlace<'a> {
    index: &'a PendingIndex,
    of: (TenantId, PrincipalId),
}

impl Drop for HeldPlace<'_> {
    fn drop(&mut self) {
        self.index.lock().one_less(&self.of);
    }
}

/// One held call.
#[derive(Debug)]
struct Row {
    id: Arc<ApprovalId>,
    /// The tenant and the calling agent.
    agent: (TenantId, PrincipalId),
    capability: CapabilityId,
    user: Option<PrincipalId>,
    owner: Option<PrincipalId>,
    /// The groups that are asked.
    asked: Box<[ApproverGroup]>,
    /// Everyone who has voted, or wrote the arguments: external approvers with their tenant.
    voices: Box<[(Option<TenantId>, PrincipalId)]>,
    expires_at: Timestamp,
    due: Timestamp,
    rev: u64,
    sweep: u32,
    mode: ApprovalMode,
    is_pending: bool,
    votes: usize,
    edits: usize,
    escalated: u32,
}

impl Row {
    fn of(approval: &ApprovalRecord, directory: &Directory, sweep: u32) -> Self {
        let chain = &approval.chain;
        let agent = directory.agent(chain.tenant(), &chain.actor.id);
        let voices = approval.deciders().map(|voice| (voice.tenant.cloned(), voice.person.clone()));
        // The authors of the arguments cannot vote either.
        let authors = approval.authors().map(|author| (None, author.clone()));
        let due = approval.escalation_due().unwrap_or(approval.expires_at);
        Self {
            id: Arc::new(approval.approval_id.clone()),
            agent: (chain.tenant().clone(), chain.actor.id.clone()),
            capability: approval.capability.clone(),
            user: chain.on_behalf_of.as_ref().map(|user| user.id.clone()),
            owner: agent.map(|agent| agent.owner.clone()),
            asked: approval.asked().into_iter().cloned().collect(),
            voices: voices.chain(authors).collect(),
            expires_at: approval.expires_at,
            due: due.min(approval.expires_at),
            rev: approval.rev,
            sweep,
            mode: approval.mode,
            is_pending: approval.state == ApprovalState::Pending,
            votes: approval.votes.len(),
            edits: approval.edits.len(),
            escalated: approval.escalated,
        }
    }

    const fn tenant(&self) -> &TenantId {
        &self.agent.0
    }
}

impl PendingIndex {
    /// Updates the row of an approval; returns the event that this is, if it is news.
    pub fn moved(
        &self,
        approval: &ApprovalRecord,
        directory: &Directory,
        now: Timestamp,
    ) -> Option<ApprovalEventKind> {
        let mut inner = self.lock();
        inner.forget_over(now);
        let before = inner.by_id.get(&approval.approval_id).copied();
        let known = before.and_then(|place| inner.rows.get(&place));
        if known.is_some_and(|row| row.rev >= approval.rev) {
            let sweep = inner.sweep;
            if let Some(row) = before.and_then(|place| inner.rows.get_mut(&place)) {
                row.sweep = sweep;
            }
            return None;
        }
        let news = news_of(known, approval);
        let is_known = known.is_some();
        let open = approval.state.is_open();
        let is_told = inner.over.contains(&approval.approval_id);
        if !open {
            inner.is_over(&approval.approval_id, now);
        }
        if !is_known && (is_told || !open) {
            // Either reported before, or unknown here: an older reading, or an end of an approval without a row.
            return (!open && !is_told).then_some(news);
        }
        if let Some(place) = before {
            inner.remove(place);
        }
        if open {
            let place = before.unwrap_or_else(|| inner.next_place(approval.created_at));
            let row = Row::of(approval, directory, inner.sweep);
            inner.insert(place, row);
        }
        if matches!(news, ApprovalEventKind::Approved | ApprovalEventKind::Denied) {
            inner.was_decided(approval, now);
        }
        Some(news)
    }

    /// The approvals for which something is due at `now`, at most `limit`. Returned again after a while, unless they have moved by then.
    pub fn due(&self, now: Timestamp, limit: usize) -> Vec<ApprovalId> {
        let mut inner = self.lock();
        let Inner { rows, due, .. } = &mut *inner;
        let mut told = Vec::new();
        while let Some((at, place)) = due.first().copied() {
            if at > now || told.len() >= limit {
                break;
            }
            due.remove(&(at, place));
            let Some(row) = rows.get_mut(&place) else { continue };
            row.due = now.plus_ms(TOLD_AGAIN_MS);
            due.insert((row.due, place));
            told.push(row.id.as_ref().clone());
        }
        told
    }

    /// Reserves a place for one more held call of an agent; `None` if it has `most` already. Calls held on other nodes count once they are
    /// known here.
    pub fn place_for(
        &self,
        tenant: &TenantId,
        agent: &PrincipalId,
        most: usize,
    ) -> Option<HeldPlace<'_>> {
        let of = (tenant.clone(), agent.clone());
        let mut inner = self.lock();
        let held = inner.of_agent.entry(of.clone()).or_default();
        if *held >= most {
            return None;
        }
        *held = held.saturating_add(1);
        Some(HeldPlace { index: self, of })
    }

    /// How many approvals are pending.
    pub fn pending(&self) -> usize {
        self.lock().pending
    }

    /// Begins another sweep, after which [`Self::unseen`] returns the rows not seen since.
    pub fn begin_sweep(&self) {
        let mut inner = self.lock();
        inner.sweep = inner.sweep.wrapping_add(1);
    }

    /// Marks these as seen, and returns those that are unknown or outdated here.
    pub fn moved_of(&self, marks: &[ApprovalMark]) -> Vec<ApprovalId> {
        let mut inner = self.lock();
        let Inner { rows, by_id, over, sweep, .. } = &mut *inner;
        let mut moved = Vec::new();
        for ApprovalMark { approval_id, rev } in marks {
            match by_id.get(approval_id).and_then(|place| rows.get_mut(place)) {
                Some(row) if row.rev >= *rev => row.sweep = *sweep,
                // It ended here by a later reading.
                None if over.contains(approval_id) => {}
                Some(_) | None => moved.push(approval_id.clone()),
            }
        }
        moved
    }

    /// Those that the sweep has not seen: they moved without this process. At most `limit`.
    pub fn unseen(&self, limit: usize) -> Vec<ApprovalId> {
        let inner = self.lock();
        let stale = inner.rows.values().filter(|row| row.sweep != inner.sweep);
        stale.take(limit).map(|row| row.id.as_ref().clone()).collect()
    }

    /// The approval no longer exists.
    pub fn forget(&self, approval_id: &ApprovalId) {
        let mut inner = self.lock();
        if let Some(place) = inner.by_id.get(approval_id).copied() {
            inner.remove(place);
        }
    }

    /// The approvals of a capability, of all tenants.
    pub fn of_capability(&self, capability: &CapabilityId) -> Vec<ApprovalId> {
        let inner = self.lock();
        let of = inner.rows.values().filter(|row| row.capability == *capability);
        of.map(|row| row.id.as_ref().clone()).collect()
    }

    /// The capabilities that held calls wait for.
    pub fn capabilities(&self) -> BTreeSet<CapabilityId> {
        self.lock().rows.values().map(|row| row.capability.clone()).collect()
    }

    /// All approvals after `after` in the order of request, at most `limit`, each with its position as a cursor.
    pub(crate) fn page_after(
        &self,
        after: Option<Place>,
        limit: usize,
    ) -> Vec<(Place, ApprovalId)> {
        let inner = self.lock();
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let rows = inner.rows.range((from, std::ops::Bound::Unbounded)).take(limit);
        rows.map(|(place, row)| (*place, row.id.as_ref().clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

/// The event that a newer reading of an approval is.
fn news_of(before: Option<&Row>, approval: &ApprovalRecord) -> ApprovalEventKind {
    match &approval.state {
        ApprovalState::Approved => ApprovalEventKind::Approved,
        ApprovalState::Denied => ApprovalEventKind::Denied,
        ApprovalState::Expired => ApprovalEventKind::Expired,
        ApprovalState::Withdrawn { .. } => ApprovalEventKind::Withdrawn,
        ApprovalState::Void { .. } => ApprovalEventKind::Void,
        ApprovalState::Consumed { .. } => ApprovalEventKind::Dispatched,
        ApprovalState::Pending => match before {
            None => ApprovalEventKind::Asked,
            Some(row) if !row.is_pending => ApprovalEventKind::Asked,
            Some(row) if approval.edits.len() != row.edits => ApprovalEventKind::Edited,
            Some(row) if approval.votes.len() != row.votes => ApprovalEventKind::Voted,
            Some(row) if approval.escalated > row.escalated => ApprovalEventKind::Escalated,
            Some(_) => ApprovalEventKind::Asked,
        },
    }
}

impl Inner {
    fn next_place(&mut self, asked_at: Timestamp) -> Place {
        self.serial = self.serial.saturating_add(1);
        (asked_at, self.serial)
    }

    fn insert(&mut self, place: Place, row: Row) {
        self.by_id.insert(Arc::clone(&row.id), place);
        self.pending = self.pending.saturating_add(usize::from(row.is_pending));
        self.due.insert((row.due, place));
        let of_agent = self.of_agent.entry(row.agent.clone()).or_default();
        *of_agent = of_agent.saturating_add(1);
        self.rows.insert(place, row);
    }

    fn remove(&mut self, place: Place) {
        let Some(row) = self.rows.remove(&place) else { return };
        self.pending = self.pending.saturating_sub(usize::from(row.is_pending));
        self.due.remove(&(row.due, place));
        self.by_id.remove(&row.id);
        self.one_less(&row.agent);
    }

    fn one_less(&mut self, agent: &(TenantId, PrincipalId)) {
        if let Some(held) = self.of_agent.get_mut(agent) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.of_agent.remove(agent);
            }
        }
    }

    fn was_decided(&mut self, approval: &ApprovalRecord, now: Timestamp) {
        let took = self.decided.entry(approval.chain.tenant().clone()).or_default();
        took.push_back(u64::try_from(now.since_ms(approval.created_at)).unwrap_or(0));
        if took.len() > DECIDED_KEPT {
            took.pop_front();
        }
    }

    fn is_over(&mut self, approval_id: &ApprovalId, now: Timestamp) {
        let id = Arc::new(approval_id.clone());
        if self.over.insert(Arc::clone(&id)) {
            self.over_in_order.push_back((now, id));
        }
    }

    fn forget_over(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.over_in_order.front() {
            if now.since_ms(*at) < OVER_KEPT_MS {
                return;
            }
            self.over.remove(id);
            self.over_in_order.pop_front();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
