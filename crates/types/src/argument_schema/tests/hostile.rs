//! Schemas from a server that wants something: our files, our network, our time, our stack.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::*;
use super::{compile, refusal};

/// Runs on a stack as small as that of a runtime's worker, and fails if it takes much longer than an honest schema.
fn bounded<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    on_a_stack_of(2 * 1024 * 1024, work)
}

fn on_a_stack_of<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    let worker = std::thread::Builder::new().stack_size(bytes).spawn(move || sender.send(work()));
    let done = receiver.recv_timeout(Duration::from_secs(30)).expect("the work ends soon");
    worker.unwrap().join().unwrap().unwrap();
    done
}

#[test]
fn a_reference_that_leaves_the_schema_is_refused() {
    for reference in [
        "file:///etc/passwd",
        "http://127.0.0.1:1/schema.json",
        "https://json-schema.org/draft/2020-12/schema",
        "other.json",
        "/etc/passwd",
        "//x.example/schema",
        "../secret.json#/a",
        "urn:example:a",
        "\\\\server\\share",
        "data:application/json,{}",
    ] {
        for schema in [
            json!({"$ref": reference}),
            json!({"properties": {"a": {"items": {"$ref": reference}}}}),
            json!({"$defs": {"unused": {"$ref": reference}}}),
            json!({"$id": "https://x.example/root.json", "properties": {"a": {"$ref": reference}}}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"$ref": reference}}}),
        ] {
            let error = refusal(&schema);
            assert!(error.contains("may refer only to itself"), "{schema}: {error}");
        }
    }
}

#[test]
fn a_reference_to_a_file_is_not_read() {
    // Trap T6: with the validator's default features, the error shows the file's content.
    let path =
        std::env::temp_dir().join(format!("placet-argument-schema-{}.json", std::process::id()));
    std::fs::write(&path, r#"{"const": "s3cret-from-disk"}"#).unwrap();
    let schema = json!({"properties": {"a": {"$ref": format!("file://{}", path.display())}}});
    let error = refusal(&schema);
    std::fs::remove_file(&path).unwrap();
    assert!(!error.contains("s3cret-from-disk"), "{error}");
    assert!(error.contains("a schema may refer only to itself"), "{error}");
}

#[test]
fn a_pattern_that_needs_backtracking_quarantines_the_tool() {
    for pattern in [
        "(?=lookahead)",
        "^(?!a)b",
        "(?<=a)b",
        "(a)\\1",
        "(a",
        "[",
        "(a{1000}){1000}",
        "(?P<n>a)(?P=n)",
    ] {
        for schema in [
            json!({"properties": {"p": {"pattern": pattern}}}),
            json!({"properties": {"p": {"anyOf": [{"pattern": pattern}, {}]}}}),
            json!({"patternProperties": {pattern: {}}}),
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"p": {"pattern": pattern}}}),
        ] {
            let error = refusal(&schema);
            assert!(error.contains("in linear time"), "{schema}: {error}");
        }
    }
}

#[test]
fn a_pattern_is_matched_in_linear_time() {
    bounded(|| {
        let schema = compile(&json!({"properties": {"p": {"pattern": "^(a+)+$"}}}));
        assert!(schema.validate(&json!({"p": "a".repeat(100_000)})).is_ok());
        assert!(schema.validate(&json!({"p": "a".repeat(100_000) + "b"})).is_err());
    });
}

#[test]
fn a_pattern_is_read_as_ecmascript() {
    let schema = compile(&json!({"properties": {"p": {"pattern": "^\\d{2}\\cA?[\\w-]$"}}}));
    assert!(schema.validate(&json!({"p": "12a"})).is_ok());
    // In ECMAScript, digits are those of ASCII only.
    assert!(schema.validate(&json!({"p": "١٢a"})).is_err());
}

#[test]
fn a_schema_that_refers_to_itself_for_the_same_value_never_ends_a_check() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
    ] {
        bounded(move || assert!(refusal(&schema).contains("never ends"), "{schema}"));
    }
    for (definition, args) in [
        (json!({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}), json!({"x": 1})),
        (json!({"$ref": "#/$defs/a"}), json!({"x": 1})),
    ] {
        bounded(move || {
            let schema = compile(
                &json!({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": definition}}),
            );
            assert_eq!(schema.validate(&args), Err(problem::too_complex()));
            assert!(schema.validate(&json!({})).is_ok());
        });
    }
}

/// Every definition refers to the next one twice.
fn doubling(levels: usize) -> Value {
    let mut definitions = Map::new();
    for level in 1..=levels {
        let next = json!({"$ref": format!("#/$defs/a{level}")});
        definitions.insert(format!("a{}", level.saturating_sub(1)), json!({"allOf": [next, next]}));
    }
    definitions.insert(format!("a{levels}"), json!({"required": ["x"]}));
    json!({"$defs": definitions, "properties": {"v": {"$ref": "#/$defs/a0"}}})
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({"b": 1}), |inner, _| json!({"a": inner}))
}

#[test]
fn references_that_multiply_do_not_take_time() {
    bounded(|| {
        let schema = compile(&doubling(60));
        assert_eq!(schema.validate(&json!({"v": {"x": 1}})), Err(problem::too_complex()));
        // Where the value is absent, nothing is evaluated.
        assert!(schema.validate(&json!({})).is_ok());
        // A moderate doubling is legitimate, and its problems are explained.
        let problems = compile(&doubling(8)).validate(&json!({"v": {}})).expect_err("refused");
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].to_string(), "`/v`: `x` is required");
        // A larger one is validated, but not explained.
        let schema = compile(&doubling(17));
        assert!(schema.validate(&json!({"v": {"x": 1}})).is_ok());
        assert_eq!(schema.validate(&json!({"v": {}})), Err(problem::unexplained()));
    });
}

#[test]
fn recursion_that_multiplies_does_not_take_time() {
    for combination in ["allOf", "anyOf", "oneOf"] {
        bounded(move || {
            let twice = json!({combination: [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}]});
            let schema = compile(&json!({
                "$defs": {"x": {"properties": {"a": twice, "b": {"type": "string"}}}},
                "$ref": "#/$defs/x"
            }));
            assert_eq!(schema.validate(&nested(60)), Err(problem::too_complex()));
            assert!(schema.validate(&nested(6)).is_err());
        });
    }
}

#[test]
fn unevaluated_properties_do_not_take_time() {
    bounded(|| {
        let inner = (0..12).fold(
            json!({"properties": {"b": {}}}),
            |inner, _| json!({"allOf": [inner], "unevaluatedProperties": false}),
        );
        let args: Map<String, Value> = (0..5000).map(|n| (format!("k{n}"), json!(n))).collect();
        assert!(compile(&inner).validate(&Value::Object(args)).is_err());
    });
}

/// Each level of the arguments goes through a chain of definitions.
fn chain(links: usize, link: impl Fn(Value) -> Value) -> Value {
    let mut definitions = Map::new();
    for position in 1..=links {
        definitions.insert(
            format!("a{}", position.saturating_sub(1)),
            link(json!({"$ref": format!("#/$defs/a{position}")})),
        );
    }
    let end = json!({"properties": {"a": {"$ref": "#/$defs/a0"}, "b": {"type": "string"}}});
    definitions.insert(format!("a{links}"), end);
    json!({"$defs": definitions, "$ref": "#/$defs/a0"})
}

#[test]
fn deep_evaluation_cannot_exhaust_the_stack() {
    let links: [fn(Value) -> Value; 6] = [
        |next| json!({"allOf": [next]}),
        |next| json!({"anyOf": [{"type": "null"}, next]}),
        |next| json!({"oneOf": [{"type": "null"}, next]}),
        |next| json!({"not": {"not": next}}),
        |next| json!({"if": true, "then": next}),
        |next| json!({"dependentSchemas": {"a": next}, "unevaluatedProperties": true}),
    ];
    for link in links {
        for length in [1, 2, 3, 4, 6, 10, 40, 150] {
            on_a_stack_of(1024 * 1024, move || {
                match ArgumentSchema::compile(&chain(length, link)) {
                    Ok(schema) => {
                        for levels in [1, 5, 10, 20, 40, 60] {
                            // Either verdict is fine: the test is that there is one.
                            assert!(
                                schema.validate(&nested(levels)).is_ok()
                                    || schema.validate(&nested(levels)).is_err()
                            );
                        }
                        assert!(length > 10 || schema.validate(&json!({})).is_ok(), "{length}");
                    }
                    Err(error) => {
                        let error = error.to_string();
                        assert!(error.contains("too many") || error.contains("never"), "{error}");
                    }
                }
            });
        }
    }
}

#[test]
fn deep_schemas_cannot_exhaust_the_stack() {
    let wraps: [fn(Value) -> Value; 4] = [
        |inner| json!({"not": inner}),
        |inner| json!({"items": inner}),
        |inner| json!({"properties": {"a": inner}}),
        |inner| json!({"allOf": [inner, {}]}),
    ];
    for wrap in wraps {
        bounded(move || {
            let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| wrap(inner));
            compile(&deep(20));
            for levels in [25, 30, 60] {
                let error = refusal(&deep(levels));
                assert!(error.contains("too many") || error.contains("too deeply"), "{error}");
            }
        });
    }
    bounded(|| {
        let long =
            |links| chain(links, |next| (0..20).fold(next, |inner, _| json!({"not": inner})));
        compile(&long(20));
        assert!(refusal(&long(400)).contains("too many nested"));
    });
}

#[test]
fn a_schema_that_is_too_large_is_refused() {
    let properties: Map<String, Value> =
        (0..4000).map(|n| (format!("p{n}"), json!({"title": "t".repeat(100)}))).collect();
    assert!(refusal(&json!({"properties": properties})).contains("bytes, at most"));
    let patterns: Map<String, Value> = (0..300).map(|n| (format!("^p{n}"), json!({}))).collect();
    assert!(refusal(&json!({"patternProperties": patterns})).contains("too many patterns"));
    let references = vec![json!({"$ref": "#/$defs/a"}); 3000];
    let schema = json!({"$defs": {"a": {}}, "properties": {"x": {"allOf": references}}});
    assert!(refusal(&schema).contains("too many references"));
}

#[test]
fn large_arguments_under_many_alternatives_are_not_copied_without_end() {
    bounded(|| {
        let forms: Vec<Value> =
            (0..400).map(|n| json!({"properties": {"big": {"const": n}}})).collect();
        let schema = compile(&json!({"anyOf": forms}));
        assert!(schema.validate(&json!({"big": "x".repeat(900_000)})).is_err());
        assert!(schema.validate(&json!({"big": 3})).is_ok());
    });
}
