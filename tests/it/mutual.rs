//! Placet proves to a token service who it is with a certificate alone: to a real provider, over real TLS that asks for one.
//!
//! Owns the set-up and whose certificate counts. What is exchanged is tested in `exchange`.

use rcgen::SanType;
use serde_json::json;

use crate::{
    exchange::{DIRECTORY, Guarded, Provider},
    harness::{
        client::Reply,
        placet::Placet,
        search::{Places, pem_part},
        setup::{Setup, plan},
    },
    ingress::Mesh,
};

/// A set-up whose only token service takes certificates alone.
struct World {
    setup: Setup,
    provider: Provider,
    guarded: Guarded,
    port: u16,
    mesh: Mesh,
}

impl World {
    async fn new() -> Self {
        let setup = Setup::new().with("contracts", json!("contracts"));
        let mesh = Mesh::new(&setup);
        let files = ["api.pem", "api-key.pem", "ca.pem"];
        let (provider, port) = Provider::start_tls(&setup, files).await;
        let guarded = Guarded::start(&setup, &provider.issuer).await;
        std::fs::write(setup.path("directory.yaml"), DIRECTORY).unwrap();
        let import =
            ["adapters", "import", "--mode-default", "local_write", "--name", "mail", "--url"];
        setup.configured(&[&import[..], &[&guarded.url, "--private-network"]].concat()).await.ok();
        let mut contract = setup.read_contract("mail");
        contract["tenants"] = json!(["acme"]);
        contract["credential"] = json!({
            "type": "token_exchange", "sts": "mesh", "audience": "urn:mail-api", "scopes": ["mail.read"],
        });
        let service = json!({
            "name": "mesh", "issuer": provider.issuer, "token_endpoint": format!("https://127.0.0.1:{port}/token"),
            "client_id": "placet-tls", "client_auth": { "method": "tls_client_auth" }, "private_network": true,
        });
        let setup = setup
            .contract("mail", &contract)
            .with("directory", json!("directory.yaml"))
            .with("issuers", provider.issuers())
            .with("telemetry", json!({ "log_filter": "trace" }))
            .with("sts", json!([service]));
        Self { setup, provider, guarded, port, mesh }
    }

    /// Who Placet is to the token service: the owner of this certificate.
    fn known_by(self, certificate: &str) -> Self {
        let own = json!([{
            "for": format!("https://127.0.0.1:{}", self.port),
            "certificate": format!("{certificate}.pem"), "key": format!("{certificate}-key.pem"),
        }]);
        let setup = self.setup.with("trust", json!({ "roots": ["ca.pem"], "certificates": own }));
        Self { setup, ..self }
    }

    async fn search(&self, placet: &Placet, step: &str) -> Reply {
        let agent = placet.client(Some(self.provider.agent.clone()));
        let search = plan("mail__search", step, json!({ "what": "invoices" }));
        agent.call_with(&search, "placet-delegation", &self.provider.alice).await
    }
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

#[tokio::test]
async fn a_token_service_knows_us_by_our_certificate_and_by_no_other() {
    let world = World::new().await;
    world.mesh.issue(&world.setup, "own", dns("placet.example"));
    world.mesh.issue(&world.setup, "other", dns("other.example"));
    let world = world.known_by("own");
    let placet = world.setup.start().await;
    let result = world.search(&placet, "s1").await.succeeded();
    assert!(result.to_string().contains("urn:mail-api"), "{result:#}");
    assert_eq!(world.guarded.calls(), 1);
    let mut places = Places::default();
    places.add("the log", placet.stop().await);
    places.add_folder(&world.setup.data());
    assert!(places.has("the log", "mail") && places.has("ledger/journal", "mail"));
    let key = pem_part(&world.setup.path("own-key.pem"));
    assert_eq!(places.with(&key), Vec::<String>::new(), "our key");

    // Of the same authority, but somebody else's.
    let world = world.known_by("other");
    let placet = world.setup.start().await;
    let refused = world.search(&placet, "s2").await;
    refused.refused(502, "CREDENTIAL_MISCONFIGURED");
    placet.stop().await;

    // Of an authority that the service does not know, in the name that it does.
    let elsewhere = Setup::new();
    Mesh::new(&elsewhere).issue(&elsewhere, "forged", dns("placet.example"));
    for name in ["forged.pem", "forged-key.pem"] {
        std::fs::copy(elsewhere.path(name), world.setup.path(name)).unwrap();
    }
    let world = world.known_by("forged");
    let placet = world.setup.start().await;
    let refused = world.search(&placet, "s3").await;
    assert!([502, 503].contains(&refused.status), "{refused:?}");
    placet.stop().await;
    assert_eq!(world.guarded.calls(), 1, "no call without a credential");
}

#[tokio::test]
async fn without_a_certificate_for_the_service_there_is_no_start() {
    let world = World::new().await;
    world
        .setup
        .refuses()
        .await
        .says(&["nothing proves who we are to `mesh`", "trust.certificates"]);
    let unsafe_place = Setup::new().with(
        "sts",
        json!([{
            "name": "mesh", "issuer": "https://sts.example", "token_endpoint": "http://127.0.0.1:9/token",
            "client_id": "placet-tls", "client_auth": { "method": "tls_client_auth" }, "private_network": true,
        }]),
    );
    unsafe_place.refuses().await.says(&["token_endpoint"]);
}
