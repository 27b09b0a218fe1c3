//! The wording of explanations.

use expect_test::{Expect, expect};
use serde_json::json;

use super::Explanation;
use crate::testing::{Draft, agent_for, compile, shipped, vote, world};

fn check(draft: &Draft, expected: &Expect) {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let explanation = Explanation::of(&snapshot, &draft.decide(&snapshot));
    let (last, lines) = explanation.lines.split_last().unwrap();
    assert!(last.starts_with("bundle: sha256:") && !last.contains("epoch"), "{last}");
    expected.assert_eq(&lines.join("\n"));
}

fn remove() -> Draft {
    Draft { args: json!({ "name": "secret-name" }), ..Draft::new(&world(), "ops/remove") }
}

#[test]
fn an_allowed_call_names_what_permits_it() {
    let draft =
        Draft { votes: Some(vec![vote("ben", &[])]), chain: agent_for("bot", "ada"), ..remove() };
    check(
        &draft,
        &expect![[r#"
        ops/remove is allowed
        mode: destructive; asked for: destructive; the contract's: destructive
        policy `agents-gated` permits it to the caller: Agents may propose network, delegated and destructive calls; the gates hold them for people.
        policy `user-baseline` permits it to the user it acts for: An active user may have agents of the same tenant act in the user's name."#]],
    );
}

#[test]
fn a_held_call_says_who_has_to_agree() {
    check(
        &remove(),
        &expect![[r#"
        ops/remove waits for people
        mode: destructive; asked for: destructive; the contract's: destructive
        policy `gate-destructive` forbids it to the caller: The call cannot be undone: one approver agrees.
        needs: 1 person in all, 1 person of `approvers`, within 24 hours"#]],
    );
}

#[test]
fn a_denied_call_says_what_to_look_at() {
    let chain = placet_types::principal::PrincipalChain {
        actor: crate::testing::principal(placet_types::principal::PrincipalKind::Service, "sync"),
        on_behalf_of: None,
        via: Vec::new(),
    };
    check(
        &Draft { chain, ..remove() },
        &expect![[r#"
        ops/remove is denied, and no approval would help
        mode: destructive; asked for: destructive; the contract's: destructive
        note: no approval would help: no policy permits the call to the caller
        policy `gate-destructive` forbids it to the caller: The call cannot be undone: one approver agrees.
        permits for this tool, each with its own principals and conditions: `agents-gated`, `user-baseline`"#]],
    );
}

#[test]
fn an_error_is_told_without_arguments() {
    check(
        &Draft { args: json!({ "name": 7 }), ..remove() },
        &expect![[r#"
        ops/remove is denied because it could not be decided
        mode: destructive; asked for: destructive; the contract's: destructive
        error: the argument at `/name` cannot be put to policy; a call is never allowed past an error"#]],
    );
}

#[test]
fn a_requirement_says_all_it_asks() {
    let mut requirement = placet_types::approval::Requirement::new(
        [("security".parse().unwrap(), 2)].into(),
        3,
        14_400_000,
    );
    assert_eq!(
        super::requirement_line(&requirement),
        "3 people in all, 2 people of `security`, within 4 hours"
    );
    requirement.deny_threshold = 2;
    requirement.fresh_auth_ms = Some(900_000);
    requirement.once_only = true;
    requirement.escalations = vec![placet_types::approval::Escalation {
        after_ms: 7_200_000,
        group: "managers".parse().unwrap(),
        people: 1,
        stands_in_for: ["security".parse().unwrap()].into(),
    }];
    assert_eq!(
        super::requirement_line(&requirement),
        "3 people in all, 2 people of `security`, within 4 hours; after 2 hours 1 person of `managers` instead; 2 people saying no end it; signed in within 15 minutes; for each single call"
    );
}
