//! What policies are told of how a caller proved who it is: with a real issuer, with SVIDs and with client certificates.
//!
//! Owns `attested`, `auth_type`, claims and scopes as a caller of the built program meets them. What a token must look like is tested in
//! `placet-identity`.

use std::fs;

use rcgen::SanType;
use serde_json::{Value, json};

use crate::{
    exchange::Provider,
    harness::{
        client::text,
        setup::{Setup, plan},
    },
    ingress::{Mesh, TrustDomain},
    mcp_clients::{capable, posted},
    workspace,
};

const AGENT: &str = "spiffe://prod.example/agent/dev-agent";
const DIRECTORY: &str = r#"{ "tenants": { "local": {
    "groups": { "approvers": {}, "freeze-approvers": {}, "emergency": {} },
    "users": { "ana": {}, "alice": {}, "ben": { "groups": ["approvers", "freeze-approvers", "emergency"] } },
    "agents": { "agent-1": { "owner": "ana", "classes": ["mailers"] } }, "classes": { "mailers": {} }
} } }"#;

fn read(step: &str) -> Value {
    plan("files__read", step, json!({ "path": "a.txt" }))
}

/// A set-up whose agents have tokens of the provider, which says this of itself.
fn trusting(provider: &Provider, more: Value) -> Setup {
    let mut issuers = provider.issuers();
    let issuer = issuers[0].as_object_mut().unwrap();
    issuer.remove("attests_workloads");
    issuer.insert("tenant".to_owned(), json!("local"));
    issuer.extend(more.as_object().unwrap().clone());
    let setup = Setup::new().with("directory", json!("directory.yaml")).with("issuers", issuers);
    fs::write(setup.path("directory.yaml"), DIRECTORY).unwrap();
    setup.put("a.txt", "hello");
    setup
}

/// With the shipped guards, and of permits these alone.
fn with_permits(setup: Setup, permits: &str) -> Setup {
    let folder = setup.path("policies");
    fs::create_dir(&folder).unwrap();
    for name in ["20-gates.cedar", "30-guards.cedar", "40-review.cedar", "50-directives.cedar"] {
        fs::copy(workspace::root().join("policies").join(name), folder.join(name)).unwrap();
    }
    fs::write(folder.join("10-permits.cedar"), permits).unwrap();
    setup.with("policies", json!("policies"))
}

#[tokio::test]
async fn shipped_policies_refuse_agents_whose_issuer_does_not_attest() {
    let provider = Provider::start(&Setup::new()).await;
    let setup = trusting(&provider, json!({}));
    let placet = setup.start().await;
    let agent = placet.client(Some(provider.agent.clone()));
    agent.call(&read("s1")).await.refused(403, "POLICY_DENIED");
    let log = placet.stop().await;
    assert!(log.contains("attests_workloads"), "the start says why: {log}");

    let setup = trusting(&provider, json!({ "attests_workloads": true }));
    let placet = setup.start().await;
    let agent = placet.client(Some(provider.agent.clone()));
    agent.call(&read("s1")).await.succeeded();
    let log = placet.stop().await;
    assert!(!log.contains("attests_workloads"), "{log}");
}

#[tokio::test]
async fn policies_decide_on_verified_claims_and_delegated_scopes() {
    const PERMITS: &str = r#"
@id("agents") permit (principal is Placet::Agent, action in Placet::Action::"tier_read_only", resource is Placet::Tool)
when {
  context.req.auth_type == Placet::AuthType::"jwt" && !context.req.attested && !(context.req has spiffe_id) &&
  context.req.claims.hasTag("client_id") && context.req.claims.getTag("client_id").contains("agent-1") &&
  principal has role && principal.role == "mailers" && principal.lifecycle == Placet::Lifecycle::"active" &&
  context.req has delegation && context.req.delegation.scopes.contains("invoke")
};
@id("users") permit (principal is Placet::User, action in Placet::Action::"tier_read_only", resource is Placet::Tool)
when {
  context.req has delegation && context.req.delegation.subject == "alice" && context.req.delegation_depth == 1 &&
  context.req.delegation.claims.hasTag("client_id") && context.req.delegation.claims.getTag("client_id").contains("app")
};"#;
    let provider = Provider::start(&Setup::new()).await;
    let shown = json!({ "policy_claims": ["client_id"] });
    let setup = with_permits(trusting(&provider, shown), PERMITS);
    let placet = setup.start().await;
    let agent = placet.client(Some(provider.agent.clone()));
    let alice = format!("Bearer {}", provider.alice);
    agent.call_with(&read("s1"), "placet-delegation", &alice).await.succeeded();
    // Without the scopes of a user, and for a user with another subject.
    agent.call(&read("s2")).await.refused(403, "POLICY_DENIED");
    let bob = format!("Bearer {}", provider.bob);
    agent.call_with(&read("s3"), "placet-delegation", &bob).await.refused(403, "POLICY_DENIED");
    placet.stop().await;
    // The same tokens, and no claim of them is for policies.
    let setup = with_permits(trusting(&provider, json!({})), PERMITS);
    let placet = setup.start().await;
    let agent = placet.client(Some(provider.agent.clone()));
    agent.call_with(&read("s4"), "placet-delegation", &alice).await.refused(403, "POLICY_DENIED");
}

/// Permits for the workload of [`AGENT`], proved in this way.
fn only_by(auth_type: &str) -> String {
    format!(
        r#"
@id("workload") permit (principal is Placet::Agent, action in [Placet::Action::"tier_read_only", Placet::Action::"tier_destructive"], resource is Placet::Tool)
when {{
  context.req.attested && context.req.auth_type == Placet::AuthType::"{auth_type}" &&
  context.req has spiffe_id && context.req.spiffe_id == "{AGENT}"
}};"#
    )
}

#[tokio::test]
async fn a_held_call_keeps_the_proof_it_was_made_with() {
    let domain = TrustDomain::new(7);
    let trusted = json!({
        "trust_domain": "prod.example", "tenant": "local", "audiences": ["placet"],
        "bundle": { "file": "bundle.json" }, "workloads": { "below": "/agent/", "shared_principals": true },
    });
    let setup = Setup::new()
        .with("trust_domains", json!([trusted]))
        .with("development_tokens", json!(true));
    fs::write(setup.path("bundle.json"), domain.bundle().to_string()).unwrap();
    let setup = with_permits(setup, &only_by("jwt_svid"));
    let file = setup.put("a.txt", "hello");
    let placet = setup.start().await;
    let workload = placet.client(Some(domain.svid(AGENT, "placet")));
    workload.call(&read("s1")).await.succeeded();
    // The same agent by the development key is attested, and proved otherwise.
    setup.agent(&placet).await.call(&read("s2")).await.refused(403, "POLICY_DENIED");
    let delete = plan("files__delete", "s3", json!({ "path": "a.txt" }));
    let held = workload.call(&delete).await.held();
    // The approver and the audit are told how the caller proved who it is.
    let ben = setup.ben(&placet).await;
    let shown = ben.get(&format!("/v1/approvals/{}", text(&held, "approval_id"))).await.ok();
    let caller = &shown["proposal"]["evidence"]["caller"];
    assert_eq!(
        (&caller["workload_identity"], &caller["auth_type"], &caller["attested"]),
        (&json!(AGENT), &json!("jwt_svid"), &json!(true)),
        "{caller:#}"
    );
    assert_eq!(caller["agent_urn"], "urn:placet:agent:local:dev-agent");
    let timeline = ben.get(&format!("/v1/calls/{}/timeline", text(&held, "call_id"))).await.ok();
    let steps = timeline["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["kind"] == "held").unwrap();
    assert_eq!(&step["caller"], caller);
    let printed = ["approvals", "show", &text(&held, "approval_id")];
    let printed = setup.asks(&placet, &setup.token("user", "ben").await, &printed).await;
    for words in ["proved by jwt_svid, attested", &format!("workload {AGENT}")] {
        assert!(printed.ok().contains(words), "{words}: {}", printed.ok());
    }
    // Decided upon again after a restart, with nothing in memory.
    placet.stop().await;
    let placet = setup.start().await;
    setup.ben(&placet).await.decide(&held, "approve").await.ok();
    let workload = placet.client(Some(domain.svid(AGENT, "placet")));
    workload.end_of(&text(&held, "call_id")).await.succeeded();
    assert!(!file.try_exists().unwrap());
}

#[tokio::test]
async fn a_client_certificate_with_a_spiffe_id_is_told_to_policies() {
    let authority = json!({
        "name": "mesh", "ca": "ca.pem", "tenant": "local", "trust_domain": "prod.example",
        "workloads": { "below": "/agent/", "shared_principals": true },
    });
    let setup = Setup::new()
        .with("tls", json!({ "certificate": "api.pem", "key": "api-key.pem" }))
        .with("client_authorities", json!([authority]));
    let mesh = Mesh::new(&setup);
    mesh.issue(&setup, "agent", SanType::URI(AGENT.try_into().unwrap()));
    setup.put("a.txt", "hello");
    let setup = with_permits(setup, &only_by("x509_svid"));
    let placet = setup.start().await;
    mesh.client(&setup, &placet, Some("agent")).call(&read("s1")).await.succeeded();
}

#[tokio::test]
async fn a_person_who_signed_in_to_an_mcp_client_calls_as_its_agent() {
    const PERMITS: &str = r#"
@id("agent-for-alice") permit (principal is Placet::Agent, action in Placet::Action::"tier_read_only", resource is Placet::Tool)
when {
  principal == Placet::Agent::"local/agent-1" &&
  context.req has delegation && context.req.delegation.subject == "alice" && context.req.delegation_depth == 1
};
@id("alice") permit (principal == Placet::User::"local/alice", action in Placet::Action::"tier_read_only", resource is Placet::Tool);"#;
    let provider = Provider::start(&Setup::new()).await;
    let acts = json!({ "clients": { "app": "agent-1" }, "act": { "clients": true } });
    let setup = with_permits(trusting(&provider, acts), PERMITS);
    let placet = setup.start().await;
    let read = async |token: &str| {
        let client = placet.client(Some(token.to_owned()));
        let params = json!({ "name": "files__read", "arguments": { "path": "a.txt" } });
        capable(&client, json!({}), "tools/call", "files__read", params).await
    };
    let result = read(&provider.alice).await;
    assert!(result["result"]["content"].to_string().contains("hello"), "{result:#}");
    // Another user is not whom the agent may read for, and the agent may not read for itself.
    for token in [&provider.bob, &provider.agent] {
        let refused = read(token).await;
        assert!(!refused.to_string().contains("hello"), "{refused:#}");
        assert!(
            refused["error"]["code"] == -32602 || refused["result"]["isError"] == true,
            "{refused:#}"
        );
    }
    // Who shows nothing is told where to sign in.
    let stranger = posted(&placet.client(None), "tools/list", "", "{}").await;
    assert_eq!(stranger.status, 401);
    let challenge = stranger.headers["www-authenticate"].to_str().unwrap();
    assert!(challenge.contains("/.well-known/oauth-protected-resource"), "{challenge}");
    placet.stop().await;
    // Where nobody says that the client acts, the user's token alone is refused.
    let setup =
        with_permits(trusting(&provider, json!({ "clients": { "app": "agent-1" } })), PERMITS);
    let placet = setup.start().await;
    let client = placet.client(Some(provider.alice.clone()));
    assert_eq!(posted(&client, "tools/list", "", "{}").await.status, 403);
}
