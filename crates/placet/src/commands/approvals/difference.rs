//! What an edit changed, as lines.
//!
//! Owns the comparison. Invariant: every place that differs has a line, and no other.

use placet_types::text::visible;
use serde_json::Value;

/// The places that differ, by their JSON Pointers: `~` changed, `+` new, `-` taken out.
pub(super) fn lines(before: &Value, after: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", before, after, &mut found);
    found
}

fn compare(place: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, now) in new {
                at(&inner(place, name), old.get(name), Some(now), found);
            }
            for (name, was) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
                at(&inner(place, name), Some(was), None, found);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for index in 0..old.len().max(new.len()) {
                at(&format!("{place}/{index}"), old.get(index), new.get(index), found);
            }
        }
        (was, now) => found.push(format!("~ {}: {was} → {now}", named(place))),
    }
}

fn at(place: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<String>) {
    match (before, after) {
        (Some(was), Some(now)) => compare(place, was, now, found),
        (None, Some(now)) => found.push(format!("+ {place}: {now}")),
        (Some(was), None) => found.push(format!("- {place}: {was}")),
        (None, None) => {}
    }
}

fn inner(place: &str, name: &str) -> String {
    format!("{place}/{}", visible(name).replace('~', "~0").replace('/', "~1"))
}

fn named(place: &str) -> &str {
    if place.is_empty() { "the whole" } else { place }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::lines;

    #[test]
    fn each_place_that_differs_has_a_line() {
        let before = json!({ "same": 1, "a/b": "x", "gone": [1], "list": [1, { "deep": true }, 3], "kind": {} });
        let after = json!({ "same": 1, "a/b": "y", "new": null, "list": [1, { "deep": false }], "kind": [] });
        let mut found = lines(&before, &after);
        found.sort();
        assert_eq!(
            found,
            [
                "+ /new: null",
                "- /gone: [1]",
                "- /list/2: 3",
                "~ /a~1b: \"x\" → \"y\"",
                "~ /kind: {} → []",
                "~ /list/1/deep: true → false",
            ]
        );
        assert_eq!(lines(&json!({}), &json!({ "a\nb": 1 })), [r"+ /a\u{a}b: 1"]);
        assert!(lines(&before, &before).is_empty());
        assert_eq!(lines(&json!(1), &json!(2)), ["~ the whole: 1 → 2"]);
    }
}
