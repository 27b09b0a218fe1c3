//! Tools that a result adds to its run, and removes from it.
//!
//! Owns the rules (TS-08, TS-09): all additions or none, for the next iteration. Invariant: nothing is added that the caller could not use
//! anyway.

use std::collections::BTreeSet;

use serde_json::Value;

use placet_types::{
    contract::Capability,
    error::{ErrorCode, Refusal},
    ids::CapabilityId,
};

use super::{batch_views::Exposure, names, offer::Tools, state::Run, views::TOOLS_NAMED_MAX};
use crate::result::error_of;

/// Applies the tool changes in a result, if it has any.
pub(crate) fn apply(
    run: &mut Run,
    usable: &Tools,
    tool: &Capability,
    output: &Value,
) -> Option<Exposure> {
    let said = output.pointer(tool.exposes.as_ref()?)?;
    Some(changed(run, usable, tool, said).unwrap_or_else(|refusal| Exposure {
        error: Some(error_of(&refusal)),
        ..Exposure::default()
    }))
}

fn changed(
    run: &mut Run,
    usable: &Tools,
    tool: &Capability,
    said: &Value,
) -> Result<Exposure, Refusal> {
    let known = |key: &String| matches!(key.as_str(), "add" | "remove");
    if !said.as_object().is_some_and(|members| members.keys().all(known)) {
        return Err(malformed());
    }
    let (add, remove) = (listed(said, "add")?, listed(said, "remove")?);
    let mut added: BTreeSet<CapabilityId> = BTreeSet::new();
    for name in add {
        let id = meant(usable, tool, name).ok_or_else(|| {
            Refusal::new(ErrorCode::ToolNotFound, format!("there is no tool `{name}` to add"))
        })?;
        added.insert(id.clone());
    }
    let removed: BTreeSet<CapabilityId> =
        remove.into_iter().filter_map(|name| meant(usable, tool, name).cloned()).collect();
    let before = run.wanted.offered_at(run.iteration.saturating_add(1), usable);
    let mut wanted = run.wanted.clone();
    wanted.added.retain(|id| !removed.contains(id));
    wanted.removed.extend(removed);
    wanted.removed.retain(|id| !added.contains(id));
    wanted.added.extend(added);
    let after = wanted.offered_at(run.iteration.saturating_add(1), usable);
    // One under a name that is taken. Where names were shared before, another tool cannot make up for it.
    if names::functions(&before).is_ok() {
        names::functions(&after)?;
    }
    run.wanted = wanted;
    let only_in = |these: &Tools, those: &Tools| {
        let fresh = these.iter().filter(|(id, _)| !those.contains_key(*id));
        fresh.map(|(_, tool)| tool.name()).collect()
    };
    Ok(Exposure { added: only_in(&after, &before), removed: only_in(&before, &after), error: None })
}

/// The tool that a server means: by its name here, or at that server.
fn meant<'a>(usable: &'a Tools, tool: &Capability, name: &str) -> Option<&'a CapabilityId> {
    let own = usable.iter().find(|(id, capability)| {
        id.adapter() == tool.id.adapter()
            && (capability.tool == name || id.capability().as_str() == name)
    });
    own.map(|(id, _)| id).or_else(|| names::named(usable, name))
}

fn listed<'a>(said: &'a Value, key: &str) -> Result<Vec<&'a str>, Refusal> {
    let Some(list) = said.get(key) else { return Ok(Vec::new()) };
    let names = list.as_array().filter(|list| list.len() <= TOOLS_NAMED_MAX);
    let names = names.and_then(|list| list.iter().map(Value::as_str).collect::<Option<_>>());
    names.ok_or_else(malformed)
}

fn malformed() -> Refusal {
    let message = "the result does not say which tools to add and remove: `{\"add\": [names], \"remove\": [names]}`";
    Refusal::new(ErrorCode::ValidationError, message)
}

#[cfg(test)]
mod tests;
