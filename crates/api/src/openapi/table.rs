//! The table of routes, from which both the router and the OpenAPI document are made.
//!
//! Owns what a row is made of: method, path, handler and description. The rows are in [`operations`]. Invariant: a route that is not in the
//! table does not exist, and one that is in it is described, and verified unless it is open.

use axum::{
    handler::Handler,
    routing::{self, MethodRouter},
};
use http::Method;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};
use utoipa::openapi::{
    ContentBuilder, Ref, Required, Response, ResponseBuilder, SecurityRequirement,
    header::{Header, HeaderBuilder},
    path::{Operation, OperationBuilder, ParameterBuilder, ParameterIn},
    request_body::RequestBodyBuilder,
};

use super::{
    BEARER, operations,
    schemas::{carried, identifier},
};
use crate::{
    answer::JSON,
    problem::{PROBLEM_JSON, ProblemDocument},
    query::{LIMIT_DEFAULT, LIMIT_MAX},
    state::ApiState,
};

/// One route.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// With `{id}` where an identifier stands.
    pub(crate) path: &'static str,
    pub(crate) handler: MethodRouter<ApiState>,
    /// Whether anybody may call it. For all other routes the caller is verified first.
    pub(crate) is_open: bool,
    /// Its name in the document.
    pub(crate) id: &'static str,
    operation: OperationBuilder,
    /// Each adds a type that the operation refers to.
    types: Vec<fn(&mut SchemaGenerator)>,
}

/// Every route, in the order of the documentation.
pub(crate) fn all() -> Vec<Route> {
    [
        operations::calls(),
        operations::runs::routes(),
        operations::sessions::routes(),
        operations::approvals::routes(),
        operations::approvals::of_many(),
        operations::directives::routes(),
        operations::ledger(),
        operations::service(),
        operations::decisions(),
        operations::audit(),
        operations::open_to_all(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(super) fn get<T: 'static>(
    path: &'static str,
    handler: impl Handler<T, ApiState>,
    id: &'static str,
    tag: &str,
    summary: &str,
) -> Route {
    Route::new(Method::GET, path, routing::get(handler), id, start(tag, summary))
}

pub(super) fn post<T: 'static>(
    path: &'static str,
    handler: impl Handler<T, ApiState>,
    id: &'static str,
    tag: &str,
    summary: &str,
) -> Route {
    Route::new(Method::POST, path, routing::post(handler), id, start(tag, summary))
}

pub(super) fn delete<T: 'static>(
    path: &'static str,
    handler: impl Handler<T, ApiState>,
    id: &'static str,
    tag: &str,
    summary: &str,
) -> Route {
    Route::new(Method::DELETE, path, routing::delete(handler), id, start(tag, summary))
}

/// A route that anybody may call.
pub(super) fn open<T: 'static>(
    path: &'static str,
    handler: impl Handler<T, ApiState>,
    id: &'static str,
    tag: &str,
    summary: &str,
) -> Route {
    Route { is_open: true, ..get(path, handler, id, tag, summary) }
}

fn start(tag: &str, summary: &str) -> OperationBuilder {
    OperationBuilder::new().tag(tag).summary(Some(summary))
}

impl Route {
    fn new(
        method: Method,
        path: &'static str,
        handler: MethodRouter<ApiState>,
        id: &'static str,
        operation: OperationBuilder,
    ) -> Self {
        let route =
            Self { method, path, handler, is_open: false, id, operation, types: Vec::new() };
        if !path.contains("{id}") {
            return route;
        }
        let about = "The identifier. If it is malformed or not visible to the caller: `NOT_FOUND`.";
        route.parameter(ParameterIn::Path, "id", Required::True, about, text())
    }

    /// The route as the document has it.
    pub(crate) fn description(self, docs: &mut SchemaGenerator) -> Operation {
        let route = if self.is_open { self } else { self.verified() };
        for add in route.types {
            add(docs);
        }
        route.operation.operation_id(Some(route.id)).build()
    }

    /// Adds what every route behind a token takes and can answer.
    fn verified(self) -> Self {
        let delegation = "The access token of the user on whose behalf the caller acts.";
        let challenge = answer_header(
            "A challenge (RFC 6750, section 3) that says where to get a token (RFC 9728, section 5.1)",
            json!({ "type": "string", "pattern": "^Bearer( .*)?$" }),
        );
        let refused = "The request was refused; `error_code` says why";
        self.header("Placet-Delegation", delegation, text())
            .with(|operation| {
                operation.security(SecurityRequirement::new(BEARER, Vec::<String>::new()))
            })
            .problem(
                "401",
                "The caller could not be authenticated",
                [("WWW-Authenticate", challenge)],
            )
            .problem("default", refused, [("Retry-After", retry_after())])
    }

    fn with(self, change: impl FnOnce(OperationBuilder) -> OperationBuilder) -> Self {
        Self { operation: change(self.operation), ..self }
    }

    /// More about it than the summary says.
    pub(super) fn about(self, text: &str) -> Self {
        self.with(|operation| operation.description(Some(text)))
    }

    pub(super) fn query(self, name: &str, about: &str, schema: Value) -> Self {
        self.parameter(ParameterIn::Query, name, Required::False, about, schema)
    }

    pub(super) fn required_query(self, name: &str, about: &str, schema: Value) -> Self {
        self.parameter(ParameterIn::Query, name, Required::True, about, schema)
    }

    pub(super) fn header(self, name: &str, about: &str, schema: Value) -> Self {
        self.parameter(ParameterIn::Header, name, Required::False, about, schema)
    }

    fn parameter(
        self,
        place: ParameterIn,
        name: &str,
        required: Required,
        about: &str,
        schema: Value,
    ) -> Self {
        let parameter = ParameterBuilder::new().name(name).parameter_in(place).required(required);
        let parameter = parameter.description(Some(about)).schema(Some(carried(schema)));
        self.with(|operation| operation.parameter(parameter))
    }

    /// A key, and what traces the calls that are made.
    pub(super) fn keyed(self, key: &str, trace: &str) -> Self {
        let schema = json!({ "type": "string", "minLength": 1, "maxLength": 256 });
        self.header("Idempotency-Key", key, schema).header("traceparent", trace, text()).header(
            "tracestate",
            trace,
            text(),
        )
    }

    /// A list with pages, whose entries have places of type `T`.
    pub(super) fn paged<T: JsonSchema>(self) -> Self {
        self.query("after", "The `next_after` of the previous page", identifier::<T>()).query(
            "limit",
            "The maximum number of entries",
            limit(),
        )
    }

    pub(super) fn body<T: JsonSchema>(self) -> Self {
        let content = ContentBuilder::new().schema(Some(reference::<T>())).build();
        let body = RequestBodyBuilder::new().content(JSON, content).required(Some(Required::True));
        self.defines::<T>().with(|operation| operation.request_body(Some(body.build())))
    }

    /// The document defines a type, although no body need be one.
    pub(super) fn defines<T: JsonSchema>(mut self) -> Self {
        self.types.push(|docs| drop(docs.subschema_for::<T>()));
        self
    }

    /// The answer to a request that succeeded.
    pub(super) fn ok<T: JsonSchema>(self, about: &str) -> Self {
        self.answer::<T>("200", JSON, about, [])
    }

    /// An answer with a document and with headers.
    pub(super) fn answer<T: JsonSchema>(
        self,
        status: &str,
        media_type: &str,
        about: &str,
        headers: impl IntoIterator<Item = (&'static str, Header)>,
    ) -> Self {
        let content = ContentBuilder::new().schema(Some(reference::<T>())).build();
        let response = ResponseBuilder::new().description(about).content(media_type, content);
        let response =
            headers.into_iter().fold(response, |response, (name, one)| response.header(name, one));
        self.defines::<T>().other(status, response.build())
    }

    /// A refusal.
    pub(super) fn problem(
        self,
        status: &str,
        about: &str,
        headers: impl IntoIterator<Item = (&'static str, Header)>,
    ) -> Self {
        self.answer::<ProblemDocument>(status, PROBLEM_JSON, about, headers)
    }

    /// Server-sent events.
    pub(super) fn events(self, about: &str) -> Self {
        let content = ContentBuilder::new().schema(Some(carried(text()))).build();
        let response = ResponseBuilder::new().description(about);
        self.other("200", response.content("text/event-stream", content).build())
    }

    /// An answer that is no document of a type.
    pub(super) fn other(self, status: &str, response: Response) -> Self {
        self.with(|operation| operation.response(status, response))
    }
}

fn reference<T: JsonSchema>() -> Ref {
    Ref::from_schema_name(T::schema_name())
}

/// The schema of any text.
pub(super) fn text() -> Value {
    json!({ "type": "string" })
}

/// The size of a page.
pub(super) fn limit() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT })
}

pub(super) fn location() -> Header {
    answer_header("Where to get the state of the call", text())
}

pub(super) fn retry_after() -> Header {
    let seconds = json!({ "type": "integer", "minimum": 1 });
    answer_header("How long to wait before a retry, in seconds", seconds)
}

fn answer_header(about: &str, schema: Value) -> Header {
    HeaderBuilder::new().description(Some(about)).schema(Some(carried(schema))).build()
}
