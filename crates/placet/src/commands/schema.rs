//! `placet schema`: the published JSON Schemas, generated from the types.
//!
//! Owns the list of names. The schemas are the types' own.

use clap::Args as ClapArgs;
use placet_api::problem::ProblemDocument;
use placet_approvals::views::{ApprovalDetail, DecisionRequest};
use placet_engine::{
    submission::Submission,
    views::{RecordView, ResolutionRequest, ToolView},
};
use placet_types::schemas::{PUBLISHED, PublishedSchema, of};

use crate::{
    config::file::ConfigFile,
    failure::{Exit, Failure, Outcome},
    output,
};

/// The name under which the OpenAPI document is listed with the schemas.
const OPENAPI: &str = "openapi";

/// Print a JSON Schema, or list them.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  placet schema\n  placet schema config > placet.schema.json\n  placet schema openapi"
)]
pub(crate) struct Args {
    /// The name of the schema [default: list all].
    name: Option<String>,
    /// Print the list as JSON for programs.
    #[arg(long)]
    json: bool,
}

/// Schemas of this program and of the listeners, in addition to those of the vocabulary.
const FURTHER: &[PublishedSchema] = &[
    PublishedSchema {
        name: "config",
        about: "the configuration file placet.yaml",
        schema: of::<ConfigFile>,
    },
    PublishedSchema {
        name: "submission",
        about: "the body of POST /v1/calls",
        schema: of::<Submission>,
    },
    PublishedSchema {
        name: "decision",
        about: "the body of POST /v1/approvals/{id}/decisions",
        schema: of::<DecisionRequest>,
    },
    PublishedSchema {
        name: "resolution",
        about: "the body of POST /v1/ledger/{id}/resolution",
        schema: of::<ResolutionRequest>,
    },
    PublishedSchema {
        name: "problem",
        about: "a refusal (RFC 9457)",
        schema: of::<ProblemDocument>,
    },
    PublishedSchema { name: "tool", about: "a tool in GET /v1/tools", schema: of::<ToolView> },
    PublishedSchema {
        name: "approval",
        about: "an approval with its evidence",
        schema: of::<ApprovalDetail>,
    },
    PublishedSchema { name: "record", about: "an effect record", schema: of::<RecordView> },
];

/// Every schema, by name.
pub(crate) fn all() -> impl Iterator<Item = &'static PublishedSchema> {
    PUBLISHED.iter().chain(FURTHER)
}

/// A schema as text.
pub(crate) fn text_of(name: &str) -> Option<String> {
    let published = all().find(|schema| schema.name == name)?;
    let mut document = serde_json::to_value((published.schema)()).ok()?;
    if let Some(members) = document.as_object_mut() {
        members.insert("$id".to_owned(), format!("urn:placet:schema:{name}").into());
    }
    Some(format!("{document:#}\n"))
}

/// Prints a schema, or the list.
pub(crate) fn run(args: &Args) -> Outcome {
    match args.name.as_deref() {
        None if args.json => {
            let names: Vec<_> = all()
                .map(|schema| serde_json::json!({ "name": schema.name, "about": schema.about }))
                .collect();
            output::json(&names);
        }
        None => {
            let rows = all().map(|schema| [schema.name.to_owned(), schema.about.to_owned()]);
            let openapi = [OPENAPI.to_owned(), "the HTTP API (OpenAPI 3.1)".to_owned()];
            output::table(["name", "describes"], rows.chain([openapi]));
        }
        Some(OPENAPI) => output::raw(&placet_api::openapi::openapi_json()),
        Some(name) => {
            let text = text_of(name).ok_or_else(|| {
                let names: Vec<&str> = all().map(|schema| schema.name).chain([OPENAPI]).collect();
                Failure::usage(format!("there is no schema `{name}`"))
                    .try_this(format!("one of {}", names.join(", ")))
            })?;
            output::raw(&text);
        }
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{all, text_of};

    #[test]
    fn every_schema_has_a_name_of_its_own_and_prints_as_a_json_schema() {
        let names: BTreeSet<&str> = all().map(|schema| schema.name).collect();
        assert_eq!(names.len(), all().count());
        for name in names {
            let schema: serde_json::Value = serde_json::from_str(&text_of(name).unwrap()).unwrap();
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{name}");
            assert_eq!(schema["$id"], format!("urn:placet:schema:{name}"));
        }
        assert_eq!(text_of("nonsense"), None);
    }
}
