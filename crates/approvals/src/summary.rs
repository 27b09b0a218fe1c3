//! One line of what a held call would run, for lists.
//!
//! Owns how a frozen preview becomes a line. Invariant: it is made of the preview alone, in which sensitive fields are masked, and is as
//! short as a line, whatever the arguments are.

use std::collections::BTreeSet;

use placet_ledger::approval::ApprovalRecord;
use placet_types::text;
use serde_json::Value;

use crate::{masking::MASK, service::Approvals};

/// The longest line, in characters.
const CHARS_MAX: usize = 160;
/// How deep into the arguments a line goes.
const DEPTH_MAX: usize = 4;

/// What an approval's call would run, in one line; nothing where retention has deleted it.
pub(crate) async fn of(service: &Approvals, approval: &ApprovalRecord) -> String {
    let proposal = service.ledger.proposal(approval).await;
    proposal.map_or_else(
        |_gone| String::new(),
        |proposal| line_of(&proposal.evidence.preview, &proposal.evidence.preview_masked),
    )
}

fn line_of(preview: &Value, masked: &BTreeSet<String>) -> String {
    let mut line = Line { text: String::new(), left: CHARS_MAX, masked };
    match preview {
        Value::Object(fields) => {
            // What is short comes first: it is what tells two calls apart.
            let (short, long): (Vec<_>, Vec<_>) =
                fields.iter().partition(|(_, value)| !value.is_object() && !value.is_array());
            line.fields(short.into_iter().chain(long), "", 0);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            line.value(preview, "", 0)
        }
    }
    if line.left == 0 {
        line.text.push('…');
    }
    line.text
}

struct Line<'a> {
    text: String,
    left: usize,
    masked: &'a BTreeSet<String>,
}

impl Line<'_> {
    fn say(&mut self, text: &str) {
        // Of a longer text only the beginning can have room.
        let beginning: String = text.chars().take(CHARS_MAX.saturating_add(1)).collect();
        for letter in text::visible(&beginning).chars() {
            let Some(left) = self.left.checked_sub(1) else { return };
            if letter == ' ' && self.text.ends_with(' ') {
                continue;
            }
            self.text.push(letter);
            self.left = left;
        }
    }

    fn value(&mut self, value: &Value, place: &str, depth: usize) {
        match value {
            Value::String(text) if text.is_empty() => self.say("\"\""),
            // What only reads like the mask is quoted.
            Value::String(text) if text == MASK && !self.masked.contains(place) => {
                self.say(&value.to_string());
            }
            Value::String(text) => self.say(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => self.say(&value.to_string()),
            Value::Array(_) | Value::Object(_) if depth >= DEPTH_MAX => self.say("…"),
            Value::Array(items) => {
                self.say("[");
                for (at, item) in items.iter().enumerate() {
                    if self.left == 0 {
                        return;
                    }
                    self.say(if at > 0 { ", " } else { "" });
                    self.value(item, &format!("{place}/{at}"), depth.saturating_add(1));
                }
                self.say("]");
            }
            Value::Object(fields) => {
                self.say("{");
                self.fields(fields.iter(), place, depth.saturating_add(1));
                self.say("}");
            }
        }
    }

    fn fields<'f>(
        &mut self,
        fields: impl Iterator<Item = (&'f String, &'f Value)>,
        place: &str,
        depth: usize,
    ) {
        for (at, (name, value)) in fields.enumerate() {
            if self.left == 0 {
                return;
            }
            self.say(if at > 0 { ", " } else { "" });
            self.say(name);
            self.say(": ");
            let inner = format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"));
            self.value(value, &inner, depth);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::CHARS_MAX;

    fn line_of(preview: &Value) -> String {
        super::line_of(preview, &BTreeSet::new())
    }

    #[test]
    fn arguments_are_one_line_with_the_short_ones_first() {
        let preview = json!({
            "customer": { "name": "Ada\n  Example", "account": "[sensitive]" },
            "lines": [{ "cents": 4200 }, { "cents": 900 }], "note": "", "urgent": false,
        });
        assert_eq!(
            super::line_of(&preview, &BTreeSet::from(["/customer/account".to_owned()])),
            "note: \"\", urgent: false, customer: {name: Ada\\u{a} Example, account: [sensitive]}, lines: [{cents: 4200}, {cents: 900}]"
        );
        let literal = json!({ "a/b": "[sensitive]", "c": "[sensitive]" });
        let masked = BTreeSet::from(["/a~1b".to_owned()]);
        assert_eq!(super::line_of(&literal, &masked), r#"a/b: [sensitive], c: "[sensitive]""#);
        assert_eq!(line_of(&json!({})), "");
        assert_eq!(line_of(&json!("only a text")), "only a text");
    }

    #[test]
    fn a_line_is_short_whatever_the_arguments_are() {
        let mut deep = json!("bottom");
        for _ in 0..50 {
            deep = json!({ "in": [deep] });
        }
        assert_eq!(line_of(&deep), "in: [{in: [{in: …}]}]");
        for long in [json!({ "a": "x".repeat(10_000) }), json!(vec![7; 10_000])] {
            let line = line_of(&long);
            assert_eq!(line.chars().count(), CHARS_MAX + 1);
            assert!(line.ends_with('…'));
        }
    }

    #[test]
    fn nothing_in_a_line_is_unseen_or_changes_its_direction() {
        let line = line_of(&json!({ "path": "a\u{202e}fdp\u{200b}.exe\u{7}\tb" }));
        assert_eq!(line, r"path: a\u{202e}fdp\u{200b}.exe\u{7}\u{9}b");
    }
}
