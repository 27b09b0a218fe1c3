//! What is said of an entry that stands and may not do what its author expects.
//!
//! Owns the words about delegations. A hint refuses nothing: what the directory does not know today it may know tomorrow.

use placet_ledger::directive::Directive;
use placet_types::{
    directive::{Delegation, DirectiveBody},
    ids::GroupId,
};

use crate::{rules::CLAIMS_AGE_MS_MAX, service::Approvals};

/// What there is to say of an entry.
pub(crate) fn of(service: &Approvals, entry: &Directive) -> Option<String> {
    let DirectiveBody::Delegation(delegation) = &entry.body else { return None };
    let is_open = entry.is_open(service.ledger.store().now());
    let hints: Vec<String> = [colleague(service, entry, delegation), groups(service, entry)]
        .into_iter()
        .flatten()
        .collect();
    (is_open && !hints.is_empty()).then(|| hints.join(" "))
}

/// Somebody whom the directory does not know may be known to the issuer of tokens, or misspelt.
fn colleague(service: &Approvals, entry: &Directive, delegation: &Delegation) -> Option<String> {
    let to = &delegation.to;
    let directory = &service.policies().directory;
    if directory.agent(&entry.tenant, to).is_some() {
        return Some(format!(
            "`{to}` is an agent, and only people decide: the delegation does not count."
        ));
    }
    let is_known = directory.user(&entry.tenant, to).is_some();
    (!is_known).then(|| {
        format!(
            "The directory has nobody named `{to}`: the delegation counts only if somebody comes with a token of exactly that name."
        )
    })
}

/// What only a token said of its bearer's groups counts for a day.
fn groups(service: &Approvals, entry: &Directive) -> Option<String> {
    let claimed = entry.claimed.as_ref()?;
    let until = claimed.as_of.plus_ms(CLAIMS_AGE_MS_MAX);
    let active = service.policies();
    let author = active.directory.user(&entry.tenant, &entry.by);
    let is_listed = |group: &&GroupId| author.is_some_and(|author| author.groups.contains(*group));
    let unlisted: Vec<String> = claimed
        .groups
        .iter()
        .filter(|group| !is_listed(group))
        .map(|group| format!("`{group}`"))
        .collect();
    if unlisted.is_empty() || until >= entry.expires_at {
        return None;
    }
    let (by, groups) = (&entry.by, unlisted.join(", "));
    Some(if until < entry.starts_at {
        format!(
            "That {by} is in {groups} was said by a token alone, which counts until {until}: before the delegation begins. \
             For that it never counts, unless the directory lists it too."
        )
    } else {
        format!(
            "That {by} is in {groups} was said by a token alone, which counts until {until}: for that the delegation counts no longer, \
             unless the directory lists it too."
        )
    })
}
