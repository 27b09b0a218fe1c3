//! What a child process may connect to, from its import on: what its contract says.
//!
//! Owns the confinement of an imported server; the rules themselves are tested where they are made. The server is `tests/peers/stub.mjs`, which
//! connects to a port before it answers. Needs a kernel with Landlock (Linux 6.7 or later), as a machine that runs these tests has.

use serde_json::json;
use tokio::net::TcpListener;

use crate::harness::{
    npm,
    setup::{Setup, plan},
};

const IMPORT: &[&str] =
    &["adapters", "import", "--name", "stub", "--mode-default", "read_only", "--stdio"];

#[tokio::test]
async fn a_server_opens_tcp_connections_only_where_its_contract_allows() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let command = ["--", &npm::node(), &npm::stub(), "dials", &port];
    let setup = Setup::new().with("contracts", json!("contracts"));
    let refused = setup.configured(&[IMPORT, &command].concat()).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("--network-unconfined"), "{refused:?}");

    setup.configured(&[IMPORT, &["--network-unconfined"], &command].concat()).await.ok();
    let mut contract = setup.read_contract("stub");
    assert_eq!(contract["transport"]["process"], json!({ "network": "unconfined" }));
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&plan("stub__look", "s1", json!({ "what": "x" }))).await.succeeded();
    placet.stop().await;

    contract["transport"].as_object_mut().unwrap().remove("process");
    let setup = setup.contract("stub", &contract);
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let call = plan("stub__look", "s2", json!({ "what": "x" }));
    agent.call(&call).await.refused(503, "ADAPTER_UNAVAILABLE");
}
