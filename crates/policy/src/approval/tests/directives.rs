//! Thresholds, escalations, delegations, standing grants and fresh proofs, as they count.

use std::collections::{BTreeMap, BTreeSet};

use placet_types::{
    approval::{ApproverGroup, Escalation, Requirement, Vote, VoteChoice},
    digest::Digest,
};

use crate::{
    facts::BreakGlassFacts,
    snapshot::Snapshot,
    testing::{Draft, NOW, bundle, compile, policies, refund, vote, word, world},
    verdict::Verdict,
};

const PERMIT: &str = r#"@id("all") permit (principal, action in [Placet::Action::"tier_destructive", Placet::Action::"tier_local_write"], resource is Placet::Tool);"#;

/// A gate with these annotations, that is satisfied by one of any of these groups.
fn gate(id: &str, annotations: &str, groups: &[&str]) -> String {
    let one_of: Vec<String> = groups
        .iter()
        .map(|group| format!("(context.req.approval.hasTag(\"{group}\") && context.req.approval.getTag(\"{group}\") >= 1)"))
        .collect();
    format!(
        "@id(\"{id}\") @approval(\"custom\") {annotations}\nforbid (principal, action in Placet::Action::\"cap_destructive\", resource is Placet::Tool)\nunless {{ context.req has approval && ({}) }};",
        one_of.join(" || ")
    )
}

fn with(gates: &[String]) -> Snapshot {
    compile(&bundle(&format!("{PERMIT}\n{}", gates.join("\n"))), &world()).unwrap()
}

fn requirement(snapshot: &Snapshot, draft: &Draft) -> (Requirement, Vec<String>) {
    let Verdict::Hold(hold) = draft.decide(snapshot) else { panic!("not held") };
    (hold.requirement, hold.decision.notes)
}

/// A refund whose approval was asked for by this bundle.
fn asked(snapshot: &Snapshot, votes: Vec<Vote>) -> Draft {
    let (requirement, _) = requirement(snapshot, &refund());
    Draft { requirement, votes: Some(votes), ..refund() }
}

fn no(by: &str) -> Vote {
    Vote { choice: VoteChoice::Deny, ..vote(by, &[]) }
}

fn groups(escalation: &Escalation) -> String {
    let names: Vec<String> = escalation.stands_in_for.iter().map(ToString::to_string).collect();
    names.join(" ")
}

#[test]
fn one_no_does_not_end_what_takes_two() {
    let snapshot =
        with(&[gate("g", r#"@approver_group("approvers") @deny_threshold("2")"#, &["approvers"])]);
    let decide = |votes| word(&asked(&snapshot, votes).decide(&snapshot));
    assert_eq!(decide(vec![vote("ben", &[]), no("dan")]), "allow");
    assert_eq!(decide(vec![vote("ben", &[]), no("dan"), no("dan")]), "allow");
    assert_eq!(decide(vec![vote("ben", &[]), no("dan"), no("cleo")]), "approval_refused");
    // A denial counts whatever was shown, and one given for a colleague is the colleague's.
    let other = Vote { shown_digest: Digest::of(b"other"), ..no("cleo") };
    assert_eq!(decide(vec![vote("ben", &[]), no("dan"), other]), "approval_refused");
    let for_dan = Vote { stands_for: Some("dan".parse().unwrap()), ..no("cleo") };
    assert_eq!(decide(vec![vote("ben", &[]), no("dan"), for_dan]), "allow");
}

#[test]
fn several_policies_are_joined_to_the_strictest() {
    let lax = gate(
        "a",
        r#"@approver_group("approvers") @deny_threshold("3") @fresh_auth("4h")"#,
        &["approvers"],
    );
    let strict = gate(
        "b",
        r#"@approver_group("security") @deny_threshold("2") @fresh_auth("15m") @once_only("true")"#,
        &["security"],
    );
    let (joined, _) = requirement(&with(&[lax.clone(), strict]), &refund());
    assert_eq!(
        (joined.deny_threshold, joined.fresh_auth_ms, joined.once_only),
        (2, Some(900_000), true)
    );
    let (alone, _) = requirement(&with(&[lax]), &refund());
    assert_eq!(
        (alone.deny_threshold, alone.fresh_auth_ms, alone.once_only),
        (3, Some(14_400_000), false)
    );
    let plain = gate("c", r#"@approver_group("approvers")"#, &["approvers"]);
    let (plain, _) = requirement(&with(&[plain]), &refund());
    assert_eq!((plain.deny_threshold, plain.fresh_auth_ms, plain.once_only), (1, None, false));
}

#[test]
fn escalations_are_in_order_and_stand_in_for_their_own_policy() {
    let gates = [gate(
        "g",
        r#"@approver_group("approvers") @escalate("8h: directors:2, 2h: managers")"#,
        &["approvers", "managers", "directors"],
    )];
    let (joined, notes) = requirement(&with(&gates), &refund());
    let found: Vec<_> = joined
        .escalations
        .iter()
        .map(|one| (one.after_ms, one.group.to_string(), one.people, groups(one)))
        .collect();
    assert_eq!(
        found,
        [
            (7_200_000, "managers".to_owned(), 1, "approvers".to_owned()),
            (28_800_000, "directors".to_owned(), 2, "approvers".to_owned())
        ]
    );
    assert_eq!(notes, Vec::<String>::new());
}

#[test]
fn an_escalation_does_not_answer_for_a_policy_that_has_none() {
    let open = gate(
        "a",
        r#"@approver_group("approvers, security") @escalate("2h: managers")"#,
        &["approvers", "managers"],
    );
    let shut = gate("b", r#"@approver_group("approvers")"#, &["approvers"]);
    let (joined, _) = requirement(&with(&[open.clone(), shut]), &refund());
    assert_eq!(joined.escalations.iter().map(groups).collect::<Vec<_>>(), ["security"]);
    // Where both have the same escalation, the stricter of the two is asked.
    let slower = gate(
        "c",
        r#"@approver_group("approvers") @escalate("3h: managers:2")"#,
        &["approvers", "managers"],
    );
    let (joined, _) = requirement(&with(&[open, slower]), &refund());
    let found: Vec<_> =
        joined.escalations.iter().map(|one| (one.after_ms, one.people, groups(one))).collect();
    assert_eq!(found, [(10_800_000, 2, "approvers security".to_owned())]);
}

#[test]
fn an_escalation_that_the_conditions_do_not_accept_is_left_out_and_said() {
    let gates =
        [gate("g", r#"@approver_group("approvers") @escalate("2h: managers")"#, &["approvers"])];
    let (joined, notes) = requirement(&with(&gates), &refund());
    assert_eq!(joined.escalations, []);
    assert_eq!(
        notes,
        ["nobody of `managers` is asked later: the conditions do not accept them instead"]
    );
}

#[test]
fn an_escalation_after_the_shortest_time_is_left_out() {
    let late = gate(
        "a",
        r#"@approver_group("approvers") @escalate("8h: managers")"#,
        &["approvers", "managers"],
    );
    let short = gate("b", r#"@approver_group("security") @expires("8h")"#, &["security"]);
    assert_eq!(requirement(&with(&[late, short]), &refund()).0.escalations, []);
}

#[test]
fn who_is_asked_later_counts_only_from_then_on() {
    let snapshot = with(&[gate(
        "g",
        r#"@approver_group("approvers") @escalate("2h: managers")"#,
        &["approvers", "managers"],
    )]);
    let early = asked(&snapshot, vec![vote("mia", &["managers"])]);
    assert_eq!(word(&early.decide(&snapshot)), "hold");
    let late = Draft { escalated: 1, ..early };
    assert_eq!(word(&late.decide(&snapshot)), "allow");
    // A member of a group that was asked from the start counts in that one all the time.
    let both = asked(&snapshot, vec![vote("mia", &["approvers", "managers"])]);
    assert_eq!(word(&both.decide(&snapshot)), "allow");
}

/// A gate that asks two approvers, and whose own condition wants this many people.
fn two_asked(total: u32) -> String {
    let head = r#"@id("g") @approval("custom") @approver_group("approvers") @quorum("2")
        forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool)
        unless { context.req has approval && context.req.approval.total"#;
    format!("{head} >= {total} }};")
}

#[test]
fn a_colleagues_vote_is_one_voice_with_the_colleague() {
    let snapshot = with(&[two_asked(2)]);
    let for_ben =
        |by| Vote { stands_for: Some("ben".parse().unwrap()), ..vote(by, &["approvers"]) };
    let decide = |votes| word(&asked(&snapshot, votes).decide(&snapshot));
    assert_eq!(decide(vec![for_ben("cleo"), vote("dan", &[])]), "allow");
    assert_eq!(decide(vec![for_ben("cleo"), vote("ben", &[])]), "hold");
    assert_eq!(decide(vec![vote("ben", &[]), for_ben("cleo")]), "hold");
    assert_eq!(decide(vec![for_ben("cleo"), vote("cleo", &["approvers"])]), "hold");
    assert_eq!(decide(vec![for_ben("cleo"), for_ben("dan")]), "hold");
    // Neither slips in behind a first vote that does not count itself: eve is not active.
    let for_eve = Vote { stands_for: Some("eve".parse().unwrap()), ..vote("cleo", &["approvers"]) };
    assert_eq!(decide(vec![for_eve, vote("cleo", &["approvers"]), vote("dan", &[])]), "hold");
}

/// As the ledger does, also where fewer were asked before.
#[test]
fn a_weaker_condition_counts_nobody_before_as_many_agree_as_asked() {
    let snapshot = with(&[two_asked(1)]);
    let one = asked(&snapshot, vec![vote("ben", &[])]);
    let two = asked(&snapshot, vec![vote("ben", &[]), vote("dan", &[])]);
    assert_eq!((word(&one.decide(&snapshot)), word(&two.decide(&snapshot))), ("hold", "allow"));
    let before = Requirement::new([("approvers".parse().unwrap(), 1)].into(), 1, 3_600_000);
    let before = Draft { requirement: before, ..one.clone() };
    assert_eq!(word(&before.decide(&snapshot)), "hold");
    // A standing grant needs those whom it asked; what the condition asks of them is the policy's.
    assert_eq!(word(&Draft { standing: true, ..before }.decide(&snapshot)), "allow");
    assert_eq!(word(&Draft { standing: true, ..one }.decide(&snapshot)), "hold");
}

#[test]
fn a_colleagues_groups_hold_as_long_as_they_are_the_colleagues() {
    let snapshot = with(&[gate("g", r#"@approver_group("approvers")"#, &["approvers"])]);
    let old = |stands_for: &str| Vote {
        stands_for: Some(stands_for.parse().unwrap()),
        groups_as_of: NOW.plus_ms(-86_400_001),
        ..vote("cleo", &["approvers"])
    };
    // Ben is in the group by the directory, mia was by claims that are too old by now.
    assert_eq!(word(&asked(&snapshot, vec![old("ben")]).decide(&snapshot)), "allow");
    assert_eq!(word(&asked(&snapshot, vec![old("mia")]).decide(&snapshot)), "hold");
}

/// However recent the voter's token is: it did not name the group.
#[test]
fn a_group_that_the_directory_gave_counts_only_as_long_as_it_does() {
    let snapshot = with(&[gate("g", r#"@approver_group("approvers")"#, &["approvers"])]);
    let taken_away = |vote: Vote| Vote { claimed: BTreeSet::new(), ..vote };
    let decide = |vote: Vote| word(&asked(&snapshot, vec![vote]).decide(&snapshot));
    assert_eq!(decide(vote("mia", &["approvers"])), "allow");
    assert_eq!(decide(taken_away(vote("mia", &["approvers"]))), "hold");
    assert_eq!(decide(taken_away(vote("ben", &["approvers"]))), "allow", "it does still");
    let for_mia = Vote { stands_for: Some("mia".parse().unwrap()), ..vote("cleo", &["approvers"]) };
    assert_eq!(decide(for_mia.clone()), "allow");
    assert_eq!(decide(taken_away(for_mia)), "hold");
    let chain = refund().chain;
    let requirement = Requirement::new([("approvers".parse().unwrap(), 1)].into(), 1, 3_600_000);
    let votes = [taken_away(vote("mia", &["approvers"])), taken_away(vote("ben", &["approvers"]))];
    let lapsed = snapshot.lapsed(&chain, &requirement, &votes, NOW);
    assert_eq!(lapsed.into_iter().collect::<Vec<_>>(), [0]);
}

/// A gate may count people without naming their group: who is no longer of the group that was asked does not count there either.
#[test]
fn a_condition_on_the_total_counts_only_those_who_still_are_who_was_asked() {
    let anyone = r#"@id("g") @approval("custom") @approver_group("approvers")
        forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool)
        unless { context.req has approval && context.req.approval.total >= 1 };"#;
    let snapshot = with(&[anyone.to_owned()]);
    let decide = |vote: Vote| word(&asked(&snapshot, vec![vote]).decide(&snapshot));
    assert_eq!(decide(vote("mia", &["approvers"])), "allow");
    let known = |groups: &[&str]| groups.iter().map(|group| group.parse().unwrap()).collect();
    let left = Vote { claimed: known(&["managers"]), ..vote("mia", &["approvers", "managers"]) };
    assert_eq!(decide(left.clone()), "hold", "no longer one of those who are asked");
    let chain = refund().chain;
    let requirement = Requirement::new([("approvers".parse().unwrap(), 1)].into(), 1, 3_600_000);
    assert_eq!(snapshot.lapsed(&chain, &requirement, &[left], NOW), [0].into());
}

#[test]
fn a_vote_without_the_fresh_proof_that_was_asked_for_does_not_count() {
    let snapshot =
        with(&[gate("g", r#"@approver_group("approvers") @fresh_auth("15m")"#, &["approvers"])]);
    let decide = |ago_ms: Option<i64>| {
        let at = vote("ben", &[]).at;
        let authenticated_at = ago_ms.map(|ago| at.plus_ms(ago.saturating_neg()));
        let votes = vec![Vote { authenticated_at, ..vote("ben", &[]) }];
        word(&asked(&snapshot, votes).decide(&snapshot))
    };
    assert_eq!(decide(Some(900_000)), "allow");
    assert_eq!(decide(Some(900_001)), "hold");
    assert_eq!(decide(Some(-60_001)), "hold", "a proof from the future");
    assert_eq!(decide(None), "hold");
}

/// What is asked when the call runs decides who counts, and from when on: not what was asked when they agreed.
#[test]
fn nobody_counts_early_for_a_group_that_is_asked_later_now() {
    let required = |more: &str| {
        with(&[format!(
            "@id(\"g\") @approval(\"required\") {more}
            forbid (principal, action in Placet::Action::\"cap_destructive\", resource is Placet::Tool);"
        )])
    };
    let before = required(r#"@approver_group("approvers")"#);
    let now = required(r#"@approver_group("security") @escalate("2h: managers")"#);
    let held = asked(&before, vec![vote("mia", &["approvers", "managers"])]);
    assert_eq!(word(&held.decide(&before)), "allow");
    assert_eq!(word(&held.decide(&now)), "hold");
    assert_eq!(word(&Draft { standing: true, ..held }.decide(&now)), "hold");
    // An escalation that was made stays made.
    let (requirement, _) = requirement(&now, &refund());
    let votes = Some(vec![vote("mia", &["managers"])]);
    let late = Draft { requirement, votes, escalated: 1, ..refund() };
    assert_eq!(word(&late.decide(&now)), "allow");
}

#[test]
fn a_standing_grant_counts_by_how_fresh_a_sign_in_has_to_be_now() {
    let plain = with(&[gate("g", r#"@approver_group("approvers")"#, &["approvers"])]);
    let strict =
        with(&[gate("g", r#"@approver_group("approvers") @fresh_auth("15m")"#, &["approvers"])]);
    assert_eq!(used_grant(&standing(&plain), &plain), Some(true));
    assert_eq!(used_grant(&standing(&plain), &strict), None);
}

fn standing(snapshot: &Snapshot) -> Draft {
    Draft { standing: true, ..asked(snapshot, vec![vote("ben", &[])]) }
}

fn used_grant(draft: &Draft, snapshot: &Snapshot) -> Option<bool> {
    match draft.decide(snapshot) {
        Verdict::Permit(permit) => {
            assert!(permit.grant().is_none() || permit.approval_id().is_none());
            Some(permit.grant().is_some())
        }
        Verdict::Hold(_) => None,
        Verdict::Deny(denial) => panic!("denied: {:?}", denial.kind),
    }
}

#[test]
fn a_standing_grant_lets_a_call_run_and_the_permit_names_it() {
    let snapshot = with(&[gate("g", r#"@approver_group("approvers")"#, &["approvers"])]);
    let Verdict::Permit(permit) = standing(&snapshot).decide(&snapshot) else {
        panic!("no permit")
    };
    assert_eq!(permit.grant().map(|grant| grant.as_str()), Some("grant_1"));
    assert_eq!(permit.approval_id(), None);
    let single = Draft { standing: false, ..standing(&snapshot) };
    let Verdict::Permit(permit) = single.decide(&snapshot) else { panic!("no permit") };
    assert_eq!((permit.grant(), permit.approval_id().map(|id| id.as_str())), (None, Some("apr_1")));
}

/// The condition does not check the scope: the engine enforces the rule.
#[test]
fn no_standing_grant_satisfies_what_is_once_only() {
    let once = gate("g", r#"@approver_group("approvers") @once_only("true")"#, &["approvers"]);
    let snapshot = with(std::slice::from_ref(&once));
    assert_eq!(used_grant(&standing(&snapshot), &snapshot), None);
    // Nor when it was agreed to before the gate was once-only,
    let groups: BTreeMap<ApproverGroup, u32> = [("approvers".parse().unwrap(), 1)].into();
    let before =
        Draft { requirement: Requirement::new(groups, 1, 3_600_000), ..standing(&snapshot) };
    assert_eq!(used_grant(&before, &snapshot), None);
    // nor when one of several gates is,
    let other = gate("h", r#"@approver_group("approvers")"#, &["approvers"]);
    let both = with(&[once, other.clone()]);
    assert_eq!(used_grant(&before, &both), None);
    // nor when a gate that was asked at the time was once-only, and no longer exists.
    let snapshot = with(&[other]);
    let strict = Requirement { once_only: true, ..before.requirement.clone() };
    assert_eq!(used_grant(&Draft { requirement: strict, ..before.clone() }, &snapshot), None);
    assert_eq!(used_grant(&before, &snapshot), Some(true));
    let single = Draft { standing: false, ..before };
    assert_eq!(used_grant(&single, &snapshot), Some(false));
}

#[test]
fn a_condition_may_refuse_standing_grants_by_itself() {
    let snapshot = with(&[r#"@id("g") @approval("custom") @approver_group("approvers")
        forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool)
        unless { context.req has approval && context.req.approval.scope == Placet::ApprovalScope::"once" };"#
        .to_owned()]);
    assert_eq!(used_grant(&standing(&snapshot), &snapshot), None);
    assert_eq!(
        used_grant(&Draft { standing: false, ..standing(&snapshot) }, &snapshot),
        Some(false)
    );
}

#[test]
fn a_standing_grant_of_no_use_is_as_none() {
    let snapshot = with(&[gate("g", r#"@approver_group("approvers")"#, &["approvers"])]);
    let grant = standing(&snapshot);
    for useless in [
        Draft { frozen: true, ..grant.clone() },
        Draft { approval_ends: NOW, ..grant.clone() },
        Draft { approved_digest: Some(Digest::of(b"other call")), ..grant.clone() },
        Draft { votes: Some(vec![vote("ben", &[]), no("dan")]), ..grant.clone() },
        Draft { votes: Some(vec![]), ..grant.clone() },
    ] {
        assert_eq!(used_grant(&useless, &snapshot), None, "{useless:?}");
    }
}

#[test]
fn a_call_that_nobody_has_to_approve_uses_no_standing_grant() {
    let snapshot = with(&[]);
    let grant = Draft { standing: true, votes: Some(vec![vote("ben", &[])]), ..refund() };
    assert_eq!(used_grant(&grant, &snapshot), Some(false));
}

#[test]
fn a_standing_grant_does_not_hide_an_error() {
    let snapshot = with(&[format!(
        "{}\n@id(\"odd\") @approval(\"never\") forbid (principal, action in Placet::Action::\"cap_destructive\", resource is Placet::Tool) when {{ !(context.req has approval) && 9223372036854775807 + 1 > 0 }};",
        gate("g", r#"@approver_group("approvers")"#, &["approvers"])
    )]);
    let single = Draft { votes: Some(vec![vote("ben", &[])]), ..refund() };
    assert_eq!(word(&Draft { standing: true, ..single }.decide(&snapshot)), "error");
}

#[test]
fn edited_arguments_are_told_to_policy() {
    let snapshot = with(&[r#"@id("g") @approval("custom") @approver_group("approvers")
        forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool)
        unless { context.req has approval && !context.req.approval.args_edited };"#
        .to_owned()]);
    let plain = asked(&snapshot, vec![vote("ben", &[])]);
    assert_eq!(word(&plain.decide(&snapshot)), "allow");
    // No agreement to edited arguments would ever help here, so people are no longer asked.
    assert_eq!(word(&Draft { args_edited: true, ..plain }.decide(&snapshot)), "policy");
}

#[test]
fn a_broken_glass_opens_the_gates_that_name_it_and_only_in_its_time() {
    let opted = r#"@id("g") @approval("custom") @approver_group("approvers")
        forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool)
        unless { (context.req has break_glass && context.req.break_glass.actor.active && context.req.break_glass.ticket like "INC-*")
          || (context.req has approval && context.req.approval.total >= 1) };"#;
    let snapshot = with(&[opted.to_owned()]);
    let broken = |by: &str, ticket: &str, ends_in_ms| Draft {
        break_glass: Some(BreakGlassFacts {
            ticket: ticket.to_owned(),
            actor: by.parse().unwrap(),
            until: NOW.plus_ms(ends_in_ms),
        }),
        ..refund()
    };
    let decide = |draft: Draft| word(&draft.decide(&snapshot));
    assert_eq!(decide(refund()), "hold");
    assert_eq!(decide(broken("ben", "INC-7", 1)), "allow");
    assert_eq!(decide(broken("olga", "INC-7", 1)), "allow", "somebody the call has anyway");
    assert_eq!(decide(broken("ben", "INC-7", 0)), "hold", "it has expired");
    assert_eq!(decide(broken("eve", "INC-7", 1)), "hold", "not active");
    assert_eq!(decide(broken("ben", "fun", 1)), "hold");
    let closed = with(&[gate("g", r#"@approver_group("approvers")"#, &["approvers"])]);
    assert_eq!(word(&broken("ben", "INC-7", 1).decide(&closed)), "hold");
    assert_eq!(policies(&broken("ben", "INC-7", 1).decide(&closed)), ["g", "g"]);
}

/// Exactly those agreements are asked for again that policy no longer counts, and none that it still counts.
#[test]
fn agreements_lapse_with_what_they_were_given_as() {
    let snapshot = with(&[gate("g", r#"@approver_group("approvers")"#, &["approvers"])]);
    let chain = refund().chain;
    let old = |vote: Vote| Vote { groups_as_of: NOW.plus_ms(-25 * 3_600_000), ..vote };
    let (asked, other) = (&["approvers"][..], &["finance"][..]);
    let in_groups = vote;
    let votes = [
        // The directory does not know this one; the token does, of today.
        in_groups("una", asked),
        old(in_groups("una", asked)),
        // A denial is final.
        Vote { choice: VoteChoice::Deny, ..old(in_groups("una", asked)) },
        // Nothing says any more that they are anybody.
        old(in_groups("una", other)),
        Vote { groups: [].into(), ..vote("una", &[]) },
        // Still known to be in the group that is asked; groups that are not asked do not matter.
        old(in_groups("ben", &["approvers", "nowhere"])),
    ];
    let groups: BTreeMap<ApproverGroup, u32> = [("approvers".parse().unwrap(), 1)].into();
    let mut requirement = Requirement::new(groups, 1, 3_600_000);
    let lapsed = |requirement: &Requirement| {
        snapshot.lapsed(&chain, requirement, &votes, NOW).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(lapsed(&requirement), [1, 3, 4]);
    // Now a fresh sign-in is required.
    requirement.fresh_auth_ms = Some(60_000);
    assert_eq!(lapsed(&requirement), [0, 1, 3, 4, 5]);
    // Groups asked later count as asked, too.
    requirement.fresh_auth_ms = None;
    requirement.escalations.push(Escalation {
        after_ms: 1,
        group: "nowhere".parse().unwrap(),
        people: 1,
        stands_in_for: ["approvers".parse().unwrap()].into(),
    });
    assert_eq!(lapsed(&requirement), [1, 3, 4, 5]);
}

#[test]
fn an_agreement_counts_by_how_fresh_a_sign_in_has_to_be_now() {
    let plain = with(&[gate("g", r#"@approver_group("approvers")"#, &["approvers"])]);
    let strict =
        with(&[gate("g", r#"@approver_group("approvers") @fresh_auth("15m")"#, &["approvers"])]);
    let old = Vote { authenticated_at: None, ..vote("ben", &[]) };
    let held = asked(&plain, vec![old.clone()]);
    assert_eq!(word(&held.decide(&plain)), "allow");
    assert_eq!(word(&held.decide(&strict)), "hold");
    let fresh = Vote { authenticated_at: Some(old.at), ..old };
    assert_eq!(word(&asked(&plain, vec![fresh]).decide(&strict)), "allow");
}

#[test]
fn denials_are_counted_by_how_many_are_enough_now() {
    let two =
        with(&[gate("g", r#"@approver_group("approvers") @deny_threshold("2")"#, &["approvers"])]);
    let one = with(&[gate("g", r#"@approver_group("approvers")"#, &["approvers"])]);
    let held = asked(&two, vec![vote("ben", &[]), no("dan")]);
    assert_eq!(word(&held.decide(&two)), "allow");
    let Verdict::Deny(denial) = held.decide(&one) else { panic!("one denial is enough now") };
    assert_eq!(denial.kind, crate::decision::DenialKind::ApprovalRefused);
}

#[test]
fn the_quorum_is_the_number_of_distinct_people_needed() {
    let needed = |groups: &str, more: &str| {
        let gate = format!(
            "@id(\"g\") @approval(\"required\") @approver_group(\"{groups}\") {more}
            forbid (principal, action in Placet::Action::\"cap_destructive\", resource is Placet::Tool);"
        );
        requirement(&with(&[gate]), &refund()).0.quorum
    };
    assert_eq!(needed("approvers", ""), 1);
    assert_eq!(needed("approvers, security", ""), 2, "nobody is in both");
    assert_eq!(needed("approvers:2, security", ""), 3);
    assert_eq!(needed("approvers, security", "@quorum(\"4\")"), 4, "a larger quorum stays");
    // One of `managers` may answer for both later, and is one person.
    assert_eq!(needed("approvers, security", "@escalate(\"2h: managers\")"), 1);
}
