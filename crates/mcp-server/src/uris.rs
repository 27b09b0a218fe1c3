//! The URIs of resources as clients see them.
//!
//! Owns their form. Where one adapter is served they are the server's own; where all are, each begins with `placet://ADAPTER/`, so that no
//! server can be asked for, or pose as, a resource of another.

use std::sync::Arc;

use rmcp::model::{ContentBlock, ResourceContents};
use serde_json::Value;

use placet_engine::answer::Answer;
use placet_types::ids::{AdapterName, CapabilityId};

use crate::shared::{Asking, Shared};

/// What a URI begins with where the resources of all adapters are served; the adapter's name and a slash follow.
pub(crate) const PREFIX: &str = "placet://";

/// The URI of an adapter's resource where those of all are served.
pub(crate) fn shown(adapter: &AdapterName, own: &str) -> String {
    format!("{PREFIX}{adapter}/{own}")
}

/// Replaces the URI of contents by the one used here.
pub(crate) fn rename(contents: &mut ResourceContents, asking: &Asking<'_>, id: &CapabilityId) {
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
