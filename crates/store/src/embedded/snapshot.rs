//! Snapshots: the state as of an entry, in files.
//!
//! Owns the form of a snapshot, writing one while the state goes on changing, and filling an empty state from one. Not here: when one is
//! made (`keeper`), replaying later entries (`replay`). Invariant: a snapshot is trusted only once all of it was read and its digest
//! verifies.
//!
//! ```text
//! snapshots/<number of the entry>.snapshot:
//!   "PLSNAP" 00 01, then for each key, in order: 4 bytes each of the lengths of key and value (little-endian), key, value; the last
//!   one is what the state says of itself; then 8 bytes of FF, and the SHA-256 of all before it
//! ```

use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::codec::Meta;
use super::keys;
use super::tree::{Tree, TreeFault};
use crate::journal::JournalError;
use crate::journal::medium::{
    Medium, MediumFile, TEMPORARY, beside, to_u64, to_usize, write_all_at,
};

/// The name of the folder.
pub(super) const SNAPSHOTS: &str = "snapshots";
const EXTENSION: &str = "snapshot";
const MAGIC: [u8; 8] = *b"PLSNAP\x00\x01";
const END: [u8; 8] = [0xFF; 8];
/// How many keys are copied at a time: no entry is applied meanwhile.
const COPIED_KEYS: usize = 512;
const BUFFER_BYTES: usize = 1 << 20;
/// How many are kept.
const KEPT: usize = 2;
/// No key or value is longer; a greater length is damage.
const LENGTH_MAX: usize = 64 << 20;

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Tree(#[from] TreeFault),
    #[error("the snapshot `{}` is damaged: {why}", .path.display())]
    Damaged { path: PathBuf, why: &'static str },
}

/// Keys with their values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The folder of snapshots.
#[derive(Debug, Clone)]
pub(super) struct Snapshots {
    medium: Arc<dyn Medium>,
    pub(super) directory: PathBuf,
}

impl Snapshots {
    pub(super) fn new(medium: Arc<dyn Medium>, store: &Path) -> Self {
        Self { medium, directory: store.join(SNAPSHOTS) }
    }

    /// The entries that there are snapshots of, ascending.
    pub(super) fn list(&self) -> Result<Vec<u64>, SnapshotError> {
        let names = match self.medium.list(&self.directory) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                return Err(JournalError::io("list the folder", &self.directory)(error).into());
            }
        };
        let number = |name: &String| name.strip_suffix(EXTENSION)?.strip_suffix('.')?.parse().ok();
        Ok(names.iter().filter_map(number).collect())
    }

    /// The file of the snapshot of an entry.
    pub(super) fn path(&self, seq: u64) -> PathBuf {
        self.directory.join(format!("{seq:020}.{EXTENSION}"))
    }

    /// Writes the state as it is now, and removes the oldest snapshots. Answers the snapshot's last entry.
    pub(super) fn write(&self, tree: &Tree) -> Result<u64, SnapshotError> {
        let made = self.medium.create_dir(&self.directory);
        made.map_err(JournalError::io("make the folder", &self.directory))?;
        self.remove_unfinished()?;
        let meta = tree.begin_copy();
        let path = self.path(meta.applied_seq);
        let written = self.write_file(tree, &meta, &path);
        if written.is_err() {
            tree.end_copy();
            // Where there is no room, the unfinished file takes some.
            if let Err(error) = self.medium.remove(&beside(&path)) {
                tracing::debug!(%error, "an unfinished snapshot could not be removed");
            }
        }
        written?;
        let there = self.list()?;
        for old in there.iter().rev().skip(KEPT) {
            let path = self.path(*old);
            self.medium.remove(&path).map_err(JournalError::io("remove", &path))?;
        }
        Ok(meta.applied_seq)
    }

    /// Sets aside a snapshot that does not belong to this journal's state: it no longer counts as one.
    pub(super) fn set_aside(&self, seq: u64) -> Result<(), SnapshotError> {
        let path = self.path(seq);
        let renamed = self.medium.rename(&path, &path.with_extension("damaged"));
        Ok(renamed.map_err(JournalError::io("set aside", &path))?)
    }

    /// Removes the unfinished snapshot of a killed process: each is as large as the state.
    fn remove_unfinished(&self) -> Result<(), SnapshotError> {
        let names = self.medium.list(&self.directory);
        let names = names.map_err(JournalError::io("list the folder", &self.directory))?;
        for path in names.iter().map(|name| self.directory.join(name)) {
            if path.extension().is_some_and(|extension| extension == TEMPORARY) {
                self.medium.remove(&path).map_err(JournalError::io("remove", &path))?;
            }
        }
        Ok(())
    }

    fn write_file(&self, tree: &Tree, meta: &Meta, path: &Path) -> Result<(), SnapshotError> {
        let unfinished = beside(path);
        let failed = || JournalError::io("write the snapshot", path);
        let file = self.medium.create(&unfinished).map_err(failed())?;
        let mut out = Writer { file: &*file, buffer: Vec::new(), at: 0, hasher: Sha256::new() };
        out.buffer.extend_from_slice(&MAGIC);
        while tree.is_copying() {
            for (key, value) in tree.copy_on(COPIED_KEYS)? {
                out.pair(&key, &value).map_err(failed())?;
            }
        }
        out.pair(keys::META, &meta.encode(keys::META)).map_err(failed())?;
        out.finish().map_err(failed())?;
        file.sync_data().map_err(failed())?;
        self.medium.rename(&unfinished, path).map_err(failed())?;
        Ok(self.medium.sync_dir(&self.directory).map_err(failed())?)
    }

    fn reader(&self, path: &Path) -> Result<Reader, SnapshotError> {
        let file = self.medium.open_read(path);
        let file = file.map_err(JournalError::io("open the snapshot", path))?;
        let input = BufReader::with_capacity(BUFFER_BYTES, FileReader { file, at: 0 });
        Ok(Reader { input, hasher: Sha256::new() })
    }

    /// Fills an empty state with the snapshot of an entry.
    pub(super) fn fill(&self, seq: u64, tree: &Tree) -> Result<(), SnapshotError> {
        let meta = self.read(seq, &mut |pairs| tree.fill(&mut pairs.drain(..)))?;
        Ok(tree.begin_with(meta)?)
    }

    /// Reads the snapshot of an entry to its end; answers what it says of itself.
    pub(super) fn check(&self, seq: u64) -> Result<Meta, SnapshotError> {
        self.read(seq, &mut |pairs| {
            pairs.clear();
            Ok(())
        })
    }

    /// Reads the snapshot of an entry to its end, and passes its keys on in parts: they are good only if this succeeds. Answers how far it
    /// goes.
    fn read(
        &self,
        seq: u64,
        take: &mut dyn FnMut(&mut Pairs) -> Result<(), TreeFault>,
    ) -> Result<Meta, SnapshotError> {
        let path = self.path(seq);
        let damaged = |why| SnapshotError::Damaged { path: path.clone(), why };
        let failed = || JournalError::io("read the snapshot", &path);
        let mut input = self.reader(&path)?;
        let mut next = |count: usize| {
            let bytes = input.take(count).map_err(failed())?;
            bytes.ok_or_else(|| damaged("it ends too early"))
        };
        if next(MAGIC.len())? != MAGIC {
            return Err(damaged("it does not begin like one"));
        }
        let (mut meta, mut pairs) = (None, Pairs::new());
        loop {
            let lengths = next(END.len())?;
            if lengths == END {
                break;
            }
            let [key, value] = lengths_of(&lengths).ok_or_else(|| damaged("a key is too long"))?;
            let (key, value) = (next(key)?, next(value)?);
            if key == keys::META {
                meta = Meta::decode(keys::META, &value);
            } else {
                pairs.push((key, value));
            }
            if pairs.len() >= COPIED_KEYS {
                take(&mut pairs)?;
            }
        }
        take(&mut pairs)?;
        if !input.ends_with_digest().map_err(failed())? {
            return Err(damaged("its digest is another one"));
        }
        let meta = meta.filter(|meta| meta.applied_seq == seq);
        meta.ok_or_else(|| damaged("it does not say how far it goes"))
    }
}

fn lengths_of(bytes: &[u8]) -> Option<[usize; 2]> {
    let (lengths, _none) = bytes.as_chunks::<4>();
    let [key, value] = lengths.as_array::<2>()?;
    let length = |bytes: &[u8; 4]| to_usize(u64::from(u32::from_le_bytes(*bytes)));
    let lengths = [length(key), length(value)];
    lengths.iter().all(|length| *length <= LENGTH_MAX).then_some(lengths)
}

struct Writer<'a> {
    file: &'a dyn MediumFile,
    buffer: Vec<u8>,
    at: u64,
    hasher: Sha256,
}

impl Writer<'_> {
    fn pair(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        for length in [key.len(), value.len()] {
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            self.buffer.extend_from_slice(&length.to_le_bytes());
        }
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(value);
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hasher.update(&self.buffer);
        write_all_at(self.file, &self.buffer, self.at)?;
        self.at = self.at.saturating_add(to_u64(self.buffer.len()));
        self.buffer.clear();
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.buffer.extend_from_slice(&END);
        self.flush()?;
        let digest: [u8; 32] = self.hasher.clone().finalize().into();
        write_all_at(self.file, &digest, self.at)
    }
}

/// A file, read from its beginning.
struct FileReader {
    file: Box<dyn MediumFile>,
    at: u64,
}

impl io::Read for FileReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(bytes, self.at)?;
        self.at = self.at.saturating_add(to_u64(read));
        Ok(read)
    }
}

struct Reader {
    input: BufReader<FileReader>,
    hasher: Sha256,
}

impl Reader {
    /// The next bytes; `None` where there are too few.
    fn take(&mut self, count: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; count];
        match self.input.read_exact(&mut bytes) {
            Ok(()) => {
                self.hasher.update(&bytes);
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the rest is the digest of what was read.
    fn ends_with_digest(&mut self) -> io::Result<bool> {
        let expected: [u8; 32] = self.hasher.clone().finalize().into();
        let (most, mut found) = (to_u64(expected.len()).saturating_add(1), Vec::new());
        (&mut self.input).take(most).read_to_end(&mut found)?;
        Ok(found == expected)
    }
}
