//! The fingerprint of arguments, computed without any of Placet's code.
//!
//! Owns one canonical form: members sorted, numbers by their value as a double, strings as they are. Invariant: two JSON texts
//! have one fingerprint if and only if they mean the same arguments.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The fingerprint of a value: `sha256:` and 64 hex digits.
pub(crate) fn fingerprint(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    format!("sha256:{}", hex::encode(Sha256::digest(text)))
}

/// Writes the canonical form. It need not match anybody else's: it is only ever compared with itself.
fn write(value: &Value, to: &mut String) {
    match value {
        Value::Null => to.push_str("null"),
        Value::Bool(true) => to.push_str("true"),
        Value::Bool(false) => to.push_str("false"),
        Value::Number(number) => write_number(number.as_f64().unwrap_or(f64::NAN), to),
        Value::String(text) => write_text(text, to),
        Value::Array(items) => {
            to.push('[');
            for item in items {
                write(item, to);
                to.push(',');
            }
            to.push(']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            to.push('{');
            for (name, member) in sorted {
                write_text(name, to);
                to.push(':');
                write(member, to);
                to.push(',');
            }
            to.push('}');
        }
    }
}

fn write_number(number: f64, to: &mut String) {
    // Minus zero is zero.
    let number = if number == 0.0 { 0.0 } else { number };
    to.push_str(&format!("n{:016x}", number.to_bits()));
}

fn write_text(text: &str, to: &mut String) {
    to.push_str(&format!("s{}\"{text}\"", text.len()));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::fingerprint;

    fn of(text: &str) -> String {
        fingerprint(&serde_json::from_str::<Value>(text).unwrap())
    }

    #[test]
    fn the_same_meaning_has_the_same_fingerprint() {
        for (one, other) in [
            (r#"{"a":1,"b":2}"#, r#"{ "b" : 2, "a" : 1 }"#),
            (r#"{"a":1}"#, r#"{"a":1.0}"#),
            (r#"{"a":100}"#, r#"{"a":1e2}"#),
            (r#"{"a":0}"#, r#"{"a":-0.0}"#),
            (r#"{"a":"é"}"#, "{\"a\":\"\\u00e9\"}"),
        ] {
            assert_eq!(of(one), of(other), "{one} {other}");
        }
    }

    #[test]
    fn another_meaning_has_another_fingerprint() {
        for (one, other) in [
            (r#"{"a":1,"b":2}"#, r#"{"a":2,"b":1}"#),
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            (r#"{"a":null}"#, "{}"),
            (r#"["ab","c"]"#, r#"["a","bc"]"#),
            (r#"[["a"],"b"]"#, r#"[["a","b"]]"#),
            // Composed and decomposed are two texts: strings are not normalised.
            ("{\"a\":\"\\u00e9\"}", "{\"a\":\"e\\u0301\"}"),
        ] {
            assert_ne!(of(one), of(other), "{one} {other}");
        }
    }

    #[test]
    fn it_is_a_digest() {
        let print = fingerprint(&json!({}));
        assert_eq!((print.len(), print.starts_with("sha256:")), (71, true));
    }
}
