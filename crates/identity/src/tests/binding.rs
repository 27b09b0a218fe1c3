//! Which caller may use which delegation.

use serde_json::{Value, json};

use super::support::{
    ISSUER, Signer, US, claims, claims_with, config, issuer, key_set, verifier, verifier_of,
};
use crate::{
    ActingRule, IdentityError, IssuerConfig, KeySource, KindRule, TokenRole, VerifiedCaller,
    VerifiedToken, Verifier,
};
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
async fn whom_a_token_is_for_is_told_of_each_that_is_for_several_and_of_no_other() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let with = |mut claims: Value, id: &str, audiences: Value| {
        claims["jti"] = json!(id);
        claims["aud"] = audiences;
        claims["client_id"] = json!("bot-client");
        claims
    };
    let told = async |actor: Value, user: Option<Value>| {
        let actor = token(&verifier, &signer, TokenRole::Actor, &actor).await;
        let user = match &user {
            Some(user) => Some(token(&verifier, &signer, TokenRole::Delegation, user).await),
            None => None,
        };
        let refs = (actor.token_ref(), user.as_ref().map(VerifiedToken::token_ref));
        (VerifiedCaller::bind(actor, user).unwrap().several_audiences(), refs)
    };
    let (ours, twice) = (json!(US), json!([US, US]));
    let several = json!(["urn:mail", US, "urn:crm"]);
    let named: std::collections::BTreeSet<_> =
        ["urn:mail", US, "urn:crm"].map(str::to_owned).into();
    let (none, _) =
        told(with(agent_claims(), "a", ours.clone()), Some(with(claims(), "b", twice.clone())))
            .await;
    assert!(none.is_empty(), "{none:?}");
    let (one, (_, user)) =
        told(with(agent_claims(), "a", ours), Some(with(claims(), "b", several.clone()))).await;
    assert_eq!(one, [(user.unwrap(), named.clone())].into());
    let (both, (actor, user)) = told(
        with(agent_claims(), "a", several.clone()),
        Some(with(claims(), "b", several.clone())),
    )
    .await;
    assert_eq!(both, [(actor, named.clone()), (user.unwrap(), named.clone())].into());
    let (alone, (actor, _)) = told(with(agent_claims(), "a", several), None).await;
    assert_eq!(alone, [(actor, named)].into());
}

#[tokio::test]
async fn a_person_calls_in_their_own_name_but_not_in_anothers() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let own = claims_with("client_id", json!("cli"));
    let person = token(&verifier, &signer, TokenRole::Actor, &own).await;
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
    assert_eq!(refused, IdentityError::BindingRefused("they belong to different tenants"));
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
    anybody: bool,
    claim: &str,
    value: Value,
) -> Result<(), IdentityError> {
    let mut trusted = issuer(KeySource::Inline(key_set(&[signer])));
    trusted.clients.insert("portal".to_owned(), PrincipalId::new("bot").unwrap());
    trusted.person_clients = people.iter().map(|client| (*client).to_owned()).collect();
    trusted.delegations_for_anybody = anybody;
    let verifier = verifier_of(vec![trusted]);
    let user = token(&verifier, signer, TokenRole::Actor, &claims_with(claim, value)).await;
    VerifiedCaller::bind(user, None).map(drop)
}

#[tokio::test]
async fn a_users_token_that_an_agent_may_hold_is_not_the_user() {
    let signer = Signer::es256("k1");
    let held = IdentityError::HeldByAgent(ISSUER.to_owned());
    // Whether or not every agent may use them.
    for anybody in [false, true] {
        for (people, claim, value, accepted) in [
            // No client is configured as a person's, so none is.
            (&[][..], "jti", json!("x"), false),
            (&[], "azp", json!("cli"), false),
            (&[], "azp", json!("portal"), false),
            (&[], "client_id", json!("portal"), false),
            (&[], "may_act", json!({ "sub": "bot" }), false),
            (&["cli"], "azp", json!("cli"), true),
            (&["cli"], "azp", json!("other"), false),
            (&["cli"], "jti", json!("x"), false),
            (&["cli"], "azp", json!("portal"), false),
        ] {
            let expected = if accepted { Ok(()) } else { Err(held.clone()) };
            let found = alone(&signer, people, anybody, claim, value.clone()).await;
            assert_eq!(found, expected, "{people:?} {anybody} {claim} = {value}");
        }
    }
    let refusal = held.refusal();
    assert_eq!(refusal.code, ErrorCode::PolicyDenied);
    assert!(refusal.message.contains("sign in at the console"), "{}", refusal.message);
    assert!(refusal.message.contains("`person_clients`"), "{}", refusal.message);
}

#[tokio::test]
async fn an_agents_own_token_may_be_of_whichever_client() {
    let signer = Signer::es256("k1");
    let mut trusted = issuer(KeySource::Inline(key_set(&[&signer])));
    trusted.clients.insert("bot-client".to_owned(), PrincipalId::new("bot").unwrap());
    let verifier = verifier_of(vec![trusted]);
    let agent = token(&verifier, &signer, TokenRole::Actor, &agent_claims()).await;
    let user = claims_with("azp", json!("bot-client"));
    let user = token(&verifier, &signer, TokenRole::Delegation, &user).await;
    assert!(VerifiedCaller::bind(agent.clone(), None).is_ok());
    assert!(VerifiedCaller::bind(agent, Some(user)).is_ok(), "it stays a delegation");
}

#[tokio::test]
async fn no_agent_comes_from_a_persons_client() {
    let signer = Signer::es256("k1");
    for (client, subject, accepted) in
        [("helpdesk", "svc-1", true), ("cli", "svc-1", false), ("helpdesk", "cli", false)]
    {
        for kind in ["agent", "service", "automation"] {
            let mut trusted = issuer(KeySource::Inline(key_set(&[&signer])));
            let kinds = [PrincipalKind::Agent, PrincipalKind::Service, PrincipalKind::Automation];
            trusted.kinds = KindRule::Claim(kinds.into());
            let verifier = verifier_of(vec![trusted]);
            let mut agent = claims_with("client_id", json!(client));
            (agent["sub"], agent["placet_kind"]) = (json!(subject), json!(kind));
            let shown = verifier.verify(&signer.sign(&agent), TokenRole::Actor).await;
            assert_eq!(shown.is_ok(), accepted, "{client} {subject} {kind}: {shown:?}");
        }
    }
}

#[test]
fn a_client_is_a_persons_or_an_agents() {
    let signer = Signer::es256("k1");
    let mut trusted = issuer(KeySource::Inline(key_set(&[&signer])));
    trusted.person_clients.insert("portal".to_owned());
    let with = |change: fn(&mut IssuerConfig)| {
        let mut trusted = trusted.clone();
        change(&mut trusted);
        config(vec![trusted])
    };
    assert!(with(|_| ()).check().is_ok());
    let stands_for = |trusted: &mut IssuerConfig| {
        trusted.clients.insert("portal".to_owned(), PrincipalId::new("bot").unwrap());
    };
    assert!(with(stands_for).check().is_err());
    let acts = |trusted: &mut IssuerConfig| {
        let principals = [("portal".to_owned(), PrincipalId::new("bot").unwrap())].into();
        trusted.act = Some(ActingRule { principals, ..ActingRule::default() });
    };
    assert!(with(acts).check().is_err());
    // The agents of the directory have names too.
    let ours = |agent: &'static str| {
        move |tenant: &TenantId, name: &str| (tenant.as_str(), name) == ("acme", agent)
    };
    assert!(with(|_| ()).check_persons_clients(ours("other")).is_ok());
    let refused = with(|_| ()).check_persons_clients(ours("portal")).unwrap_err().to_string();
    assert!(refused.contains("`portal` is in `person_clients`"), "{refused}");
}
