//! Tokens that are presented again: nothing remembered about them outlives its basis.

use std::sync::Arc;

use placet_testkit::clock::TestClock;
use serde_json::json;

use super::support::{
    NOW_S, Signer, claims, claims_with, clock_at, config, issuer, key_set, verify,
};
use crate::{IdentityError, IssuerConfig, KeySource, Presented, TokenRole, Verifier};

fn issuer_of(signer: &Signer) -> IssuerConfig {
    issuer(KeySource::Inline(key_set(&[signer])))
}

fn at(clock: &Arc<TestClock>, issuer: IssuerConfig) -> Verifier {
    let shared: Arc<dyn placet_types::clock::Clock> = Arc::<TestClock>::clone(clock);
    Verifier::new(config(vec![issuer]), shared, None).unwrap()
}

#[tokio::test]
async fn a_remembered_token_counts_within_its_time_alone() {
    let (signer, clock) = (Signer::es256("k1"), clock_at(NOW_S));
    let verifier = at(&clock, issuer_of(&signer));
    let token = signer.sign(&claims());
    let first = verify(&verifier, &token).await.unwrap();
    let again = verify(&verifier, &token).await.unwrap();
    assert_eq!((first.principal(), first.token_ref()), (again.principal(), again.token_ref()));
    clock.set((NOW_S + 10_000) * 1_000);
    assert!(matches!(verify(&verifier, &token).await, Err(IdentityError::Expired(_))));
    clock.set((NOW_S - 10_000) * 1_000);
    assert!(matches!(verify(&verifier, &token).await, Err(IdentityError::NotYetValid { .. })));
}

#[tokio::test]
async fn a_remembered_token_is_refused_when_the_sign_in_is_too_old() {
    let (signer, clock) = (Signer::es256("k1"), clock_at(NOW_S));
    let mut issuer = issuer_of(&signer);
    issuer.auth_age_s_max = Some(100);
    let verifier = at(&clock, issuer);
    let token = signer.sign(&claims_with("auth_time", json!(NOW_S - 10)));
    verify(&verifier, &token).await.unwrap();
    clock.set((NOW_S + 250) * 1_000);
    let refused = verify(&verifier, &token).await;
    assert!(matches!(refused, Err(IdentityError::AuthenticationTooOld(_))), "{refused:?}");
}

#[tokio::test]
async fn a_remembered_token_is_verified_again_under_other_keys() {
    let (signer, clock) = (Signer::es256("k1"), clock_at(NOW_S));
    let verifier = at(&clock, issuer_of(&signer));
    let token = signer.sign(&claims_with("placet_kind", json!("agent")));
    let shown = Presented { token: Some(&token), ..Presented::default() };
    for _ in 0..2 {
        verify(&verifier, &token).await.unwrap();
        verifier.caller(shown).await.unwrap();
    }
    let other = issuer_of(&Signer::es256("k1"));
    verifier.replace(verifier.prepare(&config(vec![other]), None).unwrap());
    let refused = verify(&verifier, &token).await;
    assert!(matches!(refused, Err(IdentityError::SignatureInvalid(_))), "{refused:?}");
    let refused = verifier.caller(shown).await;
    assert!(matches!(refused, Err(IdentityError::SignatureInvalid(_))), "{refused:?}");
}

#[tokio::test]
async fn what_is_remembered_in_one_place_counts_in_no_other() {
    let (signer, clock) = (Signer::es256("k1"), clock_at(NOW_S));
    let verifier = at(&clock, issuer_of(&signer));
    let token = signer.sign(&claims_with("act", json!({ "sub": "bot" })));
    verifier.verify(&token, TokenRole::Delegation).await.unwrap();
    assert!(verify(&verifier, &token).await.is_err(), "a delegation is not the agent's own token");
}
