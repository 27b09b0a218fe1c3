//! Tests of documents parsed into types: unknown fields, and the wording of refusals.

use serde::Deserialize;

use super::super::*;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    tool: String,
    retries: Vec<u8>,
}

fn typed(text: &str) -> Result<Envelope, JsonError> {
    parse_strict(text.as_bytes(), &JsonLimits::default()).and_then(from_value_strict)
}

#[test]
fn a_typed_document_is_read_strictly() {
    let envelope = typed(r#"{"tool":"a","retries":[1.0,2]}"#);
    assert_eq!(envelope, Ok(Envelope { tool: "a".to_owned(), retries: vec![1, 2] }));
    let twice = typed(r#"{"tool":"a","tool":"b","retries":[]}"#).unwrap_err();
    assert_eq!(twice.fault(), JsonFault::DuplicateKey);
}

#[test]
fn a_document_of_a_wrong_form_says_where_but_not_what() {
    for (text, message) in [
        (r#"{"tool":"a"}"#, "the document: missing field `retries`"),
        (
            r#"{"tool":"a","retries":[],"to/ols":1}"#,
            "`/to~1ols`: unknown field `to/ols`, expected `tool` or `retries`",
        ),
        (r#"{"tool":7,"retries":[]}"#, "`/tool`: invalid type: integer, expected a string"),
        (
            r#"{"tool":"a","retries":[1,"s3cret"]}"#,
            "`/retries/1`: invalid type: string, expected a whole number from 0 to 255",
        ),
        (
            r#"{"tool":"a","retries":[1,300]}"#,
            "`/retries/1`: invalid value: integer, expected a whole number from 0 to 255",
        ),
        (
            r#"{"tool":"a","retries":"s3cret, expected s3cret"}"#,
            "`/retries`: invalid type: string, expected a list",
        ),
    ] {
        assert_eq!(typed(text).expect_err(text).to_string(), message);
    }
    let unknown = typed(&format!(r#"{{"{}":1}}"#, "k".repeat(5000))).expect_err("unknown field");
    assert!(unknown.to_string().len() < 400, "{unknown}");
}

#[test]
fn an_array_of_its_fields_is_no_object() {
    use serde_json::json;

    use crate::run_context::RunRequest;

    let run = |budget: Value| {
        from_value_strict::<RunRequest>(json!({ "run_id": "r", "run_budget": budget }))
    };
    let read = run(json!({ "calls_max": 3 })).unwrap();
    assert_eq!(read.run_budget.calls_max, Some(3));
    for other in [json!([3, null, null]), json!([]), json!(null), json!(3)] {
        let refused = run(other.clone()).expect_err("it is no object");
        assert_eq!((refused.fault(), refused.pointer()), (JsonFault::Shape, "/run_budget"));
    }
    // What is wrong within is still named.
    let refused = run(json!({ "calls_max": "three" })).expect_err("no number");
    assert_eq!((refused.fault(), refused.pointer()), (JsonFault::Shape, "/run_budget/calls_max"));
}
