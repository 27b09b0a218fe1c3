//! I8: a node that was shut out does not write.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Findings, Invariant,
    story::{KeyId, Story},
    world::World,
};
use crate::history::probe::Probe;

pub(super) fn check(world: &World<'_>, findings: &mut Findings) {
    logs(world, findings);
    fences(world, findings);
    for (id, story) in &world.keys {
        revisions(id, story, findings);
        owners(world, id, story, findings);
    }
}

/// Within a log, epochs only grow.
fn logs(world: &World<'_>, findings: &mut Findings) {
    let mut latest: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in &world.entries {
        let latest = latest.entry(&entry.log).or_insert(entry.epoch);
        if entry.epoch < *latest {
            let why = format!(
                "entry {} was written by epoch {} after epoch {latest} had begun",
                entry.seq, entry.epoch
            );
            findings.broken(Invariant::I8, &entry.log, why, Vec::new());
        }
        *latest = entry.epoch.max(*latest);
    }
}

/// After an epoch ended, it has no later entry, as far as the database's clock can tell: the end is dated by the database, the entry
/// perhaps by a node that has seen a later time.
fn fences(world: &World<'_>, findings: &mut Findings) {
    let fenced: BTreeMap<u64, i64> = world
        .probes
        .iter()
        .filter_map(|probe| {
            let Probe::Fenced { epoch, at_ms, .. } = probe else { return None };
            Some((*epoch, *at_ms))
        })
        .collect();
    for entry in &world.entries {
        if let Some(at_ms) = fenced.get(&entry.epoch).filter(|at_ms| entry.at_ms > **at_ms) {
            let why = format!(
                "entry {} was written {} ms after epoch {} had been shut out",
                entry.seq,
                entry.at_ms.saturating_sub(*at_ms),
                entry.epoch
            );
            findings.broken(Invariant::I8, &entry.log, why, Vec::new());
        }
    }
}

/// Two writers that both believed to be the only one write the same revision twice.
fn revisions(id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    let mut seen: BTreeSet<u64> = BTreeSet::new();
    for written in &story.written {
        if written.image().is_none() {
            seen.clear();
            continue;
        }
        let rev = written.change.rev();
        if seen.last().is_some_and(|last| rev <= *last) {
            let why = format!(
                "revision {rev} was written after revision {}",
                seen.last().copied().unwrap_or_default()
            );
            findings.broken(Invariant::I8, id, why, story.told());
            return;
        }
        seen.insert(rev);
    }
}

/// A record that was taken over is not settled by its former owner; an older epoch may take it over in turn, once the later one has
/// ended.
fn owners(world: &World<'_>, id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    for pair in story.written.windows(2) {
        let [before, after] = pair else { continue };
        let owner = before
            .image()
            .filter(|image| image.state == "dispatched")
            .and_then(|image| image.attempt.as_ref())
            .map(|attempt| attempt.owner);
        let adopts = |owner: &u64| {
            let next = after.image().filter(|image| image.state == "dispatched");
            let own = next.and_then(|image| image.attempt.as_ref()).map(|attempt| attempt.owner);
            own == Some(after.entry.epoch) && is_over(world, *owner, after.entry.at_ms)
        };
        let later = owner.filter(|owner| after.entry.epoch < *owner);
        if let Some(owner) = later.filter(|owner| !adopts(owner)) {
            let why =
                format!("epoch {} wrote what epoch {owner} had taken over", after.entry.epoch);
            findings.broken(Invariant::I8, id, why, story.told());
        }
    }
}

/// Whether the database had recorded the end of an epoch by then.
fn is_over(world: &World<'_>, epoch: u64, by_ms: i64) -> bool {
    world.probes.iter().any(|probe| {
        matches!(probe, Probe::Fenced { epoch: over, at_ms, .. } if *over == epoch && *at_ms <= by_ms)
    })
}
