//! The upstream whose effects are judged: an MCP server with a log of its own, outside the system under test.
//!
//! Owns its process: two listeners, one for calls and one for the injector. Invariant: an effect is in the log, synced, before
//! anybody can learn of it, and the log outlives the process.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
};

use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
};

mod answer;
mod call;
pub(crate) mod control;
mod http;
pub(crate) mod late;
pub(crate) mod log;
mod mcp;
mod state;
pub(crate) mod tools;

use state::Shared;

/// How a witness is started.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// The address for calls.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// The address at which the injector controls its behaviour.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) control: SocketAddr,
    /// The effect log; effects already in it have happened.
    #[arg(long)]
    pub(crate) log: PathBuf,
    /// How long the token of a keyed tool is honoured, in milliseconds.
    #[arg(long, default_value_t = 60_000)]
    pub(crate) window_ms: u64,
}

/// A witness that listens.
#[derive(Debug)]
pub(crate) struct Witness {
    calls: TcpListener,
    commands: TcpListener,
    shared: Arc<Shared>,
}

impl Witness {
    pub(crate) async fn open(options: &Options) -> io::Result<Self> {
        let shared = Arc::new(Shared::open(&options.log, options.window_ms)?);
        let calls = TcpListener::bind(options.listen).await?;
        let commands = TcpListener::bind(options.control).await?;
        Ok(Self { calls, commands, shared })
    }

    /// The URL for a contract.
    pub(crate) fn url(&self) -> io::Result<String> {
        Ok(format!("http://{}/mcp", self.calls.local_addr()?))
    }

    /// The address for the injector's commands.
    pub(crate) fn control(&self) -> io::Result<SocketAddr> {
        self.commands.local_addr()
    }

    /// Serves until it is told to die, or its log fails: it always ends with an error.
    pub(crate) async fn run(self) -> io::Result<()> {
        loop {
            tokio::select! {
                () = self.shared.told_to_exit() => return Err(io::Error::other("told to exit")),
                taken = self.calls.accept() => if let Ok((stream, _)) = taken {
                    tokio::spawn(mcp::serve(stream, Arc::clone(&self.shared)));
                },
                taken = self.commands.accept() => if let Ok((stream, _)) = taken {
                    tokio::spawn(control::serve(stream, Arc::clone(&self.shared)));
                },
            }
        }
    }
}

/// Runs the witness until standard input ends, so that it cannot outlive its parent. Prints its addresses as a line of JSON.
pub(crate) async fn serve(options: &Options) -> io::Result<()> {
    let witness = Witness::open(options).await?;
    let hello = json!({"listen": witness.url()?, "control": witness.control()?.to_string()});
    writeln!(io::stdout().lock(), "{hello}")?;
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    tokio::select! {
        ended = witness.run() => ended,
        _ = input.next_line() => Ok(()),
    }
}

#[cfg(test)]
mod tests;
