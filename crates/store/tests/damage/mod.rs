//! Ways in which the files of a data folder come to harm.
//!
//! Owns the folders that are harmed, the reading of a journal's layout from its description, and the small tools of harm. Not here: the
//! rows of the matrix and what must follow (`corruption`).

mod journal;
pub(crate) mod rows;
mod state;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::support::{Account, call, copy, files, note, open, runtime, scratch, tenant};
use placet_ledger::store::{Admission, Changes, Durability, Store as _};
use placet_store::embedded::EmbeddedStore;
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;

/// Bytes before the payload of a frame, and after it.
pub(crate) const HEADER: usize = 80;
const TRAILER: usize = 5;
/// Bytes before the first frame of a segment.
const SEGMENT_HEADER: usize = 64;
/// Bytes before the tenant's name in the header of a content.
pub(crate) const CONTENT_HEADER: usize = 48;
/// Entries without records: enough for the segments that they are in to be archived.
const NOTES: u32 = 300;

/// An entry in its segment.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// What its contents are in, header included, in order.
    pub(crate) contents: Vec<Range<usize>>,
    pub(crate) frame: Range<usize>,
}

impl Entry {
    /// Where it begins, its contents included.
    pub(crate) fn start(&self) -> usize {
        self.contents.first().map_or(self.frame.start, |content| content.start)
    }
}

/// Folders that a store has left, made once.
pub(crate) struct Templates {
    kept: TempDir,
}

impl Templates {
    /// `whole`: a life of fifteen calls that was closed. `old`: the same after four of them. `crashed`: the same folder while it was
    /// open, so that the state and the witness are behind. `bare`: `whole` without its state, so that a start reads everything.
    /// `deleted`: `whole`, and a content kept and deleted since. `long`: one with many entries after the first calls. `snapshots`: a life with two snapshots, without its state. `archived`:
    /// a life with archived segments and two snapshots. `other`: another store's.
    pub(crate) fn make() -> Self {
        let templates = Self { kept: scratch() };
        let root = |name: &str| templates.kept.path().join(name);
        let data = |name: &str| templates.folder(name);
        live(&root("whole"), keys("a", 0..4), async |_| ());
        copy(&root("whole"), &root("old"));
        live(&root("whole"), keys("a", 4..15), async |_| copy(&root("whole"), &root("crashed")));
        copy(&root("whole"), &root("bare"));
        forget_state(&data("bare"));
        copy(&root("whole"), &root("deleted"));
        delete(&data("deleted"));
        live(&root("long"), keys("l", 0..4), notes);
        live(&root("snapshots"), keys("s", 0..7), snapshot);
        live(&root("snapshots"), keys("s", 7..15), snapshot);
        forget_state(&data("snapshots"));
        live(&root("archived"), Vec::new(), notes);
        live(&root("archived"), keys("n", 0..7), snapshot);
        live(&root("archived"), keys("n", 7..15), snapshot);
        assert!(data("archived").join("archive").try_exists().unwrap());
        live(&root("other"), keys("z", 0..14), snapshot);
        templates
    }

    /// A folder, with its account beside it.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.kept.path().join(name).join("data")
    }

    pub(crate) fn account(&self, name: &str) -> PathBuf {
        self.kept.path().join(name).join("account")
    }
}

fn keys(letter: &str, numbers: Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("{letter}-{number}")).collect()
}

/// Opens, calls, does one more thing, and closes.
fn live(root: &Path, keys: Vec<String>, last: impl AsyncFnOnce(&EmbeddedStore)) {
    fs::create_dir_all(root.join("data")).unwrap();
    let mut said = Account::open(&root.join("account"));
    runtime().block_on(async {
        let (store, _) = open(&root.join("data")).unwrap();
        note(&store).await.unwrap();
        for key in keys {
            call(&store, &key, &mut said).await.unwrap();
        }
        last(&store).await;
        store.close().await.unwrap();
    });
}

async fn notes(store: &EmbeddedStore) {
    for _ in 0..NOTES {
        note(store).await.unwrap();
    }
}

/// Makes a snapshot, and archives what can be.
async fn snapshot(store: &EmbeddedStore) {
    store.snapshot().await.unwrap();
    store.archive(Timestamp::from_ms(i64::MAX)).await.unwrap();
}

/// Takes the state of a folder away.
pub(crate) fn forget_state(folder: &Path) {
    fs::remove_dir_all(folder.join("state")).unwrap();
    fs::remove_file(folder.join("trusted")).unwrap();
}

/// Keeps a content and deletes it again.
fn delete(folder: &Path) {
    let bytes = b"deleted again".to_vec();
    let changes = || Changes::new(Durability::Synced, Admission::Completion);
    let deletes = Changes { forget_content: vec![(tenant(), Digest::of(&bytes))], ..changes() };
    let keeps = Changes { content: vec![(tenant(), bytes)], ..changes() };
    runtime().block_on(async {
        let (store, _) = open(folder).unwrap();
        store.commit(keeps).await.unwrap();
        store.commit(deletes).await.unwrap();
        store.close().await.unwrap();
    });
}

/// The folder that a row harms, and where it may take files from.
pub(crate) struct Bench<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) templates: &'a Templates,
}

impl Bench<'_> {
    /// A file of the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The file of a segment.
    pub(crate) fn segment(&self, number: usize) -> PathBuf {
        self.path(&format!("journal/{number:012}.segment"))
    }

    /// How many segments there are.
    pub(crate) fn segments(&self) -> usize {
        (1..).take_while(|number| self.segment(*number).try_exists().unwrap()).count()
    }

    /// Where the entries of a segment are.
    pub(crate) fn entries(&self, number: usize) -> Vec<Entry> {
        let bytes = fs::read(self.segment(number)).unwrap();
        let begins =
            |at: usize, magic: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(magic));
        let length = |at: usize| {
            let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap());
            usize::try_from(length).unwrap()
        };
        let (mut at, mut entries, mut contents) = (SEGMENT_HEADER, Vec::new(), Vec::new());
        loop {
            if begins(at, b"PLJC") {
                let end = at + CONTENT_HEADER + usize::from(bytes[at + 5]) + length(at);
                contents.push(at..end);
                at = end;
            } else if begins(at, b"PLJF") {
                let end = at + HEADER + length(at) + TRAILER;
                entries.push(Entry { contents: std::mem::take(&mut contents), frame: at..end });
                at = end;
            } else {
                return entries;
            }
        }
    }

    /// The last segment that has entries, and its last entry.
    pub(crate) fn last_entry(&self) -> (usize, Entry) {
        (1..=self.segments())
            .rev()
            .find_map(|number| Some((number, self.entries(number).pop()?)))
            .unwrap()
    }

    /// The contents in the journal: their segments, where their headers begin, and where they are themselves.
    pub(crate) fn contents(&self) -> Vec<(usize, usize, Range<usize>)> {
        let of_segment = |number: usize| {
            let contents = self.entries(number).into_iter().flat_map(|entry| entry.contents);
            contents.map(move |all| {
                let header = CONTENT_HEADER + tenant().as_str().len();
                (number, all.start, all.start + header..all.end)
            })
        };
        (1..=self.segments()).flat_map(of_segment).collect()
    }

    /// The files of the snapshots, oldest first.
    pub(crate) fn snapshots(&self) -> Vec<PathBuf> {
        files(&self.path("snapshots"))
    }

    /// Puts a file or a folder of another template in the place of the one here.
    pub(crate) fn replace(&self, name: &str, template: &str) {
        let (from, to) = (self.templates.folder(template).join(name), self.path(name));
        if from.is_dir() {
            fs::remove_dir_all(&to).unwrap();
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).map(drop).unwrap();
        }
    }

    /// Puts everything of another template in its place.
    pub(crate) fn replace_all(&self, template: &str) {
        fs::remove_dir_all(self.folder).unwrap();
        copy(&self.templates.folder(template), self.folder);
    }
}

/// Changes the bytes of a file.
pub(crate) fn alter(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Flips one bit of a file.
pub(crate) fn flip(path: &Path, at: usize) {
    alter(path, |bytes| bytes[at] ^= 1 << (at % 8));
}

pub(crate) fn cut(path: &Path, length: usize) {
    alter(path, |bytes| bytes.truncate(length));
}

pub(crate) fn zero(path: &Path, range: Range<usize>) {
    alter(path, |bytes| bytes[range].fill(0));
}

pub(crate) fn swap(one: &Path, other: &Path) {
    let (first, second) = (fs::read(one).unwrap(), fs::read(other).unwrap());
    fs::write(one, second).unwrap();
    fs::write(other, first).unwrap();
}
