//! What the world's one tenant, adapter and bundle are.

use std::collections::{BTreeMap, BTreeSet};

use placet_types::{
    contract::Contract,
    digest::Digest,
    directory::{AgentEntry, Directory, TenantDirectory, UserEntry},
    ids::PrincipalId,
};
use serde_json::json;

use super::chain;

/// Everything is permitted; what reaches the network waits for somebody's agreement.
pub(super) const POLICIES: &str = r#"
@id("everything")
permit (
  principal,
  action in [
    Placet::Action::"tier_read_only", Placet::Action::"tier_local_write",
    Placet::Action::"tier_network", Placet::Action::"tier_destructive"
  ],
  resource
);

@id("gate")
@approval("custom")
@approver_group("leads")
@quorum("1")
@expires("1h")
@reason("somebody looks at it")
forbid (principal, action in Placet::Action::"call_tool", resource is Placet::Tool)
when { context.req.mode_effective == Placet::ApprovalMode::"network" }
unless
{
  context.req has approval &&
  !context.req.approval.denied &&
  context.req.approval.request_digest == context.req.evidence.request_digest &&
  context.req.now < context.req.approval.expires_at &&
  context.req.approval.total >= 1
};
"#;

pub(super) fn directory() -> Directory {
    let ann = PrincipalId::new("ann").unwrap();
    let user = UserEntry { active: true, ..UserEntry::default() };
    let eve = PrincipalId::new("eve").unwrap();
    let agent =
        AgentEntry { owner: ann.clone(), classes: BTreeSet::new(), active: true, display: None };
    let tenant = TenantDirectory {
        users: BTreeMap::from([(ann, user.clone()), (eve, user)]),
        agents: BTreeMap::from([(chain().actor.id, agent)]),
        ..TenantDirectory::default()
    };
    Directory { tenants: BTreeMap::from([(chain().actor.tenant_id, tenant)]) }
}

pub(super) fn contract() -> Contract {
    let schema = json!({
        "type": "object", "properties": { "note": { "type": "string" } },
        "required": ["note"], "additionalProperties": false,
    });
    let pin = Digest::of(b"reviewed");
    let file = json!({
        "contract_version": "placet.contract.v1",
        "adapter": "notes",
        "environment": "dev",
        "tenants": ["acme"],
        "transport": { "type": "internal", "builtin": "files", "root": "notes" },
        "protocol_version": "files/1",
        "limits": { "calls_per_minute_max": 60 },
        "capabilities": {
            "pay": { "input_schema": schema, "mode": "network", "effect": "write", "dedup": { "class": "opaque" }, "pin": pin },
            "look": { "input_schema": schema, "mode": "read_only", "effect": "none", "pin": pin },
            "erase": { "input_schema": schema, "mode": "destructive", "effect": "write", "dedup": { "class": "opaque" }, "pin": pin },
            "push": {
                "input_schema": schema, "mode": "local_write", "effect": "write", "pin": pin,
                "dedup": { "class": "keyed", "window_ms": 10_000 },
            },
        },
    });
    Contract::from_file(serde_json::from_value(file).unwrap()).unwrap()
}
