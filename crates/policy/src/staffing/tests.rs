//! Gates are satisfiable by the people of the directory, or refused.

use std::collections::BTreeSet;

use super::{Staff, check, check_freezes};
use crate::testing::{bundle, compile, shipped, world, world_of};

/// What is wrong with a gate that has these annotations, in the shared world.
fn flaw(annotations: &str, more: &str, claimed: &[&str]) -> Option<String> {
    let world = world();
    let claimed: BTreeSet<_> = claimed.iter().map(|tenant| tenant.parse().unwrap()).collect();
    let staff =
        Staff { directory: &world.directory, claimed: &claimed, contracts: &world.contracts };
    let text = format!(
        "\n@id(\"gate\") @approval(\"required\") {annotations}\nforbid (principal, action in Placet::Action::\"call_tool\", resource is Placet::Tool) {more};"
    );
    let problems = check(&bundle(&text), &staff).err()?;
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
fn the_owner_of_every_agent_does_not_count() {
    let yaml =
        include_str!("../testing_world.yaml").replace("dan: { groups: [security] }", "dan: {}");
    let world = world_of(&yaml);
    let staff = Staff {
        directory: &world.directory,
        claimed: &BTreeSet::new(),
        contracts: &world.contracts,
    };
    let gate = |group: &str| {
        let text = format!(
            "\n@id(\"gate\") @approval(\"required\") @approver_group(\"{group}\")\nforbid (principal in Placet::Tenant::\"acme\", action in Placet::Action::\"call_tool\", resource is Placet::Tool);"
        );
        check(&bundle(&text), &staff).map_err(|problems| problems[0].message.clone())
    };
    let refused = gate("security").unwrap_err();
    assert!(refused.contains("only the owner of the agents is in it"), "{refused}");
    let refused = gate("approvers:2").unwrap_err();
    assert!(refused.contains("which has 1 besides the owner"), "{refused}");
    gate("approvers").unwrap();
}

#[test]
fn a_freeze_that_can_be_set_can_be_lifted_by_somebody() {
    let check = |operator: &str, lifter: &str| {
        let groups = "groups: { operators: {}, freeze-approvers: {}, ";
        let yaml = include_str!("../testing_world.yaml")
            .replacen("groups: { ", groups, 1)
            .replace("cleo: { groups: [staff] }", &format!("cleo: {{ groups: [{operator}] }}"))
            .replace("dan: { groups: [security] }", &format!("dan: {{ groups: [{lifter}] }}"));
        let world = world_of(&yaml);
        let policies = compile(&shipped(), &world).unwrap();
        let staff = Staff {
            directory: &world.directory,
            claimed: &BTreeSet::new(),
            contracts: &world.contracts,
        };
        check_freezes(&policies, &staff)
    };
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
