//! The files of a tree: which hash stands where, writing and reading them.
//!
//! Owns offsets and handles. Not here: when something is written, and whether what is read is right (the callers).
//! Invariant: a read of what is not there answers less than asked, never zeros in its place.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_ledger::proof::tiles::{TILE_HASHES, TileId, TilePart, Tiles};
use placet_types::digest::Digest;

use super::TreeError;
use crate::journal::medium::{Medium, MediumFile, read_full_at, to_u64, write_all_at};

const HASH_BYTES: usize = 32;
const TILE_BYTES: usize = TILE_HASHES * HASH_BYTES;
/// How many tiles share a file, as a power of two.
const FILE_TILES_BITS: u32 = 8;

/// Where a tile begins: the file, and the byte in it.
fn place_of(directory: &Path, tile: TileId) -> (PathBuf, u64) {
    let number = tile.index.wrapping_shr(FILE_TILES_BITS);
    let [within, ..] = tile.index.to_le_bytes();
    let path = directory.join(tile.level.to_string()).join(format!("{number:09}"));
    (path, u64::from(within).saturating_mul(to_u64(TILE_BYTES)))
}

/// The reading side: opens a file for each tile, since proofs are rare and tiles few.
#[derive(Debug, Clone)]
pub(super) struct TileReader {
    medium: Arc<dyn Medium>,
    directory: PathBuf,
}

impl TileReader {
    pub(super) const fn new(medium: Arc<dyn Medium>, directory: PathBuf) -> Self {
        Self { medium, directory }
    }
}

impl Tiles for TileReader {
    type Error = TreeError;

    fn tile(&self, tile: TileId, width: usize) -> Result<Vec<Digest>, TreeError> {
        let (path, offset) = place_of(&self.directory, tile);
        let failed = || TreeError::io("read the tree's file", &path);
        let file = match self.medium.open_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed()(error)),
        };
        let mut bytes = vec![0; width.min(TILE_HASHES).saturating_mul(HASH_BYTES)];
        let read = read_full_at(&*file, &mut bytes, offset).map_err(failed())?;
        bytes.truncate(read);
        let (hashes, _cut) = bytes.as_chunks::<HASH_BYTES>();
        Ok(hashes.iter().map(|hash| Digest::from_bytes(*hash)).collect())
    }
}

/// The writing side: keeps the file at the end of each level open, and knows what has not been synced.
#[derive(Debug)]
pub(super) struct TileFiles {
    medium: Arc<dyn Medium>,
    directory: PathBuf,
    /// By level.
    open: BTreeMap<u8, OpenFile>,
    /// Full files that have not been synced.
    full: Vec<OpenFile>,
    /// Folders with names that have not been synced.
    folders: Vec<PathBuf>,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    file: Box<dyn MediumFile>,
    written: bool,
}

impl OpenFile {
    fn sync(&mut self) -> Result<(), TreeError> {
        if self.written {
            let synced = self.file.sync_data();
            synced.map_err(TreeError::io("sync the tree's file", &self.path))?;
            self.written = false;
        }
        Ok(())
    }
}

impl TileFiles {
    pub(super) const fn new(medium: Arc<dyn Medium>, directory: PathBuf) -> Self {
        Self { medium, directory, open: BTreeMap::new(), full: Vec::new(), folders: Vec::new() }
    }

    pub(super) fn medium(&self) -> &dyn Medium {
        &*self.medium
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a part where it belongs.
    pub(super) fn write(&mut self, part: &TilePart) -> Result<(), TreeError> {
        let (path, tile_offset) = place_of(&self.directory, part.tile);
        let offset = tile_offset.saturating_add(to_u64(part.offset.saturating_mul(HASH_BYTES)));
        let bytes: Vec<u8> =
            part.hashes.iter().flat_map(|hash| hash.as_bytes().iter().copied()).collect();
        let file = self.file_at(part.tile.level, &path)?;
        file.written = true;
        write_all_at(&*file.file, &bytes, offset)
            .map_err(TreeError::io("write to the tree's file", &path))
    }

    /// Makes everything written durable, the names of new files too.
    pub(super) fn sync(&mut self) -> Result<(), TreeError> {
        for file in self.full.iter_mut().chain(self.open.values_mut()) {
            file.sync()?;
        }
        self.full.clear();
        for folder in &self.folders {
            let synced = self.medium.sync_dir(folder);
            synced.map_err(TreeError::io("sync the tree's folder", folder))?;
        }
        self.folders.clear();
        Ok(())
    }

    /// Removes a file of the tree's own folder, unless it is not there.
    pub(super) fn remove_head(&mut self, name: &str) -> Result<(), TreeError> {
        let path = self.directory.join(name);
        match self.medium.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(TreeError::io("remove the tree's head", &path)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn file_at(&mut self, level: u8, path: &Path) -> Result<&mut OpenFile, TreeError> {
        if self.open.get(&level).is_some_and(|open| open.path != path) {
            self.full.extend(self.open.remove(&level));
        }
        match self.open.entry(level) {
            std::collections::btree_map::Entry::Occupied(open) => Ok(open.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                let file = open_file(&*self.medium, path, &mut self.folders)?;
                Ok(place.insert(OpenFile { path: path.to_owned(), file, written: false }))
            }
        }
    }
}

/// Opens a file for writing, made where it is missing, and its folder too.
fn open_file(
    medium: &dyn Medium,
    path: &Path,
    folders: &mut Vec<PathBuf>,
) -> Result<Box<dyn MediumFile>, TreeError> {
    let failed = || TreeError::io("open the tree's file", path);
    match medium.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened.map_err(failed()),
    }
    if let Some(folder) = path.parent() {
        medium.create_dir(folder).map_err(TreeError::io("make the folder", folder))?;
        folders.push(folder.to_owned());
        folders.extend(folder.parent().map(Path::to_owned));
    }
    medium.create(path).map_err(failed())
}
