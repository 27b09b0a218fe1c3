//! The last lines on the standard error of a child process, for people whose server does not start.
//!
//! Owns how much of it is kept. Invariant: it holds only lines from which secrets are removed already.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;

use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The most lines that are kept.
const LINES_MAX: usize = 20;
/// The most bytes that are kept of them together.
const BYTES_MAX: usize = 4_096;
/// How long to wait for the end of the output, once it is known that the server does not start.
const END_WAIT: Duration = Duration::from_millis(300);

/// The last lines of a standard error; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    lines: Mutex<VecDeque<String>>,
    ended: OnceLock<CancellationToken>,
}

impl Tail {
    /// Notes that a process is read from, until the guard is dropped.
    pub(super) fn begin(&self) -> DropGuard {
        self.0.ended.get_or_init(CancellationToken::new).clone().drop_guard()
    }

    /// Adds a line.
    pub(super) fn push(&self, line: &str) {
        let mut lines = self.0.lines.lock();
        lines.push_back(line.to_owned());
        let bytes = |lines: &VecDeque<String>| lines.iter().map(String::len).sum::<usize>();
        while lines.len() > LINES_MAX || (lines.len() > 1 && bytes(&lines) > BYTES_MAX) {
            lines.pop_front();
        }
    }

    /// The lines, after waiting a moment for the process to end; `None` if none were printed.
    pub(crate) async fn lines(&self) -> Option<String> {
        if let Some(ended) = self.0.ended.get() {
            let _waited = timeout(END_WAIT, ended.cancelled()).await.is_ok();
        }
        let lines = self.0.lines.lock();
        let text = lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        Some(text).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, LINES_MAX, Tail};

    #[tokio::test]
    async fn the_last_lines_are_kept_within_bounds() {
        let tail = Tail::default();
        assert_eq!(tail.lines().await, None);
        for number in 0..100 {
            tail.push(&number.to_string());
        }
        let text = tail.lines().await.unwrap();
        assert_eq!((text.lines().count(), text.lines().last()), (LINES_MAX, Some("99")));
        for _ in 0..10 {
            tail.push(&"x".repeat(1_000));
        }
        assert!(tail.lines().await.unwrap().len() <= BYTES_MAX);
    }
}
