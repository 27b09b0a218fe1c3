//! Tests of what is narrower.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Change, is_narrower};
use crate::argument_schema::ArgumentSchema;

#[test]
fn less_of_the_same_is_narrower() {
    let before = json!({
        "to": "ann", "cents": 500, "rate": 0.5, "below": -3, "urgent": true,
        "files": ["a", "b", "c", "b"], "deep": { "list": [{ "n": 7 }], "note": null }
    });
    for (place, value) in [
        ("/cents", json!(499)),
        ("/cents", json!(1)),
        ("/cents", json!(499.5)),
        ("/rate", json!(0.25)),
        ("/below", json!(-1)),
        ("/files", json!(["a", "c"])),
        ("/files", json!(["b", "b"])),
        ("/deep/list/0/n", json!(6)),
    ] {
        let mut after = before.clone();
        *after.pointer_mut(place).unwrap() = value.clone();
        assert!(is_narrower(&before, &after), "{place}: {value}");
        assert!(!is_narrower(&after, &before), "{place}: {value} and back");
    }
    assert!(is_narrower(&before, &before));
}

#[test]
fn everything_else_is_not() {
    let before = json!({
        "to": "ann", "cents": 500, "none": 0, "below": -3, "urgent": true, "files": ["a", "b"],
        "deep": { "note": null }
    });
    for (place, value) in [
        ("/to", json!("an")),
        ("/to", json!(null)),
        ("/cents", json!(501)),
        ("/cents", json!(0)),
        ("/cents", json!(-1)),
        ("/cents", json!("5")),
        ("/none", json!(1)),
        ("/none", json!(-1)),
        ("/below", json!(3)),
        ("/below", json!(-4)),
        ("/below", json!(0.0)),
        ("/urgent", json!(false)),
        ("/files", json!(["b", "a"])),
        ("/files", json!(["a", "a"])),
        ("/files", json!(["a", "b", "b"])),
        ("/files", json!(["c"])),
        ("/files", json!(["a", "c"])),
        ("/files", json!([])),
        ("/files", json!({})),
        ("/deep", json!({})),
        ("/deep", json!({ "note": null, "more": 1 })),
        ("/deep", json!(null)),
        ("/deep/note", json!({})),
    ] {
        let mut after = before.clone();
        *after.pointer_mut(place).unwrap() = value.clone();
        assert!(!is_narrower(&before, &after), "{place}: {value}");
    }
}

#[test]
fn a_precondition_left_out_is_not_narrower() {
    let before = json!({ "path": "a.txt", "expected_digest": "sha256:00", "keep": { "n": 1 } });
    for after in [
        json!({ "path": "a.txt", "keep": { "n": 1 } }),
        json!({ "path": "a.txt", "expected_digest": "sha256:00", "keep": {} }),
        json!({ "path": "a.txt", "expected_digest": null, "keep": { "n": 1 } }),
        json!({ "path": "a.txt", "expected_digest": "", "keep": { "n": 1 } }),
        json!({}),
    ] {
        assert!(!is_narrower(&before, &after), "{after}");
    }
}

#[test]
fn numbers_are_compared_exactly() {
    let largest = json!(u64::MAX);
    assert!(is_narrower(&largest, &json!(u64::MAX - 1)));
    assert!(!is_narrower(&json!(u64::MAX - 1), &largest));
    assert!(is_narrower(&json!(i64::MIN), &json!(i64::MIN + 1)));
    // As doubles the two are one.
    assert!(!is_narrower(&json!(9_007_199_254_740_992_u64), &json!(9_007_199_254_740_993_u64)));
    assert!(!is_narrower(&json!(9_007_199_254_740_993_u64), &json!(9_007_199_254_740_992.0)));
    assert!(is_narrower(&json!(3), &json!(2.5)));
    assert!(!is_narrower(&json!(2.5), &json!(3)));
}

#[test]
fn a_changed_masked_value_is_never_narrower_and_its_place_is_named() {
    let schema = ArgumentSchema::compile(&json!({
        "type": "object",
        "properties": {
            "note": { "type": "string" },
            "account": { "type": "integer", "x-sensitive": true },
            "cards": { "type": "array", "items": {
                "type": "object",
                "properties": { "pan": { "type": "string", "x-sensitive": true }, "n": { "type": "integer" } }
            } }
        }
    }))
    .unwrap();
    let before =
        json!({ "note": "x", "account": 7, "cards": [{ "pan": "p", "n": 9 }, { "n": 5 }] });
    for (after, places) in [
        (json!({ "note": "x", "account": 6, "cards": before["cards"] }), vec!["/account"]),
        (json!({ "note": "x", "cards": before["cards"] }), vec!["/account"]),
        (json!({ "note": "x", "account": 7, "cards": [{ "n": 5 }] }), vec!["/cards/0/pan"]),
        (json!({ "note": "x", "account": 7, "cards": [{ "pan": "q" }] }), vec!["/cards/0/pan"]),
        (
            json!({ "note": "x", "account": 7, "cards": [{ "n": 5 }, { "pan": "p" }] }),
            vec!["/cards/0/pan", "/cards/1/pan"],
        ),
    ] {
        let change = Change::of(&schema, &before, &after);
        let masked: Vec<&str> = change.masked.iter().map(String::as_str).collect();
        assert_eq!((change.narrower, masked), (false, places), "{after}");
    }
    let open = json!({ "note": "x", "account": 7, "cards": [{ "pan": "p", "n": 8 }, { "n": 1 }] });
    let change = Change::of(&schema, &before, &open);
    assert_eq!(change, Change { narrower: true, masked: BTreeSet::new() });
    let whole = ArgumentSchema::compile(&json!({ "x-sensitive": true })).unwrap();
    let change = Change::of(&whole, &before, &open);
    assert_eq!((change.narrower, change.masked), (false, BTreeSet::from([String::new()])));
}

/// Small values, so that equal ones meet.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..4_i64).prop_map(Value::from),
        prop::sample::select(vec![-1.5, 0.5, 2.5]).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A value with less in it: `cuts` say what is removed from lists or made smaller.
fn less(value: &Value, cuts: &mut impl Iterator<Item = bool>) -> Value {
    let mut cut = || cuts.next().unwrap_or(false);
    match value {
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(k, v)| (k.clone(), less(v, cuts))).collect())
        }
        Value::Array(items) => {
            let kept: Vec<Value> = items.iter().filter(|_| !cut()).cloned().collect();
            if kept.len() == items.len() || kept.is_empty() {
                let kept = items;
                kept.iter().map(|item| less(item, cuts)).collect()
            } else {
                Value::Array(kept)
            }
        }
        Value::Number(number) if cut() => match number.as_i64() {
            Some(number) if number > 1 => Value::from(number.saturating_sub(1)),
            Some(number) if number < -1 => Value::from(number.saturating_add(1)),
            Some(_) => value.clone(),
            None => Value::from(number.as_f64().unwrap() / 2.0),
        },
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// A value without the `left`-th member of a walk through it, not counting lists; returns whether there was one.
fn without_a_member(value: &mut Value, left: &mut usize) -> bool {
    let Value::Object(fields) = value else { return false };
    let names: Vec<String> = fields.keys().cloned().collect();
    for name in names {
        if *left == 0 {
            return fields.remove(&name).is_some();
        }
        *left = left.saturating_sub(1);
        if without_a_member(&mut fields[&name], left) {
            return true;
        }
    }
    false
}

/// How often each text, flag and null occurs.
fn leaves(value: &Value, count: &mut BTreeMap<String, usize>) {
    match value {
        Value::Object(fields) => fields.values().for_each(|inner| leaves(inner, count)),
        Value::Array(items) => items.iter().for_each(|inner| leaves(inner, count)),
        Value::Number(_) => {}
        Value::Null | Value::Bool(_) | Value::String(_) => {
            let many = count.entry(value.to_string()).or_default();
            *many = many.saturating_add(1);
        }
    }
}

fn weight(value: &Value) -> f64 {
    match value {
        Value::Object(fields) => fields.values().map(weight).sum(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Number(number) => number.as_f64().unwrap().abs(),
        Value::Null | Value::Bool(_) | Value::String(_) => 0.0,
    }
}

proptest! {
    #[test]
    fn shorter_lists_and_smaller_numbers_are_narrower(
        before in value(), cuts in prop::collection::vec(any::<bool>(), 32)
    ) {
        let after = less(&before, &mut cuts.into_iter());
        prop_assert!(is_narrower(&before, &after), "{before} {after}");
    }

    #[test]
    fn no_edit_that_leaves_a_member_out_is_narrower(
        before in value(), cuts in prop::collection::vec(any::<bool>(), 32), place in 0..6_usize
    ) {
        let mut after = less(&before, &mut cuts.into_iter());
        if without_a_member(&mut after, &mut { place }) {
            prop_assert!(!is_narrower(&before, &after), "{before} {after}");
        }
    }

    #[test]
    fn what_is_narrower_holds_nothing_new_and_nothing_greater(
        before in value(), other in value(), cuts in prop::collection::vec(any::<bool>(), 32),
        is_other in prop::bool::weighted(0.3)
    ) {
        let after = if is_other { other } else { less(&before, &mut cuts.into_iter()) };
        if !is_narrower(&before, &after) {
            return Ok(());
        }
        let (mut had, mut has) = (BTreeMap::new(), BTreeMap::new());
        leaves(&before, &mut had);
        leaves(&after, &mut has);
        prop_assert!(has.iter().all(|(leaf, many)| had.get(leaf).is_some_and(|had| had >= many)));
        prop_assert!(weight(&after) <= weight(&before));
        // Narrower in both directions means equal.
        prop_assert_eq!(is_narrower(&after, &before), before == after);
    }
}
