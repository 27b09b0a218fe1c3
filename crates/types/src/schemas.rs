//! The published JSON Schemas, by name: what `placet schema NAME` prints.
//!
//! Owns the list. Generated from the types themselves, so that a schema cannot differ from the code.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};

use crate::{
    contract::file::ContractFile,
    directory::Directory,
    envelope::{
        call::ToolCallEnvelope, proposal::ToolProposalEnvelope, result::ToolResultEnvelope,
    },
    run_context::RunContext,
};

/// A published schema: its name and how to make it.
#[derive(Debug, Clone, Copy)]
pub struct PublishedSchema {
    /// What `placet schema NAME` takes.
    pub name: &'static str,
    /// What it describes, in a line.
    pub about: &'static str,
    /// Makes it.
    pub schema: fn() -> Schema,
}

/// Every schema this crate publishes.
pub const PUBLISHED: &[PublishedSchema] = &[
    PublishedSchema {
        name: "tool-call",
        about: "a call envelope (TM-02)",
        schema: of::<ToolCallEnvelope>,
    },
    PublishedSchema {
        name: "tool-result",
        about: "a result envelope (TM-03)",
        schema: of::<ToolResultEnvelope>,
    },
    PublishedSchema {
        name: "tool-proposal",
        about: "a held call (TM-09)",
        schema: of::<ToolProposalEnvelope>,
    },
    PublishedSchema {
        name: "run-context",
        about: "a Run Context (TM-04)",
        schema: of::<RunContext>,
    },
    PublishedSchema { name: "contract", about: "a contract file", schema: of::<ContractFile> },
    PublishedSchema { name: "directory", about: "the directory file", schema: of::<Directory> },
];

/// The JSON Schema (draft 2020-12) of a type.
pub fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>()
}
