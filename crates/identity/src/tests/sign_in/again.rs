//! Sign-ins that return to another process, and their proofs, loaded by another.

use super::*;
use crate::SignInProof;

#[tokio::test]
async fn a_sign_in_comes_back_to_any_process_in_the_same_browser_and_in_time_alone() {
    let world = World::new(|_, _| {}).await;
    let url = world.begin(false).await.unwrap();
    world.give(&world.id_token(&world.claims(&url)));
    let elsewhere = world.provider.finish(&"x".repeat(43), world.back(&url)).await;
    assert!(matches!(elsewhere, Err(SignInError::Refused(_))), "{elsewhere:?}");
    for (later_s, taken) in [(-3_600, false), (0, true), (590, true), (601, false)] {
        let other = world.process_at(NOW_S + later_s);
        let claims = json!({ "iat": NOW_S + later_s, "exp": NOW_S + later_s + 300 });
        let mut told = world.claims(&url);
        told.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        world.give(&world.id_token(&told));
        let back = other.finish(BROWSER, world.back(&url)).await;
        assert_eq!(back.is_ok(), taken, "{later_s}: {back:?}");
    }
}

#[tokio::test]
async fn what_was_signed_in_with_is_verified_again_as_of_then_by_any_process() {
    let world = World::new(|_, _| {}).await;
    let url = world.begin(false).await.unwrap();
    world.give(&world.id_token(&world.claims(&url)));
    let SignedIn { token, proof, .. } = world.finish(world.back(&url)).await.unwrap();
    let sealed = proof.seal("secret").unwrap();
    assert!(SignInProof::unseal("another", &sealed).is_none());
    let kept = SignInProof::unseal("secret", &sealed).unwrap();
    // Hours later, when the token itself is long over.
    let later = world.process_at(NOW_S + 20_000);
    assert_eq!(later.again(&kept).await.unwrap(), token);
    assert!(kept.is_of_provider() && kept.at().as_ms() == NOW_S * 1_000);
    let in_development = SignInProof::of_development("a.b.c".to_owned(), kept.at());
    assert!(later.again(&in_development).await.is_err());
    // A token that the provider never signed, in a record that somebody else wrote.
    let other = Signer::es256("k");
    let header = json!({ "alg": "ES256", "kid": "k", "typ": "JWT" }).to_string();
    let forged = other.sign_text(&header, &world.claims(&url).to_string());
    let written = json!({ "token": forged, "nonce": query(&url)["nonce"], "at": kept.at() });
    let forged: SignInProof = serde_json::from_value(written).unwrap();
    assert!(matches!(later.again(&forged).await, Err(SignInError::Identity(_))));
}
