//! A secret in a file: read whole or not at all.
//!
//! Owns the reading, its limit, and how a file that is only half written is told. Invariants: what changed while it was read is not taken; no copy of a part of it stays in memory.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use secrecy::SecretString;
use zeroize::Zeroizing;

use super::{SECRET_BYTES_MAX, SecretError, check_value, unusable};
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

/// What the file holds, unless it changed while it was read.
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
    let unreadable = |error: io::Error| SecretError::Unreadable {
        name: name.to_owned(),
        place: place_of(path),
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

pub(super) fn value_of(name: &str, bytes: &[u8]) -> Result<SecretString, SecretError> {
    check_value(bytes).map_err(|problem| unusable(name, problem))
}

/// What is wrong with a file, where that says nothing against the value before. Only a file that is gone was taken back: too many open files or a
/// failing disk say nothing about the secret.
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
