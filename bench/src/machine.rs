//! The machine that the numbers were taken on.
//!
//! Owns the look at the machine and at the file system of the data folder. What cannot be found out is called unknown.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    thread,
};

use serde::Serialize;

use crate::decisions::shipped_count;

/// The machine and the mode of the run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    /// The number of hardware threads.
    pub(crate) cores: usize,
    /// The processor's model.
    pub(crate) processor: String,
    /// The operating system's kernel.
    pub(crate) kernel: String,
    /// The load average of the minute before the run: the machine's other work.
    pub(crate) load: String,
    /// The file system of the data folder.
    pub(crate) file_system: String,
    /// Whether that file system is in memory, so that numbers about the disk are meaningless.
    pub(crate) in_memory: bool,
    /// How many policies are shipped, and decide about every call.
    pub(crate) policies: usize,
    /// The profile of this program; the measured one is of the same unless named.
    pub(crate) profile: &'static str,
}

impl Machine {
    /// Looks at this machine, and at the file system of `folder`.
    pub(crate) fn look(folder: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let file_system = fs::canonicalize(folder)
            .ok()
            .and_then(|folder| file_system(&read("/proc/self/mounts"), &folder));
        let file_system = file_system.unwrap_or_else(unknown);
        let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
        Self {
            cores: thread::available_parallelism().map_or(1, usize::from),
            processor: processor(&read("/proc/cpuinfo")).unwrap_or_else(unknown),
            kernel: if kernel.is_empty() {
                unknown()
            } else {
                format!("{} {kernel}", std::env::consts::OS)
            },
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .filter(|load| !load.is_empty())
                .map_or_else(unknown, str::to_owned),
            in_memory: matches!(file_system.as_str(), "tmpfs" | "ramfs"),
            file_system,
            policies: shipped_count(),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "- machine: {} cores, {}, {}; load before the run: {}",
            self.cores, self.processor, self.kernel, self.load
        )?;
        writeln!(f, "- data folder: {}", self.file_system)?;
        writeln!(f, "- writes: fdatasync before the call is made and before it is answered")?;
        writeln!(f, "- reads: audited before the call is made, synced within 50 ms")?;
        write!(f, "- policies: the {} shipped ones; profile: {}", self.policies, self.profile)?;
        if self.in_memory {
            write!(f, "\n- NOTE: the data folder is in memory: writes do not reach a disk")?;
        }
        if self.profile == "debug" {
            write!(f, "\n- NOTE: this is a debug build: the numbers mean nothing")?;
        }
        Ok(())
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// The model of the first processor in the text of `/proc/cpuinfo`.
fn processor(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    let (_, model) = line.split_once(':')?;
    Some(model.trim().to_owned()).filter(|model| !model.is_empty())
}

/// The type of the mount that contains `folder`, from the text of `/proc/self/mounts`.
fn file_system(mounts: &str, folder: &Path) -> Option<String> {
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let point = PathBuf::from(fields.next()?.replace("\\040", " "));
        let kind = fields.next()?.to_owned();
        folder.starts_with(&point).then(|| (point.components().count(), kind))
    };
    // Of two mounts at one place, the later one covers the other.
    mounts.lines().filter_map(mount).max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Machine, file_system, processor};

    const MOUNTS: &str = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/vdb /tmp/big\\040disk xfs rw 0 0\nover /srv ext4 rw 0 0\nover /srv overlay rw 0 0\n";

    #[test]
    fn the_file_system_is_that_of_the_nearest_mount() {
        let of = |folder: &str| file_system(MOUNTS, Path::new(folder));
        assert_eq!(of("/var/lib").as_deref(), Some("ext4"));
        assert_eq!(of("/tmp/x").as_deref(), Some("tmpfs"));
        assert_eq!(of("/tmpfile").as_deref(), Some("ext4"));
        assert_eq!(of("/tmp/big disk/x").as_deref(), Some("xfs"));
        assert_eq!(of("/srv").as_deref(), Some("overlay"));
        assert_eq!(file_system("", Path::new("/")), None);
    }

    #[test]
    fn the_processor_is_named_as_it_names_itself() {
        assert_eq!(
            processor("processor : 0\nmodel name\t: Fast One @ 3 GHz\nmodel name : other\n")
                .as_deref(),
            Some("Fast One @ 3 GHz")
        );
        assert_eq!(processor("Hardware : something else"), None);
    }

    #[test]
    fn a_machine_can_always_be_described() {
        let machine = Machine::look(Path::new("."));
        assert!(machine.cores > 0);
        assert!(
            !machine.file_system.is_empty()
                && !machine.processor.is_empty()
                && !machine.kernel.is_empty()
        );
    }
}
