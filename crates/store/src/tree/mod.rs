//! The tree of an audit log on disk: the hashes that proofs are made of, beside the journal.
//!
//! Owns the tile files, when they are written, and proofs for other threads. Not here: what the hashes mean and how proofs are
//! built (`placet_ledger::proof`), signatures (`seal`). Invariants: the tree can be derived from the journal and is written
//! after it, so it never holds an entry that the journal could lose; nothing is answered from it that does not lead to the root
//! of the frontier, which is held in memory; after a failed write nothing more is taken.
//!
//! # On disk
//!
//! A folder with `head` and one folder for each level of tiles. Level L holds the hashes of the nodes of height 8 × L in their
//! order, 32 bytes each, in files of 65 536: `0/000000000`, `0/000000001`, …. Every 8 KiB of a file are thus a tile of C2SP
//! tlog-tiles, and a file of 2 MiB never changes again. `head` says how far all of it is on disk:
//!
//! ```text
//!    0  8  "PLTREEH" 01
//!    8 32  chain hash of the last entry
//!   40  n  the frontier (`placet_ledger::proof::Frontier::to_bytes`)
//!  40+n 32 SHA-256 of all before it
//! ```
//!
//! What stands in the files behind `head` was written but not yet synced; after a restart it is written again.

mod check;
mod error;
mod files;
mod reader;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_ledger::proof::tiles::Appender;
use placet_ledger::proof::{Frontier, TreeHead, TreeView};
use placet_types::digest::Digest;

pub use check::{TreeCheck, TreeVerdict};
pub use error::TreeError;
pub use reader::LogTreeReader;

use crate::journal::medium::{Medium, read_full_at, replace_file, to_usize};
use files::{TileFiles, TileReader};
use reader::Shared;

const HEAD: &str = "head";
const HEAD_MAGIC: [u8; 8] = *b"PLTREEH\x01";
const HEAD_BYTES_MAX: u64 = 4096;

/// A log as it stands: its tree and its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHead {
    /// How many entries, and the root over them.
    pub head: TreeHead,
    /// The chain hash of the last entry; zeros in an empty log.
    pub chain: [u8; 32],
}

/// Where a tree can go on from when its files are gone and the first entries are not at hand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Floor {
    /// The tree over these entries.
    pub frontier: Frontier,
    /// The chain hash of the last of them.
    pub last: [u8; 32],
}

/// The one writer of a tree. Dropping it costs nothing but the work since the last [`LogTree::sync`].
#[derive(Debug)]
pub struct LogTree {
    shared: Arc<Shared>,
    files: TileFiles,
    appender: Appender,
    last: [u8; 32],
    /// How many entries `head` covers.
    synced: u64,
    discarded: Option<&'static str>,
    poisoned: bool,
}

impl LogTree {
    /// Opens the tree in a folder, made where it is missing. What is there is taken over if it agrees with itself; otherwise
    /// the tree begins empty and is to be fed again. Call [`LogTree::resume`] next.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn open(directory: impl Into<PathBuf>, medium: Arc<dyn Medium>) -> Result<Self, TreeError> {
        Self::open_on(directory, medium, None)
    }

    /// The same, with the entries before which there may be nothing: proofs about later sizes need no files of earlier ones.
    ///
    /// # Errors
    /// As [`LogTree::open`].
    pub fn open_on(
        directory: impl Into<PathBuf>,
        medium: Arc<dyn Medium>,
        floor: Option<Floor>,
    ) -> Result<Self, TreeError> {
        let directory = directory.into();
        medium.create_dir(&directory).map_err(TreeError::io("make the folder", &directory))?;
        let reader = TileReader::new(Arc::clone(&medium), directory.clone());
        let found = read_head(&*medium, &directory)?;
        let (frontier, last, discarded) = match found {
            Saved::None => (Frontier::new(), [0; 32], None),
            Saved::Damaged => (Frontier::new(), [0; 32], Some("its head file is damaged")),
            Saved::Head(frontier, last) => {
                let floor = floor.as_ref().map(|floor| &floor.frontier);
                let floor = floor.filter(|floor| floor.size() <= frontier.size());
                let view = TreeView::new(&reader, frontier.head()).on(floor);
                let root = view.root(frontier.size());
                match root.map_err(|error| TreeError::of_view(error, frontier.size())) {
                    Ok(_) => (frontier, last, None),
                    Err(error @ TreeError::Io { .. }) => return Err(error),
                    Err(_damaged) => {
                        (Frontier::new(), [0; 32], Some("its tiles do not lead to its root"))
                    }
                }
            }
        };
        let head = LogHead { head: frontier.head(), chain: last };
        Ok(Self {
            shared: Arc::new(Shared::new(reader, head, floor)),
            files: TileFiles::new(medium, directory),
            synced: frontier.size(),
            appender: Appender::new(frontier),
            last,
            discarded,
            poisoned: false,
        })
    }

    /// Compares the tree with its journal, of which `hash_of` answers the chain hash of an entry, and says from which entry
    /// on it has to be fed. A tree of another journal is discarded.
    ///
    /// # Errors
    /// [`TreeError::Ahead`]: the journal has fewer entries than the tree. The tree is written after the journal is synced, so the
    /// journal has forgotten. What `hash_of` cannot say: nothing is discarded for that.
    pub fn resume(
        &mut self,
        journal_last_seq: u64,
        hash_of: &mut dyn FnMut(u64) -> Result<Option<[u8; 32]>, TreeError>,
    ) -> Result<u64, TreeError> {
        let size = self.size();
        if size > journal_last_seq {
            return Err(TreeError::Ahead { tree: size, journal: journal_last_seq });
        }
        let of_floor = self
            .shared
            .floor()
            .is_some_and(|floor| floor.frontier.size() == size && floor.last == self.last);
        if size > 0 && !of_floor && hash_of(size)? != Some(self.last) {
            self.discard("it belongs to another journal")?;
        }
        Ok(self.size().saturating_add(1))
    }

    /// Empties the tree, so that it is fed from the first entry on.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn discard(&mut self, why: &'static str) -> Result<(), TreeError> {
        self.check_alive()?;
        let removed = self.files.remove_head(HEAD);
        self.guard(removed)?;
        self.appender = Appender::default();
        self.last = [0; 32];
        self.synced = 0;
        self.discarded = Some(why);
        self.publish();
        Ok(())
    }

    /// Begins anew behind the floor, for a tree whose first entries are not at hand any more; answers from which entry on it is to be
    /// fed, or nothing where there is no floor. What lies under the floor cannot be proved from then on.
    ///
    /// # Errors
    /// As [`LogTree::discard`].
    pub fn stand_on_floor(&mut self) -> Result<Option<u64>, TreeError> {
        let Some(Floor { frontier, last }) = self.shared.floor().cloned() else { return Ok(None) };
        let why = self.discarded.unwrap_or("its first entries are not at hand");
        self.discard(why)?;
        self.last = last;
        self.appender = Appender::new(frontier);
        self.publish();
        Ok(Some(self.size().saturating_add(1)))
    }

    /// Appends an entry by its chain hash, in memory. Only entries that are durable in the journal belong here. What is
    /// appended takes memory until [`LogTree::flush`]: in a long run, call that every few thousand entries.
    pub fn append(&mut self, entry: &[u8; 32]) {
        self.appender.append(entry);
        self.last = *entry;
    }

    /// Hands what was appended to the operating system and shows it to the readers.
    ///
    /// # Errors
    /// What the operating system answers, once; then [`TreeError::Poisoned`].
    pub fn flush(&mut self) -> Result<(), TreeError> {
        self.check_alive()?;
        for part in self.appender.take() {
            let written = self.files.write(&part);
            self.guard(written)?;
        }
        self.publish();
        Ok(())
    }

    /// Flushes, makes everything durable, and saves how far that is: a restart goes on from there.
    ///
    /// # Errors
    /// What the operating system answers, once; then [`TreeError::Poisoned`].
    pub fn sync(&mut self) -> Result<(), TreeError> {
        self.flush()?;
        if self.synced == self.size() {
            return Ok(());
        }
        let synced = self.files.sync();
        self.guard(synced)?;
        let bytes = head_bytes(self.appender.frontier(), &self.last);
        let path = self.files.directory().join(HEAD);
        let saved = replace_file(self.files.medium(), &path, &bytes);
        self.guard(saved.map_err(TreeError::io("write the tree's head", &path)))?;
        self.synced = self.size();
        Ok(())
    }

    /// How many entries, flushed or not.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.appender.frontier().size()
    }

    /// How many entries a restart will find.
    #[must_use]
    pub const fn synced_size(&self) -> u64 {
        self.synced
    }

    /// The chain hash of the last entry; zeros in an empty tree.
    #[must_use]
    pub const fn last(&self) -> [u8; 32] {
        self.last
    }

    /// The right edge, with everything appended.
    #[must_use]
    pub const fn frontier(&self) -> &Frontier {
        self.appender.frontier()
    }

    /// Why what was found was not taken over, if anything was.
    #[must_use]
    pub const fn discarded(&self) -> Option<&'static str> {
        self.discarded
    }

    /// A reader for other threads, which sees what was flushed.
    #[must_use]
    pub fn reader(&self) -> LogTreeReader {
        LogTreeReader::new(Arc::clone(&self.shared))
    }

    fn publish(&self) {
        self.shared.publish(LogHead { head: self.appender.frontier().head(), chain: self.last });
    }

    const fn check_alive(&self) -> Result<(), TreeError> {
        if self.poisoned { Err(TreeError::Poisoned) } else { Ok(()) }
    }

    fn guard<T>(&mut self, result: Result<T, TreeError>) -> Result<T, TreeError> {
        self.poisoned = self.poisoned || result.is_err();
        result
    }
}

/// What the head file says.
#[derive(Debug)]
enum Saved {
    None,
    Damaged,
    Head(Frontier, [u8; 32]),
}

fn read_head(medium: &dyn Medium, directory: &Path) -> Result<Saved, TreeError> {
    let path = directory.join(HEAD);
    let failed = || TreeError::io("read the tree's head", &path);
    let file = match medium.open_read(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Saved::None),
        Err(error) => return Err(failed()(error)),
    };
    let length = file.length().map_err(failed())?;
    if length > HEAD_BYTES_MAX {
        return Ok(Saved::Damaged);
    }
    let mut bytes = vec![0; to_usize(length)];
    let read = read_full_at(&*file, &mut bytes, 0).map_err(failed())?;
    bytes.truncate(read);
    Ok(parse_head(&bytes).map_or(Saved::Damaged, |(frontier, last)| Saved::Head(frontier, last)))
}

fn head_bytes(frontier: &Frontier, last: &[u8; 32]) -> Vec<u8> {
    let mut bytes = HEAD_MAGIC.to_vec();
    bytes.extend_from_slice(last);
    bytes.extend_from_slice(&frontier.to_bytes());
    let check = Digest::of(&bytes);
    bytes.extend_from_slice(check.as_bytes());
    bytes
}

fn parse_head(bytes: &[u8]) -> Option<(Frontier, [u8; 32])> {
    let (body, check) = bytes.split_last_chunk::<32>()?;
    let (magic, rest) = body.split_first_chunk::<8>()?;
    let (last, frontier) = rest.split_first_chunk::<32>()?;
    if Digest::of(body).as_bytes() != check || *magic != HEAD_MAGIC {
        return None;
    }
    Some((Frontier::from_bytes(frontier).ok()?, *last))
}
