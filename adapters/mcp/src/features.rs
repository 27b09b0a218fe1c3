//! What a server offers besides tools: resources, prompts and completions.
//!
//! Owns the request of each, the parsing of its answer, and the lists. Does not judge who may ask: the calls are dispatched like calls of
//! tools. Invariants: a server that does not declare a feature is not asked for it; from a server's lists, only items that people can read
//! and that are within limits are passed on, and nothing that a client would fetch (icons) or trust (annotations, `_meta`).

use rmcp::{
    model::{
        ArgumentInfo, ClientJsonRpcMessage, ClientRequest, CompleteRequest, CompleteRequestParams,
        CompletionContext, Extensions, GetPromptRequest, GetPromptRequestParams,
        ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest,
        PaginatedRequestParams, Prompt, ReadResourceRequest, ReadResourceRequestParams, Reference,
        Resource, ResourceTemplate, ServerCapabilities, ServerResult,
    },
    service::{Peer, RoleClient},
};
use serde_json::{Map, Value, json};

use placet_adapter::outcome::{AdapterError, Answer};
use placet_types::{
    contract::{
        DESCRIPTION_BYTES_MAX, LiveTool,
        feature::{ARGUMENTS_MAX, Feature, Listing, NAME_BYTES_MAX, URI_BYTES_MAX},
    },
    text::is_hidden,
};

use crate::{answer, failure, text::printable};

/// The most items of one list that are passed on.
const ITEMS_MAX: usize = 1_000;
/// The most pages they may come in.
const PAGES_MAX: usize = 100;
/// The most bytes of one list that are passed on.
const LIST_BYTES_MAX: usize = 1024 * 1024;
/// The most completions of an argument (MCP).
const VALUES_MAX: usize = 100;

/// Whether a server declares a feature.
pub(crate) const fn declares(server: &ServerCapabilities, feature: Feature) -> bool {
    match feature {
        Feature::Resources => server.resources.is_some(),
        Feature::Prompts => server.prompts.is_some(),
        Feature::Completions => server.completions.is_some(),
    }
}

/// The features of a server as its capabilities.
pub(crate) fn offered(server: &ServerCapabilities) -> Vec<LiveTool> {
    let features = Feature::ALL.into_iter().filter(|feature| declares(server, *feature));
    features.map(Feature::definition).collect()
}

/// The request for these arguments, which have passed the schema of the feature.
pub(crate) fn request(
    feature: Feature,
    args: &Map<String, Value>,
    extensions: Extensions,
) -> Result<ClientRequest, AdapterError> {
    Ok(match feature {
        Feature::Resources => {
            let params = ReadResourceRequestParams::new(text(args, "uri")?);
            let mut read = ReadResourceRequest::new(params);
            read.extensions = extensions;
            ClientRequest::ReadResourceRequest(read)
        }
        Feature::Prompts => {
            let mut params = GetPromptRequestParams::new(text(args, "name")?);
            params.arguments = args.get("arguments").and_then(Value::as_object).cloned();
            let mut get = GetPromptRequest::new(params);
            get.extensions = extensions;
            ClientRequest::GetPromptRequest(get)
        }
        Feature::Completions => {
            let mut complete = CompleteRequest::new(completion(args)?);
            complete.extensions = extensions;
            ClientRequest::CompleteRequest(complete)
        }
    })
}

fn completion(args: &Map<String, Value>) -> Result<CompleteRequestParams, AdapterError> {
    let of = match (args.get("prompt"), args.get("template")) {
        (Some(_), None) => Reference::for_prompt(text(args, "prompt")?),
        (None, Some(_)) => Reference::for_resource(text(args, "template")?),
        (Some(_), Some(_)) | (None, None) => {
            let why = "either `prompt` or `template` says what the argument is of";
            return Err(AdapterError::Refused(why.to_owned()));
        }
    };
    let argument = ArgumentInfo::new(text(args, "argument")?, text(args, "value")?);
    let mut params = CompleteRequestParams::new(of, argument);
    if let Some(context) = args.get("context").and_then(Value::as_object) {
        let known = context.iter().filter_map(|(name, value)| {
            value.as_str().map(|value| (name.clone(), value.to_owned()))
        });
        params.context = Some(CompletionContext::with_arguments(known.collect()));
    }
    Ok(params)
}

fn text(args: &Map<String, Value>, name: &str) -> Result<String, AdapterError> {
    args.get(name).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| {
        AdapterError::Misconfigured(format!(
            "`input_schema` lets `{name}` be left out, which MCP does not"
        ))
    })
}

/// The extensions of a message that calls a tool or requests a feature.
pub(crate) fn extensions_of(message: &ClientJsonRpcMessage) -> Option<&Extensions> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    if let ClientRequest::CallToolRequest(call) = &request.request {
        Some(&call.extensions)
    } else if let ClientRequest::ReadResourceRequest(read) = &request.request {
        Some(&read.extensions)
    } else if let ClientRequest::GetPromptRequest(get) = &request.request {
        Some(&get.extensions)
    } else if let ClientRequest::CompleteRequest(complete) = &request.request {
        Some(&complete.extensions)
    } else {
        None
    }
}

/// The answer in a result; `None` if the result is not of this feature.
pub(crate) fn answer_of(feature: Feature, result: &ServerResult, bytes_max: u64) -> Option<Answer> {
    let mut citations = Vec::new();
    let said = match (feature, result) {
        (Feature::Resources, ServerResult::ReadResourceResult(read)) => {
            citations = answer::sources(&read.contents);
            json!({ "contents": read.contents })
        }
        (Feature::Prompts, ServerResult::GetPromptResult(prompt)) => {
            json!({ "description": prompt.description, "messages": prompt.messages })
        }
        (Feature::Completions, ServerResult::CompleteResult(complete))
            if complete.completion.values.len() <= VALUES_MAX =>
        {
            json!({ "completion": complete.completion })
        }
        _ => return None,
    };
    let output = answer::kept_or_withheld(&said, bytes_max);
    Some(Answer { output, citations, ..Answer::default() })
}

/// The server's current list, in its order: what can be passed on, within the limits.
pub(crate) async fn list(
    peer: &Peer<RoleClient>,
    what: Listing,
) -> Result<Vec<Value>, AdapterError> {
    let server = peer.peer_info();
    if !server.is_some_and(|server| declares(&server.capabilities, what.feature())) {
        return Ok(Vec::new());
    }
    let garbled = |why: &str| Err(AdapterError::InvalidResponse(why.to_owned()));
    let (mut items, mut bytes, mut left_out) = (Vec::new(), 0_usize, 0_usize);
    let mut cursor: Option<String> = None;
    for _page in 0..PAGES_MAX {
        let params = PaginatedRequestParams::default().with_cursor(cursor.clone());
        let answer = peer
            .send_request(asking(what, params))
            .await
            .map_err(|error| failure::of_request(&error).into_handshake_error())?;
        let Some(page) = page_of(what, answer) else { return garbled("its answer is no list") };
        for item in page.items {
            let Some(item) = item else {
                left_out = left_out.saturating_add(1);
                continue;
            };
            bytes = bytes.saturating_add(item.to_string().len());
            if items.len() >= ITEMS_MAX || bytes > LIST_BYTES_MAX {
                let method = what.method();
                tracing::warn!(
                    method,
                    "a server lists more than is passed on: the rest is left out"
                );
                return Ok(items);
            }
            items.push(item);
        }
        match page.next {
            None => break,
            next if next == cursor => return garbled("its list has no end"),
            next => cursor = next,
        }
    }
    if left_out > 0 {
        let method = what.method();
        tracing::warn!(method, left_out, "items that a server lists are not usable, and left out");
    }
    Ok(items)
}

fn asking(what: Listing, params: PaginatedRequestParams) -> ClientRequest {
    match what {
        Listing::Resources => {
            ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params))
        }
        Listing::Templates => ClientRequest::ListResourceTemplatesRequest(
            ListResourceTemplatesRequest::with_param(params),
        ),
        Listing::Prompts => {
            ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(params))
        }
    }
}

/// One page; unusable items are `None`.
struct Page {
    items: Vec<Option<Value>>,
    next: Option<String>,
}

fn page_of(what: Listing, answer: ServerResult) -> Option<Page> {
    match (what, answer) {
        (Listing::Resources, ServerResult::ListResourcesResult(list)) => {
            let items = list.resources.iter().map(resource).collect();
            Some(Page { items, next: list.next_cursor })
        }
        (Listing::Templates, ServerResult::ListResourceTemplatesResult(list)) => {
            let items = list.resource_templates.iter().map(template).collect();
            Some(Page { items, next: list.next_cursor })
        }
        (Listing::Prompts, ServerResult::ListPromptsResult(list)) => {
            let items = list.prompts.iter().map(prompt).collect();
            Some(Page { items, next: list.next_cursor })
        }
        _ => None,
    }
}

fn resource(of: &Resource) -> Option<Value> {
    let mut item = Item::default();
    item.must("uri", &of.uri, URI_BYTES_MAX)?;
    item.must("name", &of.name, NAME_BYTES_MAX)?;
    item.may(of.title.as_deref(), of.description.as_deref(), of.mime_type.as_deref());
    if let Some(size) = of.size.filter(|size| *size <= SAFE_INTEGER_MAX) {
        item.0.insert("size".to_owned(), Value::from(size));
    }
    Some(item.into())
}

fn template(of: &ResourceTemplate) -> Option<Value> {
    let mut item = Item::default();
    item.must("uriTemplate", &of.uri_template, URI_BYTES_MAX)?;
    item.must("name", &of.name, NAME_BYTES_MAX)?;
    item.may(of.title.as_deref(), of.description.as_deref(), of.mime_type.as_deref());
    Some(item.into())
}

fn prompt(of: &Prompt) -> Option<Value> {
    let mut item = Item::default();
    item.must("name", &of.name, NAME_BYTES_MAX)?;
    item.may(of.title.as_deref(), of.description.as_deref(), None);
    let Some(arguments) = &of.arguments else { return Some(item.into()) };
    if arguments.len() > ARGUMENTS_MAX {
        return None;
    }
    let mut told = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let mut one = Item::default();
        one.must("name", &argument.name, NAME_BYTES_MAX)?;
        one.may(argument.title.as_deref(), argument.description.as_deref(), None);
        if let Some(required) = argument.required {
            one.0.insert("required".to_owned(), Value::Bool(required));
        }
        told.push(one.into());
    }
    item.0.insert("arguments".to_owned(), Value::Array(told));
    Some(item.into())
}

/// The largest whole number that all JSON readers agree on.
const SAFE_INTEGER_MAX: u64 = 9_007_199_254_740_991;

/// An item of a list, made of what people can read of it.
#[derive(Default)]
struct Item(Map<String, Value>);

impl Item {
    /// Its identification: without it there is no item.
    fn must(&mut self, key: &str, text: &str, bytes_max: usize) -> Option<()> {
        if text.is_empty() || text.len() > bytes_max || text.contains(is_hidden) {
            let text = printable(text, 128);
            tracing::warn!(key, %text, "an item that a server lists has no usable identifier");
            return None;
        }
        self.0.insert(key.to_owned(), Value::from(text));
        Some(())
    }

    /// Its description; text that hides characters, or is too long, is left out.
    fn may(&mut self, title: Option<&str>, description: Option<&str>, mime_type: Option<&str>) {
        let is_line = |text: &&str| text.len() <= NAME_BYTES_MAX && !text.contains(is_hidden);
        let is_text = |text: &&str| {
            let hides = text.contains(|c| is_hidden(c) && !matches!(c, '\n' | '\t'));
            text.len() <= DESCRIPTION_BYTES_MAX && !hides
        };
        let members = [
            ("title", title.filter(is_line)),
            ("description", description.filter(is_text)),
            ("mimeType", mime_type.filter(is_line)),
        ];
        for (key, text) in members {
            if let Some(text) = text {
                self.0.insert(key.to_owned(), Value::from(text));
            }
        }
    }
}

impl From<Item> for Value {
    fn from(item: Item) -> Self {
        Self::Object(item.0)
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{Prompt, Resource};
    use serde_json::{Value, json};

    use super::{prompt, resource};

    fn listed(resource_: Value) -> Option<Value> {
        resource(&serde_json::from_value::<Resource>(resource_).unwrap())
    }

    #[test]
    fn an_item_keeps_what_people_can_read_and_nothing_to_fetch_or_trust() {
        let item = listed(json!({
            "uri": "docs://a", "name": "a", "title": "A", "description": "One.\nTwo.", "mimeType": "text/plain", "size": 3,
            "icons": [{ "src": "https://evil.example/i.png" }], "annotations": { "priority": 1.0 }, "_meta": { "x": 1 },
        }));
        let kept = json!({
            "uri": "docs://a", "name": "a", "title": "A", "description": "One.\nTwo.", "mimeType": "text/plain", "size": 3,
        });
        assert_eq!(item, Some(kept));
    }

    #[test]
    fn an_item_that_hides_what_it_is_is_left_out() {
        for (uri, name) in [("docs://a\u{202e}", "a"), ("docs://a", "a\nb"), ("", "a")] {
            assert_eq!(listed(json!({ "uri": uri, "name": name })), None, "{uri:?} {name:?}");
        }
        assert_eq!(
            listed(json!({ "uri": "x:".to_owned() + &"y".repeat(2_048), "name": "a" })),
            None
        );
    }

    #[test]
    fn a_description_that_hides_characters_is_not_passed_on() {
        let item = listed(json!({ "uri": "docs://a", "name": "a", "description": "x\u{200b}y" }));
        assert_eq!(item, Some(json!({ "uri": "docs://a", "name": "a" })));
    }

    #[test]
    fn a_prompt_keeps_its_arguments() {
        let of = json!({ "name": "p", "arguments": [{ "name": "x", "required": true }] });
        let kept = prompt(&serde_json::from_value::<Prompt>(of.clone()).unwrap());
        assert_eq!(kept, Some(of));
        let many: Vec<Value> =
            (0..65).map(|number| json!({ "name": format!("a{number}") })).collect();
        let of = json!({ "name": "p", "arguments": many });
        assert_eq!(prompt(&serde_json::from_value::<Prompt>(of).unwrap()), None);
    }
}
