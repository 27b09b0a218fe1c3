//! The standard error of a child process: drained always, logged a little.
//!
//! Owns the limits of what is logged. Invariant: however much a server prints, it takes one small buffer; control characters are
//! escaped, and the secrets that it was given are masked.

use secrecy::{ExposeSecret, SecretString};
use tokio::{io::AsyncReadExt, process::ChildStderr};

use placet_types::ids::AdapterName;

use crate::text::printable;

/// The longest part of one line that is logged.
const LINE_BYTES_MAX: usize = 2_048;
/// What is logged of one process altogether.
const LOGGED_BYTES_MAX: usize = 1024 * 1024;
const MASK: &str = "[secret]";

/// Reads to the end.
pub(super) async fn drain(
    mut stderr: ChildStderr,
    adapter: AdapterName,
    secrets: Vec<SecretString>,
) {
    let mut log =
        StderrLog { adapter, secrets, line: Vec::new(), logged_bytes: 0, silenced: false };
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
    secrets: Vec<SecretString>,
    line: Vec<u8>,
    logged_bytes: usize,
    silenced: bool,
}

impl StderrLog {
    fn take(&mut self, chunk: &[u8]) {
        if self.silenced {
            return;
        }
        for byte in chunk {
            if *byte == b'\n' {
                self.end_line();
            } else if self.line.len() < LINE_BYTES_MAX {
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
        tracing::debug!(adapter = %self.adapter, stderr = %text, "the server says");
    }

    fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.line).into_owned();
        for secret in &self.secrets {
            let secret = secret.expose_secret();
            if !secret.is_empty() {
                text = text.replace(secret, MASK);
            }
        }
        printable(&text, LINE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{AdapterName, LINE_BYTES_MAX, LOGGED_BYTES_MAX, StderrLog};

    fn log() -> StderrLog {
        StderrLog {
            adapter: AdapterName::new("a").unwrap(),
            secrets: vec!["hunter2".into()],
            line: Vec::new(),
            logged_bytes: 0,
            silenced: false,
        }
    }

    #[test]
    fn a_secret_that_the_server_prints_is_masked() {
        let mut log = log();
        log.take(b"token=hunter2\x1b[0m");
        assert_eq!(log.text(), "token=[secret]\\u{1b}[0m");
    }

    #[test]
    fn a_flood_takes_one_line_of_memory_and_is_silenced() {
        let mut log = log();
        for _ in 0..3_000 {
            log.take(&[b'x'; 4_096]);
            assert!(log.line.len() <= LINE_BYTES_MAX);
            log.take(b"\n");
        }
        assert!(log.silenced);
        assert!(log.logged_bytes <= LOGGED_BYTES_MAX + 2 * LINE_BYTES_MAX);
        assert_eq!(log.line.capacity(), 0);
    }
}
