//! The engine that every `placet mcp` of one data folder uses: found there, and started in the background where none runs.
//!
//! Owns the files by which they find each other, and the start. Invariants: an address counts only while the engine that wrote it holds the
//! lock on its file, which ends with the process in any case; of several engines started at once, the store's lock decides which one stays.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    net::{SocketAddr, TcpListener},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use tokio::{
    process::{Child, Command},
    sync::Mutex,
    time::{Instant, sleep},
};
use url::Url;

use crate::{
    config::load::Config,
    development::make_data_folder,
    environment::Environment,
    failure::{Attempted as _, Failure},
    storage,
};

/// Where an engine listens.
const LISTENING: &str = "listening.json";
/// Locked by every client of the engine.
const CLIENTS: &str = "clients.lock";
/// The log of a background engine.
const LOG: &str = "background.log";
/// A longer log is truncated at the next start.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How much of it is shown when the engine does not start.
const LOG_TOLD: usize = 2_000;
/// How long an engine may take to start: a ledger may have to be recovered.
const START_WAIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// How often an engine tries to announce itself: a client that looks for one holds the lock for a moment.
const ANNOUNCE_TRIES: u8 = 20;
/// How long after its last client a background engine stops, in seconds.
const UNUSED_STOP_S: u64 = 600;

/// Where an engine listens, for as long as it runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Listening {
    /// The address of the callers' listener.
    pub(crate) url: Url,
    /// The process.
    pub(crate) pid: i32,
}

/// Held by an engine that has announced where it listens.
#[derive(Debug)]
pub(crate) struct Announced(File);

impl Announced {
    /// Announces it. `None` if another process has announced itself for this folder.
    pub(crate) async fn at(data: &Path, url: Url) -> Result<Option<Self>, Failure> {
        let what = "where this engine listens cannot be written down";
        let mut file = own_file(&data.join(LISTENING)).attempted(what)?;
        let mut tries = 1_u8;
        while rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if tries == ANNOUNCE_TRIES {
                return Ok(None);
            }
            tries = tries.saturating_add(1);
            sleep(Duration::from_millis(10)).await;
        }
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let text = serde_json::to_vec(&Listening { url, pid }).attempted(what)?;
        file.set_len(0).attempted(what)?;
        file.write_all(&text).attempted(what)?;
        Ok(Some(Self(file)))
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        // With the lock gone nobody believes it anyway.
        let _emptied = self.0.set_len(0).is_ok();
    }
}

/// Where the engine of this data folder listens, if one runs.
pub(crate) fn listening(data: &Path) -> Option<Listening> {
    let mut file = File::open(data.join(LISTENING)).ok()?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Returns when no client has used the engine of this folder for `limit`. `use_made` says how many calls have come, by whatever way, and
/// how many are under way or wait for people, who could not decide without the engine.
pub(crate) async fn until_unused(
    data: &Path,
    limit: Duration,
    use_made: impl Fn() -> (u64, usize),
) {
    let mut used = Instant::now();
    let mut calls = 0;
    while used.elapsed() < limit {
        sleep(limit.min(Duration::from_secs(1))).await;
        let free = own_file(&data.join(CLIENTS)).is_ok_and(|file| {
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
        let (now, open) = use_made();
        if !free || now != calls || open > 0 {
            used = Instant::now();
        }
        calls = now;
    }
}

fn own_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// The engine of one data folder, for a client of it.
#[derive(Debug)]
pub(crate) struct SharedEngine {
    pub(crate) data: PathBuf,
    /// The address it gets if that is free.
    listen: SocketAddr,
    executable: PathBuf,
    /// The arguments that name the configuration to it.
    arguments: Vec<OsString>,
    /// Holds the lock that counts as a client.
    _client: File,
    starting: Mutex<()>,
}

impl SharedEngine {
    /// The engine for `config`, which `origin` names.
    pub(crate) fn of(config: &Config, environment: &Environment) -> Result<Self, Failure> {
        make_data_folder(config)?;
        let what = "the data folder cannot be used";
        let data = std::fs::canonicalize(&config.data).attempted(what)?;
        let client = own_file(&data.join(CLIENTS)).attempted(what)?;
        rustix::fs::flock(&client, FlockOperation::LockShared).attempted(what)?;
        let executable = environment.executable().map(Path::to_owned);
        let executable = executable.ok_or_else(|| Failure::new("this program has no file"))?;
        let mut arguments = vec![OsString::from("--data"), data.clone().into()];
        if let Some(origin) = &config.origin {
            arguments.push("--config".into());
            arguments.push(std::fs::canonicalize(origin).attempted(what)?.into());
        }
        let listen = config.server.listen;
        let starting = Mutex::default();
        Ok(Self { data, listen, executable, arguments, _client: client, starting })
    }

    /// Where it listens; it is started if it does not run.
    pub(crate) async fn url(&self) -> Result<Url, Failure> {
        let _one_at_a_time = self.starting.lock().await;
        let until = Instant::now() + START_WAIT;
        let mut started: Option<Started> = None;
        let mut starts = 0_u8;
        loop {
            if let Some(listening) = listening(&self.data) {
                return Ok(listening.url);
            }
            let ended = match &mut started {
                None => true,
                Some(started) => started.child.try_wait().is_ok_and(|ended| ended.is_some()),
            };
            // An engine that holds the store is about to announce where it listens.
            if ended && storage::lock_holder(&self.data).is_none() {
                if starts == 2 {
                    return Err(self.not_started(started));
                }
                // If the first attempt found something in use, the second listens on any free port.
                started = Some(self.start(starts > 0)?);
                starts = starts.saturating_add(1);
            }
            if Instant::now() >= until {
                return Err(self.not_started(started));
            }
            sleep(POLL).await;
        }
    }

    fn start(&self, anywhere: bool) -> Result<Started, Failure> {
        let what = "the engine cannot be started in the background";
        let mut log = own_file(&self.data.join(LOG)).attempted(what)?;
        let mut from = log.seek(SeekFrom::End(0)).attempted(what)?;
        if from > LOG_BYTES_MAX {
            log.set_len(0).attempted(what)?;
            from = log.seek(SeekFrom::Start(0)).attempted(what)?;
        }
        let any = SocketAddr::from(([127, 0, 0, 1], 0)).to_string();
        let listen = match TcpListener::bind(self.listen) {
            Ok(_free) if !anywhere => self.listen.to_string(),
            Ok(_) | Err(_) => any.clone(),
        };
        let mut command = Command::new(&self.executable);
        command
            .arg("serve")
            .args(&self.arguments)
            .args(["--listen", &listen, "--admin-listen", &any])
            .args(["--unused-stop-s", &UNUSED_STOP_S.to_string()])
            .current_dir(&self.data)
            .env_remove("PLACET_TOKEN")
            .env_remove("PLACET_DELEGATION")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // It survives whatever ends its first client.
            .process_group(0);
        let child = command.spawn().attempted(what)?;
        Ok(Started { child, from })
    }

    fn not_started(&self, started: Option<Started>) -> Failure {
        let path = self.data.join(LOG);
        let failure = Failure::new("the engine does not start in the background");
        let said = started.and_then(|started| {
            let mut file = File::open(&path).ok()?;
            file.seek(SeekFrom::Start(started.from)).ok()?;
            let mut text = Vec::new();
            file.take(LOG_BYTES_MAX).read_to_end(&mut text).ok()?;
            let told = text.get(text.len().saturating_sub(LOG_TOLD)..)?;
            Some(String::from_utf8_lossy(told).trim().to_owned())
        });
        let failure = match said.filter(|said| !said.is_empty()) {
            Some(said) => failure.because(said),
            None => failure,
        };
        failure.try_this(format!("`{}` has what it said", path.display()))
    }
}

/// An engine that was started.
#[derive(Debug)]
struct Started {
    child: Child,
    /// Where its output begins in the log.
    from: u64,
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        time::Duration,
    };

    use tokio::time::{sleep, timeout};

    use super::{Announced, CLIENTS, FlockOperation, LISTENING, listening, own_file, until_unused};

    #[tokio::test]
    async fn an_address_counts_while_its_engine_runs() {
        let data = tempfile::tempdir().unwrap();
        assert!(listening(data.path()).is_none());
        let url: url::Url = "http://127.0.0.1:7411".parse().unwrap();
        let announced = Announced::at(data.path(), url.clone()).await.unwrap().unwrap();
        assert_eq!(listening(data.path()).unwrap().url, url);
        assert!(Announced::at(data.path(), url.clone()).await.unwrap().is_none(), "there is one");
        drop(announced);
        assert!(listening(data.path()).is_none());
        // An engine whose file is locked by a looking client announces itself a moment later.
        let looking = own_file(&data.path().join(LISTENING)).unwrap();
        rustix::fs::flock(&looking, FlockOperation::LockShared).unwrap();
        let (announced, ()) = tokio::join!(Announced::at(data.path(), url), async {
            sleep(Duration::from_millis(30)).await;
            drop(looking);
        });
        assert!(announced.unwrap().is_some());
    }

    #[tokio::test]
    async fn an_engine_is_unused_once_its_last_client_is_gone() {
        let data = tempfile::tempdir().unwrap();
        let client = own_file(&data.path().join(CLIENTS)).unwrap();
        rustix::fs::flock(&client, FlockOperation::LockShared).unwrap();
        let limit = Duration::from_millis(40);
        let is_unused = async |use_made: &dyn Fn() -> (u64, usize)| {
            timeout(limit * 5, until_unused(data.path(), limit, use_made)).await.is_ok()
        };
        assert!(!is_unused(&|| (0, 0)).await, "it has a client");
        drop(client);
        let calls = AtomicU64::new(1);
        assert!(!is_unused(&|| (calls.fetch_add(1, Ordering::Relaxed), 0)).await, "it is called");
        assert!(!is_unused(&|| (7, 1)).await, "somebody is awaited");
        timeout(limit * 50, until_unused(data.path(), limit, || (7, 0))).await.unwrap();
    }
}
