//! The official conformance suite of MCP, against a server on an official SDK directly and through Placet in front of it.
//!
//! Owns the comparison: what passes directly passes through Placet, but for what `conformance/differences.toml` lists with a reason. That list may only
//! shrink: a difference that is not in it fails, and so does one in it that is none any more. Every scenario of the suite that is for servers runs, in
//! each revision that both sides speak. The server is `tests/peers/conformance_server.py`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};
use url::Url;

use crate::{
    harness::{
        npm, pypi,
        setup::{Setup, local},
        watcher, within,
    },
    workspace,
};

/// The revisions that the suite, the server and Placet speak.
const REVISIONS: [&str; 3] = ["2025-06-18", "2025-11-25", "2026-07-28"];
/// The adapter's name for the server.
const ADAPTER: &str = "suite";
/// What the suite runs of each revision at least: as many scenarios as it had for it when this was written.
const SCENARIOS_MIN: usize = 27;
/// How long it may take for one revision: each scenario starts a client, and has ten seconds.
const SUITE_MAX: Duration = Duration::from_secs(90);

/// A check of a scenario, in a revision: `2025-11-25 ping:ping`.
type Check = String;

/// How the checks of a run ended.
#[derive(Debug, Default)]
struct Ended {
    scenarios: BTreeSet<String>,
    passed: BTreeSet<Check>,
    failed: BTreeMap<Check, String>,
}

impl Ended {
    /// Reads what the suite wrote: a folder for each scenario, `server-NAME-2026-11-26T03-38-31-835Z`.
    fn read(revision: &str, folder: &Path) -> Self {
        let mut ended = Self::default();
        for scenario in fs::read_dir(folder).unwrap() {
            let scenario = scenario.unwrap();
            let name = scenario.file_name().into_string().unwrap();
            let name = name.strip_prefix("server-").unwrap();
            let name = name.rsplitn(7, '-').nth(6).unwrap().to_owned();
            let text = fs::read_to_string(scenario.path().join("checks.json")).unwrap();
            let checks: Vec<Value> = serde_json::from_str(&text).unwrap();
            for check in checks {
                let id = format!("{revision} {name}:{}", check["id"].as_str().unwrap());
                match check["status"].as_str().unwrap() {
                    "SUCCESS" => drop(ended.passed.insert(id)),
                    "FAILURE" => drop(ended.failed.insert(id, check["errorMessage"].to_string())),
                    _ => {}
                }
            }
            ended.scenarios.insert(name);
        }
        // Ids repeat within a scenario: one that failed anywhere has failed.
        let Self { passed, failed, .. } = &mut ended;
        passed.retain(|check| !failed.contains_key(check));
        ended
    }

    /// What the suite found wrong, or that a check was not reached.
    fn why_not(&self, check: &str) -> &str {
        self.failed.get(check).map_or("not reached", String::as_str)
    }
}

/// The differences that are expected: each check with the reason.
fn expected() -> BTreeMap<Check, String> {
    let list = workspace::read("tests/it/conformance/differences.toml");
    let list: toml::Table = list.parse().unwrap();
    let mut expected = BTreeMap::new();
    for difference in list["difference"].as_array().unwrap() {
        let texts = |name: &str| -> Vec<String> {
            let values = difference[name].as_array().unwrap().iter();
            values.map(|value| value.as_str().unwrap().to_owned()).collect()
        };
        let reason = difference["reason"].as_str().unwrap();
        for revision in texts("revisions") {
            for check in texts("checks") {
                let check = format!("{revision} {check}");
                let before = expected.insert(check.clone(), reason.to_owned());
                assert!(before.is_none(), "{check} is listed twice");
            }
        }
    }
    expected
}

/// The suite's server, which prints its port.
pub(crate) async fn upstream() -> (Child, Url) {
    let mut child = Command::new(pypi::programs("mcp").join("python"))
        .arg(workspace::root().join("tests/peers/conformance_server.py"))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    watcher::watch(child.id());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = within("the server says its port", lines.next_line()).await.unwrap().unwrap();
    (child, local(port.parse().unwrap(), "/mcp"))
}

/// Imported as an operator would, and reviewed: each of its tools only reads.
async fn reviewed(server: &Url) -> Setup {
    let setup = Setup::new().with("contracts", json!("contracts"));
    let import = ["adapters", "import", "--name", ADAPTER, "--url", server.as_str()];
    setup.configured(&[&import[..], &["--private-network"]].concat()).await.ok();
    let mut contract = setup.read_contract(ADAPTER);
    for capability in contract["capabilities"].as_object_mut().unwrap().values_mut() {
        capability["mode"] = json!("read_only");
        capability["effect"] = json!("none");
        capability.as_object_mut().unwrap().remove("dedup");
    }
    fs::write(setup.contract_file(ADAPTER), contract.to_string()).unwrap();
    setup
}

/// Runs every scenario of a revision against the server at `url`.
async fn run(revision: &str, url: &Url, folder: PathBuf) -> Ended {
    let mut command = Command::new(npm::newest_node());
    command
        .arg(Path::new(&npm::modules()).join("@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--url", url.as_str(), "--suite", "all", "--spec-version", revision])
        .args(["--timeout", "10000", "-o"])
        .arg(&folder)
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true);
    // It ends with an error where a scenario fails: what it wrote says more.
    let ended = tokio::time::timeout(SUITE_MAX, command.output()).await;
    let output = ended.unwrap_or_else(|_| panic!("{revision}: not within {SUITE_MAX:?}")).unwrap();
    assert!(folder.is_dir(), "{revision}: {output:?}");
    Ended::read(revision, &folder)
}

#[tokio::test]
async fn what_passes_directly_passes_through_placet() {
    let (_server, url) = upstream().await;
    let setup = reviewed(&url).await;
    let placet = setup.start().await;
    let through = placet.url(&format!("/mcp/{ADAPTER}"));
    let expected = expected();
    let mut found = BTreeSet::new();
    let mut findings = Vec::new();
    for revision in REVISIONS {
        // One after the other: some scenarios have times of their own, which a busy machine must meet.
        let direct = run(revision, &url, setup.path(&format!("direct-{revision}"))).await;
        let governed = run(revision, &through, setup.path(&format!("governed-{revision}"))).await;
        assert_eq!(direct.scenarios, governed.scenarios, "{revision}");
        assert!(direct.scenarios.len() >= SCENARIOS_MIN, "{revision}: {:?}", direct.scenarios);
        // A server that fails would leave nothing to compare.
        assert_eq!(direct.failed, BTreeMap::new(), "{revision}: the server itself fails");
        for check in direct.passed.difference(&governed.passed) {
            found.insert(check.clone());
            if !expected.contains_key(check) {
                findings.push(format!("{check}: {}", governed.why_not(check)));
            }
        }
    }
    for (check, reason) in &expected {
        if !found.contains(check) {
            findings.push(format!("{check} passes: take it off the list ({reason})"));
        }
    }
    workspace::none(
        "through Placet, other than tests/it/conformance/differences.toml says",
        &findings,
    );
}
