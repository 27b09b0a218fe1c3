//! Writing and reading a history.
//!
//! Owns the file: one event a line. Invariant: events are in the order of their moments, and an event is in the file as soon as
//! it was recorded, so that a killed run leaves what it saw.

use std::{
    fmt,
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
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    file: File,
    events: u64,
    failed: Option<io::Error>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("events", &self.events()).finish_non_exhaustive()
    }
}

impl Recorder {
    /// A new history at `path`.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("`{}`", path.display()))?;
        Ok(Self { inner: Arc::new(Mutex::new(Inner { file, events: 0, failed: None })) })
    }

    /// Records an event that happens now, and returns its moment.
    pub fn record(&self, what: What) -> Moment {
        let mut inner = self.inner.lock();
        // Within the lock, so that the file is in order.
        let at = Moment::now();
        inner.write(&Event { at, what });
        at
    }

    /// How many events there are.
    pub fn events(&self) -> u64 {
        self.inner.lock().events
    }

    /// Ends it: everything is on disk then.
    ///
    /// # Errors
    /// The first error of writing an event.
    pub fn finish(&self) -> io::Result<()> {
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
        match written {
            Ok(()) => self.events = self.events.saturating_add(1),
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
    }
}

/// Reads a history.
///
/// # Errors
/// When the file cannot be read or a line is not an event, such as a last line that was cut off.
pub fn read(path: &Path) -> Result<Vec<Event>> {
    let file = File::open(path).with_context(|| format!("`{}`", path.display()))?;
    let lines = BufReader::new(file).lines().zip(1_u64..);
    let event = |(line, number): (io::Result<String>, u64)| -> Result<Event> {
        let read = serde_json::from_str(&line?);
        read.with_context(|| format!("line {number} of `{}` is no event", path.display()))
    };
    lines.map(event).collect()
}
