//! What is gathered for digests, and what has to go out after them.
//!
//! Owns what waits for its time. Does not send. Invariant: which digest something is in, and what goes out after which digest, follows from
//! the times of what is told alone, so that a restart gathers the same again.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use placet_types::clock::Timestamp;

use super::Item;

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
    together: BTreeMap<String, Vec<Item>>,
    /// What is told after that, each by itself, in this order.
    after: Vec<Item>,
}

/// What was gathered for a moment that has come.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) due: Timestamp,
    /// In the order of time.
    pub(super) together: Vec<Item>,
    pub(super) after: Vec<Item>,
}

impl Gathering {
    /// How much waits.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Something to be told with a digest.
    pub(super) fn put(&mut self, due: Timestamp, item: Item) {
        let gathered = self.by_due.entry(due).or_default();
        gathered.together.entry(item.subject().to_owned()).or_default().push(item);
        self.count = self.count.saturating_add(1);
    }

    /// Something that is to be told by itself. Answers what goes out now, in order: what is gathered about the same subject comes along,
    /// so that it is not overtaken. Where a digest with that subject is due already, all of it goes out after that one.
    pub(super) fn at_once(&mut self, item: Item) -> Vec<Item> {
        let at = item.at();
        let mut due = self.by_due.range(..=at).rev();
        let digest = due.find(|(_, gathered)| gathered.has(item.subject())).map(|(due, _)| *due);
        let mut now = Vec::new();
        for (_, gathered) in self.by_due.range_mut((Excluded(at), Unbounded)) {
            now.extend(gathered.taken(item.subject(), at));
        }
        self.count = self.count.saturating_sub(now.len());
        self.by_due.retain(|_, gathered| !gathered.is_empty());
        now.sort_by_key(Item::at);
        now.push(item);
        let Some(digest) = digest.and_then(|due| self.by_due.get_mut(&due)) else { return now };
        self.count = self.count.saturating_add(now.len());
        digest.after.append(&mut now);
        now
    }

    /// What was gathered for the first moment, if that was before `until`.
    pub(super) fn ready(&mut self, until: Timestamp) -> Option<Ready> {
        let first = self.by_due.first_entry().filter(|first| *first.key() <= until)?;
        let (due, gathered) = first.remove_entry();
        let mut together: Vec<Item> = gathered.together.into_values().flatten().collect();
        together.sort_by(|one, other| {
            (one.at(), &one.told.notice.of).cmp(&(other.at(), &other.told.notice.of))
        });
        let many = together.len().saturating_add(gathered.after.len());
        self.count = self.count.saturating_sub(many);
        Some(Ready { due, together, after: gathered.after })
    }

    /// All that waits.
    pub(super) fn items(&self) -> impl Iterator<Item = &Item> {
        self.by_due
            .values()
            .flat_map(|gathered| gathered.together.values().flatten().chain(&gathered.after))
    }
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.together.is_empty() && self.after.is_empty()
    }

    fn has(&self, subject: &str) -> bool {
        self.together.contains_key(subject)
            || self.after.iter().any(|item| item.subject() == subject)
    }

    /// Takes out what is about a subject and not later than `at`.
    fn taken(&mut self, subject: &str, at: Timestamp) -> Vec<Item> {
        let Some(items) = self.together.remove(subject) else { return Vec::new() };
        let (taken, left): (Vec<Item>, Vec<Item>) =
            items.into_iter().partition(|item| item.at() <= at);
        if !left.is_empty() {
            self.together.insert(subject.to_owned(), left);
        }
        taken
    }
}
