//! Tenants of one Placet: what the agents of one can reach of another's files, and which contracts do not load.
//!
//! Owns the files that adapters keep for tenants. What tenants see of each other's calls is tested with the approvals.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{
    client::Client,
    placet::Placet,
    setup::{Setup, plan},
    until,
};

const DIRECTORY: &str = "tenants:
  acme:
    groups: &groups { approvers: {}, freeze-approvers: {}, emergency: {} }
    users: { ana: {}, ben: &asked { groups: [approvers, freeze-approvers, emergency] } }
    agents: { bot: { owner: ana } }
  globex:
    groups: *groups
    users: { zoe: {}, yan: *asked }
    agents: { bot: { owner: zoe } }
";

fn two_tenants() -> Setup {
    let setup = Setup::new().with("directory", json!("directory.yaml"));
    fs::write(setup.path("directory.yaml"), DIRECTORY).unwrap();
    setup
}

async fn bot(setup: &Setup, placet: &Placet, tenant: &str) -> Client {
    let token = setup.configured(&["token", "agent", "bot", "--tenant", tenant]).await;
    placet.client(Some(token.ok().trim().to_owned()))
}

/// Calls by the agents of both tenants at the same path.
async fn keeps_them_apart(setup: Setup, root: &str) {
    let placet = setup.start().await;
    let (acme, globex) = (bot(&setup, &placet, "acme").await, bot(&setup, &placet, "globex").await);
    let write = |content: &str| {
        plan("files__write", content, json!({ "path": "plan.txt", "content": content }))
    };
    acme.call(&write("of-acme")).await.succeeded();
    let listed = globex.call(&plan("files__list", "list", json!({}))).await.succeeded();
    assert_eq!(listed["output"]["entries"], json!([]), "{listed:#}");
    for path in ["plan.txt", "acme/plan.txt", "../acme/plan.txt"] {
        let read = globex.call(&plan("files__read", path, json!({ "path": path }))).await;
        assert_ne!(read.json()["status"], "succeeded", "{path}: {read:?}");
        assert!(!read.text().contains("of-acme"), "{path}: {read:?}");
    }
    globex.call(&write("of-globex")).await.succeeded();
    for (tenant, client) in [("acme", &acme), ("globex", &globex)] {
        let read = client.call(&plan("files__read", "own", json!({ "path": "plan.txt" }))).await;
        let content = format!("of-{tenant}");
        assert_eq!(read.succeeded()["output"]["content"], json!(content));
        let file = setup.data().join(root).join(tenant).join("plan.txt");
        assert_eq!(fs::read_to_string(file).unwrap(), content);
    }
}

#[tokio::test]
async fn a_tenant_neither_sees_nor_overwrites_files_of_another() {
    keeps_them_apart(two_tenants(), "files").await;
}

#[tokio::test]
async fn a_contract_for_two_tenants_keeps_their_files_apart() {
    let setup = two_tenants().files_contract();
    let mut contract = setup.read_contract("files");
    contract["tenants"] = json!(["acme", "globex"]);
    contract["transport"]["root"] = json!("shared");
    keeps_them_apart(setup.contract("files", &contract), "shared").await;
}

#[tokio::test]
async fn a_contract_that_names_no_tenant_is_refused_at_start() {
    let setup = two_tenants().files_contract();
    let good = setup.read_contract("files");
    let mut without = good.clone();
    without.as_object_mut().unwrap().remove("tenants");
    let with = |tenants: Value| {
        let mut contract = good.clone();
        contract["tenants"] = tenants;
        contract
    };
    for (contract, word) in [
        (without, "names no tenant"),
        (with(json!([])), "names no tenant"),
        (with(json!("all")), "each tenant has a directory of its own"),
    ] {
        let setup = two_tenants().contract("files", &contract);
        setup.refuses().await.says(&["files.yaml", "tenants", word, "tenants: [NAME]"]);
    }
}

#[tokio::test]
async fn a_root_inside_the_root_of_another_contract_is_refused() {
    let setup = Setup::new().files_contract();
    let mut contract = setup.read_contract("files");
    contract["adapter"] = json!("more");
    contract["transport"]["root"] = json!("files/local");
    setup.contract("more", &contract).refuses().await.says(&["more.yaml", "`transport.root`"]);
}

#[tokio::test]
async fn init_and_import_write_the_tenant_that_was_asked_for() {
    let setup = two_tenants();
    let import = ["adapters", "import", "--name", "fs", "--stdio", "--print"];
    let unnamed = setup.configured(&[&import[..], &["--", "/bin/true"]].concat()).await;
    assert_eq!(unnamed.code, Some(2), "{unnamed:?}");
    assert!(unnamed.err.contains("`--tenant`") && unnamed.err.contains("globex"), "{unnamed:?}");
    let wrong = ["--tenant", "initech", "--", "/bin/true"];
    let wrong = setup.configured(&[&import[..], &wrong].concat()).await;
    assert!(wrong.err.contains("no tenant `initech`"), "{wrong:?}");

    let folder = setup.path("new");
    let folder = folder.to_str().unwrap();
    setup.bare(&["init", folder, "--tenant", "globex"]).await.ok();
    let contract = fs::read_to_string(setup.path("new/contracts/dev/files.yaml")).unwrap();
    let contract: Value = serde_saphyr::from_str(&contract).unwrap();
    assert_eq!(contract["tenants"], json!(["globex"]));
    let config = setup.path("new/placet.yaml");
    setup.bare(&["policy", "check", "-f", config.to_str().unwrap()]).await.ok();
}

/// Both tenants have an operator, who may freeze.
const OPERATED: &str = "tenants:
  acme:
    groups: &groups { approvers: {}, operators: {}, freeze-approvers: {}, emergency: {} }
    users: { ana: {}, ben: &asked { groups: [approvers, operators, freeze-approvers, emergency] } }
    agents: { bot: { owner: ana } }
  globex:
    groups: *groups
    users: { zoe: {}, yan: *asked }
    agents: { bot: { owner: zoe } }
";

#[tokio::test]
async fn an_operator_learns_nothing_of_another_tenants_contracts_and_freezes() {
    let setup = Setup::new().with("directory", json!("directory.yaml")).files_contract();
    fs::write(setup.path("directory.yaml"), OPERATED).unwrap();
    let mut contract = setup.read_contract("files");
    contract["tenants"] = json!(["acme"]);
    let setup = setup.contract("files", &contract);
    let placet = setup.start().await;
    let (ben, yan) =
        (operator(&setup, &placet, "acme").await, operator(&setup, &placet, "globex").await);

    // An adapter of another tenant is as unknown as one that does not exist.
    let freeze = |adapters: Value, lockdown: bool| {
        json!({
            "arrange": { "kind": "freeze", "name": "x", "adapters": adapters, "lockdown": lockdown },
            "reason": "a test", "lasts_ms": 3_600_000,
        })
    };
    for name in ["files", "nosuch"] {
        let refused = yan.post("/v1/directives", &freeze(json!([name]), false)).await;
        let problem = refused.refused(400, "VALIDATION_ERROR");
        assert_eq!(problem["problems"][0]["problem"], format!("there is no adapter `{name}`"));
    }
    // A lockdown is the tenant's own matter.
    let locked = ben.post("/v1/directives", &freeze(json!([]), true)).await;
    assert!((200..300).contains(&locked.status), "{locked:?}");
    assert_eq!(ben.get("/v1/status").await.ok()["mode"], "lockdown");
    assert_eq!(yan.get("/v1/status").await.ok()["mode"], "enforce");

    // What changed for another tenant is counted.
    contract["limits"]["calls_per_minute_max"] = json!(7);
    let setup = setup.contract("files", &contract);
    let view = yan.post("/v1/reload", &json!({})).await.ok();
    assert_eq!(view["changed"], json!(["contracts of other tenants: 1; the log names them"]));
    assert_eq!(view["status"]["mode"], "enforce", "{view:#}");
    until("the log names it", || async { placet.log().contains("contract files: changed") }).await;
    // So is what is wrong with the files, which the log names.
    fs::write(setup.path("directory.yaml"), OPERATED.replace("owner: ana", "owner: mallory"))
        .unwrap();
    for operator in [&yan, &ben] {
        let refused =
            operator.post("/v1/reload", &json!({})).await.refused(400, "VALIDATION_ERROR");
        assert!(!refused.to_string().contains("mallory"), "{refused:#}");
        let problem = refused["problems"][0]["problem"].as_str().unwrap();
        assert!(problem.starts_with("problems: "), "{refused:#}");
    }
    until("the log names it", || async { placet.log().contains("mallory") }).await;
}

async fn operator(setup: &Setup, placet: &Placet, tenant: &str) -> Client {
    let name = if tenant == "acme" { "ben" } else { "yan" };
    let token = setup.configured(&["token", "user", name, "--tenant", tenant]).await;
    placet.client(Some(token.ok().trim().to_owned()))
}
