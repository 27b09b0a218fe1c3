//! What results change about a run, in any order.

use std::{collections::BTreeSet, sync::Arc};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::runs::offer::tools_of;

/// Names that results add and remove: tools of the run, some under their own names, one with a name that is taken, and one that does not
/// exist.
const NAMES: [&str; 6] = ["a", "t__b", "x.y", "x_y", "loader", "nowhere"];

/// Plain tools, those that have to be asked for, two with the same name for function calling, and the one that returns the changes.
fn tools() -> Tools {
    let plain =
        json!({ "mode": "read_only", "effect": "none", "input_schema": { "type": "object" } });
    let with = |key: &str, value: Value| {
        let mut tool = plain.clone();
        tool[key] = value;
        tool
    };
    let later = || with("on_demand", json!(true));
    let file = json!({
        "contract_version": "placet.contract.v1", "adapter": "t", "environment": "test", "tenants": "all",
        "transport": { "type": "mcp_stdio", "command": "node" }, "protocol_version": "2025-11-25",
        "capabilities": {
            "a": plain, "b": later(), "x.y": later(), "x_y": later(), "loader": with("exposes", json!("/tools")),
        },
    });
    tools_of(file)
}

fn run() -> Run {
    let request = serde_json::from_value(json!({ "run": { "run_id": "r" } })).unwrap();
    Run::opened(request, &tools()).unwrap()
}

fn loader(tools: &Tools) -> Arc<Capability> {
    Arc::clone(&tools.values().find(|tool| tool.exposes.is_some()).unwrap().capability)
}

/// The tools of the next iteration, by name.
fn next(run: &Run, tools: &Tools) -> BTreeSet<String> {
    let offered = run.wanted.offered_at(run.iteration.saturating_add(1), tools);
    offered.keys().map(CapabilityId::tool_name).collect()
}

fn full(names: &BTreeSet<&str>) -> BTreeSet<String> {
    let known = names.iter().filter(|name| **name != "nowhere");
    known.map(|name| format!("t__{}", name.trim_start_matches("t__"))).collect()
}

fn some_names() -> impl Strategy<Value = BTreeSet<&'static str>> {
    prop::collection::btree_set(prop::sample::select(&NAMES[..]), 0..4)
}

proptest! {
    #[test]
    fn all_is_added_or_nothing_and_the_same_again_is_nothing(
        results in prop::collection::vec((some_names(), some_names()), 1..8)
    ) {
        let tools = tools();
        let loader = loader(&tools);
        let mut run = run();
        let original = next(&run, &tools);
        for (add, remove) in results {
            let before = next(&run, &tools);
            let said = json!({ "tools": { "add": add, "remove": remove } });
            let exposure = apply(&mut run, &tools, &loader, &said).unwrap();
            let after = next(&run, &tools);
            if let Some(error) = exposure.error {
                let is_unknown = add.contains("nowhere");
                let wanted =
                    if is_unknown { ErrorCode::ToolNotFound } else { ErrorCode::ValidationError };
                prop_assert_eq!(error.error_code, wanted);
                prop_assert_eq!(&after, &before);
                prop_assert_eq!((exposure.added.len(), exposure.removed.len()), (0, 0));
                continue;
            }
            prop_assert!(!add.contains("nowhere"));
            // Removing an absent tool does nothing; one that is both added and removed is added.
            let mut wanted: BTreeSet<String> = before.difference(&full(&remove)).cloned().collect();
            wanted.extend(full(&add));
            prop_assert_eq!(&after, &wanted);
            prop_assert!(!(after.contains("t__x.y") && after.contains("t__x_y")));
            let added: BTreeSet<String> = exposure.added.into_iter().collect();
            let removed: BTreeSet<String> = exposure.removed.into_iter().collect();
            prop_assert_eq!(added, after.difference(&before).cloned().collect());
            prop_assert_eq!(removed, before.difference(&after).cloned().collect());
            let again = apply(&mut run, &tools, &loader, &said).unwrap();
            prop_assert_eq!(again, Exposure::default());
            prop_assert_eq!(next(&run, &tools), after);
        }
        // Another run begins with the original set.
        prop_assert_eq!(next(&self::run(), &tools), original);
    }
}

#[test]
fn a_result_of_another_form_changes_nothing_and_says_so() {
    let tools = tools();
    let loader = loader(&tools);
    let mut run = run();
    let before = next(&run, &tools);
    for said in [json!(["a"]), json!({ "add": "a" }), json!({ "add": [1] }), json!({ "more": [] })]
    {
        let exposure = apply(&mut run, &tools, &loader, &json!({ "tools": said })).unwrap();
        assert_eq!(exposure.error.unwrap().error_code, ErrorCode::ValidationError, "{said}");
        assert_eq!(next(&run, &tools), before);
    }
    assert_eq!(apply(&mut run, &tools, &loader, &json!({})), None);
}
