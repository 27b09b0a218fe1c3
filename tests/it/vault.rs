//! Secrets in a vault, end to end: a real OpenBao has them, a server is shown them, and a database makes some on demand.
//!
//! Owns what is asserted of it: which secret a call was made with is what the server was shown, not what Placet says of it.

mod leases;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use http::Method;
use placet_types::digest::Digest;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::{Instant, sleep},
};

use crate::harness::{
    client::{Client, Reply},
    npm,
    openbao::OpenBao,
    postgres::Database,
    search::{Places, plain_canary},
    setup::{Setup, local, plan},
    until, within,
};

const READS: &str = r#"path "secret/data/*" { capabilities = ["read"] }"#;

/// A server over HTTP that notes what it is shown, and may take one secret only.
pub(crate) struct Server {
    url: String,
    record: PathBuf,
    accepted: PathBuf,
    _child: Child,
}

impl Server {
    async fn start(setup: &Setup) -> Self {
        let (record, accepted) = (setup.path("record"), setup.path("accepted"));
        let mut command = Command::new(npm::node());
        command.arg(npm::stub()).arg("http").arg(&record).arg(&accepted).env_clear();
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        crate::harness::watcher::watch(child.id());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = within("the server says its port", lines.next_line()).await.unwrap().unwrap();
        Self {
            url: local(port.parse().unwrap(), "/mcp").to_string(),
            record,
            accepted,
            _child: child,
        }
    }

    /// From now on it takes this secret and no other.
    pub(crate) fn takes_only(&self, secret: &str) {
        let next = self.accepted.with_extension("next");
        fs::write(&next, fingerprint(secret)).unwrap();
        fs::rename(&next, &self.accepted).unwrap();
    }

    fn takes_all(&self) {
        fs::remove_file(&self.accepted).unwrap();
    }

    /// The fingerprints of what its calls were made with, in their order.
    pub(crate) fn shown(&self) -> Vec<String> {
        self.calls(true)
    }

    /// The fingerprints of what it did not take, and did nothing for.
    pub(crate) fn turned_away(&self) -> Vec<String> {
        self.calls(false)
    }

    fn calls(&self, taken: bool) -> Vec<String> {
        let text = fs::read_to_string(&self.record).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let calls = lines
            .filter(|line| line["message"]["method"] == "tools/call" && line["isTaken"] == taken);
        calls
            .map(|line| line["headers"]["authorization"].as_str().unwrap_or("none").to_owned())
            .collect()
    }
}

/// What the server notes of a secret.
pub(crate) fn fingerprint(secret: &str) -> String {
    let digest = Digest::of(format!("Bearer {secret}").as_bytes()).to_string();
    digest.trim_start_matches("sha256:").to_owned()
}

/// A Placet whose server wants a secret of the vault.
async fn behind(vault: &OpenBao, auth: &Value, secret: &str) -> (Setup, Server) {
    let setup = Setup::new()
        .with("vault", vault.section(auth))
        .with("trust", json!({ "roots": [vault.authority()] }))
        .with("secrets", json!({ "key": { "vault": secret } }));
    with_server(setup).await
}

/// A Placet whose server wants the secret `key`.
pub(crate) async fn with_server(setup: Setup) -> (Setup, Server) {
    let server = Server::start(&setup).await;
    let setup = setup
        .with("contracts", json!("contracts"))
        .with("telemetry", json!({ "log_filter": "trace" }));
    let import = ["adapters", "import", "--mode-default", "read_only", "--name", "remote"];
    let remote = ["--url", &server.url, "--private-network", "--credential", "key"];
    setup.configured(&[&import[..], &remote].concat()).await.ok();
    let mut contract = setup.read_contract("remote");
    let look = &mut contract["capabilities"]["look"];
    look["effect"] = json!("none");
    look.as_object_mut().unwrap().remove("dedup");
    (setup.contract("remote", &contract), server)
}

/// Ten callers at the same time for four seconds, every call of which must succeed; how many they were.
pub(crate) async fn load(agent: &Client) -> usize {
    let callers = (0..10).map(|caller| {
        let agent = agent.clone();
        tokio::spawn(async move {
            let (started, mut calls) = (Instant::now(), 0_usize);
            while started.elapsed() < Duration::from_secs(4) {
                look(&agent, &format!("load-{caller}-{calls}")).await.succeeded();
                calls = calls.saturating_add(1);
            }
            calls
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut calls = 0_usize;
    for caller in callers {
        calls = calls.saturating_add(caller.await.unwrap());
    }
    assert!(calls > 40, "{calls} calls are no load");
    calls
}

fn file_auth() -> Value {
    json!({ "method": "token_file", "file": "vault-token" })
}

/// A step that was not there before.
fn fresh() -> String {
    static STEPS: AtomicUsize = AtomicUsize::new(0);
    format!("fresh-{}", STEPS.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn look(agent: &Client, step: &str) -> Reply {
    let mut call = plan("remote__look", step, json!({ "what": "x" }));
    // A run of its own: a fast machine makes more calls than one run may.
    call["run"]["run_id"] = json!(format!("run-{step}"));
    agent.call(&call).await
}

/// Calls until one is made with `secret`; every one of them must succeed.
async fn until_shown(server: &Server, agent: &Client, secret: &str) {
    let wanted = fingerprint(secret);
    until("the secret is used", || async {
        look(agent, &fresh()).await.succeeded();
        server.shown().last() == Some(&wanted)
    })
    .await;
}

#[tokio::test]
async fn a_secret_in_the_vault_reaches_its_server_and_nobody_else_and_rotates_under_load() {
    let vault = OpenBao::start().await;
    let (first, second) = (plain_canary("first"), plain_canary("second"));
    let private = plain_canary("neighbour");
    vault.write("secret/data/tickets", &json!({ "key": first, "other": private, "n": 3 })).await;
    let token_file = tempfile::NamedTempFile::new().unwrap();
    let token = vault.token(READS, token_file.path()).await;
    let auth = json!({ "method": "token_file", "file": token_file.path() });
    let (setup, server) = behind(&vault, &auth, "secret/data/tickets#key").await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let answer = look(&agent, "s1").await;
    answer.succeeded();
    assert_eq!(server.shown(), [fingerprint(&first)]);
    server.takes_only(&first);

    // While ten call at the same time the secret changes, and the server learns of it only after us: no call is lost.
    let turn = async {
        sleep(Duration::from_secs(1)).await;
        vault.write("secret/data/tickets", &json!({ "key": second, "other": private })).await;
        until("the new one is shown and not taken", || async {
            server.turned_away().contains(&fingerprint(&second))
        })
        .await;
        sleep(Duration::from_millis(500)).await;
        server.takes_only(&second);
    };
    let (calls, ()) = tokio::join!(load(&agent), turn);
    let shown = server.shown();
    assert_eq!(shown.len(), calls.saturating_add(1), "each call reached its server once");
    let (old, new) = (fingerprint(&first), fingerprint(&second));
    let turned = shown.iter().position(|one| *one == new).expect("the new one was used");
    assert!(shown[turned..].iter().filter(|one| **one == old).count() <= 10, "it goes back");
    assert_eq!(shown.last(), Some(&new));

    // A newer token in the file is noticed, and the older one may go.
    let accessor = json!({ "token": token });
    let newer = vault.token(READS, token_file.path()).await;
    vault.put("auth/token/revoke", &accessor).await;
    let third = plain_canary("third");
    server.takes_all();
    vault.write("secret/data/tickets", &json!({ "key": third })).await;
    until_shown(&server, &agent, &third).await;

    let mut places = Places::default();
    places.add("an answer", answer.body.to_vec());
    for path in ["/metrics", "/readyz"] {
        places.add(path, placet.ask(path).await.body.to_vec());
    }
    places.add_folder(&setup.data());
    let log = placet.stop().await;
    assert!(log.contains("a secret in the vault was rotated"), "{log}");
    places.add("the log", log);
    let canaries = ["remote", &first, &second, &third, &private, &token, &newer];
    let hits = places.hits(&canaries);
    assert!(
        hits[0].iter().any(|place| place.contains("the log")),
        "the search finds what is there"
    );
    for (canary, places) in canaries.iter().zip(&hits).skip(1) {
        assert_eq!(places, &Vec::<String>::new(), "{canary}");
    }
}

#[tokio::test]
async fn what_is_deleted_is_taken_back_and_an_outage_is_outlived_for_a_bounded_time() {
    let vault = OpenBao::start().await;
    vault.write("secret/data/tickets", &json!({ "key": "one" })).await;
    let (setup, server) = {
        let token = tempfile::NamedTempFile::new().unwrap();
        vault.token(READS, token.path()).await;
        let auth = json!({ "method": "token_file", "file": token.path() });
        let made = behind(&vault, &auth, "secret/data/tickets#key").await;
        fs::copy(token.path(), made.0.path("vault-token")).unwrap();
        (made.0.with("vault", vault.section(&file_auth())), made.1)
    };
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    look(&agent, "s1").await.succeeded();

    // It hangs: what was read serves on, but not for ever.
    vault.signal(Signal::STOP);
    sleep(Duration::from_millis(1_500)).await;
    look(&agent, "s2").await.succeeded();
    until("what was read is too old", || async {
        let reply = look(&agent, &fresh()).await;
        reply.status == 502 && reply.json()["error_code"] == "CREDENTIAL_MISCONFIGURED"
    })
    .await;
    let before = server.shown().len();
    let refused = look(&agent, "s3").await;
    refused.refused(502, "CREDENTIAL_MISCONFIGURED");
    assert!(!refused.text().contains("vault"), "the caller learns nothing of it: {refused:?}");
    assert_eq!(server.shown().len(), before, "without a credential there is no call");
    vault.signal(Signal::CONT);
    // What is read from now on, and not what was asked for before it hung.
    vault.write("secret/data/tickets", &json!({ "key": "two" })).await;
    let wanted = fingerprint("two");
    until("it can be read again", || async {
        look(&agent, &fresh()).await.status == 200 && server.shown().last() == Some(&wanted)
    })
    .await;

    // It is gone, which is not an outage.
    vault.ask(Method::DELETE, "secret/metadata/tickets", &Value::Null).await;
    let deleted = Instant::now();
    until("it is taken back", || async { look(&agent, &fresh()).await.status == 502 }).await;
    assert!(deleted.elapsed() < Duration::from_millis(3_500), "sooner than it would be too old");
    let log = placet.stop().await;
    assert!(log.contains("a secret cannot be read from the vault"), "{log}");
}

/// Which roles the database has that the vault made, as the server would note them.
async fn roles(database: &Database) -> Vec<String> {
    let sql = "SELECT encode(sha256(convert_to('Bearer ' || rolname, 'UTF8')), 'hex') FROM pg_roles WHERE rolname LIKE 'v-%'";
    let rows = database.server.ask(sql).await.unwrap();
    rows.lines().map(str::to_owned).collect()
}

/// An engine that makes roles of a database which live so long.
async fn with_database(vault: &OpenBao, (life, longest): (&str, &str)) -> Database {
    let database = Database::start().await;
    database.server.ask("ALTER ROLE placet CREATEROLE").await.unwrap();
    vault.put("sys/mounts/database", &json!({ "type": "database" })).await;
    let connection = database.url.replace("placet@", "{{username}}:{{password}}@");
    let config = json!({
        "plugin_name": "postgresql-database-plugin", "allowed_roles": ["reader"], "connection_url": connection,
        "username": "placet", "password": "none",
    });
    vault.put("database/config/main", &config).await;
    let statement =
        "CREATE ROLE \"{{name}}\" WITH LOGIN PASSWORD '{{password}}' VALID UNTIL '{{expiration}}'";
    let role = json!({
        "db_name": "main", "creation_statements": [statement], "default_ttl": life, "max_ttl": longest,
    });
    vault.put("database/roles/reader", &role).await;
    database
}

/// Roles that the vault makes on demand, and a Placet whose tickets are behind one of them.
struct OnDemand {
    vault: OpenBao,
    database: Database,
    setup: Setup,
    server: Server,
    /// What it logs in with, for as long as this is kept.
    jwt: tempfile::NamedTempFile,
}

/// Leases live so long by themselves and in all, and so do log-ins.
async fn on_demand(lease: (&str, &str), login: (&str, &str)) -> OnDemand {
    let vault = OpenBao::start().await;
    let database = with_database(&vault, lease).await;
    let rules = r#"path "database/creds/reader" { capabilities = ["read"] }"#;
    vault.logins(rules, login).await;
    let jwt = tempfile::NamedTempFile::new().unwrap();
    fs::write(jwt.path(), vault.jwt("vault")).unwrap();
    let auth = json!({ "method": "jwt", "role": "placet", "file": jwt.path() });
    let (setup, server) = behind(&vault, &auth, "database/creds/reader#username").await;
    OnDemand { vault, database, setup, server, jwt }
}

#[tokio::test]
async fn credentials_made_on_demand_are_renewed_then_replaced_and_given_back_at_the_end() {
    let OnDemand { vault: _vault, database, setup, server, jwt: _jwt } =
        on_demand(("4s", "10s"), ("6s", "16s")).await;
    until("the import gives its own back", || async { roles(&database).await.is_empty() }).await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let (started, mut calls) = (Instant::now(), 0);
    // Longer than a lease and a token can live at most.
    while started.elapsed() < Duration::from_secs(24) {
        look(&agent, &format!("s{calls}")).await.succeeded();
        let shown = server.shown().pop().unwrap();
        assert!(roles(&database).await.contains(&shown), "call {calls} was made with a dead role");
        calls += 1;
        sleep(Duration::from_millis(200)).await;
    }
    let mut used = server.shown();
    used.dedup();
    assert!((2..=8).contains(&used.len()), "{} roles in 24 s: renewed, and replaced", used.len());
    assert_eq!(
        used.iter().collect::<std::collections::BTreeSet<_>>().len(),
        used.len(),
        "none comes back"
    );
    let log = placet.stop().await;
    until("every role is given back", || async { roles(&database).await.is_empty() }).await;
    assert!(!log.contains("cannot be read from the vault"), "{log}");
}

#[tokio::test]
async fn user_and_password_of_one_lease_belong_together_and_a_revoked_token_is_replaced() {
    let OnDemand { vault, database, setup, server, jwt: _jwt } =
        on_demand(("1h", "2h"), ("9s", "1h")).await;
    let both = json!({
        "key": { "vault": "database/creds/reader#username" },
        "password": { "vault": "database/creds/reader#password" },
    });
    let setup = setup.with("secrets", both);
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    look(&agent, "s1").await.succeeded();
    assert_eq!(roles(&database).await, server.shown(), "two fields of one lease, not two leases");
    // Somebody revokes every token of the method, and with them their leases.
    vault.ask(Method::PUT, "sys/leases/revoke-prefix/auth/jwt/login", &Value::Null).await;
    until("another role is there and in use", || async {
        let reply = look(&agent, &fresh()).await;
        let shown = server.shown();
        reply.status == 200
            && shown.last() != shown.first()
            && roles(&database).await.contains(shown.last().unwrap())
    })
    .await;
    assert!(placet.log().matches("logged in at the vault").count() >= 2);
    placet.stop().await;
}

#[tokio::test]
async fn a_start_without_its_secrets_says_what_is_wrong_and_whose_it_is_to_repair() {
    let vault = OpenBao::start().await;
    vault.write("secret/data/tickets", &json!({ "key": "one", "number": 7, "empty": "" })).await;
    vault.logins(READS, ("10m", "1h")).await;
    let token_file = tempfile::NamedTempFile::new().unwrap();
    let token = vault.token(READS, token_file.path()).await;
    let auth = json!({ "method": "token_file", "file": token_file.path() });
    let setup = Setup::new().with("trust", json!({ "roots": [vault.authority()] }));
    let entry = |text: &str| json!({ "key": { "vault": text } });
    let good = "secret/data/tickets#key";
    let mut setup = setup.with("vault", vault.section(&auth)).with("secrets", entry(good));
    let placet = setup.start().await;
    placet.stop().await;
    for (secret, words) in [
        ("secret/data/nothing#key", ["nothing at `secret/data/nothing`", "vault.namespace"]),
        ("secret/tickets#key", ["does not let us read `secret/tickets`", "policy"]),
        ("kv/data/tickets#key", ["does not let us read `kv/data/tickets`", "policy"]),
        ("secret/data/tickets#other", ["no field `other`", "<path>#<field>"]),
        ("secret/data/tickets#number", ["`number` is not text", "`secret/data/tickets`"]),
        ("secret/data/tickets#empty", ["`empty`: it is empty", "`secret/data/tickets`"]),
        ("secret/data/tickets", ["secrets.key.vault", "secret/data/tickets#key"]),
        ("sys/raw/x#y", ["secrets.key.vault", "must be"]),
    ] {
        setup = setup.with("secrets", entry(secret));
        setup.refuses().await.says(&words);
    }
    setup = setup.with("secrets", entry(good));
    let bad = tempfile::NamedTempFile::new().unwrap();
    fs::write(bad.path(), "kanarienvogel-token").unwrap();
    let jwt = tempfile::NamedTempFile::new().unwrap();
    fs::write(jwt.path(), vault.jwt("somebody-else")).unwrap();
    let file = |path: &Path| json!({ "method": "token_file", "file": path });
    for (auth, words) in [
        (file(bad.path()), ["does not accept our token", "vault.auth"]),
        (file(Path::new("nowhere")), ["the file that is named", "no such file"]),
        (
            json!({ "method": "jwt", "role": "placet", "file": jwt.path() }),
            ["refuses the log-in at `auth/jwt` as `placet`", "audience"],
        ),
        (
            json!({ "method": "jwt", "role": "placet", "file": jwt.path(), "mount": "kubernetes" }),
            ["refuses the log-in at `auth/kubernetes`", "vault.auth"],
        ),
    ] {
        setup = setup.with("vault", vault.section(&auth));
        let gone = setup.refuses().await;
        gone.says(&words);
        assert!(!gone.said.contains("kanarienvogel-token"), "{}", gone.said);
    }
    let section = |key: &str, value: Value| {
        let mut section = vault.section(&auth);
        section[key] = value;
        section
    };
    for (section, words) in [
        (section("address", json!("https://127.0.0.1:1/")), ["no connection to", "vault.address"]),
        (section("private_network", json!(false)), ["may not be dialled", "private_network"]),
        (section("address", json!("https://vault.example/v1/")), ["`vault`", "`address`"]),
        (section("namespace", json!("elsewhere")), ["the vault", "namespace"]),
        (Value::Null, ["`vault`", "needed by `secrets`"]),
    ] {
        setup = setup.with("vault", section);
        setup.refuses().await.says(&words);
    }
    setup = setup.with("vault", vault.section(&auth)).with("trust", json!({}));
    setup.refuses().await.says(&["no tls session", "trust.roots"]);
    setup = setup.with("trust", json!({ "roots": [vault.authority()] }));
    vault.ask(Method::PUT, "sys/seal", &Value::Null).await;
    let gone = setup.refuses().await;
    gone.says(&["503", "sealed", "sys/health"]);
    assert!(!gone.said.contains(&token));
}

#[tokio::test]
async fn doctor_reads_the_vault_and_leaves_nothing_leased_and_namespaces_are_kept_apart() {
    let vault = OpenBao::start().await;
    let database = with_database(&vault, ("1h", "2h")).await;
    let rules = r#"path "database/creds/reader" { capabilities = ["read"] }"#;
    vault.logins(rules, ("10m", "1h")).await;
    let jwt = tempfile::NamedTempFile::new().unwrap();
    fs::write(jwt.path(), vault.jwt("vault")).unwrap();
    let auth = json!({ "method": "jwt", "role": "placet", "file": jwt.path() });
    let setup = Setup::new()
        .with("trust", json!({ "roots": [vault.authority()] }))
        .with("vault", vault.section(&auth))
        .with("secrets", json!({ "user": { "vault": "database/creds/reader#username" } }));
    let secrets = |ran: &str| -> Value {
        let checks: Value = serde_json::from_str(ran).unwrap();
        checks.as_array().unwrap().iter().find(|check| check["about"] == "secrets").unwrap().clone()
    };
    let ran = setup.configured(&["doctor", "--json"]).await;
    let check = secrets(&ran.out);
    assert_eq!(
        (&check["level"], &check["found"]),
        (&json!("ok"), &json!("1 can be read, 1 entries of the vault among them"))
    );
    until("what doctor borrowed is back", || async { roles(&database).await.is_empty() }).await;
    // The same names in another namespace are other secrets, and other rights.
    vault.put("sys/namespaces/team", &json!({})).await;
    let mut section = vault.section(&auth);
    section["namespace"] = json!("team");
    let setup = setup.with("vault", section);
    let check = secrets(&setup.configured(&["doctor", "--json"]).await.out);
    assert_eq!(check["level"], "fail", "{check}");
    assert!(check["found"].as_str().unwrap().contains("auth/jwt"), "{check}");
}
