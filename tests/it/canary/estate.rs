//! A Placet with every kind of secret there is, and with everything it speaks to.
//!
//! Owns the set-up and the list of the secrets: where each of them has to arrive, and so where it may be at all. Two estates differ in where the
//! ledger is: on disk with backups, or in a database behind a password. Invariant: a secret that is not in the list is not in the set-up.

use std::fs;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};
use tokio::process::Child;
use url::Url;

use super::{Heard, Inbound, hook, tap};
use crate::{
    exchange::{CLIENT_SECRET, Guarded, Provider},
    harness::{
        npm, otlp,
        postgres::Database,
        search::{Places, canary, part, plain_canary},
        setup::{Ran, Setup},
    },
    notifications::{MailServer, certificate},
};

/// Where the ledger of an estate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    Files,
    Database,
}

/// Something that is for certain places alone.
#[derive(Debug)]
pub(super) struct Secret {
    pub(super) what: &'static str,
    pub(super) canary: String,
    /// The kinds of places where it has to arrive. Everywhere else it must not be.
    pub(super) arrives_at: &'static [&'static str],
}

impl Secret {
    pub(super) fn new(
        what: &'static str,
        canary: &str,
        arrives_at: &'static [&'static str],
    ) -> Self {
        Self { what, canary: part(canary), arrives_at }
    }
}

/// Every secret is where it has to arrive, and nowhere else.
pub(super) fn are_where_they_belong(secrets: &[Secret], places: &Places) {
    let canaries: Vec<&str> = secrets.iter().map(|secret| secret.canary.as_str()).collect();
    let short: Vec<&Secret> = secrets.iter().filter(|secret| secret.canary.len() < 20).collect();
    assert!(short.is_empty(), "too short to be nobody else's: {short:#?}");
    let mut wrong = Vec::new();
    for (secret, at) in secrets.iter().zip(places.hits(&canaries)) {
        let is_at = |kind: &&str| at.iter().any(|place| place.starts_with(&format!("{kind}: ")));
        if let Some(away) = secret.arrives_at.iter().find(|kind| !is_at(kind)) {
            wrong.push(format!("{} does not arrive at {away}", secret.what));
        }
        let belongs = |place: &str| {
            secret.arrives_at.iter().any(|kind| place.starts_with(&format!("{kind}: ")))
        };
        wrong.extend(
            at.iter().filter(|at| !belongs(at)).map(|at| format!("{} is in {at}", secret.what)),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What was planted over the live channel of a kind of places is found at its end, every form of it.
pub(super) fn are_found(planted: &[String], kind: &str, places: &Places) {
    let canaries: Vec<&str> = planted.iter().map(String::as_str).collect();
    for (number, at) in places.hits(&canaries).iter().enumerate() {
        let found = at.iter().any(|place| place.starts_with(&format!("{kind}: ")));
        assert!(found, "form {number} of {canaries:?} is not found in `{kind}`, only in {at:#?}");
    }
}

/// Everything together.
pub(super) struct Estate {
    pub(super) setup: Setup,
    /// The name of an adapter, which is said wherever something is said about its calls.
    pub(super) name: String,
    pub(super) upstream: Heard,
    pub(super) service: Heard,
    pub(super) webhook: Heard,
    pub(super) spans: otlp::Received,
    pub(super) provider: Provider,
    pub(super) guarded: Guarded,
    pub(super) database: Option<Database>,
    pub(super) secrets: Vec<Secret>,
    _stub: Child,
    _mail: MailServer,
}

const DIRECTORY: &str = r#"{ "tenants": { "local": {
    "groups": { "approvers": {}, "operators": {}, "freeze-approvers": {}, "emergency": {} },
    "users": { "ana": {}, "alice": {}, "ben": { "display": "Ben", "groups": ["approvers", "operators", "freeze-approvers", "emergency"] } },
    "agents": { "dev-agent": { "owner": "ana" }, "agent-1": { "owner": "ana" } }
} } }"#;

/// The names of people's and agents' own adapters; what they are spoken to with is in [`secrets`].
const IMPORT: [&str; 7] =
    ["adapters", "import", "--tenant", "local", "--mode-default", "local_write", "--name"];

impl Estate {
    pub(super) async fn new(store: Store) -> Self {
        let (spans, collector) = otlp::grpc().await;
        let (webhook, hook) = hook().await;
        let values = Values::new();
        let setup = Setup::new();
        let provider = Provider::start(&setup).await;
        let endpoint = format!("{}/token", provider.issuer).parse().unwrap();
        let (service, endpoint) = tap(endpoint).await;
        let guarded = Guarded::start(&setup, &provider.issuer).await;
        let (stub, url) = npm::stub_over_http(&setup.path("http-record")).await;
        let (upstream, url) = tap(url).await;
        certificate(&setup.path(""));
        let mail = MailServer::start("tls", &setup.path(""), &["placet", &values.mail]).await;
        values.write(&setup);
        let (setup, database) = stored(setup, store, &values.database).await;
        let setup = setup
            .with("directory", json!("directory.yaml"))
            .with("issuers", issuers(&provider))
            .with("development_tokens", json!(true))
            .with("contracts", json!("contracts"))
            .with("secrets", secrets())
            .with("sts", services(&provider, &endpoint))
            .with("trust", json!({ "roots": ["mail.pem"] }))
            .with(
                "telemetry",
                json!({ "otlp": { "endpoint": collector.as_str() }, "log_filter": "trace" }),
            )
            .with("notifications", notifications(&hook, mail.port))
            .env("CANARY", &values.env)
            .env("HOOK", &format!("whsec_{}", STANDARD.encode(&values.hook)))
            .env("CLIENT_SECRET", CLIENT_SECRET);
        let name = plain_canary("p").split_at(24).0.to_owned();
        let setup = imported(setup, &name, &url, &guarded.url).await;
        let secrets = values.secrets(&setup, &provider);
        Self {
            setup,
            name,
            upstream,
            service,
            webhook,
            spans,
            provider,
            guarded,
            database,
            secrets,
            _stub: stub,
            _mail: mail,
        }
    }

    /// What the provider's agent brings along when it calls for alice.
    pub(super) fn for_alice(&self, like: &Inbound) -> Inbound {
        Inbound {
            agent: self.provider.agent.clone(),
            user: self.provider.alice.clone(),
            headers: like.headers.clone(),
            query: like.query.clone(),
        }
    }

    pub(super) fn add_secrets(
        &mut self,
        what: &'static str,
        arrives_at: &'static [&'static str],
        canaries: impl IntoIterator<Item = String>,
    ) {
        let secret = |canary: String| Secret::new(what, &canary, arrives_at);
        self.secrets.extend(canaries.into_iter().map(secret));
    }

    /// The tokens that the guarded server was shown: for it, and for nobody else.
    pub(super) fn add_exchanged(&mut self) {
        let shown = self.guarded.shown();
        let tokens = shown.split("Bearer ").skip(1).filter_map(|rest| rest.split('"').next());
        let mut signatures: Vec<&str> =
            tokens.filter_map(|token| token.rsplit('.').next()).collect();
        signatures.sort_unstable();
        signatures.dedup();
        assert!(signatures.len() >= 2, "two services have exchanged tokens: {shown}");
        self.secrets.extend(signatures.into_iter().map(|signature| Secret {
            what: "an exchanged token",
            canary: part(signature),
            arrives_at: &["guarded"],
        }));
    }
}

/// The values that this set-up alone has.
struct Values {
    env: String,
    file: String,
    hook: String,
    mail: String,
    database: String,
}

impl Values {
    fn new() -> Self {
        Self {
            env: canary("inenv"),
            file: canary("infile"),
            hook: canary("signing"),
            mail: plain_canary("mail"),
            database: plain_canary("database"),
        }
    }

    fn write(&self, setup: &Setup) {
        fs::write(setup.path("secret.txt"), &self.file).unwrap();
        fs::write(setup.path("word"), &self.mail).unwrap();
        fs::write(setup.path("ledger-password"), &self.database).unwrap();
        fs::write(setup.path("directory.yaml"), DIRECTORY).unwrap();
    }

    fn secrets(self, setup: &Setup, provider: &Provider) -> Vec<Secret> {
        let own_key = fs::read_to_string(setup.data().join("dev-key.jwk")).unwrap();
        let own_key: Value = serde_json::from_str(&own_key).unwrap();
        let client_key = fs::read_to_string(setup.path("sts-key.pem")).unwrap();
        let client_key: String = client_key.lines().skip(1).take(2).collect();
        let signature = |token: &str| part(token.rsplit('.').next().unwrap());
        let claims = |token: &str| own_claim(token.split('.').nth(1).unwrap());
        let all: [(&'static str, String, &'static [&'static str]); 12] = [
            ("a secret of the environment", self.env, &[]),
            ("a secret of a file", self.file, &["upstream"]),
            ("the key of a webhook", self.hook, &[]),
            ("the password of the mail server", self.mail, &[]),
            ("the password of the ledger", self.database, &[]),
            ("the secret of a client", CLIENT_SECRET.to_owned(), &["token service"]),
            ("the private key of a client", part(&client_key), &[]),
            ("the key of development tokens", part(own_key["d"].as_str().unwrap()), &[]),
            ("the token of alice", signature(&provider.alice), &["token service"]),
            ("what the token of alice says", claims(&provider.alice), &["token service"]),
            ("the token of her agent", signature(&provider.agent), &["token service"]),
            ("what the token of her agent says", claims(&provider.agent), &["token service"]),
        ];
        let secret = |(what, canary, arrives_at)| Secret { what, canary, arrives_at };
        all.into_iter().map(secret).collect()
    }
}

/// The part of the claims of a token that no other token has: around its `jti`. The times in the middle of them are those of every token that
/// is issued in the same second.
fn own_claim(claims: &str) -> String {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    let at = (text.find("\"jti\"").unwrap() / 3).saturating_mul(4);
    claims.chars().skip(at).take(40).collect()
}

/// With its ledger, and the database where there is one.
async fn stored(setup: Setup, store: Store, password: &str) -> (Setup, Option<Database>) {
    match store {
        Store::Files => (setup.with("ledger", json!({ "backups": "backups" })), None),
        Store::Database => {
            let database = Database::start().await;
            let server = &database.server;
            let owner = format!("ALTER DATABASE {} OWNER TO keeper", server.database());
            // What is dumped shows the bytes as they are, not as digits.
            let shown = format!("ALTER DATABASE {} SET bytea_output = 'escape'", server.database());
            for sql in [
                &format!("CREATE ROLE keeper LOGIN PASSWORD '{password}'"),
                &owner,
                &shown,
                "DO $$ BEGIN EXECUTE format('COPY (VALUES (''host all keeper all scram-sha-256''), (''host all all all trust'')) TO %L', \
                 current_setting('hba_file')); END $$",
                "SELECT pg_reload_conf()",
            ] {
                server.ask(sql).await.unwrap();
            }
            let mut ledger = database.ledger("one");
            ledger["store"] = json!(database.url.replace("placet@", "keeper@"));
            ledger["password"] = json!({ "file": "ledger-password" });
            (setup.with("ledger", ledger), Some(database))
        }
    }
}

fn secrets() -> Value {
    json!({
        "env": { "env": "CANARY" }, "file": { "file": "secret.txt" }, "hook": { "env": "HOOK" },
        "word": { "file": "word" }, "sts-key": { "file": "sts-key.pem" }, "sts-secret": "${CLIENT_SECRET}",
    })
}

fn issuers(provider: &Provider) -> Value {
    json!([{
        "issuer": provider.issuer, "tenant": "local", "audiences": ["placet"], "kinds": { "claim": ["agent", "user"] },
        "keys": { "url": format!("{}/jwks", provider.issuer) }, "keys_private_network": true,
        "clients": { "app": "agent-1" }, "attests_workloads": true,
    }])
}

/// The provider's token endpoint twice, behind the tap: once with a key of ours, once with a secret.
fn services(provider: &Provider, endpoint: &Url) -> Value {
    let at = |name: &str, client: &str, auth: Value| {
        json!({
            "name": name, "issuer": provider.issuer, "token_endpoint": endpoint.as_str(), "client_id": client,
            "client_auth": auth, "private_network": true, "timeout_ms": 5_000,
        })
    };
    let signed = json!({
        "method": "private_key_jwt", "key": "sts-key", "key_id": "placet-1", "audience": "issuer",
    });
    let said = json!({ "method": "client_secret_basic", "secret": "sts-secret" });
    json!([at("corp", "placet", signed), at("basic", "placet-basic", said)])
}

fn notifications(hook: &Url, mail: u16) -> Value {
    json!({
        "poll_ms": 100,
        "channels": {
            "hook": { "show": "preview", "to": { "type": "webhook", "url": hook.as_str(), "key": "hook", "private_network": true } },
            "mail": { "show": "preview", "to": {
                "type": "email", "host": "127.0.0.1", "port": mail, "security": "tls", "user": "placet", "password": "word",
                "from": "Placet <placet@example.com>", "to": "leads@example.com",
            } },
        },
        "routes": [{ "channels": ["hook", "mail"] }],
    })
}

/// Imports a child process with a secret in its environment, and a server over HTTP with one in a header, whose `erase` cannot be undone. Gives what
/// the imports said.
pub(super) async fn with_child_and_remote(setup: &Setup, name: &str, url: &Url) -> [Ran; 2] {
    let (node, script) = (npm::node(), npm::stub());
    let record = setup.path("stdio-record").display().to_string();
    let child = ["child", "--env-secret", "STUB_KEY=env", "--stdio", "--"];
    let child = [&IMPORT[..], &child, &[&node, &script, "good", &record]].concat();
    let remote = [name, "--url", url.as_str(), "--private-network", "--credential", "file"];
    let remote = [&IMPORT[..], &remote].concat();
    let ran = [setup.configured(&child).await, setup.configured(&remote).await];
    ran.iter().for_each(|ran| {
        ran.ok();
    });
    let mut contract = setup.read_contract(name);
    contract["capabilities"]["erase"]["mode"] = json!("destructive");
    fs::write(setup.contract_file(name), contract.to_string()).unwrap();
    ran
}

/// With its adapters: the built-in one, a child process, a remote server, and a server behind each token service.
async fn imported(setup: Setup, name: &str, url: &Url, guarded: &str) -> Setup {
    with_child_and_remote(&setup, name, url).await;
    for adapter in ["mail", "post"] {
        let server = [adapter, "--url", guarded, "--private-network"];
        setup.configured(&[&IMPORT[..], &server].concat()).await.ok();
    }
    for (adapter, service) in [("mail", "corp"), ("post", "basic")] {
        let mut contract = setup.read_contract(adapter);
        contract["credential"] = json!({
            "type": "token_exchange", "sts": service, "audience": "urn:mail-api",
            "scopes": ["mail.read", "mail.send"], "scopes_for": { "search": ["mail.read"] },
        });
        fs::write(setup.contract_file(adapter), contract.to_string()).unwrap();
    }
    // The first token makes the key that the others are signed with.
    setup.token("agent", "dev-agent").await;
    setup.files_contract()
}
