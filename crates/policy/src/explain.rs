//! Why a call was decided as it was, in words, for operators and auditors. Never for the caller.
//!
//! Owns the wording. Reads a decision and the bundle it came from; decides nothing.

use placet_types::approval::Requirement;
use serde::Serialize;

use crate::{
    annotations::PolicyMeta,
    decision::{Decision, DenialKind, Determining, Outcome, PolicyEffect},
    snapshot::Snapshot,
    verdict::Verdict,
};

/// A decision in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The lines, the outcome first.
    pub lines: Vec<String>,
    /// The decision they are about.
    pub decision: Decision,
    /// What would have to be agreed to, where the call is held.
    pub requirement: Option<Requirement>,
}

impl Explanation {
    /// Explains a verdict by the snapshot that gave it.
    pub fn of(snapshot: &Snapshot, verdict: &Verdict) -> Self {
        let decision = verdict.decision().clone();
        let requirement = match verdict {
            Verdict::Hold(hold) => Some(hold.requirement.clone()),
            Verdict::Permit(_) | Verdict::Deny(_) => None,
        };
        let mut lines = vec![headline(&decision), modes(&decision)];
        lines.extend(decision.lowered_by.iter().map(|one| {
            let reason = one.reason.as_ref().map(|reason| format!(": {reason}"));
            let (policy, reason) = (&one.policy, reason.unwrap_or_default());
            format!("policy `{policy}` lowers it for {}{reason}", one.link.as_str())
        }));
        lines.extend(decision.notes.iter().map(|note| format!("note: {note}")));
        lines.extend(
            decision
                .errors
                .iter()
                .map(|error| format!("error: {error}; a call is never allowed past an error")),
        );
        lines.extend(decision.determining.iter().map(determining));
        lines.extend(
            requirement.as_ref().map(|needed| format!("needs: {}", requirement_line(needed))),
        );
        lines.extend(missing_permits(snapshot, &decision));
        lines.push(format!("bundle: {}", decision.bundle_digest));
        Self { lines, decision, requirement }
    }
}

fn headline(decision: &Decision) -> String {
    let what = match decision.outcome {
        Outcome::Allow => "is allowed",
        Outcome::Hold => "waits for people",
        Outcome::Deny(DenialKind::Lockdown) => "is denied while the lockdown lasts",
        Outcome::Deny(DenialKind::Budget) => "is denied for lack of budget",
        Outcome::Deny(DenialKind::Ceiling) => "is denied: it is stronger than its run may be",
        Outcome::Deny(DenialKind::ModeUpgraded) => {
            "is refused: it is stronger than what was asked for"
        }
        Outcome::Deny(DenialKind::Policy) => "is denied, and no approval would help",
        Outcome::Deny(DenialKind::ApprovalRefused) => "is denied: a person said no",
        Outcome::Deny(DenialKind::ApprovalExpired) => "is denied: its approval has expired",
        Outcome::Deny(DenialKind::ApprovalChanged) => {
            "is denied: what was approved is not what would run"
        }
        Outcome::Deny(DenialKind::NobodyToAsk) => "is denied: nobody can be asked about it",
        Outcome::Deny(DenialKind::Error) => "is denied because it could not be decided",
    };
    format!("{} {what}", decision.capability)
}

fn modes(decision: &Decision) -> String {
    let how =
        if decision.mode_effective < decision.mode_highest { ", lowered by policy" } else { "" };
    format!(
        "mode: {}{how}; asked for: {}; the contract's: {}",
        decision.mode_effective, decision.mode_requested, decision.mode_highest
    )
}

fn determining(one: &Determining) -> String {
    let verb = match one.effect {
        PolicyEffect::Permit => "permits it to",
        PolicyEffect::Forbid => "forbids it to",
    };
    let reason = one.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("policy `{}` {verb} {}{reason}", one.policy, one.link.as_str())
}

/// Who has to agree, in a line.
pub fn requirement_line(requirement: &Requirement) -> String {
    let people =
        |count: u32| if count == 1 { "1 person".to_owned() } else { format!("{count} people") };
    let groups: Vec<String> = requirement
        .groups
        .iter()
        .map(|(group, count)| format!("{} of `{group}`", people(*count)))
        .collect();
    let each = requirement.groups.values().copied().fold(0, u32::saturating_add);
    let several = if requirement.groups.len() > 1 && requirement.quorum < each {
        " (somebody in several of the groups counts for each)"
    } else {
        ""
    };
    let mut line = format!(
        "{} in all{several}, {}, within {}",
        people(requirement.quorum),
        groups.join(" and "),
        how_long(requirement.expires_in_ms)
    );
    for later in &requirement.escalations {
        let (after, whom) = (how_long(later.after_ms), people(later.people));
        line.push_str(&format!("; after {after} {whom} of `{}` instead", later.group));
    }
    if requirement.deny_threshold > 1 {
        line.push_str(&format!("; {} saying no end it", people(requirement.deny_threshold)));
    }
    if let Some(within) = requirement.fresh_auth_ms {
        line.push_str(&format!("; signed in within {}", how_long(within)));
    }
    if requirement.once_only {
        line.push_str("; for each single call");
    }
    line
}

/// A length of time in hours or minutes if they are whole, else in seconds.
fn how_long(ms: u64) -> String {
    let (seconds, minutes) = (ms.div_ceil(1_000), ms.div_euclid(60_000));
    let (count, unit) = if !ms.is_multiple_of(60_000) {
        (seconds, "second")
    } else if minutes >= 60 && minutes.is_multiple_of(60) {
        (minutes.div_euclid(60), "hour")
    } else {
        (minutes, "minute")
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// For a denial by default: the permits whose action matches, so that an operator sees which condition to look at.
fn missing_permits(snapshot: &Snapshot, decision: &Decision) -> Vec<String> {
    if decision.outcome != Outcome::Deny(DenialKind::Policy) {
        return Vec::new();
    }
    let Some(plan) = snapshot.tools.get(&decision.capability) else { return Vec::new() };
    let candidates: Vec<&PolicyMeta> = plan
        .call_slice
        .policies()
        .filter_map(|policy| snapshot.policies.get(&policy.id().to_string()))
        .filter(|policy| policy.effect == PolicyEffect::Permit)
        .collect();
    if candidates.is_empty() {
        return vec!["no permit names this tool or its tier".to_owned()];
    }
    let named =
        candidates.iter().map(|policy| format!("`{}`", policy.id)).collect::<Vec<_>>().join(", ");
    vec![format!("permits for this tool, each with its own principals and conditions: {named}")]
}

#[cfg(test)]
mod tests;
