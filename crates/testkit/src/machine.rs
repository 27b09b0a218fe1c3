//! What this machine has that faults need: strace, setpriv, libfaketime, PostgreSQL.
//!
//! Owns the search, done once at the start. Does not use any of it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The programs and libraries that were found.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Attaches to a process and kills it, fails or delays it at a system call.
    pub strace: Option<PathBuf>,
    /// Whether it may attach to a process that lets nobody read its memory.
    pub can_attach: bool,
    /// Starts a program that ends with us, and as another user.
    pub setpriv: Option<PathBuf>,
    /// The library that shows a program another time.
    pub faketime: Option<PathBuf>,
    /// The folder with `initdb` and `postgres`.
    pub postgres: Option<PathBuf>,
    /// Whom the database server runs as when we are root, which it refuses to be: user and group.
    pub unprivileged: Option<(u32, u32)>,
}

impl Machine {
    /// Looks.
    pub fn look() -> Self {
        let root = rustix::process::geteuid().is_root();
        Self {
            strace: found("strace"),
            can_attach: can_attach(),
            setpriv: found("setpriv"),
            faketime: faketime(),
            postgres: postgres(),
            unprivileged: root.then(unprivileged).flatten(),
        }
    }

    /// Whether a database server can be started here.
    pub fn can_serve_postgres(&self) -> bool {
        let allowed = !rustix::process::geteuid().is_root()
            || (self.unprivileged.is_some() && self.setpriv.is_some());
        self.postgres.is_some() && allowed
    }
}

/// Whether a running process can be traced that lets nobody read its memory, as Placet does: its own user may not.
fn can_attach() -> bool {
    const SYS_PTRACE: u32 = 19;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask.checked_shr(SYS_PTRACE).is_some_and(|bits| bits & 1 == 1))
}

fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .chain(Some(Path::new("/usr/bin").join(name)))
        .find(|file| file.is_file())
}

fn faketime() -> Option<PathBuf> {
    const NAME: &str = "faketime/libfaketimeMT.so.1";
    let mut folders = vec![PathBuf::from("/usr/lib"), PathBuf::from("/usr/local/lib")];
    // Debian keeps libraries in a folder named after the machine's architecture.
    let entries = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    folders.extend(
        entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains("-linux-")),
    );
    folders.into_iter().map(|folder| folder.join(NAME)).find(|file| file.is_file())
}

fn postgres() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
        .collect();
    versions.sort();
    versions.pop().or_else(|| found("initdb").and_then(|file| file.parent().map(Path::to_owned)))
}

/// `postgres`, or at least `nobody`.
fn unprivileged() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    ["postgres", "nobody"].into_iter().find_map(|name| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}
