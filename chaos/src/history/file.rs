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

/// Why a history cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The file system refuses.
    #[error("the history `{path}` cannot be used: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A line is not an event.
    #[error("line {line} of the history `{path}` is no event: {source}")]
    Line {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
}

impl Recorder {
    /// A new history at `path`.
    ///
    /// # Errors
    /// [`HistoryError::Io`] when the file cannot be made.
    pub fn create(path: &Path) -> Result<Self, HistoryError> {
        let file = File::create(path).map_err(|source| at(path, source))?;
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
/// [`HistoryError`] when the file cannot be read or a line is not an event, such as a last line that was cut off.
pub fn read(path: &Path) -> Result<Vec<Event>, HistoryError> {
    let file = File::open(path).map_err(|source| at(path, source))?;
    let mut events = Vec::new();
    for (line, number) in BufReader::new(file).lines().zip(1..) {
        let line = line.map_err(|source| at(path, source))?;
        let event = serde_json::from_str(&line).map_err(|source| HistoryError::Line {
            path: path.display().to_string(),
            line: number,
            source,
        })?;
        events.push(event);
    }
    Ok(events)
}

fn at(path: &Path, source: io::Error) -> HistoryError {
    HistoryError::Io { path: path.display().to_string(), source }
}
