//! The sender's state between two turns: how far it has read, which messages wait, which approvals end soon.
//!
//! Owns nothing that could not be read from the ledger again. Invariant: what is stored as read is sent, given up, or in the outbox.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    outbox::{MessageKey, OutboxChange, ReadTo, WaitingMessage},
    store::StoreError,
};
use placet_types::{
    clock::Timestamp,
    ids::{ApprovalId, ChannelName},
};

use crate::{
    config::NotifyConfig,
    entry::{self, Found},
    ledger_reader::LedgerReader,
    message::{Message, Told},
    notice::{Notice, NoticeKind},
    outbox::Outbox,
    reading, route,
};

/// After this many entries the reading position is stored, whatever they contain.
const KEPT_ENTRIES: usize = 4_096;

#[derive(Debug)]
pub(super) struct State {
    config: Arc<NotifyConfig>,
    pub(super) outboxes: BTreeMap<ChannelName, Outbox>,
    places: BTreeMap<String, u64>,
    /// Pending approvals, by the time at which `expiring` is due.
    ending: BTreeSet<(Timestamp, ApprovalId)>,
    /// Until when `expiring` notices have been given.
    ends_told_to: Timestamp,
    /// Changes that the ledger does not have yet.
    change: OutboxChange,
    /// How many entries were read since the ledger last got the position.
    entries: usize,
    overflow: Vec<(ChannelName, Message)>,
    /// When a credential problem, or a wait for a caller with one token, was last reported.
    faults: BTreeMap<String, Timestamp>,
}

impl State {
    /// The state as the ledger has it.
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
        let mut change = OutboxChange::default();
        let kept = book.outbox().await?;
        let ReadTo { places, as_of } = match kept.read_to {
            Some(read_to) => read_to,
            None => {
                tracing::info!(
                    "nobody was told of anything before: messages begin with what happens now"
                );
                let read_to = ReadTo { places: book.heads().await?, as_of: now };
                change.read_to.insert(read_to).clone()
            }
        };
        let mut state = Self {
            config,
            outboxes,
            places,
            ending: BTreeSet::new(),
            ends_told_to: as_of,
            change,
            entries: 0,
            overflow: Vec::new(),
            faults: BTreeMap::new(),
        };
        state.wait_again(kept.waiting, now);
        if route::wants(&state.config, NoticeKind::Expiring) {
            state.await_ends(book).await?;
        }
        Ok(state)
    }

    /// Takes up waiting messages, ordered by time. A message whose channel is gone, or in another build's format, is given up.
    fn wait_again(&mut self, waiting: Vec<WaitingMessage>, now: Timestamp) {
        let mut found = Vec::new();
        for WaitingMessage { key, body } in waiting {
            match serde_json::from_value::<Told>(body) {
                Ok(told) if self.outboxes.contains_key(&key.channel) => found.push((key, told)),
                Ok(_) | Err(_) => {
                    tracing::warn!(channel = %key.channel, message = key.of, "a message is given up: it has no channel any more, or another form");
                    self.change.done.insert(key);
                }
            }
        }
        found.sort_by(|(key, told), (other_key, other)| {
            (told.notice.at, key).cmp(&(other.notice.at, other_key))
        });
        for (key, told) in found {
            self.put(key.channel, told, now);
        }
    }

    fn put(&mut self, channel: ChannelName, told: Told, now: Timestamp) {
        let Some(outbox) = self.outboxes.get_mut(&channel) else { return };
        if let Some(message) = outbox.add(told, now) {
            self.overflow.push((channel, message));
        }
    }

    /// Finds the pending approvals.
    async fn await_ends(&mut self, book: &dyn LedgerReader) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = book.waiting(after).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.approval_id.clone());
            for approval in &page {
                self.awaits(approval);
            }
        }
    }

    /// When the notice that an approval ends soon is due.
    fn due_of(&self, approval: &ApprovalRecord) -> Timestamp {
        let before_ms = i64::try_from(self.config.expiring_ms).unwrap_or(i64::MAX);
        // An approval that lives for less than twice that is reported after half of its life.
        let since = approval.reopened_at.unwrap_or(approval.created_at);
        let before_ms = before_ms.min(approval.expires_at.since_ms(since).div_euclid(2));
        approval.expires_at.plus_ms(before_ms.saturating_neg())
    }

    fn awaits(&mut self, approval: &ApprovalRecord) {
        let due = self.due_of(approval);
        let key = (due, approval.approval_id.clone());
        // An earlier due time was reported before: a later vote or edit does not change that.
        if approval.state == ApprovalState::Pending && due > self.ends_told_to {
            self.ending.insert(key);
        } else {
            self.ending.remove(&key);
        }
    }

    /// Reads on in the chain; returns whether there is more.
    pub(super) async fn read_on(&mut self, book: &dyn LedgerReader) -> Result<bool, StoreError> {
        let now = book.now();
        let before = self.places.clone();
        let batch = reading::on(book, &mut self.places).await?;
        let read = self.take(book, batch.entries, now).await;
        if read.is_err() {
            // No notice was given: everything is read again.
            self.places = before;
        }
        read?;
        // The entries still to be read may concern approvals that are due by now.
        if !batch.more {
            self.tell_of_ends(book, now).await?;
            self.ends_told_to = now;
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
        for (_, entry) in &entries {
            let found = entry::read(entry);
            if wants_ends {
                found.approvals.iter().for_each(|approval| self.awaits(approval));
            }
            told.extend(self.notices(book, found, Timestamp::from_ms(entry.at_ms)).await?);
        }
        self.entries = self.entries.saturating_add(entries.len());
        for notice in told {
            if !self.is_told_already(&notice) {
                self.tell(notice, now)?;
            }
        }
        Ok(())
    }

    /// Whether it is a credential problem, or a wait for a caller after the same token, that was reported within the last hour, for example
    /// because of another node's note.
    fn is_told_already(&mut self, notice: &Notice) -> bool {
        if !matches!(notice.kind, NoticeKind::CredentialRefused | NoticeKind::AwaitsCredential) {
            return false;
        }
        let at = notice.at;
        self.faults.retain(|_, told| at.since_ms(*told) < entry::FAULT_MS);
        // The last part of the identity is the hour.
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
        at: Timestamp,
    ) -> Result<Vec<Notice>, StoreError> {
        let mut notices = found.notices;
        let has_callers =
            self.config.channels.values().any(|channel| !channel.callbacks.is_empty());
        let wants_wait = has_callers || route::wants(&self.config, NoticeKind::AwaitsCredential);
        for event in found.lacking.iter().filter(|_| wants_wait) {
            let Some(approval_id) = &event.approval_id else { continue };
            let approval = book.approval(approval_id).await?;
            notices.extend(approval.and_then(|one| entry::of_lacking(&one, event, at)));
        }
        let wants_end = has_callers || route::wants(&self.config, NoticeKind::Finished);
        for ended in found.ends.iter().filter(|_| wants_end) {
            if let Some(approval) = book.approval_of_call(&ended.call_id).await? {
                notices.push(entry::of_end(&approval, ended, at));
            }
        }
        Ok(notices)
    }

    /// Puts a notice into the outboxes of its channels.
    fn tell(&mut self, notice: Notice, now: Timestamp) -> Result<(), StoreError> {
        let notice = Arc::new(notice);
        for (channel, scope) in route::channels(&self.config, &notice) {
            let told = Told { notice: Arc::clone(&notice), scope };
            let body = serde_json::to_value(&told).map_err(|error| {
                StoreError::Damaged(format!("a message has no JSON form: {error}"))
            })?;
            let key = MessageKey { channel: channel.clone(), of: notice.of.clone() };
            self.change.put.push(WaitingMessage { key, body });
            self.put(channel, told, now);
        }
        Ok(())
    }

    /// Reports pending approvals that end soon.
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
            // It may have got another end since.
            let approval = approval.filter(|approval| self.due_of(approval) == due);
            let Some(approval) = approval else { continue };
            if approval.state == ApprovalState::Pending && now < approval.expires_at {
                let mut notice = entry::of_approval(&approval, NoticeKind::Expiring, due);
                // Once for each approval, whatever happens to it meanwhile.
                notice.of = format!("{approval_id}:expiring");
                self.tell(notice, now)?;
            }
        }
        Ok(())
    }

    /// Messages that were given up because too many wait.
    pub(super) fn overflow(&mut self) -> Vec<(ChannelName, Message)> {
        std::mem::take(&mut self.overflow)
    }

    /// What the ledger has to store before any of it is sent: messages, and with them the reading position; or only the position, after
    /// many entries.
    pub(super) fn change(&mut self) -> Option<OutboxChange> {
        if self.change == OutboxChange::default() && self.entries < KEPT_ENTRIES {
            return None;
        }
        self.entries = 0;
        let read_to = ReadTo { places: self.places.clone(), as_of: self.ends_told_to };
        Some(OutboxChange { read_to: Some(read_to), ..std::mem::take(&mut self.change) })
    }
}
