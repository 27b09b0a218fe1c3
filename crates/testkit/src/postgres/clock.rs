//! The wall clock of the database's servers, which can be set off against the machine's while they run.
//!
//! Owns the library that is preloaded into them, compiled here from `clock.c`, and the file with the offset that it reads. Does not own
//! the servers, nor when their clock is moved. libfaketime is no choice for them: it takes over the timers too, and PostgreSQL's stop
//! ringing. Invariant: a reading says between which moments of the machine's monotonic clock it was taken, so that what a jump
//! came to is known without believing any wall clock.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tokio::{process::Command, time::timeout};

use crate::moment::Moment;

const SOURCE: &str = include_str!("clock.c");
/// The variable by which the library is told of the file with the offset.
const OFFSET_FILE: &str = "PLACET_TEST_CLOCK";
/// How long the compiler may take on a busy machine.
const COMPILED: Duration = Duration::from_secs(60);
/// By how much a jump may look different from what it is: clocks are read in milliseconds, and slewed.
const SLACK_MS: i64 = 100;

/// The servers' clock.
#[derive(Debug)]
pub(super) struct ServerClock {
    library: PathBuf,
    offset: PathBuf,
    file: File,
}

impl ServerClock {
    /// Compiles the library into a folder that the servers' user can read; the clock is the machine's until it is moved.
    pub(super) async fn make(compiler: &Path, folder: &Path) -> Result<Self> {
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        fs::write(&source, SOURCE).context("the source of the clock cannot be written")?;
        let mut command = Command::new(compiler);
        command.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]);
        command.args([&library, &source]).stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(COMPILED, command.output())
            .await
            .context("the compiler takes too long")?
            .with_context(|| format!("`{}` does not start", compiler.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("the clock of the database does not compile: {}", said.trim());
        }
        let offset = folder.join("clock.offset");
        let file = File::create(&offset).context("the clock's offset cannot be written")?;
        let clock = Self { library, offset, file };
        clock.set(0)?;
        for (path, mode) in [(&clock.library, 0o755), (&clock.offset, 0o644)] {
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        Ok(clock)
    }

    /// What a server is started with.
    pub(super) fn variables(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), (OFFSET_FILE, &self.offset)]
    }

    /// Sets the clock off by so many milliseconds, at once and for every server.
    pub(super) fn set(&self, by_ms: i64) -> Result<()> {
        let ns = by_ms.checked_mul(1_000_000).context("no clock goes that far")?;
        // The servers have these eight bytes mapped, and read them in one piece.
        self.file.write_all_at(&ns.to_ne_bytes(), 0).context("the clock cannot be moved")
    }
}

/// What a server said the time is.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Milliseconds since 1970.
    pub ms: i64,
    /// It was read after this moment.
    pub asked: Moment,
    /// And before this one.
    pub answered: Moment,
}

impl Reading {
    /// For how long nobody knows when exactly it was.
    pub const fn doubt_ms(&self) -> u64 {
        self.answered.ms_since(self.asked)
    }

    /// Whether the clock jumped by so many milliseconds since an earlier reading: none where the two are too vague to tell.
    pub fn jumped_by(&self, earlier: &Self, by_ms: i64) -> Option<bool> {
        let shown = self.ms.saturating_sub(earlier.ms);
        let ms = |from: Moment, to: Moment| i64::try_from(to.ms_since(from)).unwrap_or(i64::MAX);
        let most = shown.saturating_sub(ms(earlier.answered, self.asked)).saturating_add(SLACK_MS);
        let least = shown.saturating_sub(ms(earlier.asked, self.answered)).saturating_sub(SLACK_MS);
        let may_be = |by_ms: i64| (least..=most).contains(&by_ms);
        match (may_be(by_ms), may_be(0)) {
            (true, true) => None,
            (jumped, _) => Some(jumped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Reading, ServerClock};
    use crate::{machine::Machine, moment::Moment, postgres::Postgres};

    fn reading(ms: i64, asked_ms: u64, answered_ms: u64) -> Reading {
        let at = |ms: u64| Moment { us: ms.saturating_mul(1_000), wall_ms: 0 };
        Reading { ms, asked: at(asked_ms), answered: at(answered_ms) }
    }

    #[test]
    fn a_jump_is_told_from_time_that_passed() {
        let before = reading(5_000_000, 1_000, 1_040);
        let after = |ms: i64| reading(ms, 3_000, 3_040);
        assert_eq!(after(5_002_000).jumped_by(&before, 1_000), Some(false));
        assert_eq!(after(5_003_000).jumped_by(&before, 1_000), Some(true));
        assert_eq!(after(5_001_000).jumped_by(&before, -1_000), Some(true));
        assert_eq!(after(5_001_000).jumped_by(&before, 1_000), Some(false));
        assert_eq!(after(5_002_000 + 7_200_000).jumped_by(&before, 7_200_000), Some(true));
        assert_eq!(after(5_002_000 + 3_600_000).jumped_by(&before, 7_200_000), Some(false));
    }

    #[test]
    fn a_small_jump_between_vague_readings_is_not_known() {
        let (before, after) = (reading(5_000_000, 0, 1_500), reading(5_003_000, 2_000, 3_500));
        assert_eq!(before.doubt_ms(), 1_500);
        assert_eq!(after.jumped_by(&before, 1_000), None);
        assert_eq!(after.jumped_by(&before, 3_600_000), Some(false));
    }

    #[tokio::test]
    async fn what_does_not_compile_is_said() {
        let folder = tempfile::TempDir::new().unwrap();
        if let Some(compiler) = Machine::look().compiler {
            let clock = ServerClock::make(&compiler, folder.path()).await.unwrap();
            assert!(clock.set(i64::MAX).is_err());
        }
        let no_compiler = std::path::Path::new("/bin/false");
        let said = ServerClock::make(no_compiler, folder.path()).await.unwrap_err();
        assert!(said.to_string().contains("does not compile"), "{said}");
    }

    /// Moves the clock, and whether the server shows it.
    async fn jumps(cluster: &Postgres, from_ms: i64, to_ms: i64) -> Option<bool> {
        let before = cluster.read_clock().await.unwrap();
        cluster.move_clock(to_ms).unwrap();
        let after = cluster.read_clock().await.unwrap();
        after.jumped_by(&before, to_ms.saturating_sub(from_ms))
    }

    #[tokio::test]
    async fn the_clock_of_running_servers_is_moved_and_put_back_and_their_timers_go_on() {
        let machine = Machine::look();
        if !machine.can_serve_postgres() || machine.compiler.is_none() {
            return;
        }
        let mut cluster = Postgres::start_with_clock(&machine).await.unwrap();
        cluster.fresh_database().await.unwrap();
        cluster.with_replica().await.unwrap();
        assert!(cluster.has_clock());
        // Half a minute, so that no machine is too slow to tell.
        let moves = [(0, 30_000), (30_000, 7_200_000), (7_200_000, -3_600_000), (-3_600_000, 0)];
        for (from, to) in moves {
            assert_eq!(jumps(&cluster, from, to).await, Some(true), "{from} to {to}");
        }
        // A session keeps the time of its transaction, and its clock goes on from the other side of the jump.
        cluster.move_clock(-3_600_000).unwrap();
        let slept = cluster
            .ask("SELECT pg_sleep(0.3), round(extract(epoch FROM clock_timestamp() - now()) * 10)")
            .await
            .unwrap();
        assert!(slept.trim_start_matches('|').parse::<u32>().unwrap() >= 3, "{slept}");
        // What rings, rings: libfaketime would make this wait for ever.
        let late = cluster.ask("SET statement_timeout = 200; SELECT pg_sleep(60)").await;
        assert!(format!("{:#}", late.unwrap_err()).contains("statement timeout"));
        // The replica has the same clock, and takes over with it.
        let before = cluster.read_clock().await.unwrap();
        cluster.fail_over().await.unwrap();
        let after = cluster.read_clock().await.unwrap();
        assert_eq!(after.jumped_by(&before, 3_600_000), Some(false));
        assert_eq!(jumps(&cluster, -3_600_000, 0).await, Some(true));
        // A fresh database is on a clock that nobody has moved.
        cluster.move_clock(3_600_000).unwrap();
        let before = cluster.read_clock().await.unwrap();
        cluster.fresh_database().await.unwrap();
        let after = cluster.read_clock().await.unwrap();
        assert_eq!(after.jumped_by(&before, -3_600_000), Some(true));
    }
}
