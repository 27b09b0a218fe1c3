//! I14 and I15: the log is complete and agrees with the nodes; no secret is stored or sent anywhere.

use std::collections::{BTreeMap, BTreeSet};

use super::{Findings, Invariant, world::World};
use crate::history::{
    journal::{JournalEntry, RecordChange, RecordImage},
    probe::{Probe, RecordRow},
};

pub(super) fn check(world: &World<'_>, findings: &mut Findings) {
    chains(world, findings);
    checks(world, findings);
    listings(world, findings);
    approvals(world, findings);
    listings_agree(world, findings);
    secrets(world, findings);
}

/// Every log is contiguous and chained, and ends where its head says.
fn chains(world: &World<'_>, findings: &mut Findings) {
    let mut logs: BTreeMap<&str, Vec<&JournalEntry>> = BTreeMap::new();
    for entry in &world.entries {
        logs.entry(&entry.log).or_default().push(entry);
    }
    for (log, entries) in &logs {
        for pair in entries.windows(2) {
            let [before, after] = pair else { continue };
            if after.seq != before.seq.saturating_add(1) {
                let why = format!("entry {} follows entry {}", after.seq, before.seq);
                findings.broken(Invariant::I14, log, why, Vec::new());
            }
            if !after.prev.is_empty() && !before.hash.is_empty() && after.prev != before.hash {
                let why = format!("entry {} is not chained to the one before", after.seq);
                findings.broken(Invariant::I14, log, why, Vec::new());
            }
            if after.at_ms < before.at_ms {
                let why = format!("time goes back at entry {}", after.seq);
                findings.broken(Invariant::I14, log, why, Vec::new());
            }
        }
    }
    for probe in &world.probes {
        let Probe::LogEnd { log, entries, head } = probe else { continue };
        let last = logs.get(log.as_str()).and_then(|entries| entries.last());
        let (seq, hash) = last.map_or((0, ""), |last| (last.seq, last.hash.as_str()));
        if seq != *entries || !hash.is_empty() && !head.is_empty() && hash != head {
            let why = format!(
                "it was said to end with entry {entries}, and ends with {seq}, or with another head"
            );
            findings.broken(Invariant::I14, log, why, Vec::new());
        }
    }
}

/// The program's own checks found nothing.
fn checks(world: &World<'_>, findings: &mut Findings) {
    let ends: Vec<(u64, &str)> = world
        .probes
        .iter()
        .filter_map(|probe| {
            let Probe::LogEnd { entries, head, .. } = probe else { return None };
            Some((*entries, head.as_str()))
        })
        .collect();
    for probe in &world.probes {
        let Probe::Verified { check, node, ok, entries, head, problem } = probe else { continue };
        let subject = node.map_or_else(|| check.clone(), |node| format!("{check} of node {node}"));
        if !ok {
            let why = problem.clone().unwrap_or_else(|| "it found something".to_owned());
            findings.broken(Invariant::I14, &subject, why, Vec::new());
        }
        // A head that was verified is the head of some log that was exported, at the same length or a shorter one.
        let fits = |end: &(u64, &str)| match (entries, head) {
            (Some(entries), Some(head)) if *entries == end.0 => head == end.1,
            (Some(entries), _) => *entries <= end.0,
            (None, Some(head)) => head == end.1,
            (None, None) => true,
        };
        if *ok && !ends.is_empty() && !ends.iter().any(fits) {
            let why = "it verified another log than the one that was exported".to_owned();
            findings.broken(Invariant::I14, &subject, why, Vec::new());
        }
    }
}

/// The records as replayed from the log.
fn replayed<'a>(world: &World<'a>) -> BTreeMap<&'a str, &'a RecordImage> {
    let mut records = BTreeMap::new();
    for written in world.keys.values().flat_map(|story| &story.written) {
        match written.change {
            RecordChange::Put(image) => records.insert(image.record_id.as_str(), &**image),
            RecordChange::Removed { record_id, .. } | RecordChange::Forgotten { record_id, .. } => {
                records.remove(record_id.as_str())
            }
        };
    }
    records
}

/// A node's listing agrees with the log.
fn listings(world: &World<'_>, findings: &mut Findings) {
    let replayed = replayed(world);
    for probe in &world.probes {
        let Probe::Records { tenant, node, records } = probe else { continue };
        let mut listed: BTreeSet<&str> = BTreeSet::new();
        for row in records {
            listed.insert(&row.record_id);
            let why = match replayed.get(row.record_id.as_str()) {
                None if waits(row) && was_written(world, &row.record_id) => None,
                None => {
                    Some(format!("node {node} lists it as {}, the log does not have it", row.state))
                }
                Some(image) => differs(row, image)
                    .map(|what| format!("node {node} and the log differ: {what}")),
            };
            if let Some(why) = why {
                findings.broken(Invariant::I14, &row.record_id, why, Vec::new());
            }
        }
        for (record_id, image) in replayed.iter().filter(|(_, image)| image.tenant == *tenant) {
            if !listed.contains(record_id) {
                let why =
                    format!("the log has it as {}, node {node} does not list it", image.state);
                findings.broken(Invariant::I14, record_id, why, Vec::new());
            }
        }
    }
}

/// Whether evidence ended the record's unknown outcome by itself. That may happen at any moment, also between a listing and the end
/// of the log; that the evidence is true, and of the right attempt, is for others to judge (I9, REAL).
fn came_to_light(image: &RecordImage) -> bool {
    image.resolved.as_ref().is_some_and(|resolved| resolved.by != "operator")
}

/// Whether it waits for people: it may expire, and its key become free, between a listing and the end of the log.
fn waits(row: &RecordRow) -> bool {
    matches!(row.state.as_str(), "pending_approval" | "approved")
}

/// Whether its approval expired.
fn nobody_came(image: &RecordImage) -> bool {
    // With a short retention, a tombstone may have replaced that end.
    let end = image.was.as_deref().unwrap_or(&image.state);
    end == "denied" && image.code.as_deref() == Some("APPROVAL_EXPIRED")
}

fn was_written(world: &World<'_>, record_id: &str) -> bool {
    let mut written = world.keys.values().flat_map(|story| &story.written);
    written.any(|written| written.change.record_id() == record_id)
}

fn differs(row: &RecordRow, image: &RecordImage) -> Option<String> {
    let came = row.state == "indeterminate" && came_to_light(image);
    let over = waits(row) && nobody_came(image);
    if came || over || image.was.as_deref() == Some(row.state.as_str()) {
        return None;
    }
    if row.state != image.state {
        return Some(format!("{} and {}", row.state, image.state));
    }
    if row.attempts != image.attempts {
        return Some(format!("{} and {} attempts", row.attempts, image.attempts));
    }
    let token = image.attempt.as_ref().map(|attempt| &attempt.token);
    if token.is_some() && row.token.is_some() && token != row.token.as_ref() {
        return Some("two tokens".to_owned());
    }
    (row.call_id != image.call_id).then(|| "two calls".to_owned())
}

/// Records with their states.
type Rows<'a> = BTreeSet<(&'a str, &'a str)>;

/// All nodes list the same.
fn listings_agree(world: &World<'_>, findings: &mut Findings) {
    let mut first: BTreeMap<&str, (u32, Rows<'_>)> = BTreeMap::new();
    let replayed = replayed(world);
    let moved = |image: &RecordImage| {
        came_to_light(image) || nobody_came(image) || image.state == "tombstone"
    };
    let stands = |row: &&RecordRow| {
        let image = replayed.get(row.record_id.as_str());
        image.map_or_else(|| !waits(row), |image| !moved(image))
    };
    for probe in &world.probes {
        let Probe::Records { tenant, node, records } = probe else { continue };
        let rows: Rows<'_> = records
            .iter()
            .filter(stands)
            .map(|row| (row.record_id.as_str(), row.state.as_str()))
            .collect();
        let (other, known) = first.entry(tenant).or_insert_with(|| (*node, rows.clone()));
        if let Some((record, state)) = known.symmetric_difference(&rows).next() {
            let why = format!(
                "nodes {other} and {node} list different records, such as {record} as {state}"
            );
            findings.broken(Invariant::I14, format!("tenant {tenant}"), why, Vec::new());
        }
    }
}

/// The listed approvals are those of the log.
fn approvals(world: &World<'_>, findings: &mut Findings) {
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    for entry in &world.entries {
        last.extend(
            entry.approvals.iter().map(|one| (one.approval_id.as_str(), one.state.as_str())),
        );
    }
    for probe in &world.probes {
        let Probe::Approvals { approvals, node, .. } = probe else { continue };
        for row in approvals {
            let known = last.get(row.approval_id.as_str()).copied().unwrap_or("absent");
            // It may expire between the listing and the end of the log.
            let over = known == "expired" && matches!(row.state.as_str(), "pending" | "approved");
            // A dispatched call is listed by its outcome, which is checked with its record.
            let sent = matches!(
                row.state.as_str(),
                "running" | "succeeded" | "failed" | "unknown" | "sent"
            );
            if known != row.state && !over && !(known == "consumed" && sent) {
                let why = format!("node {node} lists it as {}, the log says {known}", row.state);
                findings.broken(Invariant::I14, &row.approval_id, why, Vec::new());
            }
        }
    }
}

/// I15: no secret is in an answer or on the disk; leased credentials were returned.
fn secrets(world: &World<'_>, findings: &mut Findings) {
    let reads = world.reads.iter().filter_map(|op| op.reply());
    let replies = world.replies().map(|(_, _, at, reply)| (at, reply)).chain(reads);
    for (_, reply) in replies {
        if !reply.leaks.is_empty() {
            let why =
                format!("the answer to request {} holds {}", reply.request, reply.leaks.join(", "));
            findings.broken(Invariant::I15, format!("request {}", reply.request), why, Vec::new());
        }
    }
    for probe in &world.probes {
        if let Probe::Secrets { hits, .. } = probe {
            for hit in hits {
                findings.broken(Invariant::I15, hit, "a secret stands there", Vec::new());
            }
        }
    }
}
