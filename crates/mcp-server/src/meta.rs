//! What a client may say about a call besides its arguments: the `_meta` keys that begin with `io.placet/`.
//!
//! Owns their names. A key of ours that does not say what it should is refused, not ignored.

use std::{collections::BTreeSet, fmt};

use rmcp::{ErrorData, model::RequestMetaObject};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use placet_types::{
    ids::{IdempotencyKey, RunId},
    mode::ApprovalMode,
    run_context::BudgetRequest,
    taint::Taint,
};

/// The run of a call outside a session, and what the run asks for.
const RUN: &str = "io.placet/run";
const FORMS: &str =
    "it must be the id of a run, or an object with `id`, `safety_mode`, `budget` and `taint`";
/// The key under which the effect of a call happens at most once.
const KEY: &str = "io.placet/idempotency-key";
/// What a result states about its call.
pub(crate) const CALL: &str = "io.placet/call";

/// What a client says about its run. It can only ask for less than the agent's classes allow.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunMeta {
    /// The run; the session's where it is absent.
    #[serde(default)]
    pub(crate) id: Option<RunId>,
    /// The strongest mode any call of the run may have.
    #[serde(default)]
    pub(crate) safety_mode: Option<ApprovalMode>,
    /// What the run may use up.
    #[serde(default)]
    pub(crate) budget: BudgetRequest,
    /// What the run has in its context, as far as its client knows.
    #[serde(default)]
    pub(crate) taint: BTreeSet<Taint>,
}

/// Our keys in a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallMeta {
    pub(crate) run: RunMeta,
    pub(crate) key: Option<IdempotencyKey>,
}

impl CallMeta {
    /// Reads them.
    pub(crate) fn of(meta: &RequestMetaObject) -> Result<Self, ErrorData> {
        // An id alone, or with what the run asks for.
        let run = match meta.0.get(RUN) {
            Some(Value::String(_)) => RunMeta { id: read(meta, RUN)?, ..RunMeta::default() },
            Some(Value::Object(_)) | None => read(meta, RUN)?.unwrap_or_default(),
            Some(_) => return Err(unread(RUN, FORMS)),
        };
        Ok(Self { run, key: read(meta, KEY)? })
    }
}

fn read<T: DeserializeOwned>(meta: &RequestMetaObject, key: &str) -> Result<Option<T>, ErrorData> {
    let Some(value) = meta.0.get(key) else { return Ok(None) };
    serde_json::from_value(value.clone()).map(Some).map_err(|error| unread(key, error))
}

fn unread(key: &str, why: impl fmt::Display) -> ErrorData {
    ErrorData::invalid_params(format!("`_meta` key `{key}` cannot be read: {why}"), None)
}

#[cfg(test)]
mod tests {
    use rmcp::model::{MetaObject, RequestMetaObject};
    use serde_json::{Value, json};

    use super::{CallMeta, RUN};

    fn run(value: Value) -> Result<Option<String>, String> {
        let meta = MetaObject([(RUN.to_owned(), value)].into_iter().collect());
        let read = CallMeta::of(&RequestMetaObject(meta));
        let id = |read: CallMeta| read.run.id.map(|id| id.to_string());
        read.map(id).map_err(|error| error.message.into_owned())
    }

    #[test]
    fn a_run_is_an_id_or_an_object_and_anything_else_is_said_to_be_wrong() {
        assert_eq!(run(json!("r")), Ok(Some("r".to_owned())));
        assert_eq!(
            run(json!({ "id": "r", "budget": { "calls_max": 1 } })),
            Ok(Some("r".to_owned()))
        );
        assert_eq!(run(json!({})), Ok(None));
        for (value, says) in [
            (json!(7), "must be the id of a run"),
            (json!("a b"), "run_id"),
            (json!({ "name": "r" }), "unknown field `name`"),
        ] {
            let told = run(value).unwrap_err();
            assert!(
                told.starts_with("`_meta` key `io.placet/run`") && told.contains(says),
                "{told}"
            );
        }
    }
}
