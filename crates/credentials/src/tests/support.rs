//! A scripted token service over a real socket, and what a broker is made of.
//!
//! Owns nothing that is tested. The service answers with what a test scripts for each request, and remembers the requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use placet_egress::{EgressClient, EgressPolicy};
use placet_identity::{ActorClaim, SecretSource, Secrets, SubjectToken, TokenFacts};
use placet_testkit::clock::TestClock;
use placet_types::{
    clock::{Clock, Timestamp},
    contract::credential::{ActorSource, CachePolicy, CredentialKind},
    digest::Digest,
};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::Instant,
};

use crate::{Broker, CallTokens, GrantRequest, StsConfig, egress_limits};

pub(crate) const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_000);
pub(crate) const ORIGIN: &str = "https://mail.example:443";
pub(crate) const SECRET: &str = "the s3cret of the gateway";
pub(crate) const USER_TOKEN: &str = "inbound-user-token-c4nary";
pub(crate) const AGENT_TOKEN: &str = "inbound-agent-token-c4nary";

/// A request as the service got it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) form: BTreeMap<String, Vec<String>>,
}

impl Seen {
    pub(crate) fn one(&self, name: &str) -> Option<&str> {
        let values = self.form.get(name)?;
        assert_eq!(values.len(), 1, "`{name}` is there more than once");
        values.first().map(String::as_str)
    }
}

/// What the service does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Answers.
    Answer(u16, String),
    /// Answers with one more header.
    With(u16, &'static str, String),
    /// Answers after a while.
    Late(u64, String),
    /// Hangs up.
    HangUp,
}

type Script = dyn Fn(usize, &Seen) -> Act + Send + Sync;

/// The service.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Service {
    pub(crate) async fn start(
        script: impl Fn(usize, &Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, script): (Arc<Mutex<Vec<Seen>>>, Arc<Script>) =
            (Arc::default(), Arc::new(script));
        let (kept, count) = (Arc::clone(&seen), Arc::new(AtomicUsize::new(0)));
        drop(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, script, count) =
                    (Arc::clone(&kept), Arc::clone(&script), Arc::clone(&count));
                drop(tokio::spawn(async move { serve(stream, &kept, &*script, &count).await }));
            }
        }));
        Self { address, seen }
    }

    /// One that answers every request in the same way.
    pub(crate) async fn answering(status: u16, body: impl ToString) -> Self {
        let body = body.to_string();
        Self::start(move |_, _| Act::Answer(status, body.clone())).await
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    pub(crate) fn config(&self) -> StsConfig {
        serde_json::from_value(json!({
            "name": "corp", "issuer": "https://sts.example", "client_id": "placet",
            "token_endpoint": format!("http://{}/token", self.address),
            "client_auth": { "method": "client_secret_basic", "secret": "sts" },
            "private_network": true, "timeout_ms": 1_000,
        }))
        .unwrap()
    }

    /// A broker that may reach this service.
    pub(crate) fn broker(&self) -> (Broker, Arc<TestClock>) {
        self.broker_with(self.config())
    }

    pub(crate) fn broker_with(&self, config: StsConfig) -> (Broker, Arc<TestClock>) {
        self.broker_of(config, secrets(&[("sts", SECRET)]))
    }

    pub(crate) fn broker_of(
        &self,
        config: StsConfig,
        secrets: Secrets,
    ) -> (Broker, Arc<TestClock>) {
        let clock = TestClock::at(NOW.as_ms());
        let policy = EgressPolicy::new(vec![config.destination().unwrap()]);
        let egress = EgressClient::new(policy, egress_limits()).unwrap();
        let own: Arc<dyn Clock> = Arc::<TestClock>::clone(&clock);
        (Broker::new(vec![config], secrets, Some(egress), own).unwrap(), clock)
    }
}

async fn serve(
    mut stream: TcpStream,
    kept: &Mutex<Vec<Seen>>,
    script: &Script,
    count: &AtomicUsize,
) {
    let mut bytes = Vec::new();
    loop {
        let Some(seen) = read(&mut stream, &mut bytes).await else { return };
        let number = count.fetch_add(1, Ordering::SeqCst);
        kept.lock().push(seen.clone());
        let (status, header, body) = match script(number, &seen) {
            Act::Answer(status, body) => (status, String::new(), body),
            Act::With(status, name, value) => {
                (status, format!("{name}: {value}\r\n"), String::new())
            }
            Act::Late(ms, body) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                (200, String::new(), body)
            }
            Act::HangUp => return,
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{header}content-length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all((head + &body).as_bytes()).await.is_err() {
            return;
        }
    }
}

/// One request; nothing when the connection is over.
async fn read(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Seen> {
    loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..at].to_vec()).unwrap().to_lowercase();
            let raw = String::from_utf8(bytes[..at].to_vec()).unwrap();
            let length =
                head.split("content-length: ").nth(1)?.lines().next()?.parse::<usize>().ok()?;
            let begins = at.strict_add(4);
            let ends = begins.strict_add(length);
            if bytes.len() >= ends {
                let body = bytes[begins..ends].to_vec();
                bytes.drain(..ends);
                let mut form: BTreeMap<String, Vec<String>> = BTreeMap::new();
                for (name, value) in url::form_urlencoded::parse(&body) {
                    form.entry(name.into_owned()).or_default().push(value.into_owned());
                }
                return Some(Seen { head: raw, form });
            }
        }
        let mut chunk = [0_u8; 4096];
        match stream.read(&mut chunk).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&chunk[..read]),
            _ => return None,
        }
    }
}

pub(crate) fn secrets(values: &[(&str, &str)]) -> Secrets {
    let source = |value: &str| SecretSource::Env(SecretString::from(value));
    let sources = values.iter().map(|(name, value)| ((*name).to_owned(), source(value)));
    Secrets::new(sources.collect())
}

pub(crate) fn token(text: &str, subject: &str, lifetime_ms: i64) -> SubjectToken {
    dated(text, subject, Some(NOW.plus_ms(-1_000)), lifetime_ms)
}

/// A token that says when it was issued, or does not.
pub(crate) fn dated(
    text: &str,
    subject: &str,
    issued_at: Option<Timestamp>,
    lifetime_ms: i64,
) -> SubjectToken {
    SubjectToken::seal(
        text,
        TokenFacts {
            issuer: "https://idp.example".to_owned(),
            subject: subject.to_owned(),
            client: None,
            issued_at,
            expires_at: NOW.plus_ms(lifetime_ms),
            scopes: BTreeSet::new(),
            may_act: None,
        },
    )
}

/// The user's token, which says who alone may act.
pub(crate) fn bound(may_act: ActorClaim) -> SubjectToken {
    SubjectToken::seal(
        USER_TOKEN,
        TokenFacts {
            issuer: "https://idp.example".to_owned(),
            subject: "alice".to_owned(),
            client: None,
            issued_at: Some(NOW.plus_ms(-1_000)),
            expires_at: NOW.plus_ms(600_000),
            scopes: BTreeSet::new(),
            may_act: Some(may_act),
        },
    )
}

pub(crate) fn tokens() -> CallTokens {
    CallTokens {
        subject: token(USER_TOKEN, "alice", 600_000),
        actor: Some(token(AGENT_TOKEN, "agent-1", 600_000)),
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The request of a call that needs `mail.read`.
pub(crate) fn request() -> GrantRequest {
    GrantRequest {
        tenant: "acme".parse().unwrap(),
        kind: CredentialKind::TokenExchange,
        service: "corp".to_owned(),
        tokens: Some(tokens()),
        actor: ActorSource::Agent,
        audience: Some("urn:mail-api".to_owned()),
        resource: None,
        scopes: words("mail.read"),
        scopes_needed: words("mail.read"),
        cache: CachePolicy::Short,
        origin: ORIGIN.to_owned(),
        revision: Digest::of(b"contract"),
        deadline: Instant::now() + Duration::from_secs(20),
    }
}

pub(crate) fn with_scopes(scopes: &str, needed: &str) -> GrantRequest {
    GrantRequest { scopes: words(scopes), scopes_needed: words(needed), ..request() }
}

/// An answer as it should be.
pub(crate) fn good() -> Value {
    json!({
        "access_token": "minted-token-1", "token_type": "Bearer", "expires_in": 120, "scope": "mail.read",
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
    })
}

/// That answer with a member changed; `null` takes it out.
pub(crate) fn good_but(name: &str, value: Value) -> Value {
    let mut answer = good();
    answer.as_object_mut().unwrap().remove(name);
    if !value.is_null() {
        answer[name] = value;
    }
    answer
}

/// A token that can be read; its signature is not looked at.
pub(crate) fn jwt(claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.c2ln", encode(&json!({ "alg": "ES256" })), encode(claims))
}
