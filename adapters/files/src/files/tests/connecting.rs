//! Connections as contracts describe them.

use std::{fs, sync::Arc};

use placet_adapter::{
    adapter::Connector,
    outcome::{AdapterError, Outcome},
};
use placet_types::{
    contract::{
        Contract, Dedup,
        file::{AllTenants, TenantsFile, TransportFile},
    },
    ids::CapabilityName,
};
use serde_json::json;

use super::{Place, conditions, contract, dispatch, dispatch_of};
use crate::files::{FilesConnector, FilesSettings};

async fn connect(folder: &std::path::Path, contract: Contract) -> Result<(), AdapterError> {
    let connector = FilesConnector::new(folder.to_owned(), FilesSettings::default());
    connector.connect(Arc::new(contract)).await.map(drop)
}

#[tokio::test]
async fn a_root_in_the_data_folder_is_made_when_it_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    connect(folder.path(), contract("deep/er", 1_024)).await.unwrap();
    assert!(folder.path().join("deep/er/acme").is_dir());
}

#[tokio::test]
async fn an_absolute_root_has_to_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("elsewhere");
    let missing = connect(folder.path(), contract(elsewhere.to_str().unwrap(), 1_024)).await;
    assert!(matches!(missing, Err(AdapterError::Unavailable(_))));
    assert!(!elsewhere.try_exists().unwrap());
    fs::create_dir(&elsewhere).unwrap();
    connect(folder.path(), contract(elsewhere.to_str().unwrap(), 1_024)).await.unwrap();
}

#[tokio::test]
async fn a_root_that_leaves_the_data_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for root in ["", "..", "../x", "a/../../x"] {
        let outcome = connect(folder.path(), contract(root, 1_024)).await;
        assert!(
            matches!(outcome, Err(AdapterError::Misconfigured(_))),
            "{root:?} gave {outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_contract_that_promises_to_recognise_tokens_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for dedup in [Dedup::Keyed { window_ms: 60_000 }, Dedup::Queryable { settle_delay_ms: 0 }] {
        let mut contract = contract("root", 1_024);
        contract.capabilities.get_mut(&CapabilityName::new("write").unwrap()).unwrap().dedup =
            dedup;
        let Err(AdapterError::Misconfigured(why)) = connect(folder.path(), contract).await else {
            panic!("it is promised")
        };
        assert!(why.contains("`files/write` has to be `class: opaque`"), "{why}");
    }
    assert!(!folder.path().join("root").try_exists().unwrap());
}

#[tokio::test]
async fn a_root_that_is_a_file_is_no_root() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "x").unwrap();
    let outcome = connect(folder.path(), contract("file", 1_024)).await;
    assert!(matches!(outcome, Err(AdapterError::Unavailable(_))));
}

#[tokio::test]
async fn tenants_have_directories_of_their_own() {
    let place = Place::new().await;
    place.put("a.txt", "of acme");
    let call = async |tenant: &str, tool: &str, args: &serde_json::Value| {
        let dispatch = dispatch_of(tenant, &place.contract, tool, args);
        place.adapter.invoke(dispatch, conditions(20_000)).await
    };
    for tool in ["read", "stat", "delete"] {
        let outcome = call("globex", tool, &json!({"path": "a.txt"})).await;
        assert!(matches!(outcome, Outcome::NotExecuted(AdapterError::Refused(_))), "{outcome:?}");
    }
    let write = json!({"path": "a.txt", "content": "of globex"});
    assert!(matches!(call("globex", "write", &write).await, Outcome::Done(_)));
    assert_eq!(place.text("a.txt"), "of acme");
    assert_eq!(
        fs::read_to_string(place.folder.path().join("root/globex/a.txt")).unwrap(),
        "of globex"
    );
    let outcome = call("initech", "read", &json!({"path": "a.txt"})).await;
    assert!(matches!(outcome, Outcome::NotExecuted(AdapterError::Misconfigured(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_contract_without_named_tenants_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut shared = contract("root", 1_024);
    shared.file.tenants = TenantsFile::All(AllTenants::All);
    assert!(matches!(connect(folder.path(), shared).await, Err(AdapterError::Misconfigured(_))));
}

#[tokio::test]
async fn a_link_in_place_of_a_tenants_directory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("root")).unwrap();
    std::os::unix::fs::symlink("/tmp", folder.path().join("root/globex")).unwrap();
    let outcome = connect(folder.path(), contract("root", 1_024)).await;
    assert!(matches!(outcome, Err(AdapterError::Unavailable(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_contract_of_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = contract("root", 1_024);
    other.file.transport =
        TransportFile::Internal { builtin: "mail".to_owned(), root: "root".to_owned() };
    assert!(matches!(connect(folder.path(), other).await, Err(AdapterError::Misconfigured(_))));
    let mut newer = contract("root", 1_024);
    newer.file.protocol_version = "files/2".to_owned();
    assert!(matches!(connect(folder.path(), newer).await, Err(AdapterError::SchemaMismatch(_))));
}

#[tokio::test]
async fn what_is_discovered_is_what_the_builtin_contract_pins() {
    let place = Place::new().await;
    let tools = place.adapter.discover().await.unwrap();
    assert_eq!(tools.len(), place.contract.capabilities.len());
    for tool in tools {
        let capability = place
            .contract
            .capabilities
            .values()
            .find(|c| c.id.capability().as_str() == tool.name)
            .unwrap();
        assert_eq!(capability.pin, Some(tool.digest(&place.contract.adapter)), "{}", tool.name);
    }
    assert_eq!(place.adapter.generation(), 0);
}

#[tokio::test]
async fn a_call_permitted_under_another_contract_has_no_effect() {
    let place = Place::new().await;
    place.put("a.txt", "keep");
    let other = contract("elsewhere", 1_048_576);
    let outcome = place
        .adapter
        .invoke(dispatch(&other, "delete", &json!({"path": "a.txt"})), conditions(1_000))
        .await;
    assert!(
        matches!(outcome, Outcome::NotExecuted(AdapterError::SchemaMismatch(_))),
        "{outcome:?}"
    );
    assert_eq!(place.text("a.txt"), "keep");
}

#[tokio::test]
async fn a_closed_adapter_does_nothing() {
    let place = Place::new().await;
    place.put("a.txt", "keep");
    assert!(place.adapter.is_alive());
    place.adapter.close().await;
    assert!(!place.adapter.is_alive());
    let outcome = place.call("delete", &json!({"path": "a.txt"})).await;
    assert!(matches!(outcome, Outcome::NotExecuted(AdapterError::Unavailable(_))));
    assert_eq!(place.text("a.txt"), "keep");
}

#[tokio::test]
async fn an_adapter_whose_root_was_removed_is_not_alive() {
    let place = Place::new().await;
    fs::remove_dir(place.root()).unwrap();
    assert!(!place.adapter.is_alive());
}
