//! Tests of documents read into a form: unknown fields, structures by name only, and what a refusal says of it.

use serde::Deserialize;

use super::super::*;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    tool: String,
    retries: Vec<u8>,
}

fn typed(text: &str) -> Result<Envelope, JsonError> {
    from_slice_strict(text.as_bytes(), &JsonLimits::default())
}

#[test]
fn a_typed_document_is_read_strictly() {
    let envelope = typed(r#"{"tool":"a","retries":[1.0,2]}"#);
    assert_eq!(envelope, Ok(Envelope { tool: "a".to_owned(), retries: vec![1, 2] }));
    assert!(matches!(
        typed(r#"{"tool":"a","tool":"b","retries":[]}"#),
        Err(JsonError::DuplicateKey { .. })
    ));
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

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nest {
    inner: Option<Envelope>,
    #[serde(default)]
    listed: Vec<Envelope>,
    #[serde(default)]
    named: std::collections::BTreeMap<crate::ids::RunId, Envelope>,
    #[serde(default)]
    pair: Option<(u8, Envelope)>,
    #[serde(default)]
    kind: Option<Kind>,
}

#[derive(Debug, PartialEq, Deserialize)]
enum Kind {
    Plain,
    Named { envelope: Envelope },
    Wrapped(Envelope),
}

fn nest(text: &str) -> Result<Nest, JsonError> {
    from_slice_strict(text.as_bytes(), &JsonLimits::default())
}

#[test]
fn a_structure_is_read_by_name_and_never_by_position() {
    let plain = r#"{"tool":"a","retries":[]}"#;
    for whole in [
        format!(r#"{{"inner":{plain}}}"#),
        format!(r#"{{"inner":null,"listed":[{plain},{plain}],"named":{{"r1":{plain}}}}}"#),
        format!(r#"{{"pair":[1,{plain}],"kind":"Plain"}}"#),
        format!(r#"{{"kind":{{"Named":{{"envelope":{plain}}}}}}}"#),
        format!(r#"{{"kind":{{"Wrapped":{plain}}}}}"#),
    ] {
        assert!(nest(&whole).is_ok(), "{whole}: {:?}", nest(&whole));
    }
    assert_eq!(
        typed(r#"["a",[1]]"#).expect_err("an array").to_string(),
        "the document: invalid type: sequence, expected an object"
    );
    for (text, pointer) in [
        (r#"{"inner":["a",[]]}"#, "/inner"),
        (r#"{"listed":[["a",[]]]}"#, "/listed/0"),
        (r#"{"named":{"r1":["a",[]]}}"#, "/named/r1"),
        (r#"{"pair":[1,["a",[]]]}"#, "/pair/1"),
        (r#"{"kind":{"Named":[{"tool":"a","retries":[]}]}}"#, "/kind"),
        (r#"{"kind":{"Wrapped":["a",[]]}}"#, "/kind"),
    ] {
        assert_eq!(nest(text).expect_err(text).pointer(), Some(pointer), "{text}");
    }
    for (text, problem) in [
        (r#"{"pair":[1,{"tool":"a","retries":[]},3]}"#, "invalid length 3"),
        (r#"{"kind":{"Plain":null,"Wrapped":null}}"#, "map with a single key"),
        (r#"{"kind":"Other"}"#, "unknown variant"),
    ] {
        let message = nest(text).expect_err(text).to_string();
        assert!(message.contains(problem), "{message}");
    }
}
