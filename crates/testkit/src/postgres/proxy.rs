//! The way between the nodes and the database: forwards bytes, and can lose a connection at the very moment of a COMMIT.
//!
//! Owns an address that stays when the primary changes, and the cutting of connections. Understands of PostgreSQL's protocol
//! only where a frontend message begins. Invariant: a cut counts only if a COMMIT was seen and its connection was closed.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::watch,
    task::JoinHandle,
    time::sleep,
};

/// The longest message of a frontend that is looked into.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// When the connection is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// Before the server hears of the COMMIT: nothing is committed.
    BeforeCommit,
    /// After the server got it and before the node hears of it: it is committed.
    AfterCommit,
    /// The connection stays; the server answers that the transaction is in conflict with another, and has not committed it.
    Conflict,
}

/// The forwarding.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    upstream: AtomicU16,
    /// Counts up when every connection is to be closed.
    closing: watch::Sender<u64>,
    /// Cuts still to be made.
    armed: Mutex<Vec<Cut>>,
    made: AtomicU64,
}

impl Proxy {
    /// Listens on a free port.
    ///
    /// # Errors
    /// What was asked for could not be had.
    pub async fn start() -> Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port is free")?;
        let port = listener.local_addr()?.port();
        let (closing, _) = watch::channel(0);
        let shared = Arc::new(Shared {
            upstream: AtomicU16::new(0),
            closing,
            armed: Mutex::default(),
            made: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&accepting);
                tokio::spawn(async move { shared.forward(client).await });
            }
        });
        Ok(Self { port, shared, task })
    }

    /// Where the nodes connect.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Where new connections lead.
    pub fn lead_to(&self, port: u16) {
        self.shared.upstream.store(port, Ordering::SeqCst);
    }

    /// Closes every connection.
    pub fn cut_all(&self) {
        self.shared.closing.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Loses the next connections that say COMMIT.
    pub fn arm(&self, cut: Cut, times: usize) {
        let mut armed = self.shared.armed.lock();
        armed.extend(std::iter::repeat_n(cut, times));
    }

    /// Takes back what has not happened yet.
    pub fn disarm(&self) {
        self.shared.armed.lock().clear();
    }

    /// How many connections were lost at a COMMIT.
    pub fn cuts(&self) -> u64 {
        self.shared.made.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut_all();
    }
}

impl Shared {
    async fn forward(&self, client: TcpStream) {
        let mut closing = self.closing.subscribe();
        let port = self.upstream.load(Ordering::SeqCst);
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return };
        // A socket without the option still serves.
        client.set_nodelay(true).unwrap_or_default();
        server.set_nodelay(true).unwrap_or_default();
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            _ = closing.changed() => {}
            () = self.watch(from_client, to_server) => {}
            () = copy(from_server, to_client) => {}
        }
    }

    /// Forwards what the node sends, message by message, until it ends or is cut.
    async fn watch(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        // The first message has no kind.
        let mut first = true;
        while let Some(message) = read_message(&mut from, first).await {
            let cut = (!first && is_commit(&message)).then(|| self.take()).flatten();
            // A COMMIT that was prepared cannot be exchanged for a text.
            let cut = cut.map(|cut| match (cut, message.first()) {
                (Cut::Conflict, Some(kind)) if *kind != b'Q' => Cut::BeforeCommit,
                (cut, _) => cut,
            });
            if cut == Some(Cut::BeforeCommit) {
                self.made.fetch_add(1, Ordering::SeqCst);
                return;
            }
            if cut == Some(Cut::Conflict) {
                if to.write_all(&conflict()).await.is_err() {
                    return;
                }
                self.made.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            if to.write_all(&message).await.is_err() {
                return;
            }
            if cut == Some(Cut::AfterCommit) {
                // What follows it is passed on too: a Sync, without which the server would not commit.
                let rest =
                    tokio::time::timeout(Duration::from_millis(20), read_message(&mut from, false))
                        .await;
                if let Ok(Some(rest)) = rest {
                    to.write_all(&rest).await.unwrap_or_default();
                }
                self.made.fetch_add(1, Ordering::SeqCst);
                // The server has it; the node is not told. The writing side stays open for a moment, or the server rolls back.
                tokio::spawn(async move {
                    sleep(Duration::from_millis(300)).await;
                    drop(to);
                });
                return;
            }
            first = false;
        }
    }

    fn take(&self) -> Option<Cut> {
        self.armed.lock().pop()
    }
}

/// What is said instead of COMMIT, so that the server's own answer is what it says after a conflict.
fn conflict() -> Vec<u8> {
    const SQL: &str = "ROLLBACK; DO $$ BEGIN RAISE EXCEPTION \
        'could not serialize access due to read/write dependencies among transactions' \
        USING ERRCODE = '40001'; END $$";
    let length = u32::try_from(SQL.len()).unwrap_or(0).saturating_add(5);
    let mut message = vec![b'Q'];
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(SQL.as_bytes());
    message.push(0);
    message
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    tokio::io::copy(&mut from, &mut to).await.unwrap_or_default();
}

/// One message as it is on the wire; `None` at the end.
async fn read_message(from: &mut OwnedReadHalf, first: bool) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    if !first {
        message.push(from.read_u8().await.ok()?);
    }
    let length = from.read_u32().await.ok()?;
    message.extend_from_slice(&length.to_be_bytes());
    let rest = usize::try_from(length).ok()?.checked_sub(4)?;
    if rest > MESSAGE_BYTES_MAX {
        return None;
    }
    let start = message.len();
    message.resize(start.checked_add(rest)?, 0);
    from.read_exact(message.get_mut(start..)?).await.ok()?;
    Some(message)
}

/// Whether a message (a query, or the parsing of one) is a COMMIT.
fn is_commit(message: &[u8]) -> bool {
    let Some((kind, rest)) = message.split_first() else { return false };
    let body = rest.get(4..).unwrap_or_default();
    let text = match kind {
        b'Q' => body,
        // A parse message names its statement first.
        b'P' => body.split(|byte| *byte == 0).nth(1).unwrap_or_default(),
        _ => return false,
    };
    text.get(..6).is_some_and(|word| word.eq_ignore_ascii_case(b"commit"))
}

#[cfg(test)]
mod tests {
    use super::is_commit;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut all = vec![kind, 0, 0, 0, 0];
        all.extend_from_slice(body);
        all
    }

    #[test]
    fn a_commit_is_told_from_other_messages() {
        assert!(is_commit(&message(b'Q', b"COMMIT\0")));
        assert!(is_commit(&message(b'Q', b"commit;\0")));
        assert!(is_commit(&message(b'P', b"s1\0COMMIT\0\0\0")));
        assert!(!is_commit(&message(b'Q', b"BEGIN\0")));
        assert!(!is_commit(&message(b'P', b"commit\0SELECT 1\0\0\0")));
        assert!(!is_commit(&message(b'X', b"COMMIT\0")));
        assert!(!is_commit(b""));
    }
}
