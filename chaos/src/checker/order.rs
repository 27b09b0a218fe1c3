//! The order in which the entries of several logs were written.
//!
//! Owns that order: within a log its numbers; between logs the time of the one database, and if its clock was moved, the order of
//! revisions. A node continues with the latest time that it has seen when that clock is put back, so two nodes may be hours apart for a
//! moment, and milliseconds for long. Judges nothing: an entry that fits nowhere is placed by its time.

use std::collections::{BTreeMap, HashMap, VecDeque};

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

/// Sorts by revision: of the next entries of all logs, the earliest whose revisions follow the known ones. Expects them ordered by time.
pub(super) fn by_revisions<'a>(entries: &mut Vec<&'a JournalEntry>) {
    let mut logs: BTreeMap<&str, VecDeque<&'a JournalEntry>> = BTreeMap::new();
    for entry in entries.iter() {
        logs.entry(&entry.log).or_default().push_back(entry);
    }
    let mut known = Known::of(entries);
    let count = entries.len();
    entries.clear();
    while entries.len() < count {
        let heads = logs.values().filter_map(|log| log.front().copied());
        let next = heads.min_by_key(|entry| (!known.fits(entry), entry.at_ms, &entry.log));
        let Some(next) = next else { return };
        logs.entry(&next.log).or_default().pop_front();
        known.take(next);
        entries.push(next);
    }
}

/// Something with revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Thing<'a> {
    Record(&'a str),
    Approval(&'a str),
    Directive(&'a str),
}

/// What an entry does to one of them.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// It gets this revision, one more than it had.
    Becomes(u64),
    /// It had this revision, and is gone.
    Ends(u64),
    /// A standing grant is used, at one revision more than it had.
    IsUsed,
}

/// The revisions known so far.
#[derive(Debug, Default)]
struct Known<'a> {
    revs: HashMap<Thing<'a>, u64>,
    /// The revision in which an entry of the approval service came into force: it is not used before.
    in_force: HashMap<&'a str, u64>,
}

impl<'a> Known<'a> {
    /// No revisions yet for these entries.
    fn of(entries: &[&'a JournalEntry]) -> Self {
        let mut known = Self::default();
        for image in entries.iter().flat_map(|entry| &entry.directives) {
            if image.state == "active" {
                let first = known.in_force.entry(&image.directive_id).or_insert(image.rev);
                *first = image.rev.min(*first);
            }
        }
        known
    }

    fn rev(&self, thing: Thing<'_>) -> u64 {
        self.revs.get(&thing).copied().unwrap_or(0)
    }

    fn fits(&self, entry: &'a JournalEntry) -> bool {
        // If an entry changes something twice, the first change decides whether it fits.
        let mut seen = Vec::new();
        steps(entry).all(|(thing, step)| {
            let again = seen.contains(&thing);
            seen.push(thing);
            again
                || match step {
                    Step::Becomes(rev) => self.rev(thing).saturating_add(1) == rev,
                    Step::Ends(rev) => self.rev(thing) == rev,
                    Step::IsUsed => self.rev(thing) >= self.first_use(thing),
                }
        })
    }

    fn first_use(&self, thing: Thing<'_>) -> u64 {
        match thing {
            Thing::Directive(id) => self.in_force.get(id).copied().unwrap_or(0),
            Thing::Record(_) | Thing::Approval(_) => 0,
        }
    }

    fn take(&mut self, entry: &'a JournalEntry) {
        for (thing, step) in steps(entry) {
            let rev = match step {
                Step::Becomes(rev) => rev,
                Step::Ends(_) => 0,
                Step::IsUsed => self.rev(thing).saturating_add(1),
            };
            self.revs.insert(thing, rev);
        }
    }
}

fn steps(entry: &JournalEntry) -> impl Iterator<Item = (Thing<'_>, Step)> {
    let changes = entry.changes.iter().map(|change| {
        let step = match change {
            RecordChange::Put(image) => Step::Becomes(image.rev),
            RecordChange::Removed { rev, .. } | RecordChange::Forgotten { rev, .. } => {
                Step::Ends(*rev)
            }
        };
        (Thing::Record(change.record_id()), step)
    });
    let approvals = entry
        .approvals
        .iter()
        .map(|one| (Thing::Approval(&one.approval_id), Step::Becomes(one.rev)));
    let directives = entry
        .directives
        .iter()
        .map(|one| (Thing::Directive(&one.directive_id), Step::Becomes(one.rev)));
    let used = entry.spend.iter().map(|id| (Thing::Directive(id), Step::IsUsed));
    changes.chain(approvals).chain(directives).chain(used)
}

#[cfg(test)]
mod tests {
    use super::{by_revisions, by_time};
    use crate::history::journal::{DirectiveImage, JournalEntry, RecordChange, RecordImage};

    fn entry(log: &str, seq: u64, at_ms: i64) -> JournalEntry {
        JournalEntry { log: log.to_owned(), seq, at_ms, ..JournalEntry::default() }
    }

    fn put(log: &str, seq: u64, at_ms: i64, record: &str, rev: u64) -> JournalEntry {
        let record_id = record.to_owned();
        let image = RecordImage { record_id, rev, ..RecordImage::default() };
        let changes = vec![RecordChange::Put(Box::new(image))];
        JournalEntry { changes, ..entry(log, seq, at_ms) }
    }

    fn gone(log: &str, seq: u64, at_ms: i64, record: &str, rev: u64) -> JournalEntry {
        let changes = vec![RecordChange::Removed { record_id: record.to_owned(), rev }];
        JournalEntry { changes, ..entry(log, seq, at_ms) }
    }

    fn sorted(entries: &[JournalEntry]) -> Vec<String> {
        let mut sorted: Vec<&JournalEntry> = entries.iter().collect();
        by_time(&mut sorted);
        by_revisions(&mut sorted);
        sorted.iter().map(|entry| format!("{}{}", entry.log, entry.seq)).collect()
    }

    #[test]
    fn revisions_are_believed_more_than_a_clock_that_was_put_back() {
        // Log `a` is an hour ahead of log `b`.
        let entries = [
            put("a", 1, 1_000, "x", 1),
            put("a", 2, 3_600_000, "x", 3),
            put("a", 3, 3_600_100, "y", 1),
            put("b", 1, 1_500, "x", 2),
            put("b", 2, 1_600, "y", 2),
            put("b", 3, 1_700, "x", 4),
        ];
        assert_eq!(sorted(&entries), ["a1", "b1", "a2", "a3", "b2", "b3"]);
    }

    #[test]
    fn where_no_revision_says_otherwise_time_does() {
        let entries = [
            put("a", 1, 10, "x", 1),
            put("a", 2, 30, "x", 2),
            put("b", 1, 20, "y", 1),
            put("b", 2, 40, "z", 1),
        ];
        assert_eq!(sorted(&entries), ["a1", "b1", "a2", "b2"]);
    }

    #[test]
    fn what_was_removed_begins_again_after_its_end() {
        let entries = [
            put("a", 1, 10, "x", 1),
            gone("a", 2, 3_600_000, "x", 1),
            put("b", 1, 20, "x", 1),
            put("b", 2, 30, "x", 2),
        ];
        assert_eq!(sorted(&entries), ["a1", "a2", "b1", "b2"]);
    }

    #[test]
    fn a_grant_is_used_when_it_is_in_force_and_what_fits_nowhere_stands_by_its_time() {
        let image = |rev: u64, state: &str| DirectiveImage {
            directive_id: "grant".to_owned(),
            rev,
            state: state.to_owned(),
            ..DirectiveImage::default()
        };
        let asked = JournalEntry { directives: vec![image(1, "proposed")], ..entry("a", 1, 10) };
        let given =
            JournalEntry { directives: vec![image(2, "active")], ..entry("a", 2, 3_600_000) };
        let spend = Some("grant".to_owned());
        let used = JournalEntry { spend, ..entry("b", 1, 20) };
        let ended = JournalEntry { directives: vec![image(4, "ended")], ..entry("c", 1, 5) };
        let stray = put("d", 1, 30, "x", 7);
        let entries = [asked, given, used, ended, stray];
        assert_eq!(sorted(&entries), ["a1", "a2", "b1", "c1", "d1"]);
    }
}
