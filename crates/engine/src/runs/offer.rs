//! The tools of one iteration.
//!
//! Owns the rules of which tool is offered when (TS-02, TS-04, TS-11): pure, over what the caller may use. Invariant: nothing else is
//! offered.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    sync::Arc,
};

use placet_types::{contract::Capability, ids::CapabilityId};

use super::views::ChoiceWord;

/// Tools by their operation.
pub(crate) type Tools = BTreeMap<CapabilityId, Tool>;

/// A tool as a caller may use it.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    pub(crate) capability: Arc<Capability>,
    /// Whether its alias is in force.
    pub(crate) is_aliased: bool,
}

impl Deref for Tool {
    type Target = Capability;

    fn deref(&self) -> &Capability {
        &self.capability
    }
}

impl Tool {
    /// Its name in runs: its alias where it has one.
    pub(crate) fn name(&self) -> String {
        let alias = self.alias.as_ref().filter(|_| self.is_aliased);
        alias.map_or_else(|| self.id.tool_name(), |alias| alias.name.clone())
    }
}

/// What a model may choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    Word(ChoiceWord),
    Only(CapabilityId),
}

/// What a run's caller and its tools have asked of its surface.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) chosen: BTreeSet<CapabilityId>,
    pub(crate) forced: BTreeSet<CapabilityId>,
    /// Excluded by the run's caller; no tool can bring them back.
    pub(crate) excluded: BTreeSet<CapabilityId>,
    /// Added by results of tools.
    pub(crate) added: BTreeSet<CapabilityId>,
    pub(crate) removed: BTreeSet<CapabilityId>,
    pub(crate) choice: Choice,
}

impl Wanted {
    /// What the model may choose in this iteration, from 1.
    pub(crate) fn choice_at(&self, iteration: u32) -> Choice {
        match &self.choice {
            Choice::Word(ChoiceWord::Required) | Choice::Only(_) if iteration > 1 => {
                Choice::Word(ChoiceWord::Auto)
            }
            held @ (Choice::Word(_) | Choice::Only(_)) => held.clone(),
        }
    }

    /// The same, as far as the tools of the iteration allow it: a tool that is not offered cannot be chosen, and nothing is required of none.
    pub(crate) fn choice_among(&self, iteration: u32, offered: &Tools) -> Choice {
        let choice = self.choice_at(iteration);
        let is_possible = match &choice {
            Choice::Only(id) => offered.contains_key(id),
            Choice::Word(ChoiceWord::Required) => !offered.is_empty(),
            Choice::Word(ChoiceWord::Auto | ChoiceWord::None) => true,
        };
        if is_possible { choice } else { Choice::Word(ChoiceWord::Auto) }
    }

    /// The tools of this iteration, out of those that the caller may use.
    pub(crate) fn offered_at(&self, iteration: u32, usable: &Tools) -> Tools {
        let choice = self.choice_at(iteration);
        let is_first_of_chosen = iteration == 1 && !self.chosen.is_empty();
        let is_offered = |id: &CapabilityId, tool: &Tool| {
            if self.excluded.contains(id) {
                return false;
            }
            if self.forced.contains(id) || choice == Choice::Only(id.clone()) {
                return true;
            }
            if is_first_of_chosen || self.removed.contains(id) {
                return is_first_of_chosen && self.chosen.contains(id);
            }
            !tool.on_demand || self.added.contains(id) || self.chosen.contains(id)
        };
        let mut offered: Tools = usable
            .iter()
            .filter(|(id, tool)| is_offered(id, tool))
            .map(|(id, tool)| (id.clone(), tool.clone()))
            .collect();
        let alone = offered.iter().find(|(_, one)| one.exclusive).map(|(id, _)| id.clone());
        if let Some(alone) = alone {
            offered.retain(|id, _| *id == alone);
        }
        offered
    }
}

#[cfg(test)]
pub(crate) fn tools_of(file: serde_json::Value) -> Tools {
    let file = serde_json::from_value(file).unwrap();
    let contract = placet_types::contract::Contract::from_file(file).unwrap();
    let tool = |one| Tool { capability: Arc::new(one), is_aliased: true };
    contract.capabilities.into_values().map(|one| (one.id.clone(), tool(one))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools() -> Tools {
        let plain =
            json!({ "mode": "read_only", "effect": "none", "input_schema": { "type": "object" } });
        let with = |key: &str| {
            let mut one = plain.clone();
            one[key] = json!(true);
            one
        };
        let file = json!({
            "contract_version": "placet.contract.v1", "adapter": "t", "environment": "test", "tenants": "all",
            "transport": { "type": "mcp_stdio", "command": "node" }, "protocol_version": "2025-11-25",
            "capabilities": { "a": plain, "b": plain, "later": with("on_demand"), "only": with("exclusive") },
        });
        tools_of(file)
    }

    fn id(name: &str) -> CapabilityId {
        CapabilityId::from_tool_name(&format!("t__{name}")).unwrap()
    }

    fn nothing() -> Wanted {
        Wanted {
            chosen: BTreeSet::new(),
            forced: BTreeSet::new(),
            excluded: [id("only")].into(),
            added: BTreeSet::new(),
            removed: BTreeSet::new(),
            choice: Choice::Word(ChoiceWord::Auto),
        }
    }

    fn offered(wanted: &Wanted, iteration: u32) -> Vec<String> {
        let offered = wanted.offered_at(iteration, &tools());
        offered.keys().map(|id| id.capability().to_string()).collect()
    }

    #[test]
    fn an_exclusive_tool_is_alone() {
        let mut wanted = nothing();
        wanted.excluded.clear();
        assert_eq!(offered(&wanted, 1), ["only"]);
        wanted.chosen = [id("a"), id("only")].into();
        assert_eq!(offered(&wanted, 1), ["only"]);
        wanted.chosen = [id("a")].into();
        assert_eq!(offered(&wanted, 1), ["a"], "one that was not chosen is not there");
    }

    #[test]
    fn what_was_chosen_is_all_there_is_at_first_and_forced_tools_come_beside() {
        let wanted = Wanted { chosen: [id("b")].into(), ..nothing() };
        assert_eq!(offered(&wanted, 1), ["b"]);
        assert_eq!(offered(&wanted, 2), ["a", "b"]);
        let forced = Wanted { forced: [id("later")].into(), ..wanted.clone() };
        assert_eq!(offered(&forced, 1), ["b", "later"]);
        assert_eq!(offered(&forced, 2), ["a", "b", "later"]);
        let named = Wanted { choice: Choice::Only(id("a")), ..wanted };
        assert_eq!(offered(&named, 1), ["a", "b"]);
    }

    #[test]
    fn a_tool_on_demand_comes_when_it_is_added_and_no_tool_brings_back_an_excluded_one() {
        let mut wanted = nothing();
        assert_eq!(offered(&wanted, 1), ["a", "b"]);
        wanted.added = [id("later"), id("only")].into();
        assert_eq!(offered(&wanted, 2), ["a", "b", "later"]);
        wanted.removed = [id("a")].into();
        assert_eq!(offered(&wanted, 2), ["b", "later"]);
        wanted.forced = [id("a")].into();
        assert_eq!(offered(&wanted, 2), ["a", "b", "later"]);
    }

    #[test]
    fn required_and_one_function_hold_for_the_first_iteration() {
        for (choice, then) in [
            (Choice::Word(ChoiceWord::Auto), Choice::Word(ChoiceWord::Auto)),
            (Choice::Word(ChoiceWord::None), Choice::Word(ChoiceWord::None)),
            (Choice::Word(ChoiceWord::Required), Choice::Word(ChoiceWord::Auto)),
            (Choice::Only(id("a")), Choice::Word(ChoiceWord::Auto)),
        ] {
            let wanted = Wanted { choice: choice.clone(), ..nothing() };
            assert_eq!(wanted.choice_at(1), choice);
            assert_eq!(wanted.choice_at(2), then);
        }
    }

    #[test]
    fn nothing_is_chosen_that_is_not_offered_and_nothing_required_of_no_tools() {
        let auto = Choice::Word(ChoiceWord::Auto);
        let among = |wanted: &Wanted| wanted.choice_among(1, &wanted.offered_at(1, &tools()));
        let only = Wanted { choice: Choice::Only(id("a")), ..nothing() };
        assert_eq!(among(&only), only.choice);
        assert_eq!(among(&Wanted { excluded: [id("a")].into(), ..only }), auto);
        let required = Wanted { choice: Choice::Word(ChoiceWord::Required), ..nothing() };
        assert_eq!(among(&required), required.choice);
        assert_eq!(required.choice_among(1, &Tools::new()), auto);
    }
}
