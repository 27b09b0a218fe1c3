//! MCP servers that others wrote, an OpenID provider and a browser's driver, from npm; and the small server of our own.
//!
//! Owns their installation below `target/e2e/npm`, once for all tests. Invariant: without Node and npm the tests that need them
//! fail and say so; none is skipped.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};
use url::Url;

use super::{setup::local, within};
use crate::workspace;

/// `node`, as an absolute path.
pub(crate) fn node() -> String {
    found("node").to_str().unwrap().to_owned()
}

/// The `node` of npm, for programs that need a newer one than may be on PATH; where npm has none for this machine, that one.
pub(crate) fn newest_node() -> String {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let newest = installed().join(format!("node-linux-{arch}/bin/node"));
    if newest.is_file() { newest.to_str().unwrap().to_owned() } else { node() }
}

/// The program of an installed server, to be given to `node`.
pub(crate) fn server(package: &str) -> String {
    let script = installed().join("@modelcontextprotocol").join(package).join("dist/index.js");
    assert!(
        script.is_file(),
        "{} is not there: remove {} to install again",
        script.display(),
        installed().display()
    );
    script.to_str().unwrap().to_owned()
}

/// The folder with the installed packages, for scripts of ours.
pub(crate) fn modules() -> String {
    installed().to_str().unwrap().to_owned()
}

/// Chromium, which the console is shown in.
pub(crate) fn chromium() -> String {
    found("chromium").to_str().unwrap().to_owned()
}

/// Our own server, which behaves as its first argument says.
pub(crate) fn stub() -> String {
    workspace::root().join("tests/peers/stub.mjs").to_str().unwrap().to_owned()
}

/// The stub over HTTP, which notes what it is sent: where it listens.
pub(crate) async fn stub_over_http(record: &Path) -> (Child, Url) {
    let mut command = tokio::process::Command::new(node());
    command.arg(stub()).arg("http").arg(record).env_clear();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = within("the stub says its port", lines.next_line()).await.unwrap().unwrap();
    (child, local(port.parse().unwrap(), "/mcp"))
}

/// The contract of the stub over stdio: one read, one write, one destructive tool, pinned by nobody yet.
pub(crate) fn stub_contract(adapter: &str, arguments: &[&str]) -> Value {
    let mut args = vec![stub()];
    args.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    json!({
        "contract_version": "placet.contract.v1", "adapter": adapter, "environment": "dev", "tenants": "all",
        "transport": { "type": "mcp_stdio", "command": node(), "args": args },
        "protocol_version": "2025-11-25",
        "limits": { "connect_ms_max": 1_500, "breaker_failures": 1_000 },
        "capabilities": {
            "look": { "mode": "read_only", "effect": "none", "input_schema": schema(), "pin": PIN },
            "note": {
                "mode": "local_write", "effect": "write", "dedup": { "class": "opaque" },
                "input_schema": schema(), "pin": PIN
            },
        }
    })
}

/// A digest of nothing in particular.
const PIN: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

fn schema() -> Value {
    json!({ "type": "object", "properties": { "what": { "type": "string" } }, "required": ["what"], "additionalProperties": false })
}

/// The folder `node_modules`: `./test` names one that it has filled, else it is filled here.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| std::env::var_os("PLACET_E2E_NPM").map_or_else(install, PathBuf::from))
}

/// Installs what `tests/npm` locks, unless it is there already.
#[expect(
    clippy::disallowed_methods,
    reason = "npm is a program, and a test installs with it what it tests against"
)]
fn install() -> PathBuf {
    let folder = workspace::root().join("target/e2e/npm");
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.with_extension("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let wanted = workspace::read("tests/npm/package-lock.json");
    let done = folder.join("installed-lock.json");
    if fs::read_to_string(&done).is_ok_and(|text| text == wanted) {
        return folder.join("node_modules");
    }
    fs::write(folder.join("package.json"), workspace::read("tests/npm/package.json")).unwrap();
    fs::write(folder.join("package-lock.json"), &wanted).unwrap();
    let output = Command::new(found("npm"))
        .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .output()
        .expect("npm starts");
    assert!(
        output.status.success(),
        "the MCP servers for the end-to-end tests cannot be installed with npm:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::write(done, wanted).unwrap();
    folder.join("node_modules")
}

/// A program on PATH.
fn found(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).map(|folder| folder.join(name));
    places.into_iter().find(|file| file.is_file()).unwrap_or_else(|| {
        panic!("`{name}` is not on PATH: the end-to-end tests need Node 20 or newer with npm, and Chromium")
    })
}
