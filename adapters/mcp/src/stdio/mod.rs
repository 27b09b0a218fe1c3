//! MCP over the standard input and output of a child process: one JSON-RPC message per line.
//!
//! Owns the framing and its limits. Does not start or end the process (`child`) and does not read its standard error
//! (`stderr`). Invariant: a server that stops reading, or writes nothing but what is no message, ends the connection.

pub(crate) mod child;
mod confine;
mod health;
mod line;
pub(crate) mod sandbox;
mod stderr;
pub(crate) mod tail;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    service::RoleClient,
    transport::Transport,
};
use tokio::{
    io::AsyncWriteExt,
    process::{ChildStdin, ChildStdout},
    sync::Mutex,
    time::timeout,
};
use tokio_util::codec::FramedRead;

use placet_adapter::outcome::AdapterError;
use placet_types::ids::AdapterName;

use crate::settings::McpSettings;

use self::{
    child::{ChildHandle, Launch},
    health::Health,
    line::Lines,
    tail::Tail,
};
use crate::failure::StdioFault;

/// The most lines in a row that are no message, such as a log on the wrong stream, before we give up on a server.
const NOISE_LINES_MAX: u32 = 10_000;
/// The most messages waiting for a server that does not read.
const WAITING_MAX: usize = 4_096;
/// How long closing waits for a writer that holds the pipe.
const CLOSE_WAIT: Duration = Duration::from_millis(200);

/// Starts a server and returns the two ways to it: its messages, and its process.
pub(crate) async fn start(
    adapter: &AdapterName,
    launch: &Launch<'_>,
    settings: &McpSettings,
    line_bytes_max: usize,
    tail: &Tail,
) -> Result<(StdioTransport, ChildHandle), AdapterError> {
    let health = Arc::new(Health::default());
    let (pipes, handle) =
        child::spawn(adapter, launch, settings, Arc::clone(&health), tail).await?;
    let transport = StdioTransport {
        lines: FramedRead::new(pipes.stdout, Lines::new(line_bytes_max)),
        stdin: Arc::new(Mutex::new(Some(pipes.stdin))),
        waiting: Arc::new(AtomicUsize::new(0)),
        health,
        noise_lines: 0,
    };
    Ok((transport, handle))
}

/// The messages of one server.
#[derive(Debug)]
pub(crate) struct StdioTransport {
    lines: FramedRead<ChildStdout, Lines>,
    /// `None` once closed. A tokio mutex, because it is held while a line is written.
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    waiting: Arc<AtomicUsize>,
    health: Arc<Health>,
    noise_lines: u32,
}

impl Transport<RoleClient> for StdioTransport {
    type Error = StdioFault;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let stdin = Arc::clone(&self.stdin);
        let place = Place::take(&self.waiting);
        async move {
            let line = line::of_message(&message)?;
            let mut stdin = stdin.lock().await;
            let pipe = stdin.as_mut().ok_or(StdioFault::NotWritten)?;
            let written = write_line(pipe, &line).await;
            drop(place);
            written
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if self.waiting.load(Ordering::Acquire) > WAITING_MAX {
                self.health.fail("it does not read what it is sent");
                return None;
            }
            let message = match self.lines.next().await? {
                Ok(message) => message,
                Err(error) => {
                    tracing::debug!(%error, "the output of a server cannot be read");
                    self.health.fail("its output cannot be read, or has a line without an end");
                    return None;
                }
            };
            if message.is_some() {
                self.noise_lines = 0;
                return message;
            }
            self.noise_lines = self.noise_lines.saturating_add(1);
            if self.noise_lines > NOISE_LINES_MAX {
                self.health.fail("it sends text that is no json-rpc");
                return None;
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // A writer may hold the pipe and be blocked; the end of the process releases it then.
        if let Ok(mut stdin) = timeout(CLOSE_WAIT, self.stdin.lock()).await {
            drop(stdin.take());
        }
        Ok(())
    }
}

/// Writes one line. Until its last byte is written, the server has no complete message.
async fn write_line(pipe: &mut ChildStdin, line: &[u8]) -> Result<(), StdioFault> {
    let mut rest = line;
    let mut fault = StdioFault::NotWritten;
    while !rest.is_empty() {
        match pipe.write(rest).await {
            Ok(0) | Err(_) => return Err(fault),
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
        }
        fault = StdioFault::PartlyWritten;
    }
    Ok(())
}

/// One message's place among those that wait to be written.
#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(waiting: &Arc<AtomicUsize>) -> Self {
        waiting.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(waiting))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
