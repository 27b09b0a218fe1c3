//! Arguments in readable form: nested definition lists, and the differences of an edit.
//!
//! Owns the drawing. Invariants: the whole value is shown; nothing is cut off silently, and invisible or misleading characters are made
//! visible; a value is shown as masked by its place, which the proposal names, and never by its text.

use std::collections::BTreeSet;

use maud::{Markup, html};
use placet_types::{json, text::visible};
use serde_json::{Map, Value};

/// The deepest nesting drawn as a list; deeper values are shown as JSON.
const DEPTH_MAX: usize = 12;

/// Arguments as their approvers are shown them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Preview<'a> {
    pub(super) value: &'a Value,
    /// The masked places, as JSON Pointers (RFC 6901).
    pub(super) masked: &'a BTreeSet<String>,
}

/// A place in arguments.
#[derive(Debug, Clone)]
struct At<'a> {
    value: &'a Value,
    masked: &'a BTreeSet<String>,
    pointer: String,
    depth: usize,
}

impl<'a> At<'a> {
    fn top(preview: Preview<'a>) -> Self {
        Self { value: preview.value, masked: preview.masked, pointer: String::new(), depth: 0 }
    }

    fn inner(&self, token: &str, value: &'a Value) -> Self {
        let pointer = format!("{}{}", self.pointer, json::token(token));
        Self { value, masked: self.masked, pointer, depth: self.depth.saturating_add(1) }
    }

    /// The same, without drawing its contents separately.
    fn whole(&self) -> Self {
        Self { depth: DEPTH_MAX.saturating_sub(1), ..self.clone() }
    }
}

/// A value in which nothing is masked by its place: a result, or what a rule compares with.
pub(super) fn value(value: &Value) -> Markup {
    arguments(Preview { value, masked: &BTreeSet::new() })
}

/// All arguments.
pub(super) fn arguments(preview: Preview<'_>) -> Markup {
    html! { div.tree { (node(&At::top(preview))) } }
}

fn node(at: &At<'_>) -> Markup {
    if at.masked.contains(&at.pointer) {
        return html! {
            span.mark.warn { "masked" } " " span.soft.small { "The value is sensitive and not shown; a decision binds it all the same." }
        };
    }
    if at.depth >= DEPTH_MAX {
        return html! { pre.value { (visible(&at.value.to_string())) } };
    }
    match at.value {
        Value::Object(fields) if !fields.is_empty() => html! {
            dl {
                @for (name, inner) in fields {
                    div { dt { (visible(name)) } dd { (node(&at.inner(name, inner))) } }
                }
            }
        },
        Value::Array(items) if !items.is_empty() => html! {
            dl {
                @for (index, inner) in items.iter().enumerate() {
                    div { dt { (index.saturating_add(1)) "." } dd { (node(&at.inner(&index.to_string(), inner))) } }
                }
            }
        },
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => leaf(at.value),
    }
}

/// A value that holds no others.
fn leaf(value: &Value) -> Markup {
    match value {
        Value::String(text) if text.is_empty() => html! { span.empty { "empty text" } },
        Value::String(text) => html! { span.value { (lines(text)) } },
        Value::Number(number) => html! { span.value { (number) } span.kind { "number" } },
        Value::Bool(yes) => html! { span.value { (yes) } span.kind { "yes or no" } },
        Value::Null => html! { span.empty { "null" } },
        Value::Array(_) => html! { span.empty { "empty list" } },
        Value::Object(_) => html! { span.empty { "no fields" } },
    }
}

/// A text of several lines: broken at its line feeds, whose escapes stay visible.
fn lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(visible).collect();
    lines.join("\\u{a}\n")
}

/// The arguments that will run, with their differences from the previous ones.
pub(super) fn difference(before: Preview<'_>, after: Preview<'_>) -> Markup {
    html! { div.tree { (changed(&At::top(before), &At::top(after))) } }
}

fn changed(before: &At<'_>, after: &At<'_>) -> Markup {
    let is_deep = after.depth >= DEPTH_MAX;
    match (before.value, after.value) {
        (old, new) if old == new => node(after),
        (Value::Object(old), Value::Object(new)) if !is_deep => fields(before, old, after, new),
        (Value::Array(old), Value::Array(new)) if !is_deep => items(before, old, after, new),
        (_, _) => html! {
            div.changed {
                span.soft.small { "was " } del { (node(&before.whole())) }
                " " span.soft.small { "is now " } ins { (node(&after.whole())) }
            }
        },
    }
}

fn fields(
    before: &At<'_>,
    old: &Map<String, Value>,
    after: &At<'_>,
    new: &Map<String, Value>,
) -> Markup {
    html! {
        dl {
            @for (name, value) in new {
                div {
                    dt { (visible(name)) }
                    dd { (place(old.get(name).map(|old| before.inner(name, old)), Some(after.inner(name, value)))) }
                }
            }
            @for (name, value) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
                div {
                    dt { (visible(name)) }
                    dd { (place(Some(before.inner(name, value)), None)) }
                }
            }
        }
    }
}

fn items(before: &At<'_>, old: &[Value], after: &At<'_>, new: &[Value]) -> Markup {
    html! {
        dl {
            @for index in 0..old.len().max(new.len()) {
                div {
                    dt { (index.saturating_add(1)) "." }
                    dd {
                        (place(
                            old.get(index).map(|value| before.inner(&index.to_string(), value)),
                            new.get(index).map(|value| after.inner(&index.to_string(), value)),
                        ))
                    }
                }
            }
        }
    }
}

/// The value at one place, before and after.
fn place(before: Option<At<'_>>, after: Option<At<'_>>) -> Markup {
    match (before, after) {
        (Some(before), Some(after)) => changed(&before, &after),
        (None, Some(after)) => html! {
            div.changed { span.soft.small { "new " } ins { (node(&after.whole())) } }
        },
        (Some(before), None) => html! {
            div.changed { span.soft.small { "taken out " } del { (node(&before.whole())) } }
        },
        (None, None) => html! {},
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use maud::Markup;
    use serde_json::{Value, json};

    use super::Preview;

    fn arguments(value: &Value) -> Markup {
        super::value(value)
    }

    fn difference(before: &Value, after: &Value) -> Markup {
        let masked = &BTreeSet::new();
        super::difference(Preview { value: before, masked }, Preview { value: after, masked })
    }

    #[test]
    fn markup_in_names_and_values_is_text() {
        let page = arguments(&json!({ "<b>": "<script>alert(1)</script>", "q\"": ["'\"><img src=x onerror=alert(1)>"] })).0;
        assert!(
            !page.contains("<script") && !page.contains("<img") && !page.contains("<b>"),
            "{page}"
        );
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    }

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        let page = arguments(&json!({ "to": "ann\u{202e}moc.live\u{200b}", "n": "a\u{0}b" })).0;
        assert!(
            page.contains(r"ann\u{202e}moc.live\u{200b}") && page.contains(r"a\u{0}b"),
            "{page}"
        );
    }

    #[test]
    fn a_value_is_masked_by_its_place_and_not_by_its_text() {
        let value = json!({ "a/b": ["[sensitive]"], "note": "[sensitive]" });
        let masked = BTreeSet::from(["/a~1b/0".to_owned()]);
        let preview = Preview { value: &value, masked: &masked };
        let page = super::arguments(preview).0;
        assert_eq!(page.matches(">masked<").count(), 1, "{page}");
        assert_eq!(page.matches("[sensitive]").count(), 1, "{page}");
        let same = super::difference(preview, preview).0;
        assert_eq!(same, page);
        let before = json!({ "a/b": ["[sensitive]"], "note": "x" });
        let page = super::difference(Preview { value: &before, masked: &masked }, preview).0;
        assert!(page.contains("is now ") && page.matches("[sensitive]").count() == 1, "{page}");
    }

    #[test]
    fn a_line_feed_is_shown_where_the_line_ends() {
        let page = arguments(&json!({ "content": "one\ntwo\u{2028}three" })).0;
        assert!(page.contains("one\\u{a}\ntwo\\u{2028}three"), "{page}");
    }

    #[test]
    fn empty_values_are_named() {
        let page = arguments(&json!({ "note": "", "list": [], "map": {}, "no": null })).0;
        for words in ["empty text", "empty list", "no fields", "null"] {
            assert!(page.contains(words), "{words}: {page}");
        }
    }

    #[test]
    fn a_difference_names_what_changed_what_is_new_and_what_is_gone() {
        let page = difference(
            &json!({ "same": 1, "cents": 900, "deep": { "to": ["a", "b"] }, "gone": true }),
            &json!({ "same": 1, "cents": 500, "deep": { "to": ["a"] }, "added": "x" }),
        )
        .0;
        assert_eq!(page.matches("class=\"changed\"").count(), 4, "{page}");
        for words in ["was ", "is now ", "new ", "taken out ", "900", "500"] {
            assert!(page.contains(words), "{words}");
        }
        assert_eq!(
            difference(&json!({ "a": [1] }), &json!({ "a": [1] })).0.matches("changed").count(),
            0
        );
    }

    #[test]
    fn nesting_beyond_the_limit_is_shown_as_json() {
        let deep = (0..40).fold(json!("end"), |inner, _| json!({ "in": inner }));
        assert!(arguments(&deep).0.contains("end"));
    }
}
