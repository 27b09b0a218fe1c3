//! The waiting messages of one channel: in order for each subject, a bounded number at a time, retried until it is too late.
//!
//! Owns the machine of one channel. Does not send, read a clock or remember anything over a restart. Invariants: of two messages about one
//! subject the later one is not taken before the earlier one has ended, whether they go out at once or in digests; a subject that fails
//! holds no other one up but those it shares a digest with; an attempt costs the same however much waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use placet_types::{clock::Timestamp, digest::DigestBuilder, ids::ChannelName};

use crate::{
    config::{ChannelConfig, Retry},
    message::{Message, Told},
    schedule,
};

/// The most messages that wait for one channel; further ones are given up, and that is noted.
pub(crate) const WAITING_MAX: usize = 20_000;
/// The most notices in one digest; more are put into several.
const DIGEST_MAX: usize = 20;
/// The minimum number of attempts by one process, however old the message is: the receiver may have been away for as long as we were.
const TRIES_LEAST: u32 = 3;
/// The longest pause that a receiver may request, in milliseconds.
const RETRY_AFTER_MS_MAX: u64 = 3_600_000;
/// How late entries of other nodes that belong to a digest may become visible, in milliseconds.
const LATE_MS: i64 = 2_000;
/// How many messages are being sent over one channel at the same time.
pub(crate) const PARALLEL_MAX: usize = 4;

/// A message that waits.
#[derive(Debug)]
struct Job {
    message: Message,
    due: Timestamp,
    /// Since when it has waited to be sent: the same in every process.
    born: Timestamp,
    failures: u32,
    sending: bool,
    /// How many of its subjects have an earlier message.
    behind: usize,
}

/// A message to send now.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) key: u64,
    pub(crate) message: Message,
}

/// How an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Why, in our words: no text of the receiver.
    pub why: String,
    /// When the receiver wants the next attempt.
    pub retry_after_ms: Option<u64>,
    /// Whether the receiver refused it permanently: it is not retried.
    pub is_permanent: bool,
}

impl Failure {
    /// A failure that may pass.
    pub fn passing(why: impl Into<String>) -> Self {
        Self { why: why.into(), retry_after_ms: None, is_permanent: false }
    }
}

/// The state of a message after an attempt.
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
    config: ChannelConfig,
    next: u64,
    jobs: BTreeMap<u64, Job>,
    /// The messages about each subject, the first one first.
    queues: BTreeMap<String, VecDeque<u64>>,
    /// Messages with nothing before them that are not being sent, by due time.
    ready: BTreeSet<(Timestamp, u64)>,
    sending: usize,
    /// Notices gathered for digests, by due time: so a restart gathers the same again.
    gathered: BTreeMap<Timestamp, Vec<Told>>,
}

impl Outbox {
    pub(crate) fn new(channel: &ChannelName, config: &ChannelConfig) -> Self {
        Self {
            channel: channel.clone(),
            config: config.clone(),
            next: 0,
            jobs: BTreeMap::new(),
            queues: BTreeMap::new(),
            ready: BTreeSet::new(),
            sending: 0,
            gathered: BTreeMap::new(),
        }
    }

    /// The number of waiting messages.
    pub(crate) fn len(&self) -> usize {
        self.gathered.values().map(Vec::len).fold(self.jobs.len(), usize::saturating_add)
    }

    /// Adds a notice. Returns a message that is given up because too many wait.
    pub(crate) fn add(&mut self, told: Told, now: Timestamp) -> Option<Message> {
        if self.len() >= WAITING_MAX {
            return Some(Message::one(&self.channel, told));
        }
        let at = told.notice.at;
        let is_urgent = self.config.at_once.contains(&told.notice.kind);
        if let Some(due) =
            schedule::due(self.config.digest_every_ms, self.config.quiet, at).filter(|_| !is_urgent)
        {
            self.gathered.entry(due).or_default().push(told);
            return None;
        }
        // It overtakes nothing about its subject: digests that are due go out before it, and notices gathered for later ones are included.
        self.close(at, now);
        let mut out = Vec::new();
        for gathered in self.gathered.values_mut() {
            out.extend(gathered.extract_if(.., |other| {
                other.notice.subject() == told.notice.subject() && other.notice.at <= at
            }));
        }
        out.sort_by_key(|told| told.notice.at);
        out.push(told);
        for told in out {
            let born = told.notice.at;
            self.push(Message::one(&self.channel, told), born, now);
        }
        None
    }

    /// Makes digests of the notices gathered until then.
    fn close(&mut self, until: Timestamp, now: Timestamp) {
        while let Some(first) = self.gathered.first_entry().filter(|first| *first.key() <= until) {
            let (due, mut gathered) = first.remove_entry();
            gathered.sort_by(|one, other| {
                (one.notice.at, &one.notice.of).cmp(&(other.notice.at, &other.notice.of))
            });
            for chunk in gathered.chunks(DIGEST_MAX) {
                let message = match chunk {
                    [only] => Message::one(&self.channel, only.clone()),
                    many => Message::digest(&self.channel, due, many.to_vec()),
                };
                self.push(message, due, now);
            }
        }
    }

    fn push(&mut self, message: Message, born: Timestamp, now: Timestamp) {
        let key = self.next;
        self.next = self.next.saturating_add(1);
        let mut behind: usize = 0;
        // A digest waits for earlier messages about each of its calls, and later ones wait for the digest.
        for subject in subjects(&message) {
            let queue = self.queues.entry(subject).or_default();
            behind = behind.saturating_add(usize::from(!queue.is_empty()));
            queue.push_back(key);
        }
        if behind == 0 {
            self.ready.insert((now, key));
        }
        let job = Job { message, due: now, born, failures: 0, sending: false, behind };
        self.jobs.insert(key, job);
    }

    /// A message has ended: the next one about each of its subjects may go.
    fn remove(&mut self, key: u64) -> Option<Message> {
        let job = self.jobs.remove(&key)?;
        self.ready.remove(&(job.due, key));
        for subject in subjects(&job.message) {
            let Some(queue) = self.queues.get_mut(&subject) else { continue };
            queue.pop_front();
            let Some(next) = queue.front().copied() else {
                self.queues.remove(&subject);
                continue;
            };
            let Some(job) = self.jobs.get_mut(&next) else { continue };
            job.behind = job.behind.saturating_sub(1);
            if job.behind == 0 {
                self.ready.insert((job.due, next));
            }
        }
        Some(job.message)
    }

    /// Makes digests of notices that were gathered long enough.
    pub(crate) fn gather(&mut self, now: Timestamp) {
        self.close(now.plus_ms(LATE_MS.saturating_neg()), now);
    }

    /// The messages to send now.
    pub(crate) fn take(&mut self, now: Timestamp) -> Vec<Taken> {
        let mut taken = Vec::new();
        while self.sending < PARALLEL_MAX {
            let Some((due, key)) = self.ready.first().copied().filter(|(due, _)| *due <= now)
            else {
                return taken;
            };
            self.ready.remove(&(due, key));
            let Some(job) = self.jobs.get_mut(&key) else { continue };
            job.sending = true;
            self.sending = self.sending.saturating_add(1);
            taken.push(Taken { key, message: job.message.clone() });
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
            Ok(()) => return self.remove(key).map(After::Sent),
            Err(failure) => failure,
        };
        let age_ms = u64::try_from(now.since_ms(job.born)).unwrap_or(0);
        let wait_ms =
            self.config.retry.wait_ms(&job.message.id, job.failures, failure.retry_after_ms);
        job.failures = job.failures.saturating_add(1);
        let too_old = age_ms.saturating_add(wait_ms) > self.config.retry.give_up_after_ms;
        if failure.is_permanent || (too_old && job.failures >= TRIES_LEAST) {
            return self.remove(key).map(After::GivenUp);
        }
        job.due = now.plus_ms(i64::try_from(wait_ms).unwrap_or(i64::MAX));
        self.ready.insert((job.due, key));
        Some(After::Again)
    }
}

fn subjects(message: &Message) -> BTreeSet<String> {
    message.told().iter().map(|told| told.notice.subject().to_owned()).collect()
}

impl Retry {
    /// The wait before the next attempt: doubled each time, up to a bound; half of it is fixed and the rest is jitter that depends on the
    /// message, so that messages that failed together are not retried together.
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

#[cfg(test)]
mod tests;
