//! The condition that a gate gets from its annotations.
//!
//! Owns the text of the generated `unless` clause. Invariant: what the clause asks for is what [`Route`] asks people for, so that a gate
//! states its requirement once; the clause only ever adds a way through for an approval that meets the annotations.

use crate::{
    annotations::{ApprovalRule, PolicyMeta, Route, Step},
    route::WrittenGroup,
};

/// The policy's text with the `unless` clause generated from its annotations, if they generate one.
pub(crate) fn expanded(meta: &PolicyMeta) -> Option<String> {
    let ApprovalRule::Required(route) = &meta.rule else { return None };
    let body = meta.text.trim_end().trim_end_matches(';').trim_end();
    meta.is_generated().then(|| format!("{body}\n{};", clause(route)))
}

/// The `unless` clause: an approval of exactly this call, in force, by the people the annotations name.
fn clause(route: &Route) -> String {
    let mut terms = vec![
        "context.req has approval".to_owned(),
        "!context.req.approval.denied".to_owned(),
        "context.req.approval.request_digest == context.req.evidence.request_digest".to_owned(),
        "context.req.now < context.req.approval.expires_at".to_owned(),
    ];
    if route.once_only {
        let once = "context.req.approval.scope == Placet::ApprovalScope::\"once\"";
        terms.push(once.to_owned());
    }
    terms.push(format!("context.req.approval.total >= {}", route.quorum));
    for (group, people) in &route.groups {
        // Only groups of the same tenant stand in for a group.
        let later = route.steps.iter().filter(|step| step.group.of == group.of);
        terms.push(of_any(group, *people, later));
    }
    format!("unless\n{{\n  {}\n}}", terms.join(" &&\n  "))
}

/// Enough people of the group, or of one that may answer for it later.
fn of_any<'a>(group: &WrittenGroup, people: u32, later: impl Iterator<Item = &'a Step>) -> String {
    let instead: Vec<String> = later.map(|step| agreed(&step.group, step.people)).collect();
    if instead.is_empty() {
        return agreed(group, people);
    }
    let any = std::iter::once(agreed(group, people)).chain(instead);
    let any: Vec<String> = any.map(|one| format!("({one})")).collect();
    format!("({})", any.join(" ||\n   "))
}

fn agreed(group: &WrittenGroup, people: u32) -> String {
    // The parts of a group's name are plain words, so nothing in it needs escaping.
    format!(
        "context.req.approval.hasTag(\"{group}\") && context.req.approval.getTag(\"{group}\") >= {people}"
    )
}
