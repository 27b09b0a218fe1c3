//! What the kernel denies a child process: TCP, and files that its contract does not name (Landlock).
//!
//! Owns the rules of one child and which of them this kernel cannot enforce. Starts nothing. Invariants: a path that cannot be opened
//! refuses the start; what the kernel offers is enforced completely or the child does not start.

use std::{io, path::Path};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus,
};
use placet_types::contract::process::ProcessFile;

use crate::text::printable;

/// From this version on (Linux 6.2) the rules cover truncation of files too.
const FILES: ABI = ABI::V3;
/// Since this version (Linux 6.7) the rules cover TCP.
const TCP: ABI = ABI::V4;

/// The limits that nothing on this machine enforces, as text for people; empty if all are enforced.
pub(crate) fn gaps(bounds: &ProcessFile) -> Vec<&'static str> {
    let tcp = bounds.network.is_none() && strict().handle_access(AccessNet::from_all(TCP)).is_err();
    let files =
        bounds.files.is_some() && strict().handle_access(AccessFs::from_all(FILES)).is_err();
    let gaps = [
        (tcp, "which TCP connections it opens and ports it binds"),
        (files, "which files it reads and changes"),
    ];
    gaps.into_iter().filter_map(|(open, what)| open.then_some(what)).collect()
}

/// A ruleset that fails for anything that this kernel cannot enforce.
fn strict() -> Ruleset {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement)
}

/// The rules of one child.
#[derive(Debug)]
pub(super) struct Rules {
    ruleset: RulesetCreated,
    /// Whether this kernel offers everything that the limits require.
    offered: bool,
}

impl Rules {
    /// The rules for these limits, if any are needed; relative paths begin in `data_dir`.
    ///
    /// # Errors
    /// Which path cannot be opened, or what the kernel refuses.
    pub(super) fn of(bounds: &ProcessFile, data_dir: &Path) -> Result<Option<Self>, String> {
        let without_tcp = bounds.network.is_none();
        if !without_tcp && bounds.files.is_none() {
            return Ok(None);
        }
        let text = |error: RulesetError| format!("the kernel refuses the rules: {error}");
        let mut ruleset = Ruleset::default();
        if without_tcp {
            ruleset = ruleset.handle_access(AccessNet::from_all(TCP)).map_err(text)?;
        }
        if bounds.files.is_some() {
            ruleset = ruleset.handle_access(AccessFs::from_all(FILES)).map_err(text)?;
        }
        let mut ruleset = ruleset.create().map_err(text)?;
        if let Some(files) = &bounds.files {
            let read = files.read.iter().map(|path| ("read", path, AccessFs::from_read(FILES)));
            let write = files.write.iter().map(|path| ("write", path, AccessFs::from_all(FILES)));
            for (key, named, access) in read.chain(write) {
                let path = data_dir.join(named);
                let opened = PathFd::new(&path).map_err(|error| {
                    let named = printable(named, 200);
                    format!(
                        "`{named}` of `process.files.{key}` cannot be opened, so the server is not started: {}",
                        std::error::Error::source(&error).map_or_else(String::new, ToString::to_string)
                    )
                })?;
                let is_file = !path.is_dir();
                let access = if is_file { access & AccessFs::from_file(FILES) } else { access };
                ruleset = ruleset.add_rule(PathBeneath::new(opened, access)).map_err(text)?;
            }
        }
        Ok(Some(Self { ruleset, offered: gaps(bounds).is_empty() }))
    }

    /// Binds the calling thread, and whatever it starts from now on.
    pub(super) fn restrict(self) -> io::Result<()> {
        let status =
            self.ruleset.restrict_self().map_err(|error| io::Error::other(error.to_string()))?;
        if self.offered && status.ruleset != RulesetStatus::FullyEnforced {
            return Err(io::Error::other("the kernel did not enforce the rules of its contract"));
        }
        Ok(())
    }
}
