//! What waits to be sent over one channel: in order for each subject, a bounded number at a time, tried again until it is too late.
//!
//! Owns the machine of one channel. Does not send, read a clock or remember anything over a restart. Invariants: of two messages about one
//! subject the later one is not taken before the earlier one has ended, unless the earlier one is still gathered; a subject that fails
//! holds no other one up but those it shares a digest with.

use std::collections::{BTreeMap, BTreeSet};

use placet_types::{clock::Timestamp, digest::DigestBuilder, ids::ChannelName};

use crate::{
    config::{ChannelConfig, Retry},
    message::{Message, Told},
    reading::Place,
    schedule::Pace,
};

/// The most messages that wait for one channel; what comes then is given up, and that is noted.
pub(crate) const WAITING_MAX: usize = 20_000;
/// The most things in one digest; more are told in several.
const DIGEST_MAX: usize = 20;
/// The longest wait that a receiver may ask for, in milliseconds.
const RETRY_AFTER_MS_MAX: u64 = 3_600_000;
/// How late entries of other nodes may be seen that belong into a digest, in milliseconds.
const LATE_MS: i64 = 2_000;

/// Something to tell, and the entry that it is from.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) told: Told,
    pub(crate) from: Option<Place>,
}

/// A message that waits.
#[derive(Debug)]
struct Job {
    message: Message,
    from: Vec<Option<Place>>,
    due: Timestamp,
    born: Timestamp,
    failures: u32,
    sending: bool,
}

/// How an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Why, in our words: nothing of what the receiver answered.
    pub why: String,
    /// When the receiver wants to be asked again.
    pub retry_after_ms: Option<u64>,
    /// Whether the receiver wants nothing any more.
    pub gone: bool,
}

impl Failure {
    /// A failure that may pass.
    #[must_use]
    pub fn passing(why: impl Into<String>) -> Self {
        Self { why: why.into(), retry_after_ms: None, gone: false }
    }
}

/// What became of a message after an attempt.
#[derive(Debug)]
pub(crate) enum After {
    Sent(Message),
    GivenUp(Message),
    Again,
}

/// One channel.
#[derive(Debug)]
pub(crate) struct Outbox {
    channel: ChannelName,
    pace: Pace,
    at_once: BTreeSet<crate::notice::NoticeKind>,
    retry: Retry,
    parallel_max: usize,
    next: u64,
    jobs: BTreeMap<u64, Job>,
    sending: usize,
    gathered: BTreeMap<Timestamp, Vec<Item>>,
}

impl Outbox {
    pub(crate) fn new(channel: &ChannelName, config: &ChannelConfig) -> Self {
        Self {
            channel: channel.clone(),
            pace: config.pace(),
            at_once: config.at_once.clone(),
            retry: config.retry,
            parallel_max: usize::try_from(config.parallel_max).unwrap_or(1).max(1),
            next: 0,
            jobs: BTreeMap::new(),
            sending: 0,
            gathered: BTreeMap::new(),
        }
    }

    /// How much waits.
    pub(crate) fn len(&self) -> usize {
        let gathered = self.gathered.values().map(Vec::len);
        self.jobs.len().saturating_add(gathered.fold(0, usize::saturating_add))
    }

    /// Something more to tell. Answers what is given up because too much waits.
    pub(crate) fn add(&mut self, item: Item, now: Timestamp) -> Option<Message> {
        if self.len() >= WAITING_MAX {
            return Some(Message::one(&self.channel, item.told));
        }
        let notice = &item.told.notice;
        let at_once = self.at_once.contains(&notice.kind);
        match self.pace.due(notice.at).filter(|_| !at_once) {
            Some(due) => self.gathered.entry(due).or_default().push(item),
            None => {
                let message = Message::one(&self.channel, item.told);
                self.push(message, vec![item.from], now);
            }
        }
        None
    }

    fn push(&mut self, message: Message, from: Vec<Option<Place>>, now: Timestamp) {
        let job = Job { message, from, due: now, born: now, failures: 0, sending: false };
        self.jobs.insert(self.next, job);
        self.next = self.next.saturating_add(1);
    }

    /// Makes digests of what was gathered long enough.
    pub(crate) fn gather(&mut self, now: Timestamp) {
        while let Some(entry) = self.gathered.first_entry() {
            if entry.key().plus_ms(LATE_MS) > now {
                return;
            }
            let (due, mut items) = entry.remove_entry();
            items.sort_by(|one, other| {
                let key = |item: &Item| (item.told.notice.at, item.told.notice.of.clone());
                key(one).cmp(&key(other))
            });
            for chunk in items.chunks(DIGEST_MAX) {
                let told = chunk.iter().map(|item| item.told.clone()).collect();
                let message = match chunk {
                    [only] => Message::one(&self.channel, only.told.clone()),
                    _ => Message::digest(&self.channel, due, told),
                };
                let from = chunk.iter().map(|item| item.from.clone()).collect();
                self.push(message, from, now);
            }
        }
    }

    /// The messages that are to be sent now.
    pub(crate) fn take(&mut self, now: Timestamp) -> Vec<(u64, Message)> {
        let mut taken = Vec::new();
        let mut before: BTreeSet<&str> = BTreeSet::new();
        let mut keys = Vec::new();
        for (key, job) in &self.jobs {
            if self.sending.saturating_add(keys.len()) >= self.parallel_max {
                break;
            }
            // A digest waits for what is before it about each of its calls, and what comes later waits for the digest.
            let subjects = || job.message.told().iter().map(|told| told.notice.subject());
            let is_first = !subjects().any(|subject| before.contains(subject));
            before.extend(subjects());
            if is_first && !job.sending && job.due <= now {
                keys.push(*key);
            }
        }
        for key in keys {
            if let Some(job) = self.jobs.get_mut(&key) {
                job.sending = true;
                self.sending = self.sending.saturating_add(1);
                taken.push((key, job.message.clone()));
            }
        }
        taken
    }

    /// An attempt has ended.
    pub(crate) fn done(
        &mut self,
        key: u64,
        result: Result<(), Failure>,
        now: Timestamp,
    ) -> Option<After> {
        let job = self.jobs.get_mut(&key)?;
        if job.sending {
            job.sending = false;
            self.sending = self.sending.saturating_sub(1);
        }
        let failure = match result {
            Ok(()) => return self.jobs.remove(&key).map(|job| After::Sent(job.message)),
            Err(failure) => failure,
        };
        let age_ms = u64::try_from(now.since_ms(job.born)).unwrap_or(0);
        let wait_ms = self.retry.wait_ms(&job.message.id, job.failures, failure.retry_after_ms);
        if failure.gone || age_ms.saturating_add(wait_ms) > self.retry.give_up_after_ms {
            return self.jobs.remove(&key).map(|job| After::GivenUp(job.message));
        }
        job.failures = job.failures.saturating_add(1);
        job.due = now.plus_ms(i64::try_from(wait_ms).unwrap_or(i64::MAX));
        Some(After::Again)
    }

    /// Where what waits is from; nothing for what is from no entry, with its time.
    pub(crate) fn origins(&self) -> impl Iterator<Item = (Option<&Place>, Timestamp)> {
        let jobs = self.jobs.values().flat_map(|job| {
            let told = job.message.told().iter().map(|told| told.notice.at);
            job.from.iter().map(Option::as_ref).zip(told)
        });
        let gathered = self.gathered.values().flatten();
        jobs.chain(gathered.map(|item| (item.from.as_ref(), item.told.notice.at)))
    }
}

impl Retry {
    /// The wait before the next attempt: doubled each time, up to a bound, of which the first half is certain and the rest differs by
    /// message, so that what failed together does not come back together.
    fn wait_ms(&self, id: &str, failures: u32, asked_ms: Option<u64>) -> u64 {
        let doubled = self.first_ms.saturating_mul(2_u64.saturating_pow(failures.min(32)));
        let wait = doubled.min(self.most_ms);
        let digest = DigestBuilder::new("placet.retry.v1")
            .field("id", id.as_bytes())
            .field("failures", failures.to_be_bytes())
            .finish();
        let lot = digest.as_bytes().first().copied().map_or(0, u64::from);
        let half = wait.div_euclid(2);
        let jitter = half.saturating_mul(lot).div_euclid(255);
        half.saturating_add(jitter).max(asked_ms.unwrap_or(0).min(RETRY_AFTER_MS_MAX))
    }
}
