//! What policy sees never exceeds what the ledger's ballot counts, whatever the votes.

use std::{collections::BTreeMap, sync::LazyLock};

use placet_ledger::approval::{Ballot, Tally};
use placet_types::{
    approval::{ApproverGroup, Escalation, Requirement, Vote, VoteChoice},
    digest::Digest,
};
use proptest::prelude::*;

use crate::{
    approval::{ApprovalRecord, count},
    snapshot::Snapshot,
    testing::{Draft, NOW, Swap, bundle, compile, refund, vote, world},
};

const PEOPLE: [&str; 8] = ["ada", "ben", "cleo", "dan", "eve", "mia", "noa", "olga"];
const GROUPS: [&str; 4] = ["approvers", "security", "legal", "managers"];
/// Includes groups of another tenant.
const ASKED: [&str; 6] =
    ["approvers", "security", "legal", "managers", "globex/credit-approvers", "globex/security"];
const EXTERNAL_TENANTS: [&str; 4] = ["gil", "ivo", "ben", "ada"];
const EXTERNAL_GROUPS: [&str; 3] = ["credit-approvers", "security", "approvers"];
const HOUR: u64 = 3_600_000;

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(PEOPLE.to_vec())
}

fn some_groups() -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(GROUPS.to_vec(), 0..=GROUPS.len())
}

fn any_vote() -> impl Strategy<Value = Vote> {
    prop_oneof![3 => any_own_vote(), 1 => any_external_vote()]
}

fn any_external_vote() -> impl Strategy<Value = Vote> {
    let groups = prop::sample::subsequence(EXTERNAL_GROUPS.to_vec(), 0..=EXTERNAL_GROUPS.len());
    let who = prop::sample::select(EXTERNAL_TENANTS.to_vec());
    (any_own_vote(), who, groups).prop_map(|(vote, who, groups)| Vote {
        approver: who.parse().unwrap(),
        tenant: Some("globex".parse().unwrap()),
        stands_for: None,
        claimed: groups.iter().map(|group| group.parse().unwrap()).collect(),
        groups: groups.into_iter().map(|group| group.parse().unwrap()).collect(),
        ..vote
    })
}

fn any_own_vote() -> impl Strategy<Value = Vote> {
    let odds = (
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.15),
        prop::option::weighted(0.7, 0i64..40),
    );
    (name(), prop::option::weighted(0.3, name()), some_groups(), odds).prop_map(
        |(by, stands_for, groups, (denies, other, old, late, proved))| Vote {
            stands_for: stands_for.map(|id| id.parse().unwrap()),
            choice: if denies { VoteChoice::Deny } else { VoteChoice::Approve },
            shown_digest: Digest::of(if other { b"other" } else { b"shown" }),
            groups_as_of: NOW.plus_ms(if old { -86_400_001 } else { 0 }),
            at: NOW.plus_ms(if late { 3_600_000 } else { -60_000 }),
            authenticated_at: proved.map(|minutes| NOW.plus_ms(minutes.saturating_mul(-60_000))),
            ..vote(by, &groups)
        },
    )
}

fn any_requirement() -> impl Strategy<Value = Requirement> {
    let groups = prop::collection::btree_map(prop::sample::select(ASKED.to_vec()), 1u32..3, 1..4);
    let later = prop::option::of((prop::sample::select(ASKED.to_vec()), 1u32..3));
    (groups, 1u32..4, 1u32..4, later, prop::option::of(Just(30 * 60_000u64))).prop_map(
        |(groups, quorum, deny_threshold, later, fresh_auth_ms)| {
            let groups: BTreeMap<ApproverGroup, u32> = groups
                .into_iter()
                .map(|(group, people)| (group.parse().unwrap(), people))
                .collect();
            let escalation = later.map(|(group, people)| Escalation {
                after_ms: HOUR,
                group: group.parse().unwrap(),
                people,
                stands_in_for: groups.keys().take(1).cloned().collect(),
            });
            Requirement {
                deny_threshold,
                fresh_auth_ms,
                escalations: escalation.into_iter().collect(),
                ..Requirement::new(groups, quorum, HOUR)
            }
        },
    )
}

/// Compiled once: that takes longer than a count.
static SNAPSHOT: LazyLock<Snapshot> = LazyLock::new(|| {
    let text = r#"@id("p") permit (principal, action in Placet::Action::"tier_read_only", resource is Placet::Tool);"#;
    compile(&bundle(text), &world()).unwrap()
});
static DRAFT: LazyLock<Draft> = LazyLock::new(refund);

/// What policy sees, and the votes as they were recorded.
fn counted(draft: &Draft) -> (Option<ApprovalRecord>, Vec<Vote>) {
    let snapshot = &*SNAPSHOT;
    draft.with_facts(snapshot, Swap::default(), |facts| {
        let counted = count(facts, &snapshot.directory, facts.binding.digest());
        (counted.record, facts.approval.unwrap().votes.clone())
    })
}

/// Whether what policy sees meets a requirement, in the most literal reading.
fn meets(record: &ApprovalRecord, requirement: &Requirement, escalated: u32) -> bool {
    let of = |group: &ApproverGroup| record.by_group.get(group).copied().unwrap_or_default();
    let made = requirement.escalations.iter().take(usize::try_from(escalated).unwrap());
    record.total >= requirement.quorum
        && requirement.groups.iter().all(|(group, people)| {
            of(group) >= *people
                || made
                    .clone()
                    .any(|one| one.stands_in_for.contains(group) && of(&one.group) >= one.people)
        })
}

proptest! {
    #[test]
    fn policy_is_never_told_of_more_than_the_ballot_counts(
        votes in prop::collection::vec(any_vote(), 0..8),
        requirement in any_requirement(),
        escalated in 0u32..2,
    ) {
        let draft = Draft {
            votes: Some(votes), requirement: requirement.clone(), escalated, ..DRAFT.clone()
        };
        let (record, votes) = counted(&draft);
        let shown = Digest::of(b"shown");
        let ballot = Ballot::of(&requirement, escalated, shown, &votes);
        if let Some(record) = record {
            prop_assert_ne!(ballot.tally(), Tally::Denied);
            for (group, people) in &record.by_group {
                prop_assert!(usize::try_from(*people).unwrap() <= ballot.agreed_of(group));
            }
            // The same groups are asked, of which nobody has to agree: external approvers have a say only where they are asked.
            let nobody = requirement.groups.keys().map(|group| (group.clone(), 0)).collect();
            let as_many = Requirement {
                deny_threshold: u32::MAX,
                escalations: requirement.escalations.clone(),
                ..Requirement::new(nobody, record.total, HOUR)
            };
            let in_all = Ballot { requirement: &as_many, ..ballot };
            prop_assert_eq!(in_all.tally(), Tally::Satisfied);
            if meets(&record, &requirement, escalated) {
                prop_assert_eq!(ballot.tally(), Tally::Satisfied);
            }
        }
    }

    /// Nor does it see less, where everybody may count: else counting nothing at all would pass.
    #[test]
    fn policy_is_told_of_all_that_the_ballot_counts_where_everybody_may_count(
        people in prop::collection::vec((prop::sample::select(vec!["ben", "cleo", "dan", "mia", "noa"]), some_groups()), 1..6),
        groups in prop::collection::btree_map(prop::sample::select(GROUPS.to_vec()), 1u32..3, 1..4),
    ) {
        let groups = groups.into_iter().map(|(group, people)| (group.parse().unwrap(), people)).collect();
        let requirement = Requirement::new(groups, 1, HOUR);
        let votes = people.iter().map(|(by, groups)| {
            let groups: Vec<&str> = groups.iter().copied().chain(["staff"]).collect();
            vote(by, &groups)
        }).collect();
        let draft = Draft { votes: Some(votes), requirement: requirement.clone(), ..DRAFT.clone() };
        let (record, votes) = counted(&draft);
        let shown = Digest::of(b"shown");
        let ballot = Ballot::of(&requirement, 0, shown, &votes);
        let record = record.unwrap();
        for group in GROUPS.map(|group| group.parse::<ApproverGroup>().unwrap()) {
            let told = record.by_group.get(&group).copied().unwrap_or_default();
            prop_assert_eq!(usize::try_from(told).unwrap(), ballot.agreed_of(&group));
        }
        prop_assert_eq!(meets(&record, &requirement, 0), ballot.tally() == Tally::Satisfied);
    }
}
