//! One token that says both who acts and for whom (RFC 8693, `act`).

use placet_types::{ids::PrincipalId, principal::PrincipalKind};
use serde_json::{Value, json};

use super::support::{ISSUER, Signer, claims, claims_with, issuer, key_set, verifier, verifier_of};
use crate::{ActingRule, IdentityError, KeySource, Presented, VerifiedCaller, Verifier};

fn accepting(signer: &Signer, rule: ActingRule) -> Verifier {
    let mut issuer = issuer(KeySource::Inline(key_set(&[signer])));
    issuer.act = Some(rule);
    verifier_of(vec![issuer])
}

async fn caller(verifier: &Verifier, token: &str) -> Result<VerifiedCaller, IdentityError> {
    verifier.caller(Presented { token: Some(token), ..Presented::default() }).await
}

/// A chain of so many actors; the outermost is `bot`.
fn chain(depth: usize) -> Value {
    let mut chain = json!({ "sub": "first" });
    for n in 2..depth {
        chain = json!({ "sub": format!("a{n}"), "act": chain });
    }
    if depth > 1 { json!({ "sub": "bot", "act": chain }) } else { json!({ "sub": "bot" }) }
}

#[tokio::test]
async fn one_token_says_who_acts_and_for_whom() {
    let signer = Signer::es256("k1");
    let verifier = accepting(&signer, ActingRule::default());
    let token = signer.sign(&claims_with("act", json!({ "sub": "bot" })));
    let caller = caller(&verifier, &token).await.unwrap();
    let chain = caller.chain();
    assert_eq!((chain.actor.id.as_str(), chain.actor.kind), ("bot", PrincipalKind::Agent));
    assert_eq!(chain.on_behalf_of.as_ref().unwrap().id.as_str(), "ada");
    assert_eq!((chain.delegation_depth(), chain.via.len()), (1, 0));
    let user = caller.delegation.as_ref().unwrap();
    assert!(user.sealed().is_some() && caller.actor.sealed().is_none(), "the user's, once");
    assert!(caller.actor.groups().is_empty(), "the user's groups are not the agent's");
    assert_eq!(caller.expires_at(), user.expires_at());
}

#[tokio::test]
async fn an_actor_is_no_persons_client() {
    let signer = Signer::es256("k1");
    let verifier = accepting(&signer, ActingRule::default());
    for (act, accepted) in [
        (json!({ "sub": "bot", "client_id": "helpdesk" }), true),
        (json!({ "sub": "bot", "client_id": "cli" }), false),
        (json!({ "sub": "cli" }), false),
    ] {
        let found = caller(&verifier, &signer.sign(&claims_with("act", act.clone()))).await;
        assert_eq!(found.is_ok(), accepted, "{act}: {found:?}");
    }
    let alone = signer.sign(&claims_with("client_id", json!("helpdesk")));
    let refused = caller(&verifier, &alone).await.unwrap_err();
    assert_eq!(refused, IdentityError::HeldByAgent(ISSUER.to_owned()));
}

#[tokio::test]
async fn a_person_who_calls_in_their_own_name_needs_no_actor() {
    let signer = Signer::es256("k1");
    let verifier = accepting(&signer, ActingRule::default());
    let caller =
        caller(&verifier, &signer.sign(&claims_with("client_id", json!("cli")))).await.unwrap();
    assert_eq!((caller.actor.kind(), caller.delegation), (PrincipalKind::User, None));
}

#[tokio::test]
async fn a_users_token_of_an_agents_client_is_that_agent_for_the_user_where_the_issuer_says_so() {
    let signer = Signer::es256("k1");
    let with = |clients| {
        let mut issuer = issuer(KeySource::Inline(key_set(&[&signer])));
        issuer.clients.insert("editor-app".to_owned(), PrincipalId::new("editor").unwrap());
        issuer.act = Some(ActingRule { clients, ..ActingRule::default() });
        verifier_of(vec![issuer])
    };
    let token = signer.sign(&claims_with("client_id", json!("editor-app")));
    let found = caller(&with(true), &token).await.unwrap();
    let chain = found.chain();
    assert_eq!((chain.actor.id.as_str(), chain.actor.kind), ("editor", PrincipalKind::Agent));
    assert_eq!(chain.on_behalf_of.as_ref().unwrap().id.as_str(), "ada");
    assert!(found.delegation.as_ref().unwrap().sealed().is_some(), "the user's, once");
    let held = IdentityError::HeldByAgent(ISSUER.to_owned());
    assert_eq!(caller(&with(false), &token).await, Err(held.clone()));
    // A client without a principal makes nobody an agent.
    let other = signer.sign(&claims_with("client_id", json!("helpdesk")));
    assert_eq!(caller(&with(true), &other).await, Err(held));
    // If the token names who may act, only they may.
    let mut claims = claims_with("client_id", json!("editor-app"));
    claims["may_act"] = json!({ "sub": "someone-else" });
    assert!(caller(&with(true), &signer.sign(&claims)).await.is_err());
}

#[tokio::test]
async fn the_history_of_actors_is_told_and_counted_and_bounded() {
    let signer = Signer::es256("k1");
    let verifier = accepting(&signer, ActingRule::default());
    for depth in [1, 2, 3, 10] {
        let token = signer.sign(&claims_with("act", chain(depth)));
        let made = caller(&verifier, &token).await.unwrap().chain();
        assert_eq!(usize::from(made.delegation_depth()), depth);
        assert_eq!(made.actor.id.as_str(), "bot", "only the outermost acts");
        assert_eq!(made.via.last().map(String::as_str), (depth > 1).then_some("first"));
    }
    let long = json!({ "sub": "bot", "note": "x".repeat(8_200) });
    let own = json!({ "sub": "bot", "act": { "sub": "ada" } });
    for value in [
        chain(11),
        long,
        own,
        json!({ "sub": "ada" }),
        json!("bot"),
        json!([{ "sub": "bot" }]),
        json!(null),
        json!(7),
        json!({}),
        json!({ "sub": 7 }),
        json!({ "sub": "bot", "act": "first" }),
        json!({ "sub": "no name" }),
        json!({ "sub": "bot", "iss": "https://other.example/" }),
        json!({ "client_id": "bot" }),
    ] {
        let mut claims = claims();
        claims["act"] = value.clone();
        let made = caller(&verifier, &signer.sign(&claims)).await;
        assert!(made.is_err(), "{value}");
    }
    let same = json!({ "sub": "bot", "iss": ISSUER });
    assert!(caller(&verifier, &signer.sign(&claims_with("act", same))).await.is_ok());
}

#[tokio::test]
async fn an_issuer_that_was_not_asked_to_vouch_for_actors_does_not() {
    let signer = Signer::es256("k1");
    let token = signer.sign(&claims_with("act", json!({ "sub": "bot" })));
    let refused = caller(&verifier(&[&signer]), &token).await.unwrap_err();
    assert!(matches!(&refused, IdentityError::ClaimRefused { claim, .. } if claim == "act"));
}

#[tokio::test]
async fn a_token_that_says_both_takes_no_second_user_and_only_a_user_has_an_actor() {
    let signer = Signer::es256("k1");
    let verifier = accepting(&signer, ActingRule::default());
    let both = signer.sign(&claims_with("act", json!({ "sub": "bot" })));
    let user = signer.sign(&claims_with("sub", json!("eve")));
    let presented = Presented { token: Some(&both), delegation: Some(&user), certificate: None };
    let refused = verifier.caller(presented).await.unwrap_err();
    assert!(matches!(refused, IdentityError::BindingRefused(_)), "{refused}");
    let mut agent = claims_with("act", json!({ "sub": "bot" }));
    agent["placet_kind"] = json!("agent");
    assert!(caller(&verifier, &signer.sign(&agent)).await.is_err());
    let mut other = claims_with("act", json!({ "sub": "bot" }));
    other["may_act"] = json!({ "sub": "other" });
    assert!(caller(&verifier, &signer.sign(&other)).await.is_err(), "`may_act` names another");
}

#[tokio::test]
async fn the_configuration_names_the_actors_of_an_issuer() {
    let signer = Signer::es256("k1");
    let principals = [("client-77".to_owned(), PrincipalId::new("bot").unwrap())].into();
    let rule = ActingRule {
        kind: PrincipalKind::Service,
        principal_prefix: "idp:".to_owned(),
        principals,
        ..ActingRule::default()
    };
    let verifier = accepting(&signer, rule);
    for (subject, name) in [("client-77", "bot"), ("other", "idp:other")] {
        let token = signer.sign(&claims_with("act", json!({ "sub": subject })));
        let actor = caller(&verifier, &token).await.unwrap().chain().actor;
        assert_eq!((actor.id.as_str(), actor.kind), (name, PrincipalKind::Service));
    }
    let person = ActingRule { kind: PrincipalKind::User, ..ActingRule::default() };
    let mut issuer = issuer(KeySource::Inline(key_set(&[&signer])));
    issuer.act = Some(person);
    assert!(super::support::config(vec![issuer]).check().is_err());
}

#[tokio::test]
async fn an_issuer_cannot_make_a_spiffe_workload_of_an_actor() {
    let signer = Signer::es256("k1");
    let verifier = accepting(&signer, ActingRule::default());
    let token =
        signer.sign(&claims_with("act", json!({ "sub": "spiffe://prod.example/agent/bot" })));
    let refused = caller(&verifier, &token).await.unwrap_err();
    assert!(
        matches!(&refused, IdentityError::ClaimRefused { claim, .. } if claim == "act"),
        "{refused:?}"
    );
}
