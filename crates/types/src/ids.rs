//! Identifiers as types, so that a tenant is never passed where a run is meant and none of them is ever empty.
//!
//! Owns their character sets and lengths. Does not make random ones: see [`crate::clock::IdSource`].

use std::{borrow::Cow, fmt, str::FromStr, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::digest::Digest;

/// Why a text is not an identifier of the kind asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} must be 1 to {length_max} characters of {allowed}{broken}")]
pub struct IdError {
    kind: &'static str,
    length_max: usize,
    allowed: &'static str,
    broken: Broken,
}

/// Which part of its rule a text breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Form,
    Empty,
    Long(usize),
    Beginning(char),
    Character(char),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => Ok(()),
            Self::Empty => f.write_str("; it is empty"),
            Self::Long(length) => write!(f, "; it has {length}"),
            Self::Beginning(c) => write!(f, "; it may not begin with `{}`", c.escape_debug()),
            Self::Character(c) => write!(f, "; it has `{}`", c.escape_debug()),
        }
    }
}

/// The rule an identifier's text keeps to.
struct IdRule {
    kind: &'static str,
    length_max: usize,
    allowed: &'static str,
    first: fn(char) -> bool,
    rest: fn(char) -> bool,
}

impl IdRule {
    fn check(&self, text: &str) -> Result<(), IdError> {
        let mut chars = text.chars();
        let broken = match chars.next() {
            None => Broken::Empty,
            Some(c) if !(self.first)(c) && (self.rest)(c) => Broken::Beginning(c),
            Some(c) if !(self.first)(c) => Broken::Character(c),
            Some(_) => match chars.find(|c| !(self.rest)(*c)) {
                Some(c) => Broken::Character(c),
                None if text.len() > self.length_max => Broken::Long(text.len()),
                None => return Ok(()),
            },
        };
        let Self { kind, length_max, allowed, .. } = *self;
        Err(IdError { kind, length_max, allowed, broken })
    }
}

fn alphanumeric(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

fn plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

fn wide(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '@' | '/' | '+' | '|' | '=')
}

fn visible(c: char) -> bool {
    c.is_ascii_graphic()
}

fn lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn lower_dash(c: char) -> bool {
    lower(c) || c == '-'
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $max:literal, $allowed:literal, $pattern:literal, $first:path, $rest:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "minLength": 1, "maxLength": $max, "pattern": $pattern })
            }
        }

        impl $name {
            const RULE: IdRule =
                IdRule { kind: $kind, length_max: $max, allowed: $allowed, first: $first, rest: $rest };

            /// Checks `text` against the rule of this identifier.
            ///
            /// # Errors
            /// [`IdError`] when it is empty, too long or has a character outside the allowed set.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                Self::RULE.check(&text)?;
                Ok(Self(text.into()))
            }

            /// The identifier as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.as_str().to_owned()
            }
        }
    };
}

text_id!(
    /// A customer or unit whose calls, records and policies are kept apart from every other's.
    TenantId, "tenant", 64, "letters, digits, `.`, `_` and `-`", "^[A-Za-z0-9][A-Za-z0-9._-]*$", alphanumeric, plain
);
text_id!(
    /// The name of a principal within its tenant: an agent, a user, a service or an automation.
    PrincipalId, "principal", 128, "letters, digits and `._-:@/+|=`", "^[A-Za-z0-9][A-Za-z0-9._:@/+|=-]*$", alphanumeric, wide
);
text_id!(
    /// The name of a group of people, or of a class of agents, within its tenant.
    GroupId, "group", 64, "letters, digits, `.`, `_` and `-`", "^[A-Za-z0-9][A-Za-z0-9._-]*$", alphanumeric, plain
);
text_id!(
    /// The name of an adapter; it has no underscore so that `adapter__capability` can be split.
    AdapterName, "adapter name", 32, "lower-case letters, digits and `-`", "^[a-z0-9][a-z0-9-]*$", lower, lower_dash
);
text_id!(
    /// The name of one operation of an adapter, as the external system calls it.
    CapabilityName, "capability name", 128, "letters, digits, `.`, `_` and `-`", "^[A-Za-z0-9][A-Za-z0-9._-]*$", alphanumeric, plain
);
text_id!(
    /// The environment a process serves, such as `dev`; contracts live in a folder of that name.
    EnvironmentName, "environment", 32, "lower-case letters, digits and `-`", "^[a-z0-9][a-z0-9-]*$", lower, lower_dash
);
text_id!(
    /// One call on its way through the pipeline; made by the engine.
    ToolCallId, "tool_call_id", 64, "letters, digits, `.`, `_` and `-`", "^[A-Za-z0-9][A-Za-z0-9._-]*$", alphanumeric, plain
);
text_id!(
    /// One agent run; supplied by the caller and stable over retries.
    RunId, "run_id", 128, "letters, digits and `._-:@/+|=`", "^[A-Za-z0-9][A-Za-z0-9._:@/+|=-]*$", alphanumeric, wide
);
text_id!(
    /// A conversation a run belongs to; supplied by the caller.
    SessionId, "session_id", 128, "letters, digits and `._-:@/+|=`", "^[A-Za-z0-9][A-Za-z0-9._:@/+|=-]*$", alphanumeric, wide
);
text_id!(
    /// One step of a plan; supplied by the caller and stable over retries.
    StepId, "step_id", 128, "letters, digits and `._-:@/+|=`", "^[A-Za-z0-9][A-Za-z0-9._:@/+|=-]*$", alphanumeric, wide
);
text_id!(
    /// One request of a planner; supplied by the caller and stable over retries.
    RequestId, "request_id", 128, "letters, digits and `._-:@/+|=`", "^[A-Za-z0-9][A-Za-z0-9._:@/+|=-]*$", alphanumeric, wide
);
text_id!(
    /// A key under which an effect happens at most once (TM-12).
    IdempotencyKey, "idempotency_key", 256, "visible ASCII characters", "^[!-~]+$", visible, visible
);
text_id!(
    /// One policy decision; made by the engine, the same in envelope, span and audit.
    DecisionId, "policy_decision_id", 64, "letters, digits, `.`, `_` and `-`", "^[A-Za-z0-9][A-Za-z0-9._-]*$", alphanumeric, plain
);
text_id!(
    /// One approval request; made by the engine.
    ApprovalId, "approval_id", 64, "letters, digits, `.`, `_` and `-`", "^[A-Za-z0-9][A-Za-z0-9._-]*$", alphanumeric, plain
);
text_id!(
    /// One entry of the approval service: a standing grant, a break-glass record, a freeze or a delegation; made by the engine.
    DirectiveId, "directive_id", 64, "letters, digits, `.`, `_` and `-`", "^[A-Za-z0-9][A-Za-z0-9._-]*$", alphanumeric, plain
);
text_id!(
    /// A channel over which people and callers are told of things, as the configuration names it.
    ChannelName, "channel", 32, "lower-case letters, digits and `-`", "^[a-z0-9][a-z0-9-]*$", lower, lower_dash
);

/// An operation of an adapter, `adapter/capability`: also the Cedar action's id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct CapabilityId {
    adapter: AdapterName,
    capability: CapabilityName,
}

impl Serialize for CapabilityId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The longest wire name of a tool that planners accept.
pub const TOOL_NAME_LENGTH_MAX: usize = 64;

/// What the names of runs begin with that the engine keeps for itself; a caller's run may not.
const RESERVED: &str = "placet/";

impl RunId {
    /// Whether the engine keeps it for itself.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.as_str().starts_with(RESERVED)
    }

    /// Under which name a session is kept among the runs.
    #[must_use]
    pub fn of_session(session: &SessionId) -> Self {
        // A digest, since a session's name may be as long as a run's.
        let digest = Digest::of(session.as_str().as_bytes());
        Self(format!("{RESERVED}session/{digest}").into())
    }

    /// Under which name a meter with this window is kept among the runs: of one capability, or of all.
    #[must_use]
    pub fn of_meter(window: &str, capability: Option<&CapabilityId>) -> Self {
        let name = match capability {
            None => format!("{RESERVED}meter/{window}/agent"),
            Some(capability) => format!("{RESERVED}meter/{window}/{capability}"),
        };
        Self(name.into())
    }
}

impl PrincipalId {
    /// Whose the meters are that count the calls of a whole tenant. They are told from those of an agent by their [`RunId`].
    #[must_use]
    pub fn of_meters() -> Self {
        Self("placet".into())
    }
}

impl CapabilityId {
    /// Joins an adapter and one of its operations.
    ///
    /// # Errors
    /// [`IdError`] when the wire name `adapter__capability` would be longer than [`TOOL_NAME_LENGTH_MAX`].
    pub fn new(adapter: AdapterName, capability: CapabilityName) -> Result<Self, IdError> {
        let id = Self { adapter, capability };
        let length = id.tool_name().len();
        if length > TOOL_NAME_LENGTH_MAX {
            return Err(IdError {
                kind: "tool name `adapter__capability`",
                length_max: TOOL_NAME_LENGTH_MAX,
                allowed: "letters, digits, `.`, `_` and `-`",
                broken: Broken::Long(length),
            });
        }
        Ok(id)
    }

    /// The adapter's part.
    #[must_use]
    pub fn adapter(&self) -> &AdapterName {
        &self.adapter
    }

    /// The operation's part.
    #[must_use]
    pub fn capability(&self) -> &CapabilityName {
        &self.capability
    }

    /// The name a planner sees: `adapter__capability`.
    #[must_use]
    pub fn tool_name(&self) -> String {
        format!("{}__{}", self.adapter, self.capability)
    }

    /// Reads a wire name `adapter__capability`.
    ///
    /// # Errors
    /// [`IdError`] when it has no `__` or a part breaks its own rule.
    pub fn from_tool_name(tool: &str) -> Result<Self, IdError> {
        let (adapter, capability) = tool.split_once("__").ok_or(NOT_A_TOOL)?;
        Self::new(AdapterName::new(adapter)?, CapabilityName::new(capability)?)
    }
}

const NOT_A_TOOL: IdError = IdError {
    kind: "tool",
    length_max: TOOL_NAME_LENGTH_MAX,
    allowed: "the form `adapter__capability`",
    broken: Broken::Form,
};

impl fmt::Display for CapabilityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.adapter, self.capability)
    }
}

impl FromStr for CapabilityId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let (adapter, capability) = text.split_once('/').ok_or(IdError {
            kind: "capability_id",
            length_max: TOOL_NAME_LENGTH_MAX,
            allowed: "the form `adapter/capability`",
            broken: Broken::Form,
        })?;
        Self::new(AdapterName::new(adapter)?, CapabilityName::new(capability)?)
    }
}

impl TryFrom<String> for CapabilityId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<CapabilityId> for String {
    fn from(id: CapabilityId) -> Self {
        id.to_string()
    }
}

/// The identity of an effect record: who may ever see it, and under which key.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct RecordId(pub(crate) Digest);

impl RecordId {
    /// The record id as the digest it is.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.0
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for RecordId {
    type Err = <Digest as FromStr>::Err;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}
