//! I10 for standing grants: what ran without an approval of its own ran under a grant that people had approved, and no more often than it
//! permits.
//!
//! Owns the counting of uses, in the log and at the target. Two dispatches with one token are one use: the second repeats the first.
//! Invariant: the number of permitted uses is what people requested, if the history has that, and not what the log says.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Findings, Invariant,
    story::{Story, people_agreed},
    world::World,
};
use crate::history::journal::{AttemptImage, DirectiveImage, JournalEntry, RecordChange};

/// A standing grant in a run.
#[derive(Debug, Default)]
struct Course<'a> {
    /// Its successive states, with their entries.
    images: Vec<(&'a JournalEntry, &'a DirectiveImage)>,
    /// Its uses by token: the entry of the first dispatch, and the dispatch.
    uses: BTreeMap<&'a str, (&'a JournalEntry, &'a AttemptImage)>,
    /// Tokens that had an effect.
    effects: BTreeSet<&'a str>,
    told: Vec<String>,
}

pub(super) fn check(world: &World<'_>, findings: &mut Findings) {
    let asked: BTreeMap<&str, u32> =
        world.grants.iter().map(|asked| (asked.approval_id.as_str(), asked.uses_max)).collect();
    for (grant, course) in courses(world) {
        for why in faults_of(world, grant, &course, &asked) {
            findings.broken(Invariant::I10, grant, why, course.told.clone());
        }
    }
    spent_apart(world, findings);
}

fn courses<'a>(world: &World<'a>) -> BTreeMap<&'a str, Course<'a>> {
    let mut courses: BTreeMap<&str, Course<'a>> = BTreeMap::new();
    for entry in &world.entries {
        for image in entry.directives.iter().filter(|image| image.grant.is_some()) {
            courses.entry(&image.directive_id).or_default().images.push((entry, image));
        }
    }
    for story in world.keys.values() {
        take_uses(&mut courses, story);
    }
    courses
}

fn take_uses<'a>(courses: &mut BTreeMap<&'a str, Course<'a>>, story: &Story<'a>) {
    let attempts = story.attempts();
    for ((token, number), (entry, attempt)) in &attempts {
        let Some(grant) = attempt.grant.as_deref() else { continue };
        let course = courses.entry(grant).or_default();
        course.uses.entry(token).or_insert((entry, attempt));
        course.told.extend(story.told());
        let happened = story.effects.iter().any(|effect| {
            effect.arrival.token == *token
                && u32::try_from(effect.arrival.attempt).is_ok_and(|attempt| attempt == *number)
        });
        if happened {
            course.effects.insert(token);
        }
    }
}

fn faults_of(
    world: &World<'_>,
    grant: &str,
    course: &Course<'_>,
    asked: &BTreeMap<&str, u32>,
) -> Vec<String> {
    let Some((_, last)) = course.images.last() else {
        return vec![format!(
            "{} calls used {grant}, which the log does not have",
            course.uses.len()
        )];
    };
    let Some(gives) = &last.grant else { return Vec::new() };
    let uses_max = asked.get(gives.approval_id.as_str()).copied().unwrap_or(gives.uses_max);
    let used = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let mut faults = Vec::new();
    if gives.uses_max != uses_max {
        faults.push(format!("{uses_max} uses were asked for, and it has {}", gives.uses_max));
    }
    if used(course.uses.len()) > uses_max {
        faults.push(format!("{} calls used a grant of {uses_max}", course.uses.len()));
    }
    if used(course.effects.len()) > uses_max {
        faults.push(format!("{} effects under a grant of {uses_max}", course.effects.len()));
    }
    // The end records the number of uses until then, so no clock is needed to detect a later one.
    let ended = course.images.iter().find(|(_, image)| image.state == "ended");
    if let Some((_, end)) = ended.filter(|(_, end)| used(course.uses.len()) > end.uses) {
        let uses = course.uses.len();
        faults.push(format!("{uses} calls used it, {} of them before it was ended", end.uses));
    }
    for (entry, attempt) in course.uses.values() {
        faults.extend(agreement(world, course, entry, attempt).err());
    }
    faults
}

/// Whether people had agreed to the grant when a call used it.
fn agreement(
    world: &World<'_>,
    course: &Course<'_>,
    dispatch: &JournalEntry,
    attempt: &AttemptImage,
) -> Result<(), String> {
    let token = &attempt.token;
    let active = course.images.iter().find(|(_, image)| image.state == "active");
    let Some((_, image)) = active.filter(|(entry, _)| world.is_before(entry, dispatch)) else {
        return Err(format!("{token} used it before it was in force"));
    };
    let requesters = image.grant.iter().flat_map(|grant| &grant.requesters);
    people_agreed(&image.agreed, image.quorum, requesters)?;
    if dispatch.at_ms >= image.expires_ms {
        return Err(format!("{token} used it when its time was over"));
    }
    Ok(())
}

/// A use is counted in the commit of its dispatch: in a separate one a crash would lose the one or the other.
fn spent_apart(world: &World<'_>, findings: &mut Findings) {
    let mut paid: BTreeSet<(&str, &str)> = BTreeSet::new();
    for entry in &world.entries {
        let dispatched: Vec<&AttemptImage> = entry.changes.iter().filter_map(dispatch_of).collect();
        let place = format!("{}#{}", entry.log, entry.seq);
        let own =
            |grant: &str| dispatched.iter().any(|attempt| attempt.grant.as_deref() == Some(grant));
        if let Some(grant) = entry.spend.as_deref().filter(|grant| !own(grant)) {
            let why = format!("{place} counted a use without the dispatch that it was for");
            findings.broken(Invariant::I10, grant, why, Vec::new());
        }
        for attempt in &dispatched {
            let Some(grant) = attempt.grant.as_deref() else { continue };
            let is_first = paid.insert((grant, &attempt.token));
            if is_first && entry.spend.as_deref() != Some(grant) {
                let why =
                    format!("{place} dispatched {} under it, and counted no use", attempt.token);
                findings.broken(Invariant::I10, grant, why, Vec::new());
            }
        }
    }
}

fn dispatch_of(change: &RecordChange) -> Option<&AttemptImage> {
    match change {
        RecordChange::Put(image) if image.state == "dispatched" => image.attempt.as_ref(),
        RecordChange::Put(_) | RecordChange::Removed { .. } | RecordChange::Forgotten { .. } => {
            None
        }
    }
}
