//! The vote of somebody: as what they decide, by which token, and what the audit says of it.
//!
//! Owns what a vote records. Whether it counts is the ledger's answer.

use placet_identity::VerifiedCaller;
use placet_policy::review::ReviewAction;
use placet_types::{
    approval::{Vote, VoteChoice},
    clock::Timestamp,
    digest::Digest,
};

use crate::reviewer::Capacity;

/// How much of a client's name is recorded.
const CLIENT_CHARS_MAX: usize = 128;

/// What Cedar is asked of a decision.
pub(crate) const fn action_of(choice: VoteChoice) -> ReviewAction {
    match choice {
        VoteChoice::Approve => ReviewAction::Approve,
        VoteChoice::Deny => ReviewAction::Deny,
    }
}

/// The vote of somebody in a capacity.
pub(crate) fn vote_of(
    caller: &VerifiedCaller,
    capacity: &Capacity,
    choice: VoteChoice,
    reason: &str,
    shown: Digest,
    at: Timestamp,
) -> Vote {
    Vote {
        approver: caller.actor.principal().id.clone(),
        tenant: capacity.external_of.clone(),
        stands_for: capacity.stands_for.clone(),
        authenticated_at: capacity.authenticated_at,
        groups: capacity.groups.clone(),
        groups_as_of: capacity.groups_as_of,
        claimed: capacity.claimed.clone(),
        // An external approver's client is the business of their own tenant.
        client: caller.actor.client().filter(|_| capacity.external_of.is_none()).map(legible),
        token_ref: Some(caller.actor.token_ref()),
        choice,
        reason: reason.to_owned(),
        at,
        shown_digest: shown,
        part_digest: None,
    }
}

/// What the audit says of a decision.
pub(crate) fn noted(vote: &Vote) -> String {
    let word = match vote.choice {
        VoteChoice::Approve => "approved",
        VoteChoice::Deny => "denied",
    };
    let word = match &vote.stands_for {
        Some(colleague) => format!("{word} for {colleague}"),
        None => word.to_owned(),
    };
    // By which token an external approver is known is the business of their own tenant.
    match &vote.tenant {
        Some(tenant) => format!("{word} as an external approver of {tenant}"),
        None => format!("{word}{}", vote.with_token()),
    }
}

/// A client's name as it stands in records that people read.
fn legible(client: &str) -> String {
    client.chars().filter(|c| !c.is_control()).take(CLIENT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending::tests::vote;

    #[test]
    fn the_token_of_an_external_approver_is_in_no_note_of_the_host_whomever_they_decide_for() {
        let known = Vote { token_ref: Some("tok_1".to_owned()), ..vote("gil", VoteChoice::Deny) };
        for (tenant, colleague, said) in [
            (None, None, "denied with tok_1"),
            (None, Some("ben"), "denied for ben with tok_1"),
            (Some("globex"), None, "denied as an external approver of globex"),
            (Some("globex"), Some("gus"), "denied for gus as an external approver of globex"),
        ] {
            let tenant = tenant.map(|tenant| tenant.parse().unwrap());
            let stands_for = colleague.map(|colleague| colleague.parse().unwrap());
            assert_eq!(noted(&Vote { tenant, stands_for, ..known.clone() }), said);
        }
    }
}
