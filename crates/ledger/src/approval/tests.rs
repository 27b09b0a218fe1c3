//! How votes are counted.

use std::collections::{BTreeMap, BTreeSet};

use placet_types::{
    approval::{Requirement, Vote, VoteChoice},
    clock::Timestamp,
    digest::Digest,
    ids::{
        ApprovalId, CapabilityId, GroupId, IdempotencyKey, PrincipalId, RecordId, TenantId,
        ToolCallId,
    },
    mode::ApprovalMode,
    narrowing::Change,
    principal::{KeyScope, Principal, PrincipalChain, PrincipalKind},
    taint::Taint,
};
use proptest::prelude::*;

use super::{
    APPROVAL_VERSION, ApprovalRecord, ApprovalState, Ballot, Edited, Tally, VOTES_MAX, VoteError,
};

mod asking;

const EXPIRES_AT: Timestamp = Timestamp::from_ms(1_000);

fn shown() -> Digest {
    Digest::of(b"proposal")
}

fn group(name: &str) -> GroupId {
    GroupId::new(name).unwrap()
}

fn vote(approver: &str, groups: &[&str], choice: VoteChoice) -> Vote {
    Vote {
        approver: PrincipalId::new(approver).unwrap(),
        tenant: None,
        part_digest: None,
        client: None,
        token_ref: None,
        stands_for: None,
        authenticated_at: None,
        groups: groups.iter().map(|name| group(name)).collect(),
        groups_as_of: Timestamp::from_ms(0),
        claimed: BTreeSet::new(),
        choice,
        reason: "looked at it".to_owned(),
        at: Timestamp::from_ms(1),
        shown_digest: shown(),
    }
}

fn yes(approver: &str, groups: &[&str]) -> Vote {
    vote(approver, groups, VoteChoice::Approve)
}

fn requirement(groups: &[(&str, u32)], quorum: u32) -> Requirement {
    let groups = groups.iter().map(|(name, wanted)| (name.parse().unwrap(), *wanted)).collect();
    Requirement::new(groups, quorum, 1_000)
}

fn pending(requirement: Requirement) -> ApprovalRecord {
    let tenant_id = TenantId::new("acme").unwrap();
    let capability = CapabilityId::from_tool_name("files__delete").unwrap();
    let agent = PrincipalId::new("scribe").unwrap();
    let scope = KeyScope {
        tenant: tenant_id.clone(),
        kind: PrincipalKind::Agent,
        agent: agent.clone(),
        on_behalf_of: None,
        capability: capability.clone(),
    };
    ApprovalRecord {
        version: APPROVAL_VERSION,
        approval_id: ApprovalId::new("apr_1").unwrap(),
        record_id: RecordId::derive(&scope, &IdempotencyKey::new("k").unwrap()),
        call_id: ToolCallId::new("call_1").unwrap(),
        chain: PrincipalChain {
            actor: Principal { kind: PrincipalKind::Agent, id: agent, tenant_id, display: None },
            on_behalf_of: None,
            via: Vec::new(),
        },
        capability,
        mode: ApprovalMode::Destructive,
        request_digest: Digest::of(b"request"),
        proposal: shown(),
        bundle_digest: Digest::of(b"bundle"),
        requirement,
        created_at: Timestamp::from_ms(0),
        expires_at: EXPIRES_AT,
        rev: 1,
        votes: Vec::new(),
        escalated: 0,
        external_tenants: BTreeSet::new(),
        taint: BTreeSet::new(),
        lapsed: BTreeSet::new(),
        reopened: 0,
        reopened_at: None,
        edits: Vec::new(),
        callback: None,
        state: ApprovalState::Pending,
    }
}

fn tally(requirement: &Requirement, votes: &[Vote]) -> Tally {
    Ballot::of(requirement, 0, shown(), votes).tally()
}

fn states() -> Vec<ApprovalState> {
    vec![
        ApprovalState::Pending,
        ApprovalState::Approved,
        ApprovalState::Denied,
        ApprovalState::Expired,
        ApprovalState::Void { reason: "altered".to_owned() },
        ApprovalState::Consumed { arm: 1, at: Timestamp::from_ms(1) },
    ]
}

#[test]
fn the_machine_knows_exactly_these_moves() {
    let legal = BTreeSet::from([
        ("pending", "pending"),
        ("pending", "approved"),
        ("pending", "denied"),
        ("pending", "expired"),
        ("pending", "void"),
        ("approved", "pending"),
        ("approved", "expired"),
        ("approved", "void"),
        ("approved", "consumed"),
        ("consumed", "consumed"),
        ("consumed", "expired"),
        ("consumed", "void"),
    ]);
    for from in states() {
        for to in states() {
            let expected = legal.contains(&(from.name(), to.name()));
            assert_eq!(from.may_become(&to), expected, "{} to {}", from.name(), to.name());
        }
    }
}

#[test]
fn an_approval_is_consumed_for_one_arm_only() {
    let consumed = |arm, ms| ApprovalState::Consumed { arm, at: Timestamp::from_ms(ms) };
    assert!(consumed(1, 1).may_become(&consumed(1, 2)));
    assert!(!consumed(1, 1).may_become(&consumed(2, 2)));
}

#[test]
fn one_person_is_enough_even_if_the_requirement_says_none() {
    assert_eq!(tally(&requirement(&[], 0), &[]), Tally::Open);
    assert_eq!(tally(&requirement(&[], 0), &[yes("ann", &[])]), Tally::Satisfied);
}

#[test]
fn every_group_counts_by_itself() {
    let wanted = requirement(&[("sec", 1), ("ops", 2)], 3);
    let (ann, bob, cy, dee) =
        (yes("ann", &["sec"]), yes("bob", &["ops"]), yes("cy", &["ops"]), yes("dee", &["sec"]));
    assert_eq!(tally(&wanted, &[ann.clone(), bob.clone(), dee]), Tally::Open);
    assert_eq!(tally(&wanted, &[ann, bob, cy]), Tally::Satisfied);
}

#[test]
fn a_person_in_two_groups_counts_once_for_the_total() {
    let both = yes("ann", &["sec", "ops"]);
    assert_eq!(
        tally(&requirement(&[("sec", 1), ("ops", 1)], 2), std::slice::from_ref(&both)),
        Tally::Open
    );
    assert_eq!(tally(&requirement(&[("sec", 1), ("ops", 1)], 1), &[both]), Tally::Satisfied);
}

#[test]
fn a_late_vote_does_not_count() {
    let approval = pending(requirement(&[], 1));
    let error = approval.cast(yes("ann", &[]), EXPIRES_AT).unwrap_err();
    assert_eq!(error, VoteError::Late { state: "expired" });
    assert!(approval.cast(yes("ann", &[]), EXPIRES_AT.plus_ms(-1)).is_ok());
    for state in states().into_iter().filter(|state| *state != ApprovalState::Pending) {
        let over = ApprovalRecord { state: state.clone(), ..pending(requirement(&[], 1)) };
        let error = over.cast(yes("ann", &[]), Timestamp::from_ms(0)).unwrap_err();
        assert_eq!(error, VoteError::Late { state: state.in_words() });
    }
}

#[test]
fn a_second_vote_of_the_same_person_does_not_count_whatever_it_says() {
    let approval =
        pending(requirement(&[], 2)).cast(yes("ann", &[]), Timestamp::from_ms(1)).unwrap();
    for choice in [VoteChoice::Approve, VoteChoice::Deny] {
        let again = approval.cast(vote("ann", &["sec"], choice), Timestamp::from_ms(1));
        assert_eq!(again.unwrap_err(), VoteError::Twice);
    }
}

#[test]
fn a_vote_on_something_else_does_not_count() {
    let stale = Vote { shown_digest: Digest::of(b"an older proposal"), ..yes("ann", &[]) };
    let error = pending(requirement(&[], 1)).cast(stale, Timestamp::from_ms(1)).unwrap_err();
    assert_eq!(error, VoteError::Stale);
}

#[test]
fn an_approval_takes_a_bounded_number_of_votes() {
    let mut approval = pending(requirement(&[], u32::MAX));
    for number in 0..VOTES_MAX {
        approval = approval.cast(yes(&format!("p{number}"), &[]), Timestamp::from_ms(1)).unwrap();
    }
    let error = approval.cast(yes("one-more", &[]), Timestamp::from_ms(1)).unwrap_err();
    assert_eq!(error, VoteError::Full);
}

#[test]
fn a_vote_counts_as_a_move() {
    let approval = pending(requirement(&[], 2));
    let next = approval.cast(yes("ann", &[]), Timestamp::from_ms(1)).unwrap();
    assert_eq!((next.rev, next.votes.len(), next.state), (2, 1, ApprovalState::Pending));
}

fn any_vote() -> impl Strategy<Value = Vote> {
    let people = proptest::sample::select(vec!["ann", "bob", "cy", "dee", "eve"]);
    let groups = proptest::sample::subsequence(vec!["sec", "ops", "law"], 0..=3);
    let choice = prop_oneof![9 => Just(VoteChoice::Approve), 1 => Just(VoteChoice::Deny)];
    let stale = proptest::bool::weighted(0.1);
    (people, groups, choice, stale).prop_map(|(who, groups, choice, stale)| {
        let mut vote = vote(who, &groups, choice);
        if stale {
            vote.shown_digest = Digest::of(b"an older proposal");
        }
        vote
    })
}

fn any_requirement() -> impl Strategy<Value = Requirement> {
    let groups = proptest::collection::btree_map(
        proptest::sample::select(vec!["sec", "ops", "law"]),
        1_u32..3,
        0..3,
    );
    (groups, 0_u32..4)
        .prop_map(|(groups, quorum)| requirement(&groups.into_iter().collect::<Vec<_>>(), quorum))
}

/// The expected result, computed in another way: by walking over the votes that count.
fn expected(requirement: &Requirement, votes: &[Vote]) -> &'static str {
    let mut counted: BTreeMap<&PrincipalId, &Vote> = BTreeMap::new();
    for vote in votes.iter().filter(|vote| vote.shown_digest == shown()) {
        if counted.contains_key(&vote.approver) {
            continue;
        }
        if vote.choice == VoteChoice::Deny {
            return "denied";
        }
        counted.insert(&vote.approver, vote);
        let people = u32::try_from(counted.len()).unwrap();
        let groups_agree = requirement.groups.iter().all(|(group, wanted)| {
            let members = counted.values().filter(|vote| vote.is_of(group)).count();
            u32::try_from(members).unwrap() >= *wanted
        });
        if groups_agree && people >= requirement.quorum.max(1) {
            return "approved";
        }
    }
    "pending"
}

fn external(approver: &str, groups: &[&str]) -> Vote {
    Vote { tenant: Some("globex".parse().unwrap()), ..yes(approver, groups) }
}

#[test]
fn an_external_approver_has_a_say_only_as_a_member_of_a_group_that_is_asked() {
    let wanted = requirement(&[("leads", 1), ("globex/credit", 1)], 2);
    assert_eq!(
        tally(&wanted, &[yes("ann", &["leads"]), external("gil", &["credit"])]),
        Tally::Satisfied
    );
    // The tenant's own people are not external approvers, and groups of the same name in two tenants differ.
    for other in [yes("bob", &["credit"]), external("gil", &["leads"]), external("gil", &[])] {
        assert_eq!(tally(&wanted, &[yes("ann", &["leads"]), other]), Tally::Open);
    }
    // Two people with the same name in two tenants are two people.
    assert_eq!(
        tally(&wanted, &[yes("ann", &["leads"]), external("ann", &["credit"])]),
        Tally::Satisfied
    );
    let asked = ApprovalRecord { external_tenants: wanted.external_tenants(), ..pending(wanted) };
    let now = Timestamp::from_ms(1);
    assert_eq!(asked.cast(external("fay", &["leads"]), now), Err(VoteError::NotAsked));
    let no = Vote { choice: VoteChoice::Deny, ..external("fay", &["leads"]) };
    assert_eq!(asked.cast(no, now), Err(VoteError::NotAsked));
    let no = Vote { choice: VoteChoice::Deny, ..external("gil", &["credit"]) };
    assert_eq!(asked.cast(no, now).unwrap().state, ApprovalState::Denied);
}

proptest! {
    #[test]
    fn no_order_of_votes_satisfies_without_a_quorum_of_distinct_people(
        requirement in any_requirement(),
        votes in proptest::collection::vec(any_vote(), 0..12),
    ) {
        let mut approval = pending(requirement.clone());
        for vote in &votes {
            if let Ok(next) = approval.cast(vote.clone(), Timestamp::from_ms(1)) {
                prop_assert_eq!(next.rev, approval.rev.wrapping_add(1));
                approval = next;
            }
        }
        prop_assert_eq!(approval.state.name(), expected(&requirement, &votes));
        let people: BTreeSet<_> = approval.votes.iter().map(|vote| &vote.approver).collect();
        prop_assert_eq!(people.len(), approval.votes.len());
        if approval.state == ApprovalState::Approved {
            prop_assert!(people.len() >= usize::try_from(requirement.quorum.max(1)).unwrap());
        }
    }

    #[test]
    fn the_tally_does_not_depend_on_the_order(
        requirement in any_requirement(),
        votes in proptest::collection::vec(any_vote(), 0..8),
        turn in 0_usize..8,
    ) {
        let mut seen = BTreeSet::new();
        let distinct: Vec<Vote> = votes.into_iter().filter(|vote| seen.insert(vote.approver.clone())).collect();
        let mut turned = distinct.clone();
        turned.reverse();
        turned.rotate_left(turn.min(distinct.len()));
        prop_assert_eq!(tally(&requirement, &distinct), tally(&requirement, &turned));
    }

    #[test]
    fn a_denial_is_final(
        requirement in any_requirement(),
        votes in proptest::collection::vec(any_vote(), 1..8),
        more in proptest::collection::vec(any_vote(), 1..8),
    ) {
        prop_assume!(votes.iter().any(|vote| vote.choice == VoteChoice::Deny));
        let mut all = votes;
        all.extend(more);
        prop_assert_eq!(tally(&requirement, &all), Tally::Denied);
    }
}

/// Two people have agreed, policies ask for more, and the first agreement has lapsed.
fn back_with_a_lapse() -> ApprovalRecord {
    let asked = pending(requirement(&[("a", 1)], 2));
    let now = Timestamp::from_ms(5);
    let agreed = asked.cast(yes("ann", &["a"]), now).unwrap();
    let agreed = agreed.cast(yes("bob", &["b"]), now).unwrap();
    assert_eq!(agreed.state, ApprovalState::Approved);
    agreed.back(requirement(&[("a", 1)], 2), &BTreeSet::from([0, 9]), now).unwrap()
}

#[test]
fn an_agreement_that_lapsed_counts_no_more_and_is_given_again() {
    let back = back_with_a_lapse();
    let now = Timestamp::from_ms(6);
    assert_eq!((&back.state, back.reopened), (&ApprovalState::Pending, 1));
    assert_eq!(back.lapsed, BTreeSet::from([0]), "there is no tenth");
    assert_eq!(back.ballot().tally(), Tally::Open);
    assert_eq!(back.ballot().agreed_of(&"a".parse().unwrap()), 0);
    // A vote that has not lapsed still counts.
    assert_eq!(back.cast(yes("bob", &["b"]), now), Err(VoteError::Twice));
    let again = back.cast(yes("ann", &["a"]), now).unwrap();
    assert_eq!((&again.state, again.votes.len()), (&ApprovalState::Approved, 3));
    assert!(again.may_follow(Some(&back)));
    assert_eq!(
        again.cast(yes("ann", &["a"]), now).unwrap_err().to_string(),
        VoteError::Late { state: "approved" }.to_string()
    );
}

#[test]
fn a_lapse_is_not_taken_back_and_no_denial_lapses() {
    let back = back_with_a_lapse();
    let forgotten = ApprovalRecord { lapsed: BTreeSet::new(), rev: back.rev + 1, ..back.clone() };
    assert!(!forgotten.may_follow(Some(&back)));
    let fewer = ApprovalRecord { reopened: 0, rev: back.rev + 1, ..back.clone() };
    assert!(!fewer.may_follow(Some(&back)));
    let asked = Requirement { deny_threshold: 2, ..requirement(&[], 1) };
    let now = Timestamp::from_ms(5);
    let voted = pending(asked.clone()).cast(vote("dan", &["a"], VoteChoice::Deny), now).unwrap();
    let agreed = voted.cast(yes("ann", &["a"]), now).unwrap();
    let back = agreed.back(asked, &BTreeSet::from([0, 1]), now).unwrap();
    assert_eq!(back.lapsed, BTreeSet::from([1]));
}

#[test]
fn what_went_back_to_its_approvers_is_shown_with_what_is_asked_for_now() {
    let asked = pending(requirement(&[("a", 1)], 1));
    assert_eq!(asked.shown(), asked.proposal);
    let agreed = asked.cast(yes("ann", &["a"]), Timestamp::from_ms(5)).unwrap();
    let back = |asked| agreed.back(asked, &BTreeSet::new(), Timestamp::from_ms(6)).unwrap();
    let (two, three) = (back(requirement(&[("a", 2)], 2)), back(requirement(&[("a", 3)], 3)));
    assert_ne!(two.shown(), asked.shown());
    assert_ne!(two.shown(), three.shown());
    // Decisions are on the proposal all the same: earlier votes count.
    assert_eq!(two.ballot().agreed_of(&"a".parse().unwrap()), 1);
}

#[test]
fn what_people_are_told_of_the_run_changes_only_where_they_are_asked_again() {
    let asked = pending(requirement(&[("a", 1)], 1));
    let secret = BTreeSet::from([Taint::Secret]);
    assert!(asked.is_stale(&secret) && !asked.is_stale(&BTreeSet::new()));
    let agreed = asked.cast(yes("ann", &["a"]), Timestamp::from_ms(5)).unwrap();
    assert_eq!(agreed.agreements(), [0].into());
    let told = |before: &ApprovalRecord| ApprovalRecord { taint: secret.clone(), ..before.clone() };
    assert!(!told(&agreed).may_follow(Some(&asked)), "behind the back of who votes");
    let lapsed = agreed.agreements();
    let back = agreed.back(requirement(&[("a", 1)], 1), &lapsed, Timestamp::from_ms(6)).unwrap();
    let told = told(&back);
    assert!(told.may_follow(Some(&agreed)) && !told.is_stale(&secret));
    assert_ne!(told.shown(), back.shown());
    let now = Timestamp::from_ms(7);
    let again = told.cast(yes("ann", &["a"]), now).unwrap();
    assert!(again.may_follow(Some(&told)));
    let forgotten = ApprovalRecord { taint: BTreeSet::new(), ..again };
    assert!(!forgotten.may_follow(Some(&told)));
}

#[test]
fn what_went_back_ends_at_the_earlier_of_what_was_given_at_first_and_what_is_given_now() {
    let asked = pending(requirement(&[("a", 1)], 1));
    let agreed = asked.cast(yes("ann", &["a"]), Timestamp::from_ms(5)).unwrap();
    let at_first = asked.expires_at.as_ms();
    let back = |given_ms: i64, now_ms: i64| {
        let expires_in_ms = u64::try_from(given_ms).unwrap();
        let more = Requirement { expires_in_ms, ..requirement(&[("a", 2)], 2) };
        let back = agreed.back(more, &BTreeSet::new(), Timestamp::from_ms(now_ms)).unwrap();
        assert!(back.may_follow(Some(&agreed)));
        back.expires_at.as_ms()
    };
    assert_eq!(back(at_first - 10, 6), at_first - 4, "less is given now");
    assert_eq!(back(at_first - 10, 60), at_first, "it would end later");
    assert_eq!(back(at_first * 9, 6), at_first, "no time is given on top");
    let follows = |expires_ms: i64, reopened| {
        let expires_at = Timestamp::from_ms(expires_ms);
        let next = agreed.back(requirement(&[("a", 2)], 2), &BTreeSet::new(), expires_at).unwrap();
        ApprovalRecord { expires_at, reopened, ..next }.may_follow(Some(&agreed))
    };
    assert!(follows(at_first - 1, 1) && follows(at_first, 1));
    assert!(!follows(at_first + 1, 1), "longer than at first");
    assert!(!follows(at_first - 1, 0), "shorter without having gone back");
}

#[test]
fn an_edit_may_end_sooner_and_never_later_and_no_vote_changes_the_end() {
    let asked = pending(requirement(&[("a", 1)], 1));
    let shown = Digest::of(b"other arguments");
    let edit = Edited {
        request_digest: Digest::of(b"another request"),
        proposal: shown,
        from_parked: Digest::of(b"parked"),
        requirement: requirement(&[("a", 1)], 1),
        change: Change { narrower: false, masked: BTreeSet::new() },
    };
    let vote = Vote { shown_digest: shown, ..yes("ann", &["a"]) };
    let edited = asked.edited(edit, vote, Timestamp::from_ms(5)).unwrap();
    let by = |next: &ApprovalRecord, ms: i64| {
        let expires_at = asked.expires_at.plus_ms(ms);
        ApprovalRecord { expires_at, ..next.clone() }.may_follow(Some(&asked))
    };
    assert!(by(&edited, 0) && by(&edited, -1));
    assert!(!by(&edited, 1), "longer than at first");
    let voted = asked.cast(yes("ben", &["a"]), Timestamp::from_ms(5)).unwrap();
    assert!(by(&voted, 0) && !by(&voted, -1) && !by(&voted, 1));
}

#[test]
fn only_denials_and_agreements_to_the_current_arguments_count() {
    let at = Timestamp::from_ms(5);
    let mut asked = pending(requirement(&[("a", 3)], 3));
    asked.requirement.deny_threshold = 2;
    let no = Vote { choice: VoteChoice::Deny, ..yes("cy", &["a"]) };
    let asked = asked.cast(yes("ann", &["a"]), at).unwrap().cast(no, at).unwrap();
    let shown = Digest::of(b"fewer arguments");
    let edit = Edited {
        request_digest: Digest::of(b"another request"),
        proposal: shown,
        from_parked: Digest::of(b"parked"),
        requirement: asked.requirement.clone(),
        change: Change { narrower: true, masked: BTreeSet::new() },
    };
    let vote = Vote { shown_digest: shown, ..yes("ben", &["a"]) };
    let edited = asked.edited(edit, vote, at).unwrap();
    let counted = edited.counted_votes().map(|vote| vote.approver.as_str());
    assert_eq!(counted.collect::<Vec<_>>(), ["cy", "ben"]);
    assert_eq!(edited.uncounted(), [0].into());
}

#[test]
fn a_record_without_lapses_reads_and_writes_as_before_there_were_any() {
    let asked = pending(requirement(&[("a", 1)], 1));
    let written = serde_json::to_value(&asked).unwrap();
    assert!(written.get("lapsed").is_none() && written.get("reopened").is_none());
    assert_eq!(serde_json::from_value::<ApprovalRecord>(written).unwrap(), asked);
    let back = back_with_a_lapse();
    let written = serde_json::to_value(&back).unwrap();
    assert_eq!(serde_json::from_value::<ApprovalRecord>(written).unwrap(), back);
}
