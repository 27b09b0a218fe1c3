//! The control of the witness's misbehaviour: a line of JSON for a command, a line for the answer.
//!
//! Owns the commands and both ends of the connection.

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

use super::state::Shared;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Misbehave in this way for future calls.
    Arm(Arm),
    /// Behave again.
    Disarm,
    /// Only report the counts.
    Counts,
}

/// Which calls to misbehave for, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Calls with this `item` only.
    pub item: Option<String>,
    /// How many of them.
    pub times: u32,
    /// How.
    #[serde(flatten)]
    pub manner: Manner,
}

impl Arm {
    pub(super) fn fits(&self, item: &str) -> bool {
        self.item.as_deref().is_none_or(|wanted| wanted == item)
    }
}

/// A manner of misbehaving. Unless it says otherwise, the effect happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "manner", rename_all = "snake_case")]
pub enum Manner {
    /// The call is slow: first the wait, then the effect, then the answer.
    Slow {
        /// How long it takes, in milliseconds.
        ms: u64,
    },
    /// No answer; the connection ends later.
    HangThen {
        /// When it ends, in milliseconds.
        ms: u64,
    },
    /// No effect, no answer; the connection ends later.
    Hang {
        /// When it ends, in milliseconds.
        ms: u64,
    },
    /// The connection is reset within the answer.
    ResetAfter {
        /// How much of it goes out.
        bytes: u64,
    },
    /// A failure answer, after the effect.
    FailAfterEffect {
        /// The HTTP status.
        status: u16,
    },
    /// Status 200 and half a body.
    Truncated,
    /// Two answers: a success, then an error.
    Twice,
    /// The effect at once, the answer late.
    Late {
        /// How late, in milliseconds.
        ms: u64,
    },
    /// The connection is reset at once, the effect happens later.
    DelayedEffect {
        /// How much later, in milliseconds.
        ms: u64,
    },
    /// A refusal before anything happened, as the contract declares it; no effect.
    RefuseBefore,
    /// A refusal that the contract does not declare, after the effect: JSON-RPC error -32602.
    RefuseAfterEffect,
    /// The process ends after the effect, before the answer.
    Exit,
    /// The process ends before the effect.
    ExitBefore,
    /// A large result.
    Huge {
        /// How large.
        bytes: u64,
    },
    /// The result holds the credential that came with the call.
    Leak,
    /// The tool reports an error; no effect.
    Error,
}

impl Manner {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slow { .. } => "slow",
            Self::HangThen { .. } => "hang_then",
            Self::Hang { .. } => "hang",
            Self::ResetAfter { .. } => "reset_after",
            Self::FailAfterEffect { .. } => "fail_after_effect",
            Self::Truncated => "truncated",
            Self::Twice => "twice",
            Self::Late { .. } => "late",
            Self::DelayedEffect { .. } => "delayed_effect",
            Self::RefuseBefore => "refuse_before",
            Self::RefuseAfterEffect => "refuse_after_effect",
            Self::Exit => "exit",
            Self::ExitBefore => "exit_before",
            Self::Huge { .. } => "huge",
            Self::Leak => "leak",
            Self::Error => "error",
        }
    }
}

/// The counts since the process began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// How often it misbehaved, by the manner's name.
    pub fired: BTreeMap<String, u64>,
}

/// Sends a command to the witness whose control address is `control`.
///
/// # Errors
/// When it cannot be reached or its answer is malformed.
pub async fn send(control: SocketAddr, command: &Command) -> io::Result<Said> {
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
        match serde_json::from_str(&line) {
            Ok(Command::Arm(arm)) => shared.arm(arm),
            Ok(Command::Disarm) => shared.disarm(),
            Ok(Command::Counts) => {}
            // A malformed command gets no answer.
            Err(_) => return,
        }
        let Ok(mut answer) = serde_json::to_vec(&shared.said()) else { return };
        answer.push(b'\n');
        if writes.write_all(&answer).await.is_err() {
            return;
        }
    }
}
