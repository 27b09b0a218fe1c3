//! Reload: policies, contracts, the directory and issuers take effect in a running server, all or nothing.
//!
//! Owns what callers, operators and auditors see of it, over the route, the command and SIGHUP.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{
    client::text,
    placet::Placet,
    postgres::Database,
    setup::{Setup, plan},
    until,
};
use crate::mcp::{children_of, hurried, stub};
use crate::workspace;

/// The shipped directory, with a class for the agent.
pub(crate) fn directory(setup: &Setup, class: &str) {
    let directory = json!({ "tenants": { "local": {
        "groups": {
            "approvers": {}, "operators": {}, "freeze-approvers": {}, "emergency": {}, "auditors": {},
        },
        "classes": { "alpha": {}, "beta": {} },
        "users": {
            "ana": { "groups": [] },
            "ben": { "groups": ["approvers", "operators", "freeze-approvers"] },
            "cleo": { "groups": ["freeze-approvers", "emergency", "auditors"] },
        },
        "agents": { "dev-agent": { "owner": "ana", "classes": [class] } },
    } } });
    fs::write(setup.path("directory.yaml"), directory.to_string()).unwrap();
}

/// A set-up whose policies and directory are files of its own.
fn setup() -> Setup {
    own_files(Setup::new())
}

pub(crate) fn own_files(setup: Setup) -> Setup {
    let folder = setup.path("policies");
    fs::create_dir(&folder).unwrap();
    for file in fs::read_dir(workspace::root().join("policies")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "cedar") {
            fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
        }
    }
    directory(&setup, "alpha");
    setup.with("policies", json!("policies")).with("directory", json!("directory.yaml"))
}

/// True of the calls of these tests. The tool stays among those that the agent may use: other calls of it are allowed.
const THIS_FILE: &str = "context.input.path == \"a.txt\"";

/// Forbids reading, to agents for which `condition` holds.
pub(crate) fn no_reading(condition: &str) -> String {
    format!(
        "@id(\"no-reading\")\n@approval(\"never\")\n@reason(\"Nothing is read today.\")\nforbid (principal is Placet::Agent, action == \
         Placet::Action::\"files/read\", resource is Placet::Tool)\nwhen {{ {condition} }};\n"
    )
}

fn forbid_reading(setup: &Setup) {
    fs::write(setup.path("policies/99-stop.cedar"), no_reading(THIS_FILE)).unwrap();
}

pub(crate) fn hang_up(placet: &Placet) {
    let pid = Pid::from_raw(i32::try_from(placet.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
}

fn read(step: &str) -> Value {
    plan("files__read", step, json!({ "path": "a.txt" }))
}

/// The entries of the audit chain about activations; the server has stopped.
async fn activations(setup: &Setup) -> Vec<Value> {
    let chain = setup.path("chain.jsonl");
    setup.configured(&["audit", "export", chain.to_str().unwrap()]).await.ok();
    let mut events = Vec::new();
    for line in fs::read_to_string(&chain).unwrap().lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let payload = entry["payload"].as_str().map_or_else(
            || entry["payload"].clone(),
            |text| serde_json::from_str(text).unwrap_or(Value::Null),
        );
        let audit = payload["audit"].as_array().cloned().unwrap_or_default();
        events.extend(audit.into_iter().filter(|event| event["kind"] == "bundle_activated"));
    }
    events
}

#[tokio::test]
async fn sighup_applies_a_stricter_policy_and_the_audit_says_so() {
    let setup = setup();
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    agent.call(&read("s1")).await.succeeded();
    let before = agent.get("/v1/status").await.ok();
    forbid_reading(&setup);
    hang_up(&placet);
    until("the new policies are active", || async {
        agent.get("/v1/status").await.ok()["active"] != before["active"]
    })
    .await;
    let problem = agent.call(&read("s2")).await.refused(403, "POLICY_DENIED");
    assert!(text(&problem, "policy_decision_id").starts_with("dec_"), "{problem:#}");
    let after = agent.get("/v1/status").await.ok();
    assert_eq!((&before["epoch"], &after["epoch"]), (&json!(1), &json!(2)));
    placet.stop().await;
    let activations = activations(&setup).await;
    assert_eq!(activations.len(), 2, "{activations:#?}");
    assert_eq!(activations[1]["note"], "reload asked for by SIGHUP");
    assert_eq!(activations[1]["digests"]["before"], before["active"]);
    assert_eq!(activations[1]["digests"]["activated"], after["active"]);
}

#[tokio::test]
async fn a_broken_policy_changes_nothing_and_is_named_with_its_place() {
    let setup = setup();
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.token("user", "ben").await);
    let before = agent.get("/v1/status").await.ok();
    fs::write(setup.path("policies/99-broken.cedar"), no_reading("principal.actve")).unwrap();
    // The other half of what was changed is right, and is not applied either.
    directory(&setup, "beta");
    let ran = setup.asks(&placet, &ben, &["reload"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("99-broken.cedar:5") && ran.err.contains("actve"), "{}", ran.err);
    until("the log names the place", || async { placet.log().contains("99-broken.cedar:5") }).await;
    agent.call(&read("s1")).await.succeeded();
    let after = agent.get("/v1/status").await.ok();
    assert_eq!((&after["active"], &after["epoch"]), (&before["active"], &before["epoch"]));
    let nobody = "@id(\"own\") @approval(\"required\") @approver_group(\"nobodies\")
        forbid (principal, action == Placet::Action::\"files/read\", resource is Placet::Tool);";
    fs::write(setup.path("policies/99-broken.cedar"), nobody).unwrap();
    let ran = setup.asks(&placet, &ben, &["reload"]).await;
    assert!(ran.code == Some(1) && ran.err.contains("nobodies"), "{ran:?}");
    assert!(ran.err.contains("the policies cannot be used: "), "{ran:?}");
    // The server runs, whatever the files say.
    for place in [&ran.err, &placet.log()] {
        assert!(!place.contains("does not start"), "{place}");
    }
    for (file, content, words) in [
        ("directory.yaml", "tenants: { local: { agents: { a: { owner: nobody } } } }", "nobody"),
        ("placet.yaml", "{ nothing: 1 }", "nothing"),
    ] {
        fs::remove_file(setup.path("policies/99-broken.cedar")).unwrap_or_default();
        let kept = fs::read(setup.path(file)).unwrap();
        fs::write(setup.path(file), content).unwrap();
        let refused = placet.client(Some(ben.clone())).post("/v1/reload", &json!({})).await;
        let problem = refused.refused(400, "VALIDATION_ERROR");
        let found = problem["problems"][0]["problem"].as_str().unwrap();
        assert!(found.contains(file) && found.contains(words), "{problem:#}");
        fs::write(setup.path(file), kept).unwrap();
    }
}

#[tokio::test]
async fn sighup_with_broken_files_changes_nothing_and_is_logged() {
    let setup = setup();
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let before = agent.get("/v1/status").await.ok();
    fs::write(setup.path("policies/99-broken.cedar"), no_reading("principal.actve")).unwrap();
    hang_up(&placet);
    until("the log names the place", || async { placet.log().contains("99-broken.cedar:5") }).await;
    agent.call(&read("s1")).await.succeeded();
    let after = agent.get("/v1/status").await.ok();
    assert_eq!((&after["active"], &after["epoch"]), (&before["active"], &before["epoch"]));
    // Repaired, the same signal applies them.
    fs::remove_file(setup.path("policies/99-broken.cedar")).unwrap();
    forbid_reading(&setup);
    hang_up(&placet);
    until("the new policies are active", || async {
        agent.get("/v1/status").await.ok()["active"] != before["active"]
    })
    .await;
    placet.stop().await;
}

#[tokio::test]
async fn an_operator_reloads_a_directory_and_nobody_else_does() {
    let setup = setup();
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let (agent, ana) = (setup.agent(&placet).await, setup.client(&placet, "user", "ana").await);
    for other in [&agent, &ana] {
        other.post("/v1/reload", &json!({})).await.refused(403, "POLICY_DENIED");
    }
    let fresh = setup.client(&placet, "agent", "fresh-agent").await;
    assert_ne!(fresh.call(&read("s1")).await.status, 200);
    let text = fs::read_to_string(setup.path("directory.yaml")).unwrap();
    let with = text.replace("\"agents\":{", "\"agents\":{\"fresh-agent\":{\"owner\":\"ana\"},");
    fs::write(setup.path("directory.yaml"), with).unwrap();
    let ben = setup.token("user", "ben").await;
    let ran = setup.asks(&placet, &ben, &["reload"]).await;
    assert!(ran.ok().contains("reloaded: directory") && ran.ok().contains("epoch 2"), "{ran:?}");
    fresh.call(&read("s1")).await.succeeded();
    let again = setup.asks(&placet, &ben, &["reload"]).await;
    assert!(
        again.ok().contains("nothing has changed") && again.ok().contains("epoch 2"),
        "{again:?}"
    );
}

#[tokio::test]
async fn other_keys_of_the_configuration_are_named_and_not_applied() {
    let setup = setup();
    let placet = setup.start().await;
    let ben = setup.client(&placet, "user", "ben").await;
    let setup = setup.with("operators", json!("approvers"));
    setup.config_file();
    let view = ben.post("/v1/reload", &json!({})).await.ok();
    assert_eq!(view["changed"], json!([]), "{view:#}");
    assert_eq!(view["status"]["needs_restart"], json!(["operators"]), "{view:#}");
    assert_eq!(placet.ask("/readyz").await.ok()["active"]["needs_restart"], json!(["operators"]));
    let warns = || async { placet.log().contains("applied by a restart only") };
    until("the log names them too", warns).await;
    fs::write(setup.path("directory.yaml"), "tenants: { local: { agents: { a: {} } } }").unwrap();
    let refused = ben.post("/v1/reload", &json!({})).await.refused(400, "VALIDATION_ERROR");
    let problem = refused["problems"][0]["problem"].as_str().unwrap();
    assert!(problem.contains("under `operators`, restart"), "{problem}");
    // Nor is anything applied while the next start would refuse the configuration.
    let setup = setup.with("admin_listen", json!("0.0.0.0:7499"));
    setup.config_file();
    let refused = ben.post("/v1/reload", &json!({})).await.refused(400, "VALIDATION_ERROR");
    let problem = refused["problems"][0]["problem"].as_str().unwrap();
    assert!(problem.contains("refused to open the admin listener"), "{problem}");
}

#[tokio::test]
async fn a_held_call_outlives_a_reload_and_runs_when_approved() {
    let setup = setup();
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    let held = agent.call(&plan("files__delete", "s1", json!({ "path": "a.txt" }))).await.held();
    forbid_reading(&setup);
    let view = ben.post("/v1/reload", &json!({})).await.ok();
    assert_eq!(view["changed"], json!(["policies"]), "{view:#}");
    ben.decide(&held, "approve").await.ok();
    agent.end_of(&text(&held, "call_id")).await.succeeded();
    assert!(!setup.file("a.txt").try_exists().unwrap());
}

#[tokio::test]
async fn held_calls_are_decided_again_when_a_reload_changes_the_policies() {
    let setup = setup();
    let names = ["a.txt", "b.txt", "c.txt"];
    names.iter().for_each(|name| drop(setup.put(name, "x")));
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    let delete = |name: &str| plan("files__delete", name, json!({ "path": name }));
    let mut held = Vec::new();
    for name in names {
        held.push(agent.call(&delete(name)).await.held());
    }
    let on = |name: &str| {
        format!(
            "forbid (principal, action == Placet::Action::\"files/delete\", resource is Placet::Tool) when {{ context.input.path == \"{name}\" }};"
        )
    };
    // One is denied now, one asks others as well, one asks nobody any more.
    let gates = fs::read_to_string(setup.path("policies/20-gates.cedar")).unwrap();
    let mode = "context.req.mode_effective == Placet::ApprovalMode::\"destructive\"";
    assert!(gates.contains(mode));
    let gates = gates.replace(mode, &format!("{mode} && !(context has input && context.input has path && context.input.path == \"c.txt\")"));
    fs::write(setup.path("policies/20-gates.cedar"), gates).unwrap();
    let own = format!(
        "@id(\"stop\") @approval(\"never\") {}\n@id(\"others\") @approval(\"required\") @approver_group(\"auditors\") {}\n",
        on("a.txt"),
        on("b.txt")
    );
    fs::write(setup.path("policies/60-own.cedar"), own).unwrap();
    ben.post("/v1/reload", &json!({})).await.ok();
    let of = |held: &Value| format!("/v1/approvals/{}", text(held, "approval_id"));
    until("the denied call is void", || async {
        ben.get(&of(&held[0])).await.ok()["approval"]["state"] == "void"
    })
    .await;
    let decided = ben.get("/v1/decisions?policy=stop").await.ok();
    assert_eq!(decided["decisions"][0]["call_id"], held[0]["call_id"], "{decided:#}");
    until("others are asked", || async {
        let groups = &ben.get(&of(&held[1])).await.ok()["approval"]["requirement"]["groups"];
        *groups == json!({ "approvers": 1, "auditors": 1 })
    })
    .await;
    agent.end_of(&text(&held[2], "call_id")).await.succeeded();
    assert!(setup.file("a.txt").try_exists().unwrap() && setup.file("b.txt").try_exists().unwrap());
    assert!(!setup.file("c.txt").try_exists().unwrap());
}

#[tokio::test]
async fn a_server_with_an_unchanged_contract_keeps_its_process() {
    let setup = own_files(stub("good").await);
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    agent.call(&hurried("stub__look", "s1")).await.succeeded();
    let children = children_of(placet.pid());
    forbid_reading_nothing(&setup);
    let view = ben.post("/v1/reload", &json!({})).await.ok();
    assert_eq!(view["changed"], json!(["policies"]), "{view:#}");
    agent.call(&hurried("stub__look", "s2")).await.succeeded();
    assert_eq!(children_of(placet.pid()), children, "the server was started again");
    // With another contract it is another server, and the old one ends.
    let mut contract = setup.read_contract("stub");
    contract["capabilities"]["erase"]["enabled"] = json!(false);
    fs::write(setup.contract_file("stub"), contract.to_string()).unwrap();
    let view = ben.post("/v1/reload", &json!({})).await.ok();
    assert_eq!(view["changed"], json!(["contract stub: changed"]), "{view:#}");
    agent.call(&hurried("stub__look", "s3")).await.succeeded();
    until("the old child has ended", || async {
        let now = children_of(placet.pid());
        now.len() == 1 && now != children
    })
    .await;
    fs::rename(setup.contract_file("stub"), setup.path("stub.yaml")).unwrap();
    fs::remove_file(setup.path("policies/99-stop.cedar")).unwrap();
    let setup = setup.files_contract();
    let view = ben.post("/v1/reload", &json!({})).await.ok();
    assert_eq!(
        view["changed"],
        json!(["policies", "contract files: new", "contract stub: removed"]),
        "{view:#}"
    );
    agent.call(&hurried("stub__look", "s4")).await.refused(404, "TOOL_NOT_FOUND");
    until("no child is left", || async { children_of(placet.pid()).is_empty() }).await;
    setup.put("a.txt", "x");
    agent.call(&read("s5")).await.succeeded();
}

/// A policy more, that is about no call of these tests.
fn forbid_reading_nothing(setup: &Setup) {
    let policy = no_reading("context.input.what == \"nothing\"").replace("files/read", "stub/look");
    fs::write(setup.path("policies/99-stop.cedar"), policy).unwrap();
}

/// In the one set the directory keeps the agent from writing, in the other the policies do: only a mixture would let it go on.
#[tokio::test]
async fn no_call_is_decided_by_a_mixture_of_old_and_new() {
    let setup = setup();
    let capped = |capped: bool| {
        directory(&setup, "alpha");
        if capped {
            let text = fs::read_to_string(setup.path("directory.yaml")).unwrap();
            let class = "\"alpha\":{\"safety_mode_max\":\"read_only\"}";
            fs::write(setup.path("directory.yaml"), text.replace("\"alpha\":{}", class)).unwrap();
        }
    };
    let forbids = |condition: &str| {
        let policy = no_reading(condition).replace("files/read", "files/write");
        fs::write(setup.path("policies/99-stop.cedar"), policy).unwrap();
    };
    let set = |number: u32| {
        capped(number.is_multiple_of(2));
        forbids(if number.is_multiple_of(2) {
            "context.input.path == \"x\""
        } else {
            "context.input.path != \"x\""
        });
    };
    set(0);
    let placet = setup.start().await;
    let (agent, ben) = (setup.agent(&placet).await, setup.ben(&placet).await);
    let calling = (0..4).map(|caller| {
        let agent = agent.clone();
        tokio::spawn(async move {
            let mut denied = 0_u32;
            for number in 0..60 {
                let reply = agent.call(&write(&format!("{caller}-{number}"))).await;
                let problem = reply.json();
                let code = problem["error_code"].as_str().unwrap_or_default();
                assert!(["POLICY_DENIED", "OVERLOADED"].contains(&code), "{problem:#}");
                denied = denied.saturating_add(u32::from(code == "POLICY_DENIED"));
            }
            denied
        })
    });
    let calling: Vec<_> = calling.collect();
    let mut reloads = 0_u32;
    while calling.iter().any(|calls| !calls.is_finished()) || reloads < 10 {
        reloads = reloads.saturating_add(1);
        set(reloads);
        let view = ben.post("/v1/reload", &json!({})).await.ok();
        assert_eq!(view["changed"], json!(["policies", "directory"]), "{view:#}");
    }
    for calls in calling {
        assert!(calls.await.unwrap() > 0);
    }
    // The directory of the one with the policies of the other: the call would have been held.
    capped(false);
    forbids("context.input.path == \"x\"");
    ben.post("/v1/reload", &json!({})).await.ok();
    agent.call(&write("last")).await.held();
}

/// A write in a run of its own.
fn write(name: &str) -> Value {
    let mut call = plan("files__write", name, json!({ "path": name, "content": "x" }));
    call["run"]["run_id"] = json!(format!("run-{name}"));
    call.as_object_mut().unwrap().remove("approval_mode_requested");
    call
}

#[tokio::test]
async fn nodes_with_one_ledger_decide_by_the_same_set_or_not_at_all() {
    let database = Database::start().await;
    let (one, two) = database.two_nodes().await;
    let (one, two) = (own_files(one), own_files(two));
    one.put("a.txt", "x");
    let (a, b) = (one.start().await, two.start().await);
    let (ben_a, ben_b) = (one.ben(&a).await, two.ben(&b).await);
    let agent = two.agent(&b).await;
    agent.call(&read("s1")).await.succeeded();
    forbid_reading(&one);
    ben_a.post("/v1/reload", &json!({})).await.ok();
    // The other node does not have it: it decides nothing, and says which epoch it lacks.
    let lacks = || async { agent.get("/v1/status").await.ok()["epoch_elsewhere"] == json!(2) };
    until("the other node knows that it was left behind", lacks).await;
    assert_eq!(agent.get("/v1/status").await.ok()["decides"], false);
    assert_ne!(agent.call(&read("s2")).await.status, 200);
    let refused = ben_b.post("/v1/reload", &json!({})).await.refused(400, "VALIDATION_ERROR");
    let found = refused["problems"][0]["problem"].as_str().unwrap();
    assert!(found.contains("was replaced at") && found.contains("epoch 2"), "{refused:#}");
    forbid_reading(&two);
    let view = ben_b.post("/v1/reload", &json!({})).await.ok();
    assert_eq!((&view["status"]["epoch"], &view["status"]["decides"]), (&json!(2), &json!(true)));
    agent.call(&read("s3")).await.refused(403, "POLICY_DENIED");
    // Back to the old files: only where an operator says so.
    for setup in [&one, &two] {
        fs::remove_file(setup.path("policies/99-stop.cedar")).unwrap();
    }
    ben_b.post("/v1/reload", &json!({})).await.refused(400, "VALIDATION_ERROR");
    let back = ben_b.post("/v1/reload", &json!({ "roll_back": 2 })).await.ok();
    assert_eq!(back["status"]["epoch"], json!(3), "{back:#}");
    agent.call(&read("s4")).await.succeeded();
    let view = ben_a.post("/v1/reload", &json!({})).await.ok();
    assert_eq!(view["status"]["active"], back["status"]["active"]);
    one.agent(&a).await.call(&read("s5")).await.succeeded();
}

#[tokio::test]
async fn the_doctor_compares_a_running_server_with_the_files() {
    // Ports of its own: others may have the default ones.
    let mut setup = setup();
    for (key, option) in [("listen", "--listen"), ("admin_listen", "--admin-listen")] {
        let address = format!("127.0.0.1:{}", placet_testkit::port::free_port().unwrap());
        setup = setup.with(key, json!(address)).arg(option).arg(&address);
    }
    let placet = setup.start().await;
    let running = || async {
        let ran = setup.configured(&["doctor", "--json"]).await;
        assert!(!ran.out.contains("is taken"), "the server of this configuration has the port");
        let checks: Value = serde_json::from_str(&ran.out).unwrap();
        checks.as_array().unwrap().iter().find(|check| check["about"] == "running").cloned()
    };
    let check = running().await.unwrap();
    assert!(check["level"] == "ok" && text(&check, "found").contains("epoch 1"), "{check:#}");
    // Of another data folder it says nothing.
    let elsewhere = setup.path("elsewhere");
    let words = ["doctor", "--json", "--data", elsewhere.to_str().unwrap()];
    let other = setup.configured(&words).await;
    assert!(other.out.contains("is not there yet"), "{other:?}");
    assert!(!other.out.contains("\"running\""), "{other:?}");
    // Other policies are seen at once.
    forbid_reading(&setup);
    let check = running().await.unwrap();
    assert!(
        check["level"] == "warn" && text(&check, "todo").contains("placet reload"),
        "{check:#}"
    );
    placet.stop().await;
    assert!(running().await.is_none());
}
