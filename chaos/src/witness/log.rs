//! The witness's own log of effects.
//!
//! Owns its form and its durability: lines of JSON, written by one thread that syncs each batch. Invariant: what
//! [`Log::durable`] has answered for is on the disk.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use placet_testkit::moment::Moment;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::history::Class;

/// The most lines waiting for the thread.
const QUEUE_MAX: usize = 4_096;
/// The most lines in one batch.
const BATCH_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) at: Moment,
    #[serde(flatten)]
    pub(crate) what: Seen,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "seen", rename_all = "snake_case")]
pub(crate) enum Seen {
    Booted {
        pid: u32,
    },
    /// A call that changes nothing.
    Read {
        tool: String,
    },
    /// A call of a tool with effects came in.
    Arrived(Arrival),
    Effect {
        #[serde(flatten)]
        arrival: Arrival,
        /// When the call had come in.
        started: Moment,
        /// The number of the effect in this log.
        effect: u64,
    },
    /// A token came again within its window: no new effect.
    Repeated(Arrival),
    /// The call was answered without an effect, and never will have one.
    Refused(Arrival),
    /// Somebody probed for a token.
    Asked {
        token: String,
        /// `committed` or `not_found`.
        state: String,
    },
    /// The witness misbehaved as commanded.
    Misbehaved {
        token: String,
        manner: String,
    },
}

/// A call of a tool with effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arrival {
    pub(crate) tool: String,
    pub(crate) class: Class,
    pub(crate) token: String,
    /// The number of the attempt, as the caller states it.
    pub(crate) attempt: u64,
    /// The caller's own key, as it states it.
    pub(crate) key: String,
    /// The number of this token's arrival at this process.
    pub(crate) arrival: u64,
    /// The fingerprint of the arguments.
    pub(crate) args: String,
}

/// A line to be written, and the channel for its confirmation.
type Job = (Vec<u8>, Option<oneshot::Sender<io::Result<()>>>);

/// The writing side.
#[derive(Debug)]
pub(crate) struct Log {
    jobs: SyncSender<Job>,
}

impl Log {
    /// Opens the log to append to it. A line that a killed process left unfinished is ended first.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let whole = std::fs::read(path).or_else(|error| {
            if error.kind() == io::ErrorKind::NotFound { Ok(Vec::new()) } else { Err(error) }
        })?;
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if !whole.is_empty() && !whole.ends_with(b"\n") {
            file.write_all(b"\n")?;
        }
        file.sync_all()?;
        let (jobs, queue) = sync_channel(QUEUE_MAX);
        thread::Builder::new().name("witness-log".to_owned()).spawn(move || write(file, &queue))?;
        Ok(Self { jobs })
    }

    /// Appends a line without waiting.
    pub(crate) fn note(&self, what: Seen) {
        // If the log has failed, the next `durable` reports it.
        self.push(what, None).unwrap_or_default();
    }

    /// Appends a line and waits until it is on the disk; after an error it is unknown whether it is there.
    pub(crate) async fn durable(&self, what: Seen) -> io::Result<()> {
        let (told, waits) = oneshot::channel();
        self.push(what, Some(told))?;
        waits.await.map_err(io::Error::other)?
    }

    fn push(&self, what: Seen, told: Option<oneshot::Sender<io::Result<()>>>) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Line { at: Moment::now(), what })?;
        line.push(b'\n');
        self.jobs.send((line, told)).map_err(|_gone| io::Error::other("the log has ended"))
    }
}

fn write(mut file: File, queue: &Receiver<Job>) {
    while let Ok(first) = queue.recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && let Ok(next) = queue.try_recv()
        {
            batch.push(next);
        }
        let bytes: Vec<u8> = batch.iter().flat_map(|(line, _)| line).copied().collect();
        let matters = batch.iter().any(|(_, told)| told.is_some());
        let mut written = file.write_all(&bytes);
        if matters && written.is_ok() {
            written = file.sync_data();
        }
        let failed = written.as_ref().err().map(ToString::to_string);
        for told in batch.into_iter().filter_map(|(_, told)| told) {
            let said = failed.as_ref().map_or(Ok(()), |why| Err(io::Error::other(why.clone())));
            // The asking task may be gone.
            told.send(said).unwrap_or_default();
        }
        if failed.is_some() {
            return;
        }
    }
}

/// Reads a log. Lines that a killed process left unfinished are skipped: nobody has learnt of their content.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Line>> {
    let lines = BufReader::new(File::open(path)?).split(b'\n');
    lines
        .filter_map(|line| match line {
            Ok(line) => serde_json::from_slice(&line).ok().map(Ok),
            Err(error) => Some(Err(error)),
        })
        .collect()
}
