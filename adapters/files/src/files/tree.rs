//! The directory the adapter is confined to, and what all operations share.
//!
//! Owns the handle of the root and the opening of files below it. Every resolution goes through the capability directory, which
//! refuses whatever leads out, including symbolic links; an opened file is then used by its handle, never by its name again.

use std::{
    io::{self, IoSliceMut, Read},
    os::fd::AsFd,
};

use parking_lot::{Mutex, MutexGuard};

use cap_std::fs::{Dir, File, Metadata, OpenOptions, OpenOptionsExt};
use placet_types::digest::Digest;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest as _, Sha256};

use super::{fault::Fault, gate::Gate, path::RelativePath};

/// The largest file whose digest is computed.
const DIGEST_BYTES_MAX: u64 = 268_435_456;

/// The root, and the limits of operations below it.
#[derive(Debug)]
pub(crate) struct Tree {
    root: Dir,
    result_bytes_max: usize,
    /// Held from the last look at a target to its change, so that changes by this adapter do not slip in between. Changes by other
    /// programs may.
    changes: Mutex<()>,
}

/// One call as the operations see it.
#[derive(Debug)]
pub(crate) struct Mark<'a> {
    pub(crate) gate: &'a Gate,
    /// The name of its temporary file.
    pub(crate) temporary: &'a str,
}

impl Tree {
    pub(crate) fn new(root: Dir, result_bytes_max: u64) -> Self {
        let result_bytes_max = usize::try_from(result_bytes_max).unwrap_or(usize::MAX);
        Self { root, result_bytes_max, changes: Mutex::new(()) }
    }

    pub(crate) fn root(&self) -> &Dir {
        &self.root
    }

    pub(crate) fn result_bytes_max(&self) -> usize {
        self.result_bytes_max
    }

    /// Whether the root is still linked somewhere.
    pub(crate) fn is_there(&self) -> bool {
        use cap_std::fs::MetadataExt;
        self.root.dir_metadata().is_ok_and(|metadata| metadata.nlink() > 0)
    }

    pub(crate) fn changes(&self) -> MutexGuard<'_, ()> {
        // The mutex guards no data that a panic could leave half changed.
        self.changes.lock()
    }

    /// Opens a regular file for reading. Links are followed as long as they stay inside.
    pub(crate) fn open(&self, path: &RelativePath) -> Result<(File, Metadata), Fault> {
        let seen =
            self.root.metadata(path.as_path()).map_err(|error| Fault::before(path, &error))?;
        require_file(&seen, path)?;
        open_regular(&self.root, path.as_str(), path)
    }
}

/// A part of a file.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) bytes: Vec<u8>,
    /// The size of the file.
    pub(crate) size: u64,
}

#[cfg(target_os = "linux")]
impl Tree {
    /// Reads a part of a regular file, confined like [`Tree::open`], if the kernel has its name and its bytes in memory: never waits
    /// for a disk. `None` if it has not, or anything else is unusual. `wanted` maps the file's size to the offset and number of bytes.
    pub(crate) fn read_cached(
        &self,
        path: &RelativePath,
        wanted: impl FnOnce(u64) -> Option<(u64, usize)>,
    ) -> Option<Part> {
        use rustix::{
            fs::{FileType, ResolveFlags, fstat, openat2},
            io::{ReadWriteFlags, preadv2},
        };
        let open = |flags: OFlags| {
            let resolve =
                ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::CACHED;
            let flags = flags | OFlags::CLOEXEC;
            openat2(self.root.as_fd(), path.as_path(), flags, Mode::empty(), resolve).ok()
        };
        let is_file = |stat: &rustix::fs::Stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        };
        // A device is not even opened.
        fstat(open(OFlags::PATH)?).ok().filter(is_file)?;
        let file = open(OFlags::RDONLY | OFlags::NONBLOCK)?;
        let size = u64::try_from(fstat(&file).ok().filter(is_file)?.st_size).ok()?;
        let (offset, count) = wanted(size)?;
        let mut bytes = vec![0; count];
        let read = match &mut bytes[..] {
            [] => 0,
            place => {
                let places = &mut [IoSliceMut::new(place)];
                preadv2(&file, places, offset, ReadWriteFlags::NOWAIT).ok()?
            }
        };
        (read == count).then_some(Part { bytes, size })
    }
}

#[cfg(not(target_os = "linux"))]
impl Tree {
    pub(crate) fn read_cached(
        &self,
        _path: &RelativePath,
        _wanted: impl FnOnce(u64) -> Option<(u64, usize)>,
    ) -> Option<Part> {
        None
    }
}

/// Opens the file `name` of `directory` for reading, if it is a regular one.
pub(crate) fn open_regular(
    directory: &Dir,
    name: &str,
    path: &RelativePath,
) -> Result<(File, Metadata), Fault> {
    let mut options = OpenOptions::new();
    // A pipe put in the file's place must not block the thread; the opened file is checked again.
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = directory.open_with(name, &options).map_err(|error| Fault::before(path, &error))?;
    let metadata = file.metadata().map_err(|error| Fault::before(path, &error))?;
    require_file(&metadata, path)?;
    Ok((file, metadata))
}

/// Refuses anything but a regular file.
pub(crate) fn require_file(metadata: &Metadata, path: &RelativePath) -> Result<(), Fault> {
    let kind = metadata.file_type();
    let is = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else {
        "a device, pipe or socket"
    };
    Err(Fault::Refused(format!("`{}` is {is}, not a file", path.as_str())))
}

/// The digest of a file's content; absent if the file is too large.
pub(crate) fn digest_of(
    file: &mut File,
    path: &RelativePath,
    gate: &Gate,
) -> Result<Option<Digest>, Fault> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 65_536];
    let mut total = 0_u64;
    loop {
        if gate.is_closed() {
            return Err(Fault::Abandoned);
        }
        let count = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Fault::before(path, &error)),
        };
        hasher.update(buffer.get(..count).unwrap_or_default());
        total = total.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if total > DIGEST_BYTES_MAX {
            return Ok(None);
        }
    }
    Ok(Some(Digest::from_bytes(hasher.finalize().into())))
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_directory(directory: &Dir) -> io::Result<()> {
    // The handle of a capability directory only names it (`O_PATH`), and such a handle cannot be synced.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(directory.as_fd(), c".", flags, Mode::empty())?;
    rustix::fs::fsync(handle)?;
    Ok(())
}
