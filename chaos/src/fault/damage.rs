//! Damage to a stopped store (F12): refused, or repaired without loss; never served in silence.
//!
//! Owns the damaging of a copy and the verdict about what the program makes of it.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use placet_chaos::history::{
    fault::FaultKind,
    node::NodeChange,
    request::{Answer, Reply},
};
use tokio::time::{Instant, sleep};

use super::{Injector, copies::Copied};
use crate::{
    load::call::Call,
    node::{Node, Started},
    schedule::Damage,
    seeded::Chance,
    setup::SECRET,
};

/// What an entry of the journal begins with.
const ENTRY: &[u8; 4] = b"PLJF";
/// How long a node has to find damage before its checkpoint.
const VERIFIED: Duration = Duration::from_secs(20);
/// The most calls that are made again on a copy.
const CHECKED_MAX: usize = 60;

impl Injector {
    /// Damages a copy of a killed node, and sees what the program makes of it.
    pub(super) async fn damage(
        &self,
        node: &Node,
        damage: Damage,
        chance: &mut Chance,
    ) -> Result<()> {
        let (copy, acknowledged) = {
            let _gate = node.gate.lock().await;
            // What was acknowledged before the kill is what must be there.
            let acknowledged: Vec<Arc<Call>> = self
                .load
                .calls()
                .into_iter()
                .filter(|call| call.key.is_some() && call.last() == Some(Answer::Succeeded))
                .collect();
            if let Some(status) = node.kill().await {
                self.cluster.note_end(node, status);
            }
            let copy = self.copy(node).await?;
            self.cluster.bring_up(node).await?;
            (copy, acknowledged)
        };
        if inflict(&copy.node.data().join("ledger"), damage, chance)? {
            let verdict = self.judge(&copy, damage, &acknowledged).await?;
            let detail = format!("{damage:?}: {verdict}");
            self.cluster.scene.injected(FaultKind::F12, None, detail);
        }
        Ok(fs::remove_dir_all(&copy.node.folder)?)
    }

    async fn judge(
        &self,
        copy: &Copied,
        damage: Damage,
        acknowledged: &[Arc<Call>],
    ) -> Result<&'static str> {
        let must_refuse =
            matches!(damage, Damage::Flip | Damage::Zero | Damage::Truncate | Damage::RolledBack);
        match copy.node.start().await? {
            Started::Ended(status) => {
                let why = copy.node.tail(4);
                let rightly = must_refuse || damage == Damage::Content;
                if !rightly || status.success() {
                    self.cluster
                        .scene
                        .find(format!("{damage:?}: it did not start ({status}): {why}"));
                }
                self.cluster.scene.note(copy.node.number, NodeChange::Refused { why, rightly });
                Ok("refused")
            }
            Started::Up => {
                let verified = matches!(damage, Damage::Flip | Damage::Zero);
                if verified && let Some(status) = copy.node.gone_within(VERIFIED).await {
                    // What a checkpoint covers is verified while calls are served.
                    let why = copy.node.tail(4);
                    let rightly = !status.success() && why.contains("not what was written");
                    self.cluster.scene.note(copy.node.number, NodeChange::Refused { why, rightly });
                    return Ok("refused when it was verified");
                }
                if must_refuse {
                    self.cluster
                        .scene
                        .find(format!("{damage:?} of the journal was served in silence"));
                } else {
                    self.compare(copy, damage, acknowledged).await;
                }
                copy.node.kill().await;
                Ok(if must_refuse { "served" } else { "repaired" })
            }
        }
    }

    /// Makes acknowledged calls again on the copy: the same result, or an error that says so; never another.
    async fn compare(&self, copy: &Copied, damage: Damage, acknowledged: &[Arc<Call>]) {
        let scene = &self.cluster.scene;
        let until = Instant::now() + Duration::from_secs(20);
        for call in acknowledged.iter().rev().take(CHECKED_MAX) {
            let Some(known) = call.digest() else { continue };
            let again = loop {
                let answer = call.send_aside(scene, &copy.api).await;
                let secrets = [("witness".to_owned(), SECRET.to_owned())];
                let reply = answer.map(|a| Reply::read(0, a.status, &a.body, &secrets));
                // A result that was altered is refused for good; everything else may only not be ready yet.
                let waits =
                    |status: u16| status == 409 || (status == 503 && damage != Damage::Content);
                match reply {
                    Ok(reply) if !waits(reply.status) => break Some(reply),
                    _ if Instant::now() >= until => break None,
                    _ => sleep(Duration::from_millis(50)).await,
                }
            };
            let Some(reply) = again else {
                return scene.find(format!("{damage:?}: a copy gives no answer"));
            };
            let same = reply.result.as_ref().is_some_and(|result| result.digest == known);
            // In a round with a short retention the result may have been dropped in due course.
            let says_so = reply.answer == Answer::Expired
                || (damage == Damage::Content && reply.answer != Answer::Succeeded);
            if !same && !says_so {
                scene.find(format!(
                    "{damage:?}: the copy answers {reply:?} for a call that had succeeded"
                ));
            }
        }
    }
}

/// Damages a ledger; false when there is nothing that could be damaged so.
fn inflict(ledger: &Path, damage: Damage, chance: &mut Chance) -> Result<bool> {
    match damage {
        Damage::Index => {
            let files = files_below(&ledger.join("index"))?;
            for path in &files {
                let length = usize::try_from(fs::metadata(path)?.len())?;
                fs::write(path, vec![0xA5; length])?;
            }
            Ok(!files.is_empty())
        }
        Damage::Content => {
            let files = files_below(&ledger.join("content"))?;
            let Some(path) = chance.pick(&files) else { return Ok(false) };
            let mut bytes = fs::read(path)?;
            let at = chance.index(bytes.len());
            let Some(byte) = bytes.get_mut(at) else { return Ok(false) };
            *byte ^= 1;
            fs::write(path, bytes)?;
            Ok(true)
        }
        Damage::Flip | Damage::Zero | Damage::Truncate | Damage::RolledBack | Damage::TornTail => {
            journal(ledger, damage, chance)
        }
    }
}

fn journal(ledger: &Path, damage: Damage, chance: &mut Chance) -> Result<bool> {
    let segments: Vec<PathBuf> = files_below(&ledger.join("journal"))?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "segment"))
        .collect();
    let Some(last) = segments.last() else { return Ok(false) };
    let bytes = fs::read(last)?;
    let used = used(&bytes);
    let entries: Vec<usize> = bytes
        .get(..used)
        .unwrap_or_default()
        .windows(ENTRY.len())
        .enumerate()
        .filter(|(_, window)| window == ENTRY)
        .map(|(at, _)| at)
        .collect();
    // Two at the end are left alone: they may not have been acknowledged.
    let Some(early) = entries.len().checked_sub(6) else { return Ok(false) };
    let Some(at) = entries.get(chance.index(early.max(1))).copied() else { return Ok(false) };
    let file = OpenOptions::new().write(true).open(last).context("the journal cannot be opened")?;
    let place = |at: usize| u64::try_from(at).unwrap_or(u64::MAX);
    match damage {
        Damage::Flip => {
            let at = at.saturating_add(chance.index(80));
            let byte = bytes.get(at).copied().unwrap_or(0) ^ (1 << chance.within(0..8));
            file.write_all_at(&[byte], place(at))?;
        }
        Damage::Zero => file.write_all_at(&[0; 64], place(at))?,
        Damage::Truncate => file.set_len(place(at.saturating_add(20)))?,
        Damage::RolledBack => {
            file.write_all_at(&vec![0; used.saturating_sub(at)], place(at))?;
        }
        Damage::TornTail => {
            let mut torn = ENTRY.to_vec();
            torn.extend((0..40).map(|_| u8::try_from(chance.within(1..256)).unwrap_or(1)));
            file.write_all_at(&torn, place(used))?;
        }
        Damage::Index | Damage::Content => return Ok(false),
    }
    file.sync_all()?;
    Ok(true)
}

/// How much of a preallocated journal is written: what follows is zeros.
fn used(bytes: &[u8]) -> usize {
    const PAGE: usize = 4_096;
    let empty = [0; PAGE];
    let pages = bytes.chunks(PAGE).rposition(|page| empty.get(..page.len()) != Some(page));
    let end = pages.map_or(0, |page| page.saturating_add(1).saturating_mul(PAGE)).min(bytes.len());
    let written = bytes.get(..end).unwrap_or_default().iter().rposition(|byte| *byte != 0);
    written.map_or(0, |at| at.saturating_add(1))
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("`{}`", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::used;

    #[test]
    fn the_zeros_at_the_end_are_not_used() {
        assert_eq!(used(&[]), 0);
        assert_eq!(used(&[0; 9_000]), 0);
        let mut bytes = vec![0; 20_000];
        bytes[5_000] = 7;
        assert_eq!(used(&bytes), 5_001);
        bytes[19_999] = 7;
        assert_eq!(used(&bytes), 20_000);
    }
}
