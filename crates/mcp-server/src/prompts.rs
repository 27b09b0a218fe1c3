//! Prompts: listing and getting them.
//!
//! Owns their names: `adapter__prompt`, or the server's own where one adapter alone is served.

use rmcp::{
    ErrorData,
    model::{GetPromptRequestParams, GetPromptResult, ListPromptsResult, PromptMessage},
};
use serde_json::{Map, Value};

use placet_types::{
    contract::feature::{Feature, Listing},
    ids::{AdapterName, CapabilityId},
};

use crate::{
    features::{self, Naming, Request},
    shared::{Asking, Shared},
    uris,
};

/// What is between the names of an adapter and its prompt; no adapter's name has it.
const BETWEEN: &str = "__";

/// One page of the prompts.
pub(crate) async fn list(
    shared: &Shared,
    asking: &Asking<'_>,
    cursor: Option<&str>,
) -> Result<ListPromptsResult, ErrorData> {
    let items =
        features::merged(shared, asking, Listing::Prompts, Naming { key: "name", named: shown })
            .await;
    let (told, next) = features::page(items, cursor)?;
    let mut result = ListPromptsResult::with_all_items(told);
    result.next_cursor = next;
    Ok(result)
}

/// Gets one prompt.
pub(crate) async fn get(
    request: &Request<'_>,
    params: GetPromptRequestParams,
) -> Result<GetPromptResult, ErrorData> {
    let missing = unknown(&params.name);
    let Some((id, own)) = placed(request, Feature::Prompts, &params.name) else {
        return Err(missing);
    };
    let mut args = Map::from_iter([("name".to_owned(), Value::from(own))]);
    if let Some(arguments) = params.arguments {
        args.insert("arguments".to_owned(), Value::Object(arguments));
    }
    let mut said = features::ask(request, &id, args, missing).await?;
    let mut messages: Vec<PromptMessage> = said.member("messages")?;
    for message in &mut messages {
        uris::rename_in(&mut message.content, request.asking, &id);
    }
    let mut result = GetPromptResult::new(messages);
    result.description = said.member("description")?;
    result.meta = Some(said.meta);
    Ok(result)
}

/// The adapter of a prompt with this name, and the name that its server uses.
pub(crate) fn placed<'a>(
    request: &Request<'_>,
    feature: Feature,
    name: &'a str,
) -> Option<(CapabilityId, &'a str)> {
    let (adapter, own) = match request.asking.adapter {
        Some(adapter) => (adapter.as_str(), name),
        None => name.split_once(BETWEEN)?,
    };
    Some((features::at(request, feature, adapter)?, own))
}

/// The error for an unknown prompt, and for arguments that its server rejects.
pub(crate) fn unknown(name: &str) -> ErrorData {
    let shown: String = name.chars().take(128).collect();
    let what = format!("there is no such prompt, or it does not take these arguments: {shown}");
    ErrorData::invalid_params(what, None)
}

fn shown(adapter: &AdapterName, own: &str) -> String {
    format!("{adapter}{BETWEEN}{own}")
}
