//! How a directive is shown: as a line of a list, or in full.
//!
//! Owns the wording.

use placet_approvals::views::DirectiveView;
use placet_types::{
    directive::{DirectiveBody, pattern::ArgumentRule},
    text::visible,
};

use super::times;
use crate::commands::approvals::{quotation, words};

/// The columns of a list.
pub(super) const HEADER: [&str; 7] = ["directive", "kind", "state", "by", "what", "from", "ends"];

/// A line of a list.
pub(super) fn row(entry: &DirectiveView) -> [String; 7] {
    let due = if entry.review_due { ", review due" } else { "" };
    [
        entry.directive_id.to_string(),
        entry.body.kind().as_str().to_owned(),
        format!("{}{due}", entry.state),
        entry.by.to_string(),
        what(entry),
        entry.starts_at.to_string(),
        ends(entry),
    ]
}

/// When it ends, or that it has ended before its time.
fn ends(entry: &DirectiveView) -> String {
    match &entry.end {
        Some(note) => format!("ended {}", times::from_now(note.at)),
        None => times::from_now(entry.expires_at),
    }
}

/// What an entry arranges, in a line.
fn what(entry: &DirectiveView) -> String {
    match &entry.body {
        DirectiveBody::Grant(grant) => format!(
            "{} by {}, {} of {} uses",
            grant.capability.tool_name(),
            words::chain(&grant.chain),
            entry.uses,
            grant.uses_max
        ),
        DirectiveBody::BreakGlass(glass) => {
            let agent = glass.agent.as_ref().map_or("every agent".to_owned(), ToString::to_string);
            let tool = glass.capability.as_ref();
            let tool = tool
                .map_or("every tool that policies let it open".to_owned(), |one| one.tool_name());
            format!("{}: {tool}, for {agent}", visible(&glass.ticket))
        }
        DirectiveBody::Freeze(freeze) => {
            let adapters: Vec<String> = freeze.adapters.iter().map(ToString::to_string).collect();
            let of =
                if adapters.is_empty() { "everything".to_owned() } else { adapters.join(", ") };
            let what = if freeze.lockdown { "lockdown" } else { "writes" };
            format!("{}: {what} of {of}", visible(&freeze.name))
        }
        DirectiveBody::Delegation(delegation) => {
            let groups: Vec<String> = delegation.groups.iter().map(ToString::to_string).collect();
            format!("{} decides for {} in {}", delegation.to, entry.by, groups.join(", "))
        }
        DirectiveBody::Revocation(revocation) => {
            let issuer = visible(revocation.issuer.as_deref().unwrap_or("any issuer"));
            let subject = visible(&revocation.subject);
            format!("tokens of {subject} by {issuer}, from before {}", entry.created_at)
        }
    }
}

/// The whole entry as text.
pub(super) fn text(entry: &DirectiveView) -> String {
    let mut lines = vec![format!("{} {}", entry.body.kind().as_str(), entry.directive_id)];
    lines.push(format!("  what      {}", what(entry)));
    if let DirectiveBody::Grant(grant) = &entry.body {
        lines.push(format!("  from      {}, up to {}", grant.approval_id, grant.mode));
        lines.extend(grant.pattern.0.iter().map(|(place, rule)| {
            format!("  covers    {} {}", visible(place), rule_in_words(rule))
        }));
    }
    lines.push(format!("  by        {}", entry.by));
    lines.push(format!(
        "  from/to   {} to {} ({})",
        entry.starts_at,
        entry.expires_at,
        ends(entry)
    ));
    if entry.requirement.quorum > 0 {
        lines.push(format!("  needs     {}", needs(entry)));
    }
    lines.extend(entry.votes.iter().map(|vote| {
        let instead = vote.stands_for.as_ref().map(|who| format!(" for {who}")).unwrap_or_default();
        let word = words::choice(vote.choice);
        let token = vote.with_token();
        format!("  {word:<9} {}{instead} at {}{token}", vote.approver, vote.at)
    }));
    lines.extend(entry.end.iter().map(|note| format!("  ended     {} at {}", note.by, note.at)));
    let review = entry.review.iter();
    lines.extend(review.map(|note| format!("  reviewed  {} at {}", note.by, note.at)));
    lines.extend(quoted(entry));
    let force = if entry.in_force { ", in force" } else { "" };
    let due = if entry.review_due { ", its review is due" } else { "" };
    lines.push(format!("  state     {}{force}{due}", entry.state));
    lines.push(format!("  digest    {}", entry.digest));
    lines.join("\n")
}

/// The reasons that people gave for arranging, deciding and ending it.
fn quoted(entry: &DirectiveView) -> Vec<String> {
    let mut lines = quotation::lines(&format!("{} arranged it, because", entry.by), &entry.reason);
    for vote in &entry.votes {
        let whose = format!("{} said {}, because", vote.approver, words::choice(vote.choice));
        lines.extend(quotation::lines(&whose, &vote.reason));
    }
    for (note, when) in [(&entry.end, "at its end"), (&entry.review, "as its review")] {
        lines.extend(
            note.iter().flat_map(|note| {
                quotation::lines(&format!("{} wrote {when}", note.by), &note.text)
            }),
        );
    }
    lines
}

fn needs(entry: &DirectiveView) -> String {
    let requirement = &entry.requirement;
    if requirement.groups.is_empty() {
        return "one other person".to_owned();
    }
    placet_policy::explain::requirement_line(requirement)
}

fn rule_in_words(rule: &ArgumentRule) -> String {
    match rule {
        ArgumentRule::Equals(value) => format!("is {value}"),
        ArgumentRule::OneOf(values) => {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            format!("is one of {}", values.join(", "))
        }
        ArgumentRule::AtMost(most) => format!("is a whole number up to {most}"),
        ArgumentRule::StartsWith(start) => format!("begins with `{}`", visible(start)),
        ArgumentRule::Any(_) => "is anything".to_owned(),
    }
}
