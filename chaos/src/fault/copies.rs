//! Copies of a node's folder that are started for themselves, and second processes on the same one (F13).
//!
//! Owns the copy: other listeners, and an upstream that nobody is. Invariant: a copy can have no effect.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use placet_chaos::history::fault::FaultKind;
use placet_testkit::port::free_port;
use url::Url;

use super::Injector;
use crate::{
    http::Api,
    node::{Launch, Node, Started},
    setup::Setup,
};

/// A copy of a node.
#[derive(Debug)]
pub(super) struct Copied {
    /// The node that runs on it.
    pub(super) node: Node,
    /// Its listeners.
    pub(super) api: Api,
}

impl Injector {
    /// Another process on the same data, or on a copy.
    pub(super) async fn second(&self, node: &Node, copied: bool) -> Result<()> {
        if copied {
            let copy = self.copy(node).await?;
            let came_up = matches!(copy.node.start().await?, Started::Up);
            copy.node.kill().await;
            let what = if came_up { "ran for itself" } else { "was refused" };
            let detail = format!("another process on a copy of the data {what}");
            self.cluster.scene.injected(FaultKind::F13, Some(node.number), detail);
            return Ok(fs::remove_dir_all(&copy.node.folder)?);
        }
        let _gate = node.gate.lock().await;
        let Some(holder) = node.pid() else { return Ok(()) };
        let second = self.twin(node, &node.folder)?;
        match second.node.start_with(&Launch::default()).await? {
            Started::Ended(status) => {
                let names_it = node.tail(8).contains(&holder.to_string());
                let detail = format!("a second process on the same data ended with {status}");
                self.cluster.scene.injected(FaultKind::F13, Some(node.number), detail);
                if status.success() || !names_it {
                    let found = "a second process on the same data was not told who has it";
                    self.cluster.scene.find(found.to_owned());
                }
            }
            Started::Up => {
                second.node.kill().await;
                self.cluster.scene.find("two processes ran on the same data".to_owned());
            }
        }
        Ok(())
    }

    /// A copy of the node's folder as it is at this moment, for a node of its own.
    pub(super) async fn copy(&self, node: &Node) -> Result<Copied> {
        let name = format!("copy-{}-{}", node.number, node.starts());
        let folder = (0..1_000)
            .map(|number| self.cluster.folder.join(format!("{name}-{number}")))
            .find(|path| !path.try_exists().unwrap_or(true))
            .context("there is no name for a copy")?;
        copy_folder(&node.folder, &folder).context("the node's folder cannot be copied")?;
        let witness = format!("http://127.0.0.1:{}/mcp", free_port()?);
        let setup = Setup { witness, ledger: None, ..self.cluster.setup.clone() };
        setup.write(node.number, &folder, &node.folder.join("data/dev-key.jwk"))?;
        self.twin(node, &folder)
    }

    /// A node with listeners of its own on a folder.
    pub(super) fn twin(&self, node: &Node, folder: &Path) -> Result<Copied> {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (listen, admin) = (address(free_port()?), address(free_port()?));
        let api =
            Api::new(vec![Url::parse(&format!("http://{listen}"))?], Duration::from_secs(10))?;
        let node = node.twin(folder.to_owned(), listen, admin, &self.cluster.machine);
        Ok(Copied { node, api })
    }
}

/// Copies files with their holes, so that a preallocated journal stays small on the disk. What a running node removes meanwhile, a file
/// or a whole folder of an index that was replaced, is none of the copy.
fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    let mut open = subfolders(from, to)?;
    while let Some((from, to)) = open.pop() {
        open.extend(unless_gone(subfolders(&from, &to))?.unwrap_or_default());
    }
    Ok(())
}

/// Copies the files of one folder, and says which folders are in it and where their copies belong.
fn subfolders(from: &Path, to: &Path) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let entries = fs::read_dir(from)?;
    fs::create_dir_all(to)?;
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let Some(kind) = unless_gone(entry.file_type())? else { continue };
        if kind.is_dir() {
            folders.push((entry.path(), target));
        } else if kind.is_file() {
            unless_gone(fs::copy(entry.path(), target))?;
        }
    }
    Ok(folders)
}

/// Nothing where what was asked for is no longer there.
fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn what_is_removed_while_it_is_copied_is_none_of_the_copy() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        fs::create_dir(&from).unwrap();
        fs::write(from.join("stays"), "x").unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    for number in 0..20 {
                        let inner = from.join(number.to_string());
                        fs::create_dir(&inner).unwrap();
                        fs::write(inner.join("file"), "y").unwrap();
                    }
                    for number in 0..20 {
                        fs::remove_dir_all(from.join(number.to_string())).unwrap();
                    }
                }
            });
            for number in 0..60 {
                let copied = copy_folder(&from, &folder.path().join(format!("to-{number}")));
                if copied.is_err() {
                    is_over.store(true, Ordering::SeqCst);
                }
                copied.unwrap();
            }
            is_over.store(true, Ordering::SeqCst);
        });
        assert_eq!(fs::read(folder.path().join("to-59/stays")).unwrap(), b"x");
    }

    #[test]
    fn a_folder_that_is_not_there_cannot_be_copied() {
        let folder = tempfile::tempdir().unwrap();
        assert!(copy_folder(&folder.path().join("none"), &folder.path().join("to")).is_err());
    }
}
