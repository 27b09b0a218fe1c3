//! What a caller without valid credentials is told.

use axum::body::Body;
use http::Request;

use crate::{
    config::ServerConfig,
    testing::{Reply, TestApi},
};

fn asking(path: &str, token: Option<&str>) -> Request<Body> {
    let request = Request::get(path).header("host", "localhost:7411");
    match token {
        Some(token) => request.header("authorization", token),
        None => request,
    }
    .body(Body::empty())
    .unwrap()
}

fn challenge(reply: &Reply) -> &str {
    assert_eq!(reply.status.as_u16(), 401);
    reply.header("www-authenticate").unwrap()
}

#[tokio::test]
async fn anyone_who_shows_nothing_is_told_where_to_get_a_token() {
    let api = TestApi::new().await;
    let reply = api.send(asking("/v1/tools", None)).await;
    let metadata = "http://localhost:7411/.well-known/oauth-protected-resource";
    assert_eq!(challenge(&reply), format!("Bearer resource_metadata=\"{metadata}\""));
    let path = metadata.strip_prefix("http://localhost:7411").unwrap();
    let document = api.send(asking(path, None)).await;
    assert_eq!(document.status.as_u16(), 200);
    let document = document.json();
    assert_eq!(document["resource"], "http://localhost:7411");
    assert_eq!(document["bearer_methods_supported"], serde_json::json!(["header"]));
}

#[tokio::test]
async fn a_token_that_is_not_valid_is_named_so_and_not_why() {
    let api = TestApi::new().await;
    for token in ["Bearer forged", "Basic eDp5", "Bearer", "x\"y"] {
        let reply = api.send(asking("/v1/tools", Some(token))).await;
        let said = challenge(&reply);
        assert!(said.ends_with(", error=\"invalid_token\""), "{said}");
        assert!(!said.contains("forged"), "{said}");
    }
    assert!(api.get("/v1/tools").await.header("www-authenticate").is_none());
    assert!(api.get("/v1/none").await.header("www-authenticate").is_none());
}

#[tokio::test]
async fn the_public_address_and_the_issuers_are_those_of_the_configuration() {
    let config = ServerConfig {
        public_url: Some("https://placet.example/".parse().unwrap()),
        resource: Some("https://placet.example/v1".to_owned()),
        authorization_servers: vec!["https://idp.example".to_owned()],
        is_tls: true,
        allowed_hosts: ["placet.example".to_owned()].into(),
        ..ServerConfig::default()
    };
    let api = TestApi::with(config).await;
    let reply = api.send(asking("/v1/tools", None)).await;
    let metadata = "https://placet.example/.well-known/oauth-protected-resource";
    assert!(challenge(&reply).contains(metadata), "{}", challenge(&reply));
    let document = api.send(asking("/.well-known/oauth-protected-resource", None)).await.json();
    assert_eq!(document["resource"], "https://placet.example/v1");
    assert_eq!(document["authorization_servers"], serde_json::json!(["https://idp.example"]));
    assert_eq!(document["tls_client_certificate_bound_access_tokens"], true);
}

#[tokio::test]
async fn a_host_that_is_not_ours_is_not_repeated() {
    let api = TestApi::new().await;
    let request = Request::get("/v1/tools").header("host", "evil.example").body(Body::empty());
    let reply = api.send(request.unwrap()).await;
    assert_eq!(reply.status.as_u16(), 403);
    assert!(reply.header("www-authenticate").is_none());
    assert!(!reply.text().contains("evil.example"));
}
