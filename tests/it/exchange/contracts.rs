//! Contracts whose section on credentials cannot be used: they stop the start.

use std::fs;

use serde_json::json;

use super::World;

#[tokio::test]
async fn a_contract_that_names_no_token_service_stops_the_start() {
    let world = World::new().await;
    world.placet.stop().await;
    for (key, value, word) in [
        (
            "sts",
            json!("elsewhere"),
            "names no token service of the configuration; those of `sts` are",
        ),
        ("scopes", json!(["mail.*"]), "wildcard"),
        ("type", json!("passthrough"), "token_exchange"),
        ("header", json!("Bearer geheim"), "no name of a header"),
        ("header", json!("mcp-session-id"), "belongs to the transport"),
        ("resource", json!("mail"), "absolute URI"),
    ] {
        let mut contract = world.setup.read_contract("mail");
        let good = contract.to_string();
        contract["credential"][key] = value;
        fs::write(world.setup.contract_file("mail"), contract.to_string()).unwrap();
        world.setup.refuses().await.says(&[word]);
        fs::write(world.setup.contract_file("mail"), good).unwrap();
    }
    let mut contract = world.setup.read_contract("mail");
    contract["credential"]["sts"] = json!("basic");
    contract["credential"]["actor"] = json!("gateway");
    fs::write(world.setup.contract_file("mail"), contract.to_string()).unwrap();
    world.setup.refuses().await.says(&["private_key_jwt"]);
}
