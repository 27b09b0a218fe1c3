//! The decision, rule by rule.

use placet_types::{
    approval::VoteChoice,
    digest::Digest,
    error::ErrorCode,
    mode::{ApprovalMode, EngineMode},
};
use serde_json::json;

use crate::{
    facts::BudgetView,
    snapshot::Snapshot,
    testing::{
        Draft, NOW, Swap, agent, agent_for, bundle, compile, policies, shipped, vote, word, world,
    },
    verdict::{DenialKind, Link, Outcome, Verdict},
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

/// The example of policy.md, section 4.
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
@approval("required") @approver_group("security") @quorum("2") @expires("4h") @four_eyes("true")
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

fn refund() -> Draft {
    Draft {
        chain: agent_for("fin-bot", "ada"),
        args: json!({ "order": "o1", "cents": 500 }),
        ..Draft::new(&world(), "ops/refund")
    }
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
            hold.requirement.groups.iter().map(|(g, n)| (g.as_str(), *n)).collect::<Vec<_>>(),
            [("security", 1)]
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
@id("network-too") @approval("required") @approver_group("approvers:2, security") @expires("1h")
forbid (principal, action in Placet::Action::"cap_network", resource is Placet::Tool)
unless {{ context.req has approval && context.req.approval.hasTag("approvers") && context.req.approval.getTag("approvers") >= 2
  && context.req.approval.hasTag("security") }};"#,
        example()
    );
    let snapshot = compile(&bundle(&more), &world()).unwrap();
    let Verdict::Hold(hold) = refund().decide(&snapshot) else { panic!("not held") };
    let groups: Vec<_> = hold.requirement.groups.iter().map(|(g, n)| (g.as_str(), *n)).collect();
    assert_eq!(groups, [("approvers", 2), ("security", 1)]);
    assert_eq!((hold.requirement.quorum, hold.requirement.expires_in_ms), (2, 3_600_000));
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
        placet_types::approval::Vote {
            shown_digest: Digest::of(b"other"),
            ..vote("dan", &["security"])
        },
        placet_types::approval::Vote {
            groups_as_of: NOW.plus_ms(-86_400_001),
            ..vote("mia", &["security"])
        },
        placet_types::approval::Vote { at: NOW.plus_ms(3_600_000), ..vote("dan", &["security"]) },
    ] {
        let votes = Some(vec![first.clone(), second.clone()]);
        assert_eq!(word(&Draft { votes, ..refund() }.decide(&snapshot)), "hold", "{first:?}");
    }
    let votes = Some(vec![vote("mia", &["security"]), second]);
    assert_eq!(word(&Draft { votes, ..refund() }.decide(&snapshot)), "allow");
}

#[test]
fn one_no_ends_an_approval_whoever_agreed_before() {
    let snapshot = example_snapshot();
    let no = placet_types::approval::Vote { choice: VoteChoice::Deny, ..vote("ben", &[]) };
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
@id("gate") @approval("required") @approver_group("approvers")
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

#[test]
fn an_agent_gets_no_more_than_its_user() {
    let snapshot = compile(
        &bundle(
            r#"
@id("agents") permit (principal is Placet::Agent, action in Placet::Action::"tier_read_only", resource is Placet::Tool);
@id("finance") permit (principal is Placet::User, action in Placet::Action::"tier_read_only", resource is Placet::Tool)
when { principal in Placet::Group::"acme/finance" };"#,
        ),
        &world(),
    )
    .unwrap();
    let look = |chain| Draft { chain, ..Draft::new(&world(), "ops/look") };
    assert_eq!(word(&look(agent("bot")).decide(&snapshot)), "allow");
    assert_eq!(word(&look(agent_for("bot", "ada")).decide(&snapshot)), "allow");
    let verdict = look(agent_for("bot", "cleo")).decide(&snapshot);
    assert_eq!(word(&verdict), "policy");
    assert!(verdict.decision().notes[0].contains(Link::User.as_str()));
    let claimed =
        Draft { user_groups: vec!["finance".to_owned()], ..look(agent_for("bot", "cleo")) };
    assert_eq!(word(&claimed.decide(&snapshot)), "allow");
    // Somebody the directory does not list exists by the verified token alone.
    let unlisted =
        Draft { user_groups: vec!["finance".to_owned()], ..look(agent_for("bot", "mia")) };
    assert_eq!(word(&unlisted.decide(&snapshot)), "allow");
}

#[test]
fn a_deny_of_one_link_beats_a_hold_of_the_other() {
    let text = r#"
@id("agents") permit (principal is Placet::Agent, action in Placet::Action::"tier_destructive", resource is Placet::Tool);
@id("users") permit (principal is Placet::User, action in Placet::Action::"tier_destructive", resource is Placet::Tool);
@id("ask") @approval("required") @approver_group("approvers")
forbid (principal is Placet::Agent, action in Placet::Action::"cap_destructive", resource is Placet::Tool)
unless { context.req has approval };
@id("never-cleo") @approval("never")
forbid (principal == Placet::User::"acme/cleo", action in Placet::Action::"cap_destructive", resource is Placet::Tool);"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let refund_for = |user| Draft { chain: agent_for("bot", user), ..refund() }.decide(&snapshot);
    assert_eq!(word(&refund_for("ada")), "hold");
    assert_eq!(word(&refund_for("cleo")), "policy");
}

#[test]
fn a_forbid_that_fails_to_evaluate_denies_instead_of_being_skipped() {
    let text = r#"
@id("all") permit (principal, action in Placet::Action::"tier_destructive", resource is Placet::Tool);
@id("large") @approval("never")
forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool)
when { context has input && context.input has cents && context.input.cents * 2 > 1000 };"#
        .replace("Placet::Action::\"cap_destructive\"", "Placet::Action::\"ops/refund\"")
        .replace("action in Placet::Action::\"ops/refund\"", "action == Placet::Action::\"ops/refund\"")
        .replace("context has input && context.input has cents && ", "");
    let snapshot = compile(&bundle(&text), &world()).unwrap();
    let cents = |cents: serde_json::Value| Draft {
        args: json!({ "order": "o", "cents": cents }),
        ..refund()
    };
    assert_eq!(word(&cents(json!(10)).decide(&snapshot)), "allow");
    assert_eq!(word(&cents(json!(1_000)).decide(&snapshot)), "policy");
    let verdict = cents(json!(i64::MAX)).decide(&snapshot);
    let Verdict::Deny(denial) = verdict else { panic!("trap T1") };
    assert_eq!((denial.kind, denial.code), (DenialKind::Error, ErrorCode::PolicyError));
    assert_eq!(denial.decision.errors, ["policy `large` could not be evaluated"]);
    assert!(!denial.leaves_approval());
}

#[test]
fn a_permit_that_fails_to_evaluate_denies_too() {
    let text = r#"
@id("all") permit (principal, action in Placet::Action::"tier_destructive", resource is Placet::Tool);
@id("odd") permit (principal, action == Placet::Action::"ops/refund", resource is Placet::Tool) when { context.input.cents + 1 > 0 };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let most = Draft { args: json!({ "order": "o", "cents": i64::MAX }), ..refund() };
    assert_eq!(word(&most.decide(&snapshot)), "error");
}

#[test]
fn an_error_only_the_counterfactual_meets_denies() {
    let text = r#"
@id("all") permit (principal, action in Placet::Action::"tier_destructive", resource is Placet::Tool);
@id("gate") @approval("required") @approver_group("approvers")
forbid (principal, action == Placet::Action::"ops/refund", resource is Placet::Tool)
unless { context.req has approval && context.req.approval.total * 9223372036854775807 + context.input.cents > 0 };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    assert_eq!(word(&refund().decide(&snapshot)), "error");
}

#[test]
fn arguments_that_no_type_holds_deny_as_an_error() {
    let snapshot = example_snapshot();
    for args in [
        json!({ "order": "o", "cents": u64::MAX }),
        json!({ "order": "o", "cents": "5" }),
        json!({ "order": "o" }),
        json!([]),
    ] {
        let verdict = Draft { args, ..refund() }.decide(&snapshot);
        assert_eq!(word(&verdict), "error");
        assert!(verdict.decision().errors[0].contains("cannot be put to policy"));
    }
}

#[test]
fn no_argument_is_quoted_in_a_decision() {
    let text = r#"
@id("all") permit (principal, action in Placet::Action::"tier_destructive", resource is Placet::Tool);
@id("odd") permit (principal, action == Placet::Action::"ops/refund", resource is Placet::Tool)
when { decimal("1.0") == decimal("1.0") && context.input.cents + 9223372036854775807 > 0 };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let verdict = Draft { args: json!({ "order": "canary", "cents": 424_242 }), ..refund() }
        .decide(&snapshot);
    assert_eq!(word(&verdict), "error");
    let text = serde_json::to_string(verdict.decision()).unwrap();
    assert!(!text.contains("canary") && !text.contains("424242"), "{text}");
}

#[test]
fn nobody_is_asked_when_no_approval_would_help() {
    let text = r#"
@id("all") permit (principal, action in Placet::Action::"tier_destructive", resource is Placet::Tool);
@id("gate") @approval("required") @approver_group("approvers")
forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool)
unless { context.req has approval && context.req.approval.total >= 2 };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let verdict = refund().decide(&snapshot);
    assert_eq!(word(&verdict), "policy");
    assert!(
        verdict.decision().notes[0].contains("`gate` would still forbid it"),
        "{:?}",
        verdict.decision().notes
    );
}

#[test]
fn a_policy_against_approved_calls_is_final() {
    let text = r#"
@id("all") permit (principal, action in Placet::Action::"tier_destructive", resource is Placet::Tool);
@id("gate") @approval("required") @approver_group("approvers")
forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool) unless { context.req has approval };
@id("not-by-ben") @approval("never")
forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool)
when { context.req has approval && context.req.approval.approvers.contains(Placet::User::"acme/ben") };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    assert_eq!(word(&refund().decide(&snapshot)), "hold");
    let verdict = Draft { votes: Some(vec![vote("ben", &[])]), ..refund() }.decide(&snapshot);
    assert_eq!((word(&verdict), policies(&verdict)), ("policy", vec!["not-by-ben", "not-by-ben"]));
    assert_eq!(
        word(&Draft { votes: Some(vec![vote("dan", &[])]), ..refund() }.decide(&snapshot)),
        "allow"
    );
}

#[test]
fn policy_may_lower_a_bounded_call_and_nothing_else_does() {
    let text = format!(
        "{}\n{}",
        shipped().files.iter().map(|file| file.text.as_str()).collect::<Vec<_>>().join("\n"),
        r#"
@id("small-refunds-are-routine")
permit (principal, action == Placet::Action::"ops/refund#lower", resource is Placet::Tool)
when { context.input.cents <= 1000 && context.mode_target == Placet::ApprovalMode::"local_write" };"#
    );
    let snapshot = compile(&bundle(&text), &world()).unwrap();
    let ask = |cents: i64, mode| Draft {
        args: json!({ "order": "o", "cents": cents }),
        mode: Some(mode),
        ..refund()
    };
    let small = ask(1_000, ApprovalMode::LocalWrite).decide(&snapshot);
    assert_eq!(word(&small), "allow");
    assert_eq!(small.decision().mode_effective, ApprovalMode::LocalWrite);
    assert_eq!(small.decision().mode_highest, ApprovalMode::Destructive);
    let Verdict::Permit(permit) = small else { panic!("no permit") };
    assert!(permit.write_class(), "lowering the mode does not make a write a read");
    assert_eq!(word(&ask(1_001, ApprovalMode::LocalWrite).decide(&snapshot)), "mode_upgraded");
    assert_eq!(word(&ask(1_000, ApprovalMode::Network).decide(&snapshot)), "mode_upgraded");
    assert_eq!(word(&ask(1_000, ApprovalMode::Destructive).decide(&snapshot)), "hold");
    // A guard by what the tool can do is not lowered with the mode.
    let alone =
        Draft { chain: agent("bot"), ..ask(1_000, ApprovalMode::LocalWrite) }.decide(&snapshot);
    assert_eq!((word(&alone), policies(&alone)), ("policy", vec!["delegated-needs-user"]));
}

#[test]
fn lowering_needs_every_link_and_an_error_in_it_denies() {
    let text = r#"
@id("all") permit (principal, action in Placet::Action::"tier_destructive", resource is Placet::Tool);
@id("lower") permit (principal is Placet::Agent, action == Placet::Action::"ops/refund#lower", resource is Placet::Tool)
when { context.input.cents + 1 > 0 };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let low = Draft { mode: Some(ApprovalMode::LocalWrite), ..refund() };
    assert_eq!(word(&Draft { chain: agent("bot"), ..low.clone() }.decide(&snapshot)), "allow");
    assert_eq!(word(&low.decide(&snapshot)), "mode_upgraded");
    let most =
        Draft { args: json!({ "order": "o", "cents": i64::MAX }), chain: agent("bot"), ..low };
    assert_eq!(word(&most.decide(&snapshot)), "error");
}

#[test]
fn a_mode_asked_for_that_differs_is_noted() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let look = Draft::new(&world(), "ops/look");
    let asked = Draft { mode: Some(ApprovalMode::Destructive), ..look.clone() }.decide(&snapshot);
    assert!(asked.decision().is_misclassified());
    assert_eq!(asked.decision().mode_effective, ApprovalMode::ReadOnly);
    assert!(!look.decide(&snapshot).decision().is_misclassified());
}

#[test]
fn the_floor_holds_under_a_bundle_that_permits_everything() {
    let everything = r#"
@id("all") permit (principal, action in
  [Placet::Action::"tier_read_only", Placet::Action::"tier_local_write", Placet::Action::"tier_network",
   Placet::Action::"tier_delegated", Placet::Action::"tier_destructive"], resource is Placet::Tool);"#;
    let snapshot = compile(&bundle(everything), &world()).unwrap();
    let note =
        |text: &str| Draft { args: json!({ "text": text }), ..Draft::new(&world(), "ops/note") };
    assert_eq!(word(&note("x").decide(&snapshot)), "allow");
    let budget = |calls_left, cents_left| BudgetView { calls_left, cents_left, ..note("").budget };
    let mut foreign = agent_for("bot", "zoe");
    foreign.on_behalf_of.as_mut().unwrap().tenant_id = "globex".parse().unwrap();
    let mut rival = agent("rival");
    rival.actor.tenant_id = "globex".parse().unwrap();
    for (draft, outcome) in [
        (Draft { engine_mode: EngineMode::Lockdown, ..note("x") }, "lockdown"),
        (Draft { chain: agent("stranger"), ..note("x") }, "policy"),
        (Draft { chain: agent("retired"), ..note("x") }, "policy"),
        (Draft { chain: agent_for("bot", "eve"), ..note("x") }, "policy"),
        (Draft { chain: foreign, ..note("x") }, "policy"),
        (Draft { chain: rival, ..note("x") }, "policy"),
        (Draft { key: false, ..note("x") }, "policy"),
        (Draft { budget: budget(0, 100), ..note("x") }, "budget"),
        (Draft { budget: budget(1, 4), ..refund() }, "budget"),
        (Draft { args: json!({}), ..Draft::new(&world(), "ops/unreviewed") }, "policy"),
        (Draft { args: json!({}), ..Draft::new(&world(), "ops/disabled") }, "policy"),
    ] {
        let verdict = draft.decide(&snapshot);
        assert_eq!(word(&verdict), outcome, "{draft:?}");
        assert!(!verdict.decision().notes.is_empty());
        assert!(policies(&verdict).is_empty(), "a permit made no difference");
    }
}

#[test]
fn acting_for_somebody_who_is_no_user_is_an_error() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let mut chain = agent_for("bot", "sync");
    chain.on_behalf_of.as_mut().unwrap().kind = placet_types::principal::PrincipalKind::Service;
    assert!(snapshot.surface(&chain, &[].into()).is_empty());
    assert_eq!(
        word(&Draft { chain, ..Draft::new(&world(), "ops/look") }.decide(&snapshot)),
        "error"
    );
}

#[test]
fn facts_that_contradict_each_other_deny_as_an_error() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let look = Draft::new(&world(), "ops/look");
    let chain = agent("fin-bot");
    let other = Draft::new(&world(), "ops/note");
    let mut binding = look.binding();
    binding.contract_digest = Digest::of(b"another contract");
    let other_binding = other.binding();
    let mut contract = (*look.contract).clone();
    contract.digest = Digest::of(b"another contract");
    assert_eq!(word(&look.decide(&snapshot)), "allow");
    assert_eq!(
        word(&look.decide_with(&snapshot, Swap { chain: Some(&chain), ..Swap::default() })),
        "error"
    );
    assert_eq!(
        word(&look.decide_with(&snapshot, Swap { binding: Some(&binding), ..Swap::default() })),
        "error"
    );
    assert_eq!(
        word(
            &look.decide_with(&snapshot, Swap { binding: Some(&other_binding), ..Swap::default() })
        ),
        "error"
    );
    assert_eq!(
        word(&look.decide_with(&snapshot, Swap { contract: Some(&contract), ..Swap::default() })),
        "error"
    );
}

#[test]
fn only_lockdown_and_budget_leave_an_approval_as_it_is() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let approved = Draft { votes: Some(vec![vote("ben", &[])]), ..refund() };
    let leaves = |draft: Draft| match draft.decide(&snapshot) {
        Verdict::Deny(denial) => denial.leaves_approval(),
        Verdict::Permit(_) | Verdict::Hold(_) => panic!("not denied"),
    };
    assert!(leaves(Draft { engine_mode: EngineMode::Lockdown, ..approved.clone() }));
    assert!(leaves(Draft {
        budget: BudgetView { calls_left: 0, ..approved.budget },
        ..approved.clone()
    }));
    assert!(!leaves(Draft { safety_mode: ApprovalMode::Network, ..approved.clone() }));
    assert!(!leaves(Draft { approval_ends: NOW, ..approved.clone() }));
    assert!(!leaves(Draft { chain: agent_for("retired", "ada"), ..approved }));
}

#[test]
fn a_permit_names_exactly_what_was_decided() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let draft = Draft { votes: Some(vec![vote("ben", &[])]), ..refund() };
    let Verdict::Permit(permit) = draft.decide(&snapshot) else { panic!("no permit") };
    assert_eq!(permit.request_digest(), draft.binding().digest());
    assert_eq!(permit.capability(), &draft.tool);
    assert_eq!(permit.epoch(), 7);
    assert_eq!(permit.approval_id().unwrap().as_str(), "apr_1");
    assert!(permit.record().is_some() && permit.write_class());
    assert_eq!(permit.mode_effective(), ApprovalMode::Destructive);
    assert_eq!(permit.decision().bundle_digest, snapshot.digest());
    assert_eq!(permit.decision().outcome, Outcome::Allow);
}
