//! Reading a small file that counts again when it has changed, such as a certificate, a key or a secret.
//!
//! Owns the limits of reading. Does not say how often a file is checked. Invariants: never reads more than the limit, and only regular
//! files; what was read is overwritten when it is dropped. A file that hangs blocks its reader: read where blocking is allowed.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

use placet_types::digest::Digest;
use zeroize::Zeroizing;

/// The whole content of a file.
///
/// # Errors
/// Those of reading; [`io::ErrorKind::InvalidInput`] where the path is not a file, [`io::ErrorKind::FileTooLarge`] where it has more than
/// `bytes_max` bytes.
pub fn read_bounded(path: &Path, bytes_max: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    // Opening a pipe would block for ever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let limit = bytes_max.saturating_add(1);
    // With enough capacity the buffer never moves, so no partial copy stays behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(limit.saturating_add(1)));
    let file = File::open(path)?;
    file.take(u64::try_from(limit).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// A digest of the file's content, to notice changes. `None` where it cannot be read.
pub fn file_digest(path: &Path, bytes_max: usize) -> Option<Digest> {
    read_bounded(path, bytes_max).ok().map(|bytes| Digest::of(&bytes))
}

#[cfg(test)]
mod tests {
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
        let digest = file_digest(&path, 100);
        assert!(digest.is_some());
        write("first");
        assert_eq!(file_digest(&path, 100), digest);
        write("other");
        assert_ne!(file_digest(&path, 100), digest);
    }

    #[test]
    fn what_is_no_file_or_too_long_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let kind = |path: &Path| read_bounded(path, 100).map(drop).map_err(|error| error.kind());
        assert_eq!(kind(&path), Err(io::ErrorKind::NotFound));
        assert_eq!(kind(folder.path()), Err(io::ErrorKind::InvalidInput));
        fs::write(&path, "x".repeat(101)).unwrap();
        assert_eq!(kind(&path), Err(io::ErrorKind::FileTooLarge));
        fs::write(&path, "x".repeat(100)).unwrap();
        assert_eq!(kind(&path), Ok(()));
    }
}
