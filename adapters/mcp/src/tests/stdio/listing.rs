//! Listing tools and noticing that they change.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use placet_adapter::{adapter::Connector, outcome::AdapterError};

use crate::tests::support::{
    call, connect, connector, contract, done, endpoint, in_seconds, python,
};

#[tokio::test]
async fn every_page_is_listed_and_an_ambiguous_definition_is_left_out() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let tools = adapter.discover().await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["slow", "echo"]);
    assert_eq!(tools[1].title.as_deref(), Some("Echo"));
    assert_eq!(tools[1].annotations, Some(json!({"readOnlyHint": true})));
    adapter.close().await;
}

#[tokio::test]
async fn a_list_without_end_or_measure_is_refused() {
    for mode in ["endless", "many", "twins"] {
        let contract = contract(python(mode), |_| {});
        let adapter = connect(&contract).await.unwrap();
        assert!(
            matches!(adapter.discover().await, Err(AdapterError::InvalidResponse(_))),
            "{mode}"
        );
        adapter.close().await;
    }
}

#[tokio::test]
async fn a_server_that_does_not_list_is_not_waited_for() {
    let contract =
        contract(python("silent_list"), |file| file["limits"]["connect_ms_max"] = json!(1_500));
    let adapter = connect(&contract).await.unwrap();
    let begun = Instant::now();
    assert!(matches!(adapter.discover().await, Err(AdapterError::Unavailable(_))));
    assert!(begun.elapsed() < Duration::from_secs(5));
    adapter.close().await;
}

#[tokio::test]
async fn an_announced_change_is_counted() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let before = adapter.generation();
    done(call(adapter.as_ref(), &contract, "change", json!({})).await);
    let deadline = in_seconds(5);
    while adapter.generation() == before {
        assert!(Instant::now() < deadline, "the change was not noticed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let again = connect(&contract).await.unwrap();
    assert_ne!(again.generation(), before);
    assert_ne!(again.generation(), adapter.generation());
    adapter.close().await;
    again.close().await;
}

#[tokio::test]
async fn a_server_without_a_contract_can_be_listed_but_not_called() {
    let contract = contract(python("version:2025-06-18"), |_| {});
    let connected =
        connector(&std::env::temp_dir()).connect_any(&endpoint(&contract)).await.unwrap();
    assert_eq!(connected.protocol_version, "2025-06-18");
    assert_eq!(connected.server.as_deref(), Some("peer 1"));
    assert_eq!(connected.adapter.discover().await.unwrap().len(), 2);
    let outcome = call(connected.adapter.as_ref(), &contract, "echo", json!({})).await;
    assert!(matches!(
        outcome,
        placet_adapter::outcome::Outcome::NotExecuted(AdapterError::Misconfigured(_))
    ));
    connected.adapter.close().await;
}

#[tokio::test]
async fn a_server_of_the_oldest_revision_can_be_imported_and_of_none_cannot() {
    let connector = connector(&std::env::temp_dir());
    let oldest = contract(python("version:2024-11-05"), |_| {});
    let connected = connector.connect_any(&endpoint(&oldest)).await.unwrap();
    assert_eq!(connected.protocol_version, "2024-11-05");
    connected.adapter.close().await;
    let unknown = contract(python("version:2024-10-07"), |_| {});
    let refused = connector.connect_any(&endpoint(&unknown)).await.unwrap_err();
    assert!(
        matches!(&refused, AdapterError::SchemaMismatch(why) if why.contains("2024-10-07")),
        "{refused}"
    );
}

#[tokio::test]
async fn another_version_than_the_pinned_one_is_drift() {
    for spoken in ["2025-06-18", "2024-11-05", "2026-07-28", "one\u{1b}[2J"] {
        let contract = contract(python(&format!("version:{spoken}")), |_| {});
        let refused = connect(&contract).await.unwrap_err();
        assert!(matches!(refused, AdapterError::SchemaMismatch(_)), "{spoken}: {refused}");
        assert!(!refused.to_string().contains('\u{1b}'));
    }
    let contract = contract(python("good"), |file| file["protocol_version"] = json!("2024-10-07"));
    let refused = connector(&std::env::temp_dir()).connect(contract).await.unwrap_err();
    assert!(matches!(refused, AdapterError::Misconfigured(_)));
}
