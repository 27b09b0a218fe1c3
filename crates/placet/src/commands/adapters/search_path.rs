//! The `PATH` that an imported child process is started with.
//!
//! Owns which folders it has. Does not start anything.

use std::path::{Path, PathBuf};

use placet_types::contract::file::{EnvValue, TransportFile};

use crate::environment::Environment;

/// The usual folders of a system's programs.
const FOLDERS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Nothing is inherited, so a contract has to name the folders in which a program finds others: that of the command itself, in which
/// `npx` finds its `node`, and those of the system. The rest of this shell's PATH is not used.
pub(super) fn pass_on(transport: &mut TransportFile, environment: &Environment) {
    if let TransportFile::McpStdio { command, env, .. } = transport {
        let own = folder_of(command, environment);
        let system = FOLDERS.into_iter().map(PathBuf::from);
        let mut folders: Vec<PathBuf> = Vec::new();
        for folder in own.into_iter().chain(system) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        let path: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        env.entry("PATH".to_owned()).or_insert(EnvValue::Literal(path.join(":")));
    }
}

/// The folder in which a command is.
fn folder_of(command: &str, environment: &Environment) -> Option<PathBuf> {
    let command = Path::new(command);
    if command.is_absolute() {
        return command.parent().map(Path::to_path_buf);
    }
    let path = environment.get("PATH")?;
    let mut folders = path.split(':').map(PathBuf::from).filter(|folder| folder.is_absolute());
    folders.find(|folder| folder.join(command).is_file())
}
