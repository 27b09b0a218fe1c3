//! Reading YAML files: with a limit on their size, and errors that name file, line and key.
//!
//! Owns the reading and the form of a problem. Does not know what is in the files.

mod words;

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The expected form of an address to listen on.
pub(crate) const AN_ADDRESS: &str =
    "an address is an IP address and a port, such as `127.0.0.1:7411` or `[::1]:7411`";

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

impl From<FileProblem> for Failure {
    fn from(problem: FileProblem) -> Self {
        Self::new(problem.to_string())
    }
}

/// The text of a file.
pub(crate) fn read_text(path: &Path) -> Result<String, FileProblem> {
    // Looked at before it is opened: opening a named pipe waits for a writer.
    if !fs::metadata(path).map_err(|error| unread(path, &error))?.is_file() {
        return Err(FileProblem::of_file(path, "is not a file"));
    }
    text_of(path, File::open(path).map_err(|error| unread(path, &error))?)
}

/// The text passed to a command: from a file, a named pipe, or standard input for `-`.
pub(crate) fn read_input(path: &Path) -> Result<String, FileProblem> {
    if path == Path::new("-") {
        return text_of(Path::new("standard input"), io::stdin().lock());
    }
    text_of(path, File::open(path).map_err(|error| unread(path, &error))?)
}

fn unread(path: &Path, error: &io::Error) -> FileProblem {
    FileProblem::of_file(path, format!("cannot be read: {error}"))
}

fn text_of(path: &Path, input: impl io::Read) -> Result<String, FileProblem> {
    let mut bytes = Vec::new();
    let read = input.take(FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| unread(path, &error))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        return Err(FileProblem::of_file(path, format!("is larger than {FILE_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_not_text| FileProblem::of_file(path, "is not UTF-8 text"))
}

/// Reads a value from a YAML file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, FileProblem> {
    parse(path, &read_text(path)?)
}

/// Reads a value from YAML text; `path` is for the message.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, FileProblem> {
    let mut key = None;
    let read = |deserializer: serde_saphyr::Deserializer<'_, '_>| {
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            // What could not be read has no name: the place is then that of its parent.
            let path = error.path().to_string();
            let path = path.strip_suffix(".?").unwrap_or(&path);
            key = Some(path.to_owned()).filter(|key| !matches!(key.as_str(), "." | "?"));
            error.into_inner()
        })
    };
    // `no`, `off` and `n` are texts, as YAML 1.2 has it: an `enum` of them would otherwise mean booleans.
    let options = serde_saphyr::options! { strict_booleans: true };
    let parsed = serde_saphyr::with_deserializer_from_str_with_options(text, options, read);
    parsed.map_err(|error| {
        let (key, problem) = words::told(text, key, &error);
        FileProblem {
            file: path.to_owned(),
            line: error.location().map(|location| location.line()).filter(|line| *line > 0),
            key,
            problem,
        }
    })
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
        assert_eq!(twice, "x.yaml:3: `outer`: the key `port` is there twice");
        let torn = problem("outer: [1,\n");
        assert!(torn.starts_with("x.yaml:"), "{torn}");
    }

    #[test]
    fn a_problem_is_told_without_the_words_of_the_library() {
        for (text, told) in [
            (
                "outer:\n  port: -1\n",
                "x.yaml:2: `outer.port`: a whole number from 0 to 65535 is expected",
            ),
            ("outer:\n  port: 1\n  name: [a]\n", "x.yaml:3: `outer.name`: a text is expected"),
            (
                "outer: 7\n",
                "x.yaml:1: `outer`: keys with values are expected, each as `key: value`",
            ),
            ("- 1\n", "x.yaml:1: keys with values are expected, each as `key: value`"),
        ] {
            assert_eq!(problem(text), told, "{text}");
        }
        let address = parse::<std::collections::BTreeMap<String, std::net::SocketAddr>>(
            Path::new("x.yaml"),
            "listen: localhost\n",
        );
        let told = address.unwrap_err().to_string();
        assert!(told.contains("an IP address and a port") && !told.contains("socket"), "{told}");
        let number =
            parse::<std::collections::BTreeMap<String, u64>>(Path::new("x.yaml"), "a: -1\n");
        let told = number.unwrap_err().to_string();
        assert_eq!(told, "x.yaml:1: `a`: a whole number that is not negative is expected");
    }

    #[test]
    fn only_true_and_false_are_booleans() {
        let read = |text: &str| parse::<serde_json::Value>(Path::new("x.yaml"), text).unwrap();
        let words = serde_json::json!(["no", "off", "y", "N", "Yes", "on"]);
        assert_eq!(read("[no, off, y, N, Yes, on]\n"), words);
        assert_eq!(read("[true, false]\n"), serde_json::json!([true, false]));
        let flag = parse::<std::collections::BTreeMap<String, bool>>(
            Path::new("x.yaml"),
            "enabled: yes\n",
        );
        let told = flag.unwrap_err().to_string();
        assert_eq!(told, "x.yaml:1: `enabled`: `true` or `false` is expected");
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

    #[test]
    fn a_named_pipe_where_a_file_should_be_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe.yaml");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        let refused = read_text(&pipe).unwrap_err().to_string();
        assert!(refused.contains("pipe.yaml") && refused.ends_with("is not a file"), "{refused}");
    }
}
