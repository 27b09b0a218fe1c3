//! The standard error of a child process: always drained, partly logged.
//!
//! Owns the limits of what is logged. Invariant: however much a server prints, it takes one small buffer; control characters are
//! escaped, and the secrets that it was given are masked ([`Scrub`] says in which forms), wherever a line is cut.

use tokio::{io::AsyncReadExt, process::ChildStderr};

use placet_adapter::scrub::Scrub;
use placet_types::ids::AdapterName;

use super::tail::Tail;
use crate::text::printable;

/// The longest part of one line that is logged.
const LINE_BYTES_MAX: usize = 2_048;
/// The most bytes logged of one process in all.
const LOGGED_BYTES_MAX: usize = 1024 * 1024;

/// Reads to the end.
pub(super) async fn drain(mut stderr: ChildStderr, adapter: AdapterName, scrub: Scrub, tail: Tail) {
    let _reading = tail.begin();
    let mut log = StderrLog::new(adapter, scrub, tail);
    let mut chunk = [0_u8; 4_096];
    while let Ok(read) = stderr.read(&mut chunk).await {
        if read == 0 {
            break;
        }
        log.take(chunk.get(..read).unwrap_or_default());
    }
    log.end_line();
}

#[derive(Debug)]
struct StderrLog {
    adapter: AdapterName,
    scrub: Scrub,
    tail: Tail,
    /// How much of a line is read, so that no secret in the part that is logged is cut.
    line_bytes_max: usize,
    line: Vec<u8>,
    logged_bytes: usize,
    silenced: bool,
}

impl StderrLog {
    fn new(adapter: AdapterName, scrub: Scrub, tail: Tail) -> Self {
        let line_bytes_max = scrub.bytes_needed(LINE_BYTES_MAX);
        Self {
            adapter,
            scrub,
            tail,
            line_bytes_max,
            line: Vec::new(),
            logged_bytes: 0,
            silenced: false,
        }
    }

    fn take(&mut self, chunk: &[u8]) {
        if self.silenced {
            return;
        }
        for byte in chunk {
            if *byte == b'\n' {
                self.end_line();
            } else if self.line.len() < self.line_bytes_max {
                self.line.push(*byte);
            }
        }
    }

    fn end_line(&mut self) {
        if self.silenced || self.line.is_empty() {
            return;
        }
        let text = self.text();
        self.line.clear();
        self.logged_bytes = self.logged_bytes.saturating_add(text.len());
        if self.logged_bytes > LOGGED_BYTES_MAX {
            self.silenced = true;
            self.line = Vec::new();
            tracing::debug!(adapter = %self.adapter, "the server prints too much, the rest is dropped");
            return;
        }
        self.tail.push(&text);
        tracing::debug!(adapter = %self.adapter, stderr = %text, "the server says");
    }

    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.line);
        let text = self.scrub.beginning(&text, LINE_BYTES_MAX);
        printable(&text, LINE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{AdapterName, LINE_BYTES_MAX, LOGGED_BYTES_MAX, Scrub, StderrLog, Tail};

    fn log() -> StderrLog {
        let scrub = Scrub::of(&["hunter2+hunter2".into()]);
        StderrLog::new(AdapterName::new("a").unwrap(), scrub, Tail::default())
    }

    #[test]
    fn a_secret_that_the_server_prints_is_masked() {
        for chunks in [
            ["token=hunter2+hun", "ter2\x1b[0m"],
            ["token=hunter2%2Bhu", "nter2\x1b[0m"],
            ["token=aHVudGVyMitodW50", "ZXIy\x1b[0m"],
        ] {
            let mut said = log();
            chunks.iter().for_each(|chunk| said.take(chunk.as_bytes()));
            assert_eq!(said.text(), "token=[secret removed]\\u{1b}[0m");
        }
    }

    #[test]
    fn a_secret_is_masked_where_the_line_is_cut() {
        for before in LINE_BYTES_MAX - 60..LINE_BYTES_MAX + 60 {
            for form in ["hunter2+hunter2", "hunter2%2Bhunter2", "aHVudGVyMitodW50ZXIy"] {
                let mut said = log();
                said.take("x".repeat(before).as_bytes());
                said.take(form.as_bytes());
                said.take(&[b'y'; 4_096]);
                let text = said.text();
                assert!(!text.contains("hun") && !text.contains("aHV"), "{before} {form}");
            }
        }
    }

    #[test]
    fn a_flood_takes_one_line_of_memory_and_is_silenced() {
        let mut log = log();
        for _ in 0..3_000 {
            log.take(&[b'x'; 4_096]);
            assert!(log.line.len() <= log.line_bytes_max);
            log.take(b"\n");
        }
        assert!(log.silenced);
        assert!(log.logged_bytes <= LOGGED_BYTES_MAX + 2 * LINE_BYTES_MAX);
        assert_eq!(log.line.capacity(), 0);
    }
}
