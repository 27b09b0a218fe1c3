//! What became of a call, as the command line of the built program tells it: to the agent, to the approver, and to those who look later. Withdrawing a call is one of the ways in which it ends.

use std::fs;

use serde_json::Value;

use crate::{
    harness::{
        client::text,
        placet::Placet,
        setup::{Ran, Setup},
        until,
    },
    mcp::stub,
};

/// A running Placet with the stub, whose `erase` is destructive, and `files`; with the tokens of the agent and of an approver.
struct World {
    setup: Setup,
    placet: Placet,
    agent: String,
    ben: String,
}

impl World {
    async fn on(setup: Setup) -> Self {
        let placet = setup.start().await;
        let (agent, ben) =
            (setup.token("agent", "dev-agent").await, setup.token("user", "ben").await);
        Self { setup, placet, agent, ben }
    }

    /// The agent types `placet call …`, in the run and under the request `name`.
    async fn calls(&self, name: &str, call: &[&str]) -> Ran {
        let run = ["--run", name, "--request", name, "--mode", "destructive"];
        let words = [&["call"], call, &run].concat();
        self.setup.asks(&self.placet, &self.agent, &words).await
    }

    /// The same of a call that is held: the id of its approval and of itself.
    async fn held(&self, name: &str, call: &[&str]) -> (String, String) {
        let held = self.calls(name, &[call, &["--json"]].concat()).await;
        assert_eq!(held.code, Some(4), "{held:?}");
        let held: Value = serde_json::from_str(&held.out).unwrap();
        (text(&held, "approval_id"), text(&held, "tool_call_id"))
    }

    /// Ben types `placet approvals …`.
    async fn approvals(&self, words: &[&str]) -> Ran {
        self.setup.asks(&self.placet, &self.ben, &[&["approvals"], words].concat()).await
    }

    /// Ben agrees, and looks until `words` are shown.
    async fn approves(&self, id: &str, words: &str) -> Ran {
        let shown = self.approvals(&["show", id, "--json"]).await.json();
        let digest = text(&shown["approval"], "digest");
        self.approvals(&["approve", id, "--reason", "agreed", "--digest", &digest]).await.ok();
        let show = ["show", id];
        until(words, || async { self.approvals(&show).await.ok().contains(words) }).await;
        self.approvals(&show).await
    }
}

#[tokio::test]
async fn every_end_of_a_call_is_told_by_its_name() {
    let world = World::on(stub("good").await.files_contract()).await;
    let file = world.setup.put("gone.txt", "x");
    world.setup.put("there.txt", "x");
    let gone = ["files__delete", "--arg", "path=gone.txt"];
    let there = ["files__delete", "--arg", "path=there.txt"];
    let silent = ["stub__erase", "--arg", "what=waits", "--latency-ms", "1500"];
    for (state, said, exit, call) in [
        ("failed", "failed", 1, &gone[..]),
        ("succeeded", "succeeded", 0, &there),
        ("unknown", "outcome unknown", 6, &silent),
    ] {
        let (approval, id) = world.held(state, call).await;
        if state == "failed" {
            fs::remove_file(&file).unwrap();
        }
        let shown = world.approves(&approval, &format!("  outcome   {said}")).await;
        let explains = shown.out.contains("  the error says\n    | ");
        assert_eq!(explains, state != "succeeded", "{shown:?}");
        assert!(shown.out.starts_with("agent dev-agent called "), "{shown:?}");
        // What the agent gets when it collects the result; what failed before it was executed would be asked about once more.
        if state != "failed" {
            let collected = world.calls(state, call).await;
            assert_eq!(collected.code, Some(exit), "{collected:?}");
        }

        let listed = world.approvals(&["list", "--state", state]).await;
        assert!(listed.ok().contains(&approval) && listed.out.contains(said), "{listed:?}");
        for wrong in ["WAITS", "ENDS", "WOULD RUN"] {
            assert!(!listed.out.contains(wrong), "{listed:?}");
        }
        let timeline = world.approvals(&["timeline", &id]).await;
        assert!(timeline.ok().contains(&format!("  {said}  ")), "{timeline:?}");
        for wrong in ["settled", "failed_final", "indeterminate"] {
            assert!(!timeline.out.contains(wrong), "{timeline:?}");
        }
    }
    let read = ["stub__look", "--arg", "what=waits", "--latency-ms", "1500"];
    let read = world.calls("read", &read).await;
    assert_eq!(read.code, Some(1), "{read:?}");
    assert!(read.out.contains("stub/look failed"), "{read:?}");
}

#[tokio::test]
async fn an_approver_is_told_what_holds_the_call_up() {
    let setup = stub("good").await;
    let mut contract = setup.read_contract("stub");
    contract["transport"]["command"] = "/nowhere/node".into();
    fs::write(setup.contract_file("stub"), contract.to_string()).unwrap();
    let world = World::on(setup).await;
    let (approval, _) = world.held("r1", &["stub__erase", "--arg", "what=x"]).await;
    let shown = world.approves(&approval, "  held up   the tool cannot be reached").await;
    assert!(shown.out.contains("approved, not sent yet"), "{shown:?}");
}

#[tokio::test]
async fn a_mode_without_a_ceiling_leaves_that_of_an_open_run() {
    let world = World::on(Setup::new()).await;
    let call = |words: &'static str| {
        let words: Vec<&str> = std::iter::once("call").chain(words.split(' ')).collect();
        let world = &world;
        async move { world.setup.asks(&world.placet, &world.agent, &words).await }
    };
    call("files__list --arg path=. --run z1 --step s1").await.ok();
    let write =
        call("files__write --arg path=a.txt --arg content=x --mode local_write --run z1 --step s2")
            .await;
    assert_eq!(write.code, Some(5), "{write:?}");
    assert!(
        write.err.contains("POLICY_DENIED") && write.err.contains("--safety-mode"),
        "{write:?}"
    );
    let other = call(
        "files__write --arg path=a.txt --arg content=x --mode local_write --run z1 --step s3 --safety-mode destructive",
    )
    .await;
    assert!(other.err.contains("another ceiling"), "{other:?}");
    // Higher than its calls: each still says what it believes, and the ceiling stays.
    call("files__list --arg path=. --run z2 --step s1 --safety-mode destructive").await.ok();
    call("files__write --arg path=a.txt --arg content=x --mode local_write --run z2 --step s2")
        .await
        .ok();
    let held = call("files__delete --arg path=a.txt --mode destructive --run z2 --step s3").await;
    assert_eq!(held.code, Some(4), "{held:?}");
}

#[tokio::test]
async fn agent_and_owner_withdraw_a_held_call_and_others_do_not() {
    let world = World::on(Setup::new()).await;
    let (ana, cleo) =
        (world.setup.token("user", "ana").await, world.setup.token("user", "cleo").await);
    for (name, token) in [("agent", &world.agent), ("owner", &ana)] {
        let file = world.setup.put(&format!("{name}.txt"), "x");
        let path = format!("path={name}.txt");
        let delete = ["files__delete", "--arg", &path];
        let (approval, _) = world.held(name, &delete).await;
        let withdraw = ["approvals", "withdraw", &approval, "--reason", "not needed"];
        let refused = world.setup.asks(&world.placet, &cleo, &withdraw).await;
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains("try:"), "{refused:?}");
        let withdrawn = world.setup.asks(&world.placet, token, &withdraw).await;
        assert!(withdrawn.ok().contains("is now withdrawn; the call did not run"), "{withdrawn:?}");
        let again = world.setup.asks(&world.placet, token, &withdraw).await;
        assert_eq!(again.code, Some(1), "it has ended: {again:?}");
        let ended = world.calls(name, &delete).await;
        assert_eq!(ended.code, Some(5), "{ended:?}");
        assert!(ended.err.contains("APPROVAL_WITHDRAWN"), "{ended:?}");
        let shown = world.approvals(&["show", &approval]).await;
        assert!(shown.ok().starts_with("agent dev-agent wanted to call "), "{shown:?}");
        assert!(file.try_exists().unwrap(), "a withdrawn call ran");
        let listed = world.approvals(&["list", "--state", "withdrawn"]).await;
        assert!(listed.ok().contains(&approval), "{listed:?}");
    }
}
