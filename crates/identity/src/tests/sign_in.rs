//! Sign-in with a small provider of our own on loopback: the round trip, and everything that must not pass.

mod again;
mod judged;
mod rotated;

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use placet_egress::{EgressClient, EgressPolicy, Limits};
use placet_types::{clock::Clock, digest::Digest};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use url::{Url, form_urlencoded};

use super::support::{NOW_S, Signer, clock_at, key_set, tenant};
use crate::{
    Beginning, Callback, IdentityConfig, IssuerConfig, KeySource, KindRule, Provider, SecretSource,
    Secrets, SignInConfig, SignInError, SignedIn, VerifiedToken, Verifier,
};
use placet_types::principal::PrincipalKind;

const BACK: &str = "http://127.0.0.1:7411/sign-in/callback";
const CLIENT: &str = "console";
/// The secret that the browser holds.
const BROWSER: &str = "ZdLMh1Ld0cTnmvSdUq2bKkTq4TgyAqK2v7y0dY9pXrs";

/// The small provider's answers, and the requests it got.
#[derive(Debug, Default)]
struct Says {
    metadata: Value,
    token: (u16, String),
    /// A client secret that gets this response instead.
    turns_away: Option<(String, (u16, String))>,
    asked: Vec<(String, String)>,
}

struct World {
    /// What another process of the same service is made of.
    parts: (SignInConfig, IdentityConfig),
    says: Arc<Mutex<Says>>,
    issuer: String,
    signer: Signer,
    verifier: Verifier,
    provider: Provider,
}

impl World {
    async fn new(change: impl FnOnce(&mut SignInConfig, &mut IssuerConfig)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let says = Arc::new(Mutex::new(Says { metadata: metadata(&issuer), ..Says::default() }));
        drop(tokio::spawn(serve(listener, Arc::clone(&says))));
        let signer = Signer::es256("k");
        let keys = KeySource::Inline(key_set(&[&signer]));
        let mut trusted = IssuerConfig::new(
            issuer.as_str(),
            tenant(),
            ["urn:api".to_owned()].into(),
            keys,
            KindRule::Fixed(PrincipalKind::User),
        );
        trusted.groups_claim = Some("groups".to_owned());
        let mut config: SignInConfig = serde_json::from_value(json!({
            "issuer": issuer, "client_id": CLIENT, "scopes": ["groups", "openid"], "private_network": true,
        }))
        .unwrap();
        change(&mut config, &mut trusted);
        let identity = IdentityConfig { issuers: vec![trusted], ..IdentityConfig::default() };
        config.check(&identity.issuers).unwrap();
        let clock: Arc<dyn Clock> = clock_at(NOW_S);
        let egress =
            EgressClient::new(EgressPolicy::new(config.destinations().unwrap()), Limits::default())
                .unwrap();
        let parts = (config.clone(), identity.clone());
        let verifier = Verifier::new(identity, Arc::clone(&clock), None).unwrap();
        let secret = SecretSource::Env(SecretString::from("s e/cret"));
        let secrets = Secrets::new([("console".to_owned(), secret)].into());
        let provider = Provider::new(config, verifier.clone(), secrets, egress, clock);
        Self { parts, says, issuer, signer, verifier, provider }
    }

    /// Another process of the same service, at another time.
    fn process_at(&self, now_s: i64) -> Provider {
        let (config, identity) = self.parts.clone();
        let clock: Arc<dyn Clock> = clock_at(now_s);
        let policy = EgressPolicy::new(config.destinations().unwrap());
        let egress = EgressClient::new(policy, Limits::default()).unwrap();
        let verifier = Verifier::new(identity, Arc::clone(&clock), None).unwrap();
        Provider::new(config, verifier, Secrets::new(BTreeMap::new()), egress, clock)
    }

    /// The claims of an ID token that belongs to the attempt of `url`.
    fn claims(&self, url: &Url) -> Value {
        json!({
            "iss": self.issuer, "sub": "ada", "aud": CLIENT, "iat": NOW_S - 1, "exp": NOW_S + 300, "auth_time": NOW_S - 1,
            "nonce": query(url)["nonce"], "groups": ["approvers"], "name": "Ada",
        })
    }

    fn id_token(&self, claims: &Value) -> String {
        let header = json!({ "alg": "ES256", "kid": "k", "typ": "JWT" });
        self.signer.sign_text(&header.to_string(), &claims.to_string())
    }

    fn give(&self, id_token: &str) {
        let answer =
            json!({ "access_token": "opaque", "token_type": "Bearer", "id_token": id_token });
        self.says.lock().token = (200, answer.to_string());
    }

    /// A whole round trip, with the ID token's claims changed on the way.
    async fn sign_in(
        &self,
        fresh: bool,
        change: impl FnOnce(&mut Value),
    ) -> Result<VerifiedToken, SignInError> {
        let url = self.begin(fresh).await?;
        let mut claims = self.claims(&url);
        change(&mut claims);
        self.give(&self.id_token(&claims));
        self.finish(self.back(&url)).await.map(|signed_in| signed_in.token)
    }

    async fn begin(&self, fresh: bool) -> Result<Url, SignInError> {
        let (redirect_uri, to) = (BACK.to_owned(), "/approvals/apr_1".to_owned());
        self.provider.begin(BROWSER, Beginning { redirect_uri, fresh, to }).await
    }

    async fn finish(&self, back: Callback) -> Result<SignedIn, SignInError> {
        self.provider.finish(BROWSER, back).await
    }

    fn back(&self, url: &Url) -> Callback {
        Callback {
            code: Some("the-code".to_owned()),
            state: Some(query(url)["state"].clone()),
            issuer: Some(self.issuer.clone()),
            error: None,
        }
    }

    fn asked(&self) -> Vec<(String, String)> {
        self.says.lock().asked.clone()
    }
}

fn metadata(issuer: &str) -> Value {
    json!({
        "issuer": issuer, "authorization_endpoint": format!("{issuer}/auth?tenant=x"), "token_endpoint": format!("{issuer}/token"),
        "end_session_endpoint": format!("{issuer}/end"), "code_challenge_methods_supported": ["plain", "S256"],
        "authorization_response_iss_parameter_supported": true,
    })
}

fn query(url: &Url) -> BTreeMap<String, String> {
    url.query_pairs().into_owned().collect()
}

async fn serve(listener: TcpListener, says: Arc<Mutex<Says>>) {
    while let Ok((stream, _)) = listener.accept().await {
        answer(stream, &says).await;
    }
}

/// One request, one answer, one connection.
async fn answer(mut stream: TcpStream, says: &Arc<Mutex<Says>>) {
    let mut bytes = Vec::new();
    loop {
        let mut part = [0_u8; 4_096];
        let read = stream.read(&mut part).await.unwrap();
        bytes.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            line.to_lowercase().strip_prefix("content-length:").map(|n| n.trim().parse().unwrap())
        });
        if body.len() >= length.unwrap_or(0_usize) || read == 0 {
            break;
        }
    }
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let (status, document) = {
        let mut says = says.lock();
        says.asked.push((head.to_owned(), body.to_owned()));
        let turned_away = says.turns_away.clone().filter(|(secret, _)| body.contains(secret));
        match turned_away {
            _ if head.starts_with("GET /.well-known/") => (200, says.metadata.to_string()),
            Some((_, answer)) => answer,
            None => says.token.clone(),
        }
    };
    let answer = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{document}",
        document.len()
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_person_signs_in_with_code_pkce_state_and_nonce() {
    let world = World::new(|_, _| {}).await;
    let url = world.begin(false).await.unwrap();
    let asked = query(&url);
    assert_eq!(url.path(), "/auth");
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", CLIENT),
        ("redirect_uri", BACK),
        ("scope", "openid groups"),
        ("code_challenge_method", "S256"),
        ("tenant", "x"),
    ] {
        assert_eq!(asked[name], value, "{name}");
    }
    assert!(
        !asked.contains_key("prompt") && asked["state"].len() < 600 && asked["nonce"].len() == 43
    );
    for hidden in ["nonce", "redirect_uri"] {
        let state = URL_SAFE_NO_PAD.decode(&asked["state"]).unwrap();
        assert!(!String::from_utf8_lossy(&state).contains(&asked[hidden]), "{hidden}");
    }

    world.give(&world.id_token(&world.claims(&url)));
    let SignedIn { token, to, .. } = world.finish(world.back(&url)).await.unwrap();
    assert_eq!(to, "/approvals/apr_1");
    assert_eq!(
        (token.principal().id.as_str(), token.kind(), token.tenant()),
        ("ada", PrincipalKind::User, &tenant())
    );
    assert!(token.groups().iter().any(|group| group.as_str() == "approvers"));
    assert_eq!(token.authenticated_at().unwrap().as_ms(), (NOW_S - 1) * 1_000);

    let (head, body) = world.asked().pop().unwrap();
    assert!(
        head.starts_with("POST /token ") && !head.to_lowercase().contains("authorization:"),
        "{head}"
    );
    let form: BTreeMap<String, String> =
        form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    assert_eq!(
        (form["grant_type"].as_str(), form["code"].as_str(), form["redirect_uri"].as_str()),
        ("authorization_code", "the-code", BACK)
    );
    assert_eq!(form["client_id"], CLIENT);
    let challenge = URL_SAFE_NO_PAD.encode(Digest::of(form["code_verifier"].as_bytes()).as_bytes());
    assert_eq!(challenge, asked["code_challenge"]);
}

#[tokio::test]
async fn each_attempt_has_a_state_nonce_and_verifier_of_its_own_and_shows_none() {
    let world = World::new(|_, _| {}).await;
    let (one, other) = (world.begin(false).await.unwrap(), world.begin(false).await.unwrap());
    for name in ["state", "nonce", "code_challenge"] {
        assert_ne!(query(&one)[name], query(&other)[name], "{name}");
    }
    let back = world.back(&one);
    let printed = format!("{:?} {back:?}", world.provider);
    let state = back.state.clone().unwrap();
    assert!(!printed.contains(&state) && !printed.contains("the-code"), "{printed}");
    world.give(&world.id_token(&world.claims(&one)));
    let signed_in = format!("{:?}", world.finish(back).await.unwrap().proof);
    assert!(!signed_in.contains("ey"), "{signed_in}");
}

#[tokio::test]
async fn a_client_secret_goes_in_the_header_form_encoded_or_in_the_body_where_only_that_is_taken() {
    let world = World::new(|config, _| config.client_secret = Some("console".to_owned())).await;
    world.sign_in(false, |_| {}).await.unwrap();
    let (head, body) = world.asked().pop().unwrap();
    let expected =
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode("console:s+e%2Fcret"));
    assert!(head.contains(&expected) && !body.contains("secret"), "{head}\n{body}");

    let world = World::new(|config, _| config.client_secret = Some("console".to_owned())).await;
    world.says.lock().metadata["token_endpoint_auth_methods_supported"] =
        json!(["client_secret_post"]);
    world.sign_in(false, |_| {}).await.unwrap();
    let (head, body) = world.asked().pop().unwrap();
    assert!(!head.contains("Basic") && body.contains("client_secret=s+e%2Fcret"), "{body}");
}

#[tokio::test]
async fn what_comes_back_with_another_state_issuer_or_without_a_code_is_refused_before_anything_is_sent()
 {
    let world = World::new(|_, _| {}).await;
    let changes: [fn(&mut Callback); 7] = [
        |back| back.state = None,
        |back| back.state = Some("x".repeat(43)),
        |back| back.issuer = Some("https://other.example".to_owned()),
        |back| back.issuer = None,
        |back| back.code = None,
        |back| back.code = Some(String::new()),
        |back| back.error = Some("access_denied".to_owned()),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let url = world.begin(false).await.unwrap();
        let mut back = world.back(&url);
        change(&mut back);
        let refused = world.finish(back).await;
        assert!(matches!(refused, Err(SignInError::Refused(_))), "{index}: {refused:?}");
    }
    assert!(world.asked().iter().all(|(head, _)| head.starts_with("GET ")), "no code was sent");
}

#[tokio::test]
async fn an_id_token_that_is_not_of_this_sign_in_is_refused() {
    let world = World::new(|_, _| {}).await;
    let changes: [(&str, Value); 12] = [
        ("nonce", json!("another")),
        ("nonce", Value::Null),
        ("aud", json!("urn:api")),
        ("aud", json!([CLIENT, "other"])),
        ("azp", json!("other")),
        ("iss", json!("https://other.example")),
        ("exp", json!(NOW_S - 60)),
        ("iat", json!(NOW_S + 600)),
        ("sub", Value::Null),
        ("act", json!({ "sub": "agent" })),
        ("exp", json!(NOW_S + 100_000)),
        ("groups", json!("approvers")),
    ];
    for (name, value) in changes {
        let refused = world
            .sign_in(false, |claims| {
                if value.is_null() {
                    claims.as_object_mut().unwrap().remove(name);
                } else {
                    claims[name] = value.clone();
                }
            })
            .await;
        assert!(matches!(refused, Err(SignInError::Identity(_))), "{name}: {value} {refused:?}");
    }
    let several = world.sign_in(false, |claims| {
        claims["aud"] = json!([CLIENT, "other"]);
        claims["azp"] = json!(CLIENT);
    });
    several.await.unwrap();
}

#[tokio::test]
async fn an_id_token_of_another_key_type_or_algorithm_is_refused() {
    let world = World::new(|_, _| {}).await;
    let url = world.begin(false).await.unwrap();
    let claims = world.claims(&url).to_string();
    let access = json!({ "alg": "ES256", "kid": "k", "typ": "at+jwt" }).to_string();
    let none = json!({ "alg": "none", "kid": "k" }).to_string();
    let other = Signer::es256("k");
    let header = json!({ "alg": "ES256", "kid": "k" }).to_string();
    for token in [
        world.signer.sign_text(&access, &claims),
        world.signer.sign_text(&none, &claims),
        other.sign_text(&header, &claims),
        "not.a.token".to_owned(),
        String::new(),
    ] {
        world.give(&token);
        let refused = world.finish(world.back(&url)).await;
        assert!(matches!(refused, Err(SignInError::Identity(_))), "{refused:?}");
    }
    world.give(&world.signer.sign_text(&header, &claims));
    world.finish(world.back(&url)).await.unwrap();
}

#[tokio::test]
async fn an_access_token_s_audience_is_none_of_an_id_token_s_and_the_other_way_round() {
    let world = World::new(|_, _| {}).await;
    let url = world.begin(false).await.unwrap();
    let id_token = world.id_token(&world.claims(&url));
    assert!(
        world.verifier.verify(&id_token, crate::TokenRole::Actor).await.is_err(),
        "an ID token calls nothing"
    );
}

#[tokio::test]
async fn a_fresh_sign_in_asks_for_it_and_believes_only_a_fresh_proof() {
    let world = World::new(|_, _| {}).await;
    let url = world.begin(true).await.unwrap();
    assert_eq!((query(&url)["prompt"].as_str(), query(&url)["max_age"].as_str()), ("login", "0"));
    for old in [json!(NOW_S - 6), Value::Null] {
        let refused = world.sign_in(true, |claims| claims["auth_time"] = old.clone()).await;
        assert!(refused.is_err(), "{old}");
    }
    let old = world.sign_in(true, |claims| claims["auth_time"] = json!(NOW_S - 600)).await;
    assert_eq!(old, Err(SignInError::NotFresh));
    world.sign_in(true, |claims| claims["auth_time"] = json!(NOW_S)).await.unwrap();
}

#[tokio::test]
async fn a_provider_that_says_the_wrong_things_about_itself_is_not_used() {
    let changes: [fn(&mut Value); 6] = [
        |says| says["issuer"] = json!("https://other.example"),
        |says| says["code_challenge_methods_supported"] = json!(["plain"]),
        |says| says["token_endpoint"] = Value::Null,
        |says| says["authorization_endpoint"] = json!("javascript:alert(1)"),
        |says| *says = json!([]),
        |says| says["token_endpoint"] = json!("not a url"),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let world = World::new(|_, _| {}).await;
        change(&mut world.says.lock().metadata);
        let refused = world.begin(false).await;
        assert!(matches!(refused, Err(SignInError::Unavailable { .. })), "{index}");
    }
}

#[tokio::test]
async fn a_token_endpoint_at_a_host_that_nobody_named_is_not_asked() {
    let world = World::new(|_, _| {}).await;
    world.says.lock().metadata["token_endpoint"] = json!("http://127.0.0.2:9/token");
    let refused = world.sign_in(false, |_| {}).await;
    let Err(SignInError::Unavailable { problem, .. }) = refused else { panic!("{refused:?}") };
    assert!(!problem.contains("the-code"), "{problem}");
}

#[tokio::test]
async fn what_the_provider_answers_to_the_code_never_reaches_a_message() {
    let world = World::new(|_, _| {}).await;
    let url = world.begin(false).await.unwrap();
    for answer in [
        (400, "{\"error\":\"PRIVATE\"}"),
        (200, "PRIVATE"),
        (200, "{\"x\":\"PRIVATE\"}"),
        (302, "PRIVATE"),
    ] {
        world.says.lock().token = (answer.0, answer.1.to_owned());
        let refused = world.finish(world.back(&url)).await.unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("PRIVATE"), "{refused:?}");
    }
}

#[tokio::test]
async fn signing_out_of_the_provider_leads_back() {
    let world = World::new(|_, _| {}).await;
    let url = world.provider.sign_out_url("http://127.0.0.1:7411/signed-out").await.unwrap();
    assert_eq!((url.path(), query(&url)["client_id"].as_str()), ("/end", CLIENT));
    assert_eq!(query(&url)["post_logout_redirect_uri"], "http://127.0.0.1:7411/signed-out");
}

#[test]
fn only_issuers_that_speak_for_people_can_be_signed_in_with() {
    let keys = KeySource::Inline(json!({ "keys": [] }));
    let issuer = |kinds| {
        IssuerConfig::new(
            "https://idp.example",
            tenant(),
            ["us".to_owned()].into(),
            keys.clone(),
            kinds,
        )
    };
    let config = |issuer: &str| -> SignInConfig {
        serde_json::from_value(json!({ "issuer": issuer, "client_id": CLIENT })).unwrap()
    };
    let people = [issuer(KindRule::Fixed(PrincipalKind::User))];
    assert!(config("https://idp.example").check(&people).is_ok());
    assert!(config("https://other.example").check(&people).is_err());
    assert!(
        config("https://idp.example")
            .check(&[issuer(KindRule::Fixed(PrincipalKind::Agent))])
            .is_err()
    );
    let mut mixed = issuer(KindRule::Fixed(PrincipalKind::User));
    mixed.audiences.insert(CLIENT.to_owned());
    let refused = config("https://idp.example").check(&[mixed]).unwrap_err().to_string();
    assert!(refused.contains("pass as access tokens"), "{refused}");
    let mut plain = issuer(KindRule::Fixed(PrincipalKind::User));
    plain.issuer = "http://idp.example".to_owned();
    assert!(config("http://idp.example").check(&[plain]).is_err(), "codes go over TLS only");
}
