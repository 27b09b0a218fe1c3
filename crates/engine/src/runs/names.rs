//! The names of tools as models call them.
//!
//! Owns the mapping between a tool's name and its name for function calling, and back. Invariant: one name never stands for two tools of a
//! run, so that a model that calls one never calls the other.

use std::collections::BTreeMap;

use placet_types::{
    error::{ErrorCode, Refusal},
    ids::CapabilityId,
};

/// The name of a tool for function calling: at most 64 letters, digits, `_` and `-`. A tool's own name is not longer and has dots besides.
pub(crate) fn function_name(id: &CapabilityId) -> String {
    id.tool_name().replace('.', "_")
}

/// The tools by their names for function calling.
///
/// # Errors
/// [`ErrorCode::ValidationError`] where two have the same.
pub(crate) fn functions<'a>(
    tools: impl IntoIterator<Item = &'a CapabilityId>,
) -> Result<BTreeMap<String, &'a CapabilityId>, Refusal> {
    let mut named: BTreeMap<String, &CapabilityId> = BTreeMap::new();
    for id in tools {
        if let Some(other) = named.insert(function_name(id), id) {
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

/// Which of the tools a model means: the one of this name, or the only one of this name for function calling.
pub(crate) fn named<'a>(
    tools: impl IntoIterator<Item = &'a CapabilityId>,
    name: &str,
) -> Option<&'a CapabilityId> {
    let mut by_function = None;
    let mut is_shared = false;
    for id in tools {
        if id.tool_name() == name {
            return Some(id);
        }
        if function_name(id) == name {
            is_shared |= by_function.replace(id).is_some();
        }
    }
    by_function.filter(|_| !is_shared)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn id(text: &str) -> CapabilityId {
        CapabilityId::from_tool_name(text).unwrap()
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
        let ids: Vec<CapabilityId> =
            NAMES.iter().map(|name| id(&format!("tools__{name}"))).collect();
        let functions = functions(&ids).unwrap();
        assert_eq!(functions.len(), NAMES.len());
        for (name, id) in functions {
            assert!(is_function_name(&name), "{name}");
            assert_eq!(named(&ids, &name), Some(id));
            assert_eq!(named(&ids, &id.tool_name()), Some(id));
        }
        assert_eq!(named(&ids, "tools__math"), None);
        assert_eq!(named(&ids, "math.factorial"), None);
    }

    #[test]
    fn two_tools_of_one_name_are_refused_and_none_is_taken_for_the_other() {
        let ids = [id("a__x.y"), id("a__x_y"), id("a__p.q_r"), id("a__p_q.r")];
        let refused = functions(&ids).unwrap_err();
        assert_eq!(refused.code, ErrorCode::ValidationError);
        assert_eq!(named(&ids, "a__x_y"), Some(&ids[1]), "its own name wins");
        assert_eq!(named(&ids, "a__p_q_r"), None, "nobody guesses between two");
    }

    proptest! {
        #[test]
        fn a_set_of_tools_is_named_one_to_one_or_refused(
            names in prop::collection::btree_set("[a-c]__[a-c][a-c._-]{0,3}", 1..12)
        ) {
            let ids: BTreeSet<CapabilityId> = names.iter().map(|name| id(name)).collect();
            let distinct: BTreeSet<String> = ids.iter().map(function_name).collect();
            match functions(&ids) {
                Ok(functions) => {
                    prop_assert_eq!(functions.len(), ids.len());
                    for (name, id) in functions {
                        prop_assert!(is_function_name(&name));
                        prop_assert_eq!(named(&ids, &name), Some(id));
                    }
                }
                Err(_) => prop_assert!(distinct.len() < ids.len()),
            }
        }

        #[test]
        fn every_name_that_a_tool_can_have_fits_function_calling(name in "[a-z][a-z-]{0,9}__[A-Za-z0-9][A-Za-z0-9._-]{0,51}") {
            prop_assert!(is_function_name(&function_name(&id(&name))));
        }
    }
}
