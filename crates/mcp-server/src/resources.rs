//! Resources and resource templates: their lists, and reading one.
//!
//! Owns which adapter is asked for one. Not here: the form of their URIs ([`crate::uris`]).

use rmcp::{
    ErrorData,
    model::{
        ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, ResourceContents,
    },
};
use serde_json::{Map, Value, json};

use placet_types::{
    contract::feature::{Feature, Listing},
    ids::CapabilityId,
};

use crate::{
    features::{self, Naming, Request},
    shared::{Asking, Shared},
    uris::{PREFIX, rename, shown},
};

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
