//! Arguments as people read them: nested definitions, and the differences of an edit.
//!
//! Owns the drawing. Invariant: what is shown is the whole value; nothing is cut off without a word, and invisible or misleading
//! characters are made visible.

use maud::{Markup, html};
use serde_json::{Map, Value};

/// What stands in the place of a value that its schema marks sensitive.
const MASK: &str = "[sensitive]";
/// The deepest nesting that is drawn as such; below it stands the JSON.
const DEPTH_MAX: usize = 12;

/// All arguments.
pub(super) fn arguments(value: &Value) -> Markup {
    html! { div.tree { (node(value, 0)) } }
}

fn node(value: &Value, depth: usize) -> Markup {
    if depth >= DEPTH_MAX {
        return html! { pre.value { (visible(&value.to_string())) } };
    }
    let deeper = depth.saturating_add(1);
    match value {
        Value::Object(fields) if !fields.is_empty() => html! {
            dl {
                @for (name, inner) in fields {
                    div { dt { (visible(name)) } dd { (node(inner, deeper)) } }
                }
            }
        },
        Value::Array(items) if !items.is_empty() => html! {
            dl {
                @for (index, inner) in items.iter().enumerate() {
                    div { dt { (index.saturating_add(1)) "." } dd { (node(inner, deeper)) } }
                }
            }
        },
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => leaf(value),
    }
}

/// A value that holds no others.
fn leaf(value: &Value) -> Markup {
    match value {
        Value::String(text) if text == MASK => html! {
            span.mark.warn { "masked" } " " span.soft.small { "The value is sensitive and not shown; a decision binds it all the same." }
        },
        Value::String(text) if text.is_empty() => html! { span.empty { "empty text" } },
        Value::String(text) => html! { span.value { (visible(text)) } },
        Value::Number(number) => html! { span.value { (number) } span.kind { "number" } },
        Value::Bool(yes) => html! { span.value { (yes) } span.kind { "yes or no" } },
        Value::Null => html! { span.empty { "null" } },
        Value::Array(_) => html! { span.empty { "empty list" } },
        Value::Object(_) => html! { span.empty { "no fields" } },
    }
}

/// Text of others, in which what cannot be seen, or turns the reading direction, is written out.
pub(super) fn visible(text: &str) -> String {
    let hidden = |c: char| {
        let control = c.is_control() && c != '\n' && c != '\t';
        let invisible = matches!(
            u32::from(c),
            0x00AD | 0x061C | 0x180E | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F | 0xFEFF | 0xE0000..=0xE007F
        );
        control || invisible
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) {
            shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(c)));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The arguments as they will run, with what differs from the ones before.
pub(super) fn difference(before: &Value, after: &Value) -> Markup {
    html! { div.tree { (changed(before, after, 0)) } }
}

fn changed(before: &Value, after: &Value, depth: usize) -> Markup {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) if depth < DEPTH_MAX => fields(old, new, depth),
        (Value::Array(old), Value::Array(new)) if depth < DEPTH_MAX => items(old, new, depth),
        (old, new) if old == new => node(new, depth),
        (old, new) => html! {
            div.changed {
                span.soft.small { "was " } del { (node(old, DEPTH_MAX.saturating_sub(1))) }
                " " span.soft.small { "is now " } ins { (node(new, DEPTH_MAX.saturating_sub(1))) }
            }
        },
    }
}

fn fields(old: &Map<String, Value>, new: &Map<String, Value>, depth: usize) -> Markup {
    let deeper = depth.saturating_add(1);
    html! {
        dl {
            @for (name, after) in new {
                div {
                    dt { (visible(name)) }
                    dd { (place(old.get(name), Some(after), deeper)) }
                }
            }
            @for (name, before) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
                div {
                    dt { (visible(name)) }
                    dd { (place(Some(before), None, deeper)) }
                }
            }
        }
    }
}

fn items(old: &[Value], new: &[Value], depth: usize) -> Markup {
    let deeper = depth.saturating_add(1);
    let longer = old.len().max(new.len());
    html! {
        @if longer == 0 { span.empty { "empty list" } }
        @else {
            dl {
                @for index in 0..longer {
                    div {
                        dt { (index.saturating_add(1)) "." }
                        dd { (place(old.get(index), new.get(index), deeper)) }
                    }
                }
            }
        }
    }
}

/// What stands at one place before and after.
fn place(before: Option<&Value>, after: Option<&Value>, depth: usize) -> Markup {
    match (before, after) {
        (Some(before), Some(after)) => changed(before, after, depth),
        (None, Some(after)) => html! {
            div.changed { span.soft.small { "new " } ins { (node(after, DEPTH_MAX.saturating_sub(1))) } }
        },
        (Some(before), None) => html! {
            div.changed { span.soft.small { "taken out " } del { (node(before, DEPTH_MAX.saturating_sub(1))) } }
        },
        (None, None) => html! {},
    }
}

/// A short line about arguments, for a list.
pub(super) fn summary(value: &Value) -> String {
    const CHARS_MAX: usize = 160;
    let text = visible(&value.to_string());
    if text.chars().count() <= CHARS_MAX {
        return text;
    }
    let cut: String = text.chars().take(CHARS_MAX).collect();
    format!("{cut}… (cut)")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{arguments, difference, summary};

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
            page.contains("ann⟨U+202E⟩moc.live⟨U+200B⟩") && page.contains("a⟨U+0000⟩b"),
            "{page}"
        );
    }

    #[test]
    fn a_masked_value_is_marked_and_empty_ones_are_named() {
        let page = arguments(
            &json!({ "iban": "[sensitive]", "note": "", "list": [], "map": {}, "no": null }),
        )
        .0;
        for words in ["masked", "empty text", "empty list", "no fields", "null"] {
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
        assert!(summary(&deep).ends_with("… (cut)"));
    }
}
