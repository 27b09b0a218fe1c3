//! What becomes of the calls of a batch, in every mixture.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::runs::offer::tools_of;

/// Two plain tools, one that takes control, and one that the caller may use and the iteration does not have.
fn tools() -> (Tools, Tools) {
    let plain =
        json!({ "mode": "read_only", "effect": "none", "input_schema": { "type": "object" } });
    let mut control = plain.clone();
    control["takes_control"] = json!(true);
    let file = json!({
        "contract_version": "placet.contract.v1", "adapter": "t", "environment": "test", "tenants": "all",
        "transport": { "type": "mcp_stdio", "command": "node" }, "protocol_version": "2025-11-25",
        "capabilities": { "a": plain, "b.c": plain, "deep": control, "later": plain },
    });
    let usable = tools_of(file);
    let mut offered = usable.clone();
    offered.retain(|id, _| id.capability().as_str() != "later");
    (usable, offered)
}

fn turn(offered: Tools, calls_max: usize) -> Turn {
    Turn { offered, choice: Choice::Word(ChoiceWord::Auto), calls_max }
}

fn call(id: usize, tool: &str, args: &Value) -> BatchCall {
    serde_json::from_value(json!({ "id": id.to_string(), "tool": tool, "args": args })).unwrap()
}

fn function(id: usize, name: &str, arguments: &str) -> BatchCall {
    let function = json!({ "name": name, "arguments": arguments });
    serde_json::from_value(
        json!({ "id": id.to_string(), "type": "function", "function": function }),
    )
    .unwrap()
}

fn planned(calls: &[BatchCall]) -> Vec<Place> {
    let (usable, offered) = tools();
    plan(calls, &usable, &turn(offered, 16)).unwrap()
}

fn code(place: &Place) -> Option<ErrorCode> {
    match &place.step {
        Step::Refuse(refusal) => Some(refusal.code),
        Step::Make | Step::CopyOf(_) => None,
    }
}

#[test]
fn both_shapes_of_a_call_are_equal_however_their_arguments_are_written() {
    let places = planned(&[
        call(0, "t__b.c", &json!({ "x": 1, "y": [true] })),
        function(1, "t__b_c", r#" { "y" : [true], "x": 1.0 } "#),
        function(2, "t__b_c", r#"{"y":[true],"x":2}"#),
        function(3, "t__a", ""),
        function(4, "t__a", "{}"),
        call(5, "t__a", &json!({})),
    ]);
    let steps: Vec<Step> = places.into_iter().map(|place| place.step).collect();
    let wanted =
        [Step::Make, Step::CopyOf(0), Step::Make, Step::Make, Step::CopyOf(3), Step::CopyOf(3)];
    assert_eq!(steps, wanted);
}

#[test]
fn calls_with_other_keys_or_modes_are_other_calls() {
    let with = |id, key: &str, value: &str| {
        let mut call = serde_json::to_value(call(id, "t__a", &json!({}))).unwrap();
        call[key] = json!(value);
        serde_json::from_value(call).unwrap()
    };
    let places = planned(&[
        call(0, "t__a", &json!({})),
        with(1, "idempotency_key", "k1"),
        with(2, "idempotency_key", "k2"),
        with(3, "approval_mode_requested", "read_only"),
        with(4, "idempotency_key", "k2"),
    ]);
    let steps: Vec<Step> = places.into_iter().map(|place| place.step).collect();
    assert_eq!(steps, [Step::Make, Step::Make, Step::Make, Step::Make, Step::CopyOf(2)]);
}

#[test]
fn what_is_wrong_with_one_call_is_that_calls_error() {
    let places = planned(&[
        function(0, "t__a", "{not json"),
        function(1, "t__a", "[1]"),
        function(2, "t__a", r#"{"x":1,"x":2}"#),
        call(3, "t__later", &json!({})),
        call(4, "t__nowhere", &json!({})),
        call(5, "t__a", &json!({})),
    ]);
    let invalid = Some(ErrorCode::ValidationError);
    let codes: Vec<Option<ErrorCode>> = places.iter().map(code).collect();
    // A tool that is not the caller's is refused by the engine.
    assert_eq!(codes, [invalid, invalid, invalid, Some(ErrorCode::ToolNotFound), None, None]);
    assert_eq!(places[4].tool, "t__nowhere");
    assert!(places.iter().all(|place| !matches!(place.step, Step::CopyOf(_))), "{places:?}");
}

#[test]
fn a_tool_that_takes_control_is_alone_or_nothing_is_made() {
    let deep = |id| call(id, "t__deep", &json!({ "q": "x" }));
    assert_eq!(planned(&[deep(0)])[0].step, Step::Make);
    let twice: Vec<Step> =
        planned(&[deep(0), deep(1)]).into_iter().map(|place| place.step).collect();
    assert_eq!(twice, [Step::Make, Step::CopyOf(0)], "an equal call is no other");
    let places =
        planned(&[call(0, "t__a", &json!({})), deep(1), call(2, "t__nowhere", &json!({}))]);
    for place in &places {
        assert_eq!(code(place), Some(ErrorCode::ControlConflict));
    }
    let said = |place: &Place| match &place.step {
        Step::Refuse(refusal) => refusal.message.clone(),
        Step::Make | Step::CopyOf(_) => String::new(),
    };
    assert!(said(&places[1]).contains("Call the other tools first, then `t__deep` alone"));
    assert!(said(&places[0]).contains("`t__deep` must be called alone"));
}

#[test]
fn what_is_not_offered_any_more_is_not_made_and_what_was_refused_stays_so() {
    let calls = [call(0, "t__a", &json!({})), call(1, "t__deep", &json!({ "q": "x" }))];
    let mut places = planned(&calls);
    // Without the tool that takes control, the other call is no more allowed than before.
    let (_, mut offered) = tools();
    offered.retain(|id, _| id.to_string() != "t/deep");
    narrow(&mut places, &offered);
    for place in &places {
        assert_eq!(code(place), Some(ErrorCode::ControlConflict));
    }
    let mut places = planned(&calls[..1]);
    narrow(&mut places, &Tools::new());
    assert_eq!(code(&places[0]), Some(ErrorCode::ToolNotFound));
}

#[test]
fn a_choice_holds_for_the_calls_too() {
    let (usable, offered) = tools();
    let calls = [call(0, "t__a", &json!({})), call(1, "t__b.c", &json!({}))];
    let only = Choice::Only("t/a".parse().unwrap());
    let places =
        plan(&calls, &usable, &Turn { choice: only, ..turn(offered.clone(), 16) }).unwrap();
    assert_eq!([code(&places[0]), code(&places[1])], [None, Some(ErrorCode::ValidationError)]);
    let none = Choice::Word(ChoiceWord::None);
    let places = plan(&calls, &usable, &Turn { choice: none, ..turn(offered, 16) }).unwrap();
    assert!(places.iter().all(|place| code(place) == Some(ErrorCode::ValidationError)));
}

#[test]
fn what_is_no_batch_is_refused_as_a_whole() {
    let (usable, offered) = tools();
    let refused =
        |calls: &[BatchCall]| plan(calls, &usable, &turn(offered.clone(), 16)).unwrap_err().code;
    let one = call(0, "t__a", &json!({}));
    assert_eq!(refused(&[]), ErrorCode::ValidationError);
    assert_eq!(refused(&vec![one.clone(); 65]), ErrorCode::ValidationError);
    let both = BatchCall { function: function(0, "t__a", "{}").function, ..one.clone() };
    let neither = BatchCall { tool: None, ..one.clone() };
    for wrong in [both, neither, BatchCall { id: String::new(), ..one }] {
        assert_eq!(refused(&[wrong]), ErrorCode::ValidationError);
    }
}

proptest! {
    /// Places keep their order; of equal calls the first is made; no more than the limit are made; one that takes control is made alone.
    #[test]
    fn every_mixture_of_calls_keeps_the_rules(
        mixture in prop::collection::vec((0_usize..5, 0_u8..3), 1..24),
        calls_max in 1_usize..8,
    ) {
        let names = ["t__a", "t__b.c", "t__deep", "t__later", "t__nowhere"];
        let calls: Vec<BatchCall> = (0_usize..)
            .zip(&mixture)
            .map(|(id, (name, arg))| call(id, names[*name], &json!({ "n": arg })))
            .collect();
        let (usable, offered) = tools();
        let places = plan(&calls, &usable, &turn(offered, calls_max)).unwrap();
        prop_assert_eq!(places.len(), calls.len());
        let distinct: BTreeSet<(usize, u8)> = mixture.iter().copied().collect();
        let made: Vec<usize> =
            (0..places.len()).filter(|number| places[*number].step == Step::Make).collect();
        prop_assert!(made.len() <= calls_max);
        let with_control = mixture.iter().any(|(name, _)| *name == 2);
        if with_control && distinct.len() > 1 {
            prop_assert!(places.iter().all(|place| code(place) == Some(ErrorCode::ControlConflict)));
            return Ok(());
        }
        for (number, place) in (0_usize..).zip(&places) {
            prop_assert_eq!(&place.tool, names[mixture[number].0]);
            let first = mixture.iter().position(|one| *one == mixture[number]).unwrap();
            match &place.step {
                Step::CopyOf(original) => prop_assert_eq!(*original, first),
                Step::Make | Step::Refuse(_) => prop_assert_eq!(number, first),
            }
        }
        let makeable = distinct.iter().filter(|(name, _)| *name != 3).count();
        prop_assert!(distinct.len() > calls_max || made.len() == makeable);
    }
}
