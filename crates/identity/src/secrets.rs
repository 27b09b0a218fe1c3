//! Static secrets for outbound calls, by name.
//!
//! Owns reading them at the time of use, so that a rotated file needs no restart (TM-19). Does not read the environment:
//! the binary does, once, and hands the value in. Invariant: a value leaves this module only inside a [`SecretString`],
//! whose `Debug` does not show it; no error holds one.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

const SECRET_BYTES_MAX: usize = 64 * 1024;
/// Read access for everybody on the machine.
const WORLD_READABLE: u32 = 0o004;

/// Where a secret comes from.
#[derive(Debug, Clone)]
pub enum SecretSource {
    /// A variable of the environment, as the binary found it at start.
    Env {
        /// The variable's name.
        name: String,
        /// Its value.
        value: SecretString,
    },
    /// A file, read each time the secret is used.
    File(PathBuf),
}

/// Why a secret cannot be had. No message holds a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// No secret has this name.
    #[error("no secret is named `{name}`")]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("the secret `{name}` cannot be read from `{}`: {kind}", path.display())]
    Unreadable {
        /// The secret.
        name: String,
        /// The file.
        path: PathBuf,
        /// The kind of failure.
        kind: io::ErrorKind,
    },
    /// What was read cannot be a secret.
    #[error("the secret `{name}` cannot be used: {problem}")]
    Unusable {
        /// The secret.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
}

/// The secrets that contracts may name.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    sources: BTreeMap<String, SecretSource>,
}

impl Secrets {
    /// The secrets of these sources, by name.
    #[must_use]
    pub fn new(sources: BTreeMap<String, SecretSource>) -> Self {
        Self { sources }
    }

    /// The names of all secrets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.keys().map(String::as_str)
    }

    /// Whether there is a secret of this name; says nothing about whether it can be read.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.sources.contains_key(name)
    }

    /// The secret's value as it is now. Reads the file where there is one: call it where blocking is allowed.
    ///
    /// # Errors
    /// [`SecretError`] when the name is unknown, or the value is missing, empty, too long or not text.
    pub fn get(&self, name: &str) -> Result<SecretString, SecretError> {
        match self.sources.get(name) {
            None => Err(SecretError::Unknown { name: name.to_owned() }),
            Some(SecretSource::Env { value, .. }) => {
                value_of(name, value.expose_secret().as_bytes())
            }
            Some(SecretSource::File(path)) => value_of(name, &read(name, path)?),
        }
    }

    /// Reads every secret once, for the start, and warns of files that everybody on the machine can read.
    ///
    /// # Errors
    /// [`SecretError`] for the first secret that cannot be had.
    pub fn check(&self) -> Result<(), SecretError> {
        for (name, source) in &self.sources {
            drop(self.get(name)?);
            if let SecretSource::File(path) = source
                && is_world_readable(path)
            {
                tracing::warn!(secret = %name, path = %path.display(), "everybody on this machine can read the secret");
            }
        }
        Ok(())
    }
}

fn is_world_readable(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.permissions().mode() & WORLD_READABLE != 0)
}

fn read(name: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let unreadable = |error: io::Error| SecretError::Unreadable {
        name: name.to_owned(),
        path: path.to_path_buf(),
        kind: error.kind(),
    };
    // A pipe would block the opening for ever.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unusable(name, "its path is not a file"));
    }
    // With room for the longest value the buffer never moves, so no copy of a part of it stays behind.
    let capacity = SECRET_BYTES_MAX.saturating_add(2);
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
    let limit = u64::try_from(SECRET_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)
        .map_err(unreadable)?
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    Ok(bytes)
}

fn value_of(name: &str, bytes: &[u8]) -> Result<SecretString, SecretError> {
    if bytes.len() > SECRET_BYTES_MAX {
        return Err(unusable(name, "it is longer than 65536 bytes"));
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(unusable(name, "it is not text"));
    };
    let value =
        text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
    if value.is_empty() {
        return Err(unusable(name, "it is empty"));
    }
    if value.contains('\0') {
        return Err(unusable(name, "it holds a NUL character"));
    }
    Ok(SecretString::from(value))
}

fn unusable(name: &str, problem: &'static str) -> SecretError {
    SecretError::Unusable { name: name.to_owned(), problem }
}
