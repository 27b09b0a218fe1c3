//! Tests of argument schemas: what is accepted, what is reported to callers, and what hostile schemas cannot do.

mod hostile;
mod sensitive;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

fn compile(schema: &Value) -> ArgumentSchema {
    ArgumentSchema::compile(schema).unwrap_or_else(|error| panic!("{error}: {schema}"))
}

fn refusal(schema: &Value) -> String {
    ArgumentSchema::compile(schema).expect_err("the schema is refused").to_string()
}

fn told(schema: &Value, args: &Value) -> String {
    let problems = compile(schema).validate(args).expect_err("the arguments are refused");
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

fn check(schema: Value, args: Value, expected: &Expect) {
    expected.assert_eq(&told(&schema, &args));
}

#[test]
fn what_breaks_a_rule_of_its_own_is_not_called_unknown_too() {
    let schema = json!({
        "type": "object", "properties": { "n": { "type": "integer" } },
        "allOf": [{ "properties": { "m": { "type": "array", "prefixItems": [{}], "items": false } } }],
        "dependentRequired": { "n": ["m"] }, "unevaluatedProperties": false,
    });
    check(
        schema.clone(),
        json!({ "n": 1, "u": 1 }),
        &expect![[r#"
        `m` is required
        `/u`: `u` is not a known property
    "#]],
    );
    check(
        schema,
        json!({ "n": 1, "m": ["a", "b"] }),
        &expect![[r#"
        `/m/1`: is not allowed
    "#]],
    );
}

#[test]
fn a_schema_is_shared_between_threads() {
    fn shared<T: Send + Sync + Clone + fmt::Debug>(_: &T) {}
    let schema = compile(&json!({"type": "object", "title": "s3cret"}));
    shared(&schema);
    assert!(!format!("{schema:?}").contains("s3cret"));
}

#[test]
fn problems_say_where_and_what() {
    let schema = json!({
        "type": "object",
        "required": ["path"],
        "additionalProperties": false,
        "properties": {
            "path": {"type": "string", "minLength": 1, "pattern": "^[a-z./]+$"},
            "mode": {"enum": ["read", "write", 7]},
            "depth": {"type": ["integer", "null"], "minimum": 1, "maximum": 10},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": true},
            "when": {"format": "date-time"},
            "kind": {"const": {"a": 1}},
            "step": {"type": "number", "multipleOf": 0.5, "exclusiveMaximum": 2}
        }
    });
    check(
        schema.clone(),
        json!({"pth": "a"}),
        &expect![[r#"
            `/pth`: `pth` is not a known property; known are `path`, `mode`, `depth`, `tags`, `when`, `kind`, `step`
            `path` is required
        "#]],
    );
    check(
        schema.clone(),
        json!({"path": "", "mode": "delete", "depth": 11, "tags": ["a", "a", 3], "when": "now", "kind": 1, "step": 2.2}),
        &expect![[r#"
            `/path`: the value is shorter than 1 character
            `/path`: the value does not match "^[a-z./]+$"
            `/mode`: must be one of "read", "write", 7
            `/depth`: the value is greater than the maximum of 10
            `/tags`: the value has more than 2 items
            `/tags`: the value has non-unique elements
            `/tags/2`: must be string, got number
            `/when`: the value is not a "date-time"
            `/kind`: {"a":1} was expected
            `/step`: the value is greater than or equal to the maximum of 2
            `/step`: the value is not a multiple of 0.5
        "#]],
    );
    check(
        schema.clone(),
        json!({"path": 7.5, "depth": "1"}),
        &expect![[r#"
            `/path`: must be string, got number
            `/depth`: must be null or integer, got string
        "#]],
    );
    check(
        schema,
        json!(["path"]),
        &expect![[r#"
            must be object, got array
        "#]],
    );
}

#[test]
fn problems_of_alternatives_name_the_closest() {
    let schema = json!({
        "properties": {
            "target": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "action": {"oneOf": [
                {"type": "object", "required": ["path"], "properties": {"do": {"const": "read"}, "path": {"type": "string"}}},
                {"type": "object", "required": ["url"], "properties": {"do": {"const": "fetch"}, "url": {"format": "uri"}}},
                {"type": "string"}
            ]},
            "both": {"oneOf": [{"minimum": 0}, {"maximum": 10}]},
            "never": false,
            "odd": {"not": {"multipleOf": 2}}
        },
        "propertyNames": {"maxLength": 8},
        "dependentRequired": {"target": ["action"]}
    });
    check(
        schema.clone(),
        json!({"target": 1, "action": {"do": "fetch", "url": "no url"}, "both": 5, "never": 1, "odd": 2, "much_too_long": 1}),
        &expect![[r#"
            `/target`: matches none of the 2 allowed forms
            `/target`: must be string, got number
            `/action`: matches none of the 3 allowed forms
            `/action/url`: the value is not a "uri"
            `/both`: the value is valid under more than one of the schemas listed in the 'oneOf' keyword
            `/never`: is not allowed
            `/odd`: has a form that is excluded
            `/much_too_long`: the name of the property is not allowed
        "#]],
    );
    check(
        schema,
        json!({"target": "a"}),
        &expect![[r#"
            `action` is required
        "#]],
    );
}

#[test]
fn problems_are_bounded_in_number_and_size() {
    let options: Vec<String> = (0..5000).map(|n| format!("{n}-{}", "o".repeat(200))).collect();
    let schema = json!({
        "additionalProperties": false,
        "properties": {"o": {"enum": options}},
        "patternProperties": {"^p": {"type": "string", "pattern": "a".repeat(2000)}}
    });
    let mut args = serde_json::Map::new();
    args.insert("o".to_owned(), json!("x"));
    for n in 0..1000 {
        args.insert(format!("q{n}{}", "x".repeat(500)), json!(1));
        args.insert(format!("p{n}{}", "x".repeat(500)), json!("b"));
    }
    let schema = ArgumentSchema::compile(&schema);
    // A schema with a megabyte of options is not accepted.
    assert!(schema.is_err());
    let options: Vec<String> = (0..500).map(|n| format!("{n}-{}", "o".repeat(200))).collect();
    let schema = compile(&json!({
        "additionalProperties": false,
        "properties": {"o": {"enum": options}},
        "patternProperties": {"^p": {"type": "string", "pattern": "a".repeat(2000)}}
    }));
    let problems = schema.validate(&Value::Object(args)).expect_err("refused");
    assert_eq!(problems.len(), 20);
    for problem in problems {
        assert!(problem.to_string().len() < 4096, "{problem}");
    }
}

#[test]
fn control_characters_in_names_do_not_reach_a_message() {
    let schema = compile(&json!({"additionalProperties": false}));
    let problems = schema.validate(&json!({"a\n\u{1b}[31mERROR": 1})).expect_err("refused");
    assert!(!problems[0].to_string().chars().any(char::is_control), "{}", problems[0]);
}

#[test]
fn every_dialect_is_read_as_it_says() {
    let exclusive = json!({"maximum": 5, "exclusiveMaximum": true});
    let tuple = json!({"items": [{"type": "string"}]});
    for (dialect, part, good, bad) in [
        ("http://json-schema.org/draft-04/schema#", &exclusive, json!(4), json!(5)),
        ("http://json-schema.org/draft-06/schema#", &json!({"const": 1}), json!(1), json!(2)),
        ("http://json-schema.org/draft-07/schema#", &tuple, json!(["a"]), json!([1])),
        (
            "http://json-schema.org/draft-07/schema",
            &json!({"if": {"minimum": 5}, "then": false}),
            json!(1),
            json!(5),
        ),
        ("https://json-schema.org/draft/2019-09/schema", &tuple, json!(["a"]), json!([1])),
        (
            "https://json-schema.org/draft/2020-12/schema",
            &json!({"prefixItems": [{"type": "string"}]}),
            json!(["a"]),
            json!([1]),
        ),
    ] {
        let schema =
            compile(&json!({"$schema": dialect, "type": "object", "properties": {"x": part}}));
        assert!(schema.validate(&json!({"x": good})).is_ok(), "{dialect}");
        assert!(schema.validate(&json!({"x": bad})).is_err(), "{dialect}");
    }
    // Without a dialect it is 2020-12, where these are errors or mean something else.
    refusal(&json!({"properties": {"x": exclusive}}));
    refusal(&json!({"properties": {"x": tuple}}));
    // In draft 4 an integer may not be written with a fraction; here 1.0 is 1 before the schema sees it.
    let draft4 = json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"x": {"type": "integer"}}});
    let args = crate::json::parse_strict(br#"{"x": 1.0}"#, &JsonLimits::default()).unwrap();
    assert!(compile(&draft4).validate(&args).is_ok());
}

#[test]
fn an_unknown_dialect_is_refused() {
    for dialect in [
        "http://json-schema.org/draft-03/schema#",
        "http://json-schema.org/schema#",
        "https://x.example/mine",
        "",
    ] {
        let error = refusal(&json!({"$schema": dialect}));
        assert!(error.contains("unknown dialect"), "{dialect}: {error}");
    }
    let mixed = json!({
        "$defs": {"a": {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://x.example/a"}}
    });
    assert!(refusal(&mixed).contains("changes the dialect"));
}

#[test]
fn a_schema_that_is_wrong_is_refused_with_its_place() {
    let schemas = [
        json!({"properties": {"p": {"type": "strin"}}}),
        json!({"required": "path"}),
        json!({"properties": {"p": {"minLength": -1}}}),
        json!({"properties": []}),
        json!({"properties": {"a": {"pattern": "(a"}}}),
        json!({"maximum": 9_007_199_254_740_993_u64}),
        json!("object"),
        json!({"$ref": "#/$defs/none"}),
    ];
    let messages: String = schemas.iter().map(|schema| format!("{}\n", refusal(schema))).collect();
    expect![[r#"
        `/properties/p/type`: matches none of the 2 allowed forms
        `/required`: must be array, got string
        `/properties/p/minLength`: the value is less than the minimum of 0
        `/properties`: must be object, got array
        `/properties/a/pattern`: cannot be matched in linear time (no lookaround, no backreferences)
        `/maximum`: the number `9007199254740993` cannot be carried exactly: send it as a string
        the schema: must be boolean or object, got string
        the schema: refers to `#/$defs/none`, which is not in the schema
    "#]]
    .assert_eq(&messages);
}

#[test]
fn references_inside_the_schema_work() {
    let by_pointer = json!({
        "properties": {"a": {"$ref": "#/$defs/a~1b%25"}},
        "$defs": {"a/b%": {"$anchor": "text", "type": "string"}}
    });
    let by_own_name = json!({
        "$id": "https://x.example/root.json",
        "properties": {"a": {"$ref": "https://x.example/root.json#/$defs/text"}},
        "$defs": {"text": {"type": "string"}}
    });
    let draft4 = json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "id": "http://x.example/root",
        "properties": {"a": {"$ref": "#/definitions/text"}},
        "definitions": {"text": {"type": "string"}}
    });
    let unusual_place = json!({"properties": {"a": {"$ref": "#/x-types/text"}}, "x-types": {"text": {"type": "string"}}});
    for schema in [by_pointer, by_own_name, draft4, unusual_place] {
        let compiled = compile(&schema);
        assert!(compiled.validate(&json!({"a": "text"})).is_ok(), "{schema}");
        assert!(compiled.validate(&json!({"a": 1})).is_err(), "{schema}");
    }
    let tree = compile(&json!({
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": {"type": "integer"}},
        "additionalProperties": false
    }));
    assert!(tree.validate(&json!({"left": {"right": {"value": 1}}})).is_ok());
    let problems = tree.validate(&json!({"left": {"right": {"value": "1"}}})).expect_err("refused");
    assert_eq!(problems[0].pointer, "/left/right/value");
}

#[test]
fn a_reference_that_depends_on_more_than_its_place_quarantines_the_tool() {
    let draft4 = "http://json-schema.org/draft-04/schema#";
    for (schema, refused) in [
        (json!({"properties": {"a": {"$dynamicRef": "#"}}}), "$dynamicRef"),
        (json!({"properties": {"a": {"$recursiveRef": "#"}}}), "$recursiveRef"),
        (json!({"$defs": {"x": {"$dynamicAnchor": "name"}}}), "$dynamicAnchor"),
        (json!({"$defs": {"x": {"$id": "item.json"}}}), "$id"),
        (json!({"$schema": draft4, "definitions": {"x": {"id": "#name"}}}), "id"),
    ] {
        let error = refusal(&schema);
        assert!(error.contains(&format!("has `{refused}`")), "{schema}: {error}");
    }
    let named = json!({"$defs": {"x": {"$anchor": "name", "type": "string"}}, "properties": {"a": {"$ref": "#name"}}});
    let by_name = refusal(&named);
    assert!(by_name.contains("which is not in the schema"), "{by_name}");
}

#[test]
fn words_that_are_data_are_not_references() {
    let schema = json!({
        "properties": {
            "$ref": {"type": "string"},
            "a": {"const": {"$ref": "http://x.example/"}},
            "b": {"default": {"$ref": "file:///etc/passwd"}, "examples": [{"$id": "http://x.example/"}]}
        }
    });
    assert!(
        compile(&schema)
            .validate(&json!({"$ref": "x", "a": {"$ref": "http://x.example/"}}))
            .is_ok()
    );
}

fn filled(schema: Value, args: Value) -> Value {
    compile(&schema).validate(&args).unwrap_or_else(|problems| panic!("{}", problems[0]))
}

#[test]
fn defaults_are_filled_in() {
    let schema = json!({
        "properties": {
            "limit": {"type": "integer", "default": 10},
            "options": {"properties": {"deep": {"default": false}, "shallow": {"type": "boolean"}}},
            "rows": {"items": {"properties": {"n": {"default": 0}}}},
            "level": {"$ref": "#/$defs/level"}
        },
        "allOf": [{"properties": {"extra": {"default": null}}}],
        "$defs": {"level": {"enum": ["low", "high"], "default": "low"}}
    });
    assert_eq!(
        filled(schema.clone(), json!({"options": {}})),
        json!({"limit": 10, "options": {"deep": false}, "level": "low", "extra": null})
    );
    assert_eq!(
        filled(
            schema,
            json!({"limit": 1, "options": {"deep": true}, "rows": [{}, {"n": 3}], "level": "high", "extra": 1})
        ),
        json!({"limit": 1, "options": {"deep": true}, "rows": [{"n": 0}, {"n": 3}], "level": "high", "extra": 1})
    );
}

#[test]
fn a_required_argument_with_a_default_is_required() {
    let schema =
        json!({"properties": {"a": {"default": 1}, "b": {"default": 2}}, "required": ["a"]});
    let problems = compile(&schema).validate(&json!({})).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].to_string(), "`a` is required");
    assert_eq!(filled(schema, json!({"a": 7})), json!({"a": 7, "b": 2}));
}

#[test]
fn what_was_sent_is_never_replaced_by_a_default() {
    let schema = json!({"properties": {"a": {"type": "string", "default": "x"}}});
    assert_eq!(filled(schema.clone(), json!({"a": ""})), json!({"a": ""}));
    assert!(compile(&schema).validate(&json!({"a": null})).is_err());
}

#[test]
fn a_default_that_is_not_valid_is_left_out() {
    let schema = json!({
        "properties": {"a": {"type": "string", "default": null}, "b": {"default": 1}, "c": {"default": 2}}
    });
    assert_eq!(filled(schema, json!({})), json!({"b": 1, "c": 2}));
    // Each alone is valid, both together are not.
    let schema = json!({
        "properties": {"a": {"default": 1}, "b": {"default": 2}},
        "not": {"required": ["a", "b"]}
    });
    assert_eq!(filled(schema.clone(), json!({})), json!({"a": 1}));
    assert_eq!(filled(schema, json!({"b": 7})), json!({"b": 7}));
    // A default that requires another property.
    let schema = json!({"properties": {"a": {"default": 1}}, "dependentRequired": {"a": ["b"]}});
    assert_eq!(filled(schema, json!({})), json!({}));
}

#[test]
fn defaults_do_not_come_from_conditions_and_alternatives() {
    let schema = json!({
        "anyOf": [{"properties": {"a": {"default": 1}}}, {"properties": {"b": {"default": 1}}}],
        "if": {"properties": {"c": {"default": 1}}},
        "then": {"properties": {"d": {"default": 1}}}
    });
    assert_eq!(filled(schema, json!({})), json!({}));
}

#[test]
fn a_default_is_taken_as_it_stands() {
    let schema = json!({"properties": {"next": {"$ref": "#", "default": {}}, "n": {"default": 0}}});
    assert_eq!(filled(schema, json!({})), json!({"next": {}, "n": 0}));
}

#[test]
fn defaults_that_are_too_many_are_left_to_the_tool() {
    let schema = json!({"properties": {"rows": {"items": {"properties": {"n": {"default": 0}}}}}});
    let rows = json!({"rows": vec![json!({}); 2000]});
    assert_eq!(filled(schema, rows.clone()), rows);
}
