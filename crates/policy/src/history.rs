//! What a run has done, in Cedar's types: `context.req.history`.
//!
//! Owns the type, generated from the arguments that contracts mark with `run_keys`, and the value. Invariant: every value has every
//! operation and argument of the type, with an empty set where the run has done nothing, so that no policy has to test for presence.

use std::collections::BTreeMap;

use cedar_policy_core::ast::Value;
use placet_types::{contract::Capability, ids::CapabilityId, run_history::RunHistory};

use crate::value;

/// The element type of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Long,
}

/// The arguments that runs remember, of every operation that has some.
#[derive(Debug, Clone, Default)]
pub(crate) struct HistoryShape(BTreeMap<CapabilityId, BTreeMap<String, Kind>>);

impl HistoryShape {
    pub(crate) fn of<'a>(capabilities: impl IntoIterator<Item = &'a Capability>) -> Self {
        let keyed = capabilities.into_iter().filter(|one| !one.run_keys.is_empty());
        Self(keyed.map(|one| (one.id.clone(), keys_of(one))).collect())
    }

    /// The type as a Cedar schema writes it.
    pub(crate) fn type_text(&self) -> String {
        let operations = self.0.iter().map(|(id, keys)| {
            let keys = keys.iter().map(|(key, kind)| {
                let of = if *kind == Kind::Long { "Long" } else { "String" };
                format!("\"{}\": Set<{of}>", key.escape_debug())
            });
            format!("\"{id}\": {{ {} }}", keys.collect::<Vec<_>>().join(", "))
        });
        format!("{{ {} }}", operations.collect::<Vec<_>>().join(", "))
    }

    /// Why policies would not see a part of a history, if there is such a part.
    pub(crate) fn flaw(&self, history: &RunHistory) -> Option<String> {
        history.entries().find_map(|(tool, key, values)| {
            let Some(kind) = self.0.get(tool).and_then(|keys| keys.get(key)) else {
                return Some(format!("`{key}` is none of the `run_keys` of `{tool}`"));
            };
            let (is_unseen, what) = match kind {
                Kind::Text => (values.iter().any(|one| !one.is_string()), "texts"),
                Kind::Long => (values.iter().any(|one| !one.is_i64()), "whole numbers"),
            };
            is_unseen.then(|| format!("the values of `{key}` of `{tool}` are {what}"))
        })
    }

    /// What a run has done.
    pub(crate) fn value(&self, history: &RunHistory) -> Value {
        let operations = self.0.iter().map(|(id, keys)| {
            let keys = keys.iter().map(|(key, kind)| {
                let values = history.values(id, key).iter();
                let values = values.filter_map(|one| value_of(*kind, one));
                (key.as_str(), value::set(values))
            });
            (id.to_string(), value::record(keys))
        });
        let operations: Vec<(String, Value)> = operations.collect();
        value::record(operations.iter().map(|(id, keys)| (id.as_str(), keys.clone())))
    }
}

fn keys_of(capability: &Capability) -> BTreeMap<String, Kind> {
    let properties = capability.input_schema.get("properties");
    let kind = |key: &String| {
        let word = properties.and_then(|all| all.get(key)).and_then(|one| one.get("type"));
        let is_long = word.and_then(serde_json::Value::as_str) == Some("integer");
        (key.clone(), if is_long { Kind::Long } else { Kind::Text })
    };
    capability.run_keys.iter().map(kind).collect()
}

/// A value of another type than the contract now declares was remembered under another contract.
fn value_of(kind: Kind, value: &serde_json::Value) -> Option<Value> {
    match kind {
        Kind::Text => value.as_str().map(value::text),
        Kind::Long => value.as_i64().map(value::long),
    }
}
