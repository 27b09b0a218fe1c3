//! What a reviewer who is refused is told, and what the audit is.

use std::collections::BTreeSet;

use placet_types::{
    approval::{Requirement, VoteChoice},
    error::ErrorCode,
    ids::PrincipalId,
    mode::ApprovalMode,
    principal::{Principal, PrincipalChain, PrincipalKind},
};

use super::{Review, ReviewRefusal, ReviewedRequest, Reviewer};
use crate::{
    snapshot::Snapshot,
    testing::{NOW, agent, agent_for, bundle, compile, principal, shipped, world},
};

struct Approval {
    chain: PrincipalChain,
    decided_by: BTreeSet<PrincipalId>,
    requirement: Requirement,
}

impl Approval {
    fn of(chain: PrincipalChain) -> Self {
        let groups = [("approvers".parse().unwrap(), 1)].into();
        let requirement = Requirement::new(groups, 1, 1_000);
        Self { chain, decided_by: [].into(), requirement }
    }

    fn approve(&self, snapshot: &Snapshot, reviewer: &Principal) -> Result<(), ReviewRefusal> {
        self.ask(snapshot, reviewer, Some(VoteChoice::Approve))
    }

    fn ask(
        &self,
        snapshot: &Snapshot,
        reviewer: &Principal,
        choice: Option<VoteChoice>,
    ) -> Result<(), ReviewRefusal> {
        let capability = "ops/remove".parse().unwrap();
        let request = ReviewedRequest {
            chain: &self.chain,
            capability: &capability,
            mode: ApprovalMode::Destructive,
            requirement: &self.requirement,
            expires_at: NOW.plus_ms(1_000),
            decided_by: &self.decided_by,
        };
        let reviewer = Reviewer { principal: reviewer, groups: &[].into() };
        match choice {
            Some(choice) => snapshot.may_review(&Review { reviewer, request, choice, now: NOW }),
            None => snapshot.may_view(&reviewer, &request, NOW),
        }
    }
}

fn user(id: &str) -> Principal {
    principal(PrincipalKind::User, id)
}

#[test]
fn four_eyes_names_the_policy_to_the_audit_and_a_code_to_the_reviewer() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let own = Approval::of(agent("bot")).approve(&snapshot, &user("olga")).unwrap_err();
    assert_eq!(own.code, ErrorCode::PolicyDenied);
    assert_eq!(own.determining[0].policy, "four-eyes");
    let beneficiary = Approval::of(agent_for("bot", "ben"));
    assert_eq!(
        beneficiary.approve(&snapshot, &user("ben")).unwrap_err().determining[0].policy,
        "four-eyes"
    );
    assert_eq!(Approval::of(agent("bot")).approve(&snapshot, &user("ben")), Ok(()));
}

#[test]
fn who_may_not_see_an_approval_learns_nothing_of_it() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let approval = Approval::of(agent("bot"));
    assert_eq!(approval.ask(&snapshot, &user("cleo"), None).unwrap_err().code, ErrorCode::NotFound);
    let foreign = Principal { tenant_id: "globex".parse().unwrap(), ..user("ben") };
    for choice in [None, Some(VoteChoice::Approve), Some(VoteChoice::Deny)] {
        assert_eq!(
            approval.ask(&snapshot, &foreign, choice).unwrap_err().code,
            ErrorCode::NotFound
        );
    }
    assert_eq!(approval.ask(&snapshot, &user("ben"), None), Ok(()));
}

#[test]
fn only_people_review() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    for kind in [PrincipalKind::Agent, PrincipalKind::Service, PrincipalKind::Automation] {
        let refusal =
            Approval::of(agent("bot")).approve(&snapshot, &principal(kind, "ben")).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::PolicyDenied);
    }
}

#[test]
fn an_approval_of_an_agent_or_tool_that_is_gone_can_still_be_reviewed() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    assert_eq!(Approval::of(agent("stranger")).approve(&snapshot, &user("ben")), Ok(()));
    let empty = crate::cases::run::World { contracts: vec![], ..world() };
    let snapshot = compile(&shipped(), &empty).unwrap();
    assert_eq!(Approval::of(agent("bot")).approve(&snapshot, &user("ben")), Ok(()));
}

#[test]
fn a_review_that_a_policy_cannot_be_evaluated_for_is_refused() {
    let text = r#"
@id("anyone") permit (principal, action in [Placet::Action::"approve", Placet::Action::"view"], resource);
@id("odd") forbid (principal, action == Placet::Action::"approve", resource)
when { context.now.toTime().toMilliseconds() + 9223372036854775807 + 1 < 0 };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let approval = Approval::of(agent("bot"));
    let refusal = approval.approve(&snapshot, &user("ben")).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PolicyError);
    assert_eq!(refusal.to_string(), "the review is refused: policy `odd` could not be evaluated");
    assert_eq!(approval.ask(&snapshot, &user("ben"), None), Ok(()));
}

#[test]
fn a_bundle_without_review_policies_lets_nobody_review() {
    let text =
        r#"@id("p") permit (principal, action in Placet::Action::"tier_read_only", resource);"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let refusal = Approval::of(agent("bot")).approve(&snapshot, &user("ben")).unwrap_err();
    assert_eq!(refusal.to_string(), "the review is refused: no policy permits it");
}
