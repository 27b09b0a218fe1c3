//! The search for secrets in everything that a run left on the disk.
//!
//! Owns reading the files, each as a whole: the largest is one segment of a journal.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::history::{probe::Probe, request::leaks};

/// Searches all files below `folder` for the texts of `secrets`, which are named by their names. A file that has disappeared is
/// skipped.
pub(crate) fn scan(folder: &Path, secrets: &[(String, String)]) -> io::Result<Probe> {
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
            let mut content = fs::read(&path)?;
            let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
            (files, bytes) = (files.saturating_add(1), bytes.saturating_add(length));
            // The zeros at the end of a preallocated journal would take long to search.
            let last = content.iter().rposition(|byte| *byte != 0);
            content.truncate(last.map_or(0, |last| last.saturating_add(1)));
            let found = leaks(&content, secrets).into_iter();
            hits.extend(found.map(|name| format!("{name} in {}", path.display())));
        }
    }
    hits.sort();
    Ok(Probe::Secrets { files, bytes, hits })
}

#[cfg(test)]
mod tests {
    use super::scan;
    use crate::history::probe::Probe;

    #[test]
    fn a_secret_is_found_wherever_it_stands_and_nothing_else_is() {
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        let preallocated = [&[0, b'x'][..], b"hunter2", &[0; 100]].concat();
        std::fs::write(folder.path().join("deep/journal"), preallocated).unwrap();
        std::fs::write(folder.path().join("clean"), "hunter3 hunte").unwrap();
        let secrets =
            [("the key".to_owned(), "hunter2".to_owned()), ("other".to_owned(), "zzz".to_owned())];
        let Probe::Secrets { files, bytes, hits } = scan(folder.path(), &secrets).unwrap() else {
            panic!()
        };
        assert_eq!((files, bytes), (2, 109 + 13));
        assert_eq!(hits.len(), 1, "{hits:?}");
        assert!(hits[0].starts_with("the key in ") && hits[0].ends_with("deep/journal"));
    }
}
