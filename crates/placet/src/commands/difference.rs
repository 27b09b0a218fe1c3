//! The places in which two JSON documents differ.
//!
//! Owns the comparison. Invariant: every place that differs is named once, and no other.

use placet_types::text::visible;
use serde_json::Value;

/// A place that differs, by its JSON Pointer.
#[derive(Debug)]
pub(crate) struct Place<'v> {
    pub(crate) pointer: String,
    /// What was there, if anything.
    pub(crate) before: Option<&'v Value>,
    /// What is there now, if anything.
    pub(crate) after: Option<&'v Value>,
}

/// Whether a list is compared element by element, or as one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lists {
    ByElement,
    Whole,
}

/// The places that differ.
pub(crate) fn places<'v>(before: &'v Value, after: &'v Value, lists: Lists) -> Vec<Place<'v>> {
    let mut found = Vec::new();
    compare(String::new(), Some(before), Some(after), lists, &mut found);
    found
}

fn compare<'v>(
    pointer: String,
    before: Option<&'v Value>,
    after: Option<&'v Value>,
    lists: Lists,
    found: &mut Vec<Place<'v>>,
) {
    match (before, after) {
        (Some(was), Some(now)) if was == now => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
                let inner = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                compare(inner, old.get(name), new.get(name), lists, found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) if lists == Lists::ByElement => {
            for index in 0..old.len().max(new.len()) {
                let inner = format!("{pointer}/{index}");
                compare(inner, old.get(index), new.get(index), lists, found);
            }
        }
        (before, after) => found.push(Place { pointer, before, after }),
    }
}

/// The places as lines: `~` changed, `+` new, `-` taken out.
pub(crate) fn lines(before: &Value, after: &Value) -> Vec<String> {
    let line = |Place { pointer, before, after }: Place<'_>| {
        let place = if pointer.is_empty() { "the whole".to_owned() } else { visible(&pointer) };
        match (before, after) {
            (Some(was), Some(now)) => format!("~ {place}: {was} → {now}"),
            (None, Some(now)) => format!("+ {place}: {now}"),
            (Some(was), None) => format!("- {place}: {was}"),
            (None, None) => place,
        }
    };
    places(before, after, Lists::ByElement).into_iter().map(line).collect()
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
