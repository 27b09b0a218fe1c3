//! How votes are counted against a requirement.
//!
//! Owns the count, which the ledger and the cases of policies share. Not here: who may vote (policy), and which moves a count allows
//! (ledger). Invariant: each voice counts once, external approvers count only for groups of their own tenant, and agreements only for
//! what is shown now.

use std::collections::BTreeSet;

use super::{ApproverGroup, Escalation, Requirement, Voice, Vote, VoteChoice};
use crate::digest::Digest;

/// The result of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tally {
    /// More people have to agree.
    Open,
    /// Enough have agreed.
    Satisfied,
    /// Enough people denied it.
    Denied,
}

/// What a tally counts.
#[derive(Debug, Clone, Copy)]
pub struct Ballot<'a> {
    /// Who has to agree.
    pub requirement: &'a Requirement,
    /// How many escalations were made.
    pub escalated: u32,
    /// What people decide on now.
    pub shown: Digest,
    /// Who decided what.
    pub votes: &'a [Vote],
    /// Agreements that no longer count, by their positions in `votes`.
    pub lapsed: &'a BTreeSet<usize>,
}

/// Every agreement counts.
static NONE: BTreeSet<usize> = BTreeSet::new();

impl<'a> Ballot<'a> {
    /// A ballot without lapsed votes.
    pub fn of(
        requirement: &'a Requirement,
        escalated: u32,
        shown: Digest,
        votes: &'a [Vote],
    ) -> Self {
        Self { requirement, escalated, shown, votes, lapsed: &NONE }
    }

    /// Counts distinct people, for each group and in total; agreements only to what is shown now, denials of anything that was shown.
    /// External approvers count only where they are asked.
    pub fn tally(&self) -> Tally {
        if enough(self.deniers().len(), self.requirement.deny_threshold.max(1)) {
            return Tally::Denied;
        }
        let groups_agree =
            self.requirement.groups.iter().all(|(group, wanted)| self.agrees(group, *wanted));
        let people = self.agreements().count();
        if groups_agree && enough(people, self.requirement.quorum.max(1)) {
            Tally::Satisfied
        } else {
            Tally::Open
        }
    }

    /// How many distinct people of a group have agreed to what is shown now.
    pub fn agreed_of(&self, group: &ApproverGroup) -> usize {
        self.agreements().filter(|vote| vote.is_of(group)).count()
    }

    fn agrees(&self, group: &ApproverGroup, wanted: u32) -> bool {
        enough(self.agreed_of(group), wanted)
            || made(self.requirement, self.escalated).any(|escalation| {
                escalation.stands_in_for.contains(group)
                    && enough(self.agreed_of(&escalation.group), escalation.people.max(1))
            })
    }

    /// The agreements that count, each voice once: the voter and the one they voted for are the same voice.
    fn agreements(&self) -> impl Iterator<Item = &'a Vote> {
        let mut heard: BTreeSet<Voice<'a>> = BTreeSet::new();
        let yes = self.votes.iter().enumerate().filter(|(place, vote)| {
            vote.choice == VoteChoice::Approve
                && vote.shown_digest == self.shown
                && !self.lapsed.contains(place)
                && self.has_a_say(vote)
        });
        yes.map(|(_, vote)| vote).filter(move |vote| {
            let known = vote.voices().any(|voice| heard.contains(&voice));
            heard.extend(vote.voices());
            !known
        })
    }

    fn deniers(&self) -> BTreeSet<Voice<'a>> {
        let no = self.votes.iter().filter(|vote| vote.choice == VoteChoice::Deny);
        no.filter(|vote| self.has_a_say(vote)).map(Vote::duty_of).collect()
    }

    /// External approvers may vote as members of groups that are asked now. For the tenant's own people, policy decides.
    pub fn has_a_say(&self, vote: &Vote) -> bool {
        vote.tenant.is_none() || asked(self.requirement, self.escalated).any(|one| vote.is_of(one))
    }
}

/// The groups that are asked: those of the requirement, and those it was escalated to.
pub fn asked(requirement: &Requirement, escalated: u32) -> impl Iterator<Item = &ApproverGroup> {
    let escalations = made(requirement, escalated).map(|escalation| &escalation.group);
    requirement.groups.keys().chain(escalations)
}

/// The escalations that were made.
fn made(requirement: &Requirement, escalated: u32) -> impl Iterator<Item = &Escalation> {
    requirement.escalations.iter().take(usize::try_from(escalated).unwrap_or(usize::MAX))
}

fn enough(count: usize, wanted: u32) -> bool {
    u32::try_from(count).is_ok_and(|count| count >= wanted)
}
