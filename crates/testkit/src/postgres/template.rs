//! A fresh PostgreSQL cluster without the second of processor time that `initdb` takes.
//!
//! Owns the copy that is kept below `target/e2e/clusters`, one for each server and its arguments. Does not own the cluster that a test works on.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, chown},
    path::{Path, PathBuf},
};

/// A cluster as `initdb` makes it, to copy from.
#[derive(Debug)]
pub struct Template {
    folder: PathBuf,
}

impl Template {
    /// The template of what `initdb` in the folder `bin` makes with these arguments.
    ///
    /// # Errors
    /// `initdb` is not in that folder.
    pub fn of(bin: &Path, arguments: &[&str]) -> io::Result<Self> {
        let initdb = fs::metadata(bin.join("initdb"))?;
        let name = format!("{}{}-{}", arguments.concat(), initdb.mtime(), initdb.len());
        let clusters = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/e2e/clusters");
        Ok(Self { folder: clusters.join(name) })
    }

    /// Fills the empty folder `data` with a copy that `owner` owns, and says whether there was one to copy.
    ///
    /// # Errors
    /// The copy cannot be read or written.
    pub fn fill(&self, data: &Path, owner: Option<(u32, u32)>) -> io::Result<bool> {
        let is_there = self.folder.try_exists()?;
        if is_there {
            copy(&self.folder, data, owner)?;
        }
        Ok(is_there)
    }

    /// Keeps a copy of `data`, a cluster that has not run yet.
    ///
    /// # Errors
    /// The copy cannot be written.
    pub fn keep(&self, data: &Path) -> io::Result<()> {
        let clusters = self.folder.parent().unwrap_or(&self.folder);
        fs::create_dir_all(clusters)?;
        let unfinished = tempfile::tempdir_in(clusters)?;
        copy(data, unfinished.path(), None)?;
        // Somebody else may have been first: theirs is as good, and this one is removed.
        fs::rename(unfinished.path(), &self.folder).or(Ok(()))
    }
}

/// Copies what is in a folder, with its permissions.
fn copy(from: &Path, to: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            fs::set_permissions(&target, entry.metadata()?.permissions())?;
            copy(&entry.path(), &target, owner)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
        if let Some((uid, gid)) = owner {
            chown(&target, Some(uid), Some(gid))?;
        }
    }
    Ok(())
}
