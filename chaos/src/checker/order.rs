//! The order in which the entries of several logs were written.
//!
//! Owns that order: within a log its numbers; between logs the time of the one database, and within one millisecond the revisions.
//! Judges nothing.

use std::collections::HashMap;

use super::story::Written;
use crate::history::journal::{JournalEntry, RecordChange};

/// Sorts by time. Within a log the order is that of its numbers.
pub(super) fn by_time(entries: &mut [&JournalEntry]) {
    entries.sort_by(|a, b| (&a.log, a.seq).cmp(&(&b.log, b.seq)));
    let mut latest: HashMap<&str, i64> = HashMap::new();
    // A time that went back does not move an entry before those that are before it in its log.
    entries.sort_by_cached_key(|entry| {
        let latest = latest.entry(&entry.log).or_insert(i64::MIN);
        *latest = entry.at_ms.max(*latest);
        (*latest, entry.log.clone(), entry.seq)
    });
}

/// Sorts entries of different logs within one millisecond by revision.
pub(super) fn at_one_moment(written: &mut [Written<'_>]) {
    let one_log =
        written.windows(2).all(|pair| matches!(pair, [a, b] if a.entry.log == b.entry.log));
    if one_log {
        return;
    }
    let (mut at, mut last) = (0_usize, 0_u64);
    while at < written.len() {
        let Some(rest) = written.get_mut(at..) else { return };
        let Some(ms) = rest.first().map(|first| first.entry.at_ms) else { return };
        let follows = |one: &Written<'_>| one.change.rev() == last.saturating_add(1);
        let tied = rest.iter().take_while(|one| one.entry.at_ms == ms);
        let next = tied.clone().position(follows).or_else(|| {
            tied.enumerate().min_by_key(|(_, one)| one.change.rev()).map(|(place, _)| place)
        });
        if let Some(next) = next {
            rest.swap(0, next);
        }
        last = match rest.first().map(|first| first.change) {
            Some(RecordChange::Put(image)) => image.rev,
            Some(RecordChange::Removed { .. } | RecordChange::Forgotten { .. }) | None => 0,
        };
        at = at.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::by_time;
    use crate::history::journal::JournalEntry;

    fn entry(log: &str, seq: u64, at_ms: i64) -> JournalEntry {
        JournalEntry { log: log.to_owned(), seq, at_ms, ..JournalEntry::default() }
    }

    #[test]
    fn logs_are_ordered_by_time_and_each_by_its_numbers() {
        let entries = [
            entry("a", 1, 10),
            entry("a", 2, 30),
            entry("a", 3, 15),
            entry("b", 1, 20),
            entry("b", 2, 40),
        ];
        let mut sorted: Vec<&JournalEntry> = entries.iter().collect();
        by_time(&mut sorted);
        let sorted = sorted.iter().map(|entry| format!("{}{}", entry.log, entry.seq));
        assert_eq!(sorted.collect::<Vec<_>>(), ["a1", "b1", "a2", "a3", "b2"]);
    }
}
