//! A temporary PostgreSQL cluster: a primary, and where it is asked for a synchronous streaming replica.
//!
//! Owns the servers' folders, their start, promotion and end, and the questions asked of them. Does not own the way the nodes
//! reach them: that is [`proxy`], whose address stays while servers change.
//! Invariants: loopback only; everything that is started ends with us; no server runs as root.

pub mod proxy;
pub mod template;

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder},
    os::unix::fs::{DirBuilderExt as _, chown},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use crate::{machine::Machine, port::free_port};
use proxy::Proxy;
use template::Template;

/// The role that owns the servers.
const ADMIN: &str = "chaos_admin";
/// The role of the nodes.
pub const ROLE: &str = "placet";
/// How long one of the tools may take.
const TOOL: Duration = Duration::from_secs(180);
/// How long a server may take to answer.
const UP: Duration = Duration::from_secs(120);

/// The running cluster.
#[derive(Debug)]
pub struct Postgres {
    bin: PathBuf,
    setpriv: Option<PathBuf>,
    user: Option<(u32, u32)>,
    folder: TempDir,
    primary: Option<Server>,
    replica: Option<Server>,
    databases: u32,
    replicas: u32,
    proxy: Proxy,
}

/// One server.
#[derive(Debug)]
struct Server {
    data: PathBuf,
    port: u16,
    child: Child,
}

impl Postgres {
    /// Makes and starts the primary.
    ///
    /// # Errors
    /// What was asked for could not be had.
    pub async fn start(machine: &Machine) -> Result<Self> {
        let bin = machine.postgres.clone().context("PostgreSQL is not installed")?;
        let folder = tempfile::Builder::new().prefix("placet-chaos-pg-").tempdir()?;
        let user = machine.unprivileged;
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid))
                .context("the folder cannot be given away")?;
        }
        let setpriv = machine.setpriv.clone();
        let proxy = Proxy::start().await?;
        let mut cluster = Self {
            bin,
            setpriv,
            user,
            folder,
            primary: None,
            replica: None,
            databases: 0,
            replicas: 0,
            proxy,
        };
        let data = cluster.make().await?;
        let primary = cluster.serve(data, false).await?;
        cluster.proxy.lead_to(primary.port);
        cluster.primary = Some(primary);
        cluster.wait_until_up().await?;
        cluster.ask(&format!("CREATE ROLE {ROLE} LOGIN")).await?;
        Ok(cluster)
    }

    /// The data folder of a new cluster.
    async fn make(&self) -> Result<PathBuf> {
        let data = self.folder.path().join("primary");
        DirBuilder::new().mode(0o700).create(&data)?;
        if let Some((uid, gid)) = self.user {
            chown(&data, Some(uid), Some(gid)).context("the folder cannot be given away")?;
        }
        let arguments = ["-N", "-U", ADMIN, "-A", "trust", "-E", "UTF8", "--no-locale"];
        let template = Template::of(&self.bin, &arguments)?;
        if !template.fill(&data, self.user)? {
            self.tool("initdb", &[&arguments[..], &["-D", text(&data)?]].concat()).await?;
            template.keep(&data)?;
        }
        Ok(data)
    }

    /// A fresh database of the nodes' role; where they reach it.
    ///
    /// # Errors
    /// What was asked for could not be had.
    pub async fn fresh_database(&mut self) -> Result<String> {
        self.databases = self.databases.saturating_add(1);
        let name = self.database();
        self.ask(&format!("ALTER ROLE {ROLE} CONNECTION LIMIT -1")).await?;
        self.ask(&format!("CREATE DATABASE {name} OWNER {ROLE}")).await?;
        Ok(format!("postgres://{ROLE}@127.0.0.1:{}/{name}?sslmode=disable", self.proxy.port()))
    }

    /// The process of the primary, while it runs.
    pub fn primary_pid(&self) -> Option<u32> {
        self.primary.as_ref()?.child.id()
    }

    /// The name of the last database.
    pub fn database(&self) -> String {
        format!("round_{}", self.databases)
    }

    /// The way between nodes and server.
    pub const fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Whether there is somebody to fail over to.
    pub const fn has_replica(&self) -> bool {
        self.replica.is_some()
    }

    /// Adds a streaming replica that every commit waits for, if there is none.
    ///
    /// # Errors
    /// What was asked for could not be had.
    pub async fn with_replica(&mut self) -> Result<()> {
        if self.replica.is_some() {
            return Ok(());
        }
        let port = self.primary.as_ref().context("there is no primary")?.port.to_string();
        self.replicas = self.replicas.saturating_add(1);
        let data = self.folder.path().join(format!("replica-{}", self.replicas));
        let arguments = [
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            ADMIN,
            "-D",
            text(&data)?,
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
        ];
        self.tool("pg_basebackup", &arguments).await?;
        self.replica = Some(self.serve(data, true).await?);
        let until = Instant::now() + UP;
        while self.ask("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").await?
            != "1"
        {
            if Instant::now() >= until {
                bail!("the replica does not stream");
            }
            sleep(Duration::from_millis(100)).await;
        }
        self.ask("ALTER SYSTEM SET synchronous_standby_names = '*'").await?;
        self.ask("SELECT pg_reload_conf()").await?;
        while self.ask("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'").await?
            != "1"
        {
            if Instant::now() >= until {
                bail!("the replica is not synchronous");
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Kills the primary with everything it was doing, promotes the replica, and leads the nodes to it.
    ///
    /// # Errors
    /// What was asked for could not be had.
    pub async fn fail_over(&mut self) -> Result<()> {
        let Some(replica) = self.replica.take() else { bail!("there is no replica") };
        if let Some(mut primary) = self.primary.take() {
            kill_all(&primary);
            timeout(UP, primary.child.wait()).await.context("the primary does not die")??;
        }
        self.proxy.cut_all();
        // What the replica has received is all that anybody was told of. It waits for nobody now.
        let auto = replica.data.join("postgresql.auto.conf");
        let kept: String = fs::read_to_string(&auto)
            .unwrap_or_default()
            .lines()
            .filter(|line| !line.starts_with("synchronous_standby_names"))
            .map(|line| format!("{line}\n"))
            .collect();
        fs::write(&auto, kept).context("the replica's settings cannot be changed")?;
        self.tool("pg_ctl", &["promote", "-w", "-D", text(&replica.data)?]).await?;
        self.proxy.lead_to(replica.port);
        self.primary = Some(replica);
        self.ask("SELECT pg_reload_conf()").await?;
        if self.ask("SELECT pg_is_in_recovery()").await? != "f" {
            bail!("the replica was not promoted");
        }
        Ok(())
    }

    /// Lets go of the replica, so that commits wait for nobody.
    ///
    /// # Errors
    /// What was asked for could not be had.
    pub async fn without_replica(&mut self) -> Result<()> {
        if let Some(mut replica) = self.replica.take() {
            self.ask("ALTER SYSTEM RESET synchronous_standby_names").await?;
            self.ask("SELECT pg_reload_conf()").await?;
            kill_all(&replica);
            timeout(UP, replica.child.wait()).await.context("the replica does not die")??;
        }
        Ok(())
    }

    /// Asks the server as its owner; rows are lines.
    ///
    /// # Errors
    /// What was asked for could not be had.
    pub async fn ask(&self, sql: &str) -> Result<String> {
        self.ask_in("postgres", sql).await
    }

    /// Asks in the last database.
    ///
    /// # Errors
    /// What was asked for could not be had.
    pub async fn ask_data(&self, sql: &str) -> Result<String> {
        self.ask_in(&self.database(), sql).await
    }

    async fn ask_in(&self, database: &str, sql: &str) -> Result<String> {
        let port = self.primary.as_ref().context("there is no primary")?.port.to_string();
        let arguments = [
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            ADMIN,
            "-d",
            database,
            "-AtqX",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            sql,
        ];
        Ok(self.tool("psql", &arguments).await?.trim().to_owned())
    }

    /// How often the server has logged a text.
    pub fn logged(&self, text: &str) -> usize {
        let Some(primary) = &self.primary else { return 0 };
        let log = fs::read_to_string(log_of(&primary.data)).unwrap_or_default();
        log.matches(text).count()
    }

    async fn serve(&self, data: PathBuf, waits: bool) -> Result<Server> {
        let port = free_port()?;
        let log = fs::File::create(log_of(&data)).context("no log can be made")?;
        let mut command = self.command("postgres");
        command.args(["-D", text(&data)?, "-p", &port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=80",
            "shared_buffers=32MB",
            "synchronous_commit=on",
            "wal_level=replica",
            "max_wal_senders=4",
            "deadlock_timeout=50ms",
            "log_line_prefix=%u@%d ",
            "logging_collector=off",
        ] {
            command.args(["-c", setting]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let server = Server { data, port, child: child.context("`postgres` does not start")? };
        if waits {
            let port = port.to_string();
            let until = Instant::now() + UP;
            while self.tool("pg_isready", &["-q", "-h", "127.0.0.1", "-p", &port]).await.is_err() {
                if Instant::now() >= until {
                    bail!("a server does not answer: {}", tail(&log_of(&server.data)));
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(server)
    }

    async fn wait_until_up(&self) -> Result<()> {
        let until = Instant::now() + UP;
        while self.ask("SELECT 1").await.is_err() {
            if Instant::now() >= until {
                let log = self.primary.as_ref().map(|server| tail(&log_of(&server.data)));
                bail!("the server does not answer: {}", log.unwrap_or_default());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn tool(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.command(name);
        command.args(arguments).stdin(Stdio::null());
        let output = timeout(TOOL, command.output())
            .await
            .with_context(|| format!("`{name}` takes too long"))?
            .with_context(|| format!("`{name}` does not start"))?;
        if !output.status.success() {
            bail!("`{name}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// One of PostgreSQL's programs, as the user that may run it.
    fn command(&self, name: &str) -> Command {
        let program = self.bin.join(name);
        let mut command = match (&self.setpriv, self.user) {
            (Some(setpriv), user) => {
                let mut command = Command::new(setpriv);
                if let Some((uid, gid)) = user {
                    command.args([&format!("--reuid={uid}"), &format!("--regid={gid}")]);
                    command.arg("--clear-groups");
                }
                command.args([OsStr::new("--pdeathsig"), OsStr::new("KILL"), program.as_os_str()]);
                command
            }
            (None, _) => Command::new(program),
        };
        command.env_clear().env("LC_ALL", "C").env("PGCONNECT_TIMEOUT", "5");
        command.current_dir(self.folder.path()).kill_on_drop(true);
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        for server in [&self.primary, &self.replica].into_iter().flatten() {
            kill_all(server);
        }
    }
}

/// Kills a server with all its processes, which notice the loss of the first one only after a while.
fn kill_all(server: &Server) {
    let Some(first) = server.child.id() else { return };
    let children = fs::read_to_string(format!("/proc/{first}/task/{first}/children"));
    let children = children.unwrap_or_default();
    let all = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    let first = i32::try_from(first).ok();
    for pid in first.into_iter().chain(all).filter_map(Pid::from_raw) {
        // It may be gone already.
        kill_process(pid, Signal::KILL).unwrap_or_default();
    }
}

fn log_of(data: &Path) -> PathBuf {
    data.with_extension("log")
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(5)).copied().collect::<Vec<_>>().join("\n")
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a folder has a name that is no text")
}

#[cfg(test)]
mod tests {
    use super::Postgres;
    use crate::machine::Machine;

    #[tokio::test]
    async fn what_the_primary_has_acknowledged_is_there_after_the_replica_was_promoted() {
        let machine = Machine::look();
        if !machine.can_serve_postgres() {
            assert!(Postgres::start(&machine).await.is_err());
            return;
        }
        let mut cluster = Postgres::start(&machine).await.unwrap();
        let url = cluster.fresh_database().await.unwrap();
        assert!(url.contains(&cluster.proxy().port().to_string()), "{url}");
        cluster.with_replica().await.unwrap();
        cluster.ask_data("CREATE TABLE kept (n int)").await.unwrap();
        cluster.ask_data("INSERT INTO kept VALUES (7)").await.unwrap();
        cluster.fail_over().await.unwrap();
        assert_eq!(cluster.ask_data("SELECT n FROM kept").await.unwrap(), "7");
        // And it takes writes, waiting for nobody.
        cluster.ask_data("INSERT INTO kept VALUES (8)").await.unwrap();
        assert_eq!(cluster.ask_data("SELECT count(*) FROM kept").await.unwrap(), "2");
        assert!(cluster.fail_over().await.is_err(), "there was no second replica");
    }
}
