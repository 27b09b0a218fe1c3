//! Masked values in tool results.
//!
//! Owns finding and masking them. Invariant: what was masked for an approver is derived from what was frozen for them, never from something
//! that may have changed or gone since: a contract, a schema, a pin.

use serde_json::Value;

/// What is shown in the place of a sensitive value.
pub(crate) const MASK: &str = "[sensitive]";

/// Shorter texts occur everywhere, and are not masked.
const SECRET_BYTES_MIN: usize = 4;

/// The texts in a call's arguments that its approvers were not shown: whatever differs from the frozen preview.
pub(crate) fn hidden_texts(preview: &Value, args: &Value) -> Vec<String> {
    let mut hidden = Vec::new();
    differing(preview, args, &mut hidden);
    hidden.retain(|text| text.len() >= SECRET_BYTES_MIN);
    // A text comes before those that are part of it.
    hidden.sort_unstable_by(|one, other| (other.len(), other).cmp(&(one.len(), one)));
    hidden.dedup();
    hidden
}

fn differing(preview: &Value, args: &Value, hidden: &mut Vec<String>) {
    match (preview, args) {
        (shown, real) if shown == real => {}
        (Value::Object(shown), Value::Object(real)) => {
            for (name, value) in real {
                match shown.get(name) {
                    Some(seen) => differing(seen, value, hidden),
                    None => hidden.extend(texts_of(value)),
                }
            }
        }
        (Value::Array(shown), Value::Array(real)) if shown.len() == real.len() => {
            for (seen, value) in shown.iter().zip(real) {
                differing(seen, value, hidden);
            }
        }
        (_, real) => hidden.extend(texts_of(real)),
    }
}

fn texts_of(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Number(number) => vec![number.to_string()],
        Value::Array(items) => items.iter().flat_map(texts_of).collect(),
        Value::Object(fields) => fields.values().flat_map(texts_of).collect(),
        Value::Null | Value::Bool(_) => Vec::new(),
    }
}

/// Masks these texts wherever they occur in a value, so that a tool that echoes a masked argument does not reveal it.
pub(crate) fn mask(value: &mut Value, secrets: &[String]) {
    match value {
        Value::String(text) => *text = masked(std::mem::take(text), secrets),
        Value::Number(number) => {
            if secrets.contains(&number.to_string()) {
                *value = Value::String(MASK.to_owned());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, secrets)),
        Value::Object(fields) => {
            let before = std::mem::take(fields);
            fields.extend(before.into_iter().map(|(name, mut field)| {
                mask(&mut field, secrets);
                (masked(name, secrets), field)
            }));
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// The same for a text.
pub(crate) fn masked(mut text: String, secrets: &[String]) -> String {
    for secret in secrets {
        if text.contains(secret.as_str()) {
            text = text.replace(secret.as_str(), MASK);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_from_the_preview_is_hidden_at_every_depth() {
        let preview = json!({
            "what": "a note", "pin": "[sensitive]", "to": { "card": "[sensitive]", "name": "Ana" },
            "codes": ["[sensitive]", "open"], "box": "[sensitive]", "same": 4711, "short": "[sensitive]"
        });
        let args = json!({
            "what": "a note", "pin": "s3cret", "to": { "card": 40_012, "name": "Ana" },
            "codes": ["code-1", "open"], "box": { "deep": ["within"] }, "same": 4711, "short": "abc"
        });
        assert_eq!(hidden_texts(&preview, &args), ["within", "s3cret", "code-1", "40012"]);
        // Without a frozen preview, or if the shapes do not match, all of it is hidden.
        assert_eq!(hidden_texts(&Value::Null, &json!({ "what": "a note" })), ["a note"]);
        assert_eq!(
            hidden_texts(&json!({ "a": ["x"] }), &json!({ "a": ["long", "text"] })).len(),
            2
        );
        assert_eq!(hidden_texts(&json!({}), &json!({ "new": "unseen" })), ["unseen"]);
    }

    #[test]
    fn hidden_texts_are_masked_wherever_a_tool_repeats_them() {
        let secrets = hidden_texts(&Value::Null, &json!(["s3cret", "s3cret-and-more", 40_012]));
        let mut output = json!({
            "echo": ["it was s3cret-and-more", 40_012, "40012!"], "s3cret": { "kept": true }, "other": 1
        });
        mask(&mut output, &secrets);
        let shown = json!({
            "echo": ["it was [sensitive]", "[sensitive]", "[sensitive]!"],
            "[sensitive]": { "kept": true }, "other": 1
        });
        assert_eq!(output, shown);
    }
}
