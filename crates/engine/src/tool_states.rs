//! The tools of the contracts as operators see them: whether each can be called, and if not, why.
//!
//! Owns the states. Not here: how their calls went ([`crate::report`]), and what a caller may use (`engine::queries`).

use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use placet_types::{
    contract::Capability,
    ids::{AdapterName, CapabilityId, TenantId},
};

use crate::{
    active::Active,
    adapters::{
        errors::logged,
        ports::{Connection, Port},
    },
    context::Context,
    views::ToolView,
};

/// The greatest age of the server's list that its tools are compared with, and the time limit for getting it.
const LISTED_MS_MAX: u64 = 10_000;
const COMPARED_IN: Duration = Duration::from_secs(3);

/// A tool of a contract, and whether it can be called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolStateView {
    /// The tool, as callers see it.
    pub tool: ToolView,
    /// The adapter of the tool.
    pub adapter: AdapterName,
    /// Whether the tool can be called.
    pub state: ToolState,
    /// Why the tool cannot be called; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The state of the tool's server.
    pub server: ServerState,
}

/// Whether a tool can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolState {
    /// The tool can be called if policies permit it.
    Callable,
    /// The contract disables the tool.
    Disabled,
    /// The tool's definition has not been reviewed and pinned.
    Unpinned,
    /// The tool's schema cannot be enforced.
    Quarantined,
    /// The tool's live definition differs from the pinned one.
    Drifted,
}

/// The state of a tool's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// The server is connected.
    Connected,
    /// There is no connection because none was needed lately.
    Idle,
    /// The last attempt to connect failed.
    Unreachable,
    /// The circuit breaker is open: several calls in a row failed, so no calls are sent for a while.
    BreakerOpen,
}

impl ServerState {
    fn of(port: &Port) -> (Self, Option<String>) {
        match port.connection() {
            _ if port.is_open() => (Self::BreakerOpen, None),
            Connection::Up(_) => (Self::Connected, None),
            Connection::Down => (Self::Idle, None),
            Connection::Failed(error) => (Self::Unreachable, Some(logged(&error))),
        }
    }
}

/// Every tool that the tenant may have, in the order of the contracts.
pub(crate) async fn of(context: &Context, tenant: &TenantId) -> Vec<ToolStateView> {
    let active = context.current.active();
    let ports = active.ports.all().filter(|port| port.contract.admits(tenant));
    join_all(ports.map(|port| of_port(context, &active, port))).await.concat()
}

async fn of_port(context: &Context, active: &Active, port: &Port) -> Vec<ToolStateView> {
    let (server, trouble) = ServerState::of(port);
    let drifted = drifted(port).await;
    let view = |capability: &Capability| {
        let (state, why) = state_of(capability, drifted.contains(&capability.id));
        ToolStateView {
            tool: ToolView::of(capability, context.aliases.of(active, capability).is_some()),
            adapter: port.contract.adapter.clone(),
            state,
            why: why.or_else(|| trouble.clone()),
            server,
        }
    };
    port.contract.capabilities.values().map(view).collect()
}

/// The tools whose live definition is found not to be the pinned one, within the time that a reader of a page waits.
async fn drifted(port: &Port) -> BTreeSet<CapabilityId> {
    let mut drifted = BTreeSet::new();
    let Connection::Up(connection) = port.connection() else { return drifted };
    let comparing = async {
        for capability in port.contract.capabilities.values().filter(|one| one.is_callable()) {
            if port.is_drifted(connection.as_ref(), capability, LISTED_MS_MAX).await {
                drifted.insert(capability.id.clone());
            }
        }
    };
    // A server that does not list in time cannot be compared.
    tokio::time::timeout(COMPARED_IN, comparing).await.unwrap_or_default();
    drifted
}

fn state_of(capability: &Capability, is_drifted: bool) -> (ToolState, Option<String>) {
    match &capability.arguments {
        _ if !capability.enabled => (ToolState::Disabled, None),
        Err(why) => (ToolState::Quarantined, Some(why.clone())),
        Ok(_) if capability.pin.is_none() => (ToolState::Unpinned, None),
        Ok(_) if is_drifted => {
            let why = "the server describes it in another way than when it was pinned; review it, and pin it again";
            (ToolState::Drifted, Some(why.to_owned()))
        }
        Ok(_) => (ToolState::Callable, None),
    }
}
