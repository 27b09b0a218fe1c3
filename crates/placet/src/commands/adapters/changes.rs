//! The differences between two definitions of a tool, for people to read before they accept one.
//!
//! Owns the comparison and how it is shown: places, both sides, and texts word by word. Does not decide what is accepted. Invariant:
//! neither side is shortened or shown in part.

use placet_types::{contract::LiveTool, text};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    commands::difference::{Lists, Place, places},
    output,
};

/// The marks of removed and added words, as in `git diff --word-diff`.
const MARKS: [&str; 4] = ["[-", "-]", "{+", "+}"];

/// One place that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Change {
    /// The field of the definition, and the place in it: `input_schema/properties/path`.
    pub(crate) place: String,
    /// What the contract has there, if anything.
    pub(crate) before: Option<Value>,
    /// The live value there, if any.
    pub(crate) after: Option<Value>,
    /// Of two texts, the words removed as `[-words-]` and added as `{+words+}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) words: Option<String>,
}

impl Change {
    /// The field of the definition.
    pub(crate) fn field(&self) -> &str {
        self.place.split('/').next().unwrap_or_default()
    }

    /// Prints it, each line after a mark that no text of a server can imitate.
    pub(crate) fn show(&self) {
        output::line(format!("  ~ {}", text::visible(&self.place)));
        if let Some(words) = &self.words {
            return lines("    | ", words);
        }
        for (mark, side) in [("    - ", &self.before), ("    + ", &self.after)] {
            match side {
                None => {}
                Some(Value::String(text)) => lines(mark, text),
                Some(value) => lines(mark, &format!("{value:#}")),
            }
        }
    }
}

fn lines(mark: &str, text: &str) {
    text.split('\n').for_each(|line| output::line(format!("{mark}{}", text::visible(line))));
}

/// The differences between the contract's definition, if it has the tool, and the live one.
pub(crate) fn between(before: Option<&LiveTool>, after: &LiveTool) -> Vec<Change> {
    let empty = Value::Object(Map::new());
    let (before, after) = (before.map_or(empty, fields), fields(after));
    changes(&before, &after)
}

fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let change = |Place { pointer, before, after }: Place<'_>| Change {
        place: pointer.trim_start_matches('/').to_owned(),
        before: before.cloned(),
        after: after.cloned(),
        words: match (before, after) {
            (Some(Value::String(before)), Some(Value::String(after))) => words(before, after),
            _ => None,
        },
    };
    places(before, after, Lists::Whole).into_iter().map(change).collect()
}

fn fields(tool: &LiveTool) -> Value {
    let LiveTool {
        name: _,
        title,
        description,
        input_schema,
        output_schema,
        annotations,
        task_only,
    } = tool;
    let all = json!({
        "title": title, "description": description, "input_schema": input_schema,
        "output_schema": output_schema, "annotations": annotations, "task_only": task_only,
    });
    let Value::Object(all) = all else { return all };
    let is_said = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
    Value::Object(all.into_iter().filter(|(_, value)| is_said(value)).collect())
}

/// Both texts in one: their common beginning and end once, and between them what was removed and what was added, marked.
fn words(before: &str, after: &str) -> Option<String> {
    if MARKS.iter().any(|mark| before.contains(mark) || after.contains(mark)) {
        return None;
    }
    let (before, after) = (split(before), split(after));
    let same = |(one, other): &(&&str, &&str)| one == other;
    let head = before.iter().zip(&after).take_while(same).count();
    let (head, after) = after.split_at_checked(head)?;
    let before = before.get(head.len()..)?;
    let tail = before.iter().rev().zip(after.iter().rev()).take_while(same).count();
    let (removed, _) = before.split_at_checked(before.len().checked_sub(tail)?)?;
    let (added, tail) = after.split_at_checked(after.len().checked_sub(tail)?)?;
    let [remove, removed_end, add, added_end] = MARKS;
    let marked = |begin, words: &[&str], end| {
        if words.is_empty() { String::new() } else { format!("{begin}{}{end}", words.concat()) }
    };
    let (removed, added) = (marked(remove, removed, removed_end), marked(add, added, added_end));
    Some([head.concat(), removed, added, tail.concat()].concat())
}

/// The words of a text, each with the space before it.
fn split(mut rest: &str) -> Vec<&str> {
    let mut words = Vec::new();
    while !rest.is_empty() {
        let next = rest.char_indices().skip(1).find(|(_, c)| c.is_whitespace());
        let (word, after) = rest.split_at(next.map_or(rest.len(), |(at, _)| at));
        words.push(word);
        rest = after;
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{changes, words};

    #[test]
    fn texts_are_compared_word_by_word() {
        for (before, after, shown) in [
            ("reads a file", "reads a secret file", "reads a{+ secret+} file"),
            ("Sends mail.", "Sends mail.\nread keys", "Sends mail.{+\nread keys+}"),
            ("a b c d", "a x c d", "a[- b-]{+ x+} c d"),
            ("", "new", "{+new+}"),
            ("one two", "one two", "one two"),
        ] {
            assert_eq!(words(before, after).as_deref(), Some(shown));
        }
        assert_eq!(words("a", "{+fake+}"), None, "a text can pretend to be a mark");
    }

    #[test]
    fn schemas_are_compared_place_by_place() {
        let before = json!({ "type": "object", "properties": { "to": { "type": "string", "pattern": "x" }, "a/b": {} } });
        let after =
            json!({ "type": "object", "properties": { "to": { "type": "string" }, "cc": {} } });
        let changes =
            changes(&json!({ "input_schema": before }), &json!({ "input_schema": after }));
        let shown: Vec<_> = changes
            .iter()
            .map(|change| (change.place.as_str(), change.before.is_some(), change.after.is_some()))
            .collect();
        assert_eq!(
            shown,
            [
                ("input_schema/properties/to/pattern", true, false),
                ("input_schema/properties/a~1b", true, false),
                ("input_schema/properties/cc", false, true),
            ]
        );
        assert_eq!(changes[0].field(), "input_schema");
    }
}
