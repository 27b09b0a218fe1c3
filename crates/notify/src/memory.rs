//! What the chain remembers for the sender: how far it had read, and what it had sent.
//!
//! Owns finding the last [`DeliveryMark::ReadTo`] and what was noted since. Invariant: what was sent before a restart is known before
//! anything is sent after it.

use std::collections::{BTreeMap, BTreeSet};

use placet_ledger::{
    delivery::{DeliveryMark, WaitingAt},
    store::StoreError,
};
use placet_types::{clock::Timestamp, ids::ChannelName};

use crate::{entry, ledger_reader::LedgerReader};

/// How many entries are read at a time.
const READ: u64 = 256;
/// How many entries of each log are searched for the last note of the sender before any log is searched further.
const SEARCH_FIRST: u64 = 65_536;
/// How old the last entry of a log is, at least, that is left out of the notes, in milliseconds.
pub(crate) const CLOSED_MS: i64 = 7 * 86_400_000;

/// What was sent or given up: the channel, and what it was of.
pub(crate) type Settled = BTreeSet<(ChannelName, String)>;

/// Where to go on.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) places: BTreeMap<String, u64>,
    pub(crate) as_of: Timestamp,
    pub(crate) waiting: BTreeMap<String, Vec<WaitingAt>>,
    pub(crate) settled: Settled,
    /// The times of the last entries, of the logs that were read to their end.
    pub(crate) last_ms: BTreeMap<String, i64>,
}

/// The last note, and when it was made.
struct Last {
    at_ms: i64,
    places: BTreeMap<String, u64>,
    as_of: Timestamp,
    waiting: BTreeMap<String, Vec<WaitingAt>>,
}

/// Reads what the chain remembers; nothing when nobody ever sent anything.
pub(crate) async fn recall(book: &dyn LedgerReader) -> Result<Option<Memory>, StoreError> {
    let heads = book.heads().await?;
    let mut last: Option<Last> = None;
    let mut last_ms = BTreeMap::new();
    for (log, head) in &heads {
        if let Some(at_ms) = at_ms_of(book, log, *head).await? {
            last_ms.insert(log.clone(), at_ms);
        }
        search(book, log, head.saturating_sub(SEARCH_FIRST), *head, &mut last).await?;
    }
    if last.is_none() {
        // To overlook a note would be to forget all that waits.
        for (log, head) in &heads {
            search(book, log, 0, head.saturating_sub(SEARCH_FIRST), &mut last).await?;
        }
    }
    let Some(last) = last else { return Ok(None) };
    let mut places = BTreeMap::new();
    let mut settled = Settled::new();
    for (log, head) in &heads {
        let place = match last.places.get(log) {
            Some(place) => *place,
            // It was left out because it was closed, or began later.
            None => first_since(book, log, *head, last.at_ms.saturating_sub(CLOSED_MS)).await?,
        };
        let place = still_there(book, log, place, *head).await?;
        marks(book, log, place, *head, &mut settled).await?;
        if place < *head {
            last_ms.remove(log);
        }
        places.insert(log.clone(), place);
    }
    Ok(Some(Memory { places, as_of: last.as_of, waiting: last.waiting, settled, last_ms }))
}

/// When an entry was written; nothing when it is in an archive.
async fn at_ms_of(book: &dyn LedgerReader, log: &str, seq: u64) -> Result<Option<i64>, StoreError> {
    match book.entries(log, seq, 1).await {
        Ok(entries) => Ok(entries.first().map(|entry| entry.at_ms)),
        Err(StoreError::Damaged(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Looks for the last note among the entries of a log after `lowest`, from `until` backwards.
async fn search(
    book: &dyn LedgerReader,
    log: &str,
    lowest: u64,
    mut until: u64,
    last: &mut Option<Last>,
) -> Result<(), StoreError> {
    while until > lowest {
        let from = until.saturating_sub(READ).max(lowest);
        let limit = usize::try_from(until.saturating_sub(from)).unwrap_or(usize::MAX);
        let entries = match book.entries(log, from.saturating_add(1), limit).await {
            Ok(entries) => entries,
            // Older segments are in an archive.
            Err(StoreError::Damaged(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries.iter().rev().filter(|entry| entry.seq <= until) {
            if last.as_ref().is_some_and(|last| entry.at_ms < last.at_ms) {
                return Ok(());
            }
            for mark in entry::read(entry).marks {
                if let DeliveryMark::ReadTo { places, as_of, waiting } = mark {
                    *last = Some(Last { at_ms: entry.at_ms, places, as_of, waiting });
                    return Ok(());
                }
            }
        }
        until = from;
    }
    Ok(())
}

/// The entry before the first one that was written at that moment or later.
async fn first_since(
    book: &dyn LedgerReader,
    log: &str,
    head: u64,
    at_ms: i64,
) -> Result<u64, StoreError> {
    let (mut low, mut high) = (1_u64, head.saturating_add(1));
    while low < high {
        let middle = low.midpoint(high);
        // What is in an archive is older.
        if at_ms_of(book, log, middle).await?.is_some_and(|written_ms| written_ms >= at_ms) {
            high = middle;
        } else {
            low = middle.saturating_add(1);
        }
    }
    Ok(low.saturating_sub(1))
}

/// Where reading goes on after `place`: there; or, where what came next is in an archive that was taken away, before the first entry that
/// can still be read. Nobody is told of what is between, and the log says so.
pub(crate) async fn still_there(
    book: &dyn LedgerReader,
    log: &str,
    place: u64,
    head: u64,
) -> Result<u64, StoreError> {
    let next = place.saturating_add(1);
    if next > head || is_there(book, log, next).await? || !is_there(book, log, head).await? {
        return Ok(place);
    }
    // Only the oldest are ever archived: what is there begins somewhere, and goes on to the end.
    let (mut gone, mut there) = (next, head);
    while gone.saturating_add(1) < there {
        let middle = gone.midpoint(there);
        if is_there(book, log, middle).await? {
            there = middle;
        } else {
            gone = middle;
        }
    }
    tracing::warn!(
        log,
        first = next,
        last = gone,
        "entries were archived before they were read for messages: nobody is told of what is in them"
    );
    Ok(gone)
}

async fn is_there(book: &dyn LedgerReader, log: &str, seq: u64) -> Result<bool, StoreError> {
    match book.entries(log, seq, 1).await {
        Ok(_) => Ok(true),
        Err(StoreError::Damaged(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Collects what was sent or given up.
async fn marks(
    book: &dyn LedgerReader,
    log: &str,
    place: u64,
    head: u64,
    settled: &mut Settled,
) -> Result<(), StoreError> {
    let mut next = place.saturating_add(1);
    while next <= head {
        let entries = book.entries(log, next, usize::try_from(READ).unwrap_or(usize::MAX)).await?;
        let Some(end) = entries.last() else { return Ok(()) };
        next = end.seq.saturating_add(1);
        for mark in entries.iter().flat_map(|entry| entry::read(entry).marks) {
            match mark {
                DeliveryMark::Sent { channel, of } | DeliveryMark::GivenUp { channel, of } => {
                    settled.extend(of.into_iter().map(|of| (channel.clone(), of)));
                }
                DeliveryMark::ReadTo { .. } => {}
            }
        }
    }
    Ok(())
}
