//! Real servers for tests: made in a temporary folder, ended with the test process whatever happens to it.
//!
//! Owns finding the programs, making clusters, standbys and databases. The server refuses to run as root, so root hands it to `nobody`.
//! Each is started by a small shell that ends it, and removes its folder, when the pipe to the test process closes.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use placet_testkit::postgres::template::Template;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, raw_sql};

use crate::postgres::{DatabaseUrl, PostgresConfig};

/// `nobody` and its group.
const NOBODY: u32 = 65_534;
const OWNER: &str = "placet";

/// The shell that looks after a server: `$1` is its folder.
const KEEPER: &str = "cat > /dev/null
     if [ -f \"$1/postmaster.pid\" ]; then
       pid=$(head -n 1 \"$1/postmaster.pid\"); kill -INT \"$pid\"
       for _ in $(seq 100); do kill -0 \"$pid\" || break; sleep 0.1; done
     fi
     rm -rf \"$1\"";

static DATABASES: AtomicU32 = AtomicU32::new(1);

/// The folder of the server's programs: of the newest version in Debian's place, or of `initdb` in PATH.
fn programs() -> PathBuf {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            let folder = entry.path().join("bin");
            folder.join("initdb").is_file().then_some((version, folder))
        })
        .collect();
    found.sort();
    let in_path = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path).find(|folder| folder.join("initdb").is_file())
    });
    found.pop().map(|(_, folder)| folder).or(in_path).expect(
        "these tests need a PostgreSQL server: install the package `postgresql`, or put its `initdb` in PATH",
    )
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A program of the server, run as a user that it accepts.
fn program(name: &str) -> Command {
    let path = programs().join(name);
    if !is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(path);
    command.env("HOME", "/").current_dir("/");
    command
}

fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A new folder that the server's user owns; in memory where the system has such a place.
fn folder() -> PathBuf {
    let parent = Path::new("/dev/shm");
    let parent = if parent.is_dir() { parent.to_path_buf() } else { std::env::temp_dir() };
    let folder = tempfile::Builder::new().prefix("placet-pg-").tempdir_in(parent).unwrap().keep();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    if is_root() {
        chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    folder
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    /// As an operator does it; sessions are cut.
    Fast,
    /// As a crash does it.
    Immediate,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    folder: PathBuf,
    port: u16,
    keeper: Mutex<Option<Child>>,
}

impl Server {
    /// A new cluster with these settings beside those that make tests quick without making the server unsafe.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Arc<Self> {
        let folder = folder();
        let owner = is_root().then_some((NOBODY, NOBODY));
        let arguments = ["-U", OWNER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"];
        let template = Template::of(&programs(), &arguments).unwrap();
        if !template.fill(&folder, owner).unwrap() {
            run(program("initdb").args(arguments).arg("-D").arg(&folder));
            template.keep(&folder).unwrap();
        }
        let hba = "host all ada 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n\
                   host replication all 127.0.0.1/32 trust\n";
        std::fs::write(folder.join("pg_hba.conf"), hba).unwrap();
        let server = Self::of(folder);
        server.configure(&[
            ("listen_addresses", "127.0.0.1"),
            ("unix_socket_directories", ""),
            ("max_connections", "200"),
            ("shared_buffers", "32MB"),
            // In its folder, so that nothing of it is left behind.
            ("dynamic_shared_memory_type", "mmap"),
            ("checkpoint_timeout", "30min"),
            ("wal_level", "replica"),
            ("max_wal_senders", "4"),
            ("wal_keep_size", "256MB"),
            ("log_min_messages", "log"),
        ]);
        server.configure(settings);
        server.up();
        Arc::new(server)
    }

    fn of(folder: PathBuf) -> Self {
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        Self { folder, port: free_port(), keeper: Mutex::new(Some(keeper)) }
    }

    /// The server that most tests share, each with a database of its own.
    pub(crate) fn shared() -> &'static Arc<Self> {
        static SHARED: OnceLock<Arc<Server>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&[]))
    }

    /// Settings that count from the next start, or [`Self::reload`], on.
    pub(crate) fn configure(&self, settings: &[(&str, &str)]) {
        let file = self.folder.join("postgresql.conf");
        let mut file = std::fs::OpenOptions::new().append(true).open(file).unwrap();
        for (name, value) in settings {
            writeln!(file, "{name} = '{value}'").unwrap();
        }
    }

    pub(crate) fn reload(&self) {
        run(program("pg_ctl").arg("reload").arg("-s").arg("-D").arg(&self.folder));
    }

    /// Changes a setting of the running server, and waits until its processes have noticed.
    pub(crate) async fn set(&self, name: &str, value: &str) {
        self.configure(&[(name, value)]);
        self.reload();
        super::until("the server has reloaded", async || {
            let shown = self.sql("postgres", &format!("SHOW {name}")).await;
            sqlx::Row::get::<String, _>(&shown[0], 0) == value
        })
        .await;
        // Some of them look only after they have woken up.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }

    pub(crate) fn up(&self) {
        let log = self.folder.join("server.log");
        // Without a file for its log, the server would keep the pipes of the test process open.
        let mut start = program("pg_ctl");
        start.args(["start", "-s", "-w", "-t", "60", "-o"]).arg(format!("-p {}", self.port));
        start.arg("-l").arg(&log).arg("-D").arg(&self.folder);
        let started = start.stdin(Stdio::null()).output().expect("the program starts");
        if !started.status.success() {
            panic!(
                "the server does not start: {}",
                std::fs::read_to_string(log).unwrap_or_default()
            );
        }
    }

    pub(crate) fn stop(&self, how: Stop) {
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        run(program("pg_ctl").args(["stop", "-s", "-w", "-m", mode, "-D"]).arg(&self.folder));
    }

    /// A standby that streams from this server, not yet a synchronous one.
    pub(crate) fn standby(&self) -> Arc<Self> {
        let standby = folder();
        run(program("pg_basebackup")
            .args(["-h", "127.0.0.1", "-U", OWNER, "-X", "stream", "-c", "fast", "-R", "-p"])
            .arg(self.port.to_string())
            .arg("-D")
            .arg(&standby));
        let standby = Self::of(standby);
        standby.up();
        Arc::new(standby)
    }

    pub(crate) fn promote(&self) {
        run(program("pg_ctl").args(["promote", "-s", "-w", "-D"]).arg(&self.folder));
    }

    /// A copy of the stopped server's files, to be put back later.
    pub(crate) fn copy(&self) -> PathBuf {
        let copy = folder();
        run(Command::new("cp").arg("-a").arg(self.folder.join(".")).arg(&copy));
        copy
    }

    /// Puts a copy in the place of the stopped server's files.
    pub(crate) fn restore(&self, copy: &Path) {
        std::fs::remove_dir_all(&self.folder).unwrap();
        run(Command::new("cp").arg("-a").arg(copy).arg(&self.folder));
        std::fs::remove_dir_all(copy).unwrap();
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) async fn connect(&self, database: &str) -> PgConnection {
        let url = self.url(database);
        let options: PgConnectOptions = url.parse().unwrap();
        options.connect().await.expect("the server answers")
    }

    pub(crate) async fn sql(&self, database: &str, sql: &str) -> Vec<PgRow> {
        let mut connection = self.connect(database).await;
        let rows = raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(&mut connection).await;
        rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://{OWNER}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// A new, empty database.
    pub(crate) async fn database(self: &Arc<Self>) -> Database {
        let name = format!("t{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        drop(self.sql("postgres", &format!("CREATE DATABASE {name}")).await);
        Database { server: Arc::clone(self), name }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let keeper = self.keeper.lock().unwrap().take();
        if let Some(mut keeper) = keeper {
            drop(keeper.stdin.take());
            drop(keeper.wait());
        }
    }
}

/// A database of a server.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    pub(crate) server: Arc<Server>,
    pub(crate) name: String,
}

impl Database {
    /// How a node uses it, with waits that suit a test.
    pub(crate) fn config(&self, node: &str) -> PostgresConfig {
        config(&self.server.url(&self.name), node)
    }

    pub(crate) async fn sql(&self, sql: &str) -> Vec<PgRow> {
        self.server.sql(&self.name, sql).await
    }

    pub(crate) async fn connect(&self) -> PgConnection {
        self.server.connect(&self.name).await
    }
}

pub(crate) fn config(url: &str, node: &str) -> PostgresConfig {
    PostgresConfig {
        lease: Duration::from_secs(30),
        wait: Duration::from_secs(10),
        ..PostgresConfig::new(DatabaseUrl::parse(url).unwrap(), node)
    }
}
