//! Which tools exist for whom.

use crate::testing::{agent, agent_for, bundle, compile, principal, shipped, world};
use placet_types::principal::{PrincipalChain, PrincipalKind};

fn names(
    snapshot: &crate::snapshot::Snapshot,
    chain: &PrincipalChain,
    groups: &[&str],
) -> Vec<String> {
    let groups = groups.iter().map(|group| group.parse().unwrap()).collect();
    snapshot.surface(chain, &groups).iter().map(ToString::to_string).collect()
}

#[test]
fn a_tool_that_no_circumstance_allows_does_not_exist() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let all = [
        "ops/act",
        "ops/blob",
        "ops/credit",
        "ops/fetch",
        "ops/look",
        "ops/note",
        "ops/refund",
        "ops/remove",
    ];
    assert_eq!(names(&snapshot, &agent("bot"), &[]), all);
    assert_eq!(names(&snapshot, &agent_for("bot", "ada"), &[]), all);
    let service = PrincipalChain {
        actor: principal(PrincipalKind::Service, "sync"),
        on_behalf_of: None,
        via: Vec::new(),
    };
    assert_eq!(names(&snapshot, &service, &[]), ["ops/look"]);
    for chain in [agent("stranger"), agent("retired"), agent_for("bot", "eve")] {
        assert!(names(&snapshot, &chain, &[]).is_empty());
    }
}

#[test]
fn the_surface_is_what_both_links_could_call() {
    let text = r#"
@id("agents") permit (principal is Placet::Agent, action in [Placet::Action::"tier_read_only", Placet::Action::"tier_network"], resource is Placet::Tool);
@id("finance") permit (principal is Placet::User, action in Placet::Action::"tier_read_only", resource is Placet::Tool)
when { principal in Placet::Group::"acme/finance" };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    assert_eq!(names(&snapshot, &agent("bot"), &[]), ["ops/fetch", "ops/look"]);
    assert_eq!(names(&snapshot, &agent_for("bot", "ada"), &[]), ["ops/look"]);
    assert!(names(&snapshot, &agent_for("bot", "cleo"), &[]).is_empty());
    assert_eq!(names(&snapshot, &agent_for("bot", "cleo"), &["finance"]), ["ops/look"]);
}

#[test]
fn what_is_always_forbidden_does_not_exist_and_what_is_sometimes_forbidden_does() {
    let with = |forbid: &str| {
        let text = format!(
            "{}\n{forbid}",
            r#"@id("all") permit (principal, action in Placet::Action::"tier_network", resource is Placet::Tool);"#
        );
        names(&compile(&bundle(&text), &world()).unwrap(), &agent("bot"), &[])
    };
    let scope = r#"(principal, action in Placet::Action::"cap_network", resource is Placet::Tool)"#;
    assert!(with(&format!("@id(\"f\") @approval(\"never\") forbid {scope};")).is_empty());
    assert!(with(&format!("@id(\"f\") @approval(\"never\") forbid {scope} when {{ principal in Placet::Tenant::\"acme\" }};")).is_empty());
    let sometimes = format!(
        "@id(\"f\") @approval(\"never\") forbid {scope} when {{ context.req.budget.calls_left < 1 }};"
    );
    assert_eq!(with(&sometimes), ["ops/fetch"]);
}
