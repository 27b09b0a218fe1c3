//! The seam between the store and the operating system: the few file operations that durability rests on.
//!
//! Owns: the [`Medium`] trait and [`Disk`], the real one. Tests substitute a medium that fails at a chosen operation.
//! Not here: what the bytes mean, and what follows from an error (the callers stop).
//! Invariant: files are made with mode 0600 and folders with 0700; an error is passed on, never retried.

use std::fmt::Debug;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

/// The file operations that the store uses.
pub trait Medium: Debug + Send + Sync + 'static {
    /// Makes a new, empty file for reading and writing, replacing one of that name.
    ///
    /// # Errors
    /// What the operating system answers.
    fn create(&self, path: &Path) -> io::Result<Box<dyn MediumFile>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// What the operating system answers.
    fn open(&self, path: &Path) -> io::Result<Box<dyn MediumFile>>;

    /// Opens an existing file for reading only.
    ///
    /// # Errors
    /// What the operating system answers.
    fn open_read(&self, path: &Path) -> io::Result<Box<dyn MediumFile>>;

    /// Renames a file in one step, replacing a file of the new name.
    ///
    /// # Errors
    /// What the operating system answers.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the operating system answers.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes a folder, and those above it, unless it is there.
    ///
    /// # Errors
    /// What the operating system answers.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// What the operating system answers.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Names of what is in a folder, sorted; names that are not text are left out.
    ///
    /// # Errors
    /// What the operating system answers.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// How many bytes an ordinary process may still write below this folder.
    ///
    /// # Errors
    /// What the operating system answers.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
}

/// One open file of a [`Medium`].
pub trait MediumFile: Debug + Send + Sync {
    /// Reads at an offset; may read less than asked, 0 at the end.
    ///
    /// # Errors
    /// What the operating system answers.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at an offset; may write less than asked.
    ///
    /// # Errors
    /// What the operating system answers.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes the bytes and the length durable (`fdatasync`).
    ///
    /// # Errors
    /// What the operating system answers. Never call it again after an error.
    fn sync_data(&self) -> io::Result<()>;

    /// Reserves room, so that the file has this length and reads as zeros.
    ///
    /// # Errors
    /// What the operating system answers.
    fn allocate(&self, length_bytes: u64) -> io::Result<()>;

    /// Erases bytes: they read as zeros, and the file system frees their room where it can.
    ///
    /// # Errors
    /// What the operating system answers.
    fn erase(&self, offset: u64, length_bytes: u64) -> io::Result<()>;

    /// The length of the file.
    ///
    /// # Errors
    /// What the operating system answers.
    fn length(&self) -> io::Result<u64>;
}

/// Whether the operating system could not do it, rather than that what is on the disk is not what it should be: the same may succeed
/// at the next try, and says nothing about a file. For what reads files by itself; a caller of a [`Medium`] tells the two apart
/// where it reads.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    let is_of_the_file = matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::InvalidInput
    );
    error.raw_os_error().is_some() && !is_of_the_file
}

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Medium for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn MediumFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        Ok(Box::new(DiskFile(options.open(path)?)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn MediumFile>> {
        Ok(Box::new(DiskFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn MediumFile>> {
        Ok(Box::new(DiskFile(File::open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort();
        Ok(names)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let numbers = rustix::fs::statvfs(path)?;
        Ok(numbers.f_bavail.saturating_mul(numbers.f_frsize))
    }
}

#[derive(Debug)]
struct DiskFile(File);

impl MediumFile for DiskFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn allocate(&self, length_bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, length_bytes) {
            Ok(()) => Ok(()),
            // Some file systems cannot reserve; the length is then set, and a full disk shows at the write.
            Err(rustix::io::Errno::OPNOTSUPP) => self.0.set_len(length_bytes),
            Err(errno) => Err(errno.into()),
        }
    }

    fn erase(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        if length_bytes == 0 {
            return Ok(());
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.0, how, offset, length_bytes) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(self, offset, length_bytes),
            Err(errno) => Err(errno.into()),
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

const ZEROS: [u8; 4096] = [0; 4096];

/// Writes zeros.
pub(crate) fn write_zeros(file: &dyn MediumFile, from: u64, length_bytes: u64) -> io::Result<()> {
    let (mut at, end) = (from, from.saturating_add(length_bytes));
    while at < end {
        let count = end.saturating_sub(at).min(to_u64(ZEROS.len()));
        write_all_at(file, ZEROS.get(..to_usize(count)).unwrap_or_default(), at)?;
        at = at.saturating_add(count);
    }
    Ok(())
}

/// Writes everything, however often the medium writes less than asked. Interrupted calls are repeated: they wrote nothing.
pub(crate) fn write_all_at(
    file: &dyn MediumFile,
    mut bytes: &[u8],
    mut offset: u64,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = bytes.get(count..).unwrap_or_default();
                offset = offset.saturating_add(to_u64(count));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends; answers how much was read.
pub(crate) fn read_full_at(
    file: &dyn MediumFile,
    bytes: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let mut filled: usize = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(to_u64(filled))) {
            Ok(0) => break,
            Ok(count) => filled = filled.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Puts a small file in place in one durable step: written under a temporary name, synced, renamed, and the folder synced.
pub(crate) fn replace_file(medium: &dyn Medium, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = beside(path);
    let file = medium.create(&beside)?;
    write_all_at(&*file, bytes, 0)?;
    file.sync_data()?;
    medium.rename(&beside, path)?;
    path.parent().map_or(Ok(()), |folder| medium.sync_dir(folder))
}

/// The name under which a file is made before it is renamed into place.
pub(crate) fn beside(path: &Path) -> PathBuf {
    path.with_extension(TEMPORARY)
}

/// The extension of files that are not in place yet; after a crash they mean nothing.
pub(crate) const TEMPORARY: &str = "tmp";

/// A length in memory as a length in a file.
pub(crate) fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// A length in a file as a length in memory; too large for this machine means larger than every limit.
pub(crate) fn to_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
