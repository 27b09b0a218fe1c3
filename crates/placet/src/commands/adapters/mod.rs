//! `placet adapters`: import, list, compare and pin what adapters offer.
//!
//! Owns the command tree and the list. Invariant: what a server says about its own tools is shown to the operator and
//! never trusted: it never lowers a mode, and nothing is callable that was not pinned.

mod changes;
pub(crate) mod import;
mod live;
mod openapi;
mod pins;
mod search_path;
pub(crate) mod servers;
pub(crate) mod written;

pub(crate) use live::ask_contracted;

#[cfg(test)]
mod tests;

use clap::{Args as ClapArgs, Subcommand};
use placet_policy::snapshot::UntypedTool;
use placet_types::contract::{Capability, Contract};
use serde_json::json;

use crate::{
    config::load::LocalArgs,
    environment::Environment,
    failure::{Attempted as _, Outcome},
    output, world,
};

/// Import, compare and pin the tools of adapters.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet adapters import --name fs --stdio --network-unconfined -- npx -y @modelcontextprotocol/server-filesystem /srv/docs\n  \
    placet adapters import --name search --url https://mcp.example/mcp\n  \
    placet adapters import --mcp-servers ~/.config/mcp.json\n  \
    placet adapters import --name pets --openapi pets.yaml --credential pets-key\n  \
    placet adapters list\n  \
    placet adapters diff\n  \
    placet adapters pin fs --capability write_file --expect sha256:…")]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to do with adapters.
#[derive(Debug, Subcommand)]
enum Action {
    /// Write a contract from a live MCP server, an existing mcpServers file, or the OpenAPI document of a service.
    Import(Box<import::Args>),
    /// List capabilities with their modes and whether they may be called.
    List(LocalArgs),
    /// Compare live tool lists with the pins; exit code 1 if anything differs.
    Diff(pins::DiffArgs),
    /// Pin a live definition that you reviewed, named by its digest.
    Pin(pins::PinArgs),
}

/// Does what was asked.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    match &args.action {
        Action::Import(args) => import::run(args, environment).await,
        Action::List(args) => list(args, environment),
        Action::Diff(args) => pins::diff(args, environment).await,
        Action::Pin(args) => pins::pin(args, environment).await,
    }
}

/// Why a capability cannot be called, or that it can.
pub(crate) fn state_of(capability: &Capability) -> String {
    match (&capability.arguments, capability.pin, capability.enabled) {
        (Err(why), _, _) => format!("quarantined: {why}"),
        (Ok(_), _, false) => "disabled".to_owned(),
        (Ok(_), None, true) => "not pinned".to_owned(),
        (Ok(_), Some(_), true) => "callable".to_owned(),
    }
}

/// What policies do not see of a tool's arguments.
fn unseen(capability: &Capability) -> Option<String> {
    let lost = UntypedTool::unseen(capability).filter(|tool| !tool.lost.is_empty())?.lost;
    let tool = capability.id.capability();
    Some(format!("`{tool}`: policies do not see all of its arguments: {}", lost.join("; ")))
}

fn list(args: &LocalArgs, environment: &Environment) -> Outcome {
    let entries =
        world::contracts(&args.load(environment)?).attempted("a contract cannot be used")?;
    let documents: Vec<_> = entries.iter().map(|entry| document(&entry.contract)).collect();
    output::answer(args.json, &documents, |_| {
        let rows = entries.iter().flat_map(|entry| {
            entry.contract.capabilities.values().map(|capability| {
                [
                    capability.id.tool_name(),
                    capability.mode_highest.to_string(),
                    if capability.is_write_class() { "yes" } else { "no" }.to_owned(),
                    capability.pin.map(|pin| pin.short()).unwrap_or_default(),
                    state_of(capability),
                ]
            })
        });
        output::table(["tool", "mode", "writes", "pin", "state"], rows);
    })
}

fn document(contract: &Contract) -> serde_json::Value {
    let capabilities = contract.capabilities.values().map(|capability| {
        json!({
            "tool": capability.id.tool_name(),
            "mode": capability.mode_highest,
            "writes": capability.is_write_class(),
            "pin": capability.pin,
            "callable": capability.is_callable(),
            "state": state_of(capability),
        })
    });
    json!({
        "adapter": contract.adapter,
        "digest": contract.digest,
        "target": contract.target(),
        "protocol_version": contract.protocol_version,
        "capabilities": capabilities.collect::<Vec<_>>(),
    })
}
