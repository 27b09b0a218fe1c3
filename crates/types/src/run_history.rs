//! What a run remembers of its calls, for policies.
//!
//! Owns the form and its limits. Invariant: it contains values of arguments that a contract marks as keys, of successful calls, and no
//! others; a policy that asks for a forgotten value, or one too long to be kept, refuses.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::CapabilityId;

/// The most values of one argument of one operation; the oldest are forgotten first.
const VALUES_MAX: usize = 256;
/// The longest text that is remembered, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// The remembered argument values of successful calls, by capability and argument, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RunHistory(BTreeMap<CapabilityId, BTreeMap<String, Vec<Value>>>);

impl RunHistory {
    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The operations whose calls it remembers.
    pub fn tools(&self) -> impl Iterator<Item = &CapabilityId> {
        self.0.keys()
    }

    /// All that it remembers: operation, argument, values.
    pub fn entries(&self) -> impl Iterator<Item = (&CapabilityId, &str, &[Value])> {
        self.0.iter().flat_map(|(tool, keys)| {
            keys.iter().map(move |(key, values)| (tool, key.as_str(), values.as_slice()))
        })
    }

    /// Remembers a successful call: those of its arguments that are keys.
    pub fn remember(
        &mut self,
        capability: &CapabilityId,
        keys: &BTreeSet<String>,
        args: &Map<String, Value>,
    ) {
        for (key, value) in keys.iter().filter_map(|key| Some((key, args.get(key)?))) {
            let is_kept =
                value.is_i64() || value.as_str().is_some_and(|text| text.len() <= TEXT_BYTES_MAX);
            if !is_kept {
                continue;
            }
            let values =
                self.0.entry(capability.clone()).or_default().entry(key.clone()).or_default();
            values.retain(|known| known != value);
            if values.len() >= VALUES_MAX {
                values.remove(0);
            }
            values.push(value.clone());
        }
    }

    /// The values of an argument in calls of an operation.
    pub fn values(&self, capability: &CapabilityId, key: &str) -> &[Value] {
        let keys = self.0.get(capability);
        keys.and_then(|keys| keys.get(key)).map(Vec::as_slice).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_keys_that_may_be_kept_are_and_the_oldest_go_first() {
        let (mut history, get) = (RunHistory::default(), "records/get".parse().unwrap());
        let keys: BTreeSet<String> = ["id".to_owned(), "n".to_owned()].into();
        let mut remember = |args: Value| history.remember(&get, &keys, args.as_object().unwrap());
        remember(json!({ "id": "a", "other": "x" }));
        remember(json!({ "id": "x".repeat(257), "n": 1.5 }));
        remember(json!({ "id": "b", "n": 7 }));
        remember(json!({ "id": "a" }));
        assert_eq!(history.values(&get, "id"), [json!("b"), json!("a")]);
        assert_eq!(history.values(&get, "n"), [json!(7)]);
        assert!(history.values(&get, "other").is_empty());
        for number in 0..VALUES_MAX {
            let args = json!({ "id": number });
            history.remember(&get, &keys, args.as_object().unwrap());
        }
        assert_eq!(history.values(&get, "id").len(), VALUES_MAX);
        assert!(!history.values(&get, "id").contains(&json!("a")));
    }
}
