//! A secret in a file: read whole or not at all.
//!
//! Owns the reading, its limit, and how a half-written file is recognised. Invariants: a file that changed while it was read is not used;
//! no partial copy of it stays in memory.

use std::{
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use placet_egress::read_bounded;
use secrecy::SecretString;
use zeroize::Zeroizing;

use super::{SECRET_BYTES_MAX, SecretError, TOO_LONG, check_value, unusable};
use crate::error::place_of;

/// Read access for everybody on the machine.
const WORLD_READABLE: u32 = 0o004;

/// The value in the file.
pub(super) fn read_value(name: &str, path: &Path) -> Result<SecretString, SecretError> {
    match read_whole(name, path)? {
        Some(bytes) => value_of(name, &bytes),
        None => Err(unusable(name, "it is being written at this moment")),
    }
}

/// The content of the file; `None` if it changed while it was read.
fn read_whole(name: &str, path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, SecretError> {
    let stamp = |path: &Path| {
        let found = std::fs::metadata(path).ok();
        found.map(|m| (m.dev(), m.ino(), m.len(), m.mtime(), m.mtime_nsec()))
    };
    let before = stamp(path);
    let bytes = read(name, path)?;
    Ok((before == stamp(path)).then_some(bytes))
}

pub(super) fn is_world_readable(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.permissions().mode() & WORLD_READABLE != 0)
}

fn read(name: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    read_bounded(path, SECRET_BYTES_MAX).map_err(|error| {
        let kind = error.kind();
        if kind == io::ErrorKind::InvalidInput {
            return unusable(name, "its path is not a file");
        }
        if kind == io::ErrorKind::FileTooLarge {
            return unusable(name, TOO_LONG);
        }
        SecretError::Unreadable { name: name.to_owned(), place: place_of(path), kind }
    })
}

pub(super) fn value_of(name: &str, bytes: &[u8]) -> Result<SecretString, SecretError> {
    check_value(bytes).map_err(|problem| unusable(name, problem))
}

/// The problem of a file, if it says nothing against the previous value. Only a file that is gone revokes the secret: too many open files
/// or a failing disk do not.
pub(super) fn blemish(error: &SecretError) -> Option<String> {
    match error {
        SecretError::Unusable { problem, .. } => Some((*problem).to_owned()),
        SecretError::Unreadable { kind, .. } => {
            (*kind != io::ErrorKind::NotFound).then(|| kind.to_string())
        }
        SecretError::Unknown { .. }
        | SecretError::TooSlow { .. }
        | SecretError::Agent { .. }
        | SecretError::NotAsked { .. } => None,
    }
}

/// Whether a value looks like the beginning of one, which a file has while it is written.
pub(super) fn is_cut_off(before: &str, now: &str) -> Option<&'static str> {
    if now.len() < before.len() && before.starts_with(now) {
        return Some("it is the beginning of what it was before");
    }
    is_open_pem(now).then_some("it is the beginning of a key in PEM form")
}

pub(super) fn is_open_pem(text: &str) -> bool {
    text.trim_start().starts_with("-----BEGIN ") && !text.contains("-----END ")
}
