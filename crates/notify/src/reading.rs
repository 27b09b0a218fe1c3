//! Reading on in the chain from the last position.
//!
//! Owns the positions in the logs and the order in which entries of several logs are taken. Invariant: an event of a call on one node
//! that happened after an event on another node is taken after it.

use std::collections::BTreeMap;

use placet_ledger::{log::LogEntry, store::StoreError};

use crate::ledger_reader::LedgerReader;

/// How many entries of a log are read in one turn.
const READ: usize = 1_024;

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The entries of all logs, ordered by time.
    pub(crate) entries: Vec<(String, LogEntry)>,
    /// Whether there is more.
    pub(crate) more: bool,
}

/// Reads on, and advances the positions.
pub(crate) async fn on(
    book: &dyn LedgerReader,
    places: &mut BTreeMap<String, u64>,
) -> Result<Batch, StoreError> {
    // Read at one moment, so that whatever came before a visible entry is visible too.
    let heads = book.heads().await?;
    let mut batch = Batch::default();
    let mut safe_ms = i64::MAX;
    for (log, head) in &heads {
        let place = places.get(log).copied().unwrap_or(0);
        let left = usize::try_from(head.saturating_sub(place)).unwrap_or(usize::MAX);
        if left == 0 {
            continue;
        }
        let entries = after(book, log, place, *head, left.min(READ)).await?;
        let entries = entries.into_iter().filter(|entry| entry.seq <= *head);
        let before = batch.entries.len();
        batch.entries.extend(entries.map(|entry| (log.clone(), entry)));
        let read = batch.entries.len().saturating_sub(before);
        if let Some((_, last)) = batch.entries.last().filter(|_| read > 0 && left > read) {
            safe_ms = safe_ms.min(last.at_ms);
            batch.more = true;
        }
    }
    // Of a log that is ahead of another one, the rest is read again later.
    batch.entries.retain(|(_, entry)| entry.at_ms <= safe_ms);
    batch.entries.sort_by(|(log, entry), (other_log, other)| {
        (entry.at_ms, log, entry.seq).cmp(&(other.at_ms, other_log, other.seq))
    });
    for (log, entry) in &batch.entries {
        let place = places.entry(log.clone()).or_insert(0);
        *place = (*place).max(entry.seq);
    }
    Ok(batch)
}

/// The next entries after a position. If they are in an archive that was taken away, only the last one that is still there: nobody is
/// notified of what is between, and the log says so.
async fn after(
    book: &dyn LedgerReader,
    log: &str,
    place: u64,
    head: u64,
    limit: usize,
) -> Result<Vec<LogEntry>, StoreError> {
    let first = place.saturating_add(1);
    match book.entries(log, first, limit).await {
        Err(StoreError::Damaged(why)) => {
            tracing::warn!(
                log,
                first,
                head,
                why,
                "entries were archived before they were read for messages: nobody is told of what is before the last one"
            );
            book.entries(log, head, 1).await
        }
        read => read,
    }
}
