//! Sessions: runs that keep their calls and results, for simulations (EN-01).
//!
//! Owns what is kept of a session, its names for tools, and the wire types. Invariant: a call is kept once, with its final result, whatever
//! that is; one that waits for approval is not kept yet.

use std::collections::{BTreeMap, VecDeque};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use placet_adapter::adapter::Example;
use placet_types::{
    envelope::result::ResultStatus,
    error::{ErrorCode, Refusal},
    ids::{AdapterName, CapabilityId, RunId, SessionId},
    json,
    mode::ApprovalMode,
    run_context::BudgetRequest,
    taint::Taint,
};

use super::{
    batch_views::{BatchCall, CallResult, Reference},
    offer::Tools,
};

/// The most calls that are kept; the oldest are forgotten first.
const CALLS_MAX: usize = 1_000;
/// The most bytes of arguments and results that are kept, unless the newest call alone has more.
const BYTES_MAX: usize = 4 * 1024 * 1024;
const NAMESPACES_MAX: usize = 64;
const NAMESPACE_BYTES_MAX: usize = 64;
/// What separates a namespace from the tool in it.
const SEPARATOR: &str = "::";

/// A request to open a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenSession {
    /// The id of the session. It is also the run id of all its calls.
    pub session_id: RunId,
    /// The strongest mode that any call of the session may have, as in a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_mode: Option<ApprovalMode>,
    /// The budget of the session, as in a run.
    #[serde(
        default,
        deserialize_with = "json::object",
        skip_serializing_if = "BudgetRequest::is_empty"
    )]
    pub run_budget: BudgetRequest,
    /// What the session has in its context so far, as in a run.
    #[serde(default, skip_serializing_if = "std::collections::BTreeSet::is_empty")]
    pub taint: std::collections::BTreeSet<Taint>,
    /// The adapter that each namespace in `namespace::tool` stands for: one with a tool that the caller may use. A namespace that is not
    /// listed stands for the adapter of the same name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub namespaces: BTreeMap<String, AdapterName>,
}

/// The state of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionView {
    /// The id of the session.
    pub session_id: RunId,
    /// The adapter of each namespace that the session names.
    pub namespaces: BTreeMap<String, AdapterName>,
    /// The last 1,000 calls, oldest first; fewer where they have more than 4 MiB together.
    pub calls: Vec<SessionCall>,
}

/// A call of a session, with its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionCall {
    /// The id that the model gave to the call.
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// The capability; absent if there is no such tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability_id: Option<CapabilityId>,
    /// The arguments.
    pub args: Map<String, Value>,
    /// The status of the call.
    pub status: ResultStatus,
    /// The result: its structured output if there is one, or the error.
    pub result: Value,
}

/// The results of calls in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionResults {
    /// The id of the session.
    pub session_id: RunId,
    /// The result of each call, in order.
    pub results: Vec<CallResult>,
    /// The sources that the results name.
    pub references: Vec<Reference>,
}

/// What a run keeps if it is a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Session {
    pub(crate) namespaces: BTreeMap<String, AdapterName>,
    calls: VecDeque<Kept>,
    /// What [`Kept::bytes`] of all calls come to.
    bytes: usize,
}

/// A call that has ended.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    /// Identifies the call when it is sent again.
    pub(crate) key: Option<String>,
    /// Whether it is asked about again when it is sent again, since that may bring something else.
    pub(crate) may_change: bool,
    /// The tool as it was written.
    pub(crate) written: String,
    pub(crate) args: Map<String, Value>,
    pub(crate) result: CallResult,
}

impl Kept {
    fn bytes(&self) -> usize {
        let written = serde_json::to_vec(&(&self.args, &self.result));
        written.map_or(0, |written| written.len())
    }

    fn view(&self) -> SessionCall {
        let made = self.result.result.as_ref();
        SessionCall {
            id: self.result.id.clone(),
            tool: self.result.tool.clone(),
            capability_id: made.and_then(|made| made.capability_id.clone()),
            args: self.args.clone(),
            status: self.result.status,
            result: told_of(&self.result),
        }
    }
}

impl Session {
    /// A session without calls.
    pub(crate) fn new(
        namespaces: BTreeMap<String, AdapterName>,
        tools: &Tools,
    ) -> Result<Self, Refusal> {
        let fits =
            |name: &String| (1..=NAMESPACE_BYTES_MAX).contains(&name.len()) && !name.contains(':');
        if namespaces.len() > NAMESPACES_MAX || !namespaces.keys().all(fits) {
            let problem = "at most 64 names of 1 to 64 bytes, without a colon";
            let refusal = Refusal::new(ErrorCode::ValidationError, "the namespaces cannot be used");
            return Err(refusal.with_problem("/namespaces", problem));
        }
        // An adapter that is hidden from the caller and one that does not exist answer alike.
        let is_open = |adapter: &AdapterName| tools.keys().any(|id| id.adapter() == adapter);
        if let Some((name, adapter)) = namespaces.iter().find(|(_, adapter)| !is_open(adapter)) {
            let message = format!("the namespace `{name}` stands for nothing that you may call");
            let problem = format!("no tool of an adapter `{adapter}` is open to you");
            let refusal = Refusal::new(ErrorCode::ValidationError, message);
            return Err(refusal.with_problem("/namespaces", problem));
        }
        Ok(Self { namespaces, ..Self::default() })
    }

    /// The call with `namespace::tool` replaced by the name of the tool.
    pub(crate) fn routed(&self, mut call: BatchCall) -> BatchCall {
        let routed = |name: &mut String| {
            if let Some((namespace, tool)) = name.split_once(SEPARATOR) {
                let adapter = self.namespaces.get(namespace);
                let adapter = adapter.map_or(namespace, AdapterName::as_str);
                *name = format!("{adapter}__{tool}");
            }
        };
        if let Some(name) = &mut call.tool {
            routed(name);
        }
        if let Some(function) = &mut call.function {
            routed(&mut function.name);
        }
        call
    }

    /// The kept result of a call that is sent again, if it has ended.
    pub(crate) fn ended(
        &self,
        key: Option<&String>,
        call: &BatchCall,
        args: &Map<String, Value>,
    ) -> Result<Option<CallResult>, Refusal> {
        let Some(key) = key else { return Ok(None) };
        let Some(kept) = self.calls.iter().find(|kept| kept.key.as_ref() == Some(key)) else {
            return Ok(None);
        };
        if kept.result.id == call.id && kept.written == call.name() && kept.args == *args {
            return Ok(Some(kept).filter(|kept| !kept.may_change).map(|kept| kept.result.clone()));
        }
        let message = "a batch of this id had other calls; send these under another id";
        Err(Refusal::new(ErrorCode::IdempotencyConflict, message))
    }

    /// Keeps a call that has ended, in the place of what it had come to before.
    pub(crate) fn keep(&mut self, kept: Kept) {
        let before = kept.key.as_ref().and_then(|key| {
            self.calls.iter().position(|earlier| earlier.key.as_ref() == Some(key))
        });
        self.forget(before);
        self.bytes = self.bytes.saturating_add(kept.bytes());
        self.calls.push_back(kept);
        while self.calls.len() > CALLS_MAX || (self.bytes > BYTES_MAX && self.calls.len() > 1) {
            self.forget(Some(0));
        }
    }

    fn forget(&mut self, at: Option<usize>) {
        if let Some(gone) = at.and_then(|at| self.calls.remove(at)) {
            self.bytes = self.bytes.saturating_sub(gone.bytes());
        }
    }

    /// Its calls, the oldest first.
    pub(crate) fn calls(&self) -> impl Iterator<Item = SessionCall> {
        self.calls.iter().map(Kept::view)
    }

    /// The earlier calls that a simulation has to be consistent with.
    pub(crate) fn examples(&self) -> Vec<Example> {
        let example = |SessionCall { capability_id, args, result, .. }: SessionCall| {
            Some(Example { capability: capability_id?, args, result })
        };
        self.calls().filter_map(example).collect()
    }
}

/// The session of a run.
pub(crate) fn session_of(session: Option<&mut Session>) -> Result<&mut Session, Refusal> {
    session.ok_or_else(|| {
        let message = "there is no such session open here; close a run of this id that is open, if there is one, before you open it";
        Refusal::new(ErrorCode::RunNotFound, message)
    })
}

/// A result as the session records it: structured where possible, with the error where there is one.
fn told_of(result: &CallResult) -> Value {
    let envelope = result.result.as_ref();
    let error = envelope.and_then(|envelope| envelope.error.as_ref()).or(result.error.as_ref());
    let output = envelope.map(|envelope| &envelope.output).filter(|output| !output.is_null());
    let structured = output.and_then(|output| output.get("structured"));
    match (structured.or(output), error) {
        (Some(output), None) => output.clone(),
        (output, Some(error)) => {
            serde_json::json!({ "error": error.error_code, "message": error.message, "output": output })
        }
        (None, None) => Value::Null,
    }
}

/// The id of a session as the conversation id of its calls.
pub(crate) fn conversation(id: &RunId) -> Result<SessionId, Refusal> {
    SessionId::new(id.as_str())
        .map_err(|error| Refusal::new(ErrorCode::ValidationError, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(id: usize, bytes: usize) -> Kept {
        let result = CallResult {
            id: id.to_string(),
            tool: "t".to_owned(),
            status: ResultStatus::Failed,
            result: None,
            error: None,
            duplicate_of: None,
            warning: Some("x".repeat(bytes)),
            exposure: None,
        };
        Kept {
            key: Some(id.to_string()),
            may_change: false,
            written: "t".to_owned(),
            args: Map::new(),
            result,
        }
    }

    #[test]
    fn the_oldest_calls_are_forgotten_beyond_a_number_and_beyond_a_size() {
        let ids = |session: &Session| session.calls().map(|call| call.id).collect::<Vec<_>>();
        let mut session = Session::default();
        (0..CALLS_MAX + 2).for_each(|id| session.keep(kept(id, 1)));
        assert_eq!(session.calls.len(), CALLS_MAX);
        assert_eq!(session.calls().next().map(|call| call.id), Some("2".to_owned()));

        let mut session = Session::default();
        (0..5).for_each(|id| session.keep(kept(id, BYTES_MAX / 4)));
        assert_eq!(ids(&session), ["2", "3", "4"]);
        session.keep(kept(3, 1));
        assert_eq!(ids(&session), ["2", "4", "3"], "one is kept once, in its last state");
        session.keep(kept(6, BYTES_MAX / 4));
        assert_eq!(ids(&session), ["2", "4", "3", "6"], "what was replaced takes no room");
        session.keep(kept(7, 2 * BYTES_MAX));
        assert_eq!(ids(&session), ["7"], "the newest is kept whatever its size");
        assert_eq!(session.bytes, session.calls.iter().map(Kept::bytes).sum::<usize>());
    }
}
