//! Data folders of other versions (F21): an older one opens with its open records, a newer one is refused.
//!
//! Owns the kept folder of an older version and what must be found in it. Invariant: neither of them has anything to do with the
//! deployment under test, and no effect.

use std::{collections::BTreeMap, fs, io::Write as _, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail};
use placet_chaos::history::{fault::FaultKind, node::NodeChange};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Injector, copies::Copied};
use crate::{
    http::{Answered, Bearer},
    node::{Launch, Started},
    setup::put,
};

/// What an older program has left: a call that succeeded, one that waits for people, one that was under way.
const KEPT: &str = include_str!("../../fixtures/records-v1.json");
/// Longer than anybody will keep this test.
const FOR_EVER_S: u64 = 3_000_000_000;

#[derive(Debug, Deserialize)]
struct Kept {
    older: BTreeMap<String, Content>,
    newer: BTreeMap<String, Content>,
}

#[derive(Debug, Deserialize)]
struct Content {
    length: u64,
    hex: String,
}

impl Injector {
    /// Opens an older and a newer folder.
    pub(super) async fn versions(&self) -> Result<()> {
        let kept: Kept = serde_json::from_str(KEPT).context("the kept folder is none")?;
        self.older(&kept).await?;
        self.newer(&kept).await
    }

    async fn older(&self, kept: &Kept) -> Result<()> {
        let copy = self.unpack("older", &[&kept.older])?;
        match copy.node.start_with(&Launch::default()).await? {
            Started::Ended(status) => {
                let why = copy.node.tail(4);
                self.cluster
                    .scene
                    .find(format!("records of version 1 are not read ({status}): {why}"));
            }
            Started::Up => {
                self.cluster.scene.injected(
                    FaultKind::F21,
                    None,
                    "records of version 1 were opened",
                );
                if let Some(wrong) = self.found_in(&copy).await? {
                    self.cluster.scene.find(format!("records of version 1: {wrong}"));
                }
                copy.node.kill().await;
            }
        }
        Ok(fs::remove_dir_all(&copy.node.folder)?)
    }

    async fn newer(&self, kept: &Kept) -> Result<()> {
        let copy = self.unpack("newer", &[&kept.older, &kept.newer])?;
        match copy.node.start_with(&Launch::default()).await? {
            Started::Ended(_) => {
                let why = copy.node.tail(4);
                self.cluster
                    .scene
                    .note(copy.node.number, NodeChange::Refused { why, rightly: true });
                self.cluster.scene.injected(
                    FaultKind::F21,
                    None,
                    "a record of version 9 was refused",
                );
            }
            Started::Up => {
                self.cluster.scene.find("a record of a version to come was read".to_owned());
                copy.node.kill().await;
            }
        }
        Ok(fs::remove_dir_all(&copy.node.folder)?)
    }

    /// What is wrong with what came of the older folder.
    async fn found_in(&self, copy: &Copied) -> Result<Option<String>> {
        let (agent, operator) =
            (token(copy, "agent", "dev-agent").await?, token(copy, "user", "ben").await?);
        let call = json!({
            "tool": "files__write", "args": { "path": "done.txt", "content": "x" }, "idempotency_key": "kept-done",
            "approval_mode_requested": "local_write",
            "run": { "run_id": "kept", "safety_mode": "destructive" },
        });
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let replay = copy.api.post(0, "/v1/calls", &agent, call.to_string().into()).await;
            let listed = copy.api.get(0, "/v1/ledger?limit=50", &operator).await;
            let void = copy.api.get(0, "/v1/approvals?state=void", &operator).await;
            let wrong = match (replay, listed, void) {
                (Ok(replay), Ok(listed), Ok(void)) => judge(&replay, &listed, &void),
                _ => Some("there is no answer".to_owned()),
            };
            // What was under way is looked at after the listeners are open.
            if wrong.is_none() || Instant::now() >= until {
                return Ok(wrong);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn unpack(&self, name: &str, layers: &[&BTreeMap<String, Content>]) -> Result<Copied> {
        let folder = self.cluster.folder.join(format!("records-{name}"));
        // A round may hold the step twice.
        if folder.try_exists()? {
            fs::remove_dir_all(&folder)?;
        }
        for (path, content) in layers.iter().copied().flatten() {
            write(&folder.join("data").join(path), content)?;
        }
        let mut config = json!({ "data": "data" });
        if let (true, Some(fields)) = (self.cluster.setup.abilities.ledger, config.as_object_mut())
        {
            fields.insert("ledger".to_owned(), json!({ "retention": { "results_s": FOR_EVER_S } }));
        }
        put(&folder.join("placet.yaml"), config.to_string().as_bytes())?;
        self.twin(self.cluster.nodes.first().context("there is no node")?, &folder)
    }
}

/// What is wrong with a replay, a list of records and a list of void approvals.
fn judge(replay: &Answered, listed: &Answered, void: &Answered) -> Option<String> {
    let document = replay.json();
    if document.get("replayed") != Some(&Value::Bool(true)) {
        return Some(format!("what had succeeded is answered {} {document}", replay.status));
    }
    let listed = listed.json();
    let mut states: Vec<&str> = listed
        .get("records")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|record| record.get("state")?.as_str())
        .collect();
    states.sort_unstable();
    // The held call may have expired by now. Once the tool's contract has changed its approval is void, and it has no record.
    let is_held = |state: &&str| matches!(*state, "denied" | "pending_approval");
    let (held, others): (Vec<&str>, Vec<&str>) = states.into_iter().partition(is_held);
    let void = void.json();
    let void = void.get("approvals").and_then(Value::as_array).map_or(0, Vec::len);
    let fits = held.len().saturating_add(void) == 1 && others == ["indeterminate", "succeeded"];
    (!fits).then(|| format!("its records are {others:?} and {held:?}, with {void} void approvals"))
}

async fn token(copy: &Copied, kind: &str, name: &str) -> Result<Bearer> {
    let (code, said) = copy.node.run(&["token", kind, name], Duration::from_secs(30)).await?;
    if code != Some(0) {
        bail!("no token for `{name}`: {said}");
    }
    Bearer::new(said.trim())
}

fn write(path: &Path, content: &Content) -> Result<()> {
    let bytes = hex::decode(&content.hex).context("the kept folder is no hexadecimal text")?;
    fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    let mut file = fs::File::create(path)?;
    file.write_all(&bytes)?;
    // What was preallocated is zeros.
    Ok(file.set_len(content.length)?)
}

#[cfg(test)]
mod tests {
    use super::{KEPT, Kept};

    #[test]
    fn the_kept_folder_can_be_read_and_the_newer_one_differs_from_it() {
        let kept: Kept = serde_json::from_str(KEPT).unwrap();
        assert!(kept.older.keys().any(|path| path.ends_with(".pack")));
        for (path, newer) in &kept.newer {
            let older = &kept.older[path];
            assert_eq!((older.length, older.hex.len()), (newer.length, newer.hex.len()), "{path}");
            assert_ne!(older.hex, newer.hex, "{path}");
        }
    }
}
