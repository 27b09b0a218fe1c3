//! `placet doctor`: what the contracts depend on: programs that exist and start, arguments that policies can see.
//!
//! Owns starting each MCP server for a moment; no tool is called. Servers over HTTP are not asked: `placet adapters diff` does that.

use std::path::Path;

use futures::future::join_all;
use placet_adapter_mcp::connector::program;
use placet_policy::snapshot::UntypedTool;
use placet_types::contract::file::TransportFile;

use super::Check;
use crate::{commands::adapters::ask_contracted, config::load::Config, world::ContractEntry};

/// Extensions of scripts that are an argument of their interpreter.
const SCRIPTS: [&str; 10] = ["js", "mjs", "cjs", "ts", "py", "sh", "rb", "pl", "php", "jar"];
/// The beginning of the line about a server.
const ABOUT: &str = "mcp server";

/// Checks the servers of all contracts concurrently.
pub(super) async fn checks(entries: &[ContractEntry], config: &Config) -> Vec<Check> {
    let servers = entries.iter().map(|entry| server(entry, config));
    let found = join_all(servers).await;
    found.into_iter().flatten().chain(arguments(entries)).collect()
}

/// Whether a child process can be started, and speaks MCP.
async fn server(entry: &ContractEntry, config: &Config) -> Option<Check> {
    let TransportFile::McpStdio { args, cwd, .. } = &entry.contract.transport else { return None };
    let name = &entry.contract.adapter;
    let todo = "until then its tools cannot be reached";
    if let Err(error) = program(&entry.contract.transport) {
        return Some(Check::warn(ABOUT, format!("`{name}`: {error}"), todo));
    }
    let folder = config.data.join(cwd.as_deref().unwrap_or_default());
    if let Some(script) = args.iter().find(|arg| is_missing(arg, &folder)) {
        let found = format!("`{name}`: there is no file `{script}` in `{}`", folder.display());
        let todo =
            "an absolute path, or one relative to `cwd`, which is the data folder if it is not set";
        return Some(Check::warn(ABOUT, found, todo));
    }
    if !config.data.is_dir() {
        let found = format!("`{name}`: not started, since the data folder is not there yet");
        return Some(Check::ok(ABOUT, found));
    }
    Some(match ask_contracted(&entry.contract, config).await {
        Ok(_live) => Check::ok(ABOUT, format!("`{name}` starts and lists its tools")),
        Err(failure) => Check { level: super::Level::Warn, ..Check::of(ABOUT, &failure) },
    })
}

/// Whether an argument names a missing script.
fn is_missing(argument: &str, folder: &Path) -> bool {
    let extension = Path::new(argument).extension().and_then(|extension| extension.to_str());
    let is_script = extension.is_some_and(|extension| SCRIPTS.contains(&extension));
    let is_path = !argument.starts_with(['-', '@']) && !argument.contains("://");
    is_script && is_path && !folder.join(argument).is_file()
}

/// The arguments of tools that policies do not see.
fn arguments(entries: &[ContractEntry]) -> Option<Check> {
    let capabilities = entries.iter().flat_map(|entry| entry.contract.capabilities.values());
    let unseen: Vec<String> = capabilities
        .filter(|capability| capability.is_callable())
        .filter_map(UntypedTool::unseen)
        .filter(|tool| !tool.lost.is_empty())
        .map(|tool| tool.capability.tool_name())
        .collect();
    if unseen.is_empty() {
        return None;
    }
    let found = format!("policies do not see all arguments of `{}`", unseen.join("`, `"));
    let todo =
        "`placet policy check` says which, and why; `x-cedar` in the contract maps a `number`";
    Some(Check::warn("arguments", found, todo))
}
