//! What tells one state of a file from another, for files that count again when they have changed.
//!
//! Owns the mark. Does not say how often a file is looked at, nor keep what is in it. Invariants: two contents have two marks, also of the same
//! length and moment; no byte of a file is in its mark, nor stays in memory for it; a file that hangs holds up anyone who asks, so marks are taken where
//! blocking is allowed.

use std::{fs::File, io::Read as _, os::unix::fs::MetadataExt as _, path::Path};

use placet_types::digest::Digest;
use zeroize::Zeroizing;

/// The state of a file: which one it is, when it was written, and what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMark {
    /// Device and inode: a link that leads elsewhere now leads to another.
    place: (u64, u64),
    /// Seconds and nanoseconds.
    written: (i64, i64),
    digest: Digest,
}

impl FileMark {
    /// The mark of the file at `path` now. Nothing where there is no file, it cannot be read, or it has more than `bytes_max` bytes.
    #[must_use]
    pub fn of(path: &Path, bytes_max: u64) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        // A pipe would block the opening for ever.
        if !found.is_file() || found.len() > bytes_max {
            return None;
        }
        // With room for all of it the buffer never moves: keys are among these files.
        let limit = bytes_max.saturating_add(1);
        let room = usize::try_from(found.len().saturating_add(1)).ok()?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        File::open(path).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
        let digest = Digest::of(&bytes);
        let written = (found.mtime(), found.mtime_nsec());
        Some(Self { place: (found.dev(), found.ino()), written, digest })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_change_of_the_same_length_at_the_same_moment_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let at = fs::metadata(folder.path()).unwrap().modified().unwrap();
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
        };
        write("first");
        let mark = FileMark::of(&path, 100);
        assert!(mark.is_some());
        write("first");
        assert_eq!(FileMark::of(&path, 100), mark);
        write("other");
        assert_ne!(FileMark::of(&path, 100), mark);
    }

    #[test]
    fn a_link_that_leads_to_the_same_words_elsewhere_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let at = fs::metadata(folder.path()).unwrap().modified().unwrap();
        for name in ["one", "two"] {
            fs::write(path(name), "words").unwrap();
            File::options().write(true).open(path(name)).unwrap().set_modified(at).unwrap();
        }
        symlink(path("one"), path("link")).unwrap();
        let mark = FileMark::of(&path("link"), 100);
        fs::remove_file(path("link")).unwrap();
        symlink(path("two"), path("link")).unwrap();
        assert_ne!(FileMark::of(&path("link"), 100), mark);
    }

    #[test]
    fn what_is_no_file_or_too_long_has_no_mark() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert_eq!(FileMark::of(&path, 100), None);
        assert_eq!(FileMark::of(folder.path(), 100), None);
        fs::write(&path, "x".repeat(101)).unwrap();
        assert_eq!(FileMark::of(&path, 100), None);
        fs::write(&path, "x".repeat(100)).unwrap();
        assert!(FileMark::of(&path, 100).is_some());
    }
}
