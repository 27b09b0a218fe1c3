//! The search for secrets in everything that a run left on the disk.
//!
//! Owns reading the files. Invariant: a secret that spans two reads is found.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::history::{probe::Probe, request::leaks};

/// How much is read at once.
const CHUNK_BYTES: usize = 1_048_576;

/// Searches all files below `folder` for the texts of `secrets`, which are named by their names.
///
/// # Errors
/// When a folder or file cannot be read. A file that has disappeared is skipped.
pub fn scan(folder: &Path, secrets: &[(String, String)]) -> io::Result<Probe> {
    let (mut files, mut bytes, mut hits) = (0_u64, 0_u64, Vec::new());
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        let kind = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if kind.is_dir() {
            let below: Result<Vec<PathBuf>, io::Error> =
                fs::read_dir(&path)?.map(|entry| entry.map(|entry| entry.path())).collect();
            open.extend(below?);
        } else if kind.is_file() {
            let (length, found) = search(&path, secrets)?;
            (files, bytes) = (files.saturating_add(1), bytes.saturating_add(length));
            hits.extend(found.into_iter().map(|name| format!("{name} in {}", path.display())));
        }
    }
    hits.sort();
    Ok(Probe::Secrets { files, bytes, hits })
}

fn search(path: &Path, secrets: &[(String, String)]) -> io::Result<(u64, Vec<String>)> {
    let longest = secrets.iter().map(|(_, secret)| secret.len()).max().unwrap_or_default();
    let mut file = File::open(path)?;
    let (mut window, mut length, mut found) = (Vec::new(), 0_u64, Vec::new());
    let mut chunk = vec![0_u8; CHUNK_BYTES];
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            found.sort();
            found.dedup();
            return Ok((length, found));
        }
        length = length.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        // The end of a preallocated journal. No secret contains such bytes, or continues after them.
        if chunk.iter().take(read).all(|byte| *byte == 0) {
            window.clear();
            continue;
        }
        window.extend(chunk.iter().take(read));
        found.extend(leaks(&window, secrets));
        window.drain(..window.len().saturating_sub(longest));
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, scan};
    use crate::history::probe::Probe;

    #[test]
    fn a_secret_is_found_wherever_it_stands_and_nothing_else_is() {
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        let mut across = vec![b'x'; CHUNK_BYTES - 3];
        across.extend(b"hunter2");
        std::fs::write(folder.path().join("deep/across"), across).unwrap();
        std::fs::write(folder.path().join("clean"), "hunter3 hunte").unwrap();
        let secrets =
            [("the key".to_owned(), "hunter2".to_owned()), ("other".to_owned(), "zzz".to_owned())];
        let Probe::Secrets { files, bytes, hits } = scan(folder.path(), &secrets).unwrap() else {
            panic!()
        };
        assert_eq!((files, bytes), (2, 1_048_573 + 7 + 13));
        assert_eq!(hits.len(), 1, "{hits:?}");
        assert!(hits[0].starts_with("the key in ") && hits[0].ends_with("deep/across"));
    }
}
