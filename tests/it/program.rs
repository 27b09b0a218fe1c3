//! The built program.
//!
//! Owns how it is found: `PLACET_BIN` names it (`./test` sets that), else it is built once. Invariant: what is tested is the
//! program of this checkout, never one that happens to be installed.

use std::{
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

use super::workspace::root;

/// The program's file.
pub(crate) fn placet() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| std::env::var_os("PLACET_BIN").map_or_else(build, PathBuf::from)).clone()
}

/// Runs the program in `folder` without an environment, its help as wide as a page.
#[expect(clippy::disallowed_methods, reason = "this is the test of a program: it is started")]
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(placet())
        .arg0("placet")
        .args(arguments)
        .env_clear()
        .env("COLUMNS", "100")
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("the program starts")
}

/// What the program prints, which must succeed.
pub(crate) fn print(arguments: &[&str]) -> String {
    let output = run(&root().join("docs"), arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "placet {}: {error}", arguments.join(" "));
    String::from_utf8(output.stdout).expect("the program prints text")
}

#[expect(clippy::disallowed_methods, reason = "cargo is what builds the program")]
fn build() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    // What cargo tells a test about its own crate would make build scripts of others run again.
    let of_this_crate = |name: &str| {
        name.starts_with("CARGO_PKG")
            || name.starts_with("CARGO_MANIFEST")
            || name.starts_with("CARGO_BIN")
    };
    for (name, _) in std::env::vars().filter(|(name, _)| of_this_crate(name)) {
        cargo.env_remove(name);
    }
    let output = cargo
        .args(["build", "--package", "placet", "--bin", "placet", "--message-format", "json"])
        .current_dir(root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "the program does not build");
    let lines = String::from_utf8(output.stdout).expect("cargo writes text");
    let artifact = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message.get("executable")?.as_str()?))
    };
    lines.lines().filter_map(artifact).next_back().expect("cargo names the program")
}
