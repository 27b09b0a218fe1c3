//! Reading YAML files: with a limit on their size, and errors that name file, line and key.
//!
//! Owns the reading and the form of a problem. Does not know what is in the files.

use std::{
    fmt,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileProblem {
    /// The file.
    pub(crate) file: PathBuf,
    /// The line, from 1.
    pub(crate) line: Option<u64>,
    /// The key, as `a.b[0].c`.
    pub(crate) key: Option<String>,
    /// What is wrong there.
    pub(crate) problem: String,
}

impl FileProblem {
    /// A problem of the file as a whole.
    pub(crate) fn of_file(file: &Path, problem: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), line: None, key: None, problem: problem.to_string() }
    }

    /// A problem at a key.
    pub(crate) fn at(file: &Path, key: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self { key: Some(key.into()), ..Self::of_file(file, problem) }
    }
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": `{key}`")?;
        }
        write!(f, ": {}", self.problem)
    }
}

/// The text of a file.
///
/// # Errors
/// [`FileProblem`] when it cannot be read, is too large or no text.
pub(crate) fn read_text(path: &Path) -> Result<String, FileProblem> {
    let failed =
        |error: std::io::Error| FileProblem::of_file(path, format!("cannot be read: {error}"));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(FileProblem::of_file(path, "is not a file"));
    }
    file.take(FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        return Err(FileProblem::of_file(path, format!("is larger than {FILE_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_not_text| FileProblem::of_file(path, "is not UTF-8 text"))
}

/// Reads a value from a YAML file.
///
/// # Errors
/// [`FileProblem`] naming the line and the key.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, FileProblem> {
    parse(path, &read_text(path)?)
}

/// Reads a value from YAML text; `path` is for the message.
///
/// # Errors
/// [`FileProblem`] naming the line and the key.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, FileProblem> {
    let mut key = None;
    let parsed = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            key = Some(error.path().to_string()).filter(|key| !matches!(key.as_str(), "." | "?"));
            error.into_inner()
        })
    });
    parsed.map_err(|error| FileProblem {
        file: path.to_owned(),
        line: error.location().map(|location| location.line()).filter(|line| *line > 0),
        key,
        problem: first_line(&error),
    })
}

/// The library's message without its own place, which the problem has already, and without its picture of the text.
fn first_line(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or("is not valid YAML");
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let without_place = line.rfind(" at line ").and_then(|at| line.get(..at));
    let line = without_place.unwrap_or(line);
    line.split_once(": ")
        .filter(|(place, _)| place.starts_with("line "))
        .map_or(line, |(_, rest)| rest)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde::Deserialize;

    use super::{parse, read_text};

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only parsed")]
    struct Sample {
        outer: Inner,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only parsed")]
    struct Inner {
        port: u16,
        #[serde(default)]
        name: String,
    }

    fn problem(text: &str) -> String {
        parse::<Sample>(Path::new("x.yaml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_problem_names_file_line_and_key() {
        let unknown = problem("outer:\n  port: 1\n  prot: 2\n");
        assert!(unknown.starts_with("x.yaml:3: `outer.prot`: unknown field"), "{unknown}");
        let wrong = problem("outer:\n  port: many\n");
        assert!(wrong.starts_with("x.yaml:2: `outer.port`: "), "{wrong}");
        let twice = problem("outer:\n  port: 1\n  port: 2\n");
        assert!(twice.starts_with("x.yaml:3: ") && twice.contains("duplicate"), "{twice}");
        let torn = problem("outer: [1,\n");
        assert!(torn.starts_with("x.yaml:"), "{torn}");
    }

    #[test]
    fn a_folder_and_a_missing_file_are_problems_and_not_panics() {
        assert!(read_text(Path::new("/")).unwrap_err().to_string().contains("not a file"));
        assert!(
            read_text(Path::new("/no/such/file.yaml"))
                .unwrap_err()
                .to_string()
                .contains("cannot be read")
        );
    }
}
