//! What JSON Schema becomes in Cedar, and what is lost.

use placet_types::argument_schema::ArgumentSchema;
use serde_json::{Value, json};

use super::{InputType, integer, of_schema, value_of};

fn typed(schema: Value) -> InputType {
    of_schema(&schema).of.unwrap()
}

fn lost(schema: Value) -> Vec<String> {
    of_schema(&schema).lost
}

fn property(schema: Value) -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": { "a": schema } })
}

#[test]
fn texts_integers_flags_sets_and_records_have_types() {
    let of = typed(json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["s", "i"],
        "properties": {
            "s": { "type": "string", "format": "date-time" },
            "i": { "type": "integer" },
            "b": { "type": "boolean" },
            "e": { "enum": ["x", "y"] },
            "c": { "const": 3 },
            "l": { "type": "array", "items": { "type": "integer" } },
            "o": { "type": "object", "additionalProperties": false, "properties": { "p": { "type": "string" } } },
            "n": { "type": ["string", "null"] },
            "u": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
            "r": { "$ref": "#/$defs/name" },
        },
        "$defs": { "name": { "type": "string" } }
    }));
    let InputType::Record(fields) = of else { panic!("no record") };
    let text = |name: &str| (fields[name].of.clone(), fields[name].required);
    assert_eq!(text("s"), (InputType::Text, true));
    assert_eq!(text("i"), (InputType::Long, true));
    assert_eq!(text("b"), (InputType::Flag, false));
    assert_eq!(text("e"), (InputType::Text, false));
    assert_eq!(text("c"), (InputType::Long, false));
    assert_eq!(text("l"), (InputType::Set(Box::new(InputType::Long)), false));
    assert!(matches!(text("o"), (InputType::Record(_), false)));
    assert_eq!(text("n"), (InputType::Text, false));
    assert_eq!(text("u"), (InputType::Long, false));
    assert_eq!(text("r"), (InputType::Text, false));
}

#[test]
fn a_required_argument_that_may_be_null_is_optional_to_policies() {
    let schema = json!({ "type": "object", "required": ["a"], "properties": { "a": { "type": ["string", "null"] } } });
    let of = typed(schema);
    assert!(value_of(&of, &json!({ "a": null })).is_ok());
    assert!(value_of(&of, &json!({ "a": "x" })).is_ok());
}

#[test]
fn a_number_has_a_type_only_within_what_a_decimal_holds() {
    let fits =
        property(json!({ "type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 1000 }));
    assert!(of_schema(&fits).lost.is_empty());
    for schema in [
        json!({ "type": "number" }),
        json!({ "type": "number", "multipleOf": 0.01 }),
        json!({ "type": "number", "multipleOf": 0.00001, "minimum": 0, "maximum": 1 }),
        json!({ "type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 1e300 }),
    ] {
        assert_eq!(lost(property(schema)).len(), 1);
    }
    let of = typed(fits);
    assert!(value_of(&of, &json!({ "a": 12.34 })).is_ok());
    assert!(value_of(&of, &json!({ "a": 7 })).is_ok());
    assert!(value_of(&of, &json!({ "a": 0.123_456 })).is_err());
    assert!(value_of(&of, &json!({ "a": "12.34" })).is_err());
}

#[test]
fn what_cedar_cannot_express_is_left_out_and_named() {
    for (schema, place) in [
        (property(json!(true)), "/a: "),
        (property(json!({})), "/a: "),
        (property(json!({ "type": ["string", "integer"] })), "/a: "),
        (property(json!({ "type": "null" })), "/a: "),
        (property(json!({ "type": "array" })), "/a: "),
        (property(json!({ "type": "array", "items": { "type": "number" } })), "/a/items: "),
        (property(json!({ "type": "array", "prefixItems": [{ "type": "string" }] })), "/a: "),
        (property(json!({ "type": "object" })), "/a: "),
        (
            property(json!({ "type": "object", "additionalProperties": { "type": "string" } })),
            "/a: ",
        ),
        (property(json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] })), "/a: "),
        (property(json!({ "enum": ["x", 1] })), "/a: "),
        (property(json!({ "$ref": "https://example.com/schema" })), "/a: "),
        (json!({ "type": "string" }), "/: "),
        (
            json!({ "type": "object", "properties": {}, "anyOf": [{ "properties": { "x": {} } }] }),
            "/: ",
        ),
        (json!({ "type": "object", "patternProperties": { "^x": { "type": "string" } } }), "/: "),
        (json!({ "$ref": "#" }), "/: "),
    ] {
        let lost = lost(schema.clone());
        assert!(lost.iter().any(|one| one.starts_with(place)), "{schema}: {lost:?}");
    }
}

#[test]
fn what_fits_is_kept_and_an_array_is_lost_as_a_whole() {
    let row = json!({ "type": "object", "properties": { "n": { "type": "number" }, "s": { "type": "string" } } });
    let schema = json!({ "type": "object", "properties": {
        "path": { "type": "string" }, "head": { "type": "number" }, "row": row, "rows": { "type": "array", "items": row },
    }, "additionalProperties": { "type": "string" } });
    let InputType::Record(fields) = typed(schema.clone()) else { panic!("no record") };
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["path", "row"]);
    let InputType::Record(row) = &fields["row"].of else { panic!("no record") };
    assert_eq!(row.keys().collect::<Vec<_>>(), ["s"]);
    let lost = lost(schema.clone());
    assert_eq!(lost.len(), 4, "{lost:?}");
    let args =
        json!({ "path": "a", "head": 1.5, "row": { "n": 0.1, "s": "x" }, "rows": [{ "n": 1 }] });
    assert!(value_of(&typed(schema), &args).is_ok());
}

#[test]
fn a_number_has_the_type_that_the_contract_maps_it_to() {
    for (mapped, of) in [("long", InputType::Long), ("decimal", InputType::Decimal)] {
        let schema = property(json!({ "type": "number", "x-cedar": mapped }));
        let InputType::Record(fields) = typed(schema.clone()) else { panic!("no record") };
        assert_eq!(fields["a"].of, of);
        let checked = ArgumentSchema::compile(&schema).unwrap();
        for (number, is_long, is_decimal) in [
            (json!(7), true, true),
            (json!(7.0), true, true),
            (json!(12.345_6), false, true),
            (json!(0.123_456), false, false),
            (json!(1e-7), false, false),
            (json!(1e300), false, false),
            (json!(9_007_199_254_740_992_u64), false, false),
        ] {
            let fits = if mapped == "long" { is_long } else { is_decimal };
            let args = json!({ "a": number });
            assert_eq!(checked.validate(&args).is_ok(), fits, "{mapped} {number}");
            assert!(!fits || value_of(&typed(schema.clone()), &args).is_ok(), "{number}");
        }
    }
    assert_eq!(lost(property(json!({ "type": "number", "x-cedar": "float" }))).len(), 1);
}

#[test]
fn places_that_admit_more_arguments_are_named() {
    let open = json!({ "type": "object", "properties": { "a": { "type": "object", "properties": { "b": { "type": "string" } } } } });
    assert_eq!(of_schema(&open).open, ["/", "/a"]);
    assert!(of_schema(&property(json!({ "type": "string" }))).open.is_empty());
}

#[test]
fn a_schema_that_refers_to_itself_ends() {
    let schema = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": { "a": { "$ref": "#" } }
    });
    assert!(!lost(schema).is_empty());
    let wide: serde_json::Map<String, Value> =
        (0..300).map(|n| (format!("p{n}"), json!({ "type": "string" }))).collect();
    assert!(!lost(json!({ "type": "object", "properties": wide })).is_empty());
}

#[test]
fn whole_numbers_are_taken_however_they_are_written_and_no_others() {
    assert_eq!(integer(&json!(5)), Some(5));
    assert_eq!(integer(&json!(5.0)), Some(5));
    assert_eq!(integer(&json!(-0.0)), Some(0));
    assert_eq!(integer(&json!(i64::MAX)), Some(i64::MAX));
    assert_eq!(integer(&json!(u64::MAX)), None);
    assert_eq!(integer(&json!(5.5)), None);
    assert_eq!(integer(&json!(1e300)), None);
    assert_eq!(integer(&json!("5")), None);
}

#[test]
fn an_argument_that_does_not_fit_is_named_by_its_place_only() {
    let of = typed(property(json!({ "type": "array", "items": { "type": "integer" } })));
    let error = value_of(&of, &json!({ "a": [1, "secret"] })).unwrap_err();
    assert_eq!(error.to_string(), "the argument at `/a/1` cannot be put to policy");
}
