//! Which tools a bundle is validated against: Cedar's validator checks each policy once for each action and principal type, so
//! validating all tools of a large set-up would cost the product of policies and tools.
//!
//! Owns which tools a policy can tell apart. Invariant: a tool is left out only where another one is validated in the same groups and, for
//! policies that look at arguments, with the same input; tools that a policy names are never left out.

use std::collections::BTreeSet;

use cedar_policy::{ActionConstraint, EntityUid, Policy, PolicySet, Schema};
use placet_types::{contract::Capability, ids::EnvironmentName};

use super::compile::{Draft, internal};
use crate::{
    bundle::BundleProblem,
    history::HistoryShape,
    input::InputType,
    schema,
    vocabulary::{Vocabulary, lower_action},
};

/// The attribute of the context that holds a tool's arguments.
const INPUT: &str = "input";

/// A tool with what policies see of its arguments.
type Tool<'a> = (&'a Capability, Option<&'a InputType>);

/// Policies, and the tools that they are validated against.
pub(super) struct Judged<'a> {
    /// For policies that cannot tell tools apart by their arguments: a tool of each combination of groups, and those that are named.
    of_groups: (Vec<Policy>, Vec<Tool<'a>>),
    /// For policies that can: a tool of each combination of groups and input.
    of_inputs: (Vec<Policy>, Vec<Tool<'a>>),
}

impl<'a> Judged<'a> {
    /// Picks the tools.
    pub(super) fn of(names: &Vocabulary, set: &PolicySet, drafts: &'a [Draft<'_>]) -> Self {
        let actions_of = |capability: &Capability| {
            [capability.id.to_string(), lower_action(&capability.id)]
                .map(|action| names.action_uid(&action))
        };
        let tools: BTreeSet<EntityUid> =
            drafts.iter().flat_map(|draft| actions_of(draft.capability)).collect();
        let named: BTreeSet<EntityUid> = set.policies().flat_map(named).collect();
        let (of_inputs, of_groups) = set.policies().cloned().partition(|policy| {
            mentions_input(policy) && !scope(policy).is_some_and(|scope| scope.is_subset(&tools))
        });
        let mut judged =
            Self { of_groups: (of_groups, Vec::new()), of_inputs: (of_inputs, Vec::new()) };
        let (mut groups, mut inputs) = (BTreeSet::new(), BTreeSet::new());
        for Draft { capability, input, .. } in drafts {
            let tool = (*capability, input.as_ref());
            let parents = schema::parents(capability);
            let is_named = actions_of(capability).iter().any(|action| named.contains(action));
            if groups.insert(parents.clone()) || is_named {
                judged.of_groups.1.push(tool);
            }
            if inputs.insert((parents, input.as_ref().map(schema::type_text))) || is_named {
                judged.of_inputs.1.push(tool);
            }
        }
        judged
    }

    /// Validates each policy against its tools.
    ///
    /// # Errors
    /// The problems that `validate` finds.
    pub(super) fn validate(
        self,
        environment: &EnvironmentName,
        history: &HistoryShape,
        validate: impl Fn(Schema, &PolicySet) -> Result<(), Vec<BundleProblem>>,
    ) -> Result<(), Vec<BundleProblem>> {
        let mut problems = Vec::new();
        for (policies, tools) in [self.of_groups, self.of_inputs] {
            if policies.is_empty() {
                continue;
            }
            let set = PolicySet::from_policies(policies).map_err(internal)?;
            let text = schema::text(environment, history, tools);
            let (schema, _warnings) = Schema::from_cedarschema_str(&text).map_err(internal)?;
            problems.extend(validate(schema, &set).err().into_iter().flatten());
        }
        problems.sort();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

/// The actions that a policy's scope allows; nothing where it allows all.
fn scope(policy: &Policy) -> Option<BTreeSet<EntityUid>> {
    match policy.action_constraint() {
        ActionConstraint::Any => None,
        ActionConstraint::Eq(action) => Some([action].into()),
        ActionConstraint::In(actions) => Some(actions.into_iter().collect()),
    }
}

/// Everything that a policy names.
fn named(policy: &Policy) -> Vec<EntityUid> {
    let scope = scope(policy).into_iter().flatten();
    policy.entity_literals().into_iter().chain(scope).collect()
}

/// Whether a policy may look at arguments: its text has their name in it, or an escape that may stand for it.
fn mentions_input(policy: &Policy) -> bool {
    policy.to_cedar().is_none_or(|text| text.contains(INPUT) || text.contains('\\'))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use placet_types::{
        contract::Contract,
        ids::{AdapterName, CapabilityId, CapabilityName},
    };
    use serde_json::json;

    use super::Judged;
    use crate::{
        cases::run::World,
        snapshot::compile::{draft_tools, read_policies},
        testing::{bundle, compile, shipped, world},
        vocabulary::Vocabulary,
    };

    const PERMIT: &str =
        r#"@id("p") permit (principal, action in Placet::Action::"tier_read_only", resource);"#;

    /// The world with further tools in two contracts, each with an argument of its own.
    fn many(tools: usize) -> World {
        let world = world();
        let templates: Vec<_> = world.contracts[0].capabilities.values().cloned().collect();
        let further = [0, 1].map(|number| {
            let mut contract = Contract::clone(&world.contracts[0]);
            contract.file.adapter = AdapterName::new(format!("many-{number}")).unwrap();
            contract.capabilities.clear();
            for tool in 0..tools / 2 {
                let mut capability = templates[tool.checked_rem(templates.len()).unwrap()].clone();
                let name = CapabilityName::new(format!("tool{tool}")).unwrap();
                capability.id = CapabilityId::new(contract.adapter.clone(), name.clone()).unwrap();
                capability.file.input_schema = json!({
                    "type": "object", "required": ["path"],
                    "properties": { "path": { "type": "string" }, format!("own{number}x{tool}"): { "type": "integer" } },
                });
                contract.capabilities.insert(name, capability);
            }
            Arc::new(contract)
        });
        let contracts = further.into_iter().chain(world.contracts.iter().cloned()).collect();
        World { contracts, ..world }
    }

    /// How many policies are validated against how many tools, by groups and by inputs.
    fn judged(text: &str) -> [(usize, usize); 2] {
        let (world, names) = (many(1_800), Vocabulary::new().unwrap());
        let source = if text.is_empty() { shipped() } else { bundle(text) };
        let (_, set) = read_policies(&source).unwrap();
        let (drafts, _) = draft_tools(&world.contracts);
        let Judged { of_groups, of_inputs } = Judged::of(&names, &set, &drafts);
        [(of_groups.0.len(), of_groups.1.len()), (of_inputs.0.len(), of_inputs.1.len())]
    }

    #[test]
    fn policies_that_see_no_arguments_are_validated_against_few_tools() {
        let [(policies, tools), (of_inputs, _)] = judged("");
        assert!(policies > 20 && tools < 20 && of_inputs == 0, "{policies} {tools} {of_inputs}");
        let named = r#"@id("f") @approval("never") forbid (principal, action == Placet::Action::"many-1/tool7", resource) when { context.input.path == "x" };"#;
        let [(policies, named_tools), (of_inputs, _)] = judged(&format!("{PERMIT}\n{named}"));
        assert_eq!((policies, named_tools, of_inputs), (2, tools + 1, 0));
        let group = named
            .replace("== Placet::Action::\"many-1/tool7\"", "in Placet::Action::\"call_tool\"");
        let [(policies, _), (of_inputs, tools)] = judged(&format!("{PERMIT}\n{group}"));
        assert!((policies, of_inputs) == (1, 1) && tools > 1_800, "{tools}");
    }

    #[test]
    fn a_policy_that_one_tool_of_many_breaks_is_refused() {
        let world = many(100);
        let rule = |value: &str| {
            format!(
                "{PERMIT}\n@id(\"f\") @approval(\"never\") forbid (principal, action in Placet::Action::\"call_tool\", resource) when {{ context has input && context.input has own1x49 && context.input.own1x49 == {value} }};"
            )
        };
        compile(&bundle(&rule("3")), &world).unwrap();
        let wrong = compile(&bundle(&rule("\"x\"")), &world).unwrap_err();
        assert_eq!(wrong[0].policy.as_deref(), Some("f"), "the argument of one tool is a number");
        let unknown = PERMIT.replace(
            "in Placet::Action::\"tier_read_only\"",
            "== Placet::Action::\"many-1/tool50\"",
        );
        let unknown = compile(&bundle(&unknown), &world).unwrap_err();
        assert!(unknown[0].message.contains("many-1/tool50"), "{unknown:?}");
        let known = PERMIT.replace(
            "in Placet::Action::\"tier_read_only\"",
            "== Placet::Action::\"many-1/tool49\"",
        );
        compile(&bundle(&known), &world).unwrap();
    }
}
