//! Who comes in: one token that says both, workloads with SVIDs and certificates, and keys that are away.
//!
//! Owns the ways of proving who calls, as a caller of the built program sees them. What each token must look like is tested in
//! `placet-identity`.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::Method;
use p256::ecdsa::{Signature, SigningKey, signature::Signer as _};
use placet_egress::{ClientIdentity, Destination, PrivateRanges, Trust};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use serde_json::{Value, json};

use crate::harness::{
    client::{Client, text},
    placet::Placet,
    search::{Places, pem_part},
    setup::{Setup, plan},
    until,
};

const AGENT: &str = "spiffe://prod.example/agent/dev-agent";

fn read(step: &str) -> Value {
    plan("files__read", step, json!({ "path": "a.txt" }))
}

/// A client without a token, over plain HTTP.
async fn asked_by_nobody(placet: &Placet) -> String {
    let reply = placet.client(None).get("/v1/tools").await;
    reply.refused(401, "UNAUTHENTICATED");
    reply.headers["www-authenticate"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn one_token_says_who_acts_and_for_whom_and_the_chain_is_on_the_record() {
    let setup = Setup::new();
    setup.put("a.txt", "hello");
    let placet = setup.start().await;
    let both = setup.configured(&["token", "user", "ana", "--for-agent", "dev-agent"]).await;
    let both = placet.client(Some(both.ok().trim().to_owned()));
    both.call(&read("s1")).await.succeeded();
    let delete = plan("files__delete", "s2", json!({ "path": "a.txt" }));
    let held = both.call(&delete).await.held();
    let ben = setup.ben(&placet).await;
    let shown = ben.get(&format!("/v1/approvals/{}", text(&held, "approval_id"))).await.ok();
    let chain = &shown["approval"]["principal_chain"];
    assert_eq!(
        (&chain["actor"]["kind"], &chain["actor"]["id"]),
        (&json!("agent"), &json!("dev-agent"))
    );
    assert_eq!(chain["on_behalf_of"]["id"], "ana", "{chain:#}");
    // The same chain as two tokens is the same caller: the call is the same one.
    let agent = setup.agent(&placet).await;
    let user = setup.configured(&["token", "user", "ana", "--for-agent", "dev-agent"]).await;
    let user = user.ok().trim().to_owned();
    let again = agent.call_with(&delete, "Placet-Delegation", &user).await.held();
    assert_eq!(again["approval_id"], held["approval_id"]);
    // The user is not named twice, and an agent alone is another caller.
    let twice = both.call_with(&delete, "Placet-Delegation", &user).await;
    twice.refused(401, "UNAUTHENTICATED");
    assert_ne!(agent.call(&delete).await.held()["approval_id"], held["approval_id"]);
    let oneself = setup.configured(&["token", "user", "ana", "--for-agent", "ana"]).await;
    let oneself = placet.client(Some(oneself.ok().trim().to_owned()));
    oneself.call(&read("s3")).await.refused(401, "UNAUTHENTICATED");
}

/// A trust domain's key.
pub(crate) struct TrustDomain {
    key: SigningKey,
    kid: String,
}

impl TrustDomain {
    pub(crate) fn new(seed: u8) -> Self {
        Self { key: SigningKey::from_slice(&[seed; 32]).unwrap(), kid: format!("key-{seed}") }
    }

    /// The key itself, for somebody who makes SVIDs.
    pub(crate) fn private_key(&self) -> Value {
        let mut key = self.bundle()["keys"][0].clone();
        key["d"] = json!(URL_SAFE_NO_PAD.encode(self.key.to_bytes()));
        key
    }

    pub(crate) fn bundle(&self) -> Value {
        let point = self.key.verifying_key().to_encoded_point(false);
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({ "keys": [{
            "kty": "EC", "crv": "P-256", "use": "jwt-svid", "kid": self.kid,
            "x": text(point.x().unwrap()), "y": text(point.y().unwrap()),
        }] })
    }

    #[expect(clippy::disallowed_methods, reason = "a token for a program that reads the real time")]
    pub(crate) fn svid(&self, subject: &str, audience: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let claims = json!({ "sub": subject, "aud": [audience], "iat": now, "exp": now.saturating_add(300) });
        let text = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({ "alg": "ES256", "kid": self.kid, "typ": "JWT" });
        let signed = format!("{}.{}", text(&header), text(&claims));
        let signature: Signature = self.key.sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.to_bytes()))
    }
}

#[tokio::test]
async fn a_workload_with_an_svid_is_an_agent_and_a_rotated_bundle_counts() {
    let (first, second) = (TrustDomain::new(7), TrustDomain::new(8));
    let domain = json!({
        "trust_domain": "prod.example", "tenant": "local", "audiences": ["placet"],
        "bundle": { "file": "bundle.json" }, "workloads": { "below": "/agent/", "shared_principals": true },
    });
    let setup = Setup::new().with("trust_domains", json!([domain]));
    fs::write(setup.path("bundle.json"), first.bundle().to_string()).unwrap();
    setup.put("a.txt", "hello");
    let placet = setup.start().await;
    let call = |token: String, step: &'static str| {
        let client = placet.client(Some(token));
        async move { client.call(&read(step)).await }
    };
    call(first.svid(AGENT, "placet"), "s1").await.succeeded();
    for (subject, audience) in [
        (AGENT, "other"),
        ("spiffe://evil.example/agent/dev-agent", "placet"),
        ("spiffe://prod.example/db/dev-agent", "placet"),
    ] {
        let reply = call(first.svid(subject, audience), "s2").await;
        reply.refused(401, "UNAUTHENTICATED");
        assert!(!reply.text().contains("prod.example"), "{reply:?}");
    }
    call(second.svid(AGENT, "placet"), "s3").await.refused(401, "UNAUTHENTICATED");
    fs::write(setup.path("bundle.json"), second.bundle().to_string()).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    call(second.svid(AGENT, "placet"), "s4").await.succeeded();
}

/// Everybody's certificates, in the folder of a set-up.
pub(crate) struct Mesh {
    authority: Issuer<'static, KeyPair>,
}

impl Mesh {
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        fs::write(setup.path("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        let mesh = Self { authority: Issuer::new(params, key) };
        mesh.issue(setup, "api", SanType::IpAddress("127.0.0.1".parse().unwrap()));
        mesh
    }

    pub(crate) fn issue(&self, setup: &Setup, name: &str, san: SanType) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = vec![san];
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.authority).unwrap();
        fs::write(setup.path(&format!("{name}.pem")), made.pem()).unwrap();
        fs::write(setup.path(&format!("{name}-key.pem")), key.serialize_pem()).unwrap();
    }

    pub(crate) fn client(&self, setup: &Setup, placet: &Placet, name: Option<&str>) -> Client {
        let identity = |name: &str| {
            let (own, key) = (format!("{name}.pem"), format!("{name}-key.pem"));
            let identity = ClientIdentity::from_files(setup.path(&own), setup.path(&key)).unwrap();
            (Destination::from_url(&placet.base, PrivateRanges::Allowed).unwrap(), identity)
        };
        let roots_pem = fs::read(setup.path("ca.pem")).unwrap();
        let trust = Trust { roots_pem, identities: name.map(identity).into_iter().collect() };
        Client::trusting(placet.base.clone(), None, &trust)
    }
}

#[tokio::test]
async fn a_certificate_is_an_agents_identity_where_the_api_speaks_tls() {
    let authority = json!({
        "name": "mesh", "ca": "ca.pem", "tenant": "local", "trust_domain": "prod.example",
        "workloads": { "below": "/agent/", "shared_principals": true },
    });
    let setup = Setup::new()
        .with("tls", json!({ "certificate": "api.pem", "key": "api-key.pem" }))
        .with("telemetry", json!({ "log_filter": "trace" }))
        .with("client_authorities", json!([authority]));
    let mesh = Mesh::new(&setup);
    let uri = |id: &str| SanType::URI(id.try_into().unwrap());
    mesh.issue(&setup, "agent", uri(AGENT));
    mesh.issue(&setup, "stranger", uri("spiffe://other.example/agent/dev-agent"));
    setup.put("a.txt", "hello");
    let placet = setup.start().await;
    assert_eq!(placet.base.scheme(), "https");

    let agent = mesh.client(&setup, &placet, Some("agent"));
    let result = agent.call(&read("s1")).await.succeeded();
    assert_eq!(result["output"]["content"], "hello");
    let stranger = mesh.client(&setup, &placet, Some("stranger"));
    stranger.call(&read("s2")).await.refused(401, "UNAUTHENTICATED");
    let nobody = mesh.client(&setup, &placet, None);
    let reply = nobody.get("/v1/tools").await;
    reply.refused(401, "UNAUTHENTICATED");
    let challenge = reply.headers["www-authenticate"].to_str().unwrap();
    assert!(challenge.contains("resource_metadata=\"https://127.0.0.1:"), "{challenge}");
    let metadata = nobody.get("/.well-known/oauth-protected-resource").await.ok();
    assert_eq!(metadata["tls_client_certificate_bound_access_tokens"], true);
    // A header that tells of a certificate is not one.
    let forwarded =
        nobody.request(Method::GET, "/v1/tools").header("x-forwarded-client-cert", AGENT);
    let reply = nobody.send(forwarded.body(Bytes::new()).unwrap()).await;
    reply.refused(401, "UNAUTHENTICATED");
    let mut places = Places::default();
    places.add("the log", placet.stop().await);
    places.add_folder(&setup.data());
    assert!(places.has("the log", "placet_") && places.has("ledger/journal", "files"));
    let key = pem_part(&setup.path("api-key.pem"));
    assert_eq!(places.with(&key), Vec::<String>::new(), "the key of the API");
}

#[tokio::test]
async fn certificates_without_tls_stop_the_start() {
    let authority = json!({
        "name": "mesh", "ca": "ca.pem", "tenant": "local",
        "workloads": { "names": { "bot.example": "dev-agent" } },
    });
    let setup = Setup::new().with("client_authorities", json!([authority]));
    setup.refuses().await.says(&["client_authorities", "need `tls`"]);
    let setup = Setup::new().with("tls", json!({ "certificate": "none.pem", "key": "none.pem" }));
    setup.refuses().await.says(&["TLS cannot be set up", "none.pem"]);
    let passthrough = Setup::new().with("passthrough", json!(true));
    passthrough.refuses().await.says(&["passthrough"]);
}

#[tokio::test]
async fn an_issuer_whose_keys_are_away_is_no_reason_to_call_a_token_wrong() {
    // Nobody listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let issuer = json!({
        "issuer": "https://idp.example", "tenant": "local", "audiences": ["https://placet.example"],
        "keys": { "url": format!("http://{free}/jwks") }, "keys_private_network": true,
        "kinds": { "fixed": "agent" },
    });
    let setup = Setup::new()
        .with("issuers", json!([issuer]))
        .with("audience", json!("https://placet.example"));
    let placet = setup.start().await;
    let text = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = text(json!({ "alg": "ES256", "kid": "one", "typ": "at+jwt" }));
    let claims = text(json!({ "iss": "https://idp.example", "sub": "x" }));
    let token = format!("{header}.{claims}.{}", URL_SAFE_NO_PAD.encode([7; 64]));
    let reply = placet.client(Some(token)).get("/v1/tools").await;
    let problem = reply.refused(503, "IDENTITY_UNAVAILABLE");
    assert_eq!(
        (&problem["retryable"], &problem["execution"]),
        (&json!(true), &json!("not_executed"))
    );
    assert!(reply.headers.contains_key("retry-after"), "{reply:?}");
    for word in ["idp.example", "127.0.0.1", "jwks"] {
        assert!(!problem["detail"].to_string().contains(word), "{problem:#}");
    }
    // Anyone who shows nothing is told where to get a token.
    let challenge = asked_by_nobody(&placet).await;
    assert!(challenge.starts_with("Bearer resource_metadata="), "{challenge}");
    let metadata = placet.client(None).get("/.well-known/oauth-protected-resource").await.ok();
    assert_eq!(metadata["resource"], "https://placet.example");
    assert_eq!(metadata["authorization_servers"], json!(["https://idp.example"]));
}

/// A verified signature is remembered with the key that verified it, so it counts exactly as long as that key.
#[tokio::test]
async fn a_verified_token_is_refused_once_its_key_is_gone() {
    let (domain, next) = (TrustDomain::new(31), TrustDomain::new(32));
    let setup = Setup::new().with(
        "trust_domains",
        json!([{
            "trust_domain": "prod.example", "tenant": "local", "audiences": ["placet"],
            "bundle": { "file": "bundle.json" }, "workloads": { "below": "/agent/" },
        }]),
    );
    setup.put("a.txt", "hello");
    fs::write(setup.path("bundle.json"), domain.bundle().to_string()).unwrap();
    let placet = setup.start().await;
    let workload = placet.client(Some(domain.svid(AGENT, "placet")));
    for step in ["s1", "s2"] {
        workload.call(&read(step)).await.succeeded();
    }
    fs::write(setup.path("bundle.json"), next.bundle().to_string()).unwrap();
    until("the old key counts no more", || async { workload.get("/v1/tools").await.status == 401 })
        .await;
    workload.call(&read("s3")).await.refused(401, "UNAUTHENTICATED");
    let renewed = placet.client(Some(next.svid(AGENT, "placet")));
    renewed.call(&read("s4")).await.succeeded();
}
