//! The environment: variables, the program's own name and path. The only module that reads them.
//!
//! Owns only the reading. Everything else gets an [`Environment`], so that tests can choose its content.

use std::{
    env, fmt,
    path::{Path, PathBuf},
};

/// Finds a variable.
type Lookup = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The variables a command may look at.
pub(crate) struct Environment {
    lookup: Lookup,
    program: String,
    executable: Option<PathBuf>,
}

impl fmt::Debug for Environment {
    /// Values are not shown: some are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("program", &self.program).finish_non_exhaustive()
    }
}

impl Environment {
    /// The environment of this process.
    pub(crate) fn of_this_process() -> Self {
        let program = env::args_os().next().map(|name| name.to_string_lossy().into_owned());
        Self {
            lookup: Box::new(|name| env::var(name).ok()),
            program: program.filter(|name| !name.is_empty()).unwrap_or_else(|| "placet".to_owned()),
            executable: env::current_exe().ok(),
        }
    }

    /// A fictitious environment for a test.
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(variables: [(&str, &str); N]) -> Self {
        let variables: std::collections::BTreeMap<String, String> = variables
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self {
            lookup: Box::new(move |name| variables.get(name).cloned()),
            program: "placet".to_owned(),
            executable: None,
        }
    }

    /// A variable that is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    /// How the program was called, for commands that a person can copy.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// The name of this machine, where the operating system tells it.
    pub(crate) fn host_name() -> Option<String> {
        let text = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
        Some(text.trim().to_owned()).filter(|name| !name.is_empty())
    }

    /// The program's file, for starting it again.
    pub(crate) fn executable(&self) -> Option<&Path> {
        self.executable.as_deref()
    }
}
