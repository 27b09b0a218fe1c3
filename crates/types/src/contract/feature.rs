//! What an MCP server offers besides tools: resources, prompts and completions, each requested by one method of the protocol.
//!
//! Owns the definition of each as a capability: its arguments are the same at every server, so that a pin covers whether a server has it,
//! and nothing that the server says of itself. Invariant: none of them changes anything.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::LiveTool;

/// The longest URI, of a resource or of a template of resources, in bytes.
pub const URI_BYTES_MAX: usize = 2_048;
/// The longest name of a prompt or of an argument of one, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// The longest value of a prompt argument, in bytes.
const VALUE_BYTES_MAX: usize = 65_536;
/// The most arguments of a prompt.
pub const ARGUMENTS_MAX: usize = 64;

/// A feature that an MCP server offers besides tools.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// Resources: `resources/read`.
    Resources,
    /// Prompts: `prompts/get`.
    Prompts,
    /// Completions of arguments: `completion/complete`.
    Completions,
}

/// What a server lists besides tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Listing {
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
    /// `prompts/list`.
    Prompts,
}

impl Listing {
    /// The feature that the items belong to.
    pub const fn feature(self) -> Feature {
        match self {
            Self::Resources | Self::Templates => Feature::Resources,
            Self::Prompts => Feature::Prompts,
        }
    }

    /// The method of the protocol.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }
}

impl Feature {
    /// All features.
    pub const ALL: [Self; 3] = [Self::Resources, Self::Prompts, Self::Completions];

    /// The method of the protocol. A contract names it in the place of a tool.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Resources => "resources/read",
            Self::Prompts => "prompts/get",
            Self::Completions => "completion/complete",
        }
    }

    /// The name of the capability, unless a contract gives it another one.
    pub const fn capability(self) -> &'static str {
        match self {
            Self::Resources => "read_resource",
            Self::Prompts => "get_prompt",
            Self::Completions => "complete",
        }
    }

    /// The feature with this method.
    pub fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.method() == method)
    }

    /// The definition that a contract reviews and pins.
    pub fn definition(self) -> LiveTool {
        let (description, properties, required) = match self {
            Self::Resources => (
                "Reads a resource of the server.",
                json!({ "uri": text(URI_BYTES_MAX) }),
                json!(["uri"]),
            ),
            Self::Prompts => (
                "Gets a prompt of the server, with its arguments filled in.",
                json!({ "name": text(NAME_BYTES_MAX), "arguments": values() }),
                json!(["name"]),
            ),
            Self::Completions => (
                "Proposes values for an argument of a prompt, or of a template of resources, of the server.",
                json!({
                    "prompt": text(NAME_BYTES_MAX),
                    "template": text(URI_BYTES_MAX),
                    "argument": text(NAME_BYTES_MAX),
                    "value": { "type": "string", "maxLength": VALUE_BYTES_MAX },
                    "context": values(),
                }),
                json!(["argument", "value"]),
            ),
        };
        LiveTool {
            name: self.method().to_owned(),
            title: None,
            description: description.to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            }),
            output_schema: None,
            annotations: None,
            task_only: false,
        }
    }
}

fn text(length_max: usize) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": length_max })
}

/// The schema of argument values by name.
fn values() -> Value {
    json!({
        "type": "object",
        "maxProperties": ARGUMENTS_MAX,
        "additionalProperties": { "type": "string", "maxLength": VALUE_BYTES_MAX },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Feature;
    use crate::{argument_schema::ArgumentSchema, ids::CapabilityName};

    #[test]
    fn every_definition_can_be_enforced() {
        for feature in Feature::ALL {
            let definition = feature.definition();
            let schema = ArgumentSchema::compile(&definition.input_schema).unwrap();
            assert!(schema.validate(&json!({ "other": 1 })).is_err(), "{feature:?}");
            assert_eq!(Feature::of_method(&definition.name), Some(feature));
            CapabilityName::new(feature.capability()).unwrap();
        }
    }

    #[test]
    fn no_name_of_a_capability_is_a_method() {
        for feature in Feature::ALL {
            CapabilityName::new(feature.method()).unwrap_err();
        }
    }
}
