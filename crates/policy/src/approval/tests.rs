//! Which votes count, what a held call needs, and what an approval is worth.

mod ballot;
mod directives;
mod external;

use placet_types::{
    approval::{Vote, VoteChoice},
    digest::Digest,
    error::ErrorCode,
    mode::EngineMode,
};
use serde_json::json;

use crate::{
    decision::{DenialKind, Outcome},
    facts::BudgetView,
    snapshot::Snapshot,
    testing::{Draft, NOW, agent, bundle, compile, policies, refund, vote, word, world},
    verdict::Verdict,
};

const APPROVED_BY_TWO: &str = r#"unless {
  context.req has approval
  && !context.req.approval.denied
  && context.req.approval.request_digest == context.req.evidence.request_digest
  && context.req.now < context.req.approval.expires_at
  && context.req.approval.total >= 2
  && context.req.approval.hasTag("security") && context.req.approval.getTag("security") >= 1
  && !(context.req has on_behalf_of && context.req.approval.approvers.contains(context.req.on_behalf_of))
}"#;

/// The worked example: two people, one of them from `security`.
fn example() -> String {
    format!(
        r#"
@id("agents-read-and-network-in-own-tenant")
permit (principal is Placet::Agent, action in [Placet::Action::"tier_read_only", Placet::Action::"tier_network"], resource is Placet::Tool)
when {{ principal.tenant == context.req.tenant && context.req.attested }};

@id("finance-agents-refund")
permit (principal is Placet::Agent, action == Placet::Action::"ops/refund", resource is Placet::Tool)
when {{ principal in Placet::AgentClass::"acme/finance-bots" && context.req has on_behalf_of
       && context.req.on_behalf_of in Placet::Group::"acme/finance"
       && context.req.budget.cents_left >= context.input.cents }};

@id("user-baseline")
permit (principal is Placet::User, action in [Placet::Action::"tier_read_only", Placet::Action::"tier_network", Placet::Action::"tier_destructive"], resource is Placet::Tool);

@id("destructive-needs-two")
@approval("custom") @approver_group("security") @quorum("2") @expires("4h") @four_eyes("true")
@reason("Destructive tool calls need two distinct approvers, one of them from security.")
forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool)
{APPROVED_BY_TWO};

@id("lockdown")
@approval("never")
@reason("Tenant is in lockdown.")
forbid (principal, action in Placet::Action::"call_tool", resource)
when {{ context.req.engine_mode == Placet::EngineMode::"lockdown" }};
"#
    )
}

fn example_snapshot() -> Snapshot {
    compile(&bundle(&example()), &world()).unwrap()
}

#[test]
fn the_table_of_the_policy_page_holds() {
    let snapshot = example_snapshot();
    let two = Some(vec![vote("dan", &[]), vote("cleo", &[])]);
    let check = |draft: Draft, outcome: &str, by: &[&str]| {
        let verdict = draft.decide(&snapshot);
        assert_eq!((word(&verdict), policies(&verdict).as_slice()), (outcome, by), "{draft:?}");
    };
    let both = ["destructive-needs-two", "destructive-needs-two"];
    check(refund(), "hold", &both);
    check(
        Draft { votes: two.clone(), ..refund() },
        "allow",
        &["finance-agents-refund", "user-baseline"],
    );
    let changed = Some(Digest::of(b"other"));
    check(
        Draft { votes: two.clone(), approved_digest: changed, ..refund() },
        "approval_changed",
        &both,
    );
    check(Draft { votes: two.clone(), approval_ends: NOW, ..refund() }, "approval_expired", &both);
    // The beneficiary's vote does not count, so one more is needed.
    check(
        Draft { votes: Some(vec![vote("dan", &[]), vote("ada", &[])]), ..refund() },
        "hold",
        &both,
    );
    // Two votes, none from security: more are needed.
    check(
        Draft { votes: Some(vec![vote("ben", &[]), vote("cleo", &[])]), ..refund() },
        "hold",
        &both,
    );
    let poor = BudgetView { cents_left: 499, ..refund().budget };
    check(Draft { budget: poor, votes: two.clone(), ..refund() }, "budget", &[]);
    check(Draft { budget: poor, ..refund() }, "budget", &both);
    let remove =
        Draft { tool: "ops/remove".parse().unwrap(), args: json!({ "name": "x" }), ..refund() };
    check(remove, "policy", &both);
    let locked = ["destructive-needs-two", "lockdown", "destructive-needs-two", "lockdown"];
    check(Draft { engine_mode: EngineMode::Lockdown, ..refund() }, "lockdown", &locked);
    let approved_then_locked = Draft { engine_mode: EngineMode::Lockdown, votes: two, ..refund() };
    check(approved_then_locked, "lockdown", &["lockdown", "lockdown"]);
    let fetch = Draft {
        tool: "ops/fetch".parse().unwrap(),
        args: json!({ "url": "u" }),
        chain: agent("bot"),
        ..refund()
    };
    check(fetch, "allow", &["agents-read-and-network-in-own-tenant"]);
}

#[test]
fn a_hold_says_who_has_to_agree_in_all() {
    let snapshot = example_snapshot();
    for votes in [None, Some(vec![]), Some(vec![vote("dan", &[])])] {
        let Verdict::Hold(hold) = (Draft { votes, ..refund() }).decide(&snapshot) else {
            panic!("not held")
        };
        assert_eq!(hold.requirement.quorum, 2);
        assert_eq!(
            hold.requirement.groups.iter().map(|(g, n)| (g.to_string(), *n)).collect::<Vec<_>>(),
            [("security".to_owned(), 1)]
        );
        assert_eq!(hold.requirement.expires_in_ms, 4 * 3_600_000);
        assert_eq!(hold.requirement.reasons.len(), 1);
        assert_eq!(hold.requirement.reasons[0].policy, "destructive-needs-two");
        assert_eq!(hold.decision.outcome, Outcome::Hold);
    }
}

#[test]
fn requirements_of_several_policies_are_unioned() {
    let more = format!(
        r#"{}
@id("network-too") @approval("custom") @approver_group("approvers:2, security") @expires("1h")
forbid (principal, action in Placet::Action::"cap_network", resource is Placet::Tool)
unless {{ context.req has approval && context.req.approval.hasTag("approvers") && context.req.approval.getTag("approvers") >= 2
  && context.req.approval.hasTag("security") }};"#,
        example()
    );
    let snapshot = compile(&bundle(&more), &world()).unwrap();
    let Verdict::Hold(hold) = refund().decide(&snapshot) else { panic!("not held") };
    let groups: Vec<_> = hold.requirement.groups.iter().map(|(g, n)| (g.to_string(), *n)).collect();
    assert_eq!(groups, [("approvers".to_owned(), 2), ("security".to_owned(), 1)]);
    // Nobody is in both groups, so three people are needed, whatever the quorum of each policy.
    assert_eq!((hold.requirement.quorum, hold.requirement.expires_in_ms), (3, 3_600_000));
    assert_eq!(hold.requirement.reasons.len(), 2);
    // Dan is in security, ben and mia in approvers: three people meet what two policies ask for.
    let votes = Some(vec![vote("dan", &[]), vote("ben", &[]), vote("mia", &["approvers"])]);
    assert_eq!(word(&Draft { votes, ..refund() }.decide(&snapshot)), "allow");
    let votes = Some(vec![vote("dan", &[]), vote("ben", &[])]);
    assert_eq!(word(&Draft { votes, ..refund() }.decide(&snapshot)), "hold");
}

#[test]
fn one_person_counts_once_however_often_they_vote() {
    let snapshot = example_snapshot();
    let votes = Some(vec![vote("dan", &[]), vote("dan", &["approvers"]), vote("dan", &[])]);
    assert_eq!(word(&Draft { votes, ..refund() }.decide(&snapshot)), "hold");
}

#[test]
fn votes_of_the_interested_the_inactive_and_the_misled_do_not_count() {
    let snapshot = example_snapshot();
    let second = vote("cleo", &[]);
    for first in [
        vote("olga", &["security"]),
        vote("ada", &["security"]),
        vote("eve", &["security"]),
        vote("fin-bot", &["security"]),
        vote("mia", &[]),
        Vote { shown_digest: Digest::of(b"other"), ..vote("dan", &["security"]) },
        Vote { groups_as_of: NOW.plus_ms(-86_400_001), ..vote("mia", &["security"]) },
        Vote { at: NOW.plus_ms(3_600_000), ..vote("dan", &["security"]) },
    ] {
        let votes = Some(vec![first.clone(), second.clone()]);
        assert_eq!(word(&Draft { votes, ..refund() }.decide(&snapshot)), "hold", "{first:?}");
    }
    let votes = Some(vec![vote("mia", &["security"]), second]);
    assert_eq!(word(&Draft { votes, ..refund() }.decide(&snapshot)), "allow");
}

#[test]
fn one_no_ends_an_approval_anyone_who_agreed_before() {
    let snapshot = example_snapshot();
    let no = Vote { choice: VoteChoice::Deny, ..vote("ben", &[]) };
    let votes = Some(vec![vote("dan", &[]), vote("cleo", &[]), no]);
    let verdict = Draft { votes, ..refund() }.decide(&snapshot);
    let Verdict::Deny(denial) = verdict else { panic!("not denied") };
    assert_eq!(
        (denial.kind, denial.code),
        (DenialKind::ApprovalRefused, ErrorCode::ApprovalDenied)
    );
}

/// A careless condition: it asks only whether there is an approval.
#[test]
fn a_careless_condition_is_not_satisfied_by_an_approval_that_does_not_count() {
    let careless = r#"
@id("all") permit (principal, action in Placet::Action::"tier_destructive", resource is Placet::Tool);
@id("gate") @approval("custom") @approver_group("approvers")
forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool) unless { context.req has approval };"#;
    let snapshot = compile(&bundle(careless), &world()).unwrap();
    let with = |votes, changed, ends| Draft {
        votes: Some(votes),
        approved_digest: changed,
        approval_ends: ends,
        ..refund()
    };
    let later = NOW.plus_ms(1);
    assert_eq!(word(&with(vec![], None, later).decide(&snapshot)), "hold");
    assert_eq!(word(&with(vec![vote("olga", &[])], None, later).decide(&snapshot)), "hold");
    assert_eq!(
        word(&with(vec![vote("ben", &[])], Some(Digest::of(b"x")), later).decide(&snapshot)),
        "approval_changed"
    );
    assert_eq!(
        word(&with(vec![vote("ben", &[])], None, NOW).decide(&snapshot)),
        "approval_expired"
    );
    assert_eq!(word(&with(vec![vote("ben", &[])], None, later).decide(&snapshot)), "allow");
}

#[test]
fn an_approval_that_is_no_longer_needed_is_not_missed() {
    let open = r#"@id("all") permit (principal, action in Placet::Action::"tier_destructive", resource is Placet::Tool);"#;
    let snapshot = compile(&bundle(open), &world()).unwrap();
    let expired = Draft { votes: Some(vec![]), approval_ends: NOW, ..refund() };
    assert_eq!(word(&expired.decide(&snapshot)), "allow");
}
