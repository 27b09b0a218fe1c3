//! Who may do what in the approval service, and what no bundle lets anybody do.

use std::collections::BTreeSet;

use placet_types::{
    error::ErrorCode,
    ids::{PrincipalId, TenantId},
    principal::{Principal, PrincipalKind},
};

use super::{DirectiveActKind, EntryFacts, Management};
use crate::actions;
use crate::{
    review::{ReviewRefusal, Reviewer},
    snapshot::Snapshot,
    testing::{NOW, bundle, compile, principal, shipped, world},
};

const ALL: [DirectiveActKind; 14] = [
    DirectiveActKind::DeclareBreakGlass,
    DirectiveActKind::ConfirmBreakGlass,
    DirectiveActKind::EndBreakGlass,
    DirectiveActKind::ReviewBreakGlass,
    DirectiveActKind::SetFreeze,
    DirectiveActKind::LiftFreeze,
    DirectiveActKind::SetLockdown,
    DirectiveActKind::LiftLockdown,
    DirectiveActKind::RevokeGrant,
    DirectiveActKind::DelegateVotes,
    DirectiveActKind::TakeBack,
    DirectiveActKind::RevokeCredentials,
    DirectiveActKind::LiftRevocation,
    DirectiveActKind::View,
];

/// An entry of ben's that dan agreed to.
fn ask(
    snapshot: &Snapshot,
    person: &Principal,
    act: DirectiveActKind,
) -> Result<(), ReviewRefusal> {
    let (tenant, by): (TenantId, PrincipalId) = ("acme".parse().unwrap(), "ben".parse().unwrap());
    let colleague = "cleo".parse().unwrap();
    snapshot.may_manage(&Management {
        reviewer: Reviewer { principal: person, groups: &BTreeSet::new() },
        authenticated_at: None,
        act,
        entry: Some(EntryFacts {
            tenant: &tenant,
            by: &by,
            decided_by: &["dan".parse().unwrap()].into(),
            asked: &BTreeSet::new(),
            colleague: Some(&colleague),
        }),
        now: NOW,
    })
}

fn user(id: &str) -> Principal {
    principal(PrincipalKind::User, id)
}

/// A bundle that lets everybody do everything in the approval service.
fn open() -> Snapshot {
    let text = r#"@id("all") permit (principal, action in Placet::Action::"manage", resource is Placet::Directive);"#;
    compile(&bundle(text), &world()).unwrap()
}

#[test]
fn every_act_is_an_action_of_its_own() {
    let named: Vec<&str> = ALL.iter().map(|act| act.as_str()).collect();
    assert_eq!(named, actions::MANAGING);
    for act in ALL {
        assert_eq!(serde_json::to_value(act).unwrap(), act.as_str());
        let text = format!(
            r#"@id("one") permit (principal, action == Placet::Action::"{}", resource is Placet::Directive);"#,
            act.as_str()
        );
        let snapshot = compile(&bundle(&text), &world()).unwrap();
        // Ben may delegate, and somebody who took no part may do everything else.
        let person = user(if act == DirectiveActKind::DelegateVotes { "ben" } else { "olga" });
        let allowed: Vec<DirectiveActKind> =
            ALL.into_iter().filter(|other| ask(&snapshot, &person, *other).is_ok()).collect();
        assert_eq!(allowed, [act]);
    }
}

#[test]
fn whatever_a_bundle_says_some_things_take_somebody_else() {
    let snapshot = open();
    let refused = |id: &str| -> Vec<&str> {
        let acts = ALL.into_iter().filter(|act| ask(&snapshot, &user(id), *act).is_err());
        acts.map(DirectiveActKind::as_str).collect()
    };
    assert_eq!(refused("ben"), ["confirm_break_glass", "review_break_glass"]);
    assert_eq!(refused("dan"), ["review_break_glass", "delegate_votes"]);
    assert_eq!(refused("olga"), ["delegate_votes"]);
    let refusal = ask(&snapshot, &user("ben"), DirectiveActKind::ConfirmBreakGlass).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PolicyDenied);
    assert_eq!(
        refusal.to_string(),
        "the review is refused: somebody else confirms a break-glass record"
    );
}

#[test]
fn only_people_of_the_tenant_do_anything() {
    let snapshot = open();
    let foreign = Principal { tenant_id: "globex".parse().unwrap(), ..user("olga") };
    for act in ALL {
        for kind in [PrincipalKind::Agent, PrincipalKind::Service, PrincipalKind::Automation] {
            assert!(ask(&snapshot, &principal(kind, "olga"), act).is_err());
        }
        assert_eq!(ask(&snapshot, &foreign, act).unwrap_err().code, ErrorCode::NotFound);
    }
}

#[test]
fn who_may_not_see_an_entry_learns_nothing_of_it() {
    let snapshot = compile(&shipped(), &world()).unwrap();
    assert_eq!(ask(&snapshot, &user("cleo"), DirectiveActKind::View), Ok(()));
    let refusal = ask(&snapshot, &user("ada"), DirectiveActKind::View).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::NotFound);
    let refusal = ask(&snapshot, &user("ada"), DirectiveActKind::LiftFreeze).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PolicyDenied);
}

#[test]
fn a_new_entry_is_of_anyone_who_makes_it() {
    let text = r#"@id("own") permit (principal, action in Placet::Action::"manage", resource is Placet::Directive)
        when { principal == resource.by && principal.tenant == resource.tenant };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let olga = user("olga");
    let new = Management {
        reviewer: Reviewer { principal: &olga, groups: &BTreeSet::new() },
        authenticated_at: None,
        act: DirectiveActKind::SetFreeze,
        entry: None,
        now: NOW,
    };
    assert_eq!(snapshot.may_manage(&new), Ok(()));
    assert!(ask(&snapshot, &olga, DirectiveActKind::SetFreeze).is_err());
}

#[test]
fn a_policy_may_ask_for_a_fresh_proof() {
    let text = r#"@id("all") permit (principal, action in Placet::Action::"manage", resource is Placet::Directive);
@id("fresh") forbid (principal, action == Placet::Action::"declare_break_glass", resource is Placet::Directive)
unless { context has authenticated_at && context.now.durationSince(context.authenticated_at) <= duration("15m") };"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    let olga = user("olga");
    let at = |ago_ms: Option<i64>| {
        snapshot.may_manage(&Management {
            reviewer: Reviewer { principal: &olga, groups: &BTreeSet::new() },
            authenticated_at: ago_ms.map(|ago| NOW.plus_ms(ago.saturating_neg())),
            act: DirectiveActKind::DeclareBreakGlass,
            entry: None,
            now: NOW,
        })
    };
    assert_eq!(at(Some(900_000)), Ok(()));
    assert_eq!(at(Some(900_001)).unwrap_err().determining[0].policy, "fresh");
    assert_eq!(at(None).unwrap_err().determining[0].policy, "fresh");
}

#[test]
fn a_bundle_that_says_nothing_of_the_approval_service_lets_nobody_do_anything() {
    let text =
        r#"@id("p") permit (principal, action in Placet::Action::"tier_read_only", resource);"#;
    let snapshot = compile(&bundle(text), &world()).unwrap();
    for act in ALL {
        assert!(ask(&snapshot, &user("olga"), act).is_err());
    }
}
