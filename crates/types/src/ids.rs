//! Identifiers as types, so that a tenant is never passed where a run is meant and none of them is ever empty.
//!
//! Owns their character sets and lengths. Does not make random ones: see [`crate::clock::IdSource`].

use std::{borrow::Cow, fmt, str::FromStr, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::{clock::Timestamp, digest::Digest};

/// Why a text is not an identifier of the requested kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct IdError(String);

/// The rule for an identifier's text.
struct IdRule {
    length_max: usize,
    allowed: &'static str,
    /// The same as a regular expression.
    pattern: &'static str,
    first: fn(char) -> bool,
    rest: fn(char) -> bool,
}

/// For names chosen by the engine and operators.
const PLAIN: IdRule = IdRule {
    length_max: 64,
    allowed: "letters, digits, `.`, `_` and `-`",
    pattern: "^[A-Za-z0-9][A-Za-z0-9._-]*$",
    first: |c| c.is_ascii_alphanumeric(),
    rest: |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'),
};
const LONG: IdRule = IdRule { length_max: 128, ..PLAIN };
/// For names chosen by callers and issuers.
const WIDE: IdRule = IdRule {
    length_max: 128,
    allowed: "letters, digits and `._-:@/+|=`",
    pattern: "^[A-Za-z0-9][A-Za-z0-9._:@/+|=-]*$",
    rest: |c| c.is_ascii_alphanumeric() || "._-:@/+|=".contains(c),
    ..PLAIN
};
/// For names that become part of paths and tool names.
const LOWER: IdRule = IdRule {
    length_max: 32,
    allowed: "lower-case letters, digits and `-`",
    pattern: "^[a-z0-9][a-z0-9-]*$",
    first: |c| c.is_ascii_lowercase() || c.is_ascii_digit(),
    rest: |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-',
};
const VISIBLE: IdRule = IdRule {
    length_max: 256,
    allowed: "visible ASCII characters",
    pattern: "^[!-~]+$",
    first: |c| c.is_ascii_graphic(),
    rest: |c| c.is_ascii_graphic(),
};

impl IdRule {
    fn check(&self, kind: &str, text: &str) -> Result<(), IdError> {
        let Self { length_max, allowed, .. } = self;
        let mut chars = text.chars();
        let broken = match (chars.next(), chars.find(|c| !(self.rest)(*c))) {
            (None, _) => "it is empty".to_owned(),
            (Some(c), _) if !(self.first)(c) => {
                format!("it may not begin with `{}`", c.escape_debug())
            }
            (_, Some(c)) => format!("it has `{}`", c.escape_debug()),
            _ if text.len() > *length_max => format!("it has {}", text.len()),
            _ => return Ok(()),
        };
        Err(IdError(format!("{kind} must be 1 to {length_max} characters of {allowed}; {broken}")))
    }
}

macro_rules! text_ids {
    ($($(#[$doc:meta])* $name:ident, $kind:literal, $rule:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let IdRule { length_max, pattern, .. } = $rule;
                json_schema!({ "type": "string", "minLength": 1, "maxLength": length_max, "pattern": pattern })
            }
        }

        impl $name {
            /// Checks `text` against the rule of this identifier.
            ///
            /// # Errors
            /// [`IdError`] when it is empty, too long or has a character outside the allowed set.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                $rule.check($kind, &text)?;
                Ok(Self(text.into()))
            }

            /// The identifier as text.
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
    )*};
}

text_ids! {
    /// A customer or unit whose calls, records and policies are kept apart from every other's.
    TenantId, "tenant", PLAIN;
    /// The name of a principal within its tenant: an agent, a user, a service or an automation.
    PrincipalId, "principal", WIDE;
    /// The name of a group of people, or of a class of agents, within its tenant.
    GroupId, "group", PLAIN;
    /// The name of an adapter; it has no underscore so that `adapter__capability` can be split.
    AdapterName, "adapter name", LOWER;
    /// The name of one operation of an adapter, as the external system calls it.
    CapabilityName, "capability name", LONG;
    /// The environment a process serves, such as `dev`; contracts live in a folder of that name.
    EnvironmentName, "environment", LOWER;
    /// One call on its way through the pipeline; made by the engine.
    ToolCallId, "tool_call_id", PLAIN;
    /// One agent run; supplied by the caller and stable over retries.
    RunId, "run_id", WIDE;
    /// A conversation a run belongs to; supplied by the caller.
    SessionId, "session_id", WIDE;
    /// One step of a plan; supplied by the caller and stable over retries.
    StepId, "step_id", WIDE;
    /// One request of a planner; supplied by the caller and stable over retries.
    RequestId, "request_id", WIDE;
    /// A key under which an effect happens at most once (TM-12).
    IdempotencyKey, "idempotency_key", VISIBLE;
    /// One policy decision; made by the engine, the same in envelope, span and audit.
    DecisionId, "policy_decision_id", PLAIN;
    /// One approval request; made by the engine.
    ApprovalId, "approval_id", PLAIN;
    /// One entry of the approval service: a standing grant, a break-glass record, a freeze, a delegation or a revocation; made by
    /// the engine.
    DirectiveId, "directive_id", PLAIN;
    /// A channel over which people and callers are told of things, as the configuration names it.
    ChannelName, "channel", LOWER;
}

/// The id of a capability, as `adapter/capability`. Also the id of its Cedar action.
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
const TOOL_NAME_LENGTH_MAX: usize = 64;

/// The prefix of run names that the engine reserves for itself; a caller's run may not have it.
const RESERVED: &str = "placet/";

impl RunId {
    /// Whether the name is reserved for the engine.
    pub fn is_reserved(&self) -> bool {
        self.as_str().starts_with(RESERVED)
    }

    /// Under which name a session is kept among the runs.
    pub fn of_session(session: &SessionId) -> Self {
        // A digest, since a session's name may be as long as a run's.
        let digest = Digest::of(session.as_str().as_bytes());
        Self(format!("{RESERVED}session/{digest}").into())
    }

    /// Under which name a meter with this window is kept among the runs: of one capability, or of all.
    pub fn of_meter(window: &str, capability: Option<&CapabilityId>) -> Self {
        let name = match capability {
            None => format!("{RESERVED}meter/{window}/agent"),
            Some(capability) => format!("{RESERVED}meter/{window}/{capability}"),
        };
        Self(name.into())
    }
}

impl PrincipalId {
    /// The owner of the meters that count the calls of a whole tenant. They differ from those of an agent by their [`RunId`].
    pub fn of_meters() -> Self {
        Self("placet".into())
    }
}

impl CapabilityId {
    /// Joins an adapter and one of its operations.
    ///
    /// # Errors
    /// [`IdError`] when the wire name `adapter__capability` would be longer than planners accept.
    pub fn new(adapter: AdapterName, capability: CapabilityName) -> Result<Self, IdError> {
        let id = Self { adapter, capability };
        let length = id.tool_name().len();
        if length > TOOL_NAME_LENGTH_MAX {
            return Err(IdError(format!(
                "tool name `adapter__capability` must be 1 to {TOOL_NAME_LENGTH_MAX} characters; it has {length}"
            )));
        }
        Ok(id)
    }

    /// The adapter's part.
    pub fn adapter(&self) -> &AdapterName {
        &self.adapter
    }

    /// The operation's part.
    pub fn capability(&self) -> &CapabilityName {
        &self.capability
    }

    /// The name a planner sees: `adapter__capability`.
    pub fn tool_name(&self) -> String {
        format!("{}__{}", self.adapter, self.capability)
    }

    /// Reads a wire name `adapter__capability`.
    ///
    /// # Errors
    /// [`IdError`] when it has no `__` or a part breaks its own rule.
    pub fn from_tool_name(tool: &str) -> Result<Self, IdError> {
        Self::split(tool, "__", "tool must have the form `adapter__capability`")
    }

    fn split(text: &str, between: &str, problem: &str) -> Result<Self, IdError> {
        let (adapter, capability) =
            text.split_once(between).ok_or_else(|| IdError(problem.to_owned()))?;
        Self::new(AdapterName::new(adapter)?, CapabilityName::new(capability)?)
    }
}

impl fmt::Display for CapabilityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.adapter, self.capability)
    }
}

impl FromStr for CapabilityId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::split(text, "/", "capability_id must have the form `adapter/capability`")
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

/// The id of an effect record. Derived from the tenant, the caller, its user, the capability and the idempotency key.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct RecordId(pub(crate) Digest);

impl RecordId {
    /// The record id as the digest it is.
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

/// The place of an effect record in a list of them: by the time of its last move, the oldest first, then by its id. A record that moves
/// on while the list is read comes later, so that none is left out. As text, the time in milliseconds, a dot, and the id.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = "^-?[0-9]{1,19}\\.sha256:[0-9a-f]{64}$"))]
pub struct RecordPlace {
    /// When the record last moved.
    pub updated_at: Timestamp,
    /// The record.
    pub record_id: RecordId,
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.updated_at.as_ms(), self.record_id)
    }
}

impl FromStr for RecordPlace {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let place = text.split_once('.').and_then(|(ms, record_id)| {
            let updated_at = Timestamp::from_ms(ms.parse().ok()?);
            Some(Self { updated_at, record_id: record_id.parse().ok()? })
        });
        place.ok_or_else(|| IdError("not a place in a list of records".to_owned()))
    }
}

impl TryFrom<String> for RecordPlace {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<RecordPlace> for String {
    fn from(place: RecordPlace) -> Self {
        place.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{RecordId, RecordPlace};
    use crate::{clock::Timestamp, digest::Digest};

    #[test]
    fn a_place_is_read_as_it_was_written_and_what_is_malformed_is_none() {
        let place =
            |ms, of| RecordPlace { updated_at: Timestamp::from_ms(ms), record_id: RecordId(of) };
        let (low, high) = (Digest::of(b"low"), Digest::of(b"high"));
        let (low, high) = (low.min(high), low.max(high));
        let (first, then, last) = (place(-1, high), place(7, low), place(7, high));
        assert!(first < then && then < last, "by time, then by id");
        for place in [first, then, last] {
            let text = serde_json::to_string(&place).unwrap();
            assert_eq!(serde_json::from_str::<RecordPlace>(&text).unwrap(), place);
        }
        let id = low.to_string();
        let long = format!("9223372036854775808.{id}");
        for text in ["", "7", "7.", &id, &format!("7:{id}"), &format!(".{id}"), &long] {
            assert!(text.parse::<RecordPlace>().is_err(), "{text}");
        }
    }
}
