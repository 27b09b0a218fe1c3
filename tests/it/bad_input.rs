//! What is sent or configured wrongly: each thing is refused with a clear error, and nothing is executed.
//!
//! Owns the table. What a single parser refuses is tested where the parser is.

use std::fs;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use placet_identity::{DevKey, MintRequest};
use placet_testkit::clock::SystemClock;
use placet_types::{clock::Clock, principal::PrincipalKind};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::harness::{
    client::Client,
    npm,
    setup::{Setup, plan},
    within,
};

fn write() -> Value {
    plan("files__write", "s1", json!({ "path": "a.txt", "content": "x" }))
}

#[tokio::test]
async fn bodies_that_are_not_what_they_should_be_are_refused_with_the_place() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let good = write().to_string();
    let with = |name: &str, value: Value| {
        let mut call = write();
        call[name] = value;
        call.to_string()
    };
    let run = |value: Value| with("run", value);
    let table = [
        ("nothing", String::new(), None),
        ("half of it", good.split_at(good.len().div_euclid(2)).0.to_owned(), None),
        ("no JSON", "tool=files__write".to_owned(), None),
        ("something after it", format!("{good} {good}"), None),
        ("a list", format!("[{good}]"), None),
        ("a member twice", good.replacen('{', "{\"tool\": \"files__read\", ", 1), Some("/tool")),
        (
            "an argument twice",
            good.replace("\"content\"", "\"path\":\"b.txt\",\"content\""),
            Some("/args/path"),
        ),
        ("a member nobody knows", with("tol", json!("x")), None),
        ("a number for the tool", with("tool", json!(7)), Some("/tool")),
        ("a list of arguments", with("args", json!(["a.txt"])), Some("/args")),
        (
            "an argument of another type",
            with("args", json!({ "path": "a.txt", "content": 7 })),
            Some("/args/content"),
        ),
        (
            "an argument nobody knows",
            with("args", json!({ "path": "a", "content": "", "x": 1 })),
            Some("/args/x"),
        ),
        (
            "a mode nobody knows",
            with("approval_mode_requested", json!("mighty")),
            Some("/approval_mode_requested"),
        ),
        ("a wait without end", with("wait_ms", json!(600_001)), Some("/wait_ms")),
        ("a negative wait", with("wait_ms", json!(-1)), Some("/wait_ms")),
        ("no run", run(json!(null)), Some("/run")),
        ("a run without a name", run(json!({})), None),
        (
            "a budget nobody knows",
            run(json!({ "run_id": "r", "run_budget": { "calls": 1 } })),
            None,
        ),
        (
            "a number that does not survive",
            good.replace("\"x\"", "12345678901234567890"),
            Some("/args/content"),
        ),
        ("half a surrogate pair", good.replace("\"x\"", "\"\\ud800\""), None),
        ("who it is", with("tenant", json!("other")), None),
        ("depth", with("args", nested(200)), None),
    ];
    for (what, body, place) in table {
        let reply = agent.post_text("/v1/calls", body.clone()).await;
        let problem = reply.refused(400, "VALIDATION_ERROR");
        assert_eq!(problem["execution"], "not_executed", "{what}");
        if let Some(place) = place {
            assert!(reply.pointers().iter().any(|pointer| pointer == place), "{what}: {problem:#}");
        }
    }
    assert!(!setup.file("a.txt").try_exists().unwrap());
    agent.call(&write()).await.succeeded();
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!("deep"), |inner, _| json!({ "path": inner }))
}

#[tokio::test]
async fn a_body_of_ten_mebibytes_is_refused_and_the_next_call_is_served() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let huge =
        plan("files__write", "s1", json!({ "path": "a.txt", "content": "x".repeat(10 << 20) }));
    let problem = agent.call(&huge).await.refused(413, "VALIDATION_ERROR");
    assert!(problem["detail"].as_str().unwrap().contains("larger than"), "{problem:#}");
    assert!(!setup.file("a.txt").try_exists().unwrap());
    agent.call(&write()).await.succeeded();
}

#[tokio::test]
async fn routes_methods_media_types_and_queries_are_checked() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let post = |kind: &str| {
        let request = agent.request(http::Method::POST, "/v1/calls").header("content-type", kind);
        request.body(write().to_string().into()).unwrap()
    };
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1"]
    {
        agent.send(post(kind)).await.refused(415, "VALIDATION_ERROR");
    }
    let bare =
        agent.request(http::Method::POST, "/v1/calls").body(write().to_string().into()).unwrap();
    agent.send(bare).await.refused(415, "VALIDATION_ERROR");
    for path in [
        "/v1/tools?frob=1",
        "/v1/approvals?limit=0",
        "/v1/approvals?state=mighty",
        "/v1/ledger?limit=x",
        "/v1/approvals?state=pending&state=void",
    ] {
        agent.get(path).await.refused(400, "VALIDATION_ERROR");
    }
    for path in [
        "/v1/nothing",
        "/v2/calls",
        "/v1/calls/../../etc/passwd",
        "/v1/calls/not-an-id",
        "/metrics",
    ] {
        let reply = agent.get(path).await;
        assert!(matches!(reply.status, 404 | 405), "{path}: {reply:?}");
    }
    agent
        .send(agent.request(http::Method::DELETE, "/v1/calls").body(bytes::Bytes::new()).unwrap())
        .await
        .refused(405, "VALIDATION_ERROR");
    let foreign =
        agent.request(http::Method::GET, "/v1/tools").header("origin", "https://evil.example");
    let reply = agent.send(foreign.body(bytes::Bytes::new()).unwrap()).await;
    assert_eq!(reply.status, 403, "a script of another site: {reply:?}");
    assert!(!setup.file("a.txt").try_exists().unwrap());
}

#[tokio::test]
async fn bytes_that_are_no_http_and_hosts_that_are_not_ours_do_not_get_in() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let address = placet.base.socket_addrs(|| None).unwrap()[0];
    for (bytes, expected) in [
        (&b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03 what is this\r\n\r\n"[..], "HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nhost: rebound.example\r\nconnection: close\r\n\r\n", "HTTP/1.1 4"),
        (b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n", "HTTP/1.1 4"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        within("an answer", stream.read_to_end(&mut answer)).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(expected), "{:?}: {answer}", String::from_utf8_lossy(bytes));
    }
    setup.agent(&placet).await.get("/v1/tools").await.ok();
}

#[tokio::test]
async fn tools_that_do_not_exist_answer_like_tools_that_are_hidden() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    for tool in [
        "files__fly",
        "nothing__at_all",
        "files",
        "",
        "files__",
        "__",
        "files/read",
        &"x".repeat(300),
    ] {
        let reply = agent.call(&plan(tool, "s1", json!({}))).await;
        assert!(matches!(reply.status, 400 | 404), "{tool}: {reply:?}");
        assert_eq!(reply.json()["execution"], "not_executed");
    }
    let stranger = setup.client(&placet, "agent", "stranger").await;
    let mut hidden = stranger.call(&write()).await.refused(404, "TOOL_NOT_FOUND");
    let mut unknown = stranger
        .call(&plan("nothing__at-all", "s1", json!({})))
        .await
        .refused(404, "TOOL_NOT_FOUND");
    for document in [&mut hidden, &mut unknown] {
        for own in ["call_id", "trace_id", "policy_decision_id"] {
            document.as_object_mut().unwrap().remove(own);
        }
        for own in [
            "tool_call_id",
            "trace_id",
            "trace_context",
            "capability_id",
            "idempotency_key",
            "latency",
        ] {
            document["result"].as_object_mut().unwrap().remove(own);
        }
    }
    assert_eq!(hidden, unknown);
}

fn minted(key: &DevKey, audience: &str, clock: &dyn Clock) -> String {
    let agent = "dev-agent".parse().unwrap();
    key.mint(
        &MintRequest::new("local".parse().unwrap(), PrincipalKind::Agent, agent, audience),
        clock,
    )
    .unwrap()
}

/// A token with one part replaced.
fn altered(token: &str, part: usize, with: impl Fn(&str) -> String) -> String {
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    parts[part] = with(&parts[part]);
    parts.join(".")
}

fn encoded(document: &Value) -> String {
    URL_SAFE_NO_PAD.encode(document.to_string())
}

#[tokio::test]
async fn tokens_that_prove_nothing_are_refused() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let good = setup.token("agent", "dev-agent").await;
    let key = DevKey::load_or_create(&setup.data()).unwrap();
    let now = SystemClock::default();
    let old = SystemClock { moved_ms: -8 * 60 * 60 * 1_000 };
    let claims = good.split('.').nth(1).unwrap();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    let mut promoted = claims.clone();
    promoted["sub"] = json!("ben");
    let table = [
        ("none", None),
        ("an empty one", Some(String::new())),
        ("no token", Some("hunter2".to_owned())),
        ("an expired one", Some(minted(&key, "placet", &old))),
        ("one of another issuer", Some(minted(&DevKey::generate().unwrap(), "placet", &now))),
        ("one for another service", Some(minted(&key, "another-service", &now))),
        ("one with another claim", Some(altered(&good, 1, |_| encoded(&promoted)))),
        (
            "one with another signature",
            Some(altered(&good, 2, |part| part.chars().rev().collect())),
        ),
        ("one without a signature", Some(altered(&good, 2, |_| String::new()))),
        (
            "alg none",
            Some(altered(&altered(&good, 0, |_| encoded(&json!({ "alg": "none" }))), 2, |_| {
                String::new()
            })),
        ),
        ("alg HS256", Some(altered(&good, 0, |_| encoded(&json!({ "alg": "HS256", "kid": "x" }))))),
    ];
    for (what, token) in table {
        let client: Client = placet.client(token);
        for reply in [client.get("/v1/tools").await, client.call(&write()).await] {
            let code =
                if what == "an expired one" { "CREDENTIAL_EXPIRED" } else { "UNAUTHENTICATED" };
            let problem = reply.refused(401, code);
            let challenge = reply.headers["www-authenticate"].to_str().unwrap();
            assert!(challenge.starts_with("Bearer "), "{what}: {challenge}");
            assert!(challenge.contains("/.well-known/oauth-protected-resource"), "{challenge}");
            assert_eq!(problem["execution"], "not_executed");
            assert!(!reply.text().contains(good.split_at(20).0), "{what}");
        }
    }
    assert_eq!(
        placet.client(Some(minted(&key, "placet", &now))).get("/v1/tools").await.status,
        200,
        "the table would refuse all"
    );
    assert!(!setup.file("a.txt").try_exists().unwrap());
}

/// Starts on a configuration that must be refused, and checks what is said.
async fn refused(setup: &Setup, words: &[&str]) {
    let gone = setup.refuses().await;
    gone.says(words);
    assert!(!gone.said.contains("panicked"), "{}", gone.said);
}

#[tokio::test]
async fn a_configuration_that_is_wrong_is_refused_with_its_file_line_and_key() {
    let setup = Setup::new();
    let file = setup.path("placet.yaml");
    for (text, words) in [
        ("data: data\nlisten_on: 127.0.0.1:1\n", &["placet.yaml:2", "listen_on"][..]),
        ("data: data\nlimits:\n  calls_in_flight: 5\n", &["placet.yaml:3", "calls_in_flight"]),
        ("data: data\nhttp:\n  drain_ms: 0\n", &["placet.yaml:3", "between 1 and"]),
        ("data: data\naudit: { reads: sometimes }\n", &["placet.yaml:2", "sometimes"]),
        ("data: [\n", &["placet.yaml"]),
        ("data: data\ndata: other\n", &["placet.yaml:2", "data"]),
        ("data: data\nsecrets: { key: hunter2 }\n", &["placet.yaml:2"]),
        (
            "data: data\nsecrets: { key: '${ABSENT_VARIABLE}' }\n",
            // Not its name: what looks like one may be a secret that was pasted.
            &["secrets.key", "a variable that is not set"],
        ),
        ("data: data\nsecrets: { key: { file: nowhere.txt } }\n", &["placet.yaml", "secrets"]),
        ("data: data\npolicies: nowhere\n", &["nowhere", "cannot be used"]),
        ("data: data\ncontracts: nowhere\n", &["nowhere", "cannot be read"]),
        ("data: data\ndirectory: nowhere.yaml\n", &["nowhere.yaml"]),
    ] {
        fs::write(&file, text).unwrap();
        let gone = setup.refuses_with(&file).await;
        gone.says(words);
        assert!(!gone.said.contains("hunter2") && !gone.said.contains("panicked"), "{}", gone.said);
    }
    let absent = setup.path("absent.yaml");
    setup.refuses_with(&absent).await.says(&["absent.yaml"]);
}

#[tokio::test]
async fn a_policy_that_is_wrong_is_refused_at_start_with_its_file_and_line() {
    let setup = Setup::new().with("policies", json!("policies"));
    let folder = setup.path("policies");
    fs::create_dir(&folder).unwrap();
    let scope = "principal is Placet::Agent, action in Placet::Action::\"tier_read_only\", resource is Placet::Tool";
    let permit = format!("@id(\"p\")\n@reason(\"r\")\npermit ({scope})");
    for (text, words) in [
        (format!("{permit}\nwhen {{ principal.actve }};\n"), &["mine.cedar:4", "actve"][..]),
        (format!("{permit}\nwhen {{\n"), &["mine.cedar:"]),
        (format!("{permit};\n{permit};\n"), &["mine.cedar:", "`p`"]),
        (
            permit.replace(
                "in Placet::Action::\"tier_read_only\"",
                "== Placet::Action::\"files/fly\"",
            ) + ";",
            &["mine.cedar:", "files/fly"],
        ),
    ] {
        fs::write(folder.join("mine.cedar"), text).unwrap();
        refused(&setup, words).await;
        let checked = setup.configured(&["policy", "check"]).await;
        assert_ne!(checked.code, Some(0), "{checked:?}");
    }
    fs::remove_file(folder.join("mine.cedar")).unwrap();
    refused(&setup, &["no `*.cedar`"]).await;
}

#[tokio::test]
async fn a_policy_that_would_not_be_read_is_refused_by_name() {
    let setup = Setup::new().with("policies", json!("policies"));
    let folder = setup.path("policies");
    fs::create_dir_all(folder.join("more/deep")).unwrap();
    let permit = "@id(\"ID\") permit (principal is Placet::Agent, action in Placet::Action::\"tier_read_only\", resource is Placet::Tool);";
    fs::write(folder.join("good.cedar"), permit.replace("ID", "good")).unwrap();
    setup.configured(&["policy", "check"]).await.ok();
    for (name, why) in [
        ("more/deep/sub.cedar", "subfolder"),
        ("loud.CEDAR", "lower case"),
        (".hidden.cedar", "hidden"),
    ] {
        fs::write(folder.join(name), permit.replace("ID", "astray")).unwrap();
        refused(&setup, &[name, why]).await;
        let checked = setup.configured(&["policy", "check"]).await;
        assert!(checked.code != Some(0) && checked.err.contains(name), "{checked:?}");
        fs::remove_file(folder.join(name)).unwrap();
    }
}

#[tokio::test]
async fn a_policy_about_a_group_that_nobody_has_is_refused() {
    let setup = Setup::new().with("policies", json!("policies"));
    let folder = setup.path("policies");
    fs::create_dir(&folder).unwrap();
    let text = "@id(\"p\")\npermit (\n  principal is Placet::User,\n  action in Placet::Action::\"tier_read_only\",\n  resource is Placet::Tool\n)\nwhen { principal in Placet::Group::\"local/aprovers\" };\n";
    fs::write(folder.join("mine.cedar"), text).unwrap();
    let words = ["mine.cedar:7", "no group `local/aprovers`", "did you mean `local/approvers`?"];
    refused(&setup, &words).await;
    let checked = setup.configured(&["policy", "check"]).await;
    assert_ne!(checked.code, Some(0), "{checked:?}");
}

#[tokio::test]
async fn a_contract_that_is_wrong_is_refused_at_start_with_its_file() {
    let good = npm::stub_contract("stub", &["good"]);
    let with = |pointer: &str, name: &str, value: Value| {
        let mut contract = good.clone();
        contract.pointer_mut(pointer).unwrap()[name] = value;
        contract
    };
    let note = "/capabilities/note";
    for (contract, words) in [
        (with("", "contract_version", json!("v9")), &["stub.yaml", "contract_version"][..]),
        (with("", "capabilites", json!({})), &["stub.yaml", "capabilites"]),
        (with("", "adapter", json!("other")), &["stub.yaml", "the same"]),
        (with("", "environment", json!("prod")), &["stub.yaml", "environment"]),
        (with(note, "mode", json!("mighty")), &["stub.yaml", "mode"]),
        (with(note, "effect", json!("none")), &["stub.yaml"]),
        (with(note, "pin", json!("sha256:zz")), &["stub.yaml"]),
        (
            with("/transport", "env", json!({ "KEY": { "secret": "absent" } })),
            &["stub.yaml", "`transport.env.KEY.secret`", "names no secret"],
        ),
        // What stands there is not repeated: it may be a value that was pasted.
        (
            with("", "credential", json!({ "secret": "absent" })),
            &["stub.yaml", "`credential.secret`", "names no secret"],
        ),
    ] {
        let setup = Setup::new().contract("stub", &contract);
        refused(&setup, words).await;
    }
    let setup = Setup::new().contract("stub", &good);
    fs::write(setup.contract_file("stub"), "adapter: [").unwrap();
    refused(&setup, &["stub.yaml"]).await;
    fs::remove_file(setup.contract_file("stub")).unwrap();
    fs::create_dir(setup.contract_file("stub")).unwrap();
    refused(&setup, &["stub.yaml"]).await;
}

#[tokio::test]
async fn listeners_that_others_could_reach_are_refused_without_issuers() {
    let open = Setup::new().arg("--listen").arg("0.0.0.0:0");
    refused(&open, &["without issuers"]).await;
    let admin = Setup::new().arg("--admin-listen").arg("0.0.0.0:0");
    refused(&admin, &["admin"]).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = Setup::new().arg("--listen").arg(&taken.local_addr().unwrap().to_string());
    refused(&busy, &["cannot bind"]).await;
}

#[tokio::test]
async fn a_data_folder_that_cannot_be_used_is_refused() {
    let setup = Setup::new().with("data", json!("a-file"));
    fs::write(setup.path("a-file"), "x").unwrap();
    refused(&setup, &["data folder"]).await;
}

#[tokio::test]
async fn wrong_use_of_the_command_line_has_an_exit_code_of_its_own() {
    let setup = Setup::new();
    for words in [
        &["fly"][..],
        &["serve", "--frob"],
        &["token", "robot", "x"],
        &["call"],
        &["ledger", "resolve"],
    ] {
        let ran = setup.bare(words).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{ran:?}");
    }
    let without_token = setup.bare(&["tools"]).await;
    assert_eq!(without_token.code, Some(2));
    assert!(without_token.err.contains("PLACET_TOKEN"), "{without_token:?}");
}
