//! The witness: a file outside of the database that remembers what it had acknowledged.
//!
//! Owns the file and its comparison with the database at the start. It is written at the start and at every renewal of the lease, not at
//! every commit: a copy of the database that is older than that is recognised, one that misses only the last moments may not be.
//! Invariant: it never names an entry that the database had not acknowledged.

use std::path::Path;

use sqlx::postgres::PgConnection;
use sqlx::{Row as _, query};

use super::error::OpenError;
use super::rows::{column, number};
use super::state::Head;
use crate::journal::JournalError;
use crate::journal::medium::Disk;
use crate::journal::witness::Witness;

/// Notes that a start of this node was given an epoch, before it serves: from then on the folder is that of a node.
pub(super) fn begin(folder: &Path, epoch: u64) -> Result<(), OpenError> {
    let made = std::fs::create_dir_all(folder).map_err(|error| error.to_string());
    made.and_then(|()| write(folder, epoch, Head::NONE, 0).map_err(|error| error.to_string()))
        .map_err(|why| OpenError::Witness { why })
}

/// Notes the end of the log of an epoch, which was acknowledged, and how many entries the logs of all nodes have.
pub(super) fn write(folder: &Path, epoch: u64, end: Head, all: u64) -> Result<(), JournalError> {
    Witness { epoch, seq: end.seq, extent: all, head: end.hash }.write(&Disk, folder)
}

/// Refuses a database that does not have what the witness names, if there is one.
pub(super) async fn check(connection: &mut PgConnection, folder: &Path) -> Result<(), OpenError> {
    let wrong = |error: &dyn std::fmt::Display| OpenError::Witness { why: error.to_string() };
    let noted = Witness::read(&Disk, folder).map_err(|error| wrong(&error))?;
    let Some(witness) = noted else { return Ok(()) };
    let refused = OpenError::refused("tell what it has");
    let row = query(
        "SELECT e.head_seq, n.hash, (SELECT coalesce(sum(head_seq), 0)::bigint FROM placet.epochs) AS entries \
         FROM placet.epochs e \
         LEFT JOIN placet.entries n ON n.epoch = e.epoch AND n.seq = $2 WHERE e.epoch = $1",
    )
    .bind(column(witness.epoch))
    .bind(column(witness.seq))
    .fetch_optional(connection)
    .await
    .map_err(refused)?;
    let forgotten = |what: String| OpenError::Forgotten {
        why: format!(
            "{what}; it may be an old copy, a standby that was not synchronous, or another database than before. Put the \
             right one in its place, or, if what is missing is accepted as lost, delete `{}`",
            folder.join("high-water").display()
        ),
    };
    let (epoch, seq) = (witness.epoch, witness.seq);
    let Some(row) = row else {
        return Err(forgotten(format!("start {epoch} of this node is not in it")));
    };
    let hash: Option<Vec<u8>> = row.try_get("hash").map_err(|error| wrong(&error))?;
    let is_there = number(row.try_get("head_seq").map_err(|error| wrong(&error))?) >= seq;
    let is_same = seq == 0 || hash.is_none_or(|hash| hash == witness.head);
    let all = number(row.try_get("entries").map_err(|error| wrong(&error))?);
    if is_there && is_same && all >= witness.extent {
        return Ok(());
    }
    if is_there && is_same {
        let known = witness.extent;
        return Err(forgotten(format!(
            "the logs of its nodes have {all} entries, and had {known}"
        )));
    }
    Err(forgotten(format!("entry {seq} of epoch {epoch} is not in it, or is another one")))
}
