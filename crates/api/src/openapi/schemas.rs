//! The document's schemas, generated from the types.
//!
//! Owns the list of types that are named in it. OpenAPI 3.1 takes JSON Schema 2020-12 as it is, so that nothing is annotated
//! twice; every keyword is carried over, also those that the builder's own types do not know.

use schemars::{
    JsonSchema, Schema as Generated, SchemaGenerator,
    generate::SchemaSettings,
    transform::{RecursiveTransform, ReplaceBoolSchemas},
};
use serde_json::{Map, Value};
use utoipa::openapi::{
    Components, ComponentsBuilder, RefOr, Schema,
    extensions::Extensions,
    schema::{ObjectBuilder, Ref, SchemaType},
};

use placet_approvals::views::{
    ApprovalDetail, ApprovalEvent, ApprovalView, BulkDecisionRequest, BulkDecisionView,
    DecisionRequest, DirectiveAct, DirectiveRequest, DirectiveView, EditRequest, InboxView,
    WithdrawalRequest,
};
use placet_engine::{
    engine::evidence::{AuditKeyView, ConsistencyView, InclusionView, ReceiptView},
    report::ReportView,
    submission::Submission,
    views::{
        CredentialsView, RearmRequest, RecordView, ResolutionRequest,
        decisions::DecisionsPage,
        status::{ReloadRequest, ReloadView, StatusView},
    },
};
use placet_types::envelope::result::ToolResultEnvelope;

use crate::{
    documents::{
        AboutDocument, ApprovalList, CheckpointList, DirectiveList, ErrorDocument,
        ProtectedResourceDocument, RecordList, Timeline, ToolList,
    },
    problem::ProblemDocument,
};

/// A reference to the schema of a type that [`components`] names.
pub(super) fn reference<T: JsonSchema>() -> Ref {
    Ref::from_schema_name(T::schema_name())
}

/// Every schema.
pub(super) fn components() -> Components {
    let mut generator = generator();
    name::<Submission>(&mut generator);
    name::<ToolResultEnvelope>(&mut generator);
    name::<ProblemDocument>(&mut generator);
    name::<ToolList>(&mut generator);
    name::<ApprovalList>(&mut generator);
    name::<ApprovalView>(&mut generator);
    name::<ApprovalDetail>(&mut generator);
    name::<DecisionRequest>(&mut generator);
    name::<StatusView>(&mut generator);
    name::<ReloadRequest>(&mut generator);
    name::<ReloadView>(&mut generator);
    name::<CredentialsView>(&mut generator);
    name::<ReportView>(&mut generator);
    name::<RecordList>(&mut generator);
    name::<RecordView>(&mut generator);
    name::<ResolutionRequest>(&mut generator);
    name::<RearmRequest>(&mut generator);
    name::<ReceiptView>(&mut generator);
    name::<CheckpointList>(&mut generator);
    name::<AuditKeyView>(&mut generator);
    name::<InclusionView>(&mut generator);
    name::<ConsistencyView>(&mut generator);
    name::<AboutDocument>(&mut generator);
    name::<ProtectedResourceDocument>(&mut generator);
    name::<DecisionsPage>(&mut generator);
    name::<ErrorDocument>(&mut generator);
    name_of_the_approval_service(&mut generator);
    let schemas = generator.take_definitions(true);
    schemas
        .into_iter()
        .fold(ComponentsBuilder::new(), |components, (name, schema)| {
            components.schema(name, carried(schema))
        })
        .build()
}

fn name_of_the_approval_service(generator: &mut SchemaGenerator) {
    name::<InboxView>(generator);
    name::<EditRequest>(generator);
    name::<WithdrawalRequest>(generator);
    name::<BulkDecisionRequest>(generator);
    name::<BulkDecisionView>(generator);
    name::<DirectiveList>(generator);
    name::<DirectiveRequest>(generator);
    name::<DirectiveView>(generator);
    name::<DirectiveAct>(generator);
    name::<ApprovalEvent>(generator);
    name::<Timeline>(generator);
}

fn generator() -> SchemaGenerator {
    let mut objects = ReplaceBoolSchemas::default();
    objects.skip_additional_properties = true;
    SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        // JSON Schema 2020-12 knows `true` as a schema; client generators do not.
        .with_transform(objects)
        .with_transform(RecursiveTransform(plain))
        .into_generator()
}

/// What client generators misread, in a plainer form: an enumeration whose names have descriptions becomes one with a list of names, which
/// its description explains. What a list has twice counts once and is not refused, so that nothing is said to be unique.
fn plain(schema: &mut Generated) {
    let Some(members) = schema.as_object_mut() else { return };
    members.remove("uniqueItems");
    let Some(names) = members.get("oneOf").and_then(Value::as_array).and_then(|all| names(all))
    else {
        return;
    };
    let about = members.get("description").and_then(Value::as_str).unwrap_or_default();
    let described = names
        .iter()
        .filter_map(|(name, about)| about.as_ref().map(|about| format!("- `{name}`: {about}")));
    let described = described.collect::<Vec<String>>().join("\n");
    let about = format!("{about}\n\n{described}").trim().to_owned();
    let list = names.into_iter().map(|(name, _)| Value::from(name)).collect::<Vec<Value>>();
    members.remove("oneOf");
    members.insert("type".to_owned(), "string".into());
    members.insert("enum".to_owned(), list.into());
    members.insert("description".to_owned(), about.into());
}

/// The names of an enumeration, each with its description.
fn names(alternatives: &[Value]) -> Option<Vec<(String, Option<String>)>> {
    let mut names = Vec::new();
    for one in alternatives {
        let about = one.get("description").and_then(Value::as_str);
        match (one.get("const"), one.get("enum")) {
            (Some(Value::String(name)), None) => {
                names.push((name.clone(), about.map(str::to_owned)))
            }
            (None, Some(Value::Array(list))) => {
                for name in list {
                    names.push((name.as_str()?.to_owned(), None));
                }
            }
            _ => return None,
        }
    }
    Some(names)
}

/// The schema of an identifier, for a parameter.
pub(super) fn identifier<T: JsonSchema>() -> Value {
    generator().subschema_for::<T>().to_value()
}

fn name<T: JsonSchema>(generator: &mut SchemaGenerator) {
    drop(generator.subschema_for::<T>());
}

/// A schema word by word. The builder's types lose keywords they do not know, so that all of them ride as extensions.
pub(super) fn carried(schema: Value) -> RefOr<Schema> {
    let keywords: Map<String, Value> = match schema {
        Value::Object(keywords) => keywords,
        // `true` takes everything and is written as the empty schema; `false` takes nothing.
        Value::Bool(false) => Map::from_iter([("not".to_owned(), Value::Object(Map::new()))]),
        Value::Bool(true) | Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    };
    let extensions: Extensions = keywords.into_iter().collect();
    RefOr::T(
        ObjectBuilder::new()
            .schema_type(SchemaType::AnyValue)
            .extensions(Some(extensions))
            .build()
            .into(),
    )
}
