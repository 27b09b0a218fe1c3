//! A PostgreSQL of this program's own, with fsync on, for the time of a measurement.
//!
//! Owns finding the server's programs, its folder, its start and end. Invariants: loopback only; it does not run as root; it
//! ends with us.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

const ROLE: &str = "placet";
/// How long one of the tools, or the server's start, may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the server is started with beside its defaults: everything that makes a commit durable is on.
const SETTINGS: [&str; 8] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=80",
    "shared_buffers=128MB",
    "fsync=on",
    "full_page_writes=on",
    "synchronous_commit=on",
    "logging_collector=off",
];

/// The running server.
#[derive(Debug)]
pub(crate) struct Postgres {
    programs: Programs,
    folder: TempDir,
    port: u16,
    child: Option<Child>,
}

/// What is needed to run one.
#[derive(Debug, Clone)]
struct Programs {
    bin: PathBuf,
    /// How to run them as somebody else, where we are root: `setpriv`, the user and the group.
    other: Option<(PathBuf, u32, u32)>,
}

impl Postgres {
    /// Makes and starts one; `None` where it is not installed, or cannot be run as anybody but root.
    pub(crate) async fn start() -> Result<Option<Self>> {
        let Some(programs) = Programs::find() else { return Ok(None) };
        let folder = tempfile::Builder::new().prefix("placet-bench-pg-").tempdir()?;
        if let Some((_, user, group)) = programs.other {
            chown(folder.path(), Some(user), Some(group))
                .context("the folder cannot be given away")?;
        }
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut server = Self { programs, folder, port, child: None };
        let data = server.data();
        let data = data.to_str().context("the folder's name is no text")?;
        server
            .tool("initdb", &["-D", data, "-U", ROLE, "-A", "trust", "-E", "UTF8", "--no-locale"])
            .await?;
        let mut command = server.command("postgres");
        command.args(["-D", data, "-p", &port.to_string()]);
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        server.child = Some(child.spawn().context("`postgres` does not start")?);
        let port = port.to_string();
        let until = Instant::now() + PATIENCE;
        while server.tool("pg_isready", &["-q", "-h", "127.0.0.1", "-p", &port]).await.is_err() {
            if Instant::now() >= until {
                bail!("PostgreSQL does not answer");
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(Some(server))
    }

    /// Where a store reaches it.
    pub(crate) fn url(&self) -> String {
        format!("postgres://{ROLE}@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }

    /// What it says about itself.
    pub(crate) async fn version(&self) -> Result<String> {
        Ok(self.tool("postgres", &["--version"]).await?.trim().to_owned())
    }

    /// Where its data is: the folder whose disk counts.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)) {
            // It ends at once when it is interrupted.
            kill_process(pid, Signal::INT).context("PostgreSQL cannot be told to end")?;
        }
        timeout(PATIENCE, child.wait()).await.context("PostgreSQL does not end")??;
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    async fn tool(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.command(name);
        command.args(arguments).stdin(Stdio::null());
        let output = timeout(PATIENCE, command.output())
            .await
            .with_context(|| format!("`{name}` takes too long"))?
            .with_context(|| format!("`{name}` does not start"))?;
        if !output.status.success() {
            bail!("`{name}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn command(&self, name: &str) -> Command {
        let program = self.programs.bin.join(name);
        let mut command = match &self.programs.other {
            Some((setpriv, user, group)) => {
                let mut command = Command::new(setpriv);
                command.args([&format!("--reuid={user}"), &format!("--regid={group}")]);
                command.args(["--clear-groups", "--pdeathsig", "INT"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.env_clear().env("LC_ALL", "C").current_dir(self.folder.path()).kill_on_drop(true);
        command
    }
}

impl Programs {
    fn find() -> Option<Self> {
        let bin = bin()?;
        if !geteuid().is_root() {
            return Some(Self { bin, other: None });
        }
        let (user, group) = unprivileged(&fs::read_to_string("/etc/passwd").ok()?)?;
        Some(Self { bin, other: Some((found("setpriv")?, user, group)) })
    }
}

/// The folder with the newest server's programs.
fn bin() -> Option<PathBuf> {
    let entries = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = entries.filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        let folder = entry.path().join("bin");
        folder.join("initdb").is_file().then_some((version, folder))
    });
    let newest = versions.max().map(|(_, folder)| folder);
    newest.or_else(|| found("initdb").and_then(|file| file.parent().map(Path::to_owned)))
}

fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// `postgres`, or at least `nobody`: user and group.
fn unprivileged(users: &str) -> Option<(u32, u32)> {
    ["postgres", "nobody"].into_iter().find_map(|name| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::{Postgres, unprivileged};

    #[test]
    fn the_server_runs_as_its_own_user_where_there_is_one() {
        let users = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65533::/:/bin/false\n";
        assert_eq!(unprivileged(users), Some((65_534, 65_533)));
        let users = format!("{users}postgres:x:70:71::/:/bin/false\n");
        assert_eq!(unprivileged(&users), Some((70, 71)));
        assert_eq!(unprivileged("root:x:0:0::/:/bin/sh\n"), None);
    }

    #[tokio::test]
    async fn a_server_is_started_and_ended() {
        let Some(server) = Postgres::start().await.unwrap() else { return };
        assert!(server.version().await.unwrap().contains("PostgreSQL"));
        assert!(server.url().contains("127.0.0.1"));
        let folder = server.folder().to_owned();
        server.stop().await.unwrap();
        assert!(!folder.try_exists().unwrap());
    }
}
