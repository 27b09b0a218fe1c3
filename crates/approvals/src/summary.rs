//! One line of what a held call would run, for lists.
//!
//! Owns how a frozen preview becomes a line. Invariant: it is made of the preview alone, in which sensitive fields are masked, and is never
//! longer than a line, whatever the arguments.

use std::collections::BTreeSet;

use placet_ledger::approval::ApprovalRecord;
use placet_types::{json, text};
use serde_json::Value;

use crate::{masking::MASK, service::Approvals};

/// The longest line, in characters.
const CHARS_MAX: usize = 160;

/// What an approval's call would run, in one line; nothing where retention has deleted it.
pub(crate) async fn of(service: &Approvals, approval: &ApprovalRecord) -> String {
    let proposal = service.ledger.proposal(approval).await;
    proposal.map_or_else(
        |_gone| String::new(),
        |proposal| line_of(&proposal.evidence.preview, &proposal.evidence.preview_masked),
    )
}

fn line_of(preview: &Value, masked: &BTreeSet<String>) -> String {
    let Value::Object(fields) = preview else { return String::new() };
    // Short values come first: they tell two calls apart.
    let (short, long): (Vec<_>, Vec<_>) =
        fields.iter().partition(|(_, value)| !value.is_object() && !value.is_array());
    let parts = short.into_iter().chain(long).map(|(name, value)| {
        format!("{name}: {}", text_of(value, masked.contains(&json::token(name))))
    });
    let line = parts.collect::<Vec<_>>().join(", ");
    // Of a longer text only the beginning can fit.
    let beginning: String = line.chars().take(CHARS_MAX.saturating_add(1)).collect();
    let visible = text::visible(&beginning);
    if visible.chars().count() <= CHARS_MAX {
        return visible;
    }
    visible.chars().take(CHARS_MAX).chain(['…']).collect()
}

/// A text as it is; quoted if it reads like the mask or would be invisible.
fn text_of(value: &Value, is_masked: bool) -> String {
    match value {
        Value::String(text) if !text.is_empty() && (is_masked || text != MASK) => text.clone(),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => value.to_string(),
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
            r#"note: "", urgent: false, customer: {"name":"Ada\n  Example","account":"[sensitive]"}, lines: [{"cents":4200},{"cents":900}]"#
        );
        let literal = json!({ "a/b": "[sensitive]", "c": "[sensitive]" });
        let masked = BTreeSet::from(["/a~1b".to_owned()]);
        assert_eq!(super::line_of(&literal, &masked), r#"a/b: [sensitive], c: "[sensitive]""#);
        assert_eq!(line_of(&json!({})), "");
    }

    #[test]
    fn a_line_is_short_whatever_the_arguments_are() {
        for long in [json!("x".repeat(10_000)), json!(vec![7; 10_000])] {
            let long = json!({ "a": long });
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
