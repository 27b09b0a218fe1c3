//! The decision, rule by rule.

use placet_types::{
    digest::Digest,
    error::ErrorCode,
    mode::{ApprovalMode, EngineMode},
    proof::{AuthType, CallerProof, Proof},
};
use serde_json::json;

use crate::{
    decision::{DenialKind, Link, Outcome},
    facts::BudgetView,
    testing::{
        Draft, NOW, Swap, agent, agent_for, bundle, compile, evidence, policies, refund, shipped,
        vote, word, world,
    },
    verdict::Verdict,
};

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
    // A user the directory does not list exists by the verified token alone.
    let unlisted =
        Draft { user_groups: vec!["finance".to_owned()], ..look(agent_for("bot", "mia")) };
    assert_eq!(word(&unlisted.decide(&snapshot)), "allow");
}

#[test]
fn a_deny_of_one_link_beats_a_hold_of_the_other() {
    let text = r#"
@id("agents") permit (principal is Placet::Agent, action in Placet::Action::"tier_destructive", resource is Placet::Tool);
@id("users") permit (principal is Placet::User, action in Placet::Action::"tier_destructive", resource is Placet::Tool);
@id("ask") @approval("custom") @approver_group("approvers")
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
forbid (principal, action == Placet::Action::"ops/refund", resource is Placet::Tool)
when { context.input.cents * 2 > 1000 };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let cents = |cents: serde_json::Value| Draft {
        args: json!({ "order": "o", "cents": cents }),
        ..refund()
    };
    assert_eq!(word(&cents(json!(10)).decide(&snapshot)), "allow");
    assert_eq!(word(&cents(json!(1_000)).decide(&snapshot)), "policy");
    let verdict = cents(json!(i64::MAX)).decide(&snapshot);
    let Verdict::Deny(denial) = verdict else { panic!("trap T1") };
    assert_eq!((denial.kind, denial.code), (DenialKind::Error, ErrorCode::PolicyError));
    assert_eq!(denial.decision.errors, ["policy `large` could not be evaluated: integer overflow"]);
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
@id("gate") @approval("custom") @approver_group("approvers")
forbid (principal, action == Placet::Action::"ops/refund", resource is Placet::Tool)
unless { context.req has approval && context.req.approval.total * 9223372036854775807 + context.input.cents > 0 };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    assert_eq!(word(&refund().decide(&snapshot)), "error");
}

#[test]
fn arguments_that_no_type_holds_deny_as_an_error() {
    let snapshot = compile(&shipped(), &world()).unwrap();
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
    assert!(text.contains("policy `odd` could not be evaluated: integer overflow"), "{text}");
}

#[test]
fn nobody_is_asked_when_no_approval_would_help() {
    let text = r#"
@id("all") permit (principal, action in Placet::Action::"tier_destructive", resource is Placet::Tool);
@id("gate") @approval("custom") @approver_group("approvers")
forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool)
unless { context.req has approval && context.req.approval.total == 2 };"#;
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
@id("gate") @approval("custom") @approver_group("approvers")
forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool) unless { context.req has approval };
@id("not-by-ben") @approval("never")
forbid (principal, action in Placet::Action::"cap_destructive", resource is Placet::Tool)
when { context.req has approval && context.req.approval.approvers.contains(Placet::User::"acme/ben") };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    assert_eq!(word(&refund().decide(&snapshot)), "hold");
    let verdict = Draft { votes: Some(vec![vote("ben", &[])]), ..refund() }.decide(&snapshot);
    assert_eq!((word(&verdict), policies(&verdict)), ("policy", vec!["not-by-ben", "not-by-ben"]));
    assert_eq!(
        word(
            &Draft { votes: Some(vec![vote("dan", &["approvers"])]), ..refund() }.decide(&snapshot)
        ),
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
    let lowered: Vec<&str> =
        small.decision().lowered_by.iter().map(|one| one.policy.as_str()).collect();
    assert!(
        !lowered.is_empty() && lowered.iter().all(|policy| *policy == "small-refunds-are-routine"),
        "{lowered:?}"
    );
    let Verdict::Permit(permit) = small else { panic!("no permit") };
    assert!(permit.write_class(), "lowering the mode does not make a write a read");
    assert_eq!(word(&ask(1_001, ApprovalMode::LocalWrite).decide(&snapshot)), "mode_upgraded");
    assert_eq!(word(&ask(1_000, ApprovalMode::Network).decide(&snapshot)), "mode_upgraded");
    assert_eq!(word(&ask(1_000, ApprovalMode::Destructive).decide(&snapshot)), "hold");
    // A caller that names no mode gets the weakest one available to it.
    let unnamed = |cents| Draft { mode: None, ..ask(cents, ApprovalMode::Network) };
    let weakest = unnamed(1_000).decide(&snapshot);
    assert_eq!(word(&weakest), "allow");
    assert_eq!(weakest.decision().mode_requested, ApprovalMode::LocalWrite);
    let highest = unnamed(1_001).decide(&snapshot);
    assert_eq!(word(&highest), "hold");
    assert_eq!(highest.decision().mode_requested, ApprovalMode::Destructive);
    assert!(highest.decision().lowered_by.is_empty());
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
when { context.mode_target == Placet::ApprovalMode::"local_write" && context.input.cents + 1 > 0 };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let low = Draft { mode: Some(ApprovalMode::LocalWrite), ..refund() };
    assert_eq!(word(&low.decide(&snapshot)), "mode_upgraded");
    let both = text.replace("principal is Placet::Agent, action ==", "principal, action ==");
    let both = compile(&bundle(&both), &world()).unwrap();
    assert_eq!(word(&low.decide(&both)), "allow");
    let most = Draft { args: json!({ "order": "o", "cents": i64::MAX }), ..low };
    assert_eq!(word(&most.decide(&snapshot)), "error");
    assert_eq!(word(&Draft { mode: None, ..most }.decide(&both)), "error");
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
fn each_obstacle_of_an_approved_call_has_its_own_kind() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let approved = Draft { votes: Some(vec![vote("ben", &[])]), ..refund() };
    let kind = |draft: Draft| match draft.decide(&snapshot) {
        Verdict::Deny(denial) => denial.kind.as_str(),
        Verdict::Permit(_) | Verdict::Hold(_) => panic!("not denied"),
    };
    assert_eq!(kind(Draft { engine_mode: EngineMode::Lockdown, ..approved.clone() }), "lockdown");
    let budget = BudgetView { calls_left: 0, ..approved.budget };
    assert_eq!(kind(Draft { budget, ..approved.clone() }), "budget");
    let safety_mode = ApprovalMode::Network;
    assert_eq!(kind(Draft { safety_mode, ..approved.clone() }), "ceiling");
    assert_eq!(kind(Draft { approval_ends: NOW, ..approved.clone() }), "approval_expired");
    assert_eq!(kind(Draft { chain: agent_for("retired", "ada"), ..approved }), "policy");
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

#[test]
fn policies_see_how_caller_and_user_proved_who_they_are() {
    let text = r#"
@id("agents") permit (principal is Placet::Agent, action in Placet::Action::"tier_read_only", resource is Placet::Tool)
when {
  context.req.auth_type == Placet::AuthType::"x509_svid" && context.req.attested &&
  context.req has spiffe_id && context.req.spiffe_id == "spiffe://prod.example/agent/bot" &&
  context.req.claims.hasTag("team") && context.req.claims.getTag("team").contains("payments") &&
  principal.lifecycle == Placet::Lifecycle::"active"
};
@id("users") permit (principal is Placet::User, action in Placet::Action::"tier_read_only", resource is Placet::Tool)
when {
  context.req has delegation && context.req.delegation.auth_type == Placet::AuthType::"jwt" &&
  context.req.delegation.subject == "ada@example" && context.req.delegation.scopes.contains("read") &&
  context.req.delegation.claims.hasTag("department") &&
  context.req.delegation.claims.getTag("department").contains("finance") &&
  !context.req.delegation.claims.hasTag("team") && context.req.delegation_depth == 1
};"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let proof = |auth_type, subject: &str, scopes: &[&str], (name, text): (&str, &str)| Proof {
        auth_type,
        subject: subject.to_owned(),
        scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
        claims: [(name.to_owned(), [text.to_owned()].into())].into(),
    };
    let svid = "spiffe://prod.example/agent/bot";
    let good = CallerProof {
        attested: true,
        actor: proof(AuthType::X509Svid, svid, &[], ("team", "payments")),
        user: Some(proof(AuthType::Jwt, "ada@example", &["read"], ("department", "finance"))),
    };
    let decided = |change: fn(&mut CallerProof)| {
        let mut proof = good.clone();
        change(&mut proof);
        let chain = agent_for("bot", "ada");
        word(
            &Draft { chain, proof: Some(proof), ..Draft::new(&world(), "ops/look") }
                .decide(&snapshot),
        )
    };
    assert_eq!(decided(|_| ()), "allow");
    let changes: [fn(&mut CallerProof); 8] = [
        |proof| proof.attested = false,
        |proof| proof.actor.auth_type = AuthType::JwtSvid,
        |proof| proof.actor.subject.push('2'),
        |proof| proof.actor.claims.clear(),
        |proof| proof.user.as_mut().unwrap().auth_type = AuthType::BoundJwt,
        |proof| proof.user.as_mut().unwrap().scopes.clear(),
        |proof| proof.user.as_mut().unwrap().claims.clear(),
        |proof| proof.user.as_mut().unwrap().subject.clear(),
    ];
    for (place, change) in changes.into_iter().enumerate() {
        assert_eq!(decided(change), "policy", "change {place}");
    }
    // A user's proof without a user in the chain, or the other way round, is invalid.
    assert_eq!(decided(|proof| proof.user = None), "error");
}

#[test]
fn a_denial_of_an_unattested_caller_says_so() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let look = |attested| Draft { attested, ..Draft::new(&world(), "ops/look") }.decide(&snapshot);
    assert_eq!(word(&look(true)), "allow");
    let denied = look(false);
    assert_eq!(word(&denied), "policy");
    assert!(denied.decision().notes.concat().contains("`attested` is false"));
}

#[test]
fn a_delegated_tool_needs_user_and_evidence_whatever_the_bundle_says() {
    let text = r#"@id("all") permit (principal, action in [Placet::Action::"tier_local_write", Placet::Action::"tier_delegated", Placet::Action::"tier_destructive"], resource is Placet::Tool);"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    // `act` is delegated by its mode; `refund` is destructive, and delegated by what it does.
    for draft in
        [Draft { chain: agent_for("bot", "ada"), ..Draft::new(&world(), "ops/act") }, refund()]
    {
        assert_eq!(word(&draft.decide(&snapshot)), "allow", "{}", draft.tool);
        let alone = Draft { chain: agent("bot"), ..draft.clone() }.decide(&snapshot);
        assert_eq!(word(&alone), "policy");
        assert!(alone.decision().notes.concat().contains("no user delegated"));
        let bare = Draft { evidence: vec![], ..draft }.decide(&snapshot);
        assert_eq!(word(&bare), "policy");
        assert!(bare.decision().notes.concat().contains("no evidence"));
    }
    let bare = Draft { evidence: vec![], ..Draft::new(&world(), "ops/note") };
    assert_eq!(word(&bare.decide(&snapshot)), "allow");
}

#[test]
fn policies_see_what_a_call_refers_to() {
    let text = r#"@id("looked") permit (principal, action in [Placet::Action::"tier_local_write", Placet::Action::"tier_delegated", Placet::Action::"tier_destructive"], resource is Placet::Tool)
when { !context.req.evidence.refs.isEmpty() && context.req.evidence.tools.contains(Placet::Tool::"ops/look") };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let with =
        |evidence| word(&Draft { evidence, ..Draft::new(&world(), "ops/note") }.decide(&snapshot));
    assert_eq!(with(vec![evidence("ops/look"), evidence("ops/fetch")]), "allow");
    assert_eq!(with(vec![evidence("ops/fetch")]), "policy");
    assert_eq!(with(vec![]), "policy");
}
