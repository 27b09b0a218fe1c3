//! Requests to a service over HTTP without a protocol of its own: which argument goes where (EN-02).
//!
//! Owns the templates and their rules. Sends nothing. Invariants: every placeholder is an argument that the schema names, so an argument
//! never becomes another part of the request than the reviewer saw; and an argument is never part of the host.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{credential::check_header, ensure};
use crate::mode::Effect;

const PATH_BYTES_MAX: usize = 2_048;
const PARTS_MAX: usize = 64;

/// The HTTP request of a capability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestFile {
    /// The HTTP method. `GET` is for `effect: none` only.
    pub method: RestMethod,
    /// The path below the transport's `url`, such as `/users/{user_id}`. An argument fills one segment or a part of one.
    pub path: String,
    /// The query parameters, by name. Absent, for `GET` and `DELETE`: all arguments that are not used elsewhere, under their own names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<BTreeMap<String, String>>,
    /// The headers, by name. Headers for credentials or connections are not allowed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The JSON body. Absent, for `POST`, `PUT` and `PATCH`: an object of all arguments that are used nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

crate::named_enum! {
    /// An HTTP method (RFC 9110, section 9; RFC 5789).
    #[derive(JsonSchema)]
    pub enum RestMethod {
        /// Reads.
        Get = "GET",
        /// Does something with a body.
        Post = "POST",
        /// Replaces.
        Put = "PUT",
        /// Changes in part.
        Patch = "PATCH",
        /// Removes.
        Delete = "DELETE",
    }
}

impl RestMethod {
    const fn has_body(self) -> bool {
        match self {
            Self::Post | Self::Put | Self::Patch => true,
            Self::Get | Self::Delete => false,
        }
    }
}

/// The request of a call, less its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestRequest {
    /// The segments of the path, not yet encoded.
    pub segments: Vec<String>,
    /// The query, by name, not yet encoded.
    pub query: Vec<(String, String)>,
    /// The headers, by name.
    pub headers: Vec<(String, String)>,
    /// The body, where there is one.
    pub body: Option<Value>,
}

impl RestFile {
    /// Checks the templates against the arguments that the capability has.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn check(&self, schema: &Value, effect: Effect) -> Result<(), String> {
        ensure(
            self.method != RestMethod::Get || effect == Effect::None,
            "`rest.method`: GET changes nothing, so it goes with `effect: none`",
        )?;
        let is_path = self.path.starts_with('/')
            && self.path.len() <= PATH_BYTES_MAX
            && !self.path.contains(['?', '#', '\\'])
            && !self.path.contains("//")
            && self.path.split('/').skip(1).all(|segment| !matches!(segment, "." | ".."));
        ensure(
            is_path,
            "`rest.path` must begin with `/` and have no `?`, `#`, `\\`, `//`, `.` or `..`",
        )?;
        ensure(
            self.body.is_none() || self.method.has_body(),
            "`rest.body`: GET and DELETE have no body",
        )?;
        let parts = self.headers.len().max(self.query.as_ref().map_or(0, BTreeMap::len));
        ensure(parts <= PARTS_MAX, "`rest` has more than 64 headers or parameters")?;
        if let Some(name) = self.headers.keys().find(|name| !is_own_header(name)) {
            return Err(format!("`rest.headers`: `{name}` is no header that a contract can set"));
        }
        let known = schema.get("properties").and_then(Value::as_object);
        for name in self.used()? {
            if !known.is_some_and(|known| known.contains_key(&name)) {
                return Err(format!(
                    "`rest`: `{{{name}}}` is no argument that `input_schema` names"
                ));
            }
        }
        Ok(())
    }

    /// The arguments that templates name.
    fn used(&self) -> Result<BTreeSet<String>, String> {
        let mut texts = vec![self.path.as_str()];
        texts.extend(self.query.iter().flatten().map(|(_, text)| text.as_str()));
        texts.extend(self.headers.values().map(String::as_str));
        texts_of(self.body.as_ref().unwrap_or(&Value::Null), &mut texts);
        let mut used = BTreeSet::new();
        for text in texts {
            for part in parts(text).map_err(|problem| format!("`rest`: `{text}`: {problem}"))? {
                if let Part::Argument(name) = part {
                    used.insert(name.to_owned());
                }
            }
        }
        Ok(used)
    }

    /// The request of a call with these arguments. A parameter, a header or a member of the body whose argument is absent is left out; in
    /// texts, null counts as absent.
    ///
    /// # Errors
    /// The reason, when an argument of the path is absent or cannot be part of one.
    pub fn request(&self, args: &Map<String, Value>) -> Result<RestRequest, String> {
        let used = self.used()?;
        let rest = || args.iter().filter(|(name, _)| !used.contains(*name));
        let filled = |(name, text): (&String, &String)| {
            filled(text, args).transpose().map(|value| value.map(|value| (name.clone(), value)))
        };
        let segments = self.path.split('/').skip(1).map(|segment| {
            // A path that ends with `/`; no argument makes one.
            if segment.is_empty() {
                return Ok(String::new());
            }
            let segment = filled_segment(segment, args)?;
            if matches!(segment.as_str(), "" | "." | "..") {
                return Err("an argument cannot be a part of the path".to_owned());
            }
            Ok(segment)
        });
        let query = match (&self.query, self.method.has_body()) {
            (Some(query), _) => filled_query(query, args)?,
            (None, true) => Vec::new(),
            (None, false) => rest().flat_map(|(name, value)| pairs(name, value)).collect(),
        };
        let body = match (&self.body, self.method.has_body()) {
            (Some(body), _) => filled_body(body, args)?,
            (None, true) => {
                Some(rest().map(|(name, value)| (name.clone(), value.clone())).collect())
            }
            (None, false) => None,
        };
        Ok(RestRequest {
            segments: segments.collect::<Result<_, String>>()?,
            query,
            headers: self.headers.iter().filter_map(filled).collect::<Result<_, String>>()?,
            body,
        })
    }
}

/// Whether a contract may set the header: `accept` or a name that a credential could have, but none that carries credentials or the
/// dispatch token.
pub fn is_own_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_secret = matches!(name.as_str(), "authorization" | "cookie" | "idempotency-key");
    name == "accept" || (check_header(&name).is_ok() && !is_secret)
}

fn texts_of<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts_of(item, texts)),
        Value::Object(members) => members.values().for_each(|member| texts_of(member, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A piece of a template.
enum Part<'a> {
    Text(&'a str),
    Argument(&'a str),
}

/// The pieces of a template: `{name}` is an argument, all else is text.
fn parts(template: &str) -> Result<Vec<Part<'_>>, &'static str> {
    let mut parts = Vec::new();
    let mut left = template;
    while let Some((text, after)) = left.split_once('{') {
        let (name, rest) = after.split_once('}').ok_or("a brace is not closed")?;
        if name.is_empty() || name.contains('{') || text.contains('}') {
            return Err("a brace stands alone");
        }
        parts.extend([Part::Text(text), Part::Argument(name)]);
        left = rest;
    }
    if left.contains('}') {
        return Err("a brace stands alone");
    }
    parts.push(Part::Text(left));
    Ok(parts)
}

/// The argument that a template consists of, if it is nothing else.
fn sole(template: &str) -> Result<Option<&str>, &'static str> {
    Ok(match parts(template)?.as_slice() {
        [Part::Text(""), Part::Argument(name), Part::Text("")] => Some(*name),
        _ => None,
    })
}

/// A template with its arguments; `None` if one of them is absent or null.
fn filled(template: &str, args: &Map<String, Value>) -> Result<Option<String>, String> {
    let mut text = String::new();
    for part in parts(template)? {
        match part {
            Part::Text(piece) => text.push_str(piece),
            Part::Argument(name) => match args.get(name).filter(|value| !value.is_null()) {
                Some(value) => text.push_str(&as_text(value)),
                None => return Ok(None),
            },
        }
    }
    Ok(Some(text))
}

fn filled_segment(template: &str, args: &Map<String, Value>) -> Result<String, String> {
    filled(template, args)?.ok_or_else(|| "an argument of the path is absent".to_owned())
}

/// A query with its arguments.
fn filled_query(
    query: &BTreeMap<String, String>,
    args: &Map<String, Value>,
) -> Result<Vec<(String, String)>, String> {
    let mut made = Vec::new();
    for (name, template) in query {
        match sole(template)? {
            Some(argument) => {
                made.extend(args.get(argument).into_iter().flat_map(|value| pairs(name, value)));
            }
            None => made.extend(filled(template, args)?.map(|text| (name.clone(), text))),
        }
    }
    Ok(made)
}

/// The parameters of an argument: one for each item of a list of plain values, as OpenAPI has it by default, and none for null.
fn pairs(name: &str, value: &Value) -> Vec<(String, String)> {
    let is_plain = |item: &Value| !item.is_array() && !item.is_object();
    let list = value.as_array().filter(|items| items.iter().all(is_plain));
    let items = list.map_or(std::slice::from_ref(value), Vec::as_slice);
    let items = items.iter().filter(|item| !item.is_null());
    items.map(|item| (name.to_owned(), as_text(item))).collect()
}

/// A body with its arguments. A text that is a single placeholder becomes the argument itself.
fn filled_body(template: &Value, args: &Map<String, Value>) -> Result<Option<Value>, String> {
    Ok(match template {
        Value::String(text) => match sole(text)? {
            Some(name) => args.get(name).cloned(),
            None => filled(text, args)?.map(Value::String),
        },
        Value::Array(items) => {
            let items = items.iter().filter_map(|item| filled_body(item, args).transpose());
            Some(Value::Array(items.collect::<Result<_, _>>()?))
        }
        Value::Object(members) => {
            let members = members.iter().filter_map(|(name, member)| {
                let member = filled_body(member, args).transpose()?;
                Some(member.map(|member| (name.clone(), member)))
            });
            Some(Value::Object(members.collect::<Result<_, _>>()?))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(template.clone()),
    })
}

/// An argument as text: a string as it is, all else as JSON.
fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{RestFile, RestRequest};
    use crate::mode::Effect;

    fn rest(file: Value) -> RestFile {
        serde_json::from_value(file).unwrap()
    }

    fn request(file: Value, args: &Value) -> Result<RestRequest, String> {
        rest(file).request(args.as_object().unwrap())
    }

    #[test]
    fn arguments_go_where_the_contract_says_and_the_others_into_query_or_body() {
        let args =
            json!({ "id": "a/b ü", "verbose": true, "tags": ["x"], "note": "hi", "no": null });
        let get =
            request(json!({ "method": "GET", "path": "/users/{id}/v{verbose}" }), &args).unwrap();
        assert_eq!(get.segments, ["users", "a/b ü", "vtrue"]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(get.query, [pair("tags", "x"), pair("note", "hi")]);
        assert_eq!(get.body, None);
        let post =
            json!({ "method": "POST", "path": "/users/{id}", "headers": { "X-Note": "n:{note}" } });
        let post = request(post, &args).unwrap();
        assert_eq!(post.headers, [pair("X-Note", "n:hi")]);
        assert_eq!(
            (post.query, post.body),
            (vec![], Some(json!({ "verbose": true, "tags": ["x"], "no": null })))
        );
    }

    #[test]
    fn a_body_keeps_types_and_leaves_out_what_is_absent() {
        let file = json!({
            "method": "PUT", "path": "/x", "query": { "q": "{absent}", "fixed": "1" },
            "body": { "user": { "tags": "{tags}", "text": "<{id}>", "more": "{absent}" }, "kind": 7 },
        });
        let made = request(file, &json!({ "id": 5, "tags": ["x"] })).unwrap();
        assert_eq!(made.body, Some(json!({ "user": { "tags": ["x"], "text": "<5>" }, "kind": 7 })));
        assert_eq!(made.query, [("fixed".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn a_list_in_the_query_is_repeated_and_null_is_left_out() {
        let file = json!({
            "method": "GET", "path": "/x", "headers": { "X-A": "{none}" },
            "query": { "a": "{tags}", "b": "{none}", "c": "<{none}>", "d": "{rows}", "e": "{empty}", "f": "<{tags}>" },
        });
        let args =
            json!({ "tags": ["x", "y z", 3, null], "none": null, "rows": [["x"]], "empty": [] });
        let made = request(file, &args).unwrap();
        let shown: Vec<String> = made.query.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let wanted = ["a=x", "a=y z", "a=3", "d=[[\"x\"]]", "f=<[\"x\",\"y z\",3,null]>"];
        assert_eq!(shown, wanted);
        assert_eq!(made.headers, []);
        let file = json!({ "method": "GET", "path": "/{none}" });
        request(file, &args).unwrap_err();
    }

    #[test]
    fn an_argument_never_leaves_its_place_in_the_path() {
        let file = || json!({ "method": "GET", "path": "/users/{id}" });
        for hostile in [json!(".."), json!("."), json!("")] {
            request(file(), &json!({ "id": hostile })).unwrap_err();
        }
        request(file(), &json!({})).unwrap_err();
        assert_eq!(
            request(file(), &json!({ "id": "../admin?x#y" })).unwrap().segments[1],
            "../admin?x#y"
        );
    }

    #[test]
    fn a_path_ends_with_a_slash_where_its_template_does() {
        let segments = |path: &str| {
            let made = request(json!({ "method": "GET", "path": path }), &json!({ "id": "7" }));
            made.unwrap().segments
        };
        assert_eq!(segments("/"), [""]);
        assert_eq!(segments("/users/{id}/"), ["users", "7", ""]);
        let empty = json!({ "id": "" });
        request(json!({ "method": "GET", "path": "/users/{id}/" }), &empty).unwrap_err();
    }

    #[test]
    fn a_template_that_cannot_be_filled_does_not_load() {
        let schema = json!({ "type": "object", "properties": { "id": {} } });
        let refused = |file: Value| rest(file).check(&schema, Effect::None).unwrap_err();
        for (file, told) in [
            (json!({ "method": "GET", "path": "users" }), "must begin with"),
            (json!({ "method": "GET", "path": "/a/../b" }), "must begin with"),
            (json!({ "method": "GET", "path": "/a//b" }), "must begin with"),
            (json!({ "method": "GET", "path": "/{other}" }), "`{other}` is no argument"),
            (json!({ "method": "GET", "path": "/{id" }), "not closed"),
            (json!({ "method": "GET", "path": "/id}" }), "stands alone"),
            (json!({ "method": "GET", "path": "/", "body": {} }), "GET and DELETE have no body"),
            (
                json!({ "method": "GET", "path": "/", "headers": { "Authorization": "x" } }),
                "no header",
            ),
            (json!({ "method": "POST", "path": "/", "body": { "a": ["{b}"] } }), "`{b}`"),
        ] {
            let problem = refused(file);
            assert!(problem.contains(told), "{problem}");
        }
        let get = rest(json!({ "method": "GET", "path": "/{id}" }));
        get.check(&schema, Effect::None).unwrap();
        get.check(&schema, Effect::Write).unwrap_err();
    }
}
