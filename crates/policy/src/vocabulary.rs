//! The Cedar names of everything, parsed once, and the typed values that go with them.
//!
//! Owns the form of Cedar ids (`tenant/name`) and of times. Does not know what the names mean.

use std::sync::LazyLock;

use cedar_policy::{EntityId, EntityTypeName, EntityUid, ParseErrors, RestrictedExpression};
use cedar_policy_core::ast::{Name, RestrictedExpr};
use placet_types::{
    clock::Timestamp,
    ids::{CapabilityId, GroupId, PrincipalId, TenantId},
    mode::ApprovalMode,
    principal::{Principal, PrincipalKind},
    proof::Proof,
};

use crate::decision::Link;

/// The first and last moments that Cedar's `datetime` can express with a year of four digits.
const DATETIME_MS_MIN: i64 = -62_167_219_200_000;
const DATETIME_MS_MAX: i64 = 253_402_300_799_999;

/// A user that cannot exist: `#` is in no principal's name.
pub(crate) const NOBODY: &str = "#nobody";

#[derive(Debug, Clone)]
pub(crate) struct Vocabulary {
    pub(crate) tenant: EntityTypeName,
    pub(crate) group: EntityTypeName,
    pub(crate) user: EntityTypeName,
    pub(crate) agent: EntityTypeName,
    pub(crate) agent_class: EntityTypeName,
    pub(crate) service: EntityTypeName,
    pub(crate) automation: EntityTypeName,
    pub(crate) environment: EntityTypeName,
    pub(crate) data_class: EntityTypeName,
    pub(crate) adapter: EntityTypeName,
    pub(crate) tool: EntityTypeName,
    pub(crate) approval_mode: EntityTypeName,
    pub(crate) engine_mode: EntityTypeName,
    pub(crate) approval_record: EntityTypeName,
    pub(crate) approval_request: EntityTypeName,
    pub(crate) approval_scope: EntityTypeName,
    pub(crate) credential_kind: EntityTypeName,
    pub(crate) taint: EntityTypeName,
    pub(crate) directive: EntityTypeName,
    pub(crate) auth_type: EntityTypeName,
    pub(crate) lifecycle: EntityTypeName,
    pub(crate) claims: EntityTypeName,
    pub(crate) evidence_kind: EntityTypeName,
    pub(crate) action: EntityTypeName,
}

impl Vocabulary {
    pub(crate) fn new() -> Result<Self, ParseErrors> {
        let name = |short: &str| format!("Placet::{short}").parse::<EntityTypeName>();
        Ok(Self {
            tenant: name("Tenant")?,
            group: name("Group")?,
            user: name("User")?,
            agent: name("Agent")?,
            agent_class: name("AgentClass")?,
            service: name("Service")?,
            automation: name("Automation")?,
            environment: name("Environment")?,
            data_class: name("DataClass")?,
            adapter: name("Adapter")?,
            tool: name("Tool")?,
            approval_mode: name("ApprovalMode")?,
            engine_mode: name("EngineMode")?,
            approval_record: name("ApprovalRecord")?,
            approval_request: name("ApprovalRequest")?,
            approval_scope: name("ApprovalScope")?,
            credential_kind: name("CredentialKind")?,
            taint: name("Taint")?,
            directive: name("Directive")?,
            auth_type: name("AuthType")?,
            lifecycle: name("Lifecycle")?,
            claims: name("Claims")?,
            evidence_kind: name("EvidenceKind")?,
            action: name("Action")?,
        })
    }

    pub(crate) fn tenant_uid(&self, tenant: &TenantId) -> EntityUid {
        uid(&self.tenant, tenant.as_str())
    }

    pub(crate) fn group_uid(&self, tenant: &TenantId, group: &GroupId) -> EntityUid {
        uid(&self.group, &format!("{tenant}/{group}"))
    }

    pub(crate) fn class_uid(&self, tenant: &TenantId, class: &GroupId) -> EntityUid {
        uid(&self.agent_class, &format!("{tenant}/{class}"))
    }

    pub(crate) fn user_uid(&self, tenant: &TenantId, user: &PrincipalId) -> EntityUid {
        uid(&self.user, &format!("{tenant}/{user}"))
    }

    pub(crate) fn nobody(&self, tenant: &TenantId) -> EntityUid {
        uid(&self.user, &format!("{tenant}/{NOBODY}"))
    }

    pub(crate) fn principal_uid(&self, principal: &Principal) -> EntityUid {
        let kind = match principal.kind {
            PrincipalKind::User => &self.user,
            PrincipalKind::Agent => &self.agent,
            PrincipalKind::Service => &self.service,
            PrincipalKind::Automation => &self.automation,
        };
        uid(kind, &format!("{}/{}", principal.tenant_id, principal.id))
    }

    pub(crate) fn tool_uid(&self, capability: &CapabilityId) -> EntityUid {
        uid(&self.tool, &capability.to_string())
    }

    /// The approval that one decision is about.
    pub(crate) fn approval_uid(&self) -> EntityUid {
        uid(&self.approval_record, "this")
    }

    pub(crate) fn action_uid(&self, action: &str) -> EntityUid {
        uid(&self.action, action)
    }

    pub(crate) fn auth_type(&self, proof: &Proof) -> EntityUid {
        uid(&self.auth_type, proof.auth_type.as_str())
    }

    /// The claims of the party that is `link` in the call.
    pub(crate) fn claims_uid(&self, link: Link) -> EntityUid {
        let party = match link {
            Link::Actor => "caller",
            Link::User => "user",
        };
        uid(&self.claims, party)
    }

    pub(crate) fn mode(&self, mode: ApprovalMode) -> EntityUid {
        uid(&self.approval_mode, mode.as_str())
    }
}

pub(crate) fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

/// The action by which a tool's mode is lowered.
pub(crate) fn lower_action(capability: &CapabilityId) -> String {
    format!("{capability}#lower")
}

pub(crate) fn text(value: impl Into<String>) -> RestrictedExpression {
    RestrictedExpression::new_string(value.into())
}

pub(crate) fn flag(value: bool) -> RestrictedExpression {
    RestrictedExpression::new_bool(value)
}

pub(crate) fn long(value: impl Into<i64>) -> RestrictedExpression {
    RestrictedExpression::new_long(value.into())
}

/// A count that policies calculate with: capped far below the end of `Long`, so that adding or multiplying a little in a
/// policy does not overflow and deny everything.
pub(crate) fn count(value: u64) -> RestrictedExpression {
    long(capped(value))
}

/// The number of a count.
pub(crate) fn capped(value: u64) -> i64 {
    const COUNT_MAX: i64 = 9_007_199_254_740_991;
    i64::try_from(value).unwrap_or(COUNT_MAX).min(COUNT_MAX)
}

/// The constructors of extension values. Cedar's own interface parses their names at every value.
static DATETIME: LazyLock<Option<Name>> = LazyLock::new(|| constructor("datetime"));
static DURATION: LazyLock<Option<Name>> = LazyLock::new(|| constructor("duration"));
static DECIMAL: LazyLock<Option<Name>> = LazyLock::new(|| constructor("decimal"));

fn constructor(name: &str) -> Option<Name> {
    Some(Name::unqualified_name(name.parse().ok()?))
}

/// A value that its constructor makes from a text. Without the constructor it stays a text, which fits no policy.
fn call(constructor: &LazyLock<Option<Name>>, value: String) -> RestrictedExpr {
    let value = RestrictedExpr::val(value);
    match LazyLock::force(constructor) {
        Some(name) => RestrictedExpr::call_extension_fn(name.clone(), [value]),
        None => value,
    }
}

/// A fixed-point number in Cedar's notation.
pub(crate) fn decimal_expr(value: String) -> RestrictedExpr {
    call(&DECIMAL, value)
}

pub(crate) fn datetime(at: Timestamp) -> RestrictedExpression {
    datetime_expr(at).into()
}

/// The same, for evaluation.
pub(crate) fn datetime_expr(at: Timestamp) -> RestrictedExpr {
    let within = Timestamp::from_ms(at.as_ms().clamp(DATETIME_MS_MIN, DATETIME_MS_MAX));
    call(&DATETIME, within.to_string())
}

/// A length of time, capped at the range of Cedar's `duration`.
pub(crate) fn duration(ms: u64) -> RestrictedExpression {
    call(&DURATION, format!("{}ms", i64::try_from(ms).unwrap_or(i64::MAX))).into()
}

pub(crate) fn uids(values: impl IntoIterator<Item = EntityUid>) -> RestrictedExpression {
    RestrictedExpression::new_set(values.into_iter().map(RestrictedExpression::new_entity_uid))
}
