//! I10 and I13: what ran is what people agreed to, once, under the policy of that moment; and what they agreed to ran.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Findings, Invariant,
    story::{Effect, KeyId, Story, people_agreed},
    world::World,
};
use crate::history::{
    journal::{ApprovalImage, AttemptImage, JournalEntry, RecordChange},
    request::Answer,
};

/// The successive states of an approval, with their entries.
type Course<'a> = Vec<(&'a JournalEntry, &'a ApprovalImage)>;

pub(super) fn check(world: &World<'_>, findings: &mut Findings) {
    let courses = courses(world);
    for (id, story) in &world.keys {
        agreed(world, &courses, id, story, findings);
        asked_for(id, story, findings);
    }
    once(world, &courses, findings);
    together(world, &courses, findings);
    refused(world, findings);
    voters(world, &courses, findings);
    taken_up(world, &courses, findings);
    bundles(world, findings);
}

fn courses<'a>(world: &World<'a>) -> BTreeMap<&'a str, Course<'a>> {
    let mut courses: BTreeMap<&str, Course<'a>> = BTreeMap::new();
    for entry in &world.entries {
        for approval in &entry.approvals {
            courses.entry(&approval.approval_id).or_default().push((entry, approval));
        }
    }
    courses
}

fn needs_approval(story: &Story<'_>) -> bool {
    story.ops.iter().any(|op| op.sent.needs_approval)
}

/// Every effect of a tool that needs approval happened under a valid one.
fn agreed(
    world: &World<'_>,
    courses: &BTreeMap<&str, Course<'_>>,
    id: &KeyId,
    story: &Story<'_>,
    findings: &mut Findings,
) {
    if !needs_approval(story) {
        return;
    }
    let attempts = story.attempts();
    for effect in &story.effects {
        let number = u32::try_from(effect.arrival.attempt).unwrap_or_default();
        // A dispatch that is missing from the log is another promise's affair.
        let Some((entry, attempt)) = attempts.get(&(effect.arrival.token.as_str(), number)) else {
            continue;
        };
        if let Err(why) = agreement(world, courses, entry, attempt) {
            let why = format!("effect {}: {why}", effect.number);
            findings.broken(Invariant::I10, id, why, story.told());
        }
    }
}

fn agreement(
    world: &World<'_>,
    courses: &BTreeMap<&str, Course<'_>>,
    dispatch: &JournalEntry,
    attempt: &AttemptImage,
) -> Result<(), String> {
    if attempt.grant.is_some() && attempt.approval_id.is_none() {
        // Whether that grant was valid is checked in `grants`.
        return Ok(());
    }
    let approval_id =
        attempt.approval_id.as_deref().ok_or("it was dispatched without an approval")?;
    let course =
        courses.get(approval_id).ok_or_else(|| format!("the log does not have {approval_id}"))?;
    let (_, approval) = course
        .iter()
        .rfind(|(entry, _)| world.is_before(entry, dispatch))
        .ok_or_else(|| format!("{approval_id} was asked for only later"))?;
    if !matches!(approval.state.as_str(), "approved" | "consumed") {
        return Err(format!("{approval_id} was {} then", approval.state));
    }
    people_agreed(&approval.agreed, approval.quorum, &approval.requesters)
        .map_err(|why| format!("{approval_id}: {why}"))?;
    if !approval.refused.is_empty() {
        return Err(format!("{approval_id} had been refused by {}", approval.refused.join(", ")));
    }
    if approval.request != attempt.request {
        return Err(format!("{approval_id} is for another request"));
    }
    // Valid for any clock: the commit itself compares these two.
    if dispatch.at_ms > approval.expires_ms {
        return Err(format!("{approval_id} had expired"));
    }
    Ok(())
}

/// The arguments that ran are those of a request that was answered as held.
fn asked_for(id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    let held = story.ops.iter().filter(|op| op.answer() == Some(Answer::Pending));
    let asked: BTreeSet<&str> = held.map(|op| op.sent.args.as_str()).collect();
    if asked.is_empty() {
        return;
    }
    for effect in &story.effects {
        if !asked.contains(effect.arrival.args.as_str()) {
            let why = format!(
                "effect {} has other arguments than those that were held for people",
                effect.number
            );
            findings.broken(Invariant::I10, id, why, story.told());
        }
    }
}

/// The approvals that effects happened under.
fn uses<'w, 'a>(world: &'w World<'a>) -> BTreeMap<&'a str, Vec<(&'w KeyId, Effect<'a>)>> {
    let mut uses: BTreeMap<&str, Vec<(&KeyId, Effect<'a>)>> = BTreeMap::new();
    for (id, story) in &world.keys {
        let attempts = story.attempts();
        for effect in &story.effects {
            let number = u32::try_from(effect.arrival.attempt).unwrap_or_default();
            let attempt = attempts.get(&(effect.arrival.token.as_str(), number));
            if let Some(approval) = attempt.and_then(|(_, attempt)| attempt.approval_id.as_deref())
            {
                uses.entry(approval).or_default().push((id, *effect));
            }
        }
    }
    uses
}

/// One approval, at most one effect; none if the approval ended otherwise.
fn once(world: &World<'_>, courses: &BTreeMap<&str, Course<'_>>, findings: &mut Findings) {
    for (approval, effects) in uses(world) {
        let told = || {
            effects
                .iter()
                .flat_map(|(id, _)| world.keys.get(*id).map(Story::told))
                .flatten()
                .collect()
        };
        if effects.len() > 1 {
            let why = format!("{} effects under one approval", effects.len());
            findings.broken(Invariant::I10, approval, why, told());
        }
        let last = courses.get(approval).and_then(|course| course.last());
        let never = last.filter(|(_, image)| matches!(image.state.as_str(), "denied" | "pending"));
        if let Some((_, image)) = never {
            let why = format!("an effect under an approval that is {} in the end", image.state);
            findings.broken(Invariant::I10, approval, why, told());
        }
    }
}

/// An approval is consumed in the commit of the dispatch that it is for: a crash between the two would lose the agreement.
fn together(world: &World<'_>, courses: &BTreeMap<&str, Course<'_>>, findings: &mut Findings) {
    for (approval, course) in courses {
        let consumed = course.iter().find(|(_, image)| image.state == "consumed");
        let Some((entry, image)) = consumed else { continue };
        let dispatches = |change: &RecordChange| match change {
            RecordChange::Put(record) => {
                record.state == "dispatched"
                    && record.record_id == image.record_id
                    && record.approval_id.as_deref() == Some(*approval)
            }
            RecordChange::Removed { .. } | RecordChange::Forgotten { .. } => false,
        };
        if !entry.changes.iter().any(dispatches) {
            let why = format!(
                "{}#{} consumed it without the dispatch that it was for",
                entry.log, entry.seq
            );
            let told = world.keys.values().find(|story| {
                story.written.iter().any(|one| one.change.record_id() == image.record_id)
            });
            findings.broken(
                Invariant::I10,
                approval,
                why,
                told.map(Story::told).unwrap_or_default(),
            );
        }
    }
}

/// An accepted denial is final.
fn refused(world: &World<'_>, findings: &mut Findings) {
    let uses = uses(world);
    for vote in world.votes.iter().filter(|vote| !vote.sent.approve) {
        let accepted = vote.reply.filter(|reply| reply.status < 300);
        let denied = accepted.is_some_and(|reply| reply.state.as_deref() == Some("denied"));
        let effects = uses.get(vote.sent.approval_id.as_str());
        if let (true, Some(effects)) = (denied, effects) {
            let told =
                effects.iter().flat_map(|(id, _)| world.keys.get(*id).map(Story::told)).flatten();
            let why =
                format!("{} said no, was told that it counts, and it ran", vote.sent.approver);
            findings.broken(Invariant::I10, &vote.sent.approval_id, why, told.collect());
        }
    }
}

/// Everybody recorded as having agreed has sent an approval, and was not told that it does not count.
fn voters(world: &World<'_>, courses: &BTreeMap<&str, Course<'_>>, findings: &mut Findings) {
    for (approval, course) in courses {
        let Some((entry, last)) = course.last() else {
            continue;
        };
        for person in &last.agreed {
            let mut said_yes = world.votes.iter().filter(|vote| {
                vote.sent.approval_id == *approval
                    && vote.sent.approver == *person
                    && vote.sent.approve
            });
            // A «yes» without an answer may have counted.
            if !said_yes.any(|vote| {
                vote.reply.is_none_or(|reply| reply.status < 300 || reply.status >= 500)
            }) {
                let why = format!(
                    "the log says that {person} agreed, who never did ({}#{})",
                    entry.log, entry.seq
                );
                findings.broken(Invariant::I10, approval, why, Vec::new());
            }
        }
    }
}

/// How much time an approval must have left for its call to be dispatched, in milliseconds.
const TAKEN_UP_MS: i64 = 1_500;

/// What was approved in time, after the faults had ended, was dispatched: nothing could prevent it from running any more.
fn taken_up(world: &World<'_>, courses: &BTreeMap<&str, Course<'_>>, findings: &mut Findings) {
    let Some(quiet) = world.quiet else { return };
    let agreed = world.votes.iter().filter(|vote| {
        let state = vote.reply.and_then(|reply| reply.state.as_deref());
        let is_agreed =
            matches!(state, Some("approved" | "running" | "succeeded" | "failed" | "unknown"));
        vote.at >= quiet && vote.sent.approve && is_agreed
    });
    for vote in agreed {
        let id = vote.sent.approval_id.as_str();
        let Some((_, last)) = courses.get(id).and_then(|course| course.last()) else { continue };
        let is_taken_up = last.state == "consumed";
        // An approval with little time left may have expired first.
        let left_ms = last.expires_ms.saturating_sub(vote.at.wall_ms);
        if !world.clocks_agree() || left_ms < TAKEN_UP_MS {
            continue;
        }
        if !is_taken_up {
            let why = format!(
                "{} agreed when the faults were over and was told so, and it did not run: it ended as {}",
                vote.sent.approver, last.state
            );
            findings.broken(Invariant::I13, id, why, Vec::new());
        }
    }
}

/// Every dispatch was permitted by the active policy; where the order of two logs is unknown, by the one before it.
fn bundles(world: &World<'_>, findings: &mut Findings) {
    let mut active: Option<&str> = None;
    let (mut since, mut by) = (i64::MIN, "");
    let mut earlier: Option<&str> = None;
    for entry in &world.entries {
        for bundle in activated(entry) {
            if active != Some(bundle) {
                (earlier, active, since) = (active, Some(bundle), entry.at_ms);
                by = &entry.log;
            }
        }
        let Some(active) = active else { continue };
        let put = |change: &'_ RecordChange| {
            let RecordChange::Put(image) = change else { return None };
            image.attempt.clone().filter(|_| image.state == "dispatched")
        };
        let attempts = entry.changes.iter().filter_map(put);
        for attempt in attempts
            .filter(|attempt| attempt.epoch == entry.epoch && attempt.owner == attempt.epoch)
        {
            if attempt.bundle == active {
                continue;
            }
            // Two logs can write within one millisecond: then their order is not known.
            let in_doubt =
                entry.log != by && entry.at_ms == since && earlier == Some(attempt.bundle.as_str());
            if !in_doubt {
                let why = format!(
                    "{}#{} dispatched what another policy than the active one had permitted",
                    entry.log, entry.seq
                );
                findings.broken(Invariant::I10, &attempt.token, why, Vec::new());
            }
        }
    }
}

/// The policies that an entry declares active.
fn activated(entry: &JournalEntry) -> impl Iterator<Item = &str> {
    let says = |kind: &str| matches!(kind, "started" | "bundle_activated");
    let events = entry.audit.iter().filter(move |event| says(&event.kind));
    events.filter_map(|event| event.digests.get("bundle").map(String::as_str))
}
