//! How many files and connections this process may have open.
//!
//! Owns the kernel's limit for it. What is open beside connections: the journal, the state, adapters, telemetry, the database.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::load::Config;

/// How many may be open beside the connections of callers.
const BESIDE: u64 = 256;

/// Raises the limit to the most that the system lets this process have: the usual one is that of programs with few files.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Where it is refused, the limit stays as it is, and is compared with what is needed.
    let _kept = setrlimit(Resource::Nofile, raised);
}

/// Why the limit is too low for the connections that the configuration allows, if it is.
pub(crate) fn shortage(config: &Config) -> Option<String> {
    let limit = getrlimit(Resource::Nofile).current?;
    let needed = u64::try_from(config.server.connections_max.size()).ok()?.saturating_add(BESIDE);
    (limit < needed).then(|| {
        format!("this process may have {limit} files and connections open, and may need {needed}")
    })
}

/// What to do about it.
pub(crate) const REMEDY: &str = "raise the limit (`LimitNOFILE` under systemd, `ulimit -Hn` in a shell), or lower `http.connections_max`";
