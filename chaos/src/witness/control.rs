//! The control of the witness's misbehaviour: a line of JSON for a command, a line for the answer.
//!
//! Owns the commands and both ends of the connection.

use std::{io, net::SocketAddr, sync::Arc};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

use super::state::Shared;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(crate) enum Command {
    /// Misbehave in this way for the next call about an item.
    Arm {
        item: String,
        #[serde(flatten)]
        manner: Manner,
    },
    /// Behave again.
    Disarm,
    /// Only say whether it has misbehaved for a call about an item.
    Fired { item: String },
}

/// A manner of misbehaving. Unless it says otherwise, the effect happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "manner", rename_all = "snake_case")]
pub(crate) enum Manner {
    /// The call is slow: first the wait, then the effect, then the answer.
    Slow { ms: u64 },
    /// No answer; the connection ends later.
    HangThen { ms: u64 },
    /// No effect, no answer; the connection ends later.
    Hang { ms: u64 },
    /// The connection is reset within the answer.
    ResetAfter {
        /// How much of it goes out.
        bytes: u64,
    },
    /// A failure answer, after the effect.
    FailAfterEffect { status: u16 },
    /// Status 200 and half a body.
    Truncated,
    /// Two answers: a success, then an error.
    Twice,
    /// The effect at once, the answer late.
    Late { ms: u64 },
    /// The connection is reset at once, the effect happens later.
    DelayedEffect { ms: u64 },
    /// A refusal before anything happened, as the contract declares it; no effect.
    RefuseBefore,
    /// A refusal that the contract does not declare, after the effect: JSON-RPC error -32602.
    RefuseAfterEffect,
    /// The process ends after the effect, before the answer.
    Exit,
    /// The process ends before the effect.
    ExitBefore,
    /// A large result.
    Huge { bytes: u64 },
    /// The result holds the credential that came with the call.
    Leak,
    /// The tool reports an error; no effect.
    Error,
}

/// Sends a command to the witness whose control address is `control`. The answer is that to [`Command::Fired`], else false.
pub(crate) async fn send(control: SocketAddr, command: &Command) -> io::Result<bool> {
    let mut stream = TcpStream::connect(control).await?;
    let mut line = serde_json::to_vec(command)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await?;
    Ok(serde_json::from_str(&answer)?)
}

/// Takes commands until the connection ends.
pub(super) async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let (reads, mut writes) = stream.into_split();
    let mut lines = BufReader::new(reads).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // A malformed command gets no answer.
        let Ok(command) = serde_json::from_str(&line) else { return };
        let answer = format!("{}\n", shared.obey(command));
        if writes.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
