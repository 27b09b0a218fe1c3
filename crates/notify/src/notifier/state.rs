//! What the sender knows between two turns: how far it has read, what waits, which approvals end soon.
//!
//! Owns nothing that the chain could not tell again. Invariant: what is noted as read is sent, given up, or named as waiting.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use placet_ledger::{
    approval::ApprovalState,
    audit::{AuditEvent, AuditKind},
    delivery::{DeliveryMark, WAITING_MAX, WaitingAt},
    store::StoreError,
};
use placet_types::{
    clock::Timestamp,
    ids::{ApprovalId, ChannelName},
};

use crate::{
    config::NotifyConfig,
    entry::{self, Found, Waits},
    ledger_reader::LedgerReader,
    memory::{self, Settled},
    message::{Message, Told},
    notice::{Notice, NoticeKind},
    outbox::{Item, Outbox},
    reading::{self, Place},
    route,
};

/// How often progress is noted while something happens, in milliseconds.
const NOTED_EVERY_MS: i64 = 60_000;
/// After how many entries progress is noted, whatever is in them.
const NOTED_ENTRIES: u64 = 4_096;
/// After how many messages progress is noted.
const NOTED_MARKS: u64 = 200;

#[derive(Debug)]
pub(super) struct State {
    config: Arc<NotifyConfig>,
    pub(super) outboxes: BTreeMap<ChannelName, Outbox>,
    places: BTreeMap<String, u64>,
    /// The times of the last entries, to leave out closed logs.
    last_ms: BTreeMap<String, i64>,
    /// What was sent before this process took over; forgotten once everything was read.
    settled: Settled,
    /// Approvals that wait, by when they are told of as ending soon.
    ending: BTreeSet<(Timestamp, ApprovalId)>,
    ends_of: BTreeMap<ApprovalId, Timestamp>,
    /// Those of which nothing is to be told any more while they wait, by when that was due.
    ends_told: BTreeMap<ApprovalId, Timestamp>,
    /// Up to when an earlier process told of approvals that end soon.
    as_of: Timestamp,
    /// Up to when this one did.
    ends_told_to: Timestamp,
    /// How far everything is sent, as it was noted last.
    noted: DeliveryMark,
    overflow: Vec<(ChannelName, Message)>,
    since: Since,
    /// When a trouble with a credential, or a wait for a caller with one token, was told of last.
    faults: BTreeMap<String, Timestamp>,
}

/// What happened since progress was noted.
#[derive(Debug, Default)]
struct Since {
    at: Timestamp,
    entries: u64,
    notices: u64,
    marks: u64,
    is_new: bool,
}

impl State {
    /// As the chain remembers it.
    pub(super) async fn recalled(
        config: Arc<NotifyConfig>,
        book: &dyn LedgerReader,
    ) -> Result<Self, StoreError> {
        let outboxes = config
            .channels
            .iter()
            .map(|(name, channel)| (name.clone(), Outbox::new(name, channel)))
            .collect();
        let now = book.now();
        let mut state = Self {
            config,
            outboxes,
            places: BTreeMap::new(),
            last_ms: BTreeMap::new(),
            settled: Settled::new(),
            ending: BTreeSet::new(),
            ends_of: BTreeMap::new(),
            ends_told: BTreeMap::new(),
            as_of: now,
            ends_told_to: now,
            noted: read_to(BTreeMap::new(), now),
            overflow: Vec::new(),
            since: Since { at: now, ..Since::default() },
            faults: BTreeMap::new(),
        };
        match memory::recall(book).await? {
            None => {
                tracing::info!(
                    "nobody was told of anything before: messages begin with what happens now"
                );
                state.places = book.heads().await?;
                state.since.is_new = true;
                state.noted = read_to(state.places.clone(), now);
            }
            Some(memory) => {
                state.noted = DeliveryMark::ReadTo {
                    places: memory.places.clone(),
                    as_of: memory.as_of,
                    waiting: memory.waiting.clone(),
                };
                state.places = memory.places;
                state.last_ms = memory.last_ms;
                state.as_of = memory.as_of;
                state.ends_told_to = memory.as_of;
                state.settled = memory.settled;
                state.waiting_again(book, memory.waiting).await?;
            }
        }
        if route::wants(&state.config, NoticeKind::Expiring) {
            state.await_ends(book).await?;
        }
        Ok(state)
    }

    /// Takes up what waited when progress was noted last, in the order of time.
    async fn waiting_again(
        &mut self,
        book: &dyn LedgerReader,
        waiting: BTreeMap<String, Vec<WaitingAt>>,
    ) -> Result<(), StoreError> {
        let now = book.now();
        let mut found = Vec::new();
        for (log, places) in waiting {
            for WaitingAt { seq, channel } in places {
                let entries = match book.entries(&log, seq, 1).await {
                    Ok(entries) => entries,
                    // It is in an archive, and too old to be told.
                    Err(StoreError::Damaged(_)) => continue,
                    Err(error) => return Err(error),
                };
                for entry in entries.iter().filter(|entry| entry.seq == seq) {
                    let place = Place { log: log.clone(), seq };
                    for notice in self.notices(book, entry::read(entry)).await? {
                        found.push((entry.at_ms, place.clone(), channel.clone(), notice));
                    }
                }
            }
        }
        // Of one call, different logs may tell.
        found.sort_by(|(at_ms, place, ..), (other_ms, other, ..)| {
            (at_ms, place).cmp(&(other_ms, other))
        });
        for (_, place, channel, notice) in found {
            self.tell(notice, Some(place), Some(&channel), now);
        }
        Ok(())
    }

    /// Finds the approvals that wait.
    async fn await_ends(&mut self, book: &dyn LedgerReader) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = book.waiting(after).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.approval_id.clone());
            for approval in &page {
                self.awaits(&approval.approval_id, entry::waits_until(approval));
            }
        }
    }

    fn awaits(&mut self, approval_id: &ApprovalId, until: Option<Waits>) {
        if let Some(due) = self.ends_of.remove(approval_id) {
            self.ending.remove(&(due, approval_id.clone()));
        }
        let Some(Waits { from, until }) = until else {
            self.ends_told.remove(approval_id);
            return;
        };
        let before_ms = i64::try_from(self.config.expiring_ms).unwrap_or(i64::MAX);
        // What waits for less than that altogether is told of when half of it has expired.
        let before_ms = before_ms.min(until.since_ms(from).div_euclid(2));
        let due = until.plus_ms(before_ms.saturating_neg());
        // What was due before was told of before.
        if due > self.as_of && self.ends_told.get(approval_id) != Some(&due) {
            self.ends_of.insert(approval_id.clone(), due);
            self.ending.insert((due, approval_id.clone()));
        }
    }

    /// Reads the chain on; answers whether more is there.
    pub(super) async fn read_on(&mut self, book: &dyn LedgerReader) -> Result<bool, StoreError> {
        let now = book.now();
        let before = self.places.clone();
        let batch = reading::on(book, &mut self.places).await?;
        let read = self.take(book, batch.entries, now).await;
        if read.is_err() {
            // Nothing of it was told: all of it is read again.
            self.places = before;
        }
        read?;
        self.tell_of_ends(book, now).await?;
        self.ends_told_to = now;
        if !batch.more {
            self.settled.clear();
        }
        Ok(batch.more)
    }

    async fn take(
        &mut self,
        book: &dyn LedgerReader,
        entries: Vec<(String, placet_ledger::log::LogEntry)>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let wants_ends = route::wants(&self.config, NoticeKind::Expiring);
        let mut told = Vec::new();
        for (log, entry) in &entries {
            let found = entry::read(entry);
            self.since.entries = self.since.entries.saturating_add(1);
            self.since.marks = self.since.marks.saturating_add(of_messages(&found));
            if wants_ends {
                for (approval_id, until) in &found.waits {
                    self.awaits(approval_id, *until);
                }
            }
            let place = Place { log: log.clone(), seq: entry.seq };
            for notice in self.notices(book, found).await? {
                told.push((notice, place.clone()));
            }
        }
        for (log, entry) in &entries {
            self.last_ms.insert(log.clone(), entry.at_ms);
        }
        for (notice, place) in told {
            if self.is_told_already(&notice) {
                continue;
            }
            self.since.notices = self.since.notices.saturating_add(1);
            self.tell(notice, Some(place), None, now);
        }
        Ok(())
    }

    /// Whether it is a trouble with a credential, or a wait for a caller after the same token, of which somebody was told within the hour,
    /// from another node's note.
    fn is_told_already(&mut self, notice: &Notice) -> bool {
        if !matches!(notice.kind, NoticeKind::CredentialRefused | NoticeKind::AwaitsCredential) {
            return false;
        }
        let at = notice.at;
        self.faults.retain(|_, told| at.since_ms(*told) < entry::FAULT_MS);
        // The last of what these are of is the hour.
        let trouble = notice.of.rsplit_once(':').map_or(notice.of.as_str(), |(trouble, _)| trouble);
        let known = self.faults.contains_key(trouble);
        if !known {
            self.faults.insert(trouble.to_owned(), at);
        }
        known
    }

    /// The notices of an entry, with the ends of calls that were held, and those that wait for their callers.
    async fn notices(
        &self,
        book: &dyn LedgerReader,
        found: Found,
    ) -> Result<Vec<Notice>, StoreError> {
        let mut notices = found.notices;
        let has_callers =
            self.config.channels.values().any(|channel| !channel.callbacks.is_empty());
        let wants_wait = has_callers || route::wants(&self.config, NoticeKind::AwaitsCredential);
        for lacking in found.lacking.iter().filter(|_| wants_wait) {
            let approval = book.approval(&lacking.approval_id).await?;
            notices.extend(approval.and_then(|one| entry::of_lacking(&one, lacking)));
        }
        let wants_end = has_callers || route::wants(&self.config, NoticeKind::Finished);
        for ended in found.ends.iter().filter(|_| wants_end) {
            if let Some(approval) = book.approval_of_call(&ended.call_id).await? {
                notices.push(entry::of_end(&approval, ended));
            }
        }
        Ok(notices)
    }

    /// Puts a notice into the outboxes of those who are to be told, or into one of them.
    fn tell(
        &mut self,
        notice: Notice,
        from: Option<Place>,
        only: Option<&ChannelName>,
        now: Timestamp,
    ) {
        let notice = Arc::new(notice);
        for (name, scope) in route::channels(&self.config, &notice) {
            if only.is_some_and(|only| *only != name)
                || self.settled.contains(&(name.clone(), notice.of.clone()))
            {
                continue;
            }
            let told = Told { notice: Arc::clone(&notice), scope };
            let Some(outbox) = self.outboxes.get_mut(&name) else { continue };
            if let Some(message) = outbox.add(Item { told, from: from.clone() }, now) {
                self.overflow.push((name, message));
            }
        }
    }

    /// Tells of approvals that wait still and end soon.
    async fn tell_of_ends(
        &mut self,
        book: &dyn LedgerReader,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        while let Some((due, approval_id)) = self.ending.first().cloned() {
            if due > now {
                return Ok(());
            }
            let approval = book.approval(&approval_id).await?;
            self.ending.remove(&(due, approval_id.clone()));
            self.ends_of.remove(&approval_id);
            let waits = |state: &ApprovalState| *state == ApprovalState::Pending;
            let Some(approval) = approval.filter(|approval| waits(&approval.state)) else {
                continue;
            };
            // Anyone who votes or edits from now on changes nothing about it.
            self.ends_told.insert(approval_id.clone(), due);
            if now < approval.expires_at {
                let mut notice = entry::of_approval(&approval, NoticeKind::Expiring, due);
                // Once for each approval, however it moves meanwhile.
                notice.of = format!("{approval_id}:expiring");
                self.since.notices = self.since.notices.saturating_add(1);
                self.tell(notice, None, None, now);
            }
        }
        Ok(())
    }

    /// What was given up because too much waits.
    pub(super) fn overflow(&mut self) -> Vec<(ChannelName, Message)> {
        std::mem::take(&mut self.overflow)
    }

    /// A note of how far everything is sent, when it is time for one.
    pub(super) fn progress(&mut self, now: Timestamp) -> Option<AuditEvent> {
        let since = &self.since;
        let changed = since.notices > 0 || since.marks > 0;
        let due = since.is_new
            || since.entries >= NOTED_ENTRIES
            || since.marks >= NOTED_MARKS
            || (changed && now.since_ms(since.at) >= NOTED_EVERY_MS);
        if !due {
            return None;
        }
        if self.is_too_much_for_a_note() {
            return self.noted_again();
        }
        let mut as_of = self.ends_told_to;
        let mut waiting: BTreeMap<String, Vec<WaitingAt>> = BTreeMap::new();
        for (name, outbox) in &self.outboxes {
            for (from, at) in outbox.origins() {
                match from {
                    None => as_of = as_of.min(at.plus_ms(-1)),
                    Some(Place { log, seq }) => {
                        let at = WaitingAt { seq: *seq, channel: name.clone() };
                        waiting.entry(log.clone()).or_default().push(at);
                    }
                }
            }
        }
        self.since = Since { at: now, ..Since::default() };
        let closed = now.plus_ms(memory::CLOSED_MS.saturating_neg()).as_ms();
        let is_open = |log: &String| self.last_ms.get(log).is_none_or(|at_ms| *at_ms > closed);
        let places = self.places.iter().filter(|(log, _)| is_open(log));
        let places = places.map(|(log, place)| (log.clone(), *place)).collect();
        self.noted = DeliveryMark::ReadTo { places, as_of, waiting };
        Some(self.note())
    }

    fn is_too_much_for_a_note(&self) -> bool {
        let origins = self.outboxes.values().flat_map(Outbox::origins);
        origins.filter(|(from, _)| from.is_some()).nth(WAITING_MAX).is_some()
    }

    /// More waits than a note names: the earlier one holds, so that more is read again after a restart, and nothing is sent again. It is
    /// written once more when much has followed it, so that it is found.
    fn noted_again(&mut self) -> Option<AuditEvent> {
        if !self.since.is_new && self.since.entries < NOTED_ENTRIES {
            return None;
        }
        self.since.is_new = false;
        self.since.entries = 0;
        Some(self.note())
    }

    fn note(&self) -> AuditEvent {
        let mut event = AuditEvent::new(AuditKind::Notified);
        event.delivery = Some(Box::new(self.noted.clone()));
        event
    }
}

/// A note that nothing waits.
const fn read_to(places: BTreeMap<String, u64>, as_of: Timestamp) -> DeliveryMark {
    DeliveryMark::ReadTo { places, as_of, waiting: BTreeMap::new() }
}

/// How many notes about messages an entry has.
fn of_messages(found: &Found) -> u64 {
    let marks = found.marks.iter();
    let sent = marks.filter(|mark| !matches!(mark, DeliveryMark::ReadTo { .. })).count();
    u64::try_from(sent).unwrap_or(u64::MAX)
}
