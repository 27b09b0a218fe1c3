//! The index: what waits for people, in short, in memory.
//!
//! Owns the summary of every held call: who is asked, who has decided, when something is due. Holds nothing that the ledger does not;
//! an approval service that comes up fills it again. Invariants: some hundred bytes for a held call, and neither a task nor a timer of its own;
//! what the ledger has said to be over does not come back by an older reading.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use tokio::time::Instant;

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    store::ApprovalMark,
};
use placet_types::{
    approval::{Voice, Vote},
    clock::Timestamp,
    directory::Directory,
    ids::{ApprovalId, CapabilityId, PrincipalId, TenantId},
    mode::ApprovalMode,
};

use crate::views::ApprovalEventKind;
use names::{NONE, Name, Names};

mod names;
pub(crate) mod query;

/// How long what was told to be due is waited for to be dealt with, before it is told again.
const TOLD_AGAIN: Duration = Duration::from_secs(2);
/// For how long it is remembered that an approval is over, in milliseconds: longer than any reading takes.
const OVER_KEPT_MS: i64 = 120_000;
/// Of how many decided approvals the time is remembered, for each tenant.
const DECIDED_KEPT: usize = 1_000;

/// Where a row stands: in the order in which people were asked.
type Place = (Timestamp, u64);

/// The index.
#[derive(Debug, Default)]
pub struct PendingIndex {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    names: Names,
    rows: BTreeMap<Place, Row>,
    by_id: HashMap<Arc<ApprovalId>, Place>,
    due: BTreeSet<(Timestamp, Place)>,
    told: VecDeque<(Instant, Place)>,
    over: HashMap<Arc<ApprovalId>, Timestamp>,
    over_in_order: VecDeque<(Timestamp, Arc<ApprovalId>)>,
    /// By the tenant's own name: numbers are given again once they were forgotten.
    decided: HashMap<TenantId, VecDeque<u64>>,
    serial: u64,
    sweep: u32,
    pending: usize,
    /// How many rows an agent of a tenant has.
    of_agent: HashMap<(Name, Name), usize>,
    /// How many more are being kept in the ledger at this moment.
    coming: HashMap<(TenantId, PrincipalId), usize>,
}

/// A place for one more held call of an agent, until its row is here or it came to nothing.
#[derive(Debug)]
pub struct HeldPlace<'a> {
    board: &'a PendingIndex,
    of: (TenantId, PrincipalId),
}

impl Drop for HeldPlace<'_> {
    fn drop(&mut self) {
        let mut inner = self.board.lock();
        if let Some(coming) = inner.coming.get_mut(&self.of) {
            *coming = coming.saturating_sub(1);
            if *coming == 0 {
                inner.coming.remove(&self.of);
            }
        }
    }
}

/// One held call.
#[derive(Debug)]
struct Row {
    id: Arc<ApprovalId>,
    tenant: Name,
    capability: Name,
    actor: Name,
    user: Name,
    owner: Name,
    /// The set of groups that are asked.
    asked: Name,
    /// Everybody whose word counts already.
    voices: Box<[Name]>,
    expires_at: Timestamp,
    due: Timestamp,
    rev: u64,
    sweep: u32,
    mode: ApprovalMode,
    is_pending: bool,
    votes: u8,
    edits: u8,
    escalated: u8,
}

/// What is due of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// It has expired.
    Expiry(ApprovalId),
    /// Another group has to be asked.
    Escalation(ApprovalId),
}

impl PendingIndex {
    /// Takes note of how an approval stands; says what that is news of, if it is news.
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
        let open = matches!(approval.state, ApprovalState::Pending | ApprovalState::Approved);
        if known.is_none() && (inner.over.contains_key(&approval.approval_id) || !open) {
            // Told before, or never known here: an older reading, or an end that concerns nobody here.
            let first = !open && !inner.over.contains_key(&approval.approval_id);
            inner.is_over(approval, now);
            return first.then_some(news);
        }
        if let Some(place) = before {
            inner.remove(place);
        }
        if open {
            let place = before.unwrap_or_else(|| inner.next_place(approval.created_at));
            inner.insert(place, approval, directory);
        } else {
            inner.is_over(approval, now);
        }
        if matches!(news, ApprovalEventKind::Approved | ApprovalEventKind::Denied) {
            inner.was_decided(approval, now);
        }
        Some(news)
    }

    /// What is due at `now`, at most `limit`. Told again after a while, unless the approval has moved by then.
    #[must_use]
    pub fn due(&self, now: Timestamp, limit: usize) -> Vec<Due> {
        let mut inner = self.lock();
        inner.tell_again();
        let mut due = Vec::new();
        while let Some((at, place)) = inner.due.first().copied() {
            if at > now || due.len() >= limit {
                break;
            }
            inner.due.remove(&(at, place));
            let Some(row) = inner.rows.get(&place) else { continue };
            due.push(if row.expires_at <= now {
                Due::Expiry(row.id.as_ref().clone())
            } else {
                Due::Escalation(row.id.as_ref().clone())
            });
            inner.told.push_back((Instant::now(), place));
        }
        due
    }

    /// A place for one more held call of an agent; none where it has `most` already. Calls that other nodes hold count once they are known
    /// here.
    #[must_use]
    pub fn place_for(
        &self,
        tenant: &TenantId,
        agent: &PrincipalId,
        most: usize,
    ) -> Option<HeldPlace<'_>> {
        let mut inner = self.lock();
        let names = (inner.names.known(tenant.as_str()), inner.names.known(agent.as_str()));
        let held = inner.of_agent.get(&names).copied().unwrap_or(0);
        let of = (tenant.clone(), agent.clone());
        let coming = inner.coming.get(&of).copied().unwrap_or(0);
        if held.saturating_add(coming) >= most {
            return None;
        }
        inner.coming.insert(of.clone(), coming.saturating_add(1));
        Some(HeldPlace { board: self, of })
    }

    /// How many approvals people are asked about.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.lock().pending
    }

    /// Begins to read everything again, and says how a row is told that was not seen since.
    pub fn begin_sweep(&self) {
        let mut inner = self.lock();
        inner.sweep = inner.sweep.wrapping_add(1);
    }

    /// Takes note that these are there still, and answers those that are not known here as they stand.
    #[must_use]
    pub fn moved_of(&self, marks: &[ApprovalMark]) -> Vec<ApprovalId> {
        let mut inner = self.lock();
        let Inner { rows, by_id, over, sweep, .. } = &mut *inner;
        let mut moved = Vec::new();
        for ApprovalMark { approval_id, rev } in marks {
            match by_id.get(approval_id).and_then(|place| rows.get_mut(place)) {
                Some(row) if row.rev >= *rev => row.sweep = *sweep,
                // What is over here is so by a later reading.
                None if over.contains_key(approval_id) => {}
                Some(_) | None => moved.push(approval_id.clone()),
            }
        }
        moved
    }

    /// Those that the reading has not come upon: they moved on without this process. At most `limit`.
    #[must_use]
    pub fn unseen(&self, limit: usize) -> Vec<ApprovalId> {
        let inner = self.lock();
        let stale = inner.rows.values().filter(|row| row.sweep != inner.sweep);
        stale.take(limit).map(|row| row.id.as_ref().clone()).collect()
    }

    /// An approval is not there any more at all.
    pub fn forget(&self, approval_id: &ApprovalId) {
        let mut inner = self.lock();
        if let Some(place) = inner.by_id.get(approval_id).copied() {
            inner.remove(place);
        }
    }

    /// The approvals of a capability, of all tenants.
    #[must_use]
    pub fn of_capability(&self, capability: &CapabilityId) -> Vec<ApprovalId> {
        let inner = self.lock();
        let wanted = inner.names.known(&capability.to_string());
        let of = inner.rows.values().filter(|row| row.capability == wanted && wanted != NONE);
        of.map(|row| row.id.as_ref().clone()).collect()
    }

    /// The capabilities that something waits for.
    #[must_use]
    pub fn capabilities(&self) -> BTreeSet<CapabilityId> {
        let inner = self.lock();
        let used: BTreeSet<Name> = inner.rows.values().map(|row| row.capability).collect();
        used.into_iter().filter_map(|name| inner.names.text(name).parse().ok()).collect()
    }

    /// All approvals after `after` in the order of asking, at most `limit`, each with its place to go on from.
    pub(crate) fn page_after(
        &self,
        after: Option<(Timestamp, u64)>,
        limit: usize,
    ) -> Vec<((Timestamp, u64), ApprovalId)> {
        let inner = self.lock();
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let rows = inner.rows.range((from, std::ops::Bound::Unbounded)).take(limit);
        rows.map(|(place, row)| (*place, row.id.as_ref().clone())).collect()
    }

    /// How long the last decided approvals of a tenant took, in milliseconds, sorted.
    pub(crate) fn decided_in_ms(&self, tenant: &TenantId) -> Vec<u64> {
        let inner = self.lock();
        let mut took: Vec<u64> = inner.decided.get(tenant).into_iter().flatten().copied().collect();
        took.sort_unstable();
        took
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

/// What a newer reading of an approval is news of.
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
            Some(row) if count(approval.edits.len()) != row.edits => ApprovalEventKind::Edited,
            Some(row) if count(approval.votes.len()) != row.votes => ApprovalEventKind::Voted,
            Some(row) if capped(approval.escalated) > row.escalated => ApprovalEventKind::Escalated,
            Some(_) => ApprovalEventKind::Asked,
        },
    }
}

/// Anyone who has a voice, as a name: an external approver's has a space in it, which is in no principal's.
fn voice_name(voice: Voice<'_>) -> Cow<'_, str> {
    match voice.tenant {
        Some(tenant) => Cow::Owned(format!("{tenant} {}", voice.person)),
        None => Cow::Borrowed(voice.person.as_str()),
    }
}

fn count(many: usize) -> u8 {
    u8::try_from(many).unwrap_or(u8::MAX)
}

fn capped(many: u32) -> u8 {
    u8::try_from(many).unwrap_or(u8::MAX)
}

impl Inner {
    fn next_place(&mut self, asked_at: Timestamp) -> Place {
        self.serial = self.serial.saturating_add(1);
        (asked_at, self.serial)
    }

    fn insert(&mut self, place: Place, approval: &ApprovalRecord, directory: &Directory) {
        let row = self.row_of(approval, directory);
        self.by_id.insert(Arc::clone(&row.id), place);
        self.pending = self.pending.saturating_add(usize::from(row.is_pending));
        self.due.insert((row.due, place));
        let of_agent = self.of_agent.entry((row.tenant, row.actor)).or_default();
        *of_agent = of_agent.saturating_add(1);
        self.rows.insert(place, row);
    }

    fn remove(&mut self, place: Place) {
        if let Some(row) = self.rows.remove(&place) {
            self.pending = self.pending.saturating_sub(usize::from(row.is_pending));
            self.due.remove(&(row.due, place));
            self.by_id.remove(&row.id);
            if let Some(of_agent) = self.of_agent.get_mut(&(row.tenant, row.actor)) {
                *of_agent = of_agent.saturating_sub(1);
                if *of_agent == 0 {
                    self.of_agent.remove(&(row.tenant, row.actor));
                }
            }
        }
        if self.rows.is_empty() {
            self.names.shrink();
        }
    }

    fn row_of(&mut self, approval: &ApprovalRecord, directory: &Directory) -> Row {
        let names = &mut self.names;
        let tenant = approval.chain.tenant();
        let actor = &approval.chain.actor.id;
        let owner = directory.agent(tenant, actor).map(|agent| agent.owner.as_str());
        let standing = approval.standing_votes();
        let shown = standing.filter(|vote| vote.shown_digest == approval.proposal);
        let mut voiced: Vec<Name> =
            shown.flat_map(Vote::voices).map(|voice| names.of(&voice_name(voice))).collect();
        // Nor do those have a word left who wrote what is decided on.
        voiced.extend(approval.authors().map(|author| names.of(author.as_str())));
        voiced.sort_unstable();
        voiced.dedup();
        let due = approval.escalation_due().unwrap_or(approval.expires_at);
        Row {
            id: Arc::new(approval.approval_id.clone()),
            tenant: names.of(tenant.as_str()),
            capability: names.of(&approval.capability.to_string()),
            actor: names.of(actor.as_str()),
            user: approval
                .chain
                .on_behalf_of
                .as_ref()
                .map_or(NONE, |user| names.of(user.id.as_str())),
            owner: owner.map_or(NONE, |owner| names.of(owner)),
            asked: names.set_of(approval.asked().into_iter().cloned().collect()),
            voices: voiced.into_boxed_slice(),
            expires_at: approval.expires_at,
            due: due.min(approval.expires_at),
            rev: approval.rev,
            sweep: self.sweep,
            mode: approval.mode,
            is_pending: approval.state == ApprovalState::Pending,
            votes: count(approval.votes.len()),
            edits: count(approval.edits.len()),
            escalated: capped(approval.escalated),
        }
    }

    /// What was told some time ago and has not moved since is due still.
    fn tell_again(&mut self) {
        while let Some((at, place)) = self.told.front().copied() {
            if at.elapsed() < TOLD_AGAIN {
                return;
            }
            self.told.pop_front();
            if let Some(row) = self.rows.get(&place) {
                self.due.insert((row.due, place));
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

    fn is_over(&mut self, approval: &ApprovalRecord, now: Timestamp) {
        if matches!(approval.state, ApprovalState::Pending | ApprovalState::Approved) {
            return;
        }
        let id = Arc::new(approval.approval_id.clone());
        if self.over.insert(Arc::clone(&id), now).is_none() {
            self.over_in_order.push_back((now, id));
        }
    }

    fn forget_over(&mut self, now: Timestamp) {
        while let Some((at, _)) = self.over_in_order.front() {
            if now.since_ms(*at) < OVER_KEPT_MS {
                return;
            }
            if let Some((_, id)) = self.over_in_order.pop_front() {
                self.over.remove(&id);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
