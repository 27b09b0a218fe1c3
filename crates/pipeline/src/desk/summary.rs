//! One line of what a held call would run, for lists.
//!
//! Owns how a frozen preview becomes a line. Invariant: it is made of the preview alone, in which sensitive fields are masked, and is as
//! short as a line, whatever the arguments are.

use placet_ledger::approval::ApprovalRecord;
use serde_json::Value;

use crate::context::Context;

/// The longest line, in characters.
const CHARS_MAX: usize = 160;
/// How deep into the arguments a line goes.
const DEPTH_MAX: usize = 4;

/// What an approval's call would run, in one line; nothing where retention has deleted it.
pub(crate) async fn of(context: &Context, approval: &ApprovalRecord) -> String {
    let proposal = context.ledger.proposal(approval).await;
    proposal.map_or_else(|_gone| String::new(), |proposal| line_of(&proposal.evidence.preview))
}

fn line_of(preview: &Value) -> String {
    let mut line = Line { text: String::new(), left: CHARS_MAX };
    match preview {
        Value::Object(fields) => {
            // What is short comes first: it is what tells two calls apart.
            let (short, long): (Vec<_>, Vec<_>) =
                fields.iter().partition(|(_, value)| !value.is_object() && !value.is_array());
            line.fields(short.into_iter().chain(long), 0);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            line.value(preview, 0)
        }
    }
    if line.left == 0 {
        line.text.push('…');
    }
    line.text
}

struct Line {
    text: String,
    left: usize,
}

impl Line {
    fn say(&mut self, text: &str) {
        for letter in text.chars().filter(|letter| !is_unseen(*letter)) {
            let Some(left) = self.left.checked_sub(1) else { return };
            let letter = if letter.is_whitespace() || letter.is_control() { ' ' } else { letter };
            if letter == ' ' && self.text.ends_with(' ') {
                continue;
            }
            self.text.push(letter);
            self.left = left;
        }
    }

    fn value(&mut self, value: &Value, depth: usize) {
        match value {
            Value::String(text) if text.is_empty() => self.say("\"\""),
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
                    self.value(item, depth.saturating_add(1));
                }
                self.say("]");
            }
            Value::Object(fields) => {
                self.say("{");
                self.fields(fields.iter(), depth.saturating_add(1));
                self.say("}");
            }
        }
    }

    fn fields<'a>(&mut self, fields: impl Iterator<Item = (&'a String, &'a Value)>, depth: usize) {
        for (at, (name, value)) in fields.enumerate() {
            if self.left == 0 {
                return;
            }
            self.say(if at > 0 { ", " } else { "" });
            self.say(name);
            self.say(": ");
            self.value(value, depth);
        }
    }
}

/// Characters without a width, and those that turn the direction of what comes after them: a line shows what it says, in its order.
const fn is_unseen(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CHARS_MAX, line_of};

    #[test]
    fn arguments_are_one_line_with_the_short_ones_first() {
        let preview = json!({
            "customer": { "name": "Ada\n  Example", "account": "[sensitive]" },
            "lines": [{ "cents": 4200 }, { "cents": 900 }], "note": "", "urgent": false,
        });
        assert_eq!(
            line_of(&preview),
            "note: \"\", urgent: false, customer: {name: Ada Example, account: [sensitive]}, lines: [{cents: 4200}, {cents: 900}]"
        );
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
    fn nothing_in_a_line_is_unseen_or_turns_its_direction() {
        let line = line_of(&json!({ "path": "a\u{202e}fdp\u{200b}.exe\u{7}\tb" }));
        assert_eq!(line, "path: afdp.exe b");
    }
}
