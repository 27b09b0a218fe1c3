//! Which arguments a grant shall cover, as they are written on the command line.
//!
//! Owns the conversion of "as in this approval, but" into a pattern. Invariant: what is not loosened stays pinned to its value.

use placet_types::directive::pattern::{Anything, ArgumentPattern, ArgumentRule};
use serde_json::Value;

/// A loosened place, and its rule.
pub(super) type Rule = (String, ArgumentRule);

/// The pattern of arguments, loosened at some places.
pub(super) fn loosened(args: &Value, rules: &[Rule]) -> ArgumentPattern {
    let mut pattern = ArgumentPattern(std::collections::BTreeMap::new());
    pin("", args, &mut pattern);
    for (place, rule) in rules {
        let beneath = format!("{place}/");
        pattern.0.retain(|pinned, _| pinned != place && !pinned.starts_with(&beneath));
        pattern.0.insert(place.clone(), rule.clone());
    }
    pattern
}

/// Pins each leaf value.
fn pin(place: &str, value: &Value, pattern: &mut ArgumentPattern) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, inner) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                pin(&format!("{place}/{name}"), inner, pattern);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, inner) in items.iter().enumerate() {
                pin(&format!("{place}/{index}"), inner, pattern);
            }
        }
        leaf @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_)) => {
            pattern.0.insert(place.to_owned(), ArgumentRule::Equals(leaf.clone()));
        }
    }
}

/// `PLACE`: any value.
pub(super) fn any(text: &str) -> Result<Rule, String> {
    Ok((place(text)?, ArgumentRule::Any(Anything::Value)))
}

/// `PLACE=TEXT`: a text with this prefix.
pub(super) fn starts_with(text: &str) -> Result<Rule, String> {
    let (at, start) = split(text, "/path=reports/")?;
    Ok((at, ArgumentRule::StartsWith(start.to_owned())))
}

/// `PLACE=NUMBER`: a whole number of at most this.
pub(super) fn at_most(text: &str) -> Result<Rule, String> {
    let (at, most) = split(text, "/cents=500")?;
    let most = most.parse().map_err(|_no_number| format!("`{most}` is not a whole number"))?;
    Ok((at, ArgumentRule::AtMost(most)))
}

fn split<'t>(text: &'t str, example: &str) -> Result<(String, &'t str), String> {
    let (at, value) = text.split_once('=').ok_or_else(|| format!("write it as {example}"))?;
    Ok((place(at)?, value))
}

fn place(text: &str) -> Result<String, String> {
    if text.len() > 1 && text.starts_with('/') {
        return Ok(text.to_owned());
    }
    Err(format!("`{text}` is not the place of an argument, such as /path or /order/id"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{any, at_most, loosened, starts_with};

    #[test]
    fn what_nobody_loosened_stays_pinned() {
        let args = json!({ "path": "reports/may.txt", "order": { "id": 7, "note": "x" }, "tags": ["a"], "more": {} });
        let rules = [
            starts_with("/path=reports/").unwrap(),
            at_most("/order/id=10").unwrap(),
            any("/tags").unwrap(),
        ];
        let pattern = loosened(&args, &rules);
        pattern.check().unwrap();
        assert!(pattern.covers(&args));
        let mut other = args.clone();
        other["path"] = json!("reports/june.txt");
        other["order"]["id"] = json!(9);
        other["tags"] = json!(["b", "c"]);
        assert!(pattern.covers(&other));
        for (place, value) in [
            ("/path", json!("etc/passwd")),
            ("/order/id", json!(11)),
            ("/order/note", json!("y")),
            ("/more", json!({ "all": true })),
        ] {
            let mut wrong = args.clone();
            *wrong.pointer_mut(place).unwrap() = value;
            assert!(!pattern.covers(&wrong), "{place}");
        }
    }

    #[test]
    fn a_rule_names_a_place_and_what_may_be_there() {
        for wrong in ["path=x", "/path", "/=x", ""] {
            assert!(starts_with(wrong).is_err(), "{wrong}");
        }
        assert!(at_most("/a=many").is_err() && at_most("/a=1.5").is_err());
        assert!(any("a").is_err() && any("/").is_err());
    }
}
