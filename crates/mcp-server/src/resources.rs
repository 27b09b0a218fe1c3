//! Resources and resource templates: their lists, and reading one.
//!
//! Owns their URIs. Where one adapter is served they are the server's own; where all are, each begins with `placet://ADAPTER/`, so that no
//! server can be asked for, or pose as, a resource of another.

use std::sync::Arc;

use rmcp::{
    ErrorData,
    model::{
        ContentBlock, ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult,
        ResourceContents,
    },
};
use serde_json::{Map, Value, json};

use placet_engine::answer::Answer;
use placet_types::{
    contract::feature::{Feature, Listing},
    ids::{AdapterName, CapabilityId},
};

use crate::{
    features::{self, Naming, Request},
    shared::{Asking, Shared},
};

/// What a URI begins with where the resources of all adapters are served; the adapter's name and a slash follow.
const PREFIX: &str = "placet://";

/// One page of the resources.
pub(crate) async fn list(
    shared: &Shared,
    asking: &Asking<'_>,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    let items =
        features::merged(shared, asking, Listing::Resources, Naming { key: "uri", named: shown })
            .await;
    let (told, next) = features::page(items, cursor)?;
    let mut result = ListResourcesResult::with_all_items(told);
    result.next_cursor = next;
    Ok(result)
}

/// One page of the templates.
pub(crate) async fn templates(
    shared: &Shared,
    asking: &Asking<'_>,
    cursor: Option<&str>,
) -> Result<ListResourceTemplatesResult, ErrorData> {
    let items = features::merged(
        shared,
        asking,
        Listing::Templates,
        Naming { key: "uriTemplate", named: shown },
    )
    .await;
    let (told, next) = features::page(items, cursor)?;
    let mut result = ListResourceTemplatesResult::with_all_items(told);
    result.next_cursor = next;
    Ok(result)
}

/// Reads one resource.
pub(crate) async fn read(
    request: &Request<'_>,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let missing =
        || ErrorData::resource_not_found("resource not found", Some(json!({ "uri": uri })));
    let (id, own) = placed(request, Feature::Resources, uri).ok_or_else(missing)?;
    let args = Map::from_iter([("uri".to_owned(), Value::from(own))]);
    let mut said = features::ask(request, &id, args, missing()).await?;
    let mut contents: Vec<ResourceContents> = said.member("contents")?;
    for one in &mut contents {
        rename(one, request.asking, &id);
    }
    let mut result = ReadResourceResult::new(contents);
    result.meta = Some(said.meta);
    Ok(result)
}

/// The adapter of the resource or template with this URI, and the URI that its server uses. At the endpoint of all adapters, a server's own
/// URI, for example from a tool's result, can only mean the one adapter that has resources.
pub(crate) fn placed<'a>(
    request: &Request<'_>,
    feature: Feature,
    uri: &'a str,
) -> Option<(CapabilityId, &'a str)> {
    let is_merged = request.asking.adapter.is_none();
    if let Some(rest) = uri.strip_prefix(PREFIX).filter(|_| is_merged) {
        let (adapter, own) = rest.split_once('/')?;
        return Some((features::at(request, feature, adapter)?, own));
    }
    let mut all = features::with(request.shared, request.asking, feature);
    let only = all.pop().filter(|_| all.is_empty())?;
    Some((only, uri))
}

/// The URI of an adapter's resource where those of all are served.
fn shown(adapter: &AdapterName, own: &str) -> String {
    format!("{PREFIX}{adapter}/{own}")
}

fn rename(contents: &mut ResourceContents, asking: &Asking<'_>, id: &CapabilityId) {
    if asking.adapter.is_some() {
        return;
    }
    if let ResourceContents::TextResourceContents { uri, .. }
    | ResourceContents::BlobResourceContents { uri, .. } = contents
    {
        *uri = shown(id.adapter(), uri);
    }
}

/// Replaces the URIs of resources in a server's message by those used here.
pub(crate) fn rename_in(block: &mut ContentBlock, asking: &Asking<'_>, id: &CapabilityId) {
    if let ContentBlock::Resource(embedded) = block {
        rename(&mut embedded.resource, asking, id);
    } else if let ContentBlock::ResourceLink(link) = block
        && asking.adapter.is_none()
    {
        link.uri = shown(id.adapter(), &link.uri);
    }
}

/// Where the URIs of resources are, in the members of a server's whole response.
const URIS: [(&str, &[&str]); 2] =
    [("contents", &["/uri"]), ("messages", &["/content/uri", "/content/resource/uri"])];

/// The outcome of a request for a resource or a prompt that is collected as a tool's result is: with the URIs used here.
pub(crate) fn renamed(answer: Answer, shared: &Shared, asking: &Asking<'_>) -> Answer {
    let mut result = match answer {
        Answer::Finished(result) => result,
        other @ (Answer::InProgress(_) | Answer::Held(_) | Answer::Refused(_)) => return other,
    };
    if let Some(id) = result.capability_id.clone()
        && asking.adapter.is_none()
        && shared.engine.is_feature(&asking.caller, &id.tool_name())
    {
        rename_all(&mut Arc::make_mut(&mut result).output, id.adapter());
    }
    Answer::Finished(result)
}

fn rename_all(output: &mut Value, adapter: &AdapterName) {
    for (member, places) in URIS {
        let items = output.get_mut(member).and_then(Value::as_array_mut);
        for item in items.into_iter().flatten() {
            for place in places {
                if let Some(Value::String(uri)) = item.pointer_mut(place) {
                    *uri = shown(adapter, uri);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::rename_all;

    #[test]
    fn every_uri_of_a_whole_response_gets_its_prefix() {
        let of = |uri: &str| {
            json!({
                "contents": [{ "uri": uri, "text": "see odd://r/1" }],
                "messages": [
                    { "role": "user", "content": { "type": "text", "text": "odd://r/1" } },
                    { "role": "user", "content": { "type": "resource_link", "uri": uri, "name": "r" } },
                    { "role": "user", "content": { "type": "resource", "resource": { "uri": uri, "text": "" } } },
                ],
            })
        };
        let mut output = of("odd://r/1");
        rename_all(&mut output, &"odd".parse().unwrap());
        assert_eq!(output, of("placet://odd/odd://r/1"));
    }
}
