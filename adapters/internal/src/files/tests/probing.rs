//! Asking about tokens, on real files, as an engine does after a crash.

use std::fs;

use placet_adapter::{
    adapter::Inquiry,
    outcome::{Outcome, Probe},
};
use placet_types::{
    contract::{Contract, file::DedupFile},
    ids::{CapabilityId, EnvironmentName},
};
use serde_json::json;

use super::{Place, conditions, tenants};
use crate::{contract::builtin_contract, files::FilesSettings};

const TOKEN: &str = "plc_0123";

fn queryable() -> Contract {
    let mut file = builtin_contract(EnvironmentName::new("test").unwrap(), tenants(), "root");
    for capability in file.capabilities.values_mut() {
        let asked = DedupFile::Queryable {
            settle_delay_ms: 0,
            argument: None,
            meta_key: None,
            probe: None,
        };
        capability.dedup = capability.dedup.as_ref().map(|_opaque| asked);
    }
    Contract::from_file(file).unwrap()
}

async fn noting() -> Place {
    Place::under(FilesSettings::default(), queryable()).await
}

fn about(tool: &str, token: &str) -> Inquiry {
    Inquiry {
        capability: CapabilityId::from_tool_name(&format!("files__{tool}")).unwrap(),
        token: token.to_owned(),
        timeout_ms: 5_000,
    }
}

async fn probe(place: &Place, tool: &str) -> Probe {
    place.adapter.probe(&about(tool, TOKEN)).await
}

#[tokio::test]
async fn a_write_is_committed_with_its_answer_whatever_became_of_the_file_since() {
    let place = noting().await;
    let args = json!({"path": "sub/a.txt", "content": "x", "create_directories": true});
    let answer = place.done("write", &args).await;
    for change in 0..3 {
        let Probe::Committed(told) = probe(&place, "write").await else { panic!("not committed") };
        assert_eq!(told, answer);
        match change {
            0 => fs::write(place.root().join("sub/a.txt"), "changed").unwrap(),
            _ => drop(fs::remove_file(place.root().join("sub/a.txt"))),
        }
    }
}

#[tokio::test]
async fn a_deletion_is_committed_with_its_answer() {
    let place = noting().await;
    place.put("a.txt", "x");
    let answer = place.done("delete", &json!({"path": "a.txt"})).await;
    let Probe::Committed(told) = probe(&place, "delete").await else { panic!("not committed") };
    assert_eq!(told, answer);
}

#[tokio::test]
async fn a_call_that_changed_nothing_is_not_found() {
    let place = noting().await;
    assert!(matches!(probe(&place, "write").await, Probe::NotFound));
    place.put("a.txt", "x");
    place.refused("write", &json!({"path": "a.txt", "content": "y", "overwrite": false})).await;
    assert!(matches!(probe(&place, "write").await, Probe::NotFound));
    let args = json!({"path": "a.txt", "content": "y", "overwrite": true});
    let outcome = place.adapter.invoke(place.dispatch("write", &args), conditions(0)).await;
    // Without time it may yet have been done, and what is said of it has to agree.
    match (outcome, probe(&place, "write").await) {
        (Outcome::NotExecuted(_), Probe::NotFound) => assert_eq!(place.text("a.txt"), "x"),
        (Outcome::Done(_) | Outcome::Unknown(_), Probe::Committed(_)) => {
            assert_eq!(place.text("a.txt"), "y");
        }
        (outcome, probe) => panic!("{outcome:?}, and then {probe:?}"),
    }
}

#[tokio::test]
async fn notes_are_hidden_from_every_caller() {
    let place = noting().await;
    place.done("write", &json!({"path": "a.txt", "content": "x"})).await;
    let listed = place.done("list", &json!({})).await;
    assert_eq!(listed.output["total"], 1);
    assert!(place.names().contains(&".placet-effects".to_owned()));
    for tool in ["read", "stat", "delete"] {
        place.refused(tool, &json!({"path": format!(".placet-effects/{TOKEN}")})).await;
    }
}

#[tokio::test]
async fn an_opaque_contract_keeps_no_notes_and_a_probe_never_guesses() {
    let place = Place::new().await;
    place.done("write", &json!({"path": "a.txt", "content": "x"})).await;
    assert_eq!(place.names(), ["a.txt"]);
    assert!(matches!(probe(&place, "write").await, Probe::Unknown));
    let place = noting().await;
    place.adapter.close().await;
    assert!(matches!(probe(&place, "write").await, Probe::Unknown));
    let place = noting().await;
    fs::remove_dir_all(place.root()).unwrap();
    assert!(matches!(probe(&place, "write").await, Probe::Unknown), "a lost root was believed");
}
