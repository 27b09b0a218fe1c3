//! Writing and reading a history.
//!
//! Owns the file: one event a line. Invariant: events are in the order of their moments, and an event is in the file as soon as
//! it was recorded, so that a killed run leaves what it saw.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    sync::Arc,
};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;

use super::{Event, What};
use placet_testkit::moment::Moment;

/// Records events; cheap to clone, to be shared by everything that observes.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    failed: Option<io::Error>,
}

impl Recorder {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("`{}`", path.display()))?;
        Ok(Self { inner: Arc::new(Mutex::new(Inner { file, failed: None })) })
    }

    /// Records an event that happens now, and returns its moment.
    pub(crate) fn record(&self, what: What) -> Moment {
        let mut inner = self.inner.lock();
        // Within the lock, so that the file is in order.
        let at = Moment::now();
        inner.write(&Event { at, what });
        at
    }

    /// Ends it: everything is on disk then, or this is the first error of writing.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let mut inner = self.inner.lock();
        match inner.failed.take() {
            Some(error) => Err(error),
            None => inner.file.sync_data(),
        }
    }
}

impl Inner {
    fn write(&mut self, event: &Event) {
        let written = serde_json::to_vec(event).map_err(io::Error::other).and_then(|mut line| {
            line.push(b'\n');
            self.file.write_all(&line)
        });
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }
}

/// Reads a history. A line that is no event is an error, also a last one that was cut off.
pub(crate) fn read(path: &Path) -> Result<Vec<Event>> {
    let file = File::open(path).with_context(|| format!("`{}`", path.display()))?;
    let lines = BufReader::new(file).lines().zip(1_u64..);
    let event = |(line, number): (io::Result<String>, u64)| -> Result<Event> {
        let read = serde_json::from_str(&line?);
        read.with_context(|| format!("line {number} of `{}` is no event", path.display()))
    };
    lines.map(event).collect()
}
