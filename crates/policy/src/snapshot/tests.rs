//! What a bundle must be to be used, and what the generated schema says.

use crate::{
    bundle::{BundleProblem, BundleSource, PolicyFile, Severity},
    testing::{bundle, compile, shipped, world},
};

const PERMIT: &str =
    r#"@id("p") permit (principal, action in Placet::Action::"tier_read_only", resource);"#;

fn problems(text: &str) -> Vec<BundleProblem> {
    compile(&bundle(text), &world()).unwrap_err()
}

/// The only problem of a bundle that consists of these lines.
fn the_problem(text: &str) -> BundleProblem {
    let found = problems(text);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.into_iter().next().unwrap()
}

fn forbid(annotations: &str) -> String {
    format!(
        "{PERMIT}\n@id(\"f\") {annotations}\nforbid (principal, action in Placet::Action::\"call_tool\", resource);"
    )
}

#[test]
fn the_shipped_bundle_compiles() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    assert_eq!(snapshot.epoch(), 7);
    assert_eq!(snapshot.digest(), shipped().digest());
    let gate = snapshot.policies().find(|policy| policy.id == "gate-destructive").unwrap();
    assert_eq!(gate.file, "20-gates.cedar");
    assert_eq!(gate.annotations["approver_group"], "approvers");
    let file = shipped().files.into_iter().find(|file| file.name == gate.file).unwrap();
    let line = usize::try_from(gate.line.unwrap()).unwrap();
    assert_eq!(file.text.lines().nth(line - 1), Some("@id(\"gate-destructive\")"));
    assert!(gate.text.starts_with("@id(\"gate-destructive\")"));
}

#[test]
fn a_gate_gets_its_condition_from_its_annotations() {
    let text = forbid(
        r#"@approval("required") @approver_group("a:2, b") @quorum("3") @once_only("true") @escalate("2h: c")"#,
    );
    let files = super::expanded(&bundle(&text)).unwrap();
    let wanted = "resource)
unless
{
  context.req has approval &&
  !context.req.approval.denied &&
  context.req.approval.request_digest == context.req.evidence.request_digest &&
  context.req.now < context.req.approval.expires_at &&
  context.req.approval.scope == Placet::ApprovalScope::\"once\" &&
  context.req.approval.total >= 3 &&
  ((context.req.approval.hasTag(\"a\") && context.req.approval.getTag(\"a\") >= 2) ||
   (context.req.approval.hasTag(\"c\") && context.req.approval.getTag(\"c\") >= 1)) &&
  ((context.req.approval.hasTag(\"b\") && context.req.approval.getTag(\"b\") >= 1) ||
   (context.req.approval.hasTag(\"c\") && context.req.approval.getTag(\"c\") >= 1))
};";
    assert!(files[0].text.ends_with(wanted), "{}", files[0].text);
    assert!(files[0].text.starts_with(PERMIT), "what generates nothing stays as written");
    assert!(compile(&bundle(&text), &world()).is_ok());
}

#[test]
fn a_condition_on_the_approval_is_generated_or_custom_and_not_both() {
    let by_hand = "unless { context.req has approval && context.req.approval.hasTag(\"a\") }";
    let gate = |kind: &str, condition: &str| {
        format!(
            "{PERMIT}\n@id(\"f\") @approval(\"{kind}\") @approver_group(\"a\")\nforbid (principal, action in Placet::Action::\"call_tool\", resource)\n{condition};"
        )
    };
    assert!(the_problem(&gate("required", by_hand)).message.contains("generates the condition"));
    assert!(compile(&bundle(&gate("custom", by_hand)), &world()).is_ok());
    assert!(the_problem(&gate("custom", "")).message.contains("has no condition"));
    for reversed in [
        by_hand.replace("unless", "when"),
        "unless { !(context.req has approval) || context.req.approval.denied }".to_owned(),
    ] {
        let never = the_problem(&gate("custom", &reversed));
        assert!(never.message.contains("so nothing is held"), "{never}");
    }
    let other = by_hand.replace("\"a\"", "\"b\"");
    let unasked = the_problem(&gate("custom", &other));
    assert!(unasked.message.contains("counts people of `b`"), "{unasked}");
    for (counted, asked) in [("total >= 2", "2 people"), ("getTag(\"a\") > 1", "2 people of `a`")] {
        let more = by_hand.replace(" }", &format!(" && context.req.approval.{counted} }}"));
        let never = the_problem(&gate("custom", &more));
        assert!(
            never.message.contains(&format!("needs {asked}, and the annotations ask 1")),
            "{never}"
        );
        let quorum = gate("custom", &more).replace("(\"a\")\n", "(\"a:2\")\n");
        assert!(compile(&bundle(&quorum), &world()).is_ok());
    }
    // A condition on anything else is kept next to the generated one.
    let other =
        "unless { context.req has break_glass && context.req.now < context.req.break_glass.until }";
    assert!(compile(&bundle(&gate("required", other)), &world()).is_ok());
    let typo = "when {\n context.req.mode_effective == Placet::ApprovalMode::\"netwrk\" }";
    assert_eq!(the_problem(&gate("required", typo)).line, Some(5), "counted in the file");
}

#[test]
fn a_permit_to_lower_says_to_which_mode() {
    for action in ["lower_mode", "ops/refund#lower"] {
        let lower = |condition: &str| {
            format!(
                "{PERMIT}\n@id(\"l\") permit (principal is Placet::Agent, action in Placet::Action::\"{action}\", resource is Placet::Tool) {condition};"
            )
        };
        let all = the_problem(&lower("when { principal.active }"));
        assert!(all.message.contains("does not say to which mode"), "{all}");
        let one = "when { context.mode_target == Placet::ApprovalMode::\"local_write\" }";
        assert!(compile(&bundle(&lower(one)), &world()).is_ok(), "{action}");
    }
}

#[test]
fn a_condition_that_nests_too_deep_is_named_by_file_and_line() {
    let row = vec!["context.req.attested"; 100].join(" || ");
    let problem =
        the_problem(&PERMIT.replace("resource);", &format!("resource)\nwhen {{ {row} }};")));
    assert_eq!((problem.file.as_str(), problem.line), ("test.cedar", Some(2)));
    assert!(problem.message.contains("nests more than 80"), "{problem}");
}

#[test]
fn an_empty_bundle_is_refused() {
    for source in [BundleSource::default(), bundle("// nothing yet")] {
        let found = compile(&source, &world()).unwrap_err();
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("no policy"), "{}", found[0]);
    }
}

#[test]
fn a_policy_that_does_not_parse_is_named_by_file_and_line() {
    let problem =
        the_problem(&format!("{PERMIT}\n\npermit (principal, action, resource) when {{ 1 + }};"));
    assert_eq!((problem.file.as_str(), problem.line), ("test.cedar", Some(3)));
}

#[test]
fn a_policy_that_does_not_validate_is_named_by_file_line_and_id() {
    let problem = the_problem(&format!(
        "{PERMIT}\n\n@id(\"typo\") @approval(\"never\")\nforbid (principal, action in Placet::Action::\"call_tool\", resource)\nwhen {{ context.req.engine_mode == Placet::EngineMode::\"lokdown\" }};"
    ));
    assert_eq!((problem.line, problem.policy.as_deref()), (Some(5), Some("typo")));
    assert_eq!(problem.severity, Severity::Error);
}

#[test]
fn a_policy_that_can_never_apply_is_refused() {
    let found = problems(
        r#"@id("p") permit (principal, action == Placet::Action::"approve", resource is Placet::Tool);"#,
    );
    assert!(found.iter().all(|problem| problem.policy.as_deref() == Some("p")), "{found:#?}");
}

#[test]
fn references_are_followed_no_further_than_two_steps() {
    let deep = |condition: &str| {
        format!(
            "@id(\"p\") permit (principal is Placet::Agent, action in Placet::Action::\"tier_read_only\", resource is Placet::Tool) when {{ {condition} }};"
        )
    };
    assert!(compile(&bundle(&deep("principal.owner.active")), &world()).is_ok());
    assert!(!problems(&deep("principal.owner.tenant in Placet::Tenant::\"acme\" && context.req.approval.approvers.contains(principal.owner)")).is_empty());
}

#[test]
fn every_policy_has_a_name_of_its_own() {
    let nameless = PERMIT.replace("@id(\"p\") ", "");
    assert!(the_problem(&nameless).message.contains("no `@id`"));
    let twice = format!("{PERMIT}\n{PERMIT}");
    assert!(the_problem(&twice).message.contains("is taken"));
    let spaced = PERMIT.replace("@id(\"p\")", "@id(\"p q\")");
    assert!(the_problem(&spaced).message.contains("`@id`"));
    let files = ["a.cedar", "b.cedar"]
        .map(|name| PolicyFile { name: name.to_owned(), text: PERMIT.to_owned() });
    let found = compile(&BundleSource::new(files), &world()).unwrap_err();
    assert!(found[0].message.contains("in a.cedar"), "{}", found[0]);
}

/// Each of these annotations makes a problem that has the word in it.
fn assert_refused(annotations: &[(&str, &str)]) {
    for (annotations, word) in annotations {
        let problem = the_problem(&forbid(annotations));
        assert!(problem.message.contains(word), "{annotations}: {problem}");
        assert_eq!((problem.policy.as_deref(), problem.line), (Some("f"), Some(2)), "{problem}");
        assert!(problem.help.is_some());
    }
}

#[test]
fn annotations_that_mean_nothing_are_refused() {
    assert_refused(&[
        ("", "no `@approval`"),
        (r#"@approval("maybe")"#, "not `maybe`"),
        (r#"@approval("required")"#, "whom to ask"),
        (r#"@approval("required") @approver_group("")"#, "cannot be read"),
        (r#"@approval("required") @approver_group("a,,b")"#, "cannot be read"),
        (r#"@approval("required") @approver_group("a, a")"#, "cannot be read"),
        (r#"@approval("required") @approver_group("globex/lawyers")"#, "tenant `globex`"),
        (r#"@approval("required") @approver_group("initech/security")"#, "tenant `initech`"),
        (r#"@approval("required") @approver_group("globex/security/a")"#, "cannot be read"),
        (r#"@approval("required") @approver_group("a:99")"#, "cannot be read"),
        (r#"@approval("required") @approver_group("a") @quorum("0")"#, "`@quorum`"),
        (r#"@approval("required") @approver_group("a") @quorum("two")"#, "`@quorum`"),
        (r#"@approval("required") @approver_group("a") @expires("8d")"#, "`@expires`"),
        (r#"@approval("required") @approver_group("a") @expires("soon")"#, "`@expires`"),
        (
            r#"@approval("required") @approver_group("a") @expires("18446744073709551615d")"#,
            "`@expires`",
        ),
        (r#"@approval("required") @approver_group("a") @four_eyes("false")"#, "`@four_eyes`"),
        (r#"@approval("required") @approver_group("a") @quroum("2")"#, "`@quroum`"),
        (r#"@approval("required") @approver_group("a:0")"#, "cannot be read"),
        (r#"@approval("never") @quorum("2")"#, "means nothing beside"),
        (r#"@approval("never") @escalate("2h: b")"#, "means nothing beside"),
        (r#"@approval("never") @once_only("true")"#, "means nothing beside"),
    ]);
    let fine = r#"@approval("required") @approver_group("a:2, b") @quorum("3") @expires("90s") @x_ticket("T-1")"#;
    assert!(compile(&bundle(&forbid(fine)), &world()).is_ok());
}

#[test]
fn annotations_of_the_approval_service_that_mean_nothing_are_refused() {
    assert_refused(&[
        (r#"@approval("required") @approver_group("a") @deny_threshold("0")"#, "`@deny_threshold`"),
        (
            r#"@approval("required") @approver_group("a") @deny_threshold("21")"#,
            "`@deny_threshold`",
        ),
        (
            r#"@approval("required") @approver_group("a") @deny_threshold("most")"#,
            "`@deny_threshold`",
        ),
        (r#"@approval("required") @approver_group("a") @fresh_auth("30s")"#, "`@fresh_auth`"),
        (r#"@approval("required") @approver_group("a") @fresh_auth("2d")"#, "`@fresh_auth`"),
        (r#"@approval("required") @approver_group("a") @fresh_auth("now")"#, "`@fresh_auth`"),
        (r#"@approval("required") @approver_group("a") @once_only("false")"#, "`@once_only`"),
        (r#"@approval("required") @approver_group("a") @once_only"#, "`@once_only`"),
        (
            r#"@approval("required") @approver_group("a") @escalate("managers")"#,
            "`@escalate` cannot be read",
        ),
        (
            r#"@approval("required") @approver_group("a") @escalate("2h managers")"#,
            "`@escalate` cannot be read",
        ),
        (
            r#"@approval("required") @approver_group("a") @escalate("2h: ")"#,
            "`@escalate` cannot be read",
        ),
        (
            r#"@approval("required") @approver_group("a") @escalate("2h: managers:0")"#,
            "`@escalate` cannot be read",
        ),
        (
            r#"@approval("required") @approver_group("a") @escalate("0h: managers")"#,
            "`@escalate` cannot be read",
        ),
        (
            r#"@approval("required") @approver_group("a") @escalate("2h: managers,")"#,
            "`@escalate` cannot be read",
        ),
        (
            r#"@approval("required") @approver_group("a") @escalate("2h: globex/managers")"#,
            "no other group of its tenant",
        ),
        (
            r#"@approval("required") @approver_group("a") @escalate("24h: managers")"#,
            "asks `managers` only when the approval has expired",
        ),
        (
            r#"@approval("required") @approver_group("a") @expires("1h") @escalate("2h: managers")"#,
            "only when the approval has expired",
        ),
        (
            r#"@approval("required") @approver_group("a") @escalate("2h: a")"#,
            "asks `a`, which is asked before",
        ),
        (
            r#"@approval("required") @approver_group("a") @escalate("2h: m, 4h: m:2")"#,
            "asks `m`, which is asked before",
        ),
        (
            r#"@approval("required") @approver_group("a") @escalate("1h:b,2h:c,3h:d,4h:e,5h:f,6h:g,7h:h,8h:i,9h:j")"#,
            "`@escalate` cannot be read",
        ),
    ]);
    let fine = r#"@approval("required") @approver_group("a") @deny_threshold("2") @fresh_auth("15m") @once_only("true") @escalate("8h: directors:2, 2h: managers") @expires("12h")"#;
    assert!(compile(&bundle(&forbid(fine)), &world()).is_ok());
}

#[test]
fn a_permit_names_tiers_and_says_which_actions() {
    for group in ["cap_network", "call_tool"] {
        let problem = the_problem(&PERMIT.replace("tier_read_only", group));
        assert_eq!(problem.severity, Severity::Warning);
        assert!(problem.message.contains(group), "{problem}");
    }
    let every = the_problem(r#"@id("p") permit (principal, action, resource);"#);
    assert!(every.message.contains("must name its actions"), "{every}");
    let routed = the_problem(&PERMIT.replace("permit", "@approval(\"required\") permit"));
    assert!(routed.message.contains("cannot hold a call"), "{routed}");
}

#[test]
fn templates_and_oversized_files_are_refused() {
    let template = format!(
        "{PERMIT}\n@id(\"t\") permit (principal == ?principal, action in Placet::Action::\"tier_read_only\", resource);"
    );
    assert!(the_problem(&template).message.contains("templates"));
    let large = format!("{PERMIT}\n//{}", "x".repeat(crate::bundle::FILE_BYTES_MAX));
    assert!(the_problem(&large).message.contains("longer than"));
}

#[test]
fn all_problems_of_a_bundle_are_reported_at_once() {
    let found =
        problems("permit (principal, action, resource);\nforbid (principal, action, resource);");
    assert_eq!(found.len(), 4, "{found:#?}");
}

#[test]
fn each_tool_is_in_one_tier_and_in_everything_it_does() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let schema = snapshot.schema_text();
    for line in [
        r#"action "ops/look" in ["tier_read_only"] appliesTo {"#,
        r#"action "ops/refund" in ["tier_destructive", "cap_network", "cap_delegated", "cap_destructive"] appliesTo {"#,
        r#"action "ops/refund#lower" in [lower_mode] appliesTo {"#,
        r#"context: { req: RequestContext, input: { "cents": Long, "order": String } }"#,
        r#"entity Environment enum ["dev", "prod", "staging"];"#,
    ] {
        assert!(schema.contains(line), "{line}\n{schema}");
    }
}

#[test]
fn the_shipped_bundle_compiles_whatever_tools_there_are() {
    let world = world();
    for contracts in [vec![], world.contracts.clone()] {
        let world = crate::cases::run::World { contracts, ..world.clone() };
        assert!(compile(&shipped(), &world).is_ok());
    }
    let contract = &world.contracts[0];
    for name in contract.capabilities.keys() {
        let mut one = (**contract).clone();
        one.capabilities.retain(|other, _| other == name);
        let world = crate::cases::run::World { contracts: vec![one.into()], ..world.clone() };
        assert!(compile(&shipped(), &world).is_ok(), "{name}");
    }
}

#[test]
fn an_argument_that_cannot_be_typed_is_left_out_and_reported() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let blob = snapshot
        .untyped_tools()
        .iter()
        .find(|tool| tool.capability.to_string() == "ops/blob")
        .unwrap();
    assert_eq!(blob.lost.len(), 1);
    assert!(blob.lost[0].starts_with("/data: `number`"), "{:?}", blob.lost);
    assert_eq!(blob.open, ["/"]);
    assert_eq!(snapshot.untyped_tools().len(), 1);
    let about = r#"@id("p") permit (principal, action == Placet::Action::"ops/blob", resource) when { context.input.data == "x" };"#;
    assert!(!problems(about).is_empty());
}

#[test]
fn the_digest_names_the_text_of_the_bundle() {
    let one = bundle(PERMIT);
    assert_eq!(one.digest(), bundle(PERMIT).digest());
    assert_ne!(one.digest(), bundle(&format!("{PERMIT} ")).digest());
    let renamed =
        BundleSource::new([PolicyFile { name: "other.cedar".to_owned(), text: PERMIT.to_owned() }]);
    assert_ne!(one.digest(), renamed.digest());
    let mut shuffled = shipped();
    shuffled.files.reverse();
    assert_eq!(shuffled.digest(), shipped().digest());
}

#[test]
fn a_name_in_a_schema_cannot_break_out_of_the_generated_text() {
    let yaml = include_str!("../testing_world.yaml")
        .replace("properties: { path: { type: string } }", r#"properties: { "a\": Long }, x: { \"": { type: string }, "__cedar": { type: string }, "ünïcode \n": { type: string } }"#);
    let world = crate::testing::world_of(&yaml);
    let snapshot = compile(&shipped(), &world).unwrap();
    assert!(snapshot.schema_text().contains(r#"ops/look"#));
}

#[test]
fn routing_stands_only_on_what_can_hold_a_call() {
    for (annotation, name) in [
        (r#"@deny_threshold("2")"#, "deny_threshold"),
        (r#"@escalate("2h: b")"#, "escalate"),
        (r#"@fresh_auth("15m")"#, "fresh_auth"),
        (r#"@once_only("true")"#, "once_only"),
    ] {
        for policy in [
            r#"permit (principal, action in Placet::Action::"tier_network", resource is Placet::Tool);"#,
            r#"forbid (principal, action == Placet::Action::"edit_args", resource is Placet::ApprovalRequest);"#,
            r#"forbid (principal, action in Placet::Action::"review", resource is Placet::ApprovalRequest);"#,
            r#"forbid (principal, action in Placet::Action::"manage", resource is Placet::Directive);"#,
            r#"forbid (principal, action in [Placet::Action::"set_freeze", Placet::Action::"take_back"], resource is Placet::Directive);"#,
        ] {
            let problem = the_problem(&format!("@id(\"f\")\n{annotation} {policy}"));
            assert_eq!(
                problem.message,
                format!("`@{name}` stands on a policy that cannot hold a call"),
                "{policy}"
            );
        }
    }
    // A forbid for every action holds calls too, so it has to say whether people can set it aside.
    let all = the_problem("@id(\"f\")\nforbid (principal, action, resource);");
    assert!(all.message.contains("no `@approval`"), "{all}");
}

#[test]
fn only_a_forbid_with_a_reason_tells_the_agent() {
    let told = forbid(r#"@approval("never") @reason("Not at night.") @tell("agent")"#);
    assert!(compile(&bundle(&told), &world()).is_ok());
    for (text, wrong) in [
        (forbid(r#"@approval("never") @reason("x") @tell("everyone")"#), "can only be `agent`"),
        (forbid(r#"@approval("never") @tell("agent")"#), "without a `@reason`"),
        (
            PERMIT.replace("permit (", r#"@reason("x") @tell("agent") permit ("#),
            "cannot refuse a call",
        ),
    ] {
        let problem = the_problem(&text);
        assert!(problem.message.contains(wrong), "{problem:?}");
    }
}

#[test]
fn only_a_forbid_on_calls_has_feedback_and_it_says_something() {
    let told = forbid(r#"@approval("never") @feedback("Read it first.")"#);
    assert!(compile(&bundle(&told), &world()).is_ok());
    for (text, wrong) in [
        (forbid(r#"@approval("never") @feedback(" ")"#), "1 to 1024 bytes"),
        (PERMIT.replace("permit (", r#"@feedback("x") permit ("#), "cannot refuse a call"),
    ] {
        let problem = the_problem(&text);
        assert!(problem.message.contains(wrong), "{problem:?}");
    }
}
