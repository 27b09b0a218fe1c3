//! The names of tools as models call them.
//!
//! Owns the mapping between a tool's name and its name for function calling, and back. Invariant: one name never stands for two tools of a
//! run, so that a model that calls one never calls the other.

use std::collections::BTreeMap;

use placet_types::{
    error::{ErrorCode, Refusal},
    ids::CapabilityId,
};

use super::offer::Tools;

/// A name for function calling: at most 64 letters, digits, `_` and `-`. A tool's own name is no longer than that, but may have dots.
pub(crate) fn function_name(name: &str) -> String {
    name.replace('.', "_")
}

/// The tools by their names for function calling.
pub(crate) fn functions(tools: &Tools) -> Result<BTreeMap<String, &CapabilityId>, Refusal> {
    let mut named: BTreeMap<String, &CapabilityId> = BTreeMap::new();
    for (id, tool) in tools {
        if let Some(other) = named.insert(function_name(&tool.name()), id) {
            let message = format!(
                "`{}` and `{}` have the same name for function calling; exclude one of them from the run",
                other.tool_name(),
                id.tool_name()
            );
            return Err(Refusal::new(ErrorCode::ValidationError, message));
        }
    }
    Ok(named)
}

/// The tool that a model means: the one with this name or alias, or the only one with this name for function calling.
pub(crate) fn named<'a>(tools: &'a Tools, name: &str) -> Option<&'a CapabilityId> {
    if let Ok(id) = CapabilityId::from_tool_name(name)
        && let Some((id, _)) = tools.get_key_value(&id)
    {
        return Some(id);
    }
    let mut by_function = None;
    let mut is_shared = false;
    for (id, tool) in tools {
        let in_run = tool.name();
        if in_run == name {
            return Some(id);
        }
        if [in_run, id.tool_name()].iter().any(|own| function_name(own) == name) {
            is_shared |= by_function.replace(id).is_some();
        }
    }
    by_function.filter(|_| !is_shared)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::runs::offer::tools_of;

    fn id(text: &str) -> CapabilityId {
        CapabilityId::from_tool_name(text).unwrap()
    }

    /// Plain tools of these names, one of them with an alias.
    fn tools<'a>(names: impl IntoIterator<Item = &'a str>, alias: Option<&str>) -> Tools {
        let mut tools = Tools::new();
        for id in names.into_iter().map(id) {
            let mut plain = json!({ "mode": "read_only", "effect": "none", "input_schema": { "type": "object" } });
            if alias == Some(id.tool_name().as_str()) {
                plain["alias"] = json!({ "when": "pinned" });
            }
            tools.extend(tools_of(json!({
                "contract_version": "placet.contract.v1", "adapter": id.adapter(), "environment": "test", "tenants": "all",
                "transport": { "type": "mcp_stdio", "command": "node" }, "protocol_version": "2025-11-25",
                "capabilities": { (id.capability().as_str()): plain },
            })));
        }
        tools
    }

    fn is_function_name(name: &str) -> bool {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        (1..=64).contains(&name.len()) && name.chars().all(fits)
    }

    /// The shapes that names in collections of function-calling schemas have.
    const NAMES: [&str; 8] = [
        "get_current_weather",
        "math.factorial",
        "calculate_area.triangle",
        "spotify.play",
        "database.us_census.get_population",
        "HNA_WQA.search",
        "uber.ride-share.v2",
        "a",
    ];

    #[test]
    fn names_of_every_shape_are_found_again() {
        let names = NAMES.map(|name| format!("tools__{name}"));
        let tools = tools(names.iter().map(String::as_str), None);
        let functions = functions(&tools).unwrap();
        assert_eq!(functions.len(), NAMES.len());
        for (name, id) in functions {
            assert!(is_function_name(&name), "{name}");
            assert_eq!(named(&tools, &name), Some(id));
            assert_eq!(named(&tools, &id.tool_name()), Some(id));
        }
        assert_eq!(named(&tools, "tools__math"), None);
        assert_eq!(named(&tools, "math.factorial"), None);
    }

    #[test]
    fn two_tools_of_one_name_are_refused_and_none_is_taken_for_the_other() {
        let tools = tools(["a__x.y", "a__x_y", "a__p.q_r", "a__p_q.r"], None);
        let refused = functions(&tools).unwrap_err();
        assert_eq!(refused.code, ErrorCode::ValidationError);
        assert_eq!(named(&tools, "a__x_y"), Some(&id("a__x_y")), "its own name wins");
        assert_eq!(named(&tools, "a__p_q_r"), None, "nobody guesses between two");
    }

    #[test]
    fn an_alias_is_a_name_beside_the_own_one() {
        let mut tools = tools(["docs__find.all", "docs__other"], Some("docs__find.all"));
        let find = id("docs__find.all");
        for name in ["mcp_docs_find.all", "mcp_docs_find_all", "docs__find.all", "docs__find_all"] {
            assert_eq!(named(&tools, name), Some(&find), "{name}");
        }
        assert!(functions(&tools).unwrap().contains_key("mcp_docs_find_all"));
        tools.get_mut(&find).unwrap().is_aliased = false;
        assert_eq!(named(&tools, "mcp_docs_find.all"), None);
        assert!(functions(&tools).unwrap().contains_key("docs__find_all"));
    }

    proptest! {
        #[test]
        fn a_set_of_tools_is_named_one_to_one_or_refused(
            names in prop::collection::btree_set("[a-c]__[a-c][a-c._-]{0,3}", 1..12)
        ) {
            let tools = tools(names.iter().map(String::as_str), None);
            let distinct: BTreeSet<String> = names.iter().map(|name| function_name(name)).collect();
            match functions(&tools) {
                Ok(functions) => {
                    prop_assert_eq!(functions.len(), tools.len());
                    for (name, id) in functions {
                        prop_assert!(is_function_name(&name));
                        prop_assert_eq!(named(&tools, &name), Some(id));
                    }
                }
                Err(_) => prop_assert!(distinct.len() < tools.len()),
            }
        }

        #[test]
        fn every_name_that_a_tool_can_have_fits_function_calling(name in "[a-z][a-z-]{0,9}__[A-Za-z0-9][A-Za-z0-9._-]{0,51}") {
            prop_assert!(is_function_name(&function_name(&id(&name).tool_name())));
        }
    }
}
