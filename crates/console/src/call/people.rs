//! The people of a call: who has to agree, who has, and what one more agreement does.
//!
//! Owns this wording.

use maud::{Markup, html};
use placet_approvals::views::{ApprovalDetail, ApprovalView};
use placet_types::{
    approval::{Requirement, Vote, VoteChoice},
    clock::Timestamp,
};

use crate::{
    charts,
    words::{self, Tone},
};

/// What a requirement asks for, one sentence each.
pub(crate) fn needs(requirement: &Requirement) -> Vec<String> {
    let mut needs = of_groups(requirement, "must agree");
    let people = words::people(requirement.quorum);
    needs.push(if requirement.groups.len() > 1 {
        format!(
            "At least {people} must agree in all; somebody who is in several of these groups counts for each."
        )
    } else {
        format!("{people} must agree in all; nobody counts twice.")
    });
    needs.extend(terms(requirement));
    needs
}

/// The same for an external approver: they may not know how many have to agree in total.
pub(super) fn needs_of_external_tenants(requirement: &Requirement) -> Vec<String> {
    of_groups(requirement, "must agree").into_iter().chain(terms(requirement)).collect()
}

/// What a requirement demanded that is no longer decided on; `in_all` where the reader may know the total.
pub(super) fn needed(requirement: &Requirement, in_all: bool) -> Vec<String> {
    let mut needed = of_groups(requirement, "had to agree");
    if in_all {
        needed.push(format!("{} had to agree in all.", words::people(requirement.quorum)));
    }
    needed
}

fn of_groups(requirement: &Requirement, verb: &str) -> Vec<String> {
    let groups = requirement.groups.iter();
    groups.map(|(group, people)| format!("{} of {group} {verb}.", words::people(*people))).collect()
}

/// The other conditions of the decision.
fn terms(requirement: &Requirement) -> Vec<String> {
    let mut needs = Vec::new();
    if requirement.deny_threshold > 1 {
        needs.push(format!("It ends when {} say no.", words::people(requirement.deny_threshold)));
    } else {
        needs.push("One person who says no ends it.".to_owned());
    }
    needs.push(format!("It ends unanswered after {}.", words::length(requirement.expires_in_ms)));
    for escalation in &requirement.escalations {
        needs.push(format!(
            "After {} of silence {} of {} may agree instead.",
            words::length(escalation.after_ms),
            words::people(escalation.people),
            escalation.group
        ));
    }
    if let Some(fresh) = requirement.fresh_auth_ms {
        needs.push(format!(
            "Who agrees has proved who they are within the last {}.",
            words::length(fresh)
        ));
    }
    if requirement.once_only {
        needs.push("People decide on each single call; no standing grant covers it.".to_owned());
    }
    needs
}

/// What happens when the reader approves.
pub(super) fn on_approval(detail: &ApprovalDetail) -> Markup {
    let standing = &detail.standing;
    let open = standing.progress.iter().filter(|group| group.agreed < group.wanted);
    html! {
        @if !standing.may_approve { "You may say no to this call." }
        @else if let Some(part) = &detail.part {
            "If you approve, " strong { "your agreement counts for " (part.asked_of) } ". Who else has to agree is known to tenant " (part.asked_by)
            " alone; the call is checked by its policies once more before it runs."
        }
        @else if standing.freezes.iter().any(|freeze| freeze.lockdown) {
            "If you approve, " strong { "the call does not run before the lockdown ends" } ": the policies then decide once more."
        }
        @else if standing.freezes.iter().any(|freeze| freeze.after_asking) {
            "If you approve, " strong { "it may still wait for others" } ": a freeze came into force after people were asked, and the policies decide once more before the call runs."
        }
        @else if standing.completes {
            "If you approve, " strong { "nobody else is needed" } ": the call is checked by the policies once more and then runs."
        } @else {
            "If you approve, " strong { "the call still waits for others" } ":"
            ul.reasons {
                @for group in open {
                    li { (group.group) ": " (group.agreed) " of " (group.wanted) " have agreed so far" }
                }
            }
        }
    }
}

/// The progress so far.
pub(super) fn progress(detail: &ApprovalDetail, now: Timestamp) -> Markup {
    let standing = &detail.standing;
    html! {
        section.card aria-labelledby="progress-title" {
            h2 #progress-title { (if detail.approval.state == "pending" { "Who has to agree" } else { "Who had to agree" }) }
            div data-told { @for group in &standing.progress { (charts::progress(group)) } }
            @if detail.part.is_none() {
                p.small.soft { (words::people(detail.approval.requirement.quorum)) " in all." }
            }
            @if let Some(next) = &standing.next_escalation {
                p.small { "Unless it is decided, " strong { (next.group) } " is asked too, " (words::relative(next.at, now)) "." }
            }
        }
    }
}

/// Who decided what so far.
pub(super) fn votes(detail: &ApprovalDetail, now: Timestamp) -> Markup {
    html! {
        section.card aria-labelledby="votes-title" {
            h2 #votes-title { (if detail.approval.state == "pending" { "Decisions so far" } else { "Decisions" }) }
            (decisions(detail, now))
        }
    }
}

/// The decisions, and which of them no longer count.
pub(crate) fn decisions(detail: &ApprovalDetail, now: Timestamp) -> Markup {
    let approval = &detail.approval;
    html! {
        @if approval.votes.is_empty() && approval.withdrawn.is_none() { p { "None yet." } }
        @else {
            ul.list {
                @for vote in &approval.votes { (line(vote, now)) }
                @if let Some(withdrawn) = &approval.withdrawn {
                    li {
                        (words::mark(Tone::Plain, "withdrawn")) " by " strong { (withdrawn.by) }
                        " " span.small.soft { (words::relative(withdrawn.at, now)) }
                        (words::quotation(&withdrawn.reason))
                    }
                }
            }
        }
        @if !approval.lapsed.is_empty() {
            p.small.soft {
                (words::count(approval.lapsed.len(), "agreement counts", "agreements count")) " no more: by " (lapsed(approval))
                ". The arguments changed or more came into the run’s context after they had agreed, or nothing younger than a day says that they are in the groups that are asked, or they may not agree any more. Those who still may can agree again."
            }
        }
    }
}

/// Whose approvals no longer count.
fn lapsed(approval: &ApprovalView) -> String {
    let votes = approval.lapsed.iter().filter_map(|place| approval.votes.get(*place));
    votes.map(|vote| vote.approver.to_string()).collect::<Vec<_>>().join(", ")
}

/// One decision.
pub(crate) fn line(vote: &Vote, now: Timestamp) -> Markup {
    html! {
        li {
            @match vote.choice {
                VoteChoice::Approve => (words::mark(Tone::Good, "approved")),
                VoteChoice::Deny => (words::mark(Tone::Bad, "denied")),
            }
            " by " strong { (vote.approver) }
            @if let Some(tenant) = &vote.tenant { " of tenant " strong { (tenant) } }
            @if let Some(colleague) = &vote.stands_for { " in the place of " strong { (colleague) } }
            " " span.small.soft { (words::relative(vote.at, now)) }
            (words::quotation(&vote.reason))
        }
    }
}
