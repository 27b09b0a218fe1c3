//! A contract from the OpenAPI document of a service (TS-01): each operation becomes a capability of a `rest` adapter.
//!
//! Owns the reading of OpenAPI 3.0 and 3.1. Contacts no server: the document is the only input. What cannot be called as the document
//! describes it is left out and reported. Invariant: an operation that may change something starts as strong as the import says, since a
//! document is only what a service claims.

mod form;
mod schema;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use placet_types::{
    contract::{
        Contract,
        file::ContractFile,
        rest::{RestFile, is_own_header},
    },
    ids::{AdapterName, CapabilityId, CapabilityName},
    mode::ApprovalMode,
};
use serde_json::{Map, Value, json};
use url::Url;

use super::{
    import::{ImportOptions, Imported, deliver},
    written::{check_free, clean},
};
use crate::{
    config::load::Config,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output, yaml,
};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
/// The methods that a path may have in a document and not in a contract.
const OTHER_METHODS: [&str; 4] = ["head", "options", "trace", "query"];
/// How deep references and schemas may be nested.
const DEPTH_MAX: usize = 64;

/// The input besides the document.
pub(crate) struct Service<'a> {
    pub(crate) name: &'a AdapterName,
    /// The base of all paths, if it is not the document's first server.
    pub(crate) base: Option<&'a str>,
    pub(crate) private_network: bool,
    /// The name of the secret for calls.
    pub(crate) secret: Option<&'a str>,
}

/// Imports the service that a document describes into the folder; without one, prints its contract.
pub(super) fn import(
    document: &Path,
    service: &Service<'_>,
    options: &ImportOptions,
    config: &Config,
    folder: Option<&PathBuf>,
) -> Outcome {
    let path = folder.map(|folder| folder.join(format!("{}.yaml", service.name)));
    path.as_deref().map_or(Ok(()), check_free)?;
    if let Some(secret) = service.secret {
        let named = config.secrets.named(secret);
        named.map_err(|error| Failure::usage(format!("`--credential` {error}")))?;
    }
    let unusable = |problem| Failure::usage("the document cannot be used").because(problem);
    let document: Value = yaml::read(document).map_err(unusable)?;
    let imported = contract_of(&document, service, options)?;
    deliver(&imported, "an OpenAPI document", path.as_deref(), None, || {
        output::line("\nReview it: lower a `mode` only where you know what the operation does.");
    })?;
    Ok(Exit::Ok)
}

/// Turns a document into a contract.
pub(crate) fn contract_of(
    document: &Value,
    service: &Service<'_>,
    options: &ImportOptions,
) -> Result<Imported, Failure> {
    let version = document.get("openapi").and_then(Value::as_str).unwrap_or_default();
    if !version.starts_with("3.") {
        return Err(Failure::usage("the file is no OpenAPI 3 document")
            .because(format!("its `openapi` is `{version}`")));
    }
    let url = base_of(document, service.base)?;
    let (mut capabilities, mut notes) = (Map::new(), Vec::new());
    let key = service.secret.and_then(|_| key_header(document));
    let operations = operations(document, key.as_deref(), &mut notes);
    let is_there = |own: &String| operations.iter().any(|one| one.own_name() == *own);
    if let Some(own) = options.names.keys().find(|own| !is_there(own)) {
        return Err(Failure::new(format!("`--name {own}=…`: the document has no such operation"))
            .try_this(
                "its name is its `operationId`, else its method and path, such as `get/pets`",
            ));
    }
    for read in &operations {
        let place = format!("{} {}", read.method.to_uppercase(), read.path);
        let made = read.name(service.name, options).and_then(|name| {
            if capabilities.contains_key(name.as_str()) {
                return Err(format!("another operation is named `{name}`"));
            }
            let mut request = read.request()?;
            let left_out = std::mem::take(&mut request.left_out);
            let capability = read.capability(options, request);
            check_request(&capability)?;
            Ok((name, left_out, capability))
        });
        match made {
            Ok((name, left_out, capability)) => {
                notes.extend(left_out.into_iter().map(|what| format!("`{place}`: {what}")));
                capabilities.insert(name.to_string(), capability);
            }
            Err(why) => notes.push(format!("`{place}` is left out: {why}")),
        }
    }
    let credential = service.secret.map(|secret| match &key {
        Some(header) => json!({ "secret": secret, "header": header }),
        None => json!({ "secret": secret }),
    });
    let file = json!({
        "contract_version": "placet.contract.v1",
        "adapter": service.name,
        "environment": options.environment,
        "description": document.pointer("/info/title").and_then(Value::as_str).map(clean).unwrap_or_default(),
        "tenants": options.tenants,
        "transport": { "type": "rest", "url": url.as_str(), "private_network": service.private_network },
        "protocol_version": "rest/1",
        "credential": credential,
        "capabilities": capabilities,
    });
    let what = format!("no contract can be made of `{}`", service.name);
    let file: ContractFile = serde_json::from_value(file).attempted(what.clone())?;
    let contract = Contract::from_file(file.clone()).attempted(what)?;
    for (name, capability) in &contract.capabilities {
        if let Err(error) = &capability.arguments {
            notes.push(format!("`{name}`: quarantined, its schema cannot be enforced: {error}"));
        }
    }
    Ok(Imported { file, notes })
}

/// The operations of a document that a contract can have; of the others a note.
fn operations<'a>(
    document: &'a Value,
    key: Option<&'a str>,
    notes: &mut Vec<String>,
) -> Vec<Operation<'a>> {
    let mut operations = Vec::new();
    for (path, item) in document.get("paths").and_then(Value::as_object).into_iter().flatten() {
        if item.get("$ref").is_some() {
            notes.push(format!("`{path}` is left out: it is a `$ref`"));
            continue;
        }
        for method in METHODS {
            let Some(operation) = item.get(method) else { continue };
            operations.push(Operation { document, key, path, method, item, operation });
        }
        for method in OTHER_METHODS.into_iter().filter(|method| item.get(method).is_some()) {
            let method = method.to_uppercase();
            notes.push(format!("`{method} {path}` is left out: a contract has no such method"));
        }
    }
    operations
}

/// Checks what would else cost the whole contract.
fn check_request(capability: &Value) -> Result<(), String> {
    let part = |key: &str| capability.get(key).cloned().unwrap_or_default();
    let unread = |error: serde_json::Error| error.to_string();
    let rest: RestFile = serde_json::from_value(part("rest")).map_err(unread)?;
    let effect = serde_json::from_value(part("effect")).map_err(unread)?;
    rest.check(&part("input_schema"), effect)
}

/// The base of all paths.
fn base_of(document: &Value, given: Option<&str>) -> Result<Url, Failure> {
    let first = document.pointer("/servers/0/url").and_then(Value::as_str);
    let text = given.or(first).unwrap_or_default();
    Url::parse(text).map_err(|error| {
        Failure::usage(format!("the document's server `{text}` is no URL"))
            .because(error)
            .try_this("--base-url says what all paths are below")
    })
}

/// The header of the first API key that the document declares; without one the credential is a bearer token.
fn key_header(document: &Value) -> Option<String> {
    let schemes = document.pointer("/components/securitySchemes")?.as_object()?;
    let is_key = |scheme: &&Value| {
        scheme.get("type").is_some_and(|kind| kind == "apiKey")
            && scheme.get("in").is_some_and(|place| place == "header")
    };
    let name = schemes.values().find(is_key)?.get("name")?.as_str()?;
    Some(name.to_ascii_lowercase())
}

/// An operation and its place in the document.
struct Operation<'a> {
    document: &'a Value,
    /// The header that carries the credential, where it has one of its own.
    key: Option<&'a str>,
    path: &'a str,
    method: &'a str,
    item: &'a Value,
    operation: &'a Value,
}

impl Operation<'_> {
    /// The operation's id, or method and path.
    fn own_name(&self) -> String {
        let id = self.operation.get("operationId").and_then(Value::as_str);
        id.map_or_else(|| format!("{}{}", self.method, self.path), str::to_owned)
    }

    /// The capability's name.
    fn name(
        &self,
        adapter: &AdapterName,
        options: &ImportOptions,
    ) -> Result<CapabilityName, String> {
        let own = self.own_name();
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let name: String = own.chars().map(plain).collect();
        let name = match options.names.get(&own) {
            Some(name) => name.clone(),
            None => {
                CapabilityName::new(name.trim_matches('_')).map_err(|error| error.to_string())?
            }
        };
        CapabilityId::new(adapter.clone(), name.clone())
            .map_err(|error| format!("{error}; `--name {own}=NAME` gives it another name"))?;
        Ok(name)
    }

    fn request(&self) -> Result<Request, String> {
        let own = self.operation.get("servers").or_else(|| self.item.get("servers"));
        if own.is_some() && own != self.document.get("servers") {
            return Err("it has `servers` of its own".to_owned());
        }
        let mut request = Request::default();
        self.parameters(&mut request)?;
        self.body(&mut request)?;
        Ok(request)
    }

    fn capability(&self, options: &ImportOptions, request: Request) -> Value {
        let reads = self.method == "get" || options.mode == ApprovalMode::ReadOnly;
        // What a service claims to only read still needs approval, until a reviewer says that it is harmless.
        let mode = match (reads, options.mode) {
            (true, ApprovalMode::ReadOnly) => ApprovalMode::ReadOnly,
            (true, _) => ApprovalMode::Network,
            (false, mode) => mode,
        };
        let text = |key: &str| self.operation.get(key).and_then(Value::as_str);
        let description = match (text("summary"), text("description")) {
            (Some(summary), Some(more)) if summary != more => format!("{summary}\n{more}"),
            (one, other) => one.or(other).unwrap_or_default().to_owned(),
        };
        let Request { properties, required, query, headers, body, definitions, .. } = request;
        let mut schema =
            json!({ "type": "object", "properties": properties, "additionalProperties": false });
        if let Some(schema) = schema.as_object_mut() {
            let more = [("required", json!(required)), ("$defs", json!(definitions))];
            let is_said = |value: &Value| *value != json!([]) && *value != json!({});
            let more = more.into_iter().filter(|(_, value)| is_said(value));
            schema.extend(more.map(|(key, value)| (key.to_owned(), value)));
        }
        json!({
            "description": clean(&description),
            "mode": mode,
            "effect": if reads { "none" } else { "write" },
            "dedup": (!reads).then(|| json!({ "class": "opaque" })),
            "rest": {
                "method": self.method.to_uppercase(), "path": self.path, "query": query,
                "headers": headers, "body": body,
            },
            "input_schema": schema,
        })
    }

    fn parameters(&self, request: &mut Request) -> Result<(), String> {
        // Parameters of the operation take precedence over those of the path.
        let lists =
            [self.operation, self.item].map(|one| one.get("parameters").and_then(Value::as_array));
        let (mut known, mut in_path) = (BTreeSet::new(), BTreeSet::new());
        for parameter in lists.into_iter().flatten().flatten() {
            let parameter = resolved(self.document, parameter)?;
            let text = |key: &str| parameter.get(key).and_then(Value::as_str).unwrap_or_default();
            let (name, place) = (text("name"), text("in"));
            if !known.insert((name.to_owned(), place.to_owned())) {
                continue;
            }
            let is_required = parameter.get("required").is_some_and(|required| required == true);
            let is_key = self.key.is_some_and(|key| key.eq_ignore_ascii_case(name));
            let is_sent = place != "header" || (is_own_header(name) && !is_key);
            if let Err(why) = form::check(self.document, parameter, place)
                && is_sent
            {
                if is_required || place == "path" {
                    return Err(format!("its parameter `{name}` {why}"));
                }
                request.left_out.push(format!("the parameter `{name}` is left out: it {why}"));
                continue;
            }
            let lower = name.to_ascii_lowercase();
            match place {
                // OpenAPI says that parameters of these names count for nothing.
                "header" if matches!(lower.as_str(), "authorization" | "content-type") => continue,
                "header" if is_key || !is_own_header(name) => {
                    let why = "Placet sends such a header itself, or not at all";
                    request.left_out.push(format!("the parameter `{name}` is left out: {why}"));
                    continue;
                }
                "path" => drop(in_path.insert(name)),
                "query" => {
                    drop(request.query.insert(name.to_owned(), json!(format!("{{{name}}}"))))
                }
                "header" => {
                    drop(request.headers.insert(name.to_owned(), json!(format!("{{{name}}}"))))
                }
                _ if is_required => {
                    return Err(format!("it needs the parameter `{name}` in its {place}"));
                }
                _ => {
                    let why = format!("`in: {place}` is not sent");
                    request.left_out.push(format!("the parameter `{name}` is left out: {why}"));
                    continue;
                }
            }
            if request.properties.contains_key(name) {
                return Err(format!("two of its parameters are named `{name}`"));
            }
            let schema = parameter.get("schema").cloned().unwrap_or_else(|| json!({}));
            request.argument(self.document, name, schema)?;
            if is_required || place == "path" {
                request.required.insert(name.to_owned());
            }
        }
        form::check_places(self.path, &in_path)
    }

    /// The members of a JSON body become arguments; a body that is not an object with members is one argument, `body`.
    fn body(&self, request: &mut Request) -> Result<(), String> {
        let Some(body) = self.operation.get("requestBody") else { return Ok(()) };
        let body = resolved(self.document, body)?;
        let is_required = body.get("required").is_some_and(|required| required == true);
        if matches!(self.method, "get" | "delete") {
            if is_required {
                return Err("it needs a body, and none is sent with its method".to_owned());
            }
            let why = "the body is left out: none is sent with this method";
            request.left_out.push(why.to_owned());
            return Ok(());
        }
        let contents = body.get("content").and_then(Value::as_object);
        let content = contents.into_iter().flatten().find(|(kind, _)| form::is_json(kind));
        let Some((_, content)) = content else {
            if contents.is_none() {
                return Ok(());
            }
            return Err("its body is not `application/json`".to_owned());
        };
        let schema = content.get("schema").cloned().unwrap_or_else(|| json!({}));
        let mut whole = resolved(self.document, &schema)?.clone();
        schema::drop_read_only(self.document, &mut whole);
        let members = whole.get("properties").and_then(Value::as_object);
        let is_plain = ["allOf", "oneOf", "anyOf"].iter().all(|key| whole.get(key).is_none());
        match members {
            Some(members)
                if is_plain
                    && members.keys().all(|name| !request.properties.contains_key(name)) =>
            {
                let required =
                    whole.get("required").and_then(Value::as_array).into_iter().flatten();
                for (name, member) in members {
                    request.argument(self.document, name, member.clone())?;
                }
                if is_required {
                    let names = required.filter_map(Value::as_str).map(str::to_owned);
                    request.required.extend(names);
                }
            }
            _ if request.properties.contains_key("body") => {
                return Err("a parameter is named `body`".to_owned());
            }
            _ => {
                request.argument(self.document, "body", schema)?;
                request.body = Some(json!("{body}"));
                if is_required {
                    request.required.insert("body".to_owned());
                }
            }
        }
        Ok(())
    }
}

/// The parts of an operation's request.
#[derive(Default)]
struct Request {
    properties: Map<String, Value>,
    required: BTreeSet<String>,
    query: Map<String, Value>,
    headers: Map<String, Value>,
    body: Option<Value>,
    /// The schemas of the document that the arguments refer to.
    definitions: Map<String, Value>,
    /// What the operation can do without, and why it is not there.
    left_out: Vec<String>,
}

impl Request {
    fn argument(&mut self, document: &Value, name: &str, mut schema: Value) -> Result<(), String> {
        if name.is_empty() || name.contains(['{', '}']) {
            return Err(format!("`{name}` cannot be the name of an argument"));
        }
        let mut found = Vec::new();
        schema::convert(document, &mut schema, &mut found, 0)?;
        self.properties.insert(name.to_owned(), schema);
        while let Some(name) = found.pop() {
            if self.definitions.contains_key(&name) {
                continue;
            }
            let pointer = format!("/components/schemas/{name}");
            let mut schema = document
                .pointer(&pointer)
                .cloned()
                .ok_or_else(|| format!("there is no schema `{name}`"))?;
            schema::convert(document, &mut schema, &mut found, 0)?;
            self.definitions.insert(name, schema);
        }
        Ok(())
    }
}

/// The target of a reference within the document.
fn resolved<'a>(document: &'a Value, value: &'a Value) -> Result<&'a Value, String> {
    let mut value = value;
    for _ in 0..DEPTH_MAX {
        let Some(reference) = value.get("$ref").and_then(Value::as_str) else { return Ok(value) };
        value = reference
            .strip_prefix('#')
            .and_then(|pointer| document.pointer(pointer))
            .ok_or_else(|| format!("`{reference}` is not in the document"))?;
    }
    Err("its references have no end".to_owned())
}
