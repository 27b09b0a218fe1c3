//! The wording of the approval service.
//!
//! Owns the wording that several commands share.

use placet_approvals::views::GroupProgress;
use placet_types::{approval::VoteChoice, principal::PrincipalChain};

/// Who calls, for whom.
pub(in crate::commands) fn chain(chain: &PrincipalChain) -> String {
    let actor = format!("{} {}", chain.actor.kind.as_str(), chain.actor.id);
    chain.on_behalf_of.as_ref().map_or(actor.clone(), |user| format!("{actor} for {}", user.id))
}

/// The progress of each group, and the number of people in all where the groups alone do not say it.
pub(super) fn progress(groups: &[GroupProgress], quorum: u32) -> String {
    let in_all = groups.iter().all(|group| group.wanted < quorum);
    let groups = groups.iter().map(|group| {
        let instead = if group.escalated { " (asked instead)" } else { "" };
        format!("{} {}/{}{instead}", group.group, group.agreed, group.wanted)
    });
    let in_all = in_all.then(|| format!("{quorum} people in all"));
    groups.chain(in_all).collect::<Vec<_>>().join(", ")
}

/// The state of an approval in words.
pub(super) fn state(name: &str) -> &str {
    match name {
        "approved" => "approved, not sent yet",
        "unknown" => "outcome unknown",
        "sent" => "was sent",
        other => other,
    }
}

/// Whether a call in this state may still be approved or sent.
pub(super) fn is_open(state: &str) -> bool {
    matches!(state, "pending" | "approved")
}

/// The phrase between the caller and the tool, for a call in this state.
pub(super) fn request(state: &str) -> &'static str {
    match state {
        "pending" | "approved" => "wants to call",
        "running" | "succeeded" | "failed" | "unknown" | "sent" => "called",
        _ => "wanted to call",
    }
}

/// A choice as people write it.
pub(in crate::commands) const fn choice(choice: VoteChoice) -> &'static str {
    match choice {
        VoteChoice::Approve => "yes",
        VoteChoice::Deny => "no",
    }
}

#[cfg(test)]
mod tests {
    use super::{request, state};

    #[test]
    fn a_state_says_what_became_of_the_call() {
        for (name, said, asked) in [
            ("pending", "pending", "wants to call"),
            ("approved", "approved, not sent yet", "wants to call"),
            ("succeeded", "succeeded", "called"),
            ("failed", "failed", "called"),
            ("unknown", "outcome unknown", "called"),
            ("sent", "was sent", "called"),
            ("withdrawn", "withdrawn", "wanted to call"),
            ("void", "void", "wanted to call"),
        ] {
            assert_eq!((state(name), request(name)), (said, asked), "{name}");
        }
    }
}
