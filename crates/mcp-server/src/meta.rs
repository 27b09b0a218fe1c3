//! What a client may say about a call besides its arguments: the `_meta` keys that begin with `io.placet/`.
//!
//! Owns their names. A key of ours that does not say what it should is refused, not ignored.

use std::collections::BTreeSet;

use rmcp::{ErrorData, model::RequestMetaObject};
use serde::{Deserialize, de::DeserializeOwned};

use placet_types::{
    ids::{IdempotencyKey, RunId},
    mode::ApprovalMode,
    run_context::BudgetRequest,
    taint::Taint,
};

/// The run of a call outside a session, and what the run asks for.
const RUN: &str = "io.placet/run";
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

/// `io.placet/run`: an id alone, or with what the run asks for.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum RunForm {
    Id(RunId),
    Run(RunMeta),
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
        let run = match read::<RunForm>(meta, RUN)? {
            Some(RunForm::Id(id)) => RunMeta { id: Some(id), ..RunMeta::default() },
            Some(RunForm::Run(run)) => run,
            None => RunMeta::default(),
        };
        Ok(Self { run, key: read(meta, KEY)? })
    }
}

fn read<T: DeserializeOwned>(meta: &RequestMetaObject, key: &str) -> Result<Option<T>, ErrorData> {
    let Some(value) = meta.0.get(key) else { return Ok(None) };
    serde_json::from_value(value.clone()).map(Some).map_err(|error| {
        ErrorData::invalid_params(format!("`_meta` key `{key}` cannot be read: {error}"), None)
    })
}
