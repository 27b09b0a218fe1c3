//! What servers offer besides tools, as their clients ask for it here: resources, prompts and completions.
//!
//! Owns what the three have in common: which adapters a caller may use, the merged lists with their pages, and a request as a call of the
//! engine. Invariants: a request is decided like a tool call; an outcome without a result is an error, with the HTTP status as its code,
//! outside the ranges that JSON-RPC and MCP reserve; what does not exist and what is not this caller's answer alike.

use std::collections::BTreeMap;

use futures::future;
use rmcp::{
    ErrorData, RoleServer,
    model::{
        CallToolRequestParams, CallToolResult, ContentBlock, ErrorCode as RpcCode, MetaObject,
        PromptsCapability, ResourcesCapability, ServerCapabilities,
    },
    service::RequestContext,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use placet_engine::{answer::Answer, views::FeatureView};
use placet_types::{
    contract::feature::{Feature, Listing},
    envelope::result::{ResultStatus, ToolResultEnvelope},
    error::{ErrorCode, Refusal},
    ids::{AdapterName, CapabilityId},
};

use crate::{
    calls::{self, Waiting},
    meta::CALL,
    results,
    shared::{Asking, Shared},
};

/// How many items one page has.
const PAGE: usize = 200;

/// The context of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) asking: &'a Asking<'a>,
    pub(crate) context: &'a RequestContext<RoleServer>,
}

/// A server's response to a request.
#[derive(Debug)]
pub(crate) struct Said {
    output: Map<String, Value>,
    /// What Placet says about the call.
    pub(crate) meta: MetaObject,
}

/// The features that the caller may use at this endpoint.
fn of(shared: &Shared, asking: &Asking<'_>) -> Vec<FeatureView> {
    let mut views = shared.engine.features(&asking.caller);
    views.retain(|view| asking.adapter.is_none_or(|only| view.capability_id.adapter() == only));
    views
}

/// The capabilities for one feature, one of each adapter that has it.
pub(crate) fn with(shared: &Shared, asking: &Asking<'_>, feature: Feature) -> Vec<CapabilityId> {
    let views = of(shared, asking).into_iter().filter(|view| view.feature == feature);
    views.map(|view| view.capability_id).collect()
}

/// The capability of that adapter for a feature.
pub(crate) fn at(request: &Request<'_>, feature: Feature, adapter: &str) -> Option<CapabilityId> {
    let all = with(request.shared, request.asking, feature);
    all.into_iter().find(|id| id.adapter().as_str() == adapter)
}

/// Declares the features that some adapter offers this caller.
pub(crate) fn declare(capabilities: &mut ServerCapabilities, shared: &Shared, asking: &Asking<'_>) {
    for view in of(shared, asking) {
        match view.feature {
            Feature::Resources => capabilities.resources = Some(ResourcesCapability::default()),
            Feature::Prompts => capabilities.prompts = Some(PromptsCapability::default()),
            Feature::Completions => capabilities.completions = Some(Map::new()),
        }
    }
}

/// How an adapter's item is named where those of all adapters are.
pub(crate) type Named = fn(&AdapterName, &str) -> String;

/// The member that names an item of a list, and how it is named here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Naming {
    pub(crate) key: &'static str,
    pub(crate) named: Named,
}

/// The listed items, by their names here.
pub(crate) async fn merged(
    shared: &Shared,
    asking: &Asking<'_>,
    what: Listing,
    Naming { key, named }: Naming,
) -> BTreeMap<String, Value> {
    let all = with(shared, asking, what.feature());
    let listing = all.iter().map(|id| shared.engine.listed(&asking.caller, id, what));
    let lists = future::join_all(listing).await;
    let mut items = BTreeMap::new();
    for (id, list) in all.iter().zip(lists) {
        for mut item in list {
            let Some(own) = item.get(key).and_then(Value::as_str) else { continue };
            let name = match asking.adapter {
                Some(_) => own.to_owned(),
                None => named(id.adapter(), own),
            };
            if let Some(members) = item.as_object_mut() {
                members.insert(key.to_owned(), Value::from(name.clone()));
            }
            items.insert(name, item);
        }
    }
    items
}

/// One page of a list, and where the next one begins: after the last name on this one.
pub(crate) fn page<T: DeserializeOwned>(
    items: BTreeMap<String, Value>,
    cursor: Option<&str>,
) -> Result<(Vec<T>, Option<String>), ErrorData> {
    let is_later = |name: &String| cursor.is_none_or(|after| name.as_str() > after);
    let mut later = items.into_iter().filter(|(name, _)| is_later(name)).peekable();
    let (mut told, mut last) = (Vec::new(), None);
    for (name, item) in later.by_ref().take(PAGE) {
        let item = serde_json::from_value(item).map_err(|error| {
            tracing::error!(%error, "an item of a list has another form than its adapter promises");
            ErrorData::internal_error("a list cannot be told", None)
        })?;
        told.push(item);
        last = Some(name);
    }
    Ok((told, later.peek().and(last)))
}

/// Asks through the engine; `missing` is returned where there is no such thing, and where this caller may not have it.
pub(crate) async fn ask(
    request: &Request<'_>,
    id: &CapabilityId,
    args: Map<String, Value>,
    missing: ErrorData,
) -> Result<Said, ErrorData> {
    let tool = id.tool_name();
    let of = request.shared.of(&request.asking.caller, &tool);
    let answer = match answered(request, &tool, args).await? {
        Ok(answer) => answer,
        Err(refusal) => {
            let status = refusal.code.http_status();
            return Err(told(status, &results::refused(&refusal, of)));
        }
    };
    let status = match &answer {
        Answer::Finished(result) if result.status == ResultStatus::Succeeded => {
            return said(result);
        }
        Answer::Finished(result) => {
            if let Some(error) = fault_of(result, &missing) {
                return Err(error);
            }
            ErrorCode::AdapterFailed.http_status()
        }
        Answer::Held(_) => ErrorCode::ApprovalPending.http_status(),
        Answer::InProgress(_) => ErrorCode::InProgress.http_status(),
        Answer::Refused(refused) => refused.refusal.code.http_status(),
    };
    let result = results::result_of(&answer, of).map_err(|_unknown_tool| missing)?;
    Err(told(status, &result))
}

/// The server's response, as the adapter stores it.
fn said(result: &ToolResultEnvelope) -> Result<Said, ErrorData> {
    let meta = results::meta_of(result);
    let output = result.output.as_object().cloned().unwrap_or_default();
    if output.contains_key("withheld") || output.is_empty() {
        let code = RpcCode(i32::from(ErrorCode::AdapterFailed.http_status()));
        let message = "the result is too large, or cannot be kept: it is withheld";
        let data = meta.0.get(CALL).map(|call| json!({ CALL: call }));
        return Err(ErrorData::new(code, message, data));
    }
    Ok(Said { output, meta })
}

/// The error where the server says that the request itself is at fault.
fn fault_of(result: &ToolResultEnvelope, missing: &ErrorData) -> Option<ErrorData> {
    let code = result.output.pointer("/error/code")?.as_i64()?;
    let code = RpcCode(i32::try_from(code).ok()?);
    let is_of_request = matches!(code, RpcCode::INVALID_PARAMS | RpcCode::RESOURCE_NOT_FOUND);
    is_of_request.then(|| missing.clone())
}

/// A tool result that explains why there is none, as an error.
fn told(status: u16, result: &CallToolResult) -> ErrorData {
    let text = result.content.iter().find_map(|block| {
        let ContentBlock::Text(text) = block else { return None };
        Some(text.text.clone())
    });
    let data = result.meta.as_ref().and_then(|meta| meta.0.get(CALL)).cloned();
    let data = data.map(|call| json!({ CALL: call }));
    ErrorData::new(RpcCode(i32::from(status)), text.unwrap_or_default(), data)
}

/// Makes the call, or attaches to an equal one of the same run that is held, and waits for it as for a call of a tool.
async fn answered(
    request: &Request<'_>,
    tool: &str,
    args: Map<String, Value>,
) -> Result<Result<Answer, Refusal>, ErrorData> {
    let Request { shared, asking, context } = *request;
    let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(args);
    match calls::begin(shared, asking, &params, &context.id, &context.meta).await? {
        Ok(begun) => {
            let waiting = Waiting::of(shared.settings.hold());
            Ok(calls::waited(shared, asking, begun, context, waiting).await)
        }
        Err(refusal) => Ok(Err(refusal)),
    }
}

impl Said {
    /// A member of the server's response.
    ///
    /// # Errors
    /// A protocol error, where it is not of that form.
    pub(crate) fn member<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ErrorData> {
        let member = self.output.remove(name).unwrap_or_default();
        serde_json::from_value(member).map_err(|error| {
            tracing::error!(%error, name, "what a server said has another form than its adapter promises");
            ErrorData::internal_error("the result cannot be told", None)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::page;

    fn items(count: usize) -> BTreeMap<String, Value> {
        (0..count).map(|number| (format!("{number:04}"), json!(number))).collect()
    }

    #[test]
    fn the_pages_of_a_list_are_all_of_it_once() {
        let (mut told, mut cursor) = (Vec::<usize>::new(), None::<String>);
        loop {
            let (items, next) = page::<usize>(items(450), cursor.as_deref()).unwrap();
            told.extend(items);
            match next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(told, (0..450).collect::<Vec<_>>());
    }

    #[test]
    fn a_list_that_fills_a_page_has_no_other() {
        assert_eq!(page::<usize>(items(200), None).unwrap().1, None);
        assert_eq!(page::<usize>(items(0), Some("x")).unwrap(), (Vec::new(), None));
    }
}
