//! The directory: agents with their owners and classes, people with their groups.
//!
//! Owns the file form of `directory.yaml` and look-ups in it. Does not read the file. Invariant: an agent whose owner is
//! unknown or a person in an undeclared group is an error when the file is read, never a silent miss later.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{GroupId, PrincipalId, TenantId};

/// The file `directory.yaml`: the people, agents and groups of each tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// The tenants, by id.
    #[serde(default)]
    pub tenants: BTreeMap<TenantId, TenantDirectory>,
}

/// The directory of one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantDirectory {
    /// The groups of people that can be asked for approvals.
    #[serde(default)]
    pub groups: BTreeMap<GroupId, GroupEntry>,
    /// The people of the tenant, by id.
    #[serde(default)]
    pub users: BTreeMap<PrincipalId, UserEntry>,
    /// The agents, services and automations of the tenant, by id.
    #[serde(default)]
    pub agents: BTreeMap<PrincipalId, AgentEntry>,
    /// The agent classes with their limits. A run can never exceed them.
    #[serde(default)]
    pub classes: BTreeMap<GroupId, ClassEntry>,
}

/// A group of people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupEntry {
    /// What the group is for.
    #[serde(default)]
    pub description: String,
}

/// A person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserEntry {
    /// A display name.
    #[serde(default)]
    pub display: Option<String>,
    /// The groups of this tenant that the person is in, in addition to those in the token's claims.
    #[serde(default)]
    pub groups: BTreeSet<GroupId>,
    /// Whether the person may act at all. Default: true.
    #[serde(default = "yes")]
    pub active: bool,
}

/// An agent, a service or an automation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentEntry {
    /// The person who is responsible for the agent, and therefore may not approve its calls.
    pub owner: PrincipalId,
    /// The classes of the agent. Policies and limits refer to classes.
    #[serde(default)]
    pub classes: BTreeSet<GroupId>,
    /// Whether the agent may act at all. Default: true.
    #[serde(default = "yes")]
    pub active: bool,
    /// A display name.
    #[serde(default)]
    pub display: Option<String>,
}

/// The default limit of calls per minute: for one capability by all agents of a tenant, and for one agent (TM-18).
pub const CALLS_PER_MINUTE_MAX: u32 = 600;

/// The time window of a class's budget, over all runs of an agent.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum BudgetWindow {
    /// From one full hour to the next, in UTC.
    #[default]
    Hour,
    /// From one midnight to the next, in UTC.
    Day,
}

/// The limits of an agent class: for every run, and for each agent within a time window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassEntry {
    /// The strongest safety mode that a run may have; absent: this class sets no limit.
    #[serde(default)]
    pub safety_mode_max: Option<crate::mode::ApprovalMode>,
    /// The maximum number of calls of a run, and of each agent of the class within `budget_window`, over all its runs; absent: this class
    /// sets no limit.
    #[serde(default)]
    pub calls_max: Option<u32>,
    /// The maximum cost of a run, and of each agent of the class within `budget_window`, over all its runs, in cents; absent: this class
    /// sets no limit.
    #[serde(default)]
    pub cost_cents_max: Option<u64>,
    /// The time window of `calls_max` and `cost_cents_max` over all runs of an agent. Default: `hour`.
    #[serde(default)]
    pub budget_window: BudgetWindow,
    /// The maximum number of calls per minute of each agent of the class, over all its runs (TM-18); absent: 600.
    #[serde(default)]
    pub calls_per_minute_max: Option<NonZeroU32>,
}

const fn yes() -> bool {
    true
}

/// What is wrong with a directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{member}` of tenant `{tenant}` {problem}")]
pub struct DirectoryError {
    tenant: TenantId,
    member: PrincipalId,
    problem: String,
}

impl Directory {
    /// Checks that every name used is declared.
    ///
    /// # Errors
    /// [`DirectoryError`] for the first name that is not.
    pub fn check(&self) -> Result<(), DirectoryError> {
        self.tenants.iter().try_for_each(|(tenant, entry)| entry.check(tenant))
    }

    /// The person `id` of `tenant`, if declared.
    pub fn user(&self, tenant: &TenantId, id: &PrincipalId) -> Option<&UserEntry> {
        self.tenants.get(tenant)?.users.get(id)
    }

    /// The agent `id` of `tenant`, if declared.
    pub fn agent(&self, tenant: &TenantId, id: &PrincipalId) -> Option<&AgentEntry> {
        self.tenants.get(tenant)?.agents.get(id)
    }

    /// Whether the agent `id` of `tenant` may act: `active`, `suspended`, or `unlisted`.
    pub fn lifecycle(&self, tenant: &TenantId, id: &PrincipalId) -> &'static str {
        let known = |entry: &AgentEntry| if entry.active { "active" } else { "suspended" };
        self.agent(tenant, id).map_or("unlisted", known)
    }

    /// The ceiling that a run of `agent` has when it asks for `wanted`: no stronger than any of the agent's classes allows (decision 6).
    pub fn ceiling(
        &self,
        tenant: &TenantId,
        agent: &PrincipalId,
        wanted: crate::mode::ApprovalMode,
    ) -> crate::mode::ApprovalMode {
        let caps = self.classes_of(tenant, agent).filter_map(|class| class.safety_mode_max);
        caps.fold(wanted, crate::mode::ApprovalMode::meet)
    }

    /// The ceilings of each class that `agent` is in.
    pub fn classes_of(
        &self,
        tenant: &TenantId,
        agent: &PrincipalId,
    ) -> impl Iterator<Item = &ClassEntry> {
        let entry = self.tenants.get(tenant);
        let classes = entry.and_then(|t| t.agents.get(agent)).map(|a| &a.classes);
        classes
            .into_iter()
            .flatten()
            .filter_map(move |class| entry.and_then(|t| t.classes.get(class)))
    }
}

impl TenantDirectory {
    fn check(&self, tenant: &TenantId) -> Result<(), DirectoryError> {
        let wrong = |member: &PrincipalId, problem: String| {
            Err(DirectoryError { tenant: tenant.clone(), member: member.clone(), problem })
        };
        let undeclared = |group: &GroupId| format!("is in `{group}`, which is not declared there");
        for (id, agent) in &self.agents {
            let owner = &agent.owner;
            if !self.users.contains_key(owner) {
                return wrong(id, format!("is owned by `{owner}`, who is not among its users"));
            }
            if let Some(class) = agent.classes.iter().find(|one| !self.classes.contains_key(*one)) {
                return wrong(id, undeclared(class));
            }
        }
        for (id, user) in &self.users {
            if let Some(group) = user.groups.iter().find(|one| !self.groups.contains_key(*one)) {
                return wrong(id, undeclared(group));
            }
        }
        Ok(())
    }
}
