//! Tests of strict JSON: what is refused, and that canonical bytes are equal exactly if values are.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

mod typed;

fn parse(text: &str) -> Result<Value, JsonError> {
    parse_strict(text.as_bytes(), &JsonLimits::default())
}

fn refused(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

fn fault<T: fmt::Debug>(read: Result<T, JsonError>) -> JsonFault {
    read.unwrap_err().fault()
}

fn canonical(value: &Value) -> String {
    String::from_utf8(canonical_bytes(value)).unwrap()
}

#[test]
fn a_number_is_accepted_if_every_program_reads_the_same() {
    for (literal, written) in [
        ("0", "0"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("0e999999999999999999999999", "0"),
        ("1", "1"),
        ("1.0", "1"),
        ("1e0", "1"),
        ("100e-2", "1"),
        ("10E+1", "100"),
        ("-1.50", "-1.5"),
        ("0.1", "0.1"),
        ("0.30000000000000000000", "0.3"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("9007199254740991", "9007199254740991"),
        ("-9007199254740991", "-9007199254740991"),
        ("9007199254740991.0", "9007199254740991"),
        ("9007199254740992", "9007199254740992"),
        ("123456789012345680000", "123456789012345680000"),
        ("9223372036854776000", "9223372036854776000"),
        ("-9223372036854776000", "-9223372036854776000"),
        ("18446744073709552000", "18446744073709552000"),
        ("100000000000000000000", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("1000000000000000000000", "1e+21"),
        ("5e-324", "5e-324"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1e-7"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
    ] {
        let value = parse(literal).expect(literal);
        assert_eq!(canonical(&value), written, "{literal}");
        assert_eq!(parse(written).as_ref(), Ok(&value), "{literal}");
        assert_eq!(check_value(&value, &JsonLimits::default()).as_ref(), Ok(&value), "{literal}");
    }
}

#[test]
fn a_number_that_programs_would_read_differently_is_refused() {
    let long = format!("1.{}", "0".repeat(600));
    for literal in [
        "9007199254740993",
        "-9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "123456789012345678901",
        "0.1000000000000000055511151231257827",
        "0.3000000000000000444",
        "1e400",
        "-1e400",
        "1e-400",
        "2e-324",
        "1e99999999999999999999",
        "1e-99999999999999999999",
        &long,
    ] {
        let error = parse(&format!("{{\"a\":[0,{literal}]}}")).expect_err(literal);
        assert!(error.fault() == JsonFault::Number, "{literal}: {error}");
        assert_eq!(error.pointer(), "/a/1", "{literal}");
    }
}

#[test]
fn integers_are_held_as_integers() {
    assert_eq!(parse("1.0"), Ok(json!(1)));
    assert_eq!(parse("-10e-1"), Ok(json!(-1)));
    assert_eq!(parse("[1, 1.0, 1e0]"), Ok(json!([1, 1, 1])));
    assert!(parse("-0.0").unwrap().is_u64());
    assert_eq!(check_value(&json!([2.0, -0.0]), &JsonLimits::default()), Ok(json!([2, 0])));
}

#[test]
fn an_approval_cannot_be_reused_for_a_neighbouring_number() {
    // Trap T3: as doubles, these have the same canonical bytes.
    assert!(parse(r#"{"a":9007199254740992}"#).is_ok());
    assert_eq!(
        refused(r#"{"a":9007199254740993}"#),
        "`/a`: the number `9007199254740993` cannot be carried exactly: \
         send it as a string"
    );
    let built = json!({"a": 9_007_199_254_740_993_u64});
    assert!(check_value(&built, &JsonLimits::default()).is_err());
    let neighbour = json!({"a": 9_007_199_254_740_992_u64});
    assert_ne!(canonical_digest(&built), canonical_digest(&neighbour));
}

#[test]
fn a_key_that_is_there_twice_is_refused() {
    // Trap T4: one parser keeps the first, another the last.
    for (text, pointer) in [
        (r#"{"name":"safe","name":"danger"}"#, "/name"),
        (r#"{"name":"safe","n\u0061me":"danger"}"#, "/name"),
        (r#"{"a":[{"b/c":{"":1,"":1}}]}"#, "/a/0/b~1c/"),
        (r#"{"":1,"":2}"#, "/"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.fault() == JsonFault::DuplicateKey, "{text}: {error}");
        assert_eq!(error.pointer(), pointer, "{text}");
    }
    // Strings are not normalised: these are two keys.
    assert!(parse("{\"\u{e9}\":1,\"e\u{301}\":2}").is_ok());
}

#[test]
fn what_is_not_json_is_refused() {
    for text in [
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u+123\"",
        "\"\n\"",
        "\"\u{0}\"",
        "01",
        "-01",
        "+1",
        "-",
        ".5",
        "1.",
        "1.e1",
        "1e",
        "1e+",
        "NaN",
        "Infinity",
        "-Infinity",
        "tru",
        "True",
        "nul",
        "// a\n1",
        "[1 2]",
        "\u{a0}1",
        "]",
        "}",
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.fault() == JsonFault::Syntax, "{text:?}: {error}");
    }
}

#[test]
fn bytes_after_the_value_are_refused() {
    for text in ["1 1", "{}{}", "{} x", "truefalse", "null,", "0x10", "\"a\"\"b\"", "1\u{0}", "[]]"]
    {
        assert!(fault(parse(text)) == JsonFault::TrailingBytes, "{text:?}");
    }
    assert_eq!(parse(" \t\r\n{ \"a\" : [ 1 , 2 ] } \n"), Ok(json!({"a": [1, 2]})));
}

#[test]
fn only_plain_utf8_is_accepted() {
    let limits = JsonLimits::default();
    assert_eq!(fault(parse_strict(b"\xef\xbb\xbf{}", &limits)), JsonFault::ByteOrderMark);
    for bytes in [&b"\"\xff\""[..], b"\"\xed\xa0\x80\"", b"\"\xc0\xaf\""] {
        let error = parse_strict(bytes, &limits).unwrap_err();
        assert_eq!(error.fault(), JsonFault::NotUtf8);
        assert_eq!(error.to_string(), "the document: it is not UTF-8 at byte 1");
    }
    assert!(parse_strict(b"{\0}\0", &limits).is_err());
}

#[test]
fn escapes_are_whole_characters() {
    assert_eq!(
        parse(r#""\u00e9\ud83d\ude00\/\b\f\n\r\t\"\\""#),
        Ok(json!("é😀/\u{8}\u{c}\n\r\t\"\\"))
    );
    assert_eq!(parse(r#""\uD83D\uDE00""#), Ok(json!("😀")));
    for text in [
        r#""\ud83d""#,
        r#""\ude00""#,
        r#""\ude00\ud83d""#,
        r#""\ud83d\ud83d""#,
        r#""\ud83dx""#,
        r#""\ud83d\n""#,
        r#"{"\udead":1}"#,
    ] {
        assert!(fault(parse(text)) == JsonFault::LoneSurrogate, "{text}");
    }
}

#[test]
fn every_limit_holds_exactly() {
    let limits = JsonLimits {
        bytes_max: 40,
        depth_max: 3,
        string_bytes_max: 4,
        members_max: 3,
        nodes_max: 6,
    };
    for accepted in [
        "[[[]]]",
        "\"abcd\"",
        "{\"abcd\":1}",
        "[1,2,3]",
        "[1,2,[1,2]]",
        "\"\\u00e9\\u00e9\"",
        "\"\\n\\n\\n\\n\"",
    ] {
        let value = parse_strict(accepted.as_bytes(), &limits).expect(accepted);
        assert_eq!(check_value(&value, &limits), Ok(value), "{accepted}");
    }
    for (text, refused) in [
        ("[0,[[[]]]]", "`/1/0/0`: nested too deeply, at most 3 are accepted"),
        ("[0,\"abcde\"]", "`/1`: too many bytes in a string, at most 4 are accepted"),
        ("{\"abcde\":1}", "the document: too many bytes in a string, at most 4 are accepted"),
        ("[\"\\n\\n\\n\\n\\n\"]", "`/0`: too many bytes in a string, at most 4 are accepted"),
        ("[[1,2,3,4]]", "`/0`: too many members, at most 3 are accepted"),
        (
            "{\"a\":1,\"b\":1,\"c\":1,\"d\":1}",
            "the document: too many members, at most 3 are accepted",
        ),
        ("[1,2,[1,2,3]]", "`/2/2`: too many values, at most 6 are accepted"),
    ] {
        let error = parse_strict(text.as_bytes(), &limits).unwrap_err();
        assert_eq!((error.fault(), error.to_string().as_str()), (JsonFault::Limit, refused));
        let built: Value = serde_json::from_str(text).unwrap();
        assert_eq!(check_value(&built, &limits), Err(error), "{text}");
    }
    let spaces = " ".repeat(41);
    let error = parse_strict(spaces.as_bytes(), &limits).unwrap_err();
    assert_eq!(error.to_string(), "the document: it has 41 bytes, at most 40 are accepted");
    let wide = JsonLimits { bytes_max: 8, ..JsonLimits::default() };
    let error = check_value(&json!(["abcdef"]), &wide).unwrap_err();
    assert_eq!(error.to_string(), "the document: it has 10 bytes, at most 8 are accepted");
}

#[test]
fn nesting_cannot_exhaust_the_stack() {
    let deep = "[".repeat(500_000) + &"]".repeat(500_000);
    let error = parse(&deep).expect_err("deep");
    assert!(error.to_string().ends_with("nested too deeply, at most 64 are accepted"), "{error}");
    let open = r#"{"a":"#.repeat(150_000);
    assert_eq!(fault(parse(&open)), JsonFault::Limit);
    // No configuration can lift the ceiling.
    let limits = JsonLimits { depth_max: usize::MAX, ..JsonLimits::default() };
    let error = parse_strict(deep.as_bytes(), &limits).expect_err("deep");
    assert!(error.to_string().ends_with("nested too deeply, at most 128 are accepted"), "{error}");
    let accepted = "[".repeat(128) + &"]".repeat(128);
    let value = std::thread::Builder::new()
        .stack_size(1024 * 1024)
        .spawn(move || {
            let value = parse_strict(accepted.as_bytes(), &limits).unwrap();
            (canonical(&value), check_value(&value, &limits).is_ok())
        })
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(value, ("[".repeat(128) + &"]".repeat(128), true));
}

#[test]
fn too_large_a_document_is_refused_unread() {
    // Not even UTF-8: it is not inspected.
    let bytes = vec![0xff; 10 * 1024 * 1024];
    assert_eq!(fault(parse_strict(&bytes, &JsonLimits::default())), JsonFault::Limit);
}

#[test]
fn a_message_echoes_little_of_the_input_and_no_control_characters() {
    let long = "k".repeat(1000);
    for text in [
        format!(r#"{{"{long}":1,"{long}":2}}"#),
        format!(r#"{{"{long}":x}}"#),
        format!(r#"[9007199254740993{}]"#, "9".repeat(400)),
        format!(r#"{{"{long}":{{"{long}":1e400}}}}"#),
    ] {
        let error = parse(&text).expect_err(&text);
        assert!(error.to_string().len() < 250, "{error}");
        assert!(error.pointer().len() < 200, "{error}");
    }
    let message = refused("{\"a\\nINFO\\u001b[31m\":1,\"a\\nINFO\\u001b[31m\":2}");
    assert!(!message.chars().any(char::is_control), "{message}");
}

/// The example of RFC 8785 §3.2.3 and §3.2.2.
#[test]
fn canonical_bytes_are_those_of_the_rfc() {
    let value = parse(
        r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
            "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#,
    )
    .unwrap();
    assert_eq!(
        canonical(&value),
        "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\
         \"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\
         \"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}"
    );
    let value = parse(
        r#"{"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
    );
    assert_eq!(
        canonical(&value.unwrap()),
        "{\"literals\":[null,true,false],\"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"
    );
}

fn strict_number() -> impl Strategy<Value = Value> {
    let integers = (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Value::from);
    let small = (-3_i64..3).prop_map(Value::from);
    let doubles = any::<f64>().prop_filter_map("finite", |double| {
        serde_json::Number::from_f64(double).map(Value::Number)
    });
    prop_oneof![small, integers, doubles]
}

/// Any value, and with a good chance one that differs little from another.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        strict_number(),
        "[a-c\u{0}-\u{1f}\"\\\\\u{e9}\u{ffff}\u{1f600}]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ab\u{e9}\u{ffff}\u{1f600}]{0,2}", inner, 0..4)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

fn strict_value() -> impl Strategy<Value = Value> {
    any_value().prop_map(|value| {
        check_value(&value, &JsonLimits::default()).expect("doubles are accepted")
    })
}

fn backwards(value: &Value) -> Value {
    match value {
        Value::Array(elements) => elements.iter().map(backwards).collect(),
        Value::Object(members) => {
            members.iter().rev().map(|(key, member)| (key.clone(), backwards(member))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

proptest! {
    #[test]
    fn canonical_bytes_are_equal_exactly_if_values_are(a in strict_value(), b in strict_value()) {
        prop_assert_eq!(a == b, canonical_bytes(&a) == canonical_bytes(&b));
        prop_assert_eq!(a == b, canonical_digest(&a) == canonical_digest(&b));
    }

    #[test]
    fn a_value_survives_its_canonical_bytes(value in strict_value()) {
        prop_assert_eq!(parse_strict(&canonical_bytes(&value), &JsonLimits::default()), Ok(value));
    }

    #[test]
    fn the_order_of_members_does_not_matter(value in strict_value()) {
        prop_assert_eq!(canonical_bytes(&backwards(&value)), canonical_bytes(&value));
    }

    #[test]
    fn other_writers_and_readers_of_json_agree(value in strict_value()) {
        let theirs = serde_json_canonicalizer::to_vec(&value).unwrap();
        prop_assert_eq!(String::from_utf8(theirs), String::from_utf8(canonical_bytes(&value)));
        let pretty = serde_json::to_vec_pretty(&value).unwrap();
        prop_assert_eq!(parse_strict(&pretty, &JsonLimits::default()), Ok(value));
    }

    /// Whatever is accepted reads the same in a parser that knows only doubles.
    #[test]
    fn an_accepted_number_is_the_same_as_a_double(whole in "-?(0|[1-9][0-9]{0,24})", rest in "(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?") {
        let literal = format!("{whole}{rest}");
        if let Ok(value) = parse(&literal) {
            let double: f64 = literal.parse().unwrap();
            prop_assert_eq!(value.as_f64(), Some(double));
            prop_assert_eq!(parse(&canonical(&value)), Ok(value));
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[\\[\\]{}:,\"\\\\u0-9eE+.tfn\\-d8 \n\u{e9}]{0,40}") {
        if let Ok(value) = parse(&text) {
            // What is accepted here is JSON for everybody else.
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
            prop_assert_eq!(check_value(&value, &JsonLimits::default()), Ok(value));
        }
    }
}
