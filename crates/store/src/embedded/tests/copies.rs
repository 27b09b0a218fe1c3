//! What a `kill -9` at the worst moment of a checkpoint leaves behind: everything is copied at that moment, and looked at.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use tempfile::tempdir;

use super::checkpoints::{check, filled};
use super::*;
use crate::embedded::open::IndexFate;
use crate::embedded::{IndexVerdict, fsck, verify_with};
use crate::journal::medium::{Medium, MediumFile};

/// A disk of which everything is copied just before and just after a checkpoint gets its name: what a killed process has given to the
/// operating system by then, and nothing else.
#[derive(Debug, Clone)]
struct Copying {
    disk: FaultyDisk,
    from: PathBuf,
    to: PathBuf,
    copies: Arc<Mutex<Vec<PathBuf>>>,
}

impl Copying {
    fn copy(&self) {
        let mut copies = self.copies.lock().unwrap();
        let to = self.to.join(copies.len().to_string());
        copy_folder(&self.from, &to);
        copies.push(to);
    }

    fn copies(&self) -> Vec<PathBuf> {
        self.copies.lock().unwrap().clone()
    }
}

impl Medium for Copying {
    fn create(&self, path: &Path) -> io::Result<Box<dyn MediumFile>> {
        self.disk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn MediumFile>> {
        self.disk.open(path)
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn MediumFile>> {
        self.disk.open_read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let is_checkpoint = to.extension().is_some_and(|extension| extension == "checkpoint");
        if is_checkpoint {
            self.copy();
        }
        self.disk.rename(from, to)?;
        if is_checkpoint {
            self.copy();
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.list(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.disk.free_bytes(path)
    }
}

fn copying(from: &Path, to: &Path) -> (EmbeddedConfig, Copying) {
    let disk = FaultyDisk::default();
    let copies = Arc::default();
    let medium = Copying { disk, from: from.to_owned(), to: to.to_owned(), copies };
    (EmbeddedConfig { medium: Arc::new(medium.clone()), ..config(from) }, medium)
}

/// Nothing is said to be wrong with a copy, and the next start takes its index as it is.
fn goes_on(copy: &Path) -> u64 {
    let verdict = verify_with(&config(copy)).unwrap();
    let is_stale = matches!(verdict.index, IndexVerdict::Agrees | IndexVerdict::Behind { .. });
    assert!(is_stale, "{}: {:?}", copy.display(), verdict.index);
    let report = fsck(&config(copy)).unwrap();
    assert!(report.is_sound(), "{}: {report:?}", copy.display());
    let (store, report) = open(&config(copy));
    assert_eq!(report.index, IndexFate::Kept, "{}", copy.display());
    drop(store);
    report.effects
}

#[tokio::test]
async fn a_kill_around_a_checkpoint_leaves_an_index_that_goes_on_from_it() {
    let (folder, beside) = (tempdir().unwrap(), tempdir().unwrap());
    let (config, medium) = copying(folder.path(), beside.path());
    let (store, _) = open(&config);
    let records = filled(&store, 4).await;
    check(&store, &records).await;
    drop(store);
    let copies = medium.copies();
    assert!(copies.len() >= 8, "{copies:?}");
    // The first checkpoint is made of the seven records of the first round, the last of all of them.
    let effects: Vec<u64> = copies.iter().map(|copy| goes_on(copy)).collect();
    assert_eq!((effects.first(), effects.last()), (Some(&7), Some(&28)));
}

#[tokio::test]
async fn a_kill_around_the_checkpoint_of_a_long_recovery_leaves_an_index_that_goes_on_from_it() {
    let (folder, beside) = (tempdir().unwrap(), tempdir().unwrap());
    let (config, medium) = copying(folder.path(), beside.path());
    let (store, _) = open(&config);
    let mut records = filled(&store, 2).await;
    for number in 0..40 {
        records.push(make(&*store, &format!("later-{number}"), true).await);
    }
    records.sort_by_key(|record| record.record_id);
    store.close().await.unwrap();
    let before = medium.copies().len();
    let tight = EmbeddedConfig { recovery_bytes_max: 2_000, ..config };
    let (store, report) = open(&tight);
    assert!(matches!(report.index, IndexFate::Rebuilt { .. }), "{:?}", report.index);
    check(&store, &records).await;
    store.close().await.unwrap();
    let copies = medium.copies().split_off(before);
    assert!(copies.len() >= 2, "{copies:?}");
    for copy in &copies {
        assert_eq!(goes_on(copy), u64::try_from(records.len()).unwrap());
    }
    let aside = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let aside = aside.filter(|name| name.to_string_lossy().contains("damaged")).count();
    assert_eq!(aside, 0, "what was not damaged is not set aside as if it were");
}
