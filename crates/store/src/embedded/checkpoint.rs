//! Checkpoints: everything needed to start without reading the entries before one.
//!
//! Owns the files in `checkpoints/`: `000000000001.checkpoint`, … (JSON, then a line with the SHA-256 of all before it) and the tables
//! that they name. Not here: when one is made (`keeper`), what the tables hold (`slip`).
//! Invariants: a checkpoint is in place only when it and all it names are durable; the newest that verifies counts, one that does
//! not is set aside, never deleted; one that cannot be read for the moment is not passed over; the last two are kept, with
//! everything they name.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use placet_ledger::proof::Frontier;
use placet_types::ids::RecordId;

use super::codec::Meta;
use super::index::Counts;
use super::open::OpenError;
use crate::journal::medium::{Medium, read_full_at, replace_file, to_usize};
use crate::journal::{Base, Start};
use crate::sorted::{TableError, TableName, TableSet, table_number};
use crate::tree::Floor;

/// The form of [`Checkpoint`] that this build writes and reads.
/// Form 1 had no lists of the approval service: a ledger that was left by such a build is read from its journal once more.
const VERSION: u16 = 2;
const EXTENSION: &str = "checkpoint";
/// How many checkpoints are kept.
const KEPT: usize = 2;
/// No checkpoint is larger; a larger file is damage.
const BYTES_MAX: u64 = 4 << 30;

/// What one checkpoint says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checkpoint {
    version: u16,
    /// Which one it is.
    pub(super) number: u64,
    /// Of which store.
    pub(super) store_id: String,
    /// The last entry that it covers.
    pub(super) seq: u64,
    /// Its hash.
    #[serde(with = "hash_hex")]
    pub(super) head: [u8; 32],
    /// The epoch of the process that made it.
    pub(super) epoch: u64,
    /// When that entry was made, in milliseconds since 1970.
    pub(super) at_ms: i64,
    /// Where that entry is.
    pub(super) place: Place,
    /// How many records there are.
    pub(super) counts: Counts,
    /// Open effect records, with the codes of their states.
    pub(super) open: Vec<(RecordId, u8)>,
    /// The frontier of the Merkle tree over the archived entries: it is rebuilt from there should its files be lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) frontier: Option<String>,
    /// The tables of the index, newest first.
    pub(super) tables: Vec<TableName>,
    /// The tables with the records of archived entries, newest first.
    pub(super) bodies: Vec<TableName>,
    /// The first segment that is not archived, and how the chain is tied to it.
    pub(super) base: BaseLine,
    /// The number that the next table gets.
    pub(super) next_table: u64,
}

/// Where an entry is in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) marks: Vec<(u64, u64)>,
}

/// What was archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BaseLine {
    pub(super) segment: u64,
    pub(super) first_seq: u64,
    #[serde(with = "hash_hex")]
    pub(super) prev: [u8; 32],
}

impl From<Base> for BaseLine {
    fn from(base: Base) -> Self {
        Self { segment: base.segment, first_seq: base.first_seq, prev: base.prev }
    }
}

impl From<BaseLine> for Base {
    fn from(base: BaseLine) -> Self {
        Self { segment: base.segment, first_seq: base.first_seq, prev: base.prev }
    }
}

/// What a checkpoint is made of.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) store_id: String,
    pub(super) meta: Meta,
    pub(super) epoch: u64,
    pub(super) at_ms: i64,
    pub(super) start: Start,
    pub(super) counts: Counts,
    pub(super) open: BTreeMap<RecordId, u8>,
    pub(super) frontier: Option<Frontier>,
    pub(super) tables: TableSet,
    pub(super) bodies: TableSet,
    pub(super) base: Base,
    pub(super) next_table: u64,
}

impl Checkpoint {
    fn of(number: u64, draft: Draft) -> Self {
        let Start { segment, offset, marks, .. } = draft.start;
        Self {
            version: VERSION,
            number,
            store_id: draft.store_id,
            seq: draft.meta.applied_seq,
            head: draft.meta.head,
            epoch: draft.epoch,
            at_ms: draft.at_ms,
            place: Place { segment, offset, marks },
            counts: draft.counts,
            open: draft.open.into_iter().collect(),
            frontier: draft.frontier.map(|frontier| hex::encode(frontier.to_bytes())),
            tables: draft.tables.names(),
            bodies: draft.bodies.names(),
            base: draft.base.into(),
            next_table: draft.next_table,
        }
    }

    /// The entry it ends with.
    pub(super) fn meta(&self) -> Meta {
        Meta { applied_seq: self.seq, head: self.head }
    }

    /// Where the Merkle tree can begin anew, if entries were archived.
    pub(super) fn floor(&self) -> Option<Floor> {
        let bytes = hex::decode(self.frontier.as_deref()?).ok()?;
        let frontier = Frontier::from_bytes(&bytes).ok()?;
        let fits = frontier.size().checked_add(1) == Some(self.base.first_seq);
        fits.then_some(Floor { frontier, last: self.base.prev })
    }

    /// Where verification of the journal goes on.
    pub(super) fn start(&self) -> Start {
        Start {
            segment: self.place.segment,
            offset: self.place.offset,
            seq: self.seq,
            head: self.head,
            marks: self.place.marks.clone(),
        }
    }
}

/// A checkpoint whose tables are open.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) checkpoint: Checkpoint,
    pub(super) tables: TableSet,
    pub(super) bodies: TableSet,
}

/// Checkpoints that do not verify, with why.
pub(super) type Refused = Vec<(u64, String)>;

/// Why a checkpoint is not there to be used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// It was read, and is not what was written, or what it names is not.
    Damaged(String),
    /// The operating system refused something: it may be sound, and nothing is to be concluded.
    Unread(OpenError),
}

impl From<TableError> for Unusable {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Io { what, path, source } if source.kind() != io::ErrorKind::NotFound => {
                Self::Unread(OpenError::io(what, &path)(io::Error::new(source.kind(), source)))
            }
            error
            @ (TableError::Io { .. } | TableError::Damaged { .. } | TableError::Source(_)) => {
                Self::Damaged(error.to_string())
            }
        }
    }
}

/// The folder of checkpoints.
#[derive(Debug, Clone)]
pub(super) struct Checkpoints {
    pub(super) medium: Arc<dyn Medium>,
    pub(super) directory: PathBuf,
}

impl Checkpoints {
    pub(super) fn new(medium: Arc<dyn Medium>, directory: PathBuf) -> Self {
        Self { medium, directory }
    }

    /// The newest checkpoint that verifies, without changing anything; and why newer ones do not.
    ///
    /// # Errors
    /// What the operating system answers: a checkpoint that cannot be read now may be sound, and is not passed over for an older one.
    pub(super) fn newest(&self) -> Result<(Option<Loaded>, Refused), OpenError> {
        let mut refused = Vec::new();
        for number in self.numbers()?.into_iter().rev() {
            match self.load(number) {
                Ok(loaded) => return Ok((Some(loaded), refused)),
                Err(Unusable::Damaged(why)) => refused.push((number, why)),
                Err(Unusable::Unread(error)) => return Err(error),
            }
        }
        Ok((None, refused))
    }

    /// The same, and sets aside those that do not verify, and what a crash left unfinished. The caller holds the lock.
    pub(super) fn take_newest(&self) -> Result<Option<Loaded>, OpenError> {
        let made = self.medium.create_dir(&self.directory);
        made.map_err(OpenError::io("make the folder", &self.directory))?;
        let (found, refused) = self.newest()?;
        for (number, why) in refused {
            tracing::warn!(number, why, "a checkpoint does not verify and is set aside");
            let (from, to) = (self.path(number), self.path(number).with_extension("damaged"));
            self.medium.rename(&from, &to).map_err(OpenError::io("set aside", &from))?;
        }
        self.sweep(found.as_ref().map_or(1, |found| found.checkpoint.next_table))?;
        Ok(found)
    }

    /// The bases that checkpoints name, newest first, each with the tree over the entries before it; those without one are left out.
    pub(super) fn floors(&self) -> Result<Vec<(Base, Floor)>, OpenError> {
        let mut floors = Vec::new();
        for number in self.numbers()?.into_iter().rev() {
            match self.read(number) {
                Ok(found) => floors.extend(found.floor().map(|floor| (found.base.into(), floor))),
                Err(Unusable::Damaged(_)) => {}
                Err(Unusable::Unread(error)) => return Err(error),
            }
        }
        Ok(floors)
    }

    /// Makes a checkpoint durable, and removes what no kept one names.
    pub(super) fn write(&self, draft: Draft) -> Result<Checkpoint, OpenError> {
        let number = self.numbers()?.last().copied().unwrap_or(0).saturating_add(1);
        let checkpoint = Checkpoint::of(number, draft);
        let path = self.path(number);
        let mut bytes = serde_json::to_vec(&checkpoint)
            .map_err(|error| OpenError::Checkpoint(error.to_string()))?;
        let digest = hex::encode(Sha256::digest(&bytes));
        bytes.push(b'\n');
        bytes.extend_from_slice(digest.as_bytes());
        bytes.push(b'\n');
        replace_file(&*self.medium, &path, &bytes)
            .map_err(OpenError::io("write the checkpoint", &path))?;
        self.remove_old()?;
        Ok(checkpoint)
    }

    /// The checkpoints that are there, ascending.
    pub(super) fn numbers(&self) -> Result<Vec<u64>, OpenError> {
        let number = |name: &String| {
            let digits = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
            digits.parse().ok().filter(|_| digits.len() == 12)
        };
        Ok(self.names()?.iter().filter_map(number).collect())
    }

    /// The file of a checkpoint.
    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:012}.{EXTENSION}"))
    }

    /// Reads a checkpoint and opens its tables.
    pub(super) fn load(&self, number: u64) -> Result<Loaded, Unusable> {
        let checkpoint = self.read(number)?;
        let open = |names: &[TableName]| TableSet::open(&self.medium, &self.directory, names);
        let (tables, bodies) = (open(&checkpoint.tables)?, open(&checkpoint.bodies)?);
        Ok(Loaded { checkpoint, tables, bodies })
    }

    fn read(&self, number: u64) -> Result<Checkpoint, Unusable> {
        let path = self.path(number);
        let unread =
            |error: io::Error| Unusable::Unread(OpenError::io("read the checkpoint", &path)(error));
        let file = match self.medium.open_read(&path) {
            Ok(file) => file,
            // Beside a running store it may have been removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Unusable::Damaged(error.to_string()));
            }
            Err(error) => return Err(unread(error)),
        };
        let length = file.length().map_err(unread)?;
        if length > BYTES_MAX {
            return Err(Unusable::Damaged("it is too large to be one".to_owned()));
        }
        let mut bytes = vec![0; to_usize(length)];
        read_full_at(&*file, &mut bytes, 0).map_err(unread)?;
        parse(number, &bytes).map_err(Unusable::Damaged)
    }

    /// Removes checkpoints before the kept ones, and tables that no kept one names.
    fn remove_old(&self) -> Result<(), OpenError> {
        let numbers = self.numbers()?;
        let (old, kept) = numbers.split_at(numbers.len().saturating_sub(KEPT));
        let mut named = Vec::new();
        for number in kept {
            match self.read(*number) {
                Ok(found) => {
                    named.extend(found.tables.iter().chain(&found.bodies).map(|t| t.number));
                }
                // It names nothing that could be used; it is set aside at the next start.
                Err(Unusable::Damaged(_)) => {}
                Err(Unusable::Unread(error)) => {
                    tracing::warn!(%error, "what no checkpoint names any more stays until the next one");
                    return Ok(());
                }
            }
        }
        for number in old {
            self.remove(&self.path(*number))?;
        }
        for number in self.tables()? {
            if !named.contains(&number) {
                self.remove(&crate::sorted::table_path(&self.directory, number))?;
            }
        }
        Ok(())
    }

    /// Removes files that a crash left before they were renamed into place, and tables that no checkpoint can name yet.
    fn sweep(&self, next_table: u64) -> Result<(), OpenError> {
        for name in self.names()? {
            let path = self.directory.join(&name);
            let unfinished = path.extension().is_some_and(|extension| extension == "tmp");
            let unnamed = table_number(&name).is_some_and(|number| number >= next_table);
            if unfinished || unnamed {
                self.remove(&path)?;
            }
        }
        Ok(())
    }

    fn tables(&self) -> Result<Vec<u64>, OpenError> {
        Ok(self.names()?.iter().filter_map(|name| table_number(name)).collect())
    }

    fn names(&self) -> Result<Vec<String>, OpenError> {
        match self.medium.list(&self.directory) {
            Ok(names) => Ok(names),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(OpenError::io("list the folder", &self.directory)(error)),
        }
    }

    fn remove(&self, path: &Path) -> Result<(), OpenError> {
        self.medium.remove(path).map_err(OpenError::io("remove", path))
    }
}

/// What a checkpoint's file says.
fn parse(number: u64, bytes: &[u8]) -> Result<Checkpoint, String> {
    let body = bytes.split_last_chunk::<66>().and_then(|(body, end)| {
        let digest = end.strip_prefix(b"\n")?.strip_suffix(b"\n")?;
        (digest == hex::encode(Sha256::digest(body)).as_bytes()).then_some(body)
    });
    let body = body.ok_or("its digest is wrong")?;
    let checkpoint: Checkpoint = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if checkpoint.version != VERSION {
        return Err(format!("unknown version {}", checkpoint.version));
    }
    if checkpoint.number != number {
        return Err("it has another number".to_owned());
    }
    Ok(checkpoint)
}

/// A hash as hexadecimal text.
mod hash_hex {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(hash: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex::encode(hash))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let mut hash = [0; 32];
        hex::decode_to_slice(text, &mut hash).map_err(D::Error::custom)?;
        Ok(hash)
    }
}
