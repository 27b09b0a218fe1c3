//! What is gathered for digests, and what has to go out after them.
//!
//! Owns what waits for its time. Does not send. Invariant: which digest something is in, and what goes out after which digest, follows from
//! the times of what is told alone, so that a restart gathers the same again.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use placet_types::clock::Timestamp;

use crate::message::Told;

/// What waits for digests.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    by_due: BTreeMap<Timestamp, Gathered>,
    count: usize,
}

/// What waits for one moment.
#[derive(Debug, Default)]
struct Gathered {
    /// What is told together then, by subject.
    together: BTreeMap<String, Vec<Told>>,
    /// What is told after that, each by itself, in this order.
    after: Vec<Told>,
}

/// What was gathered for a moment that has come.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) due: Timestamp,
    /// In the order of time.
    pub(super) together: Vec<Told>,
    pub(super) after: Vec<Told>,
}

impl Gathering {
    /// How much waits.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Something to be told with a digest.
    pub(super) fn put(&mut self, due: Timestamp, told: Told) {
        let gathered = self.by_due.entry(due).or_default();
        gathered.together.entry(told.notice.subject().to_owned()).or_default().push(told);
        self.count = self.count.saturating_add(1);
    }

    /// Something that is to be told by itself. Answers what goes out now, in order: what is gathered about the same subject comes along,
    /// so that it is not overtaken. Where a digest with that subject is due already, all of it goes out after that one.
    pub(super) fn at_once(&mut self, told: Told) -> Vec<Told> {
        let at = told.notice.at;
        let mut due = self.by_due.range(..=at).rev();
        let digest =
            due.find(|(_, gathered)| gathered.has(told.notice.subject())).map(|(due, _)| *due);
        let mut now = Vec::new();
        for (_, gathered) in self.by_due.range_mut((Excluded(at), Unbounded)) {
            now.extend(gathered.taken(told.notice.subject(), at));
        }
        self.count = self.count.saturating_sub(now.len());
        self.by_due.retain(|_, gathered| !gathered.is_empty());
        now.sort_by_key(|told| told.notice.at);
        now.push(told);
        let Some(digest) = digest.and_then(|due| self.by_due.get_mut(&due)) else { return now };
        self.count = self.count.saturating_add(now.len());
        digest.after.append(&mut now);
        now
    }

    /// What was gathered for the first moment, if that was before `until`.
    pub(super) fn ready(&mut self, until: Timestamp) -> Option<Ready> {
        let first = self.by_due.first_entry().filter(|first| *first.key() <= until)?;
        let (due, gathered) = first.remove_entry();
        let mut together: Vec<Told> = gathered.together.into_values().flatten().collect();
        together.sort_by(|one, other| {
            (one.notice.at, &one.notice.of).cmp(&(other.notice.at, &other.notice.of))
        });
        let many = together.len().saturating_add(gathered.after.len());
        self.count = self.count.saturating_sub(many);
        Some(Ready { due, together, after: gathered.after })
    }
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.together.is_empty() && self.after.is_empty()
    }

    fn has(&self, subject: &str) -> bool {
        self.together.contains_key(subject)
            || self.after.iter().any(|told| told.notice.subject() == subject)
    }

    /// Takes out what is about a subject and not later than `at`.
    fn taken(&mut self, subject: &str, at: Timestamp) -> Vec<Told> {
        let Some(items) = self.together.remove(subject) else { return Vec::new() };
        let (taken, left): (Vec<Told>, Vec<Told>) =
            items.into_iter().partition(|told| told.notice.at <= at);
        if !left.is_empty() {
            self.together.insert(subject.to_owned(), left);
        }
        taken
    }
}
