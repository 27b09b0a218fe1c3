//! Tests of what is hidden: in records by redaction, and in problems always.

use serde_json::json;

use super::compile;

#[test]
fn sensitive_arguments_are_masked() {
    let schema = compile(&json!({
        "properties": {
            "user": {"type": "string"},
            "password": {"type": "string", "x-sensitive": true},
            "pin": {"format": "password"},
            "open": {"x-sensitive": false},
            "keys": {"type": "array", "items": {"$ref": "#/$defs/key"}},
            "auth": {"oneOf": [{"properties": {"token": {"x-sensitive": true}}}, {"required": ["basic"]}]},
            "a/b": {"patternProperties": {"secret$": {"x-sensitive": true}}},
            "bag": {"additionalProperties": {"x-sensitive": true}, "properties": {"name": {}}}
        },
        "$defs": {"key": {"properties": {"value": {"x-sensitive": true}}}}
    }));
    let args = json!({
        "user": "ada", "password": "s3cret", "pin": "s3cret", "open": "o",
        "keys": [{"id": 1, "value": "s3cret"}, {"value": ["s3cret"]}],
        "auth": {"token": {"x": "s3cret"}, "basic": 1},
        "a/b": {"my_secret": "s3cret"},
        "bag": {"name": "n", "other": "s3cret"}
    });
    assert_eq!(
        schema.redact(&args),
        json!({
            "user": "ada", "password": "[sensitive]", "pin": "[sensitive]", "open": "o",
            "keys": [{"id": 1, "value": "[sensitive]"}, {"value": "[sensitive]"}],
            "auth": {"token": "[sensitive]", "basic": 1},
            "a/b": {"my_secret": "[sensitive]"},
            "bag": {"name": "n", "other": "[sensitive]"}
        })
    );
    let pointers: Vec<_> = schema.sensitive_pointers(&args).into_iter().collect();
    assert_eq!(
        pointers,
        [
            "/auth/token",
            "/a~1b/my_secret",
            "/bag/other",
            "/keys/0/value",
            "/keys/1/value",
            "/password",
            "/pin"
        ]
    );
    let whole = compile(&json!({"x-sensitive": true}));
    assert_eq!(whole.redact(&args), json!("[sensitive]"));
    let nothing = compile(&json!({}));
    assert_eq!(nothing.redact(&args), args);
}

#[test]
fn problems_never_hold_what_was_sent() {
    let secret = "s3cret";
    let schema = json!({
        "additionalProperties": false,
        "properties": {
            "a": {"type": "integer", "x-sensitive": true},
            "b": {"enum": ["x"]},
            "c": {"const": 1},
            "d": {"pattern": "^x$"},
            "e": {"anyOf": [{"type": "integer"}, {"enum": ["y"]}]},
            "f": {"not": {"type": "string"}},
            "g": {"x-sensitive": true, "additionalProperties": false, "properties": {"inner": {"type": "integer"}}},
            "h": {"x-sensitive": true, "additionalProperties": {"type": "integer"}, "propertyNames": {"pattern": "^x"}},
            "i": {"format": "uuid"},
            "j": {"contentEncoding": "base64"}
        }
    });
    let args = json!({
        "a": secret, "b": secret, "c": secret, "d": secret, "e": secret, "f": secret,
        "g": {secret: secret, "inner": secret}, "h": {secret: secret}, "i": secret, "j": secret
    });
    let problems = compile(&schema).validate(&args).expect_err("refused");
    let said = serde_json::to_string(&problems).unwrap();
    assert!(!said.contains(secret), "{said}");
    for pointer in ["/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i"] {
        assert!(problems.iter().any(|problem| problem.pointer == pointer), "{pointer}");
    }
}
