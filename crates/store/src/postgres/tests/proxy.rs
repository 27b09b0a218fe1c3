//! A proxy between store and server that cuts connections at a commit: before the server hears of it, or before the store hears back.
//!
//! Owns what cannot be done from the server's side: to kill a backend when its commit is kept and its answer is not yet sent.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const COMMIT: &[u8] = b"COMMIT\0";

#[derive(Debug, Default)]
pub(super) struct Cuts {
    /// Whether connections are cut at all.
    pub(super) on: AtomicBool,
    /// The answer to the next commit is cut, and no other.
    pub(super) next_answer: AtomicBool,
    /// Commits that the server never heard of.
    pub(super) before: AtomicUsize,
    /// Commits whose answer the store never heard.
    pub(super) after: AtomicUsize,
    /// What is said of this goes nowhere, nor does anything on any connection from then on.
    pub(super) silent_at: Mutex<Option<&'static [u8]>>,
    /// Whether the store hears and says nothing, on connections that stand.
    pub(super) silent: AtomicBool,
    seed: AtomicU64,
}

impl Cuts {
    fn falls_silent(&self, bytes: &[u8]) -> bool {
        let at = *self.silent_at.lock().unwrap();
        let falls = at.is_some_and(|at| bytes.windows(at.len()).any(|window| window == at));
        if falls {
            *self.silent_at.lock().unwrap() = None;
            self.silent.store(true, Ordering::SeqCst);
        }
        falls
    }

    async fn stand_still(&self) {
        while self.silent.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What is done with the next commit: 0 cut before, 1 cut after, anything else nothing. A plain generator, the same in every run.
    fn next(&self) -> u64 {
        let step = |seed: u64| {
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
        };
        let before =
            self.seed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |seed| Some(step(seed)));
        if self.next_answer.swap(false, Ordering::SeqCst) {
            return 1;
        }
        if !self.on.load(Ordering::SeqCst) {
            return 9;
        }
        (step(before.unwrap()) >> 33) % 4
    }
}

/// Listens on a free port and forwards to `port`; answers its own.
pub(super) async fn proxy(port: u16) -> (u16, Arc<Cuts>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    let cuts = Arc::new(Cuts::default());
    let shared = Arc::clone(&cuts);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let cuts = Arc::clone(&shared);
            tokio::spawn(async move {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                    drop(forward(client, server, &cuts).await);
                }
            });
        }
    });
    (own, cuts)
}

async fn forward(mut client: TcpStream, mut server: TcpStream, cuts: &Cuts) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut from_server) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut is_mute = false;
    loop {
        cuts.stand_still().await;
        tokio::select! {
            read = client.read(&mut from_client) => {
                let bytes = &from_client[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                if cuts.falls_silent(bytes) {
                    cuts.stand_still().await;
                }
                if bytes.ends_with(COMMIT) {
                    match cuts.next() {
                        0 => {
                            cuts.before.fetch_add(1, Ordering::SeqCst);
                            return Ok(());
                        }
                        1 => is_mute = true,
                        _ => {}
                    }
                }
                server.write_all(bytes).await?;
            }
            read = server.read(&mut from_server) => {
                let bytes = &from_server[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                if is_mute {
                    cuts.after.fetch_add(1, Ordering::SeqCst);
                    return Ok(());
                }
                client.write_all(bytes).await?;
            }
        }
    }
}
