//! Tests of the configuration: defaults, refusals, secrets, listeners.

use std::{fs, path::Path};

use placet_identity::KeySource;
use placet_telemetry::export::OtlpProtocol;
use secrecy::ExposeSecret as _;

use super::{
    file::ConfigFile,
    load::{Config, ConfigArgs},
};
use crate::environment::Environment;

fn load_in(dir: &Path, text: &str, environment: &Environment) -> Result<Config, String> {
    let path = dir.join("placet.yaml");
    fs::write(&path, text).unwrap();
    let args = ConfigArgs { config: Some(path), data: None, ledger: None };
    let config = Config::load(&args, environment).map_err(|failure| failure.to_string())?;
    config.check_secrets().map_err(|failure| failure.to_string())?;
    Ok(config)
}

fn load(text: &str) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    load_in(dir.path(), text, &Environment::of([("TOKEN", "s3cret"), ("EMPTY", "")]))
}

#[test]
fn an_empty_file_means_the_defaults() {
    let config = load("{}").unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:7411");
    assert_eq!(config.server.admin_listen.to_string(), "127.0.0.1:7412");
    assert!(config.data.ends_with("placet-data"));
    assert!(config.development_tokens && config.identity.issuers.is_empty());
    assert!(!config.settings.durable_reads);
    assert_eq!(config.settings.operators.as_str(), "operators");
    config.check_listeners().unwrap();
}

#[test]
fn an_unknown_key_is_an_error_with_its_line_wherever_it_is() {
    for (text, place) in [
        ("data: x\nlisen: 127.0.0.1:1\n", "placet.yaml:2: `lisen`"),
        ("limits:\n  calls_max: 1\n", "placet.yaml:2: `limits.calls_max`"),
        ("audit:\n  writes: durable\n", "placet.yaml:2: `audit.writes`"),
    ] {
        let error = load(text).unwrap_err();
        assert!(error.contains(place) && error.contains("unknown field"), "{error}");
    }
}

#[test]
fn a_bad_value_is_an_error_with_its_line_and_key() {
    for (text, place) in [
        ("listen: here\n", "placet.yaml:1: `listen`"),
        ("environment: Not Lower\n", "placet.yaml:1: `environment`"),
        (
            "limits:\n  stage_workers: 0\n",
            "placet.yaml:2: `limits.stage_workers`: 0 is not between 1 and 64",
        ),
        ("telemetry:\n  sample_ratio: 2\n", "placet.yaml:2: `telemetry.sample_ratio`"),
        (
            "telemetry:\n  otlp:\n    endpoint: nowhere\n",
            "placet.yaml:3: `telemetry.otlp.endpoint`",
        ),
        ("audit:\n  reads: sometimes\n", "placet.yaml:2: `audit.reads`"),
        ("issuers:\n  - issuer: x\n    tenant: a b\n", "placet.yaml:3: `issuers[0].tenant`"),
        ("audience: ''\n", "`audience`: is empty"),
    ] {
        let error = load(text).unwrap_err();
        assert!(error.contains(place), "expected {place} in: {error}");
    }
}

#[test]
fn a_secret_comes_from_the_environment_or_a_file_and_never_from_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("key.txt"), "from-file\n").unwrap();
    let environment = Environment::of([("TOKEN", "s3cret")]);
    let text = "secrets:\n  a: ${TOKEN}\n  b: { env: TOKEN }\n  c: { file: key.txt }\n";
    let config = load_in(dir.path(), text, &environment).unwrap();
    for (name, value) in [("a", "s3cret"), ("b", "s3cret"), ("c", "from-file")] {
        assert_eq!(config.secrets.get(name).unwrap().expose_secret(), value);
    }
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn a_secret_that_is_missing_empty_or_written_out_is_refused() {
    for (text, expected) in [
        ("secrets: { a: '${MISSING}' }", "`${…}` names a variable that is not set"),
        ("secrets: { a: '${plain_text_secret}' }", "`secrets.a`: `${…}` names a variable"),
        ("secrets: { a: { file: plain-text-secret } }", "there is no such file"),
        ("secrets: { a: { file: plain-text/secret } }", "there is no such file"),
        ("secrets: { a: { env: plain-text-secret } }", "`env` names a variable that is not set"),
        ("secrets: { a: { env: EMPTY } }", "`env` names a variable that is not set"),
        ("secrets: { a: { file: nowhere.txt } }", "cannot be read"),
        ("secrets: { a: plain-text-secret }", "a secret is written"),
        ("secrets: { a: 'x${TOKEN}' }", "a secret is written"),
        ("secrets: { a: { env: TOKEN, extra: 1 } }", "a secret is written"),
    ] {
        let error = load(text).unwrap_err();
        let repeats = error.contains("plain-text") || error.contains("plain_text");
        assert!(error.contains(expected) && !repeats, "{error}");
    }
}

#[test]
fn interpolation_is_for_secrets_only() {
    assert!(load("data: ${TOKEN}").unwrap().data.ends_with("${TOKEN}"));
}

#[test]
fn a_listener_for_others_needs_issuers_and_refuses_development_tokens() {
    let open = load("listen: 0.0.0.0:7411").unwrap().check_listeners().unwrap_err().to_string();
    assert!(open.contains("without issuers"), "{open}");

    let issuer = "issuers:\n  - issuer: https://id.example\n    tenant: acme\n    audiences: [placet]\n    \
                  keys: { file: jwks.json }\n    kinds: { fixed: agent }\n";
    let config = load(&format!("listen: 0.0.0.0:7411\n{issuer}")).unwrap();
    assert!(!config.development_tokens);
    assert!(
        matches!(&config.identity.issuers[0].keys, KeySource::File(path) if path.is_absolute())
    );
    config.check_listeners().unwrap();

    let both = load(&format!("listen: 0.0.0.0:7411\ndevelopment_tokens: true\n{issuer}")).unwrap();
    assert!(both.check_listeners().unwrap_err().to_string().contains("development tokens"));
    let admin = load("admin_listen: '[::]:7412'").unwrap();
    assert!(admin.check_listeners().unwrap_err().to_string().contains("admin listener"));
    load("admin_listen: '[::]:7412'\nadmin_open: true").unwrap().check_listeners().unwrap();
    let twice = load("listen: 127.0.0.1:7412").unwrap().check_listeners().unwrap_err().to_string();
    assert!(twice.contains("are both 127.0.0.1:7412"), "{twice}");
}

#[test]
fn development_tokens_are_refused_under_a_name_that_others_use() {
    let issuer = "issuers:\n  - issuer: https://id.example\n    tenant: acme\n    audiences: [placet]\n    \
                  keys: { file: jwks.json }\n    kinds: { fixed: agent }\n";
    for (key, text) in [
        ("console.public_url", "console: { public_url: 'https://placet.example' }"),
        ("http.allowed_hosts", "http: { allowed_hosts: [localhost, 'placet.example:443'] }"),
        ("http.allowed_hosts", "http: { allowed_hosts: ['[2001:db8::1]:443'] }"),
        ("http.allowed_origins", "http: { allowed_origins: ['https://tools.example'] }"),
        ("audience", "audience: https://placet.example/"),
    ] {
        let refused = load(text).unwrap().check_listeners().unwrap_err().to_string();
        for word in [key, "development tokens", "issuers"] {
            assert!(refused.contains(word), "{text}: {refused}");
        }
        load(&format!("{text}\n{issuer}")).unwrap().check_listeners().unwrap();
        let both = load(&format!("{text}\n{issuer}development_tokens: true")).unwrap();
        assert!(both.check_listeners().is_err(), "{text}");
    }
    for text in [
        "console: { public_url: 'https://localhost:8443' }",
        "http: { allowed_hosts: [localhost, '127.0.0.1:80', '[::1]'], allowed_origins: ['http://127.0.0.2:3000'] }",
        "audience: urn:placet",
        "audience: http://127.0.0.1:7411",
    ] {
        load(text).unwrap().check_listeners().unwrap();
    }
}

#[test]
fn the_collector_of_the_file_wins_over_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment::of([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_SERVICE_NAME", "from-environment"),
        ("KEY", "k"),
    ]);
    let text = "secrets: { key: '${KEY}' }\ntelemetry:\n  otlp:\n    endpoint: http://127.0.0.1:4318\n    \
                protocol: http/protobuf\n    headers: { X-Key: { secret: key } }\n";
    let config = load_in(dir.path(), text, &environment).unwrap();
    let otlp = config.telemetry.otlp.unwrap();
    assert_eq!((otlp.endpoint.port(), otlp.protocol), (Some(4318), OtlpProtocol::HttpProtobuf));
    assert_eq!(otlp.headers[0].0, "x-key");
    assert_eq!(config.telemetry.service_name, "from-environment");

    let plain = load_in(dir.path(), "{}", &environment).unwrap();
    assert_eq!(plain.telemetry.otlp.unwrap().endpoint.port(), Some(1));
}

#[test]
fn a_value_in_the_place_of_a_secrets_name_is_not_repeated() {
    let environment = Environment::of([("KEY", "k")]);
    let issuer = "issuers:\n  - { issuer: 'https://id.example', tenant: acme, audiences: [placet], keys: { file: jwks.json }, kinds: { fixed: user } }\n";
    let sts = |auth: &str| {
        format!(
            "sts:\n  - {{ name: corp, issuer: 'https://id.example', token_endpoint: 'https://id.example/token', client_id: placet, client_auth: {{ {auth} }} }}\n"
        )
    };
    let channel =
        |to: &str| format!("notifications: {{ channels: {{ ops: {{ to: {{ {to} }} }} }} }}\n");
    for (place, text) in [
        (
            "telemetry.otlp.headers.X-Key.secret",
            "telemetry: { otlp: { endpoint: 'http://127.0.0.1:4318', headers: { X-Key: { secret: hunter2 } } } }\n".to_owned(),
        ),
        ("sts", sts("method: client_secret_basic, secret: hunter2")),
        ("sts", sts("method: client_secret_post, secret: hunter2")),
        ("sts", sts("method: private_key_jwt, key: hunter2")),
        ("sts", sts("method: spiffe_jwt, svid: hunter2")),
        (
            "console.sign_in.client_secret",
            format!(
                "{issuer}console: {{ sign_in: {{ issuer: 'https://id.example', client_id: console, client_secret: hunter2 }} }}\n"
            ),
        ),
        ("channels.ops.to.key", channel("type: webhook, url: 'https://h.example', key: hunter2")),
        (
            "channels.ops.to.old_key",
            channel("type: webhook, url: 'https://h.example', key: api, old_key: hunter2"),
        ),
        (
            "channels.ops.to.url.secret",
            channel("type: slack, url: { secret: hunter2, origin: 'https://h.example' }"),
        ),
        (
            "channels.ops.to.password",
            channel("type: email, host: mail.example, from: p@mail.example, to: a@mail.example, user: p, password: hunter2"),
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let load = |text: &str| {
            load_in(dir.path(), &format!("secrets: {{ api: '${{KEY}}' }}\n{text}"), &environment)
        };
        let error = load(&text).unwrap_err();
        assert!(!error.contains("hunter2"), "what may be a value is repeated: {error}");
        let says = "names no secret of the configuration; those of `secrets` are `api`";
        assert!(error.contains(place) && error.contains(says), "{error}");
        if !text.contains("svid") && !text.contains("private_key") {
            load(&text.replace("hunter2", "api")).unwrap();
        }
    }
}

#[test]
fn the_published_schema_has_every_key_and_closes_every_object() {
    let schema = serde_json::to_value(placet_types::schemas::of::<ConfigFile>()).unwrap();
    let defaults = serde_json::to_value(ConfigFile::default()).unwrap();
    let listed: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    let known: Vec<&String> = defaults.as_object().unwrap().keys().collect();
    assert_eq!(listed.len(), known.len());
    assert_eq!(schema["additionalProperties"], serde_json::json!(false));
    let written = serde_saphyr::to_string(&ConfigFile::default()).unwrap();
    assert!(load(&written).is_ok(), "the defaults, written out, are a valid file:\n{written}");
}

#[test]
fn the_limits_of_the_api_are_the_files_and_its_defaults_are_the_listeners_own() {
    let limits = |server: placet_api::config::ServerConfig| {
        [
            server.connections_per_address_max.0,
            server.header_timeout_ms.0,
            server.request_timeout_ms.0,
            server.heartbeat_ms.0,
            server.stream_ms_max.0,
        ]
    };
    let defaults = load("{}").unwrap().server;
    assert_eq!(limits(defaults), limits(placet_api::config::ServerConfig::default()));
    let http = "http: { connections_per_address_max: 500, header_timeout_ms: 5000, request_timeout_ms: 6000, heartbeat_ms: 8000, \
                stream_ms_max: 90000 }";
    let server = load(http).unwrap().server;
    assert_eq!(limits(server), [500, 5_000, 6_000, 8_000, 90_000]);
}

#[test]
fn a_limit_of_the_api_out_of_its_bounds_is_an_error_with_its_line() {
    for (key, value, bounds) in [
        ("connections_per_address_max", 0, "1 and 65536"),
        ("header_timeout_ms", 999, "1000 and 600000"),
        ("request_timeout_ms", 3_600_001, "1000 and 3600000"),
        ("heartbeat_ms", 0, "1000 and 600000"),
        ("stream_ms_max", 86_400_001, "60000 and 86400000"),
    ] {
        let error = load(&format!("http:\n  {key}: {value}\n")).unwrap_err();
        let wanted = format!("placet.yaml:2: `http.{key}`: {value} is not between {bounds}");
        assert!(error.contains(&wanted), "{error}");
    }
    let error = load("http: { connections_max: 8 }").unwrap_err();
    assert!(error.contains("`http.connections_per_address_max`: must not be more"), "{error}");
}
