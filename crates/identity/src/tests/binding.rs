//! Which delegation may be used by which caller.

use serde_json::{Value, json};

use super::support::{
    ISSUER, Signer, claims, claims_with, config, issuer, key_set, verifier, verifier_of,
};
use crate::{IdentityError, KeySource, TokenRole, VerifiedCaller, VerifiedToken, Verifier};
use placet_types::{
    error::ErrorCode,
    ids::{PrincipalId, TenantId},
    principal::PrincipalKind,
};

async fn token(
    verifier: &Verifier,
    signer: &Signer,
    role: TokenRole,
    claims: &Value,
) -> VerifiedToken {
    verifier.verify(&signer.sign(claims), role).await.unwrap()
}

fn agent_claims() -> Value {
    let mut agent = claims_with("sub", json!("bot"));
    agent["placet_kind"] = json!("agent");
    agent["client_id"] = json!("bot-client");
    agent
}

/// Whether a delegation with this claim binds to the agent `bot`.
async fn binds(claim: &str, value: Value) -> bool {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let actor = token(&verifier, &signer, TokenRole::Actor, &agent_claims()).await;
    let user = token(&verifier, &signer, TokenRole::Delegation, &claims_with(claim, value)).await;
    VerifiedCaller::bind(actor, Some(user)).is_ok()
}

#[tokio::test]
async fn an_agent_with_a_delegation_makes_a_chain_of_two() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let actor = token(&verifier, &signer, TokenRole::Actor, &agent_claims()).await;
    let mut claims = claims_with("exp", json!(1_790_000_100));
    claims["client_id"] = json!("bot-client");
    let user = token(&verifier, &signer, TokenRole::Delegation, &claims).await;
    let expires_at = user.expires_at();
    let caller = VerifiedCaller::bind(actor, Some(user)).unwrap();
    let chain = caller.chain();
    assert_eq!((chain.actor.id.as_str(), chain.actor.kind), ("bot", PrincipalKind::Agent));
    assert_eq!(chain.on_behalf_of.unwrap().id.as_str(), "ada");
    assert_eq!(caller.expires_at(), expires_at);
}

#[tokio::test]
async fn a_person_calls_in_their_own_name_but_not_in_anothers() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let person = token(&verifier, &signer, TokenRole::Actor, &claims()).await;
    let alone = VerifiedCaller::bind(person.clone(), None).unwrap().chain();
    assert_eq!((alone.actor.kind, alone.on_behalf_of), (PrincipalKind::User, None));
    let other =
        token(&verifier, &signer, TokenRole::Delegation, &claims_with("sub", json!("bob"))).await;
    assert!(VerifiedCaller::bind(person, Some(other)).is_err());
}

#[tokio::test]
async fn a_token_is_bound_only_in_the_place_it_was_verified_for() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let actor = token(&verifier, &signer, TokenRole::Actor, &agent_claims()).await;
    let user_as_actor = token(&verifier, &signer, TokenRole::Actor, &claims()).await;
    let user = token(&verifier, &signer, TokenRole::Delegation, &claims()).await;
    assert!(VerifiedCaller::bind(user, None).is_err());
    assert!(VerifiedCaller::bind(actor, Some(user_as_actor)).is_err());
}

#[tokio::test]
async fn a_delegation_that_names_an_actor_is_for_that_actor_only() {
    for (claim, value, bound) in [
        ("act", json!({ "sub": "bot" }), true),
        ("act", json!({ "sub": "bot", "iss": ISSUER }), true),
        ("act", json!({ "sub": "other" }), false),
        ("act", json!({ "sub": "bot", "iss": "https://other.example/" }), false),
        ("act", json!({ "sub": "other", "act": { "sub": "bot" } }), false),
        ("may_act", json!({ "sub": "bot" }), true),
        ("may_act", json!({ "client_id": "bot-client" }), true),
        ("may_act", json!({ "sub": "bot", "client_id": "other" }), false),
        ("may_act", json!({ "sub": "other" }), false),
        ("client_id", json!("bot-client"), true),
        ("azp", json!("bot"), true),
        ("client_id", json!("other"), false),
        ("azp", json!("other"), false),
        ("jti", json!("x"), false),
    ] {
        assert_eq!(binds(claim, value.clone()).await, bound, "{claim} = {value}");
    }
}

#[tokio::test]
async fn act_does_not_outvote_may_act() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let actor = token(&verifier, &signer, TokenRole::Actor, &agent_claims()).await;
    let mut both = claims_with("act", json!({ "sub": "bot" }));
    both["may_act"] = json!({ "sub": "other" });
    let user = token(&verifier, &signer, TokenRole::Delegation, &both).await;
    assert!(VerifiedCaller::bind(actor, Some(user)).is_err());
}

/// A user's issuer and a workload's issuer, of the same tenant unless told otherwise.
struct TwoIssuers {
    people: Signer,
    workloads: Signer,
    verifier: Verifier,
}

const WORKLOADS: &str = "https://workloads.example/";

fn two_issuers(workload_tenant: &str) -> TwoIssuers {
    let (people, workloads) = (Signer::es256("p"), Signer::es256("w"));
    let mut first = issuer(KeySource::Inline(key_set(&[&people])));
    first.clients.insert("portal".to_owned(), PrincipalId::new("bot").unwrap());
    let mut second = issuer(KeySource::Inline(key_set(&[&workloads])));
    second.issuer = WORKLOADS.to_owned();
    second.tenant = TenantId::new(workload_tenant).unwrap();
    second.shared_principals = true;
    let verifier = verifier_of(vec![first, second]);
    TwoIssuers { people, workloads, verifier }
}

async fn binds_across(
    two: &TwoIssuers,
    subject: &str,
    claim: &str,
    value: Value,
) -> Result<(), IdentityError> {
    let mut agent = agent_claims();
    agent["iss"] = json!(WORKLOADS);
    agent["sub"] = json!(subject);
    let actor = token(&two.verifier, &two.workloads, TokenRole::Actor, &agent).await;
    let user =
        token(&two.verifier, &two.people, TokenRole::Delegation, &claims_with(claim, value)).await;
    VerifiedCaller::bind(actor, Some(user)).map(drop)
}

#[tokio::test]
async fn a_name_counts_within_its_issuer_only() {
    let two = two_issuers("acme");
    assert!(binds_across(&two, "bot", "act", json!({ "sub": "bot" })).await.is_err());
    assert!(
        binds_across(&two, "bot", "act", json!({ "sub": "bot", "iss": WORKLOADS })).await.is_ok()
    );
    assert!(binds_across(&two, "bot", "azp", json!("bot-client")).await.is_err());
    // The configuration says for which agent the portal asks for tokens.
    assert!(binds_across(&two, "bot", "azp", json!("portal")).await.is_ok());
    assert!(binds_across(&two, "other", "azp", json!("portal")).await.is_err());
}

#[tokio::test]
async fn a_delegation_of_another_tenant_is_refused() {
    let two = two_issuers("globex");
    let refused = binds_across(&two, "bot", "jti", json!("x")).await.unwrap_err();
    assert_eq!(
        refused,
        IdentityError::BindingRefused { problem: "they belong to different tenants" }
    );
}

#[tokio::test]
async fn a_delegation_that_names_neither_actor_nor_client_is_for_nobody_unless_its_issuer_says_so()
{
    let signer = Signer::es256("k1");
    for (anybody, claim, bound) in
        [(false, "jti", false), (true, "jti", true), (true, "azp", false)]
    {
        let mut trusted = issuer(KeySource::Inline(key_set(&[&signer])));
        trusted.delegations_for_anybody = anybody;
        let verifier = verifier_of(vec![trusted]);
        let actor = token(&verifier, &signer, TokenRole::Actor, &agent_claims()).await;
        let claims = claims_with(claim, json!("other"));
        let user = token(&verifier, &signer, TokenRole::Delegation, &claims).await;
        assert_eq!(VerifiedCaller::bind(actor, Some(user)).is_ok(), bound, "{anybody} {claim}");
    }
}

/// A user's token with this claim, shown alone.
async fn alone(
    signer: &Signer,
    people: &[&str],
    (claim, value): (&str, Value),
) -> Result<(), IdentityError> {
    let mut trusted = issuer(KeySource::Inline(key_set(&[signer])));
    trusted.clients.insert("portal".to_owned(), PrincipalId::new("bot").unwrap());
    trusted.person_clients = people.iter().map(|client| (*client).to_owned()).collect();
    let verifier = verifier_of(vec![trusted]);
    let user = token(&verifier, signer, TokenRole::Actor, &claims_with(claim, value)).await;
    VerifiedCaller::bind(user, None).map(drop)
}

#[tokio::test]
async fn a_users_token_that_an_agent_may_hold_is_not_the_user() {
    let signer = Signer::es256("k1");
    let held = IdentityError::HeldByAgent { issuer: ISSUER.to_owned() };
    for (people, claim, value, accepted) in [
        (&[][..], "jti", json!("x"), true),
        (&[], "azp", json!("cli"), true),
        (&[], "azp", json!("portal"), false),
        (&[], "client_id", json!("portal"), false),
        (&[], "may_act", json!({ "sub": "bot" }), false),
        (&["cli"], "azp", json!("cli"), true),
        (&["cli"], "azp", json!("other"), false),
        (&["cli"], "jti", json!("x"), false),
        (&["cli"], "azp", json!("portal"), false),
    ] {
        let expected = if accepted { Ok(()) } else { Err(held.clone()) };
        let shown = (claim, value.clone());
        assert_eq!(alone(&signer, people, shown).await, expected, "{people:?} {claim} = {value}");
    }
    let refusal = held.refusal();
    assert_eq!(refusal.code, ErrorCode::PolicyDenied);
    assert!(refusal.message.contains("sign in at the console"), "{}", refusal.message);
}

#[tokio::test]
async fn an_agents_own_token_may_be_of_whichever_client() {
    let signer = Signer::es256("k1");
    let mut trusted = issuer(KeySource::Inline(key_set(&[&signer])));
    trusted.clients.insert("bot-client".to_owned(), PrincipalId::new("bot").unwrap());
    trusted.person_clients.insert("cli".to_owned());
    let verifier = verifier_of(vec![trusted]);
    let agent = token(&verifier, &signer, TokenRole::Actor, &agent_claims()).await;
    let user = claims_with("azp", json!("bot-client"));
    let user = token(&verifier, &signer, TokenRole::Delegation, &user).await;
    assert!(VerifiedCaller::bind(agent.clone(), None).is_ok());
    assert!(VerifiedCaller::bind(agent, Some(user)).is_ok(), "it stays a delegation");
}

#[tokio::test]
async fn a_users_token_of_a_client_that_an_agent_came_with_is_not_the_user() {
    let signer = Signer::es256("k1");
    let held: Result<(), _> = Err(IdentityError::HeldByAgent { issuer: ISSUER.to_owned() });
    for (people, own, client, expected) in [
        (&[][..], json!("helpdesk"), json!("helpdesk"), held.clone()),
        // As its own subject, by which the token would bind to it.
        (&[], json!(null), json!("svc-1"), held),
        (&[], json!("helpdesk"), json!("cli"), Ok(())),
        (&[], json!("helpdesk"), json!(null), Ok(())),
        // Somebody has said that people use it.
        (&["helpdesk"], json!("helpdesk"), json!("helpdesk"), Ok(())),
    ] {
        let mut trusted = issuer(KeySource::Inline(key_set(&[&signer])));
        trusted.person_clients = people.iter().map(|client| (*client).to_owned()).collect();
        let verifier = verifier_of(vec![trusted]);
        let mut service = claims_with("client_id", own);
        (service["sub"], service["placet_kind"]) = (json!("svc-1"), json!("service"));
        let user = claims_with("client_id", client.clone());
        let alone = token(&verifier, &signer, TokenRole::Actor, &user).await;
        assert!(VerifiedCaller::bind(alone, None).is_ok(), "nobody has come with it so far");
        // Clones share what they saw.
        let own = token(&verifier.clone(), &signer, TokenRole::Actor, &service).await;
        let alone = token(&verifier, &signer, TokenRole::Actor, &user).await;
        let shown = VerifiedCaller::bind(alone, None).map(drop);
        assert_eq!(shown, expected, "{people:?} {client}");
        if people.is_empty() && expected.is_err() {
            let user = token(&verifier, &signer, TokenRole::Delegation, &user).await;
            assert!(VerifiedCaller::bind(own, Some(user)).is_ok(), "it stays a delegation");
        }
    }
}

#[test]
fn a_client_is_a_persons_or_an_agents() {
    let signer = Signer::es256("k1");
    let mut trusted = issuer(KeySource::Inline(key_set(&[&signer])));
    trusted.clients.insert("portal".to_owned(), PrincipalId::new("bot").unwrap());
    trusted.person_clients.insert("portal".to_owned());
    let identity = config(vec![trusted]);
    assert!(identity.check().is_err());
}
