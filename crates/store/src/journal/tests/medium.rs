//! A medium that counts operations and fails at a chosen one. It only counts syncs: no test cuts the power, and a test that
//! opens a journal hundreds of times would wait for the disk.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::medium::{Disk, Medium, MediumFile};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Create,
    Write,
    Sync,
    Allocate,
    Erase,
    Rename,
    SyncDir,
}

/// What an operation is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Segment,
    Witness,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Eio,
    Enospc,
    /// Half of the bytes reach the file, then the disk is full.
    HalfThenEnospc,
    /// It is on another file system.
    Exdev,
}

#[derive(Debug, Default)]
struct Plan {
    counts: HashMap<(Op, Target), u64>,
    total: u64,
    /// How often it was read from segments; no part of the total.
    reads: u64,
    fail_at: Option<((Op, Target), u64, Failure)>,
    fail_at_total: Option<(u64, Failure)>,
    /// After a failure, everything fails: the machine is gone.
    fail_for_ever: bool,
    failed: bool,
    short_writes: bool,
    /// How long a sync takes.
    sync_takes: Duration,
    free_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct FaultyDisk(Arc<Mutex<Plan>>);

impl FaultyDisk {
    pub(crate) fn count(&self, op: Op, target: Target) -> u64 {
        self.0.lock().unwrap().counts.get(&(op, target)).copied().unwrap_or(0)
    }

    pub(crate) fn reads(&self) -> u64 {
        self.0.lock().unwrap().reads
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.lock().unwrap().total
    }

    /// Lets the next operation of this kind fail.
    pub(crate) fn fail_next(&self, op: Op, target: Target, failure: Failure) {
        self.fail_nth(1, (op, target), failure);
    }

    /// How long each sync takes from here on.
    pub(crate) fn sync_takes(&self, duration: Duration) {
        self.0.lock().unwrap().sync_takes = duration;
    }

    /// Lets one operation of this kind fail, so many from here; the next one is the first.
    pub(crate) fn fail_nth(&self, nth: u64, (op, target): (Op, Target), failure: Failure) {
        let number = self.count(op, target) + nth;
        self.0.lock().unwrap().fail_at = Some(((op, target), number, failure));
    }

    /// Lets the operation of this number fail, and all after it.
    pub(crate) fn crash_at(&self, number: u64, failure: Failure) {
        let mut plan = self.0.lock().unwrap();
        plan.fail_at_total = Some((number, failure));
        plan.fail_for_ever = true;
    }

    pub(crate) fn write_short(&self) {
        self.0.lock().unwrap().short_writes = true;
    }

    pub(crate) fn set_free_bytes(&self, bytes: u64) {
        self.0.lock().unwrap().free_bytes = Some(bytes);
    }

    fn step(&self, op: Op, target: Target) -> Result<(), Failure> {
        let mut plan = self.0.lock().unwrap();
        plan.total += 1;
        let count = plan.counts.entry((op, target)).or_default();
        *count += 1;
        let here = *count;
        if plan.failed && plan.fail_for_ever {
            return Err(Failure::Eio);
        }
        let by_kind = plan.fail_at.filter(|(what, at, _)| *what == (op, target) && *at == here);
        let by_total = plan.fail_at_total.filter(|(at, _)| *at == plan.total);
        match by_kind.map(|(_, _, failure)| failure).or(by_total.map(|(_, failure)| failure)) {
            Some(failure) => {
                plan.failed = true;
                Err(failure)
            }
            None => Ok(()),
        }
    }

    fn check(&self, op: Op, target: Target) -> io::Result<()> {
        self.step(op, target).map_err(error)
    }
}

fn error(failure: Failure) -> io::Error {
    io::Error::from_raw_os_error(match failure {
        Failure::Eio => 5,
        Failure::Exdev => 18,
        Failure::Enospc | Failure::HalfThenEnospc => 28,
    })
}

fn target(path: &Path) -> Target {
    let name = path.file_stem().unwrap().to_str().unwrap();
    match (name, name.len()) {
        ("high-water", _) => Target::Witness,
        (_, 12) => Target::Segment,
        _ => Target::Other,
    }
}

impl FaultyDisk {
    fn wrap(&self, file: Box<dyn MediumFile>, path: &Path) -> Box<dyn MediumFile> {
        Box::new(FaultyFile { disk: self.clone(), target: target(path), file })
    }
}

impl Medium for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn MediumFile>> {
        self.check(Op::Create, target(path))?;
        Ok(self.wrap(Disk.create(path)?, path))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn MediumFile>> {
        Ok(self.wrap(Disk.open(path)?, path))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn MediumFile>> {
        Ok(self.wrap(Disk.open_read(path)?, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Op::Rename, target(to))?;
        Disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Disk.remove(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        Disk.create_dir(path)
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        self.check(Op::SyncDir, Target::Segment)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        Disk.list(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let planned = self.0.lock().unwrap().free_bytes;
        planned.map_or_else(|| Disk.free_bytes(path), Ok)
    }
}

#[derive(Debug)]
struct FaultyFile {
    disk: FaultyDisk,
    target: Target,
    file: Box<dyn MediumFile>,
}

impl MediumFile for FaultyFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.file.read_at(bytes, offset)?;
        // That a file has ended the operating system knows without its disk.
        if self.target == Target::Segment && count > 0 {
            self.disk.0.lock().unwrap().reads += 1;
        }
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if let Err(failure) = self.disk.step(Op::Write, self.target) {
            if failure == Failure::HalfThenEnospc {
                self.file.write_at(&bytes[..bytes.len() / 2], offset)?;
            }
            return Err(error(failure));
        }
        let short = self.disk.0.lock().unwrap().short_writes && bytes.len() > 1;
        let bytes = if short { &bytes[..bytes.len() / 2] } else { bytes };
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        let takes = self.disk.0.lock().unwrap().sync_takes;
        std::thread::park_timeout(takes);
        self.disk.check(Op::Sync, self.target)
    }

    fn allocate(&self, length_bytes: u64) -> io::Result<()> {
        self.disk.check(Op::Allocate, self.target)?;
        self.file.allocate(length_bytes)
    }

    fn erase(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        self.disk.check(Op::Erase, self.target)?;
        self.file.erase(offset, length_bytes)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}
