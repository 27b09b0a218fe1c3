//! Which arguments must not be shown or recorded.
//!
//! Owns the search for marked values and their masking. It does not decide who may see what.
//!
//! Invariant: a value is masked if any schema that could apply to it is marked; if the search has to be abandoned, everything
//! is masked.

use std::collections::BTreeSet;

use serde_json::Value;

use super::edges::each_edge;
use super::survey::is_sensitive;

/// What is shown instead of a sensitive value.
const MASK: &str = "[sensitive]";

const STEPS_MAX: usize = 500_000;

pub(super) fn sensitive_pointers(root: &Value, args: &Value) -> BTreeSet<String> {
    search(root, args).unwrap_or_else(|| BTreeSet::from([String::new()]))
}

/// The marked places; `None` if there is too much to look at.
fn search(root: &Value, args: &Value) -> Option<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut open = vec![(root, args, String::new())];
    while let Some((schema, instance, pointer)) = open.pop() {
        if !seen.insert((std::ptr::from_ref(schema), std::ptr::from_ref(instance))) {
            continue;
        }
        if schema.as_object().is_some_and(is_sensitive) {
            found.insert(pointer);
            continue;
        }
        each_edge(root, schema, instance, &mut |edge| {
            if edge.keyword != "propertyNames" {
                open.push((edge.schema, edge.instance, format!("{pointer}{}", edge.token)));
            }
            (seen.len().saturating_add(open.len()) <= STEPS_MAX).then_some(())
        })?;
    }
    Some(found)
}

pub(super) fn redact(args: &Value, sensitive: &BTreeSet<String>) -> Value {
    let mut redacted = args.clone();
    // Pointers are in order, so a place inside an already masked value is simply not found.
    for pointer in sensitive {
        if let Some(value) = redacted.pointer_mut(pointer) {
            *value = Value::String(MASK.to_owned());
        }
    }
    redacted
}
