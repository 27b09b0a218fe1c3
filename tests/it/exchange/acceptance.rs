//! The acceptance tests of the specification of security (its section 2.10), by their names, against the provider.
//!
//! Owns the odd tokens and the second contracts; the provider signs the odd tokens itself, so that all else about them is right. Whatever is
//! refused is made good at the end of its test, in nothing but that one point, and is then taken. What cannot be seen from outside, the
//! words of `Debug` and each single field of a key, is tested under the same names in `placet-credentials`.

mod answers;
mod grants;
mod inbound;
mod reuse;

use std::fs;

use serde_json::Value;

use super::{World, search};
use crate::harness::client::{Client, Reply, text};

impl World {
    /// A token like alice's, with other claims and perhaps another type.
    async fn signed(&mut self, token: &Value) -> String {
        text(&self.provider.tell(&format!("sign {token}")).await, "token")
    }

    /// The agent's call for the bearer of another token.
    async fn call_for(&self, step: &str, token: &str) -> Reply {
        Self::call_as(&self.agent(), &search(step), token).await
    }

    /// A client's call for the bearer of a token.
    async fn call_as(client: &Client, submission: &Value, token: &str) -> Reply {
        client.call_with(submission, "placet-delegation", &format!("Bearer {token}")).await
    }

    /// That a token is not taken for one of the agent's user.
    async fn acts_not(&self, token: &str) {
        self.call_for("odd", token).await.refused(401, "UNAUTHENTICATED");
        assert_eq!(self.guarded.calls(), 0);
    }

    /// That a token is not taken at all, neither as the agent's user's nor as the caller's.
    async fn takes_not(&self, token: &str) {
        self.acts_not(token).await;
        let alone = self.placet.client(Some(token.to_owned()));
        alone.get("/v1/tools").await.refused(401, "UNAUTHENTICATED");
        alone.call(&search("odd")).await.refused(401, "UNAUTHENTICATED");
        assert_eq!(self.guarded.calls(), 0);
    }

    /// The exchanges that the provider was asked for so far: the form of each, and its headers.
    async fn asked(&mut self) -> Vec<Value> {
        self.provider.tell("asked").await["asked"].as_array().unwrap().clone()
    }

    /// Leaves a contract for the next start: like the one of the mail, for a server at `url`, with these words in its section on credentials.
    async fn leaves(&self, name: &str, url: &str, words: &Value) {
        let import = ["adapters", "import", "--name", name, "--url", url, "--private-network"];
        self.setup.configured(&import).await.ok();
        let (mail, mut other) = (self.setup.read_contract("mail"), self.setup.read_contract(name));
        other["credential"] = mail["credential"].clone();
        other["tenants"] = mail["tenants"].clone();
        for (name, capability) in other["capabilities"].as_object_mut().unwrap() {
            reads(capability, &mail["capabilities"][name]["mode"]);
        }
        for (key, value) in words.as_object().unwrap() {
            other["credential"][key] = value.clone();
        }
        fs::write(self.setup.contract_file(name), other.to_string()).unwrap();
    }
}

/// Makes a capability one that changes nothing, if it is of that mode.
fn reads(capability: &mut Value, mode: &Value) {
    if mode == "read_only" {
        capability["mode"] = mode.clone();
        capability["effect"] = "none".into();
        capability.as_object_mut().unwrap().remove("dedup");
    }
}
