//! Ways in which the files of a data folder come to harm.
//!
//! Owns the folders that are harmed, the reading of a journal's layout from its description, and the small tools of harm. Not here: the
//! rows of the matrix and what must follow (`corruption`).

mod places;
pub(crate) mod rows;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::support::{Account, call, copy, files, note, open, runtime, scratch, tenant};
use placet_ledger::store::{Admission, Changes, Durability, Store as _};
use placet_types::digest::Digest;

/// Bytes before the payload of a frame, and after it.
pub(crate) const HEADER: usize = 80;
const TRAILER: usize = 5;
/// Bytes before the first frame of a segment.
const SEGMENT_HEADER: usize = 64;

/// Folders that a store has left, made once.
pub(crate) struct Templates {
    kept: TempDir,
}

impl Templates {
    /// `whole`: a life of fourteen calls that was closed. `old`: the same after four of them. `crashed`: the same folder while it was
    /// open, so that the index and the witness are behind. `deleted`: `whole`, and a content kept and deleted since. `other`: another
    /// store's.
    pub(crate) fn make() -> Self {
        let kept = scratch();
        let data = |name: &str| kept.path().join(name).join("data");
        let account = |name: &str| kept.path().join(name).join("account");
        for name in ["whole", "old", "crashed", "deleted", "other"] {
            fs::create_dir_all(data(name)).unwrap();
        }
        live(&data("whole"), &account("whole"), &keys("a", 0..4), None);
        copy(&kept.path().join("whole"), &kept.path().join("old"));
        let crashed = kept.path().join("crashed");
        live(&data("whole"), &account("whole"), &keys("a", 4..14), Some(&crashed));
        copy(&kept.path().join("whole"), &kept.path().join("deleted"));
        delete(&data("deleted"));
        live(&data("other"), &account("other"), &keys("z", 0..14), None);
        Self { kept }
    }

    /// A folder, with its account beside it.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.kept.path().join(name).join("data")
    }

    pub(crate) fn account(&self, name: &str) -> PathBuf {
        self.kept.path().join(name).join("account")
    }
}

pub(crate) fn keys(letter: &str, numbers: Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("{letter}-{number}")).collect()
}

/// Opens, calls, and closes; `meanwhile` gets a copy of everything just before the close.
fn live(folder: &Path, account: &Path, keys: &[String], meanwhile: Option<&Path>) {
    let mut said = Account::open(account);
    runtime().block_on(async {
        let (store, _) = open(folder).unwrap();
        note(&store).await.unwrap();
        for key in keys {
            call(&store, key, &mut said).await.unwrap();
        }
        if let Some(meanwhile) = meanwhile {
            copy(folder.parent().unwrap(), meanwhile);
        }
        store.close().await.unwrap();
    });
}

/// Keeps a content and deletes it again: what was deleted is in tables then, and so is everything else.
fn delete(folder: &Path) {
    let bytes = b"deleted again".to_vec();
    let (mut keeps, mut deletes) = (changes(), changes());
    deletes.forget_content.push((tenant(), Digest::of(&bytes)));
    keeps.content.push((tenant(), bytes));
    runtime().block_on(async {
        let (store, _) = open(folder).unwrap();
        store.commit(keeps).await.unwrap();
        store.commit(deletes).await.unwrap();
        store.close().await.unwrap();
    });
}

fn changes() -> Changes {
    Changes::new(Durability::Synced, Admission::Completion)
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

    /// Where the frames of a segment are.
    pub(crate) fn frames(&self, number: usize) -> Vec<Range<usize>> {
        let bytes = fs::read(self.segment(number)).unwrap();
        let (mut at, mut frames) = (SEGMENT_HEADER, Vec::new());
        while bytes.get(at..).is_some_and(|rest| rest.starts_with(b"PLJF")) {
            let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap());
            let end = at + HEADER + usize::try_from(length).unwrap() + TRAILER;
            frames.push(at..end);
            at = end;
        }
        frames
    }

    /// The last segment that has frames, and its last frame.
    pub(crate) fn last_frame(&self) -> (usize, Range<usize>) {
        (1..=self.segments())
            .rev()
            .find_map(|number| Some((number, self.frames(number).pop()?)))
            .unwrap()
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
        for name in ["journal", "index", "content", "checkpoints", "tree"] {
            self.replace(name, template);
        }
    }

    /// The file of the tables of places with this ending.
    pub(crate) fn place(&self, kind: &str) -> PathBuf {
        let all = files(&self.path("content/places")).into_iter();
        let mut found = all.filter(|path| path.extension().is_some_and(|found| found == kind));
        found.next().unwrap()
    }

    /// The files of contents: packs, and those that have a file of their own.
    pub(crate) fn contents(&self, is_pack: bool) -> Vec<PathBuf> {
        let all = files(&self.path("content")).into_iter();
        all.filter(|path| path.extension().is_some_and(|kind| kind == "pack") == is_pack).collect()
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
