//! The repository as files.
//!
//! Owns where it is and which files are its own. Reads only; [`expect_file`] alone writes, when it is told to.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The variable that makes [`expect_file`] write instead of compare.
const UPDATE: &str = "UPDATE_EXPECT";

/// Folders that are not the repository's own text.
const FOREIGN: [&str; 5] = [".git", "target", "node_modules", "placet-data", "book"];

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the crate is in a folder of the repository").to_owned()
}

/// A file of the repository: its path from the root, with `/`, and its text.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Every text file of the repository below `folders` with one of the extensions, in a stable order.
pub(crate) fn files(folders: &[&str], extensions: &[&str]) -> Vec<SourceFile> {
    let mut found = Vec::new();
    for folder in folders {
        walk(&root().join(folder), extensions, &mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(
        !found.is_empty(),
        "no {extensions:?} below {folders:?}: a check without files checks nothing"
    );
    found
}

/// The text of one file.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Fails with one line for each finding.
pub(crate) fn none(what: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{what}:\n  {}\n", findings.join("\n  "));
}

/// Compares a generated file with what it should be, or writes it.
pub(crate) fn expect_file(path: &str, wanted: &str) -> Option<String> {
    let full = root().join(path);
    if fs::read_to_string(&full).is_ok_and(|text| text == wanted) {
        return None;
    }
    if std::env::var_os(UPDATE).is_none() {
        return Some(path.to_owned());
    }
    if let Some(folder) = full.parent() {
        fs::create_dir_all(folder).expect("the folder can be made");
    }
    fs::write(&full, wanted).expect("the file can be written");
    None
}

fn walk(folder: &Path, extensions: &[&str], found: &mut Vec<SourceFile>) {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let entry = entry.expect("the folder can be read");
        let name = entry.file_name().into_string().expect("names are text");
        let kind = entry.file_type().expect("a file has a type");
        if kind.is_dir() && !FOREIGN.contains(&name.as_str()) {
            walk(&entry.path(), extensions, found);
        } else if kind.is_file() && extensions.iter().any(|extension| name.ends_with(extension)) {
            let path = entry.path();
            let text = fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let short = path.strip_prefix(root()).expect("it is below the root");
            found.push(SourceFile { path: short.to_string_lossy().replace('\\', "/"), text });
        }
    }
}
