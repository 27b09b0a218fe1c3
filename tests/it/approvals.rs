//! The approval service from the command line of the built program: edits, grants, delegations, break-glass, freezes.
//!
//! Owns what people type and what comes of it. Invariant that is tested throughout: a digest of what is no longer shown decides nothing.

use std::fs;

use serde_json::{Value, json};

use crate::{
    harness::{
        client::{Client, text},
        placet::Placet,
        setup::{Ran, Setup, files_policy, plan},
    },
    workspace,
};

mod forged;

/// A digest of nothing that anybody was shown.
const STALE: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// A running Placet with six people: `ana` owns the agent, `ben`, `cleo` and `emma` approve, `dora` is in no group, `rita` audits.
struct Directive {
    setup: Setup,
    placet: Placet,
    agent: Client,
}

impl Directive {
    /// With the shipped policies, each file as `changed` makes it of its name and text.
    async fn with(changed: impl Fn(&str, String) -> String, setup: Setup) -> Self {
        fs::create_dir(setup.path("policies")).unwrap();
        for file in fs::read_dir(workspace::root().join("policies")).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "cedar") {
                let name = path.file_name().unwrap().to_str().unwrap();
                let text = changed(name, fs::read_to_string(&path).unwrap());
                fs::write(setup.path("policies").join(name), text).unwrap();
            }
        }
        files_policy(&setup);
        let groups = json!({ "approvers": {}, "operators": {}, "emergency": {}, "freeze-approvers": {}, "auditors": {} });
        let users = json!({
            "ana": { "groups": [] },
            "ben": { "groups": ["approvers", "operators", "emergency", "freeze-approvers"] },
            "cleo": { "groups": ["approvers"] },
            "emma": { "groups": ["approvers"] },
            "dora": { "groups": [] },
            "rita": { "groups": ["auditors"] },
        });
        let local = json!({ "groups": groups, "users": users, "agents": { "dev-agent": { "owner": "ana" } } });
        fs::write(
            setup.path("directory.yaml"),
            json!({ "tenants": { "local": local } }).to_string(),
        )
        .unwrap();
        let setup =
            setup.with("policies", json!("policies")).with("directory", json!("directory.yaml"));
        let placet = setup.start().await;
        let agent = setup.agent(&placet).await;
        Self { setup, placet, agent }
    }

    async fn shipped() -> Self {
        Self::with(|_, text| text, Setup::new()).await
    }

    /// With a gate that wants two approvers for what cannot be undone.
    async fn of_two() -> Self {
        let stricter = |gate: &str| {
            gate.replace("@approver_group(\"approvers\")", "@approver_group(\"approvers:2\")")
                .replace("@quorum(\"1\")", "@quorum(\"2\")")
        };
        let changed = move |name: &str, text: String| {
            if name != "20-gates.cedar" {
                return text;
            }
            let (before, rest) = text.split_once("@id(\"gate-destructive\")").unwrap();
            let (gate, after) = rest.split_once("};").unwrap();
            format!("{before}@id(\"gate-destructive\"){}}};{after}", stricter(gate))
        };
        Self::with(changed, Setup::new()).await
    }

    /// What somebody types after `placet approvals`.
    async fn types(&self, who: &str, words: &[&str]) -> Ran {
        self.asks(who, &[&["approvals"], words].concat()).await
    }

    /// What somebody types after `placet directives`.
    async fn directs(&self, who: &str, words: &[&str]) -> Ran {
        self.asks(who, &[&["directives"], words].concat()).await
    }

    /// The same, for a program.
    async fn arranges(&self, who: &str, words: &[&str]) -> Value {
        self.directs(who, &[words, &["--json"]].concat()).await.json()
    }

    async fn asks(&self, who: &str, words: &[&str]) -> Ran {
        let token = self.setup.token("user", who).await;
        self.setup.asks(&self.placet, &token, words).await
    }

    /// The same, for a program.
    async fn reads(&self, who: &str, words: &[&str]) -> Value {
        self.types(who, &[words, &["--json"]].concat()).await.json()
    }

    async fn delete(&self, file: &str, step: &str) -> crate::harness::client::Reply {
        self.agent.call(&plan("files__delete", step, json!({ "path": file }))).await
    }

    /// A file whose deletion waits for people, and the id and digest of the approval.
    async fn held(&self, file: &str, step: &str) -> (Value, String, String) {
        self.setup.put(file, "keep me");
        let held = self.delete(file, step).await.held();
        let id = text(&held, "approval_id");
        let digest = self.digest(&id).await;
        (held, id, digest)
    }

    async fn digest(&self, id: &str) -> String {
        text(&self.reads("ben", &["show", id]).await["approval"], "digest")
    }

    fn is_there(&self, file: &str) -> bool {
        self.setup.file(file).is_file()
    }
}

/// A line with one more word.
fn and<'w>(line: &[&'w str], word: &'w str) -> Vec<&'w str> {
    [line, &[word]].concat()
}

/// Refused by the server, with this code, and said so on standard error.
fn refused(ran: &Ran, code: &str) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains(code) && ran.err.contains("try:"), "{ran:?}");
}

#[tokio::test]
async fn other_arguments_are_shown_as_a_difference_decided_by_somebody_else_and_the_agent_is_told()
{
    // One agreement is enough here, but never that of the one who wrote the arguments.
    let approvals = Directive::shipped().await;
    approvals.setup.put("b.txt", "not needed");
    let (held, id, digest) = approvals.held("a.txt", "s1").await;
    let args = approvals.setup.path("args.json");
    fs::write(&args, r#"{"path": "b.txt"}"#).unwrap();
    let args = args.to_str().unwrap();
    let edit = ["edit", &id, "--args", args, "--reason", "the other one", "--digest"];
    refused(&approvals.types("ben", &and(&edit, STALE)).await, "VALIDATION_ERROR");
    let edited = approvals.types("ben", &and(&edit, &digest)).await;
    for said in [r#"~ /path: "a.txt" → "b.txt""#, "ben wrote them and does not decide"] {
        assert!(edited.ok().contains(said), "{edited:?}");
    }
    let new = approvals.digest(&id).await;
    assert_ne!(new, digest);
    let own = ["approve", &id, "--reason", "as I wrote", "--digest"];
    let own = approvals.types("ben", &and(&own, &new)).await;
    refused(&own, "POLICY_DENIED");
    assert!(own.err.contains("you wrote these arguments"), "{own:?}");
    assert!(approvals.is_there("b.txt"), "its author decided");

    let shown = approvals.types("cleo", &["show", &id]).await;
    for said in [
        "edited    by ben",
        r#"~ /path: "a.txt" → "b.txt""#,
        "ben wrote them",
        "your approval is the last one required",
    ] {
        assert!(shown.ok().contains(said), "no `{said}` in {}", shown.out);
    }
    let approve = ["approve", &id, "--reason", "agreed", "--digest"];
    refused(&approvals.types("cleo", &and(&approve, &digest)).await, "VALIDATION_ERROR");
    assert!(approvals.is_there("b.txt"), "an old digest decided");
    approvals.types("cleo", &and(&approve, &new)).await.ok();

    let result = approvals.agent.end_of(&text(&held, "call_id")).await.succeeded();
    assert_eq!(result["edited_args"]["path"], "b.txt", "{result:#}");
    assert!(approvals.is_there("a.txt") && !approvals.is_there("b.txt"));
}

#[tokio::test]
async fn an_edit_without_the_precondition_needs_somebody_else() {
    let approvals = Directive::shipped().await;
    approvals.setup.put("a.txt", "as the agent saw it");
    let seen = approvals.agent.call(&plan("files__read", "s0", json!({ "path": "a.txt" }))).await;
    let seen = seen.succeeded()["output"]["digest"].clone();
    assert!(seen.is_string(), "{seen}");
    let args = json!({ "path": "a.txt", "expected_digest": seen });
    let held = approvals.agent.call(&plan("files__delete", "s1", args)).await.held();
    approvals.setup.put("a.txt", "changed since");
    let id = text(&held, "approval_id");
    let args = approvals.setup.path("args.json");
    fs::write(&args, r#"{"path": "a.txt"}"#).unwrap();
    let edit =
        ["edit", &id, "--args", args.to_str().unwrap(), "--reason", "it has changed", "--digest"];
    let edited = approvals.types("ben", &and(&edit, &approvals.digest(&id).await)).await;
    assert!(edited.ok().contains("ben wrote them and does not decide"), "{edited:?}");
    let new = approvals.digest(&id).await;
    let approve = ["approve", &id, "--reason", "go", "--digest", &new];
    refused(&approvals.types("ben", &approve).await, "POLICY_DENIED");
    assert!(approvals.is_there("a.txt"), "one person removed the precondition and agreed to that");
    approvals.types("cleo", &approve).await.ok();
    approvals.agent.end_of(&text(&held, "call_id")).await.succeeded();
    assert!(!approvals.is_there("a.txt"));
}

#[tokio::test]
async fn a_grant_of_two_people_lets_calls_run_until_it_is_ended() {
    let approvals = Directive::of_two().await;
    let (_, id, digest) = approvals.held("reports/a.txt", "s1").await;
    let rules = ["--uses", "5", "--for", "2h", "--starts-with", "/path=reports/"];
    let propose = [&["grant", &id], &rules[..], &["--reason", "monthly", "--digest"]].concat();
    refused(&approvals.directs("ben", &and(&propose, STALE)).await, "VALIDATION_ERROR");
    let proposed = approvals.arranges("ben", &and(&propose, &digest)).await;
    assert_eq!(
        (&proposed["state"], &proposed["in_force"]),
        (&json!("proposed"), &json!(false)),
        "{proposed:#}"
    );
    let (grant, terms) = (text(&proposed, "directive_id"), text(&proposed, "digest"));

    approvals.setup.put("reports/b.txt", "x");
    approvals.delete("reports/b.txt", "s2").await.held();
    let agree = ["approve", &grant, "--reason", "agreed", "--digest"];
    refused(&approvals.directs("cleo", &and(&agree, STALE)).await, "VALIDATION_ERROR");
    // It covers more than the call, so that anyone who proposed it does not count.
    refused(&approvals.directs("ben", &and(&agree, &terms)).await, "POLICY_DENIED");
    let one = approvals.arranges("cleo", &and(&agree, &terms)).await;
    assert_eq!(one["state"], "proposed", "{one:#}");
    let active = approvals.arranges("emma", &and(&agree, &terms)).await;
    assert_eq!(active["state"], "active", "{active:#}");

    approvals.setup.put("reports/c.txt", "x");
    approvals.delete("reports/c.txt", "s3").await.succeeded();
    assert!(!approvals.is_there("reports/c.txt"));
    let used = approvals.arranges("ben", &["show", &grant]).await;
    assert!(used["uses"].as_u64().unwrap() >= 1, "{used:#}");
    approvals.setup.put("elsewhere.txt", "x");
    approvals.delete("elsewhere.txt", "s4").await.held();
    let listed = approvals.directs("cleo", &["list", "--kind", "grant"]).await;
    assert!(listed.ok().contains(&grant), "{listed:?}");

    approvals.directs("ben", &["end", &grant, "--reason", "done"]).await.ok();
    approvals.setup.put("reports/d.txt", "x");
    approvals.delete("reports/d.txt", "s5").await.held();
    assert!(approvals.is_there("reports/d.txt") && approvals.is_there("elsewhere.txt"));
    let open = approvals.arranges("ben", &["list"]).await;
    assert_eq!(open, json!([]), "an ended grant is not open");
}

#[tokio::test]
async fn a_colleague_decides_in_anothers_place_for_a_time_and_the_record_names_both() {
    let approvals = Directive::shipped().await;
    let (held, id, digest) = approvals.held("a.txt", "s1").await;
    let approve = ["approve", &id, "--reason", "for cleo", "--digest", &digest];
    refused(&approvals.types("dora", &approve).await, "NOT_FOUND");
    let theirs = approvals
        .directs(
            "cleo",
            &["delegate", "dora", "--groups", "operators", "--for", "8h", "--reason", "x"],
        )
        .await;
    refused(&theirs, "VALIDATION_ERROR");
    let handed =
        ["delegate", "dora", "--groups", "approvers", "--for", "8h", "--reason", "on a plane"];
    let delegation = text(&approvals.arranges("cleo", &handed).await, "directive_id");
    let shown = approvals.types("dora", &["show", &id]).await;
    assert!(shown.ok().contains("you decide for cleo"), "{}", shown.out);
    let decided = approvals.reads("dora", &approve).await;
    let vote = &decided["votes"][0];
    assert_eq!(
        (&vote["approver"], &vote["stands_for"]),
        (&json!("dora"), &json!("cleo")),
        "{decided:#}"
    );
    approvals.agent.end_of(&text(&held, "call_id")).await.succeeded();

    assert!(
        approvals
            .directs("dora", &["list"])
            .await
            .ok()
            .contains("dora decides for cleo in approvers")
    );
    approvals.directs("cleo", &["end", &delegation, "--reason", "back"]).await.ok();
    let (_, later, digest) = approvals.held("b.txt", "s2").await;
    let approve = ["approve", &later, "--reason", "for cleo", "--digest", &digest];
    refused(&approvals.types("dora", &approve).await, "NOT_FOUND");
    assert!(approvals.is_there("b.txt"));
}

#[tokio::test]
async fn a_glass_is_broken_by_two_and_reviewed_by_a_third() {
    let exits = |name: &str, text: String| {
        if name != "20-gates.cedar" {
            return text;
        }
        // The gates with their exits, and the one for freezes as it is.
        let freeze = text.split_once("@id(\"gate-freeze\")").unwrap().1.to_owned();
        format!(
            "{}\n@id(\"gate-freeze\"){freeze}",
            workspace::read("docs/src/examples/policies/break-glass.cedar")
        )
    };
    let approvals = Directive::with(exits, Setup::new()).await;
    approvals.held("a.txt", "s1").await;
    let declare = ["break-glass", "--ticket", "INC-1", "--for", "1h", "--reason", "orders fail"];
    refused(&approvals.directs("cleo", &declare).await, "POLICY_DENIED");
    let declared = approvals.arranges("ben", &declare).await;
    let (glass, terms) = (text(&declared, "directive_id"), text(&declared, "digest"));
    approvals.setup.put("b.txt", "x");
    approvals.delete("b.txt", "s2").await.held();
    let confirm = ["approve", &glass, "--reason", "seen it", "--digest"];
    refused(&approvals.directs("cleo", &and(&confirm, STALE)).await, "VALIDATION_ERROR");
    refused(&approvals.directs("ben", &and(&confirm, &terms)).await, "POLICY_DENIED");
    assert_eq!(approvals.arranges("cleo", &and(&confirm, &terms)).await["in_force"], true);

    approvals.setup.put("c.txt", "x");
    approvals.delete("c.txt", "s3").await.succeeded();
    assert!(!approvals.is_there("c.txt"));

    approvals.directs("ben", &["end", &glass, "--reason", "repaired"]).await.ok();
    approvals.setup.put("d.txt", "x");
    approvals.delete("d.txt", "s4").await.held();
    let due = approvals.arranges("rita", &["list", "--kind", "break_glass"]).await;
    assert_eq!(
        (&due[0]["directive_id"], &due[0]["review_due"]),
        (&json!(glass), &json!(true)),
        "{due:#}"
    );
    // Who may review it sees what was done under it, and nothing else.
    let looks = async |name: &str| approvals.setup.client(&approvals.placet, "user", name).await;
    let (emma, dora) = (looks("emma").await, looks("dora").await);
    let relied = format!("/v1/decisions?directive={glass}");
    let under = emma.get(&relied).await.ok();
    let decided = under["decisions"].as_array().unwrap();
    let verdicts: Vec<&str> = decided.iter().filter_map(|one| one["verdict"].as_str()).collect();
    assert_eq!(verdicts, ["allow"], "{under:#}");
    assert_eq!(emma.get("/v1/decisions").await.ok()["decisions"], json!([]));
    let one = format!("/v1/decisions/{}", text(&decided[0], "decision_id"));
    assert_eq!(emma.get(&one).await.ok()["decision_id"], decided[0]["decision_id"]);
    dora.get(&one).await.refused(404, "NOT_FOUND");
    assert_eq!(dora.get(&relied).await.ok()["decisions"], json!([]));
    // An auditor gets the receipt of every call.
    let receipt = format!("/v1/calls/{}/receipt", text(&decided[0], "call_id"));
    looks("rita").await.get(&receipt).await.ok();
    let review = ["review", &glass, "--note", "one call, needed"];
    refused(&approvals.directs("cleo", &review).await, "POLICY_DENIED");
    assert_eq!(approvals.arranges("emma", &review).await["state"], "reviewed");
    assert_eq!(emma.get(&relied).await.ok(), under);
}

#[tokio::test]
async fn in_a_freeze_a_write_waits_that_otherwise_runs() {
    let approvals = Directive::shipped().await;
    let write = |file: &str, step: &str| {
        plan("files__write", step, json!({ "path": file, "content": "x" }))
    };
    approvals.agent.call(&write("before.txt", "s1")).await.succeeded();
    let set = ["freeze", "--name", "Year's end", "--for", "2h", "--reason", "the books are closed"];
    refused(&approvals.directs("cleo", &set).await, "POLICY_DENIED");
    let freeze = text(&approvals.arranges("ben", &set).await, "directive_id");
    approvals.agent.call(&write("during.txt", "s2")).await.held();
    assert!(!approvals.is_there("during.txt"));
    let later = ["freeze", "--name", "Later", "--for", "1d", "--reason", "planned", "--from"];
    let wrong = approvals.directs("ben", &and(&later, "2026-02-30T00:00Z")).await;
    assert_eq!(wrong.code, Some(2), "there is no such day: {wrong:?}");
    assert!(
        approvals
            .directs("cleo", &["list", "--kind", "freeze"])
            .await
            .ok()
            .contains("Year's end: writes of everything")
    );
    refused(
        &approvals.directs("cleo", &["end", &freeze, "--reason", "impatient"]).await,
        "POLICY_DENIED",
    );
    approvals.directs("ben", &["end", &freeze, "--reason", "all is well"]).await.ok();
    approvals.agent.call(&write("after.txt", "s3")).await.succeeded();
    assert!(approvals.is_there("after.txt"));
}

#[tokio::test]
async fn the_inbox_and_the_timeline_of_a_call_are_for_those_they_concern() {
    let approvals = Directive::shipped().await;
    let (held, id, digest) = approvals.held("a.txt", "s1").await;
    let call = text(&held, "call_id");
    let mine = approvals
        .reads("ben", &["list", "--mine", "--mode", "destructive", "--search", "DELETE"])
        .await;
    assert_eq!(
        (&mine[0]["approval"]["approval_id"], &mine[0]["mine"]),
        (&json!(id), &json!(true)),
        "{mine:#}"
    );
    assert_eq!(approvals.reads("ben", &["list", "--mode", "network"]).await, json!([]));
    assert_eq!(approvals.reads("dora", &["list", "--state", "all"]).await, json!([]));
    let wrong = approvals.types("ben", &["list", "--state", "mighty"]).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    approvals.types("ben", &["approve", &id, "--reason", "agreed", "--digest", &digest]).await.ok();
    approvals.agent.end_of(&call).await.succeeded();
    let done = approvals.reads("ben", &["list", "--state", "all"]).await;
    assert_eq!(done[0]["approval"]["state"], "succeeded", "{done:#}");

    let timeline = approvals.reads("rita", &["timeline", &call]).await;
    let kinds: Vec<String> =
        timeline["steps"].as_array().unwrap().iter().map(|step| text(step, "kind")).collect();
    let steps = timeline["steps"].as_array().unwrap();
    assert!(steps.len() >= 3, "{kinds:?}");
    assert!(steps.iter().any(|step| step["by"] == "ben"), "{timeline:#}");
    assert!(!timeline.to_string().contains("keep me"), "{timeline:#}");
    assert!(approvals.types("ben", &["timeline", &call]).await.ok().contains("WHEN"));
    refused(&approvals.types("dora", &["timeline", &call]).await, "NOT_FOUND");
}
