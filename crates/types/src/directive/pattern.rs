//! Which arguments a standing grant covers.
//!
//! Owns the rules and the check. Invariants: a value without a rule is not covered, so that an argument nobody thought of never passes
//! under a grant; a rule never holds a masked value and allows any in its place, so neither a grant nor an answer about a
//! rule reveals it.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::{is_pointer, is_within, token};

/// The most rules of one pattern.
pub const RULES_MAX: usize = 64;
/// The longest place of a rule, in bytes.
const POINTER_BYTES_MAX: usize = 256;
/// The most values that one rule lists.
const CHOICES_MAX: usize = 64;
/// The most bytes of all rules, as JSON.
const PATTERN_BYTES_MAX: usize = 16 * 1024;

/// Rules for arguments, by the argument's place as a JSON Pointer (RFC 6901). An argument without a rule is not covered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ArgumentPattern(pub BTreeMap<String, ArgumentRule>);

/// The values that an argument may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ArgumentRule {
    /// Exactly this value.
    Equals(Value),
    /// One of these texts, numbers, booleans or nulls.
    OneOf(Vec<Value>),
    /// A whole number from 0 to this one.
    AtMost(i64),
    /// A text with this prefix. No `..` or control character may follow it.
    StartsWith(String),
    /// Any value.
    Any(Anything),
}

/// The value of an `any` rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Anything {
    /// Any value.
    Value,
}

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It exceeds a limit.
    #[error("a pattern has 1 to 64 rules and at most 16 KiB")]
    TooLarge,
    /// A place that is not a JSON Pointer.
    #[error("`{0}` is not a JSON Pointer to an argument, such as `/amount` (RFC 6901)")]
    Pointer(String),
    /// A rule that pins a masked value, or asks something of it.
    #[error(
        "`{0}` holds a masked value, and a grant's rules stay in the record: let it be anything (`any`), or have each call approved"
    )]
    Masked(String),
    /// A choice that could hold masked values.
    #[error("the choices for `{0}` are texts, numbers, true, false or null")]
    Choice(String),
    /// A rule that covers nothing.
    #[error("the rule for `{0}` covers nothing")]
    Empty(String),
}

impl ArgumentPattern {
    /// The pattern that covers exactly these arguments.
    pub fn exactly(args: &Value) -> Self {
        let mut rules = BTreeMap::new();
        if let Value::Object(fields) = args {
            for (name, value) in fields {
                rules.insert(token(name), ArgumentRule::Equals(value.clone()));
            }
        }
        Self(rules)
    }

    /// Checks that the pattern is within the limits and that each rule can cover something.
    ///
    /// # Errors
    /// [`PatternError`] with the first rule that cannot be used.
    pub fn check(&self) -> Result<(), PatternError> {
        let bytes = serde_json::to_vec(&self.0).map_err(|_unwritten| PatternError::TooLarge)?;
        if self.0.is_empty() || self.0.len() > RULES_MAX || bytes.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLarge);
        }
        for (place, rule) in &self.0 {
            if !is_pointer(place) || place.len() < 2 || place.len() > POINTER_BYTES_MAX {
                return Err(PatternError::Pointer(place.chars().take(80).collect()));
            }
            let says_nothing = match rule {
                ArgumentRule::OneOf(values) => values.is_empty() || values.len() > CHOICES_MAX,
                ArgumentRule::StartsWith(start) => start.is_empty(),
                ArgumentRule::AtMost(most) => *most < 0,
                ArgumentRule::Equals(_) | ArgumentRule::Any(_) => false,
            };
            if says_nothing {
                return Err(PatternError::Empty(place.clone()));
            }
            // Of a list or an object it is unknown what the schema would mask.
            let is_nested = |choice: &Value| choice.is_object() || choice.is_array();
            if matches!(rule, ArgumentRule::OneOf(choices) if choices.iter().any(is_nested)) {
                return Err(PatternError::Choice(place.clone()));
            }
        }
        Ok(())
    }

    /// Checks that no rule holds, or asks for, a value that its author sees masked: the record of a grant keeps its rules, and
    /// the answer to a rule would tell the value.
    ///
    /// # Errors
    /// [`PatternError::Masked`] if a rule at, below or above a place of `sensitive` is not `any` for the whole of that place,
    /// whatever its value is; [`PatternError::Pointer`] if a rule names a member of a list as if it were an object's.
    pub fn check_masked(
        &self,
        sensitive: &BTreeSet<String>,
        args: &Value,
    ) -> Result<(), PatternError> {
        for (place, rule) in &self.0 {
            if !can_be_in(place, args) {
                return Err(PatternError::Pointer(place.clone()));
            }
            let is_any = matches!(rule, ArgumentRule::Any(_));
            let is_allowed = |hidden: &String| {
                !is_related(place, hidden) || (is_any && is_within(hidden, place))
            };
            if !sensitive.iter().all(is_allowed) {
                return Err(PatternError::Masked(place.clone()));
            }
        }
        Ok(())
    }

    /// Whether the pattern covers these arguments: every rule that pins a value finds it, and every value has a rule.
    pub fn covers(&self, args: &Value) -> bool {
        args.is_object()
            && self.0.iter().all(|(place, rule)| match args.pointer(place) {
                Some(value) => rule.covers(value),
                // A value that may be anything may be absent.
                None => matches!(rule, ArgumentRule::Any(_)),
            })
            && self.is_complete(args, "")
    }

    /// Whether the pattern covers these arguments and no others.
    pub fn is_only(&self, args: &Value) -> bool {
        let pins = |rule: &ArgumentRule| match rule {
            ArgumentRule::Equals(_) => true,
            ArgumentRule::OneOf(choices) => choices.iter().all(|one| choices.first() == Some(one)),
            ArgumentRule::AtMost(_) | ArgumentRule::StartsWith(_) | ArgumentRule::Any(_) => false,
        };
        self.0.values().all(pins) && self.covers(args)
    }

    /// Whether each leaf of `value`, which is at `place`, has a rule for it or for a place above it.
    fn is_complete(&self, value: &Value, place: &str) -> bool {
        if !place.is_empty() && self.0.contains_key(place) {
            return true;
        }
        match value {
            Value::Object(fields) => fields
                .iter()
                .all(|(name, inner)| self.is_complete(inner, &format!("{place}{}", token(name)))),
            Value::Array(items) => {
                !items.is_empty()
                    && items
                        .iter()
                        .enumerate()
                        .all(|(index, inner)| self.is_complete(inner, &format!("{place}/{index}")))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }
}

impl ArgumentRule {
    fn covers(&self, value: &Value) -> bool {
        match self {
            Self::Equals(wanted) => wanted == value,
            Self::OneOf(choices) => choices.contains(value),
            Self::AtMost(most) => {
                value.as_i64().is_some_and(|number| (0..=*most).contains(&number))
            }
            Self::StartsWith(start) => value.as_str().is_some_and(|text| {
                text.strip_prefix(start.as_str())
                    .is_some_and(|rest| !rest.contains("..") && !rest.contains(char::is_control))
            }),
            Self::Any(Anything::Value) => true,
        }
    }
}

/// Whether the places are equal or one contains the other.
fn is_related(one: &str, other: &str) -> bool {
    is_within(one, other) || is_within(other, one)
}

/// Whether these arguments could have this place: elements of their lists are addressed by number.
fn can_be_in(place: &str, args: &Value) -> bool {
    let mut at = Some(args);
    place.split('/').skip(1).all(|token| match at {
        Some(Value::Array(items)) => {
            let is_number = token.bytes().all(|byte| byte.is_ascii_digit())
                && (token == "0" || !token.starts_with('0'));
            at = token.parse().ok().and_then(|index: usize| items.get(index));
            is_number && !token.is_empty()
        }
        Some(Value::Object(fields)) => {
            at = fields.get(&token.replace("~1", "/").replace("~0", "~"));
            true
        }
        Some(_) | None => {
            at = None;
            true
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::{Anything, ArgumentPattern, ArgumentRule, PatternError};

    fn pattern(rules: &[(&str, ArgumentRule)]) -> ArgumentPattern {
        ArgumentPattern(
            rules.iter().map(|(place, rule)| ((*place).to_owned(), rule.clone())).collect(),
        )
    }

    #[test]
    fn exactly_covers_the_same_arguments_and_nothing_else() {
        let args = json!({ "to": "ann", "a/b~c": [1, { "deep": true }] });
        let exactly = ArgumentPattern::exactly(&args);
        exactly.check().unwrap();
        assert!(exactly.covers(&args));
        assert!(!exactly.covers(&json!({ "to": "ann" })));
        assert!(!exactly.covers(&json!({ "to": "bob", "a/b~c": [1, { "deep": true }] })));
        assert!(
            !exactly.covers(&json!({ "to": "ann", "a/b~c": [1, { "deep": true }], "more": 1 }))
        );
    }

    #[test]
    fn a_pattern_is_only_the_call_where_each_rule_pins_its_value() {
        let args = json!({ "to": "ann", "most": 3, "list": ["a"] });
        assert!(ArgumentPattern::exactly(&args).is_only(&args));
        assert!(!ArgumentPattern::exactly(&args).is_only(&json!({ "to": "ann" })));
        let with = |place: &str, rule: ArgumentRule| {
            let mut pattern = ArgumentPattern::exactly(&args);
            pattern.0.insert(place.to_owned(), rule);
            assert!(pattern.covers(&args), "{pattern:?}");
            pattern.is_only(&args)
        };
        assert!(with("/to", ArgumentRule::OneOf(vec![json!("ann"), json!("ann")])));
        assert!(!with("/to", ArgumentRule::OneOf(vec![json!("ann"), json!("bob")])));
        assert!(!with("/to", ArgumentRule::StartsWith("ann".to_owned())));
        assert!(!with("/most", ArgumentRule::AtMost(3)));
        assert!(!with("/list", ArgumentRule::Any(Anything::Value)));
        // An additional value that may be anything is covered too.
        assert!(!with("/more", ArgumentRule::Any(Anything::Value)));
    }

    #[test]
    fn an_argument_that_no_rule_speaks_of_is_not_covered_however_deep() {
        let deep = pattern(&[("/order/id", ArgumentRule::Any(Anything::Value))]);
        assert!(deep.covers(&json!({ "order": { "id": 7 } })));
        assert!(!deep.covers(&json!({ "order": { "id": 7, "notify": "all" } })));
        assert!(!deep.covers(&json!({ "order": { "id": 7 }, "list": [] })));
        let above = pattern(&[("/order", ArgumentRule::Any(Anything::Value))]);
        assert!(above.covers(&json!({ "order": { "id": 7, "notify": "all" } })));
        assert!(above.covers(&json!({})), "anything may be absent");
        assert!(!above.covers(&json!([])));
    }

    #[test]
    fn a_number_is_covered_up_to_the_limit_as_a_whole_number_only() {
        let most = pattern(&[("/cents", ArgumentRule::AtMost(500))]);
        for (value, covered) in [
            (json!(0), true),
            (json!(500), true),
            (json!(501), false),
            (json!(-1), false),
            (json!(1.5), false),
            (json!("5"), false),
            (json!(null), false),
        ] {
            assert_eq!(most.covers(&json!({ "cents": value })), covered, "{value}");
        }
        assert!(!most.covers(&json!({})));
    }

    #[test]
    fn a_text_with_a_beginning_may_not_climb_out_of_it() {
        let under = pattern(&[("/path", ArgumentRule::StartsWith("reports/".to_owned()))]);
        assert!(under.covers(&json!({ "path": "reports/may.txt" })));
        for text in ["report", "reports/../../etc/passwd", "reports/a\u{0}b", "x/reports/"] {
            assert!(!under.covers(&json!({ "path": text })), "{text}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_cover_anything_is_refused() {
        let many: Vec<(String, ArgumentRule)> =
            (0..65).map(|n| (format!("/{n}"), ArgumentRule::Any(Anything::Value))).collect();
        assert_eq!(
            ArgumentPattern(many.into_iter().collect()).check(),
            Err(PatternError::TooLarge)
        );
        assert_eq!(pattern(&[]).check(), Err(PatternError::TooLarge));
        for place in ["", "/", "amount", "/a~2"] {
            let made = pattern(&[(place, ArgumentRule::Any(Anything::Value))]);
            assert_eq!(made.check(), Err(PatternError::Pointer(place.to_owned())));
        }
        for rule in [
            ArgumentRule::OneOf(vec![]),
            ArgumentRule::StartsWith(String::new()),
            ArgumentRule::AtMost(-1),
        ] {
            assert_eq!(pattern(&[("/a", rule)]).check(), Err(PatternError::Empty("/a".to_owned())));
        }
        for nested in [json!({ "pan": "p" }), json!(["p"])] {
            let made = pattern(&[("/a", ArgumentRule::OneOf(vec![json!("x"), nested]))]);
            assert_eq!(made.check(), Err(PatternError::Choice("/a".to_owned())));
        }
    }

    #[test]
    fn of_a_masked_value_a_rule_says_only_that_it_may_be_anything() {
        let sensitive = BTreeSet::from(["/account".to_owned(), "/card/pan".to_owned()]);
        let args = json!({ "note": "x", "account": 471_112, "card": { "n": 1, "pan": "p" } });
        let tried = |place: &str, rule: &ArgumentRule, hidden: &BTreeSet<String>| {
            pattern(&[(place, rule.clone())]).check_masked(hidden, &args)
        };
        let (equals, any) = (ArgumentRule::Equals, ArgumentRule::Any(Anything::Value));
        for (place, rule) in [
            ("/account", ArgumentRule::AtMost(471_112)),
            ("/account", equals(json!(471_112))),
            ("/account", equals(json!("[sensitive]"))),
            ("/account", ArgumentRule::OneOf(vec![json!("[sensitive]")])),
            ("/account", ArgumentRule::StartsWith("[".to_owned())),
            ("/account/deeper", equals(json!(1))),
            ("/account/deeper", any.clone()),
            ("/card", equals(args["card"].clone())),
            ("/card/pan", ArgumentRule::StartsWith("p".to_owned())),
        ] {
            let refused = tried(place, &rule, &sensitive);
            assert_eq!(refused, Err(PatternError::Masked(place.to_owned())), "{rule:?}");
        }
        for (place, rule) in [
            ("/account", any.clone()),
            ("/card", any.clone()),
            ("/card/n", equals(json!(1))),
            ("/note", ArgumentRule::StartsWith("x".to_owned())),
            ("/accounts", equals(json!(2))),
        ] {
            assert_eq!(tried(place, &rule, &sensitive), Ok(()), "{place}");
        }
        let whole = BTreeSet::from([String::new()]);
        for rule in [equals(json!("x")), any] {
            assert!(tried("/note", &rule, &whole).is_err(), "{rule:?}");
        }
    }

    #[test]
    fn an_element_of_a_list_goes_by_its_number() {
        let args = json!({ "list": [{ "secret": "s" }], "/": { "0": 1 } });
        let sensitive = BTreeSet::from(["/list/0/secret".to_owned()]);
        let any = || ArgumentRule::Any(Anything::Value);
        for place in ["/list/+", "/list/-", "/list/00", "/list/x/secret", "/list/"] {
            let rules = pattern(&[(place, any()), ("/list/0/secret", any())]);
            let refused = rules.check_masked(&sensitive, &args);
            assert_eq!(refused, Err(PatternError::Pointer(place.to_owned())));
        }
        for place in ["/list/0", "/list/7/secret", "/~1/0", "/none/+"] {
            assert!(pattern(&[(place, any())]).check_masked(&sensitive, &args).is_ok());
        }
    }

    #[test]
    fn the_rules_read_as_they_are_written() {
        let text = r#"{"/a":{"equals":1},"/b":{"one_of":["x"]},"/c":{"at_most":5},"/d":{"starts_with":"p/"},"/e":{"any":"value"}}"#;
        let read: ArgumentPattern = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
}
