//! What a batch writes: contents, records, tiles, entries.
//!
//! Owns the statements. Not here: how records become rows (`rows`), the decisions (`batch`). Invariants: entries are chained without gaps,
//! and their hashes are those of the journal's frames, so that proofs and exports are the same for every store; content that is kept again
//! exists afterwards, even if another node deletes it at the same moment.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sqlx::postgres::PgConnection;
use sqlx::query;

use placet_ledger::audit::Subject;
use placet_ledger::log::LogEntry;
use placet_ledger::proof::tiles::TilePart;
use placet_types::digest::Digest;
use placet_types::ids::{DirectiveId, RecordId};

use super::batch::Piece;
use super::directives;
use super::error::Hitch;
use super::load::Standing;
use super::rows::{self, EffectRows, Entry, column};
use super::state::Head;
use crate::seal::entry_hash;

/// The entry of a piece after `head`; its hash is that of the journal's frame.
pub(super) fn entry_after(
    head: Head,
    epoch: u64,
    durable_seq: u64,
    at_ms: i64,
    piece: &Piece,
) -> LogEntry {
    let (seq, payload) = (head.seq.saturating_add(1), piece.payload.clone());
    let (kind, prev, hash) = (piece.kind, head.hash, Head::NONE.hash);
    let entry = LogEntry { seq, epoch, at_ms, kind, durable_seq, prev, hash, payload };
    LogEntry { hash: entry_hash(&entry), ..entry }
}

pub(super) async fn put_content(
    connection: &mut PgConnection,
    pieces: &[&Piece],
) -> Result<(), Hitch> {
    let contents = pieces.iter().flat_map(|piece| &piece.content);
    let contents =
        contents.map(|(tenant, digest, bytes)| (tenant.as_str(), *digest, bytes.as_slice()));
    put_contents(connection, contents.collect()).await
}

/// Keeps contents. An existing row is locked by incrementing its counter: a deletion in progress on another node is waited for, and one
/// that begins meanwhile finds that the counter has changed ([`forget_content`]).
pub(super) async fn put_contents(
    connection: &mut PgConnection,
    mut contents: Vec<(&str, Digest, &[u8])>,
) -> Result<(), Hitch> {
    if contents.is_empty() {
        return Ok(());
    }
    // By key, as every node does it.
    contents.sort_unstable();
    contents.dedup_by(|a, b| (a.0, a.1) == (b.0, b.1));
    let tenants: Vec<&str> = contents.iter().map(|(tenant, ..)| *tenant).collect();
    let digests: Vec<&[u8]> =
        contents.iter().map(|(_, digest, _)| digest.as_bytes().as_slice()).collect();
    let bytes: Vec<&[u8]> = contents.iter().map(|(.., bytes)| *bytes).collect();
    query(
        "INSERT INTO placet.content (tenant, digest, bytes) SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[]) \
         ON CONFLICT (tenant, digest) DO UPDATE SET kept_again = content.kept_again + 1",
    )
    .bind(tenants)
    .bind(digests)
    .bind(bytes)
    .execute(connection)
    .await?;
    Ok(())
}

/// What a batch deletes. What a later piece keeps again stays.
fn gone_after<'a>(pieces: &[&'a Piece]) -> BTreeSet<(&'a str, &'a [u8; 32])> {
    let mut gone = BTreeSet::new();
    for piece in pieces {
        for (tenant, digest, _) in &piece.content {
            gone.remove(&(tenant.as_str(), digest.as_bytes()));
        }
        let deleted = piece.changes.forget_content.iter();
        gone.extend(deleted.map(|(tenant, digest)| (tenant.as_str(), digest.as_bytes())));
    }
    gone
}

/// Rows are locked by key, as every node does it. If another node kept a content again during the wait, its counter has changed and the row
/// stays: a record of that node now names it.
const FORGET: &str = "WITH seen AS MATERIALIZED ( \
       SELECT c.tenant, c.digest, c.kept_again FROM placet.content AS c \
       JOIN unnest($1::text[], $2::bytea[]) AS n (tenant, digest) ON c.tenant = n.tenant AND c.digest = n.digest), \
     held AS MATERIALIZED ( \
       SELECT c.tenant, c.digest FROM placet.content AS c JOIN seen AS s ON c.tenant = s.tenant AND c.digest = s.digest \
       WHERE c.kept_again = s.kept_again ORDER BY c.tenant, c.digest FOR UPDATE OF c) \
     DELETE FROM placet.content AS c USING held AS h WHERE c.tenant = h.tenant AND c.digest = h.digest";

pub(super) async fn forget_content(
    connection: &mut PgConnection,
    pieces: &[&Piece],
) -> Result<(), Hitch> {
    let gone = gone_after(pieces);
    if gone.is_empty() {
        return Ok(());
    }
    let (tenants, digests): (Vec<&str>, Vec<&[u8]>) =
        gone.into_iter().map(|(tenant, digest)| (tenant, digest.as_slice())).unzip();
    query(FORGET).bind(tenants).bind(digests).execute(connection).await?;
    Ok(())
}

pub(super) async fn put_effects(
    connection: &mut PgConnection,
    epoch: u64,
    standing: &Standing<'_>,
    wrote: &HashMap<RecordId, u64>,
) -> Result<(), Hitch> {
    let (mut fresh, mut moved, mut gone) =
        (EffectRows::default(), EffectRows::default(), Vec::new());
    // By key, as every node does it.
    let mut changed: Vec<_> = standing.effects.iter().collect();
    changed.sort_unstable_by_key(|(record_id, _)| **record_id);
    for (record_id, after) in changed {
        let before = standing.loaded.effects.get(record_id).map(|before| before.rev);
        let entry = Entry { epoch, seq: wrote.get(record_id).copied().unwrap_or(0) };
        match (before, after) {
            (None, Some(after)) => fresh.push(after, 0, entry)?,
            (Some(before), Some(after)) => moved.push(after, before, entry)?,
            (Some(before), None) => gone.push((*record_id, before)),
            (None, None) => {}
        }
    }
    moved.update(&mut *connection).await?;
    rows::delete_effects(&mut *connection, &gone).await?;
    fresh.insert(connection).await?;
    Ok(())
}

pub(super) async fn put_approvals_and_runs(
    connection: &mut PgConnection,
    standing: &Standing<'_>,
) -> Result<(), Hitch> {
    let (mut approvals, mut gone) = (Vec::new(), Vec::new());
    for (approval_id, after) in &standing.approvals {
        let before = standing.loaded.approvals.get(approval_id);
        match (after, before) {
            (Some(after), before) => {
                approvals.push((Arc::clone(after), before.map_or(0, |before| before.rev)));
            }
            (None, Some(before)) => gone.push(Arc::clone(before)),
            (None, None) => {}
        }
    }
    approvals.sort_unstable_by(|(a, _), (b, _)| a.approval_id.cmp(&b.approval_id));
    rows::put_approvals(&mut *connection, &approvals).await?;
    rows::delete_approvals(&mut *connection, &gone).await?;
    let runs: Vec<_> = standing
        .runs
        .iter()
        .map(|(key, after)| (Arc::clone(after), standing.loaded.runs.contains_key(key)))
        .collect();
    rows::put_runs(connection, &runs).await?;
    Ok(())
}

pub(super) async fn put_directive(
    connection: &mut PgConnection,
    standing: &Standing<'_>,
) -> Result<(), Hitch> {
    let before =
        |id: &DirectiveId| standing.loaded.directives.get(id).map_or(0, |before| before.rev);
    let (mut changed, mut gone) = (Vec::new(), Vec::new());
    for (directive_id, after) in &standing.directives {
        match after {
            Some(after) => changed.push((Arc::clone(after), before(directive_id))),
            None => gone.extend(standing.loaded.directives.get(directive_id).cloned()),
        }
    }
    changed.sort_unstable_by(|(a, _), (b, _)| a.directive_id.cmp(&b.directive_id));
    directives::put(&mut *connection, &changed).await?;
    directives::delete(connection, &gone).await
}

pub(super) async fn put_tiles(
    connection: &mut PgConnection,
    epoch: u64,
    parts: &[TilePart],
) -> Result<(), Hitch> {
    let (mut levels, mut places, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
    // The lowest level consists of the entries themselves.
    for part in parts.iter().filter(|part| part.tile.level > 0) {
        let first = tile_place(part.tile.index, part.offset);
        for (place, hash) in (first..).zip(&part.hashes) {
            levels.push(i16::from(part.tile.level));
            places.push(column(place));
            hashes.push(hash.as_bytes().to_vec());
        }
    }
    if levels.is_empty() {
        return Ok(());
    }
    query(
        "INSERT INTO placet.tiles (epoch, level, place, hash) \
         SELECT $1, * FROM unnest($2::smallint[], $3::bigint[], $4::bytea[])",
    )
    .bind(column(epoch))
    .bind(levels)
    .bind(places)
    .bind(hashes)
    .execute(connection)
    .await?;
    Ok(())
}

/// The number of a hash within its level.
pub(super) fn tile_place(tile: u64, offset: usize) -> u64 {
    tile.saturating_mul(256).saturating_add(u64::try_from(offset).unwrap_or(0))
}

/// Writes entries of a log, and the subjects of their events, each with the number of its entry.
pub(super) async fn put_entries(
    connection: &mut PgConnection,
    log: u64,
    entries: &[LogEntry],
    subjects: &[(Subject, u64)],
) -> Result<(), Hitch> {
    if entries.is_empty() {
        return Ok(());
    }
    let numbers = |of: fn(&LogEntry) -> u64| -> Vec<i64> {
        entries.iter().map(|entry| column(of(entry))).collect()
    };
    let bytes = |of: fn(&LogEntry) -> &[u8]| -> Vec<&[u8]> { entries.iter().map(of).collect() };
    query(
        "WITH found_by AS (INSERT INTO placet.subjects (epoch, subject, seq) \
           SELECT $1, * FROM unnest($10::text[], $11::bigint[])) \
         INSERT INTO placet.entries (epoch, seq, written_by, at_ms, durable_seq, kind, prev, hash, payload) \
         SELECT $1, * FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::smallint[], $7::bytea[], \
           $8::bytea[], $9::bytea[])",
    )
    .bind(column(log))
    .bind(numbers(|entry| entry.seq))
    .bind(numbers(|entry| entry.epoch))
    .bind(entries.iter().map(|entry| entry.at_ms).collect::<Vec<_>>())
    .bind(numbers(|entry| entry.durable_seq))
    .bind(entries.iter().map(|entry| i16::from(entry.kind)).collect::<Vec<_>>())
    .bind(bytes(|entry| &entry.prev))
    .bind(bytes(|entry| &entry.hash))
    .bind(bytes(|entry| &entry.payload))
    .bind(subjects.iter().map(|(subject, _)| subject.to_string()).collect::<Vec<_>>())
    .bind(subjects.iter().map(|(_, seq)| column(*seq)).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use placet_types::ids::TenantId;

    use super::*;
    use crate::testing::{synced, tenant};

    fn piece(keeps: &[(&str, &str)], deletes: &[(&str, &str)]) -> Piece {
        let of = |(name, bytes): &(&str, &str)| (tenant(name), Digest::of(bytes.as_bytes()));
        let mut changes = synced();
        changes.forget_content = deletes.iter().map(of).collect();
        let kept = |place: &(&str, &str)| -> (TenantId, Digest, Vec<u8>) {
            let (tenant, digest) = of(place);
            (tenant, digest, place.1.into())
        };
        Piece { changes, content: keeps.iter().map(kept).collect(), kind: 1, payload: Vec::new() }
    }

    fn gone(pieces: &[Piece]) -> Vec<(String, Digest)> {
        let pieces: Vec<&Piece> = pieces.iter().collect();
        let gone = gone_after(&pieces).into_iter();
        gone.map(|(tenant, digest)| (tenant.to_owned(), Digest::from_bytes(*digest))).collect()
    }

    #[test]
    fn what_a_later_piece_of_a_batch_keeps_again_is_not_deleted_with_it() {
        let (ours, theirs) = (("acme", "same"), ("globex", "same"));
        let deleted = vec![("acme".to_owned(), Digest::of(b"same"))];
        let keeps = || piece(&[ours], &[]);
        let deletes = || piece(&[], &[ours]);
        assert_eq!(gone(&[deletes(), keeps()]), []);
        assert_eq!(gone(&[keeps(), deletes()]), deleted);
        assert_eq!(gone(&[deletes(), keeps(), deletes()]), deleted);
        // Somebody else's, or something else, is not it; and a piece does what it says last.
        assert_eq!(gone(&[deletes(), piece(&[theirs, ("acme", "other")], &[])]), deleted);
        assert_eq!(gone(&[piece(&[ours], &[ours])]), deleted);
    }
}
