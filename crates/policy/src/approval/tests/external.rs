//! Groups of another tenant: who is asked, who counts for which group, and what cannot be asked at all.

use placet_types::{
    approval::{Vote, VoteChoice},
    error::ErrorCode,
};
use serde_json::{Value, json};

use crate::{
    bundle::BundleProblem,
    snapshot::Snapshot,
    testing::{Draft, NOW, bundle, compile, vote, word, world},
    verdict::Verdict,
};

const PERMIT: &str = r#"@id("all") permit (principal, action in [Placet::Action::"tier_destructive", Placet::Action::"tier_local_write"], resource is Placet::Tool);"#;

/// A gate on credits that asks these groups; its condition names each as it is written.
fn gate(scope: &str, annotations: &str, groups: &[&str]) -> String {
    let each: Vec<String> = groups
        .iter()
        .map(|group| format!("context.req.approval.hasTag(\"{group}\") && context.req.approval.getTag(\"{group}\") >= 1"))
        .collect();
    let list = groups.join(", ");
    format!(
        "@id(\"gate\") @approval(\"custom\") @approver_group(\"{list}\") {annotations}\nforbid (principal, {scope}, resource is Placet::Tool)\nunless {{ context.req has approval && context.req.approval.total >= 2 && {} }};",
        each.join(" && ")
    )
}

const CREDIT: &str = r#"action == Placet::Action::"ops/credit""#;
const BY_INPUT: [&str; 2] = ["approvers", "{input.recipient}/credit-approvers"];

fn compiled(gate: &str) -> Result<Snapshot, Vec<BundleProblem>> {
    compile(&bundle(&format!("{PERMIT}\n{gate}")), &world())
}

fn by_input() -> Snapshot {
    compiled(&gate(CREDIT, r#"@quorum("2")"#, &BY_INPUT)).unwrap()
}

fn args(recipient: impl Into<Value>) -> Value {
    json!({ "recipient": recipient.into(), "cents": 5, "secret": "globex" })
}

fn credit(recipient: &str) -> Draft {
    Draft { args: args(recipient), ..Draft::new(&world(), "ops/credit") }
}

fn external(by: &str) -> Vote {
    Vote { tenant: Some("globex".parse().unwrap()), ..vote(by, &[]) }
}

/// The credit with the approval that this bundle asks for, voted on.
fn voted(snapshot: &Snapshot, recipient: &str, votes: Vec<Vote>) -> Draft {
    let Verdict::Hold(hold) = credit(recipient).decide(snapshot) else { panic!("not held") };
    Draft { requirement: hold.requirement, votes: Some(votes), ..credit(recipient) }
}

fn outcome(snapshot: &Snapshot, recipient: &str, votes: Vec<Vote>) -> &'static str {
    word(&voted(snapshot, recipient, votes).decide(snapshot))
}

#[test]
fn the_recipients_tenant_is_asked_beside_the_own_one() {
    let Verdict::Hold(hold) = credit("globex").decide(&by_input()) else { panic!("not held") };
    let groups: Vec<String> = hold.requirement.groups.keys().map(ToString::to_string).collect();
    assert_eq!(groups, ["approvers", "globex/credit-approvers"]);
    // An external tenant approves this call, and no standing grant.
    assert!(hold.requirement.once_only);
    assert_eq!(hold.requirement.external_tenants().len(), 1);
}

#[test]
fn a_credit_runs_when_both_tenants_have_agreed() {
    let snapshot = by_input();
    assert_eq!(outcome(&snapshot, "globex", vec![vote("ben", &[]), external("gil")]), "allow");
    assert_eq!(outcome(&snapshot, "globex", vec![vote("ben", &[])]), "hold");
    assert_eq!(outcome(&snapshot, "globex", vec![external("gil"), external("hal")]), "hold");
    // Two people of the own tenant do not stand in for the other one,
    let own = vec![vote("ben", &[]), vote("mia", &["approvers", "credit-approvers"])];
    assert_eq!(outcome(&snapshot, "globex", own), "hold");
    // nor does somebody of the other tenant by being in a group there that has the name of one that is asked here.
    let both = Vote { tenant: Some("globex".parse().unwrap()), ..vote("gil", &["approvers"]) };
    assert_eq!(outcome(&snapshot, "globex", vec![both, external("hal")]), "hold");
}

#[test]
fn a_name_that_there_is_in_both_tenants_is_two_people() {
    let snapshot = by_input();
    assert_eq!(outcome(&snapshot, "globex", vec![vote("ben", &[]), external("ben")]), "allow");
    // Of one tenant it is one.
    assert_eq!(outcome(&snapshot, "globex", vec![external("ben"), external("ben")]), "hold");
}

#[test]
fn an_external_approver_counts_only_as_one_who_is_asked() {
    let snapshot = by_input();
    let with = |other: Vote| outcome(&snapshot, "globex", vec![vote("ben", &[]), other]);
    // Of no group that is asked, inactive, or of a tenant that is not asked.
    assert_eq!(with(external("zoe")), "hold");
    assert_eq!(with(external("ivo")), "hold");
    let elsewhere =
        Vote { tenant: Some("initech".parse().unwrap()), ..vote("gil", &["credit-approvers"]) };
    assert_eq!(with(elsewhere), "hold");
    // Not even in the total: two of the own tenant are wanted here, or one and an external approver who is asked.
    let two = compiled(&gate(CREDIT, r#"@quorum("2")"#, &["approvers"])).unwrap();
    assert_eq!(outcome(&two, "globex", vec![vote("ben", &[]), external("gil")]), "hold");
    assert_eq!(outcome(&two, "globex", vec![vote("ben", &[]), vote("dan", &[])]), "allow");
}

#[test]
fn an_external_approver_whose_claims_are_old_counts_by_their_own_directory() {
    let snapshot = by_input();
    let old = |by: &str| Vote {
        groups_as_of: NOW.plus_ms(-86_400_001),
        tenant: Some("globex".parse().unwrap()),
        ..vote(by, &["credit-approvers"])
    };
    assert_eq!(outcome(&snapshot, "globex", vec![vote("ben", &[]), old("gil")]), "allow");
    assert_eq!(outcome(&snapshot, "globex", vec![vote("ben", &[]), old("una")]), "hold");
}

#[test]
fn a_no_of_the_recipient_ends_it() {
    let no = Vote { choice: VoteChoice::Deny, ..external("gil") };
    let votes = vec![vote("ben", &[]), no];
    assert_eq!(outcome(&by_input(), "globex", votes), "approval_refused");
}

#[test]
fn a_recipient_at_home_asks_the_own_group() {
    let snapshot = by_input();
    let own = vote("mia", &["credit-approvers"]);
    assert_eq!(outcome(&snapshot, "acme", vec![vote("ben", &[]), own.clone()]), "allow");
    assert_eq!(outcome(&snapshot, "acme", vec![vote("ben", &[]), external("gil")]), "hold");
    // An approval that asked the own group is of no use for a call that asks the other tenant.
    let asked = voted(&snapshot, "acme", vec![vote("ben", &[]), own]);
    assert_eq!(word(&Draft { args: args("globex"), ..asked }.decide(&snapshot)), "hold");
}

#[test]
fn a_recipient_at_home_without_such_a_group_asks_nobody() {
    // Somebody who has the group by claims alone does not make up for it.
    let groups = ["approvers", "{input.recipient}/unheard-of"];
    let snapshot = compiled(&gate(CREDIT, r#"@quorum("2")"#, &groups)).unwrap();
    let Verdict::Deny(denial) = credit("acme").decide(&snapshot) else { panic!("asked") };
    assert_eq!(denial.kind.as_str(), "nobody_to_ask");
}

#[test]
fn who_cannot_be_asked_refuses_the_call_before_anybody_is() {
    let snapshot = by_input();
    for recipient in ["initech", "", "glo bex", "globex/credit-approvers", "GLOBEX", "../globex"] {
        let Verdict::Deny(denial) = credit(recipient).decide(&snapshot) else {
            panic!("{recipient}")
        };
        assert_eq!(denial.kind.as_str(), "nobody_to_ask", "{recipient}");
        assert_eq!(denial.code, ErrorCode::PolicyDenied);
        assert!(denial.decision.notes.iter().any(|note| note.contains("asks nobody")));
    }
    // Only where it matters: a call that no gate holds asks nobody.
    let open = gate(CREDIT, "", &BY_INPUT)
        .replace("unless {", "when { context.input.cents > 9 } unless {");
    assert_eq!(word(&credit("initech").decide(&compiled(&open).unwrap())), "allow");
}

#[test]
fn a_named_tenant_is_asked_under_its_own_name() {
    let written = ["approvers", "globex/credit-approvers"];
    let snapshot = compiled(&gate(CREDIT, r#"@quorum("2")"#, &written)).unwrap();
    let votes = vec![vote("ben", &[]), external("gil")];
    assert_eq!(outcome(&snapshot, "anybody", votes), "allow");
    // The own tenant may be named as well.
    let snapshot =
        compiled(&gate(CREDIT, r#"@quorum("2")"#, &["approvers", "acme/security"])).unwrap();
    let own = vec![vote("ben", &[]), vote("dan", &[])];
    assert_eq!(outcome(&snapshot, "anybody", own), "allow");
}

#[test]
fn what_cannot_be_asked_is_refused_when_the_bundle_is_read() {
    let problem = |gate: &str| compiled(gate).unwrap_err()[0].message.clone();
    for (written, why) in [
        ("initech/credit-approvers", "directory of tenant `initech`"),
        ("globex/lawyers", "directory of tenant `globex`"),
        ("{input.maybe}/credit-approvers", "does not require"),
        ("{input.cents}/credit-approvers", "does not require"),
        ("{input.absent}/credit-approvers", "does not require"),
        ("{input.secret}/credit-approvers", "sensitive"),
        ("{input.recipient.tenant}/credit-approvers", "cannot be read"),
        ("{recipient}/credit-approvers", "cannot be read"),
    ] {
        let found = problem(&gate(CREDIT, "", &["approvers", written]));
        assert!(found.contains(why), "{written}: {found}");
    }
    // A gate over tools that lack the argument.
    let wide = r#"action in Placet::Action::"cap_destructive""#;
    assert!(problem(&gate(wide, "", &BY_INPUT)).contains("does not require"));
}

#[test]
fn nobody_of_one_tenant_answers_for_another() {
    let strange = gate(CREDIT, r#"@escalate("2h: globex/security")"#, &["approvers"]);
    assert!(compiled(&strange).unwrap_err()[0].message.contains("no other group of its tenant"));
    // A condition that accepts people of either tenant: the engine keeps them apart.
    let both = r#"@id("gate") @approval("custom") @quorum("2") @approver_group("approvers, {input.recipient}/credit-approvers")
@escalate("2h: managers, 3h: {input.recipient}/security")
forbid (principal, action == Placet::Action::"ops/credit", resource is Placet::Tool)
unless { context.req has approval && context.req.approval.total >= 2 };"#;
    let Verdict::Hold(hold) = credit("globex").decide(&compiled(both).unwrap()) else {
        panic!("not held")
    };
    let asked: Vec<(String, Vec<String>)> = hold
        .requirement
        .escalations
        .iter()
        .map(|one| {
            let groups = one.stands_in_for.iter().map(ToString::to_string);
            (one.group.to_string(), groups.collect())
        })
        .collect();
    let of = |group: &str, stands_in_for: &str| (group.to_owned(), vec![stands_in_for.to_owned()]);
    assert_eq!(
        asked,
        [of("managers", "approvers"), of("globex/security", "globex/credit-approvers")]
    );
}

#[test]
fn no_standing_grant_covers_what_another_tenant_is_asked_about() {
    let snapshot = by_input();
    let votes = vec![vote("ben", &[]), external("gil")];
    let standing = Draft { standing: true, ..voted(&snapshot, "globex", votes) };
    assert_eq!(word(&standing.decide(&snapshot)), "hold");
}

#[test]
fn a_reason_says_which_other_tenants_its_policy_asks() {
    let own = r#"@id("own") @approval("custom") @approver_group("approvers") @reason("Our own.")
forbid (principal, action == Placet::Action::"ops/credit", resource is Placet::Tool)
unless { context.req has approval && context.req.approval.total >= 1 };"#;
    let both = gate(CREDIT, r#"@quorum("2")"#, &BY_INPUT);
    let snapshot = compiled(&format!("{both}\n{own}")).unwrap();
    let Verdict::Hold(hold) = credit("globex").decide(&snapshot) else { panic!("not held") };
    let asks: Vec<(String, Vec<String>)> = hold
        .requirement
        .reasons
        .iter()
        .map(|one| (one.policy.clone(), one.asks.iter().map(ToString::to_string).collect()))
        .collect();
    let wanted = [("gate".to_owned(), vec!["globex".to_owned()]), ("own".to_owned(), vec![])];
    assert_eq!(asks, wanted);
    let part = hold.requirement.part_of(&"globex".parse().unwrap());
    let policies: Vec<&str> = part.reasons.iter().map(|one| one.policy.as_str()).collect();
    assert_eq!(policies, ["gate"]);
}
