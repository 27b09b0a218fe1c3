//! The operations that change nothing: `list`, `stat`, `read`.
//!
//! Owns their answers and the bounds on them. Invariant: an answer never exceeds the contract's `result_bytes_max`; what does not
//! fit is refused with the way to get at it, or marked as truncated.

use std::{
    ffi::OsString,
    io::{Read as _, Seek, SeekFrom},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cap_std::fs::{Dir, FileType, Metadata};
use placet_adapter::outcome::Answer;
use placet_types::{clock::Timestamp, digest::Digest};
use serde_json::{Value, json};

use super::{
    fault::{Done, Fault},
    operation::{List, Read, Stat},
    path::{self, RelativePath},
    tree::{Mark, Part, Tree},
};

/// The most names of a directory that are read.
const NAMES_MAX: usize = 100_000;
/// The size of an answer besides its entries or content, in bytes: keys, numbers, a digest, and the path with every byte escaped.
const FRAME_BYTES: usize = 512;
/// The most that is read on the caller's thread: processing it takes that thread's time.
const CACHED_BYTES_MAX: usize = 64 * 1024;

pub(crate) fn list(tree: &Tree, mark: &Mark<'_>, list: &List) -> Done {
    let path = &list.path;
    let directory =
        tree.root().open_dir(path.as_path()).map_err(|error| Fault::before(path, &error))?;
    let (names, complete) = names(&directory, path, mark)?;
    let budget =
        tree.result_bytes_max().saturating_sub(FRAME_BYTES).saturating_sub(path.as_str().len());
    let mut used = 0_usize;
    let mut entries = Vec::new();
    for name in names.iter().skip(list.offset).take(list.limit) {
        if mark.gate.is_closed() {
            return Err(Fault::Abandoned);
        }
        let entry = entry(&directory, name);
        used = used.saturating_add(entry.to_string().len()).saturating_add(1);
        if used > budget {
            break;
        }
        entries.push(entry);
    }
    let end = list.offset.saturating_add(entries.len());
    let truncated = !complete || end < names.len();
    Ok(answer(json!({
        "path": path.as_str(),
        "entries": entries,
        "total": if complete { json!(names.len()) } else { Value::Null },
        "truncated": truncated,
    })))
}

/// The names in a directory, sorted, the adapter's own temporary files left out; and whether these are all.
fn names(
    directory: &Dir,
    path: &RelativePath,
    mark: &Mark<'_>,
) -> Result<(Vec<OsString>, bool), Fault> {
    let mut names = Vec::new();
    for entry in directory.entries().map_err(|error| Fault::before(path, &error))? {
        if mark.gate.is_closed() {
            return Err(Fault::Abandoned);
        }
        let name = entry.map_err(|error| Fault::before(path, &error))?.file_name();
        if name.as_encoded_bytes().starts_with(path::RESERVED_PREFIX.as_bytes()) {
            continue;
        }
        if names.len() >= NAMES_MAX {
            names.sort();
            return Ok((names, false));
        }
        names.push(name);
    }
    names.sort();
    Ok((names, true))
}

fn entry(directory: &Dir, name: &OsString) -> Value {
    let (shown, usable) = shown(name);
    // An entry may vanish between listing and reading its metadata.
    let (kind, bytes) = directory.symlink_metadata(name).map_or(("gone", None), |metadata| {
        let bytes = metadata.is_file().then(|| metadata.len());
        (kind_of(metadata.file_type()), bytes)
    });
    json!({ "name": shown, "kind": kind, "bytes": bytes, "usable": usable })
}

/// A name in visible form, and whether it can be passed as a path.
fn shown(name: &OsString) -> (String, bool) {
    match name.to_str() {
        Some(text) if RelativePath::parse(text).is_ok() => (text.to_owned(), true),
        Some(text) if path::is_legible(text) => (text.to_owned(), false),
        Some(text) => (text.escape_default().to_string(), false),
        None => (name.as_encoded_bytes().escape_ascii().to_string(), false),
    }
}

fn kind_of(kind: FileType) -> &'static str {
    if kind.is_file() {
        "file"
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_symlink() {
        "symlink"
    } else {
        "other"
    }
}

pub(crate) fn stat(tree: &Tree, stat: &Stat) -> Done {
    let path = &stat.path;
    let metadata = tree
        .root()
        .symlink_metadata(path.as_path())
        .map_err(|error| Fault::before(path, &error))?;
    Ok(answer(json!({
        "path": path.as_str(),
        "kind": kind_of(metadata.file_type()),
        "bytes": metadata.is_file().then(|| metadata.len()),
        "modified_at": modified_at(&metadata),
    })))
}

fn modified_at(metadata: &Metadata) -> Option<String> {
    let modified = metadata.modified().ok()?.into_std();
    let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
    let ms = i64::try_from(since.as_millis()).ok()?;
    Some(Timestamp::from_ms(ms).to_string())
}

pub(crate) fn read(tree: &Tree, read: &Read) -> Done {
    let path = &read.path;
    let (mut file, metadata) = tree.open(path)?;
    let size = metadata.len();
    let wanted = wanted(read, size);
    if usize::try_from(wanted).map_or(true, |wanted| wanted > tree.result_bytes_max()) {
        return Err(too_large(path, size, tree));
    }
    file.seek(SeekFrom::Start(read.offset)).map_err(|error| Fault::before(path, &error))?;
    let mut bytes = Vec::new();
    file.take(wanted).read_to_end(&mut bytes).map_err(|error| Fault::before(path, &error))?;
    shown_part(tree, read, Part { bytes, size })
}

/// The same without any waiting; `None` if that is not possible, or something is unusual: [`read`] reports what.
pub(crate) fn read_cached(tree: &Tree, read: &Read) -> Option<Done> {
    let part = tree.read_cached(&read.path, |size| {
        let wanted = usize::try_from(wanted(read, size)).ok()?;
        (wanted <= CACHED_BYTES_MAX.min(tree.result_bytes_max())).then_some((read.offset, wanted))
    })?;
    Some(shown_part(tree, read, part))
}

/// How much is read of a file of this size.
fn wanted(read: &Read, size: u64) -> u64 {
    let left = size.saturating_sub(read.offset);
    read.length.unwrap_or(left).min(left)
}

fn shown_part(tree: &Tree, read: &Read, part: Part) -> Done {
    let (path, Part { bytes, size }) = (&read.path, part);
    let count = bytes.len();
    let whole = read.offset == 0 && u64::try_from(count) == Ok(size);
    let digest = whole.then(|| Digest::of(&bytes));
    let (content, encoding) = match String::from_utf8(bytes) {
        Ok(text) => (text, "utf-8"),
        Err(error) => (STANDARD.encode(error.as_bytes()), "base64"),
    };
    let output = json!({
        "path": path.as_str(),
        "content": content,
        "encoding": encoding,
        "bytes": count,
        "size": size,
        "digest": digest,
    });
    // Escapes and base64 make the answer larger than the file.
    if output.to_string().len() > tree.result_bytes_max() {
        return Err(too_large(path, size, tree));
    }
    Ok(answer(output))
}

fn too_large(path: &RelativePath, size: u64, tree: &Tree) -> Fault {
    Fault::Refused(format!(
        "`{}` has {size} bytes, and an answer takes at most {} with its encoding; read it in parts with `offset` and `length`",
        path.as_str(),
        tree.result_bytes_max()
    ))
}

fn answer(output: Value) -> Answer {
    Answer { output, ..Answer::default() }
}
