//! One transaction: the rows that a batch of commits touches, the decisions, and what is written.
//!
//! Owns the order in which rows are locked (the ledger's row where policies are activated or directives become stricter, this node's epoch,
//! effects, approvals, runs, directives, each by key), which is the same for every node, so that two of them wait for each other but never
//! in a circle. Contents are locked as they are kept and deleted, each time by key: of two nodes that each delete what the other keeps
//! again, the server aborts one's transaction, which is retried. Not here: the rules (`crate::rules`), retrying and answering (`writer`).
//! Invariants: I8, nothing is written unless this node's epoch is not fenced and its log ends where this node believes it does; entries are
//! chained without gaps.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Row as _, query};

use placet_ledger::audit::subjects_of;
use placet_ledger::directive::Directive;
use placet_ledger::policies::{PastPolicies, PolicyState};
use placet_ledger::proof::tiles::Appender;
use placet_ledger::store::{Changes, Committed, StoreError};
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::ids::{RecordId, TenantId};

use super::error::Hitch;
use super::load::{Loaded, Standing};
use super::rows::{self, column};
use super::state::{Head, State};
use super::{outbox, policies, write};
use crate::rules::{
    Changed, Rules, Transaction, check_directives, directives_rev_after, policy_after,
};

/// One commit as submitted, with its contents.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) changes: Changes,
    pub(super) content: Vec<(TenantId, Digest, Vec<u8>)>,
    pub(super) kind: u8,
    pub(super) payload: Vec<u8>,
}

impl Piece {
    /// Whether it changes what binds every node, and so has to wait for the transaction of each.
    pub(super) fn binds_all(&self) -> bool {
        self.changes.activate.is_some()
            || self.changes.directives.iter().any(Directive::is_restrictive)
    }
}

/// The result of a batch, once its transaction is committed.
#[derive(Debug)]
pub(super) struct Outcome {
    /// One answer for each piece, in order.
    pub(super) answers: Vec<Result<Committed, StoreError>>,
    /// The new end of the log.
    pub(super) head: Head,
    pub(super) log: Appender,
    pub(super) at_ms: i64,
    /// Effect records that existed before.
    pub(super) known: Vec<RecordId>,
}

/// The epoch's row at the beginning of a transaction.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) head: Head,
    pub(super) now_ms: i64,
    policy: Option<PolicyState>,
    past: PastPolicies,
    restriction_version: u64,
}

/// Locks this node's epoch and reads it; every node's, where a batch changes what binds all of them.
pub(super) async fn lock_own(
    connection: &mut PgConnection,
    epoch: u64,
    batch: &[&Piece],
) -> Result<Own, Hitch> {
    let mut past = PastPolicies::default();
    let activated = batch.iter().filter_map(|piece| piece.changes.activate);
    let activated: Vec<Digest> = activated.flat_map(policies::keys).collect();
    if batch.iter().any(|piece| piece.binds_all()) {
        query("SELECT id FROM placet.ledger WHERE id = 1 FOR UPDATE")
            .fetch_optional(&mut *connection)
            .await?;
        // Before the time is read: what was still permitted by the policies before is then dated before the activation.
        query("SELECT epoch FROM placet.epochs WHERE fenced_by IS NULL AND closed_ms IS NULL ORDER BY epoch FOR UPDATE")
            .fetch_all(&mut *connection)
            .await?;
        past = policies::past(connection, &activated).await?;
    }
    let row = query(
        "SELECT head_seq, head_hash, fenced_by, closed_ms, policy_epoch, policy_digests, directives_rev, \
           (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms \
         FROM placet.epochs WHERE epoch = $1 FOR UPDATE",
    )
    .bind(column(epoch))
    .fetch_optional(&mut *connection)
    .await?;
    let row = row.ok_or_else(|| Hitch::Stop(forgotten("this node's start")))?;
    let is_over = row.try_get::<Option<i64>, _>("fenced_by")?.is_some()
        || row.try_get::<Option<i64>, _>("closed_ms")?.is_some();
    if is_over {
        return Err(Hitch::Stop(shut_out(connection, epoch).await?));
    }
    let hash: Vec<u8> = row.try_get("head_hash")?;
    let hash =
        hash.try_into().map_err(|_short| Hitch::Stop(forgotten("the end of this node's log")))?;
    Ok(Own {
        head: Head { seq: rows::number(row.try_get("head_seq")?), hash },
        now_ms: row.try_get("now_ms")?,
        policy: policy(&row)?,
        past,
        restriction_version: rows::number(row.try_get("directives_rev")?),
    })
}

/// The fault of a database that has lost what it acknowledged.
pub(super) fn forgotten(what: &str) -> StoreError {
    StoreError::Stopped(format!(
        "the database has forgotten {what}, which it had acknowledged: an old copy of it was restored, or a standby took over \
         that was not synchronous; nothing is served until an operator has looked at it"
    ))
}

/// Why the start of this epoch may write nothing more.
pub(super) async fn shut_out(
    connection: &mut PgConnection,
    epoch: u64,
) -> Result<StoreError, sqlx::Error> {
    let row = query(
        "SELECT own.node, own.node = other.node AS by_its_name \
         FROM placet.epochs own LEFT JOIN placet.epochs other ON other.epoch = own.fenced_by WHERE own.epoch = $1",
    )
    .bind(column(epoch))
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(forgotten("this node's start")) };
    if row.try_get::<Option<bool>, _>("by_its_name")? != Some(true) {
        return Ok(StoreError::Fenced);
    }
    let node: String = row.try_get("node")?;
    Ok(StoreError::Stopped(format!(
        "another process was started as node `{node}`; each needs a `ledger.node` of its own"
    )))
}

/// The policies that a row names.
pub(super) fn policy(row: &PgRow) -> Result<Option<PolicyState>, sqlx::Error> {
    let epoch = rows::number(row.try_get("policy_epoch")?);
    let digests: Option<Vec<Vec<u8>>> = row.try_get("policy_digests")?;
    let digests = digests.and_then(|digests| policies::digests(&digests));
    Ok(digests.map(|digests| PolicyState { epoch, digests }))
}

/// Renews this node's lease.
pub(super) async fn touch(
    connection: &mut PgConnection,
    epoch: u64,
    lease: Duration,
) -> Result<(), Hitch> {
    query("UPDATE placet.epochs SET lease_until = clock_timestamp() + $2 * interval '1 second' WHERE epoch = $1")
        .bind(column(epoch))
        .bind(lease.as_secs_f64())
        .execute(connection)
        .await?;
    Ok(())
}

/// Notes where the log ends now, and renews the lease.
pub(super) async fn finish(
    connection: &mut PgConnection,
    epoch: u64,
    outcome: &Outcome,
    lease: Duration,
) -> Result<(), Hitch> {
    query(
        "UPDATE placet.epochs SET lease_until = clock_timestamp() + $2 * interval '1 second', head_seq = $3, \
           head_hash = $4, head_at_ms = $5, root = $6 WHERE epoch = $1",
    )
    .bind(column(epoch))
    .bind(lease.as_secs_f64())
    .bind(column(outcome.head.seq))
    .bind(outcome.head.hash.as_slice())
    .bind(outcome.at_ms)
    .bind(outcome.log.frontier().root().as_bytes().as_slice())
    .execute(connection)
    .await?;
    Ok(())
}

/// Decides a batch and writes it, all but the commit itself.
pub(super) async fn transact(
    connection: &mut PgConnection,
    state: &State,
    own: &Own,
    pieces: &[&Piece],
    mut log: Appender,
) -> Result<Outcome, Hitch> {
    let loaded = Loaded::load(connection, pieces).await?;
    let mut standing =
        Standing::new(&loaded, own.policy, own.past.clone(), own.restriction_version);
    // By the clock that ages are measured by, not the database's current time, which may have been set back.
    let at_ms = state.now().as_ms();
    let (mut head, mut entries, mut accepted) = (own.head, Vec::new(), Vec::new());
    // For each effect record, the last entry that wrote it.
    let (mut subjects, mut wrote) = (Vec::new(), HashMap::new());
    let mut answers = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let touched = match decide(&mut standing, state, at_ms, piece) {
            Ok(touched) => touched,
            Err(refusal) => {
                answers.push(Err(refusal));
                continue;
            }
        };
        let entry = write::entry_after(head, state.epoch, own.head.seq, at_ms, piece);
        head = Head { seq: entry.seq, hash: entry.hash };
        log.append(&head.hash);
        let about = subjects_of(&piece.changes.audit);
        subjects.extend(about.into_iter().map(|subject| (subject, head.seq)));
        wrote.extend(touched.into_iter().map(|record_id| (record_id, head.seq)));
        entries.push(entry);
        answers.push(Ok(Committed { seq: head.seq, at: Timestamp::from_ms(at_ms) }));
        accepted.push(*piece);
    }
    write::put_content(connection, &accepted).await?;
    write::put_effects(connection, state.epoch, &standing, &wrote).await?;
    write::put_approvals_and_runs(connection, &standing).await?;
    write::put_directive(connection, &standing).await?;
    write::forget_content(connection, &accepted).await?;
    outbox::put(connection, &accepted).await?;
    if standing.policy != own.policy {
        policies::activate(connection, standing.policy).await?;
        policies::put_past(connection, &own.past, &standing.past).await?;
    }
    if standing.restriction_version != own.restriction_version {
        policies::tighten(connection, standing.restriction_version).await?;
    }
    write::put_tiles(connection, state.epoch, &log.take()).await?;
    write::put_entries(connection, state.epoch, &entries, &subjects).await?;
    let known = loaded.effects.keys().copied().collect();
    Ok(Outcome { answers, head, log, at_ms, known })
}

/// Decides one commit; answers the effect records that it changed.
fn decide(
    standing: &mut Standing<'_>,
    state: &State,
    at_ms: i64,
    piece: &Piece,
) -> Result<Vec<RecordId>, StoreError> {
    let policy = policy_after(standing.policy, &standing.past, &piece.changes)?;
    let now = Timestamp::from_ms(at_ms);
    check_directives(standing.restriction_version, now, &piece.changes)?;
    let rules = Rules { epoch: state.epoch, now, claims: &state.claims };
    let mut transaction = Transaction::new(standing, Some(rules));
    transaction.take_in(&mut piece.changes.clone())?;
    let Changed { effects, approvals, directives, runs, ops } = transaction.changed;
    let restriction_version = directives_rev_after(standing.restriction_version, &ops);
    let touched = effects.keys().copied().collect();
    standing.effects.extend(effects);
    standing.approvals.extend(approvals);
    standing.runs.extend(runs);
    standing.directives.extend(directives);
    if let Some(next) = policy {
        standing.past.activated(standing.policy, next, now);
    }
    standing.policy = policy;
    standing.restriction_version = restriction_version;
    Ok(touched)
}
