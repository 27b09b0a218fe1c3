//! What a refused reviewer gets to know, and what the audit does.

use std::collections::BTreeSet;

use placet_types::{
    approval::{ApproverGroup, Voice},
    error::ErrorCode,
    ids::PrincipalId,
    mode::ApprovalMode,
    principal::{Principal, PrincipalChain, PrincipalKind},
};

use super::{Review, ReviewAction, ReviewRefusal, ReviewedRequest, Reviewer};
use crate::{
    snapshot::Snapshot,
    testing::{NOW, agent, agent_for, bundle, compile, principal, shipped, world},
};

struct Approval {
    chain: PrincipalChain,
    decided_by: BTreeSet<PrincipalId>,
    asked: BTreeSet<ApproverGroup>,
}

impl Approval {
    fn of(chain: PrincipalChain) -> Self {
        Self { chain, decided_by: [].into(), asked: ["approvers".parse().unwrap()].into() }
    }

    fn approve(&self, snapshot: &Snapshot, reviewer: &Principal) -> Result<(), ReviewRefusal> {
        self.ask(snapshot, reviewer, Some(ReviewAction::Approve))
    }

    fn ask(
        &self,
        snapshot: &Snapshot,
        reviewer: &Principal,
        choice: Option<ReviewAction>,
    ) -> Result<(), ReviewRefusal> {
        let capability = "ops/remove".parse().unwrap();
        let request = ReviewedRequest {
            chain: &self.chain,
            capability: &capability,
            mode: ApprovalMode::Destructive,
            asked: self.asked.clone(),
            fresh_auth_ms: None,
            expires_at: NOW.plus_ms(1_000),
            decided_by: self.decided_by.iter().map(Voice::own).collect(),
            authors: BTreeSet::new(),
        };
        let reviewer = Reviewer { principal: reviewer, groups: &[].into() };
        match choice {
            Some(action) => snapshot.may_review(&Review {
                reviewer,
                stands_for: None,
                request: &request,
                action,
                authenticated_at: None,
                now: NOW,
            }),
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
    for choice in [None, Some(ReviewAction::Approve), Some(ReviewAction::Deny)] {
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
    assert_eq!(
        refusal.to_string(),
        "the review is refused: policy `odd` could not be evaluated: integer overflow"
    );
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

/// A bundle that lets everybody do everything with an approval.
fn open() -> Snapshot {
    let text = r#"@id("all") permit (principal, action in Placet::Action::"review", resource is Placet::ApprovalRequest);"#;
    compile(&bundle(text), &world()).unwrap()
}

struct Click<'a> {
    by: &'a str,
    stands_for: Option<(&'a str, &'a str)>,
    fresh_auth_ms: Option<u64>,
    proved_ago_ms: Option<i64>,
    decided_by: &'a [&'a str],
    authors: &'a [&'a str],
}

const CLICK: Click<'_> = Click {
    by: "ben",
    stands_for: None,
    fresh_auth_ms: None,
    proved_ago_ms: None,
    decided_by: &[],
    authors: &[],
};

fn click(
    snapshot: &Snapshot,
    click: &Click<'_>,
    action: ReviewAction,
) -> Result<(), ReviewRefusal> {
    let person = user(click.by);
    let colleague =
        click.stands_for.map(|(id, group)| (user(id), BTreeSet::from([group.parse().unwrap()])));
    let decided: Vec<PrincipalId> = click.decided_by.iter().map(|id| id.parse().unwrap()).collect();
    snapshot.may_review(&Review {
        reviewer: Reviewer { principal: &person, groups: &[].into() },
        stands_for: colleague.as_ref().map(|(principal, groups)| Reviewer { principal, groups }),
        request: &ReviewedRequest {
            chain: &agent_for("bot", "ada"),
            capability: &"ops/remove".parse().unwrap(),
            mode: ApprovalMode::Destructive,
            asked: ["approvers".parse().unwrap()].into(),
            fresh_auth_ms: click.fresh_auth_ms,
            expires_at: NOW.plus_ms(1_000),
            decided_by: decided.iter().map(Voice::own).collect(),
            authors: click.authors.iter().map(|id| id.parse().unwrap()).collect(),
        },
        action,
        authenticated_at: click.proved_ago_ms.map(|ago| NOW.plus_ms(ago.saturating_neg())),
        now: NOW,
    })
}

#[test]
fn a_fresh_proof_is_asked_for_whatever_a_bundle_says() {
    let snapshot = open();
    let asked = Click { fresh_auth_ms: Some(900_000), ..CLICK };
    for action in [ReviewAction::Approve, ReviewAction::Edit] {
        let refusal = click(&snapshot, &asked, action).unwrap_err();
        assert_eq!((refusal.code, refusal.needs_fresh_auth), (ErrorCode::PolicyDenied, true));
        for (ago, ok) in [(900_000, true), (900_001, false), (-60_000, true), (-60_001, false)] {
            let proved = Click { proved_ago_ms: Some(ago), ..asked };
            assert_eq!(click(&snapshot, &proved, action).is_ok(), ok, "{ago}");
        }
    }
    assert_eq!(click(&snapshot, &asked, ReviewAction::Deny), Ok(()));
    assert_eq!(click(&snapshot, &CLICK, ReviewAction::Approve), Ok(()));
}

#[test]
fn who_is_told_to_sign_in_again_could_decide_then() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    let asked = Click { fresh_auth_ms: Some(900_000), ..CLICK };
    let refusal = click(&snapshot, &asked, ReviewAction::Approve).unwrap_err();
    assert!(refusal.needs_fresh_auth);
    assert_eq!(refusal.determining[0].policy, "fresh-auth");
    // Signing in again would not help somebody who may not decide.
    for by in ["cleo", "olga", "ada"] {
        let refusal = click(&snapshot, &Click { by, ..asked }, ReviewAction::Approve).unwrap_err();
        assert!(!refusal.needs_fresh_auth, "{by}");
    }
}

#[test]
fn a_bundle_cannot_let_the_interested_decide_by_way_of_each_other() {
    let snapshot = open();
    let both = |by, colleague, decided_by| {
        let stands_for = Some((colleague, "approvers"));
        let one = Click { by, stands_for, decided_by, ..CLICK };
        click(&snapshot, &one, ReviewAction::Approve).is_ok()
    };
    assert!(both("cleo", "ben", &[]));
    assert!(!both("olga", "ben", &[]), "the owner decides");
    assert!(!both("cleo", "olga", &[]), "the owner is decided for");
    assert!(!both("ada", "ben", &[]), "the user decides");
    assert!(!both("cleo", "ada", &[]), "the user is decided for");
    assert!(!both("ben", "ben", &[]), "oneself");
    assert!(!both("cleo", "ben", &["ben"]));
    assert!(!both("cleo", "ben", &["cleo"]));
    assert!(both("cleo", "ben", &["dan"]));
}

#[test]
fn a_bundle_cannot_let_anybody_decide_on_what_they_wrote() {
    let snapshot = open();
    for action in [ReviewAction::Approve, ReviewAction::Deny, ReviewAction::Edit] {
        let may = |one: Click<'_>| click(&snapshot, &one, action);
        let refusal = may(Click { authors: &["dan", "ben"], ..CLICK }).unwrap_err();
        assert_eq!((refusal.code, refusal.needs_fresh_auth), (ErrorCode::PolicyDenied, false));
        assert_eq!(may(Click { authors: &["dan"], ..CLICK }), Ok(()));
        // The agent's owner and the user never count as approvers, but may say no.
        for by in ["olga", "ada"] {
            assert_eq!(may(Click { by, ..CLICK }).is_ok(), action == ReviewAction::Deny, "{by}");
        }
        let for_ben = |authors| {
            let stands_for = Some(("ben", "approvers"));
            may(Click { by: "cleo", stands_for, authors, ..CLICK })
        };
        assert_eq!(for_ben(&[]), Ok(()));
        assert!(for_ben(&["ben"]).is_err() && for_ben(&["cleo"]).is_err());
        // A fresh sign-in would not help.
        let stale = Click { authors: &["ben"], fresh_auth_ms: Some(900_000), ..CLICK };
        assert!(!may(stale).unwrap_err().needs_fresh_auth);
    }
}

#[test]
fn who_decides_for_a_colleague_is_named_to_policy() {
    let text = r#"@id("all") permit (principal, action in Placet::Action::"review", resource is Placet::ApprovalRequest);
@id("in-person") forbid (principal, action in Placet::Action::"review", resource is Placet::ApprovalRequest)
when { context has stands_for && context.stands_for in resource.tenant };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let handed = Click { by: "cleo", stands_for: Some(("ben", "approvers")), ..CLICK };
    let refusal = click(&snapshot, &handed, ReviewAction::Deny).unwrap_err();
    assert_eq!(refusal.determining[0].policy, "in-person");
    assert_eq!(click(&snapshot, &CLICK, ReviewAction::Deny), Ok(()));
}
