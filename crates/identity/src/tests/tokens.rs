//! Trap T2, row by row: what the library alone would accept, and what else a token could try.

use jsonwebtoken::{Algorithm as LibraryAlgorithm, EncodingKey};
use placet_types::{clock::Timestamp, error::ErrorCode, principal::PrincipalKind};
use serde_json::{Value, json};

use super::support::{
    ISSUER, NOW_S, Signer, US, claims, claims_with, every_algorithm, issuer, key_set, tenant,
    verifier, verifier_of, verify,
};
use crate::{IdentityError, KeySource, TokenRole};

/// Signs the claims properly and returns the refusal.
async fn refusal_of(claims: &Value) -> IdentityError {
    let signer = Signer::es256("k1");
    verify(&verifier(&[&signer]), &signer.sign(claims)).await.unwrap_err()
}

#[tokio::test]
async fn a_good_token_is_accepted_and_says_who_calls() {
    let signer = Signer::es256("k1");
    let mut claims = claims();
    claims["aud"] = json!([US, "https://other.example/"]);
    claims["auth_time"] = json!(NOW_S - 60);
    claims["client_id"] = json!("web");
    claims["name"] = json!("Ada\u{7} L.");
    let token = verify(&verifier(&[&signer]), &signer.sign(&claims)).await.unwrap();
    assert_eq!(token.kind(), PrincipalKind::User);
    assert_eq!((token.principal().id.as_str(), token.tenant()), ("ada", &tenant()));
    assert_eq!(token.principal().display.as_deref(), Some("Ada L."));
    assert_eq!((token.issuer(), token.subject()), (ISSUER, "ada"));
    assert_eq!(token.groups().iter().map(|g| g.as_str()).collect::<Vec<_>>(), ["on-call", "ops"]);
    assert_eq!(token.groups_as_of(), token.issued_at);
    assert_eq!(token.scopes().iter().collect::<Vec<_>>(), ["calls:read", "calls:write"]);
    assert_eq!(token.expires_at(), Timestamp::from_ms((NOW_S + 300) * 1_000));
    assert_eq!(token.authenticated_at(), Some(Timestamp::from_ms((NOW_S - 60) * 1_000)));
    assert_eq!((token.client(), token.audiences.len()), (Some("web"), 2));
    assert_eq!((token.token_ref().len(), token.role), (20, TokenRole::Actor));
}

#[tokio::test]
async fn every_algorithm_of_the_table_verifies_with_its_own_key() {
    let mut signers =
        vec![Signer::es256("es256"), Signer::es384("es384"), Signer::ed25519("ed", 7)];
    for (kid, algorithm) in [
        ("rs256", LibraryAlgorithm::RS256),
        ("rs384", LibraryAlgorithm::RS384),
        ("rs512", LibraryAlgorithm::RS512),
        ("ps256", LibraryAlgorithm::PS256),
        ("ps384", LibraryAlgorithm::PS384),
        ("ps512", LibraryAlgorithm::PS512),
    ] {
        signers.push(Signer::rsa(kid, algorithm));
    }
    let mut issuer = issuer(KeySource::Inline(key_set(&signers.iter().collect::<Vec<_>>())));
    issuer.algorithms = every_algorithm();
    let verifier = verifier_of(vec![issuer]);
    assert_eq!(signers.len(), every_algorithm().len());
    for signer in &signers {
        let verified = verify(&verifier, &signer.sign(&claims())).await;
        assert!(verified.is_ok(), "{}: {verified:?}", signer.kid);
    }
}

#[tokio::test]
async fn a_missing_required_claim_is_refused() {
    for claim in ["iss", "sub", "aud", "exp", "iat", "placet_kind"] {
        let refused = refusal_of(&claims_with(claim, Value::Null)).await;
        assert_eq!(refused, IdentityError::ClaimMissing(claim.to_owned()));
        assert_eq!(refused.code(), ErrorCode::Unauthenticated);
    }
}

#[tokio::test]
async fn a_claim_of_another_type_is_refused() {
    for (claim, value) in [
        ("iss", json!(7)),
        ("iss", json!(["https://evil.example/", ISSUER])),
        ("iss", json!([ISSUER])),
        ("sub", json!(7)),
        ("sub", json!("")),
        ("sub", json!({ "a": 1 })),
        ("aud", json!(7)),
        ("aud", json!([US, 7])),
        ("aud", json!({ US: true })),
        ("exp", json!("1790000300")),
        ("exp", json!(-1)),
        ("exp", json!(1_790_000_300.5)),
        ("exp", json!(9_007_199_254_740_991_i64)),
        ("iat", json!("now")),
        ("nbf", json!("soon")),
        ("groups", json!("ops")),
        ("groups", json!([1])),
        ("scope", json!({ "a": 1 })),
        ("scope", json!("a\u{e9}")),
        ("jti", json!(1)),
        ("client_id", json!(["a"])),
        ("placet_kind", json!("root")),
        ("placet_kind", json!("automation")),
        ("auth_time", json!("yesterday")),
    ] {
        let refused = refusal_of(&claims_with(claim, value.clone())).await;
        assert!(
            matches!(&refused, IdentityError::ClaimRefused { claim: named, .. } if named == claim)
                || matches!(&refused, IdentityError::LifetimeTooLong { .. } if value.is_i64()),
            "{claim} = {value}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn an_issuer_that_is_not_exactly_ours_is_refused() {
    for named in ["https://idp.example", "https://IDP.example/", "https://evil.example/", ""] {
        let refused = refusal_of(&claims_with("iss", json!(named))).await;
        assert!(matches!(refused, IdentityError::UnknownIssuer(_)), "{named}");
    }
}

#[tokio::test]
async fn a_token_for_another_audience_is_refused_as_an_id_token_is() {
    for audience in [
        json!("web-client"),
        json!("https://placet.example"),
        json!([]),
        json!(["https://placet.example/x"]),
    ] {
        let refused = refusal_of(&claims_with("aud", audience)).await;
        assert!(matches!(refused, IdentityError::AudienceRefused(_)));
    }
}

#[tokio::test]
async fn so_many_audiences_as_nobody_means_are_refused_with_the_reason_and_no_more_go_on_record() {
    let many = |number: usize| {
        let others = (1..number).map(|at| format!("urn:{at}"));
        json!(others.chain([US.to_owned()]).collect::<Vec<_>>())
    };
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let long = |bytes: usize| json!([US, "x".repeat(bytes)]);
    for taken in [many(32), long(512), json!([US, "urn:b\u{fc}ro, Haus 3"])] {
        let token = signer.sign(&claims_with("aud", taken.clone()));
        verify(&verifier, &token).await.unwrap_or_else(|error| panic!("{taken}: {error}"));
    }
    for (audiences, reason) in [
        (many(33), "more than 32"),
        (json!(vec![US; 33]), "more than 32"),
        (long(513), "1 to 512 bytes"),
        (json!([US, ""]), "1 to 512 bytes"),
        (json!([US, "urn:\nroot approved"]), "control characters"),
        (json!([US, "urn:\u{85}x"]), "control characters"),
    ] {
        let refused = refusal_of(&claims_with("aud", audiences.clone())).await;
        assert_eq!(refused.code(), ErrorCode::Unauthenticated);
        let said = refused.to_string();
        assert!(said.contains("`aud`") && said.contains(reason), "{audiences}: {said}");
    }
}

#[tokio::test]
async fn the_edges_of_the_leeway_are_exact() {
    for (claim, value, accepted) in [
        ("exp", NOW_S - 4, true),
        ("exp", NOW_S - 5, false),
        ("exp", NOW_S - 6, false),
        ("nbf", NOW_S + 5, true),
        ("nbf", NOW_S + 6, false),
        ("nbf", NOW_S + 86_400, false),
        ("iat", NOW_S + 5, true),
        ("iat", NOW_S + 6, false),
        ("iat", NOW_S + 250, false),
        ("iat", NOW_S + 300 - 3_600, true),
        ("iat", NOW_S + 300 - 3_601, false),
    ] {
        let signer = Signer::es256("k1");
        let verified =
            verify(&verifier(&[&signer]), &signer.sign(&claims_with(claim, json!(value)))).await;
        assert_eq!(verified.is_ok(), accepted, "{claim} at {}: {verified:?}", value - NOW_S);
    }
}

#[tokio::test]
async fn an_expired_token_is_told_apart_so_that_the_caller_gets_a_new_one() {
    let refused = refusal_of(&claims_with("exp", json!(NOW_S - 6))).await;
    assert_eq!(refused, IdentityError::Expired(ISSUER.to_owned()));
    assert_eq!(refused.code(), ErrorCode::CredentialExpired);
    assert_eq!(refused.refusal().code, ErrorCode::CredentialExpired);
}

#[tokio::test]
async fn an_expired_token_with_a_bad_signature_is_not_told_apart() {
    let (signer, stranger) = (Signer::es256("k1"), Signer::es256("k1"));
    let forged = stranger.sign(&claims_with("exp", json!(NOW_S - 600)));
    let refused = verify(&verifier(&[&signer]), &forged).await.unwrap_err();
    assert_eq!(refused, IdentityError::SignatureInvalid(ISSUER.to_owned()));
}

#[tokio::test]
async fn a_token_that_lives_too_long_is_refused() {
    let refused = refusal_of(&claims_with("exp", json!(NOW_S + 3_600))).await;
    assert_eq!(
        refused,
        IdentityError::LifetimeTooLong { issuer: ISSUER.to_owned(), lifetime_s_max: 3_600 }
    );
    let refused = refusal_of(&claims_with("exp", json!(NOW_S - 10))).await;
    assert!(matches!(refused, IdentityError::Expired(_)));
    let mut backwards = claims_with("exp", json!(NOW_S + 1));
    backwards["iat"] = json!(NOW_S + 2);
    assert!(matches!(refusal_of(&backwards).await, IdentityError::ClaimRefused { .. }));
}

#[tokio::test]
async fn only_an_access_token_by_its_type_is_accepted() {
    let signer = Signer::es256("k1");
    let mut lenient = issuer(KeySource::Inline(key_set(&[&signer])));
    lenient.accept_typ_jwt = true;
    let (strict, lenient) = (verifier(&[&signer]), verifier_of(vec![lenient]));
    for (typ, by_strict, by_lenient) in [
        (json!("at+jwt"), true, true),
        (json!("application/at+jwt"), true, true),
        (json!("AT+JWT"), true, true),
        (json!("JWT"), false, true),
        (json!("jwt"), false, true),
        (json!("id+jwt"), false, false),
        (json!("dpop+jwt"), false, false),
        (json!("oauth-id-jag+jwt"), false, false),
        (json!(["at+jwt"]), false, false),
        (Value::Null, false, false),
    ] {
        let mut header = signer.header();
        header["typ"] = typ.clone();
        let token = signer.sign_text(&header.to_string(), &claims().to_string());
        assert_eq!(verify(&strict, &token).await.is_ok(), by_strict, "strict, {typ}");
        assert_eq!(verify(&lenient, &token).await.is_ok(), by_lenient, "lenient, {typ}");
    }
    let mut header = signer.header();
    header.as_object_mut().unwrap().remove("typ");
    let untyped = signer.sign_text(&header.to_string(), &claims().to_string());
    assert!(matches!(
        verify(&lenient, &untyped).await.unwrap_err(),
        IdentityError::TypeRefused { .. }
    ));
    header["typ"] = json!("JWT");
    let id_token =
        signer.sign_text(&header.to_string(), &claims_with("at_hash", json!("x")).to_string());
    assert!(matches!(
        verify(&lenient, &id_token).await.unwrap_err(),
        IdentityError::TypeRefused { .. }
    ));
}

#[tokio::test]
async fn a_token_without_a_signature_is_refused() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let good = signer.sign(&claims());
    let (signed, signature) = good.rsplit_once('.').unwrap();
    for alg in ["none", "None", "NONE", "", "HS256", "ES512", "EdDSA"] {
        let mut header = signer.header();
        header["alg"] = alg.into();
        let token = signer.sign_text(&header.to_string(), &claims().to_string());
        let unsigned = format!("{}.", token.rsplit_once('.').unwrap().0);
        for token in [token, unsigned] {
            let refused = verify(&verifier, &token).await.unwrap_err();
            assert_eq!(refused, IdentityError::AlgorithmRefused(ISSUER.to_owned()), "{alg}");
        }
    }
    for cut in ["", "AA", signature.split_at(40).0] {
        let refused = verify(&verifier, &format!("{signed}.{cut}")).await.unwrap_err();
        assert_eq!(refused, IdentityError::SignatureInvalid(ISSUER.to_owned()));
    }
}

#[tokio::test]
async fn the_public_key_is_no_shared_secret() {
    let rsa = Signer::rsa("k1", LibraryAlgorithm::RS256);
    let mut issuer = issuer(KeySource::Inline(key_set(&[&rsa])));
    issuer.algorithms = every_algorithm();
    let verifier = verifier_of(vec![issuer]);
    let modulus = rsa.jwk()["n"].as_str().unwrap().to_owned();
    for secret in [modulus.as_bytes().to_vec(), key_set(&[&rsa]).to_string().into_bytes()] {
        let key = EncodingKey::from_secret(&secret);
        let confused = Signer { key, algorithm: LibraryAlgorithm::HS256, kid: "k1".to_owned() };
        let token = confused.sign(&claims());
        assert!(matches!(
            verify(&verifier, &token).await.unwrap_err(),
            IdentityError::AlgorithmRefused(_)
        ));
        // The same bytes under a header that claims RSA.
        let lying = confused.sign_text(&rsa.header().to_string(), &claims().to_string());
        assert!(matches!(
            verify(&verifier, &lying).await.unwrap_err(),
            IdentityError::SignatureInvalid(_)
        ));
    }
}

#[tokio::test]
async fn an_algorithm_outside_the_issuers_list_is_refused_although_the_key_would_fit() {
    let signer = Signer::rsa("k1", LibraryAlgorithm::PS256);
    let refused = verify(&verifier(&[&signer]), &signer.sign(&claims())).await.unwrap_err();
    assert_eq!(refused, IdentityError::AlgorithmRefused(ISSUER.to_owned()));
}

#[tokio::test]
async fn a_key_is_not_used_with_another_algorithm_than_it_was_published_for() {
    let published = Signer::rsa("k1", LibraryAlgorithm::RS512);
    let used = Signer::rsa("k1", LibraryAlgorithm::RS256);
    let mut issuer = issuer(KeySource::Inline(key_set(&[&published])));
    issuer.algorithms = every_algorithm();
    let verifier = verifier_of(vec![issuer]);
    assert!(verify(&verifier, &published.sign(&claims())).await.is_ok());
    let refused = verify(&verifier, &used.sign(&claims())).await.unwrap_err();
    assert_eq!(refused, IdentityError::AlgorithmRefused(ISSUER.to_owned()));
}

#[tokio::test]
async fn one_issuers_key_does_not_sign_for_another() {
    let (ours, theirs) = (Signer::es256("same"), Signer::es256("same"));
    let mut other = issuer(KeySource::Inline(key_set(&[&theirs])));
    other.issuer = "https://other.example/".to_owned();
    other.tenant = placet_types::ids::TenantId::new("other").unwrap();
    let verifier = verifier_of(vec![issuer(KeySource::Inline(key_set(&[&ours]))), other]);
    let refused = verify(&verifier, &theirs.sign(&claims())).await.unwrap_err();
    assert_eq!(refused, IdentityError::SignatureInvalid(ISSUER.to_owned()));
    let own = verify(&verifier, &theirs.sign(&claims_with("iss", json!("https://other.example/"))))
        .await
        .unwrap();
    assert_eq!(own.tenant().as_str(), "other");
}

#[tokio::test]
async fn a_key_that_is_not_named_or_not_known_is_refused() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    for kid in [json!("k2"), json!("../k1"), json!("")] {
        let mut header = signer.header();
        header["kid"] = kid.clone();
        let token = signer.sign_text(&header.to_string(), &claims().to_string());
        let refused = verify(&verifier, &token).await.unwrap_err();
        let expected =
            matches!(refused, IdentityError::UnknownKey { .. } | IdentityError::Malformed { .. });
        assert!(expected, "{kid}: {refused:?}");
    }
    let mut header = signer.header();
    header.as_object_mut().unwrap().remove("kid");
    let token = signer.sign_text(&header.to_string(), &claims().to_string());
    assert!(matches!(
        verify(&verifier, &token).await.unwrap_err(),
        IdentityError::Malformed { .. }
    ));
}

#[tokio::test]
async fn a_header_that_brings_its_own_key_or_rules_is_refused() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    for (member, value) in [
        ("jku", json!("https://evil.example/jwks")),
        ("x5u", json!("https://evil.example/cert")),
        ("jwk", signer.jwk()),
        ("x5c", json!([])),
        ("crit", json!(["exp"])),
        ("b64", json!(false)),
        ("zip", json!("DEF")),
    ] {
        let mut header = signer.header();
        header[member] = value;
        let token = signer.sign_text(&header.to_string(), &claims().to_string());
        assert_eq!(
            verify(&verifier, &token).await.unwrap_err(),
            IdentityError::HeaderRefused(member)
        );
    }
}

#[tokio::test]
async fn a_duplicate_member_is_refused_in_header_and_claims() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let (header, claims) = (signer.header().to_string(), claims().to_string());
    let twice =
        |text: &str, member: &str| format!("{{{member},{}", text.strip_prefix('{').unwrap());
    let double_header = signer.sign_text(&twice(&header, r#""alg":"none""#), &claims);
    let double_claims = signer.sign_text(&header, &twice(&claims, r#""sub":"mallory""#));
    for token in [double_header, double_claims] {
        assert!(matches!(
            verify(&verifier, &token).await.unwrap_err(),
            IdentityError::Malformed { .. }
        ));
    }
}

#[tokio::test]
async fn a_token_changed_anywhere_is_refused() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let good = signer.sign(&claims());
    assert!(verify(&verifier, &good).await.is_ok());
    for at in (0..good.len()).step_by(7) {
        let mut changed = good.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(verify(&verifier, &changed).await.is_err(), "at {at}");
    }
}

#[tokio::test]
async fn what_is_no_token_is_refused() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let good = signer.sign(&claims());
    let padded = format!("{good}=");
    let long = format!("{good}{}", "A".repeat(16 * 1024));
    for text in [
        "",
        ".",
        "..",
        "...",
        "a.b",
        "a.b.c",
        "Bearer x",
        " ",
        "\u{0}",
        &format!(" {good}"),
        &format!("{good}.x"),
        &padded,
    ] {
        assert!(verify(&verifier, text).await.is_err(), "{text:?}");
    }
    assert_eq!(verify(&verifier, &long).await.unwrap_err(), IdentityError::TooLong(16 * 1024));
    for claims in ["[]", "null", "7", "\"x\"", "{", "{}x", "\u{feff}{}"] {
        let token = signer.sign_text(&signer.header().to_string(), claims);
        assert!(
            matches!(verify(&verifier, &token).await.unwrap_err(), IdentityError::Malformed { .. }),
            "{claims}"
        );
    }
}
