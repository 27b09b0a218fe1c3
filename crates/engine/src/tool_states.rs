//! The tools of the contracts as operators see them: whether each can be called, and if not, why.
//!
//! Owns the states. Not here: how their calls went ([`crate::report`]), and what a caller may use (`queries`).

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use placet_identity::VerifiedCaller;
use placet_types::{contract::Capability, error::Refusal, ids::AdapterName};

use crate::{
    adapters::{
        errors::logged,
        ports::{Connection, Port},
    },
    context::Context,
    drift, operator,
    views::ToolView,
};

/// A tool of a contract.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolStateView {
    /// What callers see of it.
    pub tool: ToolView,
    /// Its server.
    pub adapter: AdapterName,
    /// How it stands.
    pub state: ToolState,
    /// Why it cannot be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How its server stands.
    pub server: ServerState,
}

/// Whether a tool can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolState {
    /// It can, where policies permit it.
    Callable,
    /// Its contract says no.
    Disabled,
    /// Nobody has pinned its definition.
    Unpinned,
    /// Its schema cannot be enforced.
    Quarantined,
    /// Its live definition is not the pinned one.
    Drifted,
}

impl ToolState {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Callable => "callable",
            Self::Disabled => "disabled",
            Self::Unpinned => "unpinned",
            Self::Quarantined => "quarantined",
            Self::Drifted => "drifted",
        }
    }
}

/// How the server of a tool stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// There is a connection.
    Connected,
    /// Nobody has needed one lately.
    Idle,
    /// The last try to connect failed.
    Unreachable,
    /// Its calls failed several times in a row, so it gets none for a while.
    BreakerOpen,
}

impl ServerState {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Idle => "idle",
            Self::Unreachable => "unreachable",
            Self::BreakerOpen => "breaker_open",
        }
    }

    fn of(port: &Port) -> (Self, Option<String>) {
        match port.connection() {
            _ if port.is_open() => (Self::BreakerOpen, None),
            Connection::Up(_) => (Self::Connected, None),
            Connection::Down => (Self::Idle, None),
            Connection::Failed(error) => (Self::Unreachable, Some(logged(&error))),
        }
    }
}

/// Every tool that the caller's tenant may have, in the order of the contracts.
pub(crate) async fn of(
    context: &Arc<Context>,
    caller: &VerifiedCaller,
) -> Result<Vec<ToolStateView>, Refusal> {
    operator::must_be_operator(context, caller)?;
    let active = context.current.active();
    let mut views = Vec::new();
    for port in active.ports.all().filter(|port| port.contract.admits(caller.tenant())) {
        let (server, trouble) = ServerState::of(port);
        for capability in port.contract.capabilities.values() {
            let (state, why) = state_of(context, capability).await;
            views.push(ToolStateView {
                tool: ToolView::of(capability, context.aliases.of(&active, capability).is_some()),
                adapter: port.contract.adapter.clone(),
                state,
                why: why.or_else(|| trouble.clone()),
                server,
            });
        }
    }
    Ok(views)
}

async fn state_of(context: &Context, capability: &Capability) -> (ToolState, Option<String>) {
    if !capability.enabled {
        return (ToolState::Disabled, None);
    }
    if let Err(why) = &capability.arguments {
        return (ToolState::Quarantined, Some(why.clone()));
    }
    if capability.pin.is_none() {
        return (ToolState::Unpinned, None);
    }
    if drift::is_drifted(context, &capability.id).await {
        let why = "the server describes it in another way than when it was pinned; review it, and pin it again";
        return (ToolState::Drifted, Some(why.to_owned()));
    }
    (ToolState::Callable, None)
}
