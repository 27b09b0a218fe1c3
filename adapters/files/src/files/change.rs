//! The operations that change something: `write` and `delete`.
//!
//! Owns their order: everything that can fail without a trace comes first, then the gate, then one rename or unlink, then the sync
//! that makes it durable. Invariant: a file is replaced as a whole or not at all, and no temporary file outlives its call (but
//! for the death of the process, after which `list` leaves it out).

use std::io::{self, Write as _};

use cap_std::fs::{Dir, File, Metadata, MetadataExt, OpenOptions, Permissions};
use placet_adapter::outcome::Answer;
use placet_types::{digest::Digest, envelope::result::Mutation};
use serde_json::json;

use super::{
    fault::{Done, Fault},
    operation::{Delete, Write},
    path::RelativePath,
    tree::{Mark, Tree, digest_of, open_regular, require_file, sync_directory},
};

pub(crate) fn write(tree: &Tree, mark: &Mark<'_>, write: &Write) -> Done {
    let mut made = MadeDirectories(Vec::new());
    write_file(tree, mark, write, &mut made).map_err(|fault| made.undo(tree, fault))
}

fn written(write: &Write, created: bool, made: &MadeDirectories) -> Answer {
    let mut mutations = made.mutations();
    let action = if created { "create" } else { "update" };
    mutations.push(mutation(action, write.path.as_str()));
    let output = json!({
        "path": write.path.as_str(),
        "bytes": write.content.len(),
        "digest": Digest::of(&write.content),
        "created": created,
    });
    Answer { output, mutations, ..Answer::default() }
}

/// Writes the file.
fn write_file(tree: &Tree, mark: &Mark<'_>, write: &Write, made: &mut MadeDirectories) -> Done {
    let path = &write.path;
    let (directory, name) = split(path)?;
    let parent = open_parent(tree, mark, write, directory, made)?;
    let existing = target(&parent, name, path)?;
    check_write(&parent, name, write, existing.as_ref(), mark)?;
    let permissions = existing.map(|metadata| metadata.permissions());
    let temporary = Temporary::create(&parent, mark, path)?;
    temporary.fill(&write.content, permissions, path)?;
    let guard = tree.changes();
    let existing = target(&parent, name, path)?;
    check_write(&parent, name, write, existing.as_ref(), mark)?;
    let answer = written(write, existing.is_none(), made);
    if !mark.gate.pass() {
        return Err(Fault::Abandoned);
    }
    temporary.publish(name, write.overwrite).map_err(|error| Fault::at_change(path, &error))?;
    drop(guard);
    sync_directory(&parent).map_err(|error| not_durable(path, &error))?;
    Ok(answer)
}

fn check_write(
    parent: &Dir,
    name: &str,
    write: &Write,
    existing: Option<&Metadata>,
    mark: &Mark<'_>,
) -> Result<(), Fault> {
    let path = &write.path;
    match (existing, write.expected_digest) {
        (Some(_), _) if !write.overwrite => Err(Fault::Refused(format!(
            "`{}` exists already; to replace it, ask for `overwrite: true`, which is a destructive call",
            path.as_str()
        ))),
        (Some(_), Some(expected)) => {
            let (mut file, _) = open_regular(parent, name, path)?;
            require_digest(digest_of(&mut file, path, mark.gate)?, expected, path)
        }
        (None, Some(_)) => {
            Err(Fault::Refused(format!("no such file to replace: `{}`", path.as_str())))
        }
        (_, None) => Ok(()),
    }
}

pub(crate) fn delete(tree: &Tree, mark: &Mark<'_>, delete: &Delete) -> Done {
    let path = &delete.path;
    let (directory, name) = split(path)?;
    let parent = tree.root().open_dir(directory).map_err(|error| no_such_file(path, &error))?;
    if target(&parent, name, path)?.is_none() {
        return Err(Fault::Refused(format!("no such file: `{}`", path.as_str())));
    }
    let (mut file, opened) = open_regular(&parent, name, path)?;
    let digest = digest_of(&mut file, path, mark.gate)?;
    if let Some(expected) = delete.expected_digest {
        require_digest(digest, expected, path)?;
    }
    let guard = tree.changes();
    let seen = target(&parent, name, path)?;
    if !seen.is_some_and(|seen| is_unchanged(&opened, &seen)) {
        return Err(Fault::Refused(format!("`{}` was changed at the same time", path.as_str())));
    }
    let output =
        json!({ "path": path.as_str(), "deleted": true, "bytes": opened.len(), "digest": digest });
    let mutations = vec![mutation("delete", path.as_str())];
    let answer = Answer { output, mutations, ..Answer::default() };
    if !mark.gate.pass() {
        return Err(Fault::Abandoned);
    }
    parent.remove_file(name).map_err(|error| Fault::at_change(path, &error))?;
    drop(guard);
    sync_directory(&parent).map_err(|error| not_durable(path, &error))?;
    Ok(answer)
}

/// Whether a name still means the file that was opened, with the content it had then.
fn is_unchanged(opened: &Metadata, seen: &Metadata) -> bool {
    let identity = |metadata: &Metadata| {
        (metadata.dev(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
    };
    identity(opened) == identity(seen)
}

fn split(path: &RelativePath) -> Result<(&str, &str), Fault> {
    path.split().ok_or_else(|| Fault::Refused("`.` is a directory, not a file".to_owned()))
}

/// What is at the name a change is about: nothing or a regular file; anything else is refused.
fn target(parent: &Dir, name: &str, path: &RelativePath) -> Result<Option<Metadata>, Fault> {
    match parent.symlink_metadata(name) {
        Ok(metadata) => require_file(&metadata, path).map(|()| Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Fault::before(path, &error)),
    }
}

fn require_digest(
    found: Option<Digest>,
    expected: Digest,
    path: &RelativePath,
) -> Result<(), Fault> {
    let path = path.as_str();
    match found {
        Some(found) if found == expected => Ok(()),
        Some(_) => Err(Fault::Refused(format!(
            "`{path}` does not have the expected digest; read it again"
        ))),
        None => Err(Fault::Refused(format!("`{path}` is too large for `expected_digest`"))),
    }
}

fn no_such_file(path: &RelativePath, error: &io::Error) -> Fault {
    if error.kind() == io::ErrorKind::NotFound {
        Fault::Refused(format!("no such file: `{}`", path.as_str()))
    } else {
        Fault::before(path, error)
    }
}

fn not_durable(path: &RelativePath, error: &io::Error) -> Fault {
    Fault::Uncertain(format!(
        "`{}` was changed, but whether that is durable is not known: {}",
        path.as_str(),
        error.kind()
    ))
}

fn mutation(action: &str, target: &str) -> Mutation {
    Mutation { action: action.to_owned(), target: target.to_owned() }
}

/// Opens the directory a file is to be in, making it where the caller asks for that.
fn open_parent(
    tree: &Tree,
    mark: &Mark<'_>,
    write: &Write,
    directory: &str,
    made: &mut MadeDirectories,
) -> Result<Dir, Fault> {
    let missing = match tree.root().open_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => error,
        opened => return opened.map_err(|error| Fault::before(&write.path, &error)),
    };
    if !write.create_directories {
        return Err(Fault::Refused(format!(
            "`{}` has no directory to be in; `create_directories` makes it: {}",
            write.path.as_str(),
            missing.kind()
        )));
    }
    if !mark.gate.pass() {
        return Err(Fault::Abandoned);
    }
    for ancestor in write.path.ancestors() {
        made.make(tree, ancestor).map_err(|error| Fault::before(&write.path, &error))?;
    }
    tree.root().open_dir(directory).map_err(|error| Fault::before(&write.path, &error))
}

/// Directories created by a call, outermost first.
struct MadeDirectories(Vec<String>);

impl MadeDirectories {
    fn make(&mut self, tree: &Tree, directory: &str) -> io::Result<()> {
        match tree.root().create_dir(directory) {
            Ok(()) => self.0.push(directory.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            Err(error) => return Err(error),
        }
        let outer = directory.rsplit_once('/').map_or(".", |(outer, _)| outer);
        sync_directory(&tree.root().open_dir(outer)?)
    }

    fn mutations(&self) -> Vec<Mutation> {
        self.0.iter().map(|directory| mutation("create", &format!("{directory}/"))).collect()
    }

    /// Removes the directories again, which works unless something was put into them; returns the remaining fault.
    fn undo(mut self, tree: &Tree, fault: Fault) -> Fault {
        if matches!(fault, Fault::Uncertain(_)) {
            return fault;
        }
        while let Some(directory) = self.0.last() {
            if tree.root().remove_dir(directory).is_err() {
                let message = format!("{}; directories made for it are left", fault.message());
                return Fault::Partial(message, self.mutations());
            }
            self.0.pop();
        }
        fault
    }
}

/// A temporary file next to its target; removed unless it is published.
struct Temporary<'a> {
    parent: &'a Dir,
    name: &'a str,
    file: File,
}

impl<'a> Temporary<'a> {
    fn create(parent: &'a Dir, mark: &Mark<'a>, path: &RelativePath) -> Result<Self, Fault> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let name = mark.temporary;
        let file =
            parent.open_with(name, &options).map_err(|error| before_writing(path, &error))?;
        Ok(Self { parent, name, file })
    }

    fn fill(
        &self,
        content: &[u8],
        permissions: Option<Permissions>,
        path: &RelativePath,
    ) -> Result<(), Fault> {
        let fill = || {
            let mut file = &self.file;
            file.write_all(content)?;
            if let Some(permissions) = permissions {
                file.set_permissions(permissions)?;
            }
            file.sync_all()
        };
        fill().map_err(|error| before_writing(path, &error))
    }

    /// Puts the file at `name`. An existing file is replaced, or it is kept and this fails.
    fn publish(self, name: &str, overwrite: bool) -> io::Result<()> {
        if overwrite {
            self.parent.rename(self.name, self.parent, name)
        } else {
            // A link, unlike a rename, fails when the name is taken.
            self.parent.hard_link(self.name, self.parent, name)
        }
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        match self.parent.remove_file(self.name) {
            Ok(()) => {}
            // Renamed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(name = self.name, error = %error, "a temporary file is left behind")
            }
        }
    }
}

fn before_writing(path: &RelativePath, error: &io::Error) -> Fault {
    Fault::Unavailable(format!("`{}` was not written: {}", path.as_str(), error.kind()))
}

#[cfg(test)]
mod tests {
    use cap_std::{ambient_authority, fs::Dir};

    use super::{Mark, RelativePath, Temporary};
    use crate::files::gate::Gate;

    /// Another program takes the name after it was last checked.
    #[test]
    fn a_name_taken_at_the_last_moment_is_kept_unless_it_may_be_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        let path = RelativePath::parse("a.txt").unwrap();
        let (gate, temporary) = (Gate::default(), ".placet-t.tmp");
        for (overwrite, content) in [(false, "theirs"), (true, "ours")] {
            root.write("a.txt", "theirs").unwrap();
            let ours = Temporary::create(&root, &Mark { gate: &gate, temporary }, &path).unwrap();
            ours.fill(b"ours", None, &path).unwrap();
            assert_eq!(ours.publish("a.txt", overwrite).is_ok(), overwrite);
            assert_eq!(root.read_to_string("a.txt").unwrap(), content);
            assert!(!root.try_exists(temporary).unwrap());
        }
    }
}
