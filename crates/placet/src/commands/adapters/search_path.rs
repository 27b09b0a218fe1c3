//! The `PATH` that an imported child process is started with.
//!
//! Owns which folders it has. Does not start anything.

use std::path::{Path, PathBuf};

use placet_types::contract::file::{EnvValue, TransportFile};

use crate::environment::Environment;

/// Where the programs of a system are.
const FOLDERS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Nothing is inherited, so that a contract has to say where programs start others from: the folder of the command itself, in which `npx`
/// finds its `node`, and those of the system. What else is on the PATH of this shell concerns no one else.
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
