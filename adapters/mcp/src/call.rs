//! One dispatch as one `tools/call`, or as one request for what a server offers besides tools.
//!
//! Owns the request and the name of what a write changes. Invariant: the arguments are the permitted ones, unchanged except for
//! the one argument that the contract assigns to the dispatch token.

use std::sync::Arc;

use rmcp::model::{ClientRequest, Extensions, MetaObject, RequestMetaObject};
use serde_json::{Map, Value};

use placet_adapter::{
    adapter::{Conditions, Dispatch},
    outcome::AdapterError,
};
use placet_types::{
    contract::{
        Capability, Contract,
        repeating::{ATTEMPT_META, CALLER_KEY_META, TOKEN_META},
    },
    envelope::result::Mutation,
    text::is_hidden,
};

use crate::{
    features,
    http::{headers::CallHeaders, tool_call::ToolCall},
    listener::ProgressOf,
};

/// Arguments that name the subject of a call, most telling first.
const SUBJECTS: [&str; 7] = ["path", "uri", "url", "id", "name", "destination", "key"];
/// The longest such value that is shown.
const SUBJECT_BYTES_MAX: usize = 256;

/// What is asked of the server.
#[derive(Debug)]
pub(crate) enum Request {
    /// A call of a tool.
    Tool(Box<ToolCall>),
    /// A request for another feature.
    Feature(Box<ClientRequest>, RequestMetaObject),
}

/// A call, ready to be sent.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) request: Request,
    pub(crate) timeout_ms: u64,
    pub(crate) listen_ms: u64,
    pub(crate) mutation: Option<Mutation>,
}

/// The capability of a dispatch, if it is one of this contract.
pub(crate) fn capability<'a>(
    contract: &'a Contract,
    dispatch: &Dispatch,
) -> Result<&'a Capability, AdapterError> {
    let id = dispatch.capability();
    if dispatch.contract_digest() != contract.digest {
        return Err(AdapterError::SchemaMismatch(
            "the contract has changed since the call was permitted".to_owned(),
        ));
    }
    contract
        .capabilities
        .get(id.capability())
        .filter(|_| *id.adapter() == contract.adapter)
        .ok_or_else(|| {
            AdapterError::Misconfigured(format!("`{id}` is not in the contract of this connection"))
        })
}

/// Builds the request of a call.
pub(crate) fn prepare(
    capability: &Capability,
    dispatch: &Dispatch,
    conditions: &Conditions,
) -> Result<Prepared, AdapterError> {
    let headers = CallHeaders::of(&conditions.trace, conditions.credential.as_ref())?;
    let meta = meta(capability, dispatch, conditions);
    let request = if let Some(feature) = capability.feature() {
        let mut extensions = Extensions::new();
        extensions.insert(headers);
        let asked = features::request(feature, dispatch.args(), extensions)?;
        Request::Feature(Box::new(asked), meta)
    } else {
        let (name, arguments) = (capability.tool.clone(), arguments(capability, dispatch));
        let progress = conditions.observer.as_ref().map(|observer| {
            let (call, observer) = (dispatch.call_id().clone(), Arc::clone(observer));
            Arc::new(ProgressOf { call, observer })
        });
        Request::Tool(Box::new(ToolCall { name, arguments, meta, headers, progress }))
    };
    Ok(Prepared {
        request,
        timeout_ms: conditions.timeout_ms,
        listen_ms: conditions.listen_ms,
        mutation: capability.is_write_class().then(|| mutation(capability, dispatch.args())),
    })
}

fn arguments(capability: &Capability, dispatch: &Dispatch) -> Map<String, Value> {
    let mut args = dispatch.args().clone();
    if let Some(argument) = &capability.token_argument {
        args.insert(argument.clone(), Value::String(dispatch.token().to_owned()));
    }
    args
}

fn meta(
    capability: &Capability,
    dispatch: &Dispatch,
    conditions: &Conditions,
) -> RequestMetaObject {
    let mut meta = MetaObject::new();
    if capability.is_write_class() {
        meta.insert(TOKEN_META.to_owned(), Value::String(dispatch.token().to_owned()));
        meta.insert(ATTEMPT_META.to_owned(), Value::from(dispatch.attempt()));
        if let Some(key) = dispatch.key() {
            meta.insert(CALLER_KEY_META.to_owned(), Value::String(key.as_str().to_owned()));
        }
    }
    if let Some(traceparent) = &conditions.trace.traceparent {
        meta.set_traceparent(traceparent.clone());
    }
    if let Some(tracestate) = &conditions.trace.tracestate {
        meta.set_tracestate(tracestate.clone());
    }
    RequestMetaObject(meta)
}

/// What a successful write changed: the capability, and the subject that its arguments name. MCP offers nothing better.
fn mutation(capability: &Capability, args: &Map<String, Value>) -> Mutation {
    let id = &capability.id;
    let target = match subject(capability, args) {
        Some((argument, value)) => format!("{id} {argument}={value}"),
        None => id.to_string(),
    };
    Mutation { action: "write".to_owned(), target }
}

fn subject<'a>(
    capability: &Capability,
    args: &'a Map<String, Value>,
) -> Option<(&'static str, &'a str)> {
    // A value that might be a secret is not shown.
    let schema = capability.arguments.as_ref().ok()?;
    let sensitive = schema.sensitive_pointers(&Value::Object(args.clone()));
    SUBJECTS.into_iter().find_map(|argument| {
        let value = args.get(argument)?.as_str()?;
        let shown =
            !value.is_empty() && value.len() <= SUBJECT_BYTES_MAX && !value.contains(is_hidden);
        let secret = sensitive.contains("") || sensitive.contains(&format!("/{argument}"));
        (shown && !secret).then_some((argument, value))
    })
}
