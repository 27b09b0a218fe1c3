//! People who sign in at a provider that repeats whatever it hears: the client's secret, code, verifier, tokens and cookies stay where they belong.
//!
//! Owns the provider, which is as hostile in its words as it can be, and a browser that does what it is told. What a real provider makes of a
//! sign-in is tested in `console`. Invariant: the provider itself is searched as well, since it must get the secret, the code and the verifier.

use std::{fs, sync::Arc};

use parking_lot::Mutex;

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use p256::ecdsa::{Signature, SigningKey, signature::Signer as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use url::Url;

use super::{
    Heard,
    estate::{Secret, are_found, are_where_they_belong},
    page, raw, tap,
};
use crate::harness::{
    otlp,
    placet::Placet,
    search::{Disguised, Places, canary},
    seconds,
    setup::{Setup, local, plan},
    until,
};

const CLIENT: &str = "placet-console";

/// How the provider answers a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Good,
    /// With this status, and everything that it was sent.
    Echo(u16),
    /// With an ID token of a sign-in that nobody began here.
    OtherNonce,
    /// With something else than it should.
    Nonsense,
}

#[derive(Debug, Clone)]
struct Provider {
    issuer: String,
    key: SigningKey,
    manner: Arc<Mutex<Manner>>,
    nonce: Arc<Mutex<String>>,
    /// Every ID token that it gave.
    given: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    /// The provider, and what it is sent.
    async fn start() -> (Self, Heard) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (heard, url) = tap(local(listener.local_addr().unwrap().port(), "/")).await;
        let provider = Self {
            issuer: url.as_str().trim_end_matches('/').to_owned(),
            key: SigningKey::from_slice(&[42; 32]).unwrap(),
            manner: Arc::new(Mutex::new(Manner::Good)),
            nonce: Arc::default(),
            given: Arc::default(),
        };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(describe))
            .route("/jwks", get(keys))
            .route("/token", post(token))
            .with_state(provider.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (provider, heard)
    }

    fn id_token(&self, nonce: &str) -> String {
        let now = seconds();
        let claims = json!({
            "iss": self.issuer, "sub": "ben", "aud": CLIENT, "iat": now, "exp": now.saturating_add(600), "nonce": nonce,
            "groups": ["approvers", "operators"],
        });
        let text = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!(
            "{}.{}",
            text(&json!({ "alg": "ES256", "kid": "one", "typ": "JWT" })),
            text(&claims)
        );
        let signature: Signature = self.key.sign(signed.as_bytes());
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.to_bytes()));
        self.given.lock().push(token.clone());
        token
    }
}

async fn describe(State(provider): State<Provider>) -> String {
    let at = |path: &str| format!("{}/{path}", provider.issuer);
    json!({
        "issuer": provider.issuer, "authorization_endpoint": at("auth"), "token_endpoint": at("token"), "jwks_uri": at("jwks"),
    })
    .to_string()
}

async fn keys(State(provider): State<Provider>) -> String {
    let point = provider.key.verifying_key().to_encoded_point(false);
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    json!({ "keys": [{
        "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "one",
        "x": text(point.x().unwrap()), "y": text(point.y().unwrap()),
    }] })
    .to_string()
}

async fn token(
    State(provider): State<Provider>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let manner = *provider.manner.lock();
    let nonce = provider.nonce.lock().clone();
    let heard = format!("{headers:?} {}", String::from_utf8_lossy(&body));
    let with = |token: String| json!({ "access_token": "unused", "token_type": "Bearer", "id_token": token });
    match manner {
        Manner::Good => (StatusCode::OK, with(provider.id_token(&nonce)).to_string()),
        Manner::OtherNonce => (StatusCode::OK, with(provider.id_token(&heard)).to_string()),
        Manner::Nonsense => (StatusCode::OK, heard),
        Manner::Echo(status) => {
            let said = json!({ "error": "invalid_client", "error_description": heard, "id_token": provider.id_token(&nonce) });
            (StatusCode::from_u16(status).unwrap(), said.to_string())
        }
    }
}

/// What a browser got to know in one sign-in, and with what it ended.
struct Visit {
    browser: String,
    state: String,
    code: String,
    answer: String,
}

impl Visit {
    /// From the page of the sign-in to the provider and back, with a code of ours.
    async fn make(placet: &Placet, provider: &Provider) -> Self {
        let get = async |path: &str, cookie: &str| {
            let head = format!(
                "GET {path} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nAccept: text/html\r\nCookie: {cookie}\r\n\r\n"
            );
            String::from_utf8(raw(placet, &head).await).unwrap()
        };
        let begun = get("/sign-in/start?to=%2F", "none=none").await;
        let browser = after(&begun, "placet-sign-in=", ';');
        let to = begun.lines().find_map(|line| line.strip_prefix("location: ")).expect(&begun);
        let to = Url::parse(to.trim()).unwrap();
        let asked = |name: &str| {
            to.query_pairs()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.into_owned())
                .unwrap()
        };
        *provider.nonce.lock() = asked("nonce");
        let (state, code) = (asked("state"), canary("code"));
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("code", &code)
            .append_pair("state", &state)
            .finish();
        let path = format!("/sign-in/callback?{query}");
        let answer = get(&path, &format!("placet-sign-in={browser}")).await;
        Self { browser, state, code, answer }
    }

    /// What is in the answer, without what it sets for this browser alone.
    fn shown(&self) -> String {
        let lines = self.answer.lines().filter(|line| !line.starts_with("set-cookie:"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn after(text: &str, words: &str, end: char) -> String {
    let rest = text.split_once(words).unwrap_or_else(|| panic!("no `{words}` in {text}")).1;
    rest.split(end).next().unwrap().to_owned()
}

fn set_up(setup: Setup, provider: &Provider, collector: &Url) -> Setup {
    let issuer = json!({
        "issuer": provider.issuer, "tenant": "local", "audiences": ["placet"], "kinds": { "fixed": "user" },
        "keys": { "url": format!("{}/jwks", provider.issuer) }, "keys_private_network": true, "groups_claim": "groups",
    });
    setup
        .with("development_tokens", json!(true))
        .with("issuers", json!([issuer]))
        .with("secrets", json!({ "console": { "file": "console" } }))
        .with(
            "console",
            json!({ "sign_in": {
                "issuer": provider.issuer, "client_id": CLIENT, "client_secret": "console", "private_network": true,
            } }),
        )
        .with("telemetry", json!({ "log_filter": "trace", "otlp": { "endpoint": collector.as_str() } }))
}

/// Signs in, and without success in every way that a provider can refuse; answers all visits, and the session of the one that succeeded.
async fn visits(placet: &Placet, provider: &Provider, places: &mut Places) -> (Vec<Visit>, String) {
    let mut visits = Vec::new();
    for manner in [
        Manner::Echo(400),
        Manner::Echo(401),
        Manner::Echo(500),
        Manner::Nonsense,
        Manner::OtherNonce,
        Manner::Good,
    ] {
        *provider.manner.lock() = manner;
        let visit = Visit::make(placet, provider).await;
        assert_eq!(visit.answer.contains("placet="), manner == Manner::Good, "{}", visit.answer);
        places.add(format!("sign-in: {manner:?}"), visit.shown());
        visits.push(visit);
    }
    let session = after(&visits.last().unwrap().answer, "placet=", ';');
    // A code that somebody else brings, and one that comes twice.
    for visit in &visits {
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("code", &visit.code)
            .append_pair("state", &visit.state)
            .append_pair("error", "access_denied")
            .append_pair("error_description", &visit.code)
            .finish();
        let head = format!(
            "GET /sign-in/callback?{query} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"
        );
        places.add("sign-in: of another browser", raw(placet, &head).await);
    }
    (visits, session)
}

/// The secrets that sign-ins are made with, and what the provider gave.
fn made_on_the_way(provider: &Provider, visits: &[Visit], heard: &Heard) -> Vec<Secret> {
    let mut secrets = Vec::new();
    let sent = String::from_utf8_lossy(&heard.bytes()).into_owned();
    let verifiers: Vec<&str> = sent
        .split("code_verifier=")
        .skip(1)
        .map(|rest| {
            rest.split(|c: char| !c.is_ascii_alphanumeric() && !"-_.~".contains(c)).next().unwrap()
        })
        .collect();
    assert!(verifiers.len() >= visits.len(), "{sent}");
    for verifier in verifiers {
        secrets.push(Secret::new("the verifier of a code", verifier, &["provider"]));
    }
    for visit in visits {
        secrets.push(Secret::new("a code", &visit.code, &["provider"]));
        secrets.push(Secret::new("the state of a sign-in", &visit.state, &[]));
        secrets.push(Secret::new("who is expected back", &visit.browser, &[]));
    }
    for token in provider.given.lock().iter() {
        for part in token.split('.').skip(1) {
            secrets.push(Secret::new("an ID token", part, &[]));
        }
    }
    secrets
}

#[tokio::test]
async fn a_sign_in_leaves_nothing_behind_whatever_the_provider_repeats() {
    let (spans, collector) = otlp::grpc().await;
    let (provider, heard) = Provider::start().await;
    let secret = canary("client");
    let setup = set_up(Setup::new(), &provider, &collector);
    fs::write(setup.path("console"), &secret).unwrap();
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let mut places = Places::default();
    let (visits, session) = visits(&placet, &provider, &mut places).await;
    let run = Disguised::name("r");
    let mut delete = plan("files__delete", "s1", json!({ "path": "a.txt" }));
    delete["run"]["run_id"] = json!(run.text);
    let held = setup.agent(&placet).await.call(&delete).await.held();
    let approval = format!("/approvals/{}", held["approval_id"].as_str().unwrap());
    for path in ["/", &approval, "/help"] {
        let page = page(&placet, &session, path).await;
        assert_eq!(page.status, 200, "{path}");
        places.add(format!("page: {path}"), page.body.to_vec());
    }
    for path in ["/metrics", "/readyz"] {
        places.add(format!("metrics: {path}"), placet.ask(path).await.body.to_vec());
    }
    for words in [&["doctor", "--json"][..], &["ledger", "export", "none.jsonl"]] {
        let ran = setup.configured(words).await;
        places.add(format!("cli: {}", words.join(" ")), format!("{} {}", ran.out, ran.err));
    }
    until("the spans arrive", || async { !spans.bytes().is_empty() }).await;
    // Its sessions outlive it, sealed under cookies that it does not keep.
    places.add("log: before it died", placet.log());
    placet.kill().await;
    let placet = setup.start().await;
    assert_eq!(page(&placet, &session, "/help").await.status, 200, "signed in over the restart");
    places.add("log: after it died", placet.stop().await);
    places.add("spans: all of them", spans.bytes());
    places.add("provider: what it was sent", heard.bytes());
    places.add_folder_as("ledger: ", &setup.data(), &["dev-key.jwk", "seal.key"]);

    let mut secrets = made_on_the_way(&provider, &visits, &heard);
    secrets.push(Secret::new("the secret of the client", &secret, &["provider"]));
    secrets.push(Secret::new("the session of a browser", &session, &[]));
    for (kind, planted) in [
        ("page", &run.canaries[..]),
        ("ledger", &run.canaries),
        ("spans", &run.canaries),
        ("provider", &[CLIENT.to_owned()]),
        ("metrics", &["placet_approvals_pending".to_owned()]),
        ("log", &["files".to_owned()]),
        ("cli", &["issuers".to_owned()]),
        ("sign-in", &["Sign".to_owned()]),
    ] {
        are_found(planted, kind, &places);
    }
    are_where_they_belong(&secrets, &places);
}
