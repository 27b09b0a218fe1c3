//! The document's schemas, generated from the types.
//!
//! Owns the list of types that are named in it. OpenAPI 3.1 takes JSON Schema 2020-12 as it is, so that nothing is annotated
//! twice; every keyword is carried over, also those that the builder's own types do not know.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value};
use utoipa::openapi::{
    Components, ComponentsBuilder, RefOr, Schema,
    extensions::Extensions,
    schema::{ObjectBuilder, Ref, SchemaType},
};

use placet_pipeline::{
    engine::evidence::{AuditKeyView, ConsistencyView, InclusionView, ReceiptView},
    report::ReportView,
    submission::Submission,
    views::{
        ApprovalDetail, ApprovalView, CredentialsView, DecisionRequest, RearmRequest, RecordView,
        ResolutionRequest, WithdrawalRequest,
        decisions::DecisionsPage,
        desk::{
            DeskAct, DeskEntryView, DeskEvent, DeskRequest, EditRequest, InboxView,
            TogetherRequest, TogetherView,
        },
        status::{ReloadRequest, ReloadView, StatusView},
    },
};
use placet_types::envelope::result::ToolResultEnvelope;

use crate::{
    documents::{
        AboutDocument, ApprovalList, CheckpointList, DeskList, ErrorDocument,
        ProtectedResourceDocument, RecordList, ToolList, Trail,
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
    name_of_the_desk(&mut generator);
    let schemas = generator.take_definitions(true);
    schemas
        .into_iter()
        .fold(ComponentsBuilder::new(), |components, (name, schema)| {
            components.schema(name, carried(schema))
        })
        .build()
}

fn name_of_the_desk(generator: &mut SchemaGenerator) {
    name::<InboxView>(generator);
    name::<EditRequest>(generator);
    name::<WithdrawalRequest>(generator);
    name::<TogetherRequest>(generator);
    name::<TogetherView>(generator);
    name::<DeskList>(generator);
    name::<DeskRequest>(generator);
    name::<DeskEntryView>(generator);
    name::<DeskAct>(generator);
    name::<DeskEvent>(generator);
    name::<Trail>(generator);
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator()
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
