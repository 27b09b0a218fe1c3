//! What is remembered of tokens, so that a probe can be answered: one small file for each change, in a hidden folder of the root.
//!
//! Kept only for capabilities whose contract says `class: queryable`. A note is durable before the change it is about, names the very
//! file (by device, inode, size and time) that the change moves or removes, and is marked as done before the answer. Invariants: no
//! note means that nothing was changed; «committed» and «not found» are said only where the file system itself shows it, anything
//! else is unknown. Notes are never removed by the adapter: a forgotten one would read as «not found».

use std::{
    collections::BTreeSet,
    io::{self, Write as _},
    sync::Arc,
};

use parking_lot::Mutex;

use cap_std::fs::{Dir, Metadata, MetadataExt, OpenOptions};
use placet_adapter::outcome::{Answer, Probe};
use placet_types::envelope::result::Mutation;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    fault::Fault,
    path::RelativePath,
    tree::{Mark, Tree, sync_directory},
};

/// Where the notes are, below the root; nothing with this prefix can be named by a caller.
const FOLDER: &str = ".placet-effects";
/// The longest token that makes a file's name.
const TOKEN_BYTES_MAX: usize = 128;
/// The longest note that is read.
const NOTE_BYTES_MAX: u64 = 65_536;

/// Tokens whose operation is under way in this process, whatever connection it began on.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnderWay(Arc<Mutex<BTreeSet<String>>>);

impl UnderWay {
    /// Notes that an operation begins; it is over when what is returned is dropped.
    pub(crate) fn begin(&self, token: &str) -> Running {
        self.lock().insert(token.to_owned());
        Running { all: self.clone(), token: token.to_owned() }
    }

    pub(crate) fn has(&self, token: &str) -> bool {
        self.lock().contains(token)
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, BTreeSet<String>> {
        self.0.lock()
    }
}

/// One operation under way.
#[derive(Debug)]
pub(crate) struct Running {
    all: UnderWay,
    token: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.all.lock().remove(&self.token);
    }
}

/// Which file, so exactly that another one at its name is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    dev: u64,
    ino: u64,
    bytes: u64,
    mtime: i64,
    mtime_nsec: i64,
}

impl From<&Metadata> for Identity {
    fn from(metadata: &Metadata) -> Self {
        Self {
            dev: metadata.dev(),
            ino: metadata.ino(),
            bytes: metadata.len(),
            mtime: metadata.mtime(),
            mtime_nsec: metadata.mtime_nsec(),
        }
    }
}

/// How far a change has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Stage {
    /// Directories are about to be made; the file is not there yet.
    Directories,
    /// This temporary file is about to become the file.
    Write {
        /// Its name, in the same directory.
        temporary: String,
        /// Which file it is.
        file: Identity,
        /// Whether that is a rename, after which the temporary name is gone at once.
        renames: bool,
    },
    /// This file is about to be removed.
    Delete {
        /// Which file it is.
        file: Identity,
    },
    /// It has happened, durably.
    Done,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    version: u16,
    path: String,
    progress: Stage,
    output: Value,
    mutations: Vec<Mutation>,
}

impl Mark<'_> {
    /// Makes the intent durable, if this call keeps notes at all.
    pub(crate) fn intend(
        &self,
        tree: &Tree,
        path: &RelativePath,
        stage: Stage,
        answer: Option<&Answer>,
    ) -> Result<(), Fault> {
        let Some(token) = self.noting else { return Ok(()) };
        self.noted.set(true);
        keep(tree.root(), token, &note(path, stage, answer)).map_err(|error| {
            let why =
                format!("`{}`: no note of the call can be kept: {}", path.as_str(), error.kind());
            Fault::Unavailable(why)
        })
    }

    /// Marks the change as done. Without the mark a probe still finds the file itself, or says that it does not know.
    pub(crate) fn finish(&self, tree: &Tree, path: &RelativePath, answer: &Answer) {
        let Some(token) = self.noting else { return };
        if let Err(error) = keep(tree.root(), token, &note(path, Stage::Done, Some(answer))) {
            tracing::warn!(error = %error, "a change is not marked as done");
        }
    }

    /// Takes the intent of this call back, if it came so far: it changed nothing.
    pub(crate) fn retract(&self, tree: &Tree) {
        let Some(token) = self.noting.filter(|_| self.noted.get()) else { return };
        let removed = tree
            .root()
            .open_dir(FOLDER)
            .and_then(|folder| folder.remove_file(token).and_then(|()| sync_directory(&folder)));
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(error = %error, "a note of a call that changed nothing is left behind");
        }
    }
}

fn note(path: &RelativePath, stage: Stage, answer: Option<&Answer>) -> Note {
    Note {
        version: 1,
        path: path.as_str().to_owned(),
        progress: stage,
        output: answer.map_or(Value::Null, |answer| answer.output.clone()),
        mutations: answer.map(|answer| answer.mutations.clone()).unwrap_or_default(),
    }
}

/// Whether a token can be a file's name, as every real one can.
fn is_nameable(token: &str) -> bool {
    (1..=TOKEN_BYTES_MAX).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn keep(root: &Dir, token: &str, note: &Note) -> io::Result<()> {
    if !is_nameable(token) {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    match root.create_dir(FOLDER) {
        Ok(()) => sync_directory(root)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let folder = root.open_dir(FOLDER)?;
    let draft = format!("{token}.tmp");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut file = folder.open_with(&draft, &options)?;
    file.write_all(&serde_json::to_vec(note)?)?;
    file.sync_all()?;
    folder.rename(&draft, &folder, token)?;
    sync_directory(&folder)
}

/// What is known of a token.
pub(crate) fn probe(tree: &Tree, under_way: &UnderWay, token: &str) -> Probe {
    if !is_nameable(token) || under_way.has(token) {
        return Probe::Unknown;
    }
    match read(tree.root(), token) {
        Ok(Some(note)) => judge(tree.root(), &note),
        Ok(None) => Probe::NotFound,
        Err(error) => {
            tracing::warn!(error = %error, "a note cannot be read");
            Probe::Unknown
        }
    }
}

/// The note of a token; `None` only where there is none.
fn read(root: &Dir, token: &str) -> io::Result<Option<Note>> {
    use std::io::Read as _;
    let opened = root.open_dir(FOLDER).and_then(|folder| folder.open(token));
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(NOTE_BYTES_MAX).read_to_end(&mut bytes)?;
    let note: Note = serde_json::from_slice(&bytes)?;
    if note.version != 1 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Some(note))
}

fn judge(root: &Dir, note: &Note) -> Probe {
    let Ok(path) = RelativePath::parse(&note.path) else { return Probe::Unknown };
    let committed = || {
        Probe::Committed(Answer {
            output: note.output.clone(),
            mutations: note.mutations.clone(),
            ..Answer::default()
        })
    };
    let is = |at: &str, file: &Identity| {
        root.symlink_metadata(at).is_ok_and(|metadata| Identity::from(&metadata) == *file)
    };
    match &note.progress {
        Stage::Done => committed(),
        Stage::Directories => Probe::Unknown,
        Stage::Write { file, .. } if is(path.as_str(), file) => committed(),
        Stage::Write { temporary, file, renames: true } => {
            // Until the rename the temporary name is the file's, and never after it.
            let directory = path.split().map_or(".", |(directory, _)| directory);
            if is(&format!("{directory}/{temporary}"), file) {
                Probe::NotFound
            } else {
                Probe::Unknown
            }
        }
        Stage::Write { renames: false, .. } => Probe::Unknown,
        Stage::Delete { file } if is(path.as_str(), file) => Probe::NotFound,
        // It is gone, and somebody else may have removed it.
        Stage::Delete { .. } => Probe::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use cap_std::{
        ambient_authority,
        fs::{Dir, File},
    };
    use placet_adapter::outcome::{Answer, Probe};
    use serde_json::json;

    use super::{FOLDER, Identity, Stage, UnderWay, probe};
    use crate::files::{
        gate::Gate,
        path::RelativePath,
        tree::{Mark, Tree},
    };

    const TOKEN: &str = "plc_1";
    const TEMPORARY: &str = ".placet-plc_1-1.tmp";

    /// A root in which a process has died right after its intent was durable.
    struct Died {
        _folder: tempfile::TempDir,
        tree: Tree,
    }

    impl Died {
        fn before_writing(renames: bool) -> Self {
            Self::with(TEMPORARY, |file| Stage::Write {
                temporary: TEMPORARY.to_owned(),
                file,
                renames,
            })
        }

        fn with(name: &str, stage: impl FnOnce(Identity) -> Stage) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
            root.write(name, "ours").unwrap();
            let stage = stage(Identity::from(&root.symlink_metadata(name).unwrap()));
            let tree = Tree::new(root, 1_024);
            let (gate, path) = (Gate::default(), RelativePath::parse("a.txt").unwrap());
            let answer = Answer { output: json!({"ok": 1}), ..Answer::default() };
            let mark = Mark::new(&gate, TEMPORARY, Some(TOKEN));
            mark.intend(&tree, &path, stage, Some(&answer)).unwrap();
            Self { _folder: folder, tree }
        }

        fn probe(&self) -> &'static str {
            match probe(&self.tree, &UnderWay::default(), TOKEN) {
                Probe::Committed(answer) => {
                    assert_eq!(answer.output, json!({"ok": 1}));
                    "committed"
                }
                Probe::NotFound => "not found",
                Probe::Unknown => "unknown",
            }
        }
    }

    #[test]
    fn before_the_rename_nothing_happened_and_after_it_the_file_is_the_proof() {
        let died = Died::before_writing(true);
        assert_eq!(died.probe(), "not found");
        let root = died.tree.root();
        root.rename(TEMPORARY, root, "a.txt").unwrap();
        assert_eq!(died.probe(), "committed");
        // Somebody has put another file there, or changed it: it no longer proves anything.
        root.write("b.txt", "ours").unwrap();
        root.rename("b.txt", root, "a.txt").unwrap();
        assert_eq!(died.probe(), "unknown");
        root.remove_file("a.txt").unwrap();
        assert_eq!(died.probe(), "unknown");
    }

    #[test]
    fn a_file_that_was_linked_into_place_is_a_proof_and_its_absence_is_none() {
        let died = Died::before_writing(false);
        // It may have been linked, and then removed by somebody.
        assert_eq!(died.probe(), "unknown");
        died.tree.root().hard_link(TEMPORARY, died.tree.root(), "a.txt").unwrap();
        assert_eq!(died.probe(), "committed");
    }

    #[test]
    fn a_file_that_is_still_there_was_not_deleted_and_one_that_is_gone_says_nothing() {
        let died = Died::with("a.txt", |file| Stage::Delete { file });
        assert_eq!(died.probe(), "not found");
        died.tree.root().remove_file("a.txt").unwrap();
        assert_eq!(died.probe(), "unknown");
    }

    #[test]
    fn directories_that_may_have_been_made_are_unknown() {
        assert_eq!(Died::with("x", |_file| Stage::Directories).probe(), "unknown");
    }

    #[test]
    fn a_note_that_cannot_be_read_is_unknown_and_one_that_was_retracted_is_not_found() {
        let died = Died::with("a.txt", |_file| Stage::Done);
        assert_eq!(died.probe(), "committed");
        let notes = died.tree.root().open_dir(FOLDER).unwrap();
        let whole = notes.read(TOKEN).unwrap();
        for damaged in [&b""[..], &whole[..whole.len() / 2], &b"{\"version\": 2}"[..]] {
            notes.write(TOKEN, damaged).unwrap();
            assert_eq!(died.probe(), "unknown");
        }
        notes.write(TOKEN, whole).unwrap();
        let gate = Gate::default();
        // A call that never made an intent takes none back.
        Mark::new(&gate, TEMPORARY, Some(TOKEN)).retract(&died.tree);
        assert_eq!(died.probe(), "committed");
        let mark = Mark::new(&gate, TEMPORARY, Some(TOKEN));
        let path = RelativePath::parse("a.txt").unwrap();
        mark.intend(&died.tree, &path, Stage::Directories, None).unwrap();
        mark.retract(&died.tree);
        assert_eq!(died.probe(), "not found");
    }

    #[test]
    fn a_token_that_is_no_name_reaches_no_file() {
        let died = Died::before_writing(true);
        for token in ["", "..", "../a.txt", "a/b", ".", &"x".repeat(129)] {
            let found = probe(&died.tree, &UnderWay::default(), token);
            assert!(matches!(found, Probe::Unknown), "{token}");
        }
        let _kept: File = died.tree.root().open(TEMPORARY).unwrap();
    }

    #[test]
    fn a_token_is_unknown_as_long_as_its_operation_is_under_way() {
        let died = Died::before_writing(true);
        let under_way = UnderWay::default();
        let running = under_way.begin(TOKEN);
        assert!(matches!(probe(&died.tree, &under_way, TOKEN), Probe::Unknown));
        drop(running);
        assert!(matches!(probe(&died.tree, &under_way, TOKEN), Probe::NotFound));
    }
}
