//! Gates are satisfiable by the people of the directory, or refused.

use std::collections::BTreeSet;

use super::{Staff, check};
use crate::testing::{NOW, bundle, compile, shipped, world_of};

/// Without it no gate can be satisfied.
const REVIEW: &str = "@id(\"review\") permit (principal, action == Placet::Action::\"approve\", resource is Placet::ApprovalRequest);";

/// What is wrong with a gate that has these annotations, in the shared world.
fn flaw(annotations: &str, more: &str, claimed: &[&str]) -> Option<String> {
    let other = "agents: { rival: { owner: zoe, classes: [desk] } }\n        classes: { desk: {} }";
    let yaml = include_str!("../testing_world.yaml");
    let world = world_of(&yaml.replace("agents: { rival: { owner: zoe } }", other));
    let claimed: BTreeSet<_> = claimed.iter().map(|tenant| tenant.parse().unwrap()).collect();
    let staff = Staff {
        directory: &world.directory,
        claimed: &claimed,
        contracts: &world.contracts,
        now: NOW,
    };
    let text = format!(
        "\n@id(\"gate\") @approval(\"required\") {annotations}\nforbid (principal, action in Placet::Action::\"call_tool\", resource is Placet::Tool) {more};\n{REVIEW}"
    );
    let policies = compile(&bundle(&text), &world).unwrap_or_else(|why| panic!("{more}: {why:?}"));
    let problems = check(&policies, &staff).err()?;
    assert!(problems.iter().all(|one| (one.file.as_str(), one.line) == ("test.cedar", Some(2))));
    Some(problems[0].message.clone())
}

#[test]
fn a_group_that_nobody_is_in_is_refused_with_its_place() {
    assert_eq!(flaw(r#"@approver_group("security")"#, "", &[]), None);
    let typo = flaw(r#"@approver_group("securty")"#, "", &[]).unwrap();
    assert!(typo.contains("`securty`, which tenant `acme` does not declare"), "{typo}");
    let later = flaw(r#"@approver_group("security") @escalate("2h: nobodies")"#, "", &[]);
    assert!(later.unwrap().contains("`nobodies`"));
}

#[test]
fn more_people_than_a_group_has_are_refused() {
    let group = flaw(r#"@approver_group("security:19")"#, "", &[]).unwrap();
    assert!(group.contains("19 people of the group `security`"), "{group}");
    let quorum = flaw(r#"@approver_group("security") @quorum("20")"#, "", &[]).unwrap();
    assert!(quorum.contains("20 people in all"), "{quorum}");
}

#[test]
fn members_named_by_tokens_are_not_counted_but_groups_are_declared() {
    assert_eq!(flaw(r#"@approver_group("security:19")"#, "", &["acme"]), None);
    assert!(flaw(r#"@approver_group("securty")"#, "", &["acme"]).is_some());
}

#[test]
fn a_tenant_without_callers_or_not_named_by_the_policy_is_left_out() {
    let yaml = include_str!("../testing_world.yaml");
    let world = world_of(yaml);
    assert!(world.directory.tenants.len() > 1, "there is a tenant that has no such group");
    let own = "when { principal in Placet::Tenant::\"acme\" }";
    assert_eq!(flaw(r#"@approver_group("security")"#, own, &[]), None);
}

#[test]
fn a_tenant_that_a_policy_only_excepts_another_from_is_not_left_out() {
    for condition in [
        "unless { principal in Placet::AgentClass::\"globex/desk\" }",
        "when { principal != Placet::Agent::\"globex/rival\" }",
        "when { !(principal.tenant == Placet::Tenant::\"globex\") }",
        "when { [Placet::Tenant::\"globex\", Placet::Tenant::\"acme\"].contains(principal.tenant) }",
        "when { principal is Placet::User && context.req.frozen }",
        "when { principal.tenant == Placet::Tenant::\"globex\" || context.req.frozen }",
        "unless { principal is Placet::User in Placet::Group::\"acme/staff\" }",
        "unless { principal == Placet::Service::\"acme/bot\" }",
        "when { principal != Placet::Automation::\"acme/bot\" }",
        "when { if context.req.frozen then false else context.req.tenant != Placet::Tenant::\"globex\" }",
    ] {
        assert!(flaw(r#"@approver_group("security:19")"#, condition, &[]).is_some(), "{condition}");
    }
    for condition in [
        "when { principal in [Placet::AgentClass::\"globex/desk\"] }",
        "when { context.req.frozen && principal.tenant == Placet::Tenant::\"globex\" }",
        "unless { principal in Placet::Tenant::\"acme\" }",
        "when { context.req.tenant == Placet::Tenant::\"globex\" }",
        "when { principal is Placet::Agent && principal.owner == Placet::User::\"globex/zoe\" }",
        "when { context.req has on_behalf_of && context.req.on_behalf_of == Placet::User::\"globex/zoe\" }",
        "when { if principal.tenant == Placet::Tenant::\"globex\" then true else false }",
        "when { principal is Placet::User in Placet::Group::\"globex/security\" }",
    ] {
        assert_eq!(flaw(r#"@approver_group("security:19")"#, condition, &[]), None, "{condition}");
    }
}

#[test]
fn the_owner_of_an_agent_that_a_gate_is_for_does_not_count() {
    let yaml = include_str!("../testing_world.yaml")
        .replace("fin-bot: { owner: olga", "fin-bot: { owner: ada");
    let world = world_of(&yaml);
    let staff = Staff {
        directory: &world.directory,
        claimed: &BTreeSet::new(),
        contracts: &world.contracts,
        now: NOW,
    };
    let gate = |scope: &str| {
        let text = format!(
            "@id(\"gate\") @approval(\"required\") @approver_group(\"approvers:2\")\nforbid (principal {scope}, action, resource is Placet::Tool);\n{REVIEW}"
        );
        check(&compile(&bundle(&text), &world).unwrap(), &staff)
    };
    gate("== Placet::Agent::\"acme/fin-bot\"").unwrap();
    gate("in Placet::AgentClass::\"acme/finance-bots\"").unwrap();
    let refused = gate("== Placet::Agent::\"acme/bot\"").unwrap_err();
    assert!(refused[0].message.contains("which has 1 besides the owner"), "{refused:?}");
}

#[test]
fn the_owner_of_every_agent_does_not_count() {
    let yaml =
        include_str!("../testing_world.yaml").replace("dan: { groups: [security] }", "dan: {}");
    let world = world_of(&yaml);
    let staff = Staff {
        directory: &world.directory,
        claimed: &BTreeSet::new(),
        contracts: &world.contracts,
        now: NOW,
    };
    let gate = |group: &str| {
        let text = format!(
            "\n@id(\"gate\") @approval(\"required\") @approver_group(\"{group}\")\nforbid (principal in Placet::Tenant::\"acme\", action in Placet::Action::\"call_tool\", resource is Placet::Tool);\n{REVIEW}"
        );
        check(&compile(&bundle(&text), &world).unwrap(), &staff)
            .map_err(|problems| problems[0].message.clone())
    };
    let refused = gate("security").unwrap_err();
    assert!(refused.contains("only the owner of an agent is in it"), "{refused}");
    let refused = gate("approvers:2").unwrap_err();
    assert!(refused.contains("which has 1 besides the owner"), "{refused}");
    gate("approvers").unwrap();
}

#[test]
fn gates_without_a_permit_to_approve_are_refused() {
    let world = world_of(include_str!("../testing_world.yaml"));
    let staff = Staff {
        directory: &world.directory,
        claimed: &BTreeSet::new(),
        contracts: &world.contracts,
        now: NOW,
    };
    let mut source = shipped();
    source.files.retain(|file| !file.name.contains("review"));
    let refused = check(&compile(&source, &world).unwrap(), &staff).unwrap_err();
    let of_gate = refused.iter().filter(|one| one.policy.as_deref() == Some("gate-network"));
    let messages: Vec<&str> = of_gate.map(|one| one.message.as_str()).collect();
    assert_eq!(messages, ["it asks people, and no policy permits anybody to approve"]);
}

#[test]
fn a_freeze_that_can_be_set_can_be_lifted_by_somebody() {
    let check_with = |operator: &str, lifter: &str, own: &str| {
        let groups = "groups: { operators: {}, freeze-approvers: {}, ";
        let yaml = include_str!("../testing_world.yaml")
            .replacen("groups: { ", groups, 1)
            .replace("cleo: { groups: [staff] }", &format!("cleo: {{ groups: [{operator}] }}"))
            .replace("dan: { groups: [security] }", &format!("dan: {{ groups: [{lifter}] }}"));
        let world = world_of(&yaml);
        let mut source = shipped();
        source.files.extend(bundle(own).files.into_iter().filter(|file| !file.text.is_empty()));
        let policies = compile(&source, &world).unwrap();
        let staff = Staff {
            directory: &world.directory,
            claimed: &BTreeSet::new(),
            contracts: &world.contracts,
            now: NOW,
        };
        // Those of the gates are not about freezes.
        let problems = check(&policies, &staff).err().unwrap_or_default();
        let of_freezes: Vec<_> = problems.into_iter().filter(|one| one.policy.is_none()).collect();
        if of_freezes.is_empty() { Ok(()) } else { Err(of_freezes) }
    };
    let check = |operator: &str, lifter: &str| check_with(operator, lifter, "");
    // Times are those of the coming week.
    for (comparison, is_sound) in [("<", true), (">", false)] {
        let own = format!(
            "@id(\"own\") forbid (principal, action == Placet::Action::\"lift_freeze\", resource is Placet::Directive)\nwhen {{ context.now {comparison} datetime(\"2020-01-01\") }};"
        );
        let checked = check_with("operators", "freeze-approvers", &own);
        assert_eq!(checked.is_ok(), is_sound, "{checked:?}");
    }
    check("staff", "staff").unwrap();
    check("operators", "freeze-approvers").unwrap();
    let refused = check("operators", "staff").unwrap_err();
    let found: Vec<&str> = refused.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(
        found,
        [
            "`cleo` of tenant `acme` may set a freeze, and nobody may lift it",
            "`cleo` of tenant `acme` may set a lockdown, and nobody may lift it",
        ]
    );
}
