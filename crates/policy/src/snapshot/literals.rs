//! Names in policies that do not exist: tenants, groups, classes and agents that the directory does not declare, adapters and tools without
//! a contract.
//!
//! Owns the look-up and the advice. A rule about such a name never applies, and Cedar accepts it unless it is an action: an entity may
//! have any name. Tools named as actions are looked up here too, since Cedar would suggest an action unrelated to the tool.

use std::{collections::BTreeSet, sync::Arc};

use cedar_policy::{ActionConstraint, EntityUid, Policy, PolicyId, PolicySet, ResourceConstraint};
use placet_types::{
    contract::Contract,
    directory::{Directory, TenantDirectory},
    ids::{GroupId, PrincipalId, TenantId},
};

use super::compile::{line_at, place_of};
use crate::{
    annotations::PolicyMeta,
    bundle::{BundleProblem, BundleSource},
    vocabulary::{Vocabulary, lower_action},
};

/// The longest name for which similar ones are searched, in bytes.
const SIMILAR_BYTES_MAX: usize = 200;

/// The existing names of one entity type.
struct Known {
    type_name: String,
    what: &'static str,
    place: &'static str,
    names: BTreeSet<String>,
}

/// The names that may be written, by entity type.
fn known(names: &Vocabulary, contracts: &[Arc<Contract>], directory: &Directory) -> Vec<Known> {
    let of_tenants = |declared: fn(&TenantDirectory) -> Vec<&str>| -> BTreeSet<String> {
        let written = |(tenant, entry): (&TenantId, &TenantDirectory)| {
            declared(entry).into_iter().map(|name| format!("{tenant}/{name}")).collect::<Vec<_>>()
        };
        directory.tenants.iter().flat_map(written).collect()
    };
    let agents = of_tenants(|tenant| tenant.agents.keys().map(PrincipalId::as_str).collect());
    let workloads = [&names.agent, &names.service, &names.automation].map(|type_name| Known {
        type_name: type_name.to_string(),
        what: "agent",
        place: "the directory",
        names: agents.clone(),
    });
    let tenants = Known {
        type_name: names.tenant.to_string(),
        what: "tenant",
        place: "the directory",
        names: directory.tenants.keys().map(ToString::to_string).collect(),
    };
    let tools = contracts.iter().flat_map(|contract| contract.capabilities.values());
    let lowered: BTreeSet<String> =
        tools.clone().map(|capability| lower_action(&capability.id)).collect();
    let tools: BTreeSet<String> = tools.map(|capability| capability.id.to_string()).collect();
    let others = [
        Known {
            type_name: names.action.to_string(),
            what: "tool",
            place: "the contracts",
            names: tools.union(&lowered).cloned().collect(),
        },
        Known {
            type_name: names.group.to_string(),
            what: "group",
            place: "the directory",
            names: of_tenants(|tenant| tenant.groups.keys().map(GroupId::as_str).collect()),
        },
        Known {
            type_name: names.agent_class.to_string(),
            what: "agent class",
            place: "the directory",
            names: of_tenants(|tenant| tenant.classes.keys().map(GroupId::as_str).collect()),
        },
        Known {
            type_name: names.adapter.to_string(),
            what: "adapter",
            place: "the contracts",
            names: contracts.iter().map(|contract| contract.adapter.to_string()).collect(),
        },
        Known {
            type_name: names.tool.to_string(),
            what: "tool",
            place: "the contracts",
            names: tools,
        },
    ];
    others.into_iter().chain(workloads).chain([tenants]).collect()
}

/// Everything that the policies name and that does not exist.
pub(super) fn check(
    names: &Vocabulary,
    source: &BundleSource,
    set: &PolicySet,
    policies: &[PolicyMeta],
    contracts: &[Arc<Contract>],
    directory: &Directory,
) -> Result<(), Vec<BundleProblem>> {
    let known = known(names, contracts, directory);
    let mut problems = Vec::new();
    for policy in set.policies() {
        let is_its = |meta: &&PolicyMeta| PolicyId::new(&meta.id) == *policy.id();
        let Some(meta) = policies.iter().find(is_its) else { continue };
        problems.extend(contradiction(names, policy).map(|message| {
            let help = "name one of both, or the same in both".to_owned();
            BundleProblem { line: meta.line, ..of(meta, message) }.with_help(help)
        }));
        for literal in policy.entity_literals() {
            let type_name = literal.type_name().to_string();
            if type_name == names.user.to_string() {
                problems.extend(stranger(directory, &literal, meta, source));
            }
            let of_type = known.iter().find(|known| known.type_name == type_name);
            // An action that is not a tool has no slash in its name; Cedar knows those. Elsewhere a tool's has two underscores.
            let is_tool = ["/", "__"].iter().any(|mark| literal.id().unescaped().contains(mark));
            if let Some(known) = of_type
                && (is_tool || known.type_name != names.action.to_string())
                && !known.names.contains(literal.id().unescaped())
            {
                problems.push(unknown(known, &literal, meta, source));
            }
        }
    }
    problems.sort();
    problems.dedup();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Why a scope that names tools as actions and a resource is about no call, if it is.
fn contradiction(names: &Vocabulary, policy: &Policy) -> Option<String> {
    let actions = match policy.action_constraint() {
        ActionConstraint::Any => return None,
        ActionConstraint::Eq(action) => vec![action],
        ActionConstraint::In(actions) => actions,
    };
    let actions: Vec<&str> = actions.iter().map(|action| action.id().unescaped()).collect();
    let are_tools = actions.iter().all(|action| action.contains('/') && !action.contains('#'));
    let (resource, matches): (_, fn(&str, &str) -> bool) = match policy.resource_constraint() {
        ResourceConstraint::Eq(tool) if *tool.type_name() == names.tool => {
            (tool, |action, tool| action == tool)
        }
        ResourceConstraint::In(adapter) if *adapter.type_name() == names.adapter => {
            (adapter, |action, adapter| action.split('/').next() == Some(adapter))
        }
        ResourceConstraint::Any
        | ResourceConstraint::Eq(_)
        | ResourceConstraint::In(_)
        | ResourceConstraint::Is(_)
        | ResourceConstraint::IsIn(..) => return None,
    };
    let resource = resource.id().unescaped();
    let is_none = are_tools && !actions.iter().any(|action| matches(action, resource));
    is_none.then(|| {
        format!(
            "the policy is about no call: its actions are `{}`, and its resource is `{resource}`",
            actions.join("`, `")
        )
    })
}

/// A user of no tenant. People whom the directory does not list may come with tokens.
fn stranger(
    directory: &Directory,
    literal: &EntityUid,
    meta: &PolicyMeta,
    source: &BundleSource,
) -> Option<BundleProblem> {
    let name = literal.id().unescaped();
    let tenant = name.split_once('/').map_or("", |(tenant, _)| tenant);
    let is_known = directory.tenants.keys().any(|known| known.as_str() == tenant);
    let problem = || {
        let message = format!("the user `{name}` is of no tenant of the directory");
        let help = "write a user as `tenant/name`".to_owned();
        BundleProblem { line: line_of(literal, meta, source).or(meta.line), ..of(meta, message) }
            .with_help(help)
    };
    (!is_known).then(problem)
}

fn of(meta: &PolicyMeta, message: String) -> BundleProblem {
    BundleProblem {
        file: meta.file.clone(),
        policy: Some(meta.id.clone()),
        ..BundleProblem::of_bundle(message)
    }
}

fn unknown(
    known: &Known,
    literal: &EntityUid,
    meta: &PolicyMeta,
    source: &BundleSource,
) -> BundleProblem {
    let name = literal.id().unescaped();
    let help = nearest(name, &known.names).map_or_else(
        || format!("{} has none", known.place),
        |near| format!("did you mean `{near}`?"),
    );
    let message = format!("there is no {} `{name}` in {}", known.what, known.place);
    BundleProblem { line: line_of(literal, meta, source).or(meta.line), ..of(meta, message) }
        .with_help(help)
}

/// The line of the first place in the policy where the entity is written as Cedar writes it.
fn line_of(literal: &EntityUid, meta: &PolicyMeta, source: &BundleSource) -> Option<u32> {
    let file = source.files.iter().find(|file| file.name == meta.file)?;
    let start = place_of(&file.text, &meta.text)?;
    let within = meta.text.find(&literal.to_string())?;
    Some(line_at(&file.text, start.saturating_add(within)))
}

/// The name that is the most similar.
pub(crate) fn nearest<'a>(name: &str, names: &'a BTreeSet<String>) -> Option<&'a String> {
    if name.len() > SIMILAR_BYTES_MAX {
        return names.first();
    }
    names.iter().min_by_key(|known| strsim::levenshtein(name, known))
}

#[cfg(test)]
mod tests {
    use crate::testing::{bundle, compile, world};

    #[test]
    fn names_that_nothing_has_are_refused_with_the_nearest() {
        for (condition, message, near) in [
            (
                r#"principal in Placet::Group::"acme/financ""#,
                "no group `acme/financ`",
                "acme/finance",
            ),
            (r#"principal in Placet::Group::"globex/finance""#, "no group", "acme/finance"),
            (
                r#"principal in Placet::AgentClass::"acme/finance-bot""#,
                "no agent class",
                "acme/finance-bots",
            ),
            (r#"principal == Placet::Agent::"helpr""#, "no agent `helpr`", "acme/"),
            (
                r#"principal.tenant == Placet::Tenant::"amce""#,
                "no tenant `amce`",
                "did you mean `acme`?",
            ),
            (r#"principal == Placet::User::"anna""#, "of no tenant", "`tenant/name`"),
            (r#"resource == Placet::Tool::"ops/refnd""#, "no tool `ops/refnd`", "ops/refund"),
            (r#"action == Placet::Action::"ops/refnd""#, "no tool `ops/refnd`", "ops/refund"),
            (r#"action == Placet::Action::"ops__refnd""#, "no tool `ops__refnd`", "ops/refund"),
            (r#"resource in Placet::Adapter::"op""#, "no adapter `op`", "ops"),
        ] {
            let text = format!(
                "@id(\"p\") permit (principal, action in Placet::Action::\"tier_read_only\", resource is Placet::Tool)\nwhen {{ principal.active &&\n  ({condition}) }};"
            );
            let text = text.replace("principal,", "principal is Placet::Agent,");
            let text = if condition.contains("Group") {
                text.replace("Placet::Agent,", "Placet::User,")
            } else {
                text
            };
            let problems = compile(&bundle(&text), &world()).unwrap_err();
            assert_eq!(problems.len(), 1, "{problems:#?}");
            let problem = &problems[0];
            assert_eq!(problem.line, Some(3), "{problem}");
            assert!(problem.message.contains(message), "{problem}");
            assert!(problem.help.as_ref().unwrap().contains(near), "{problem}");
        }
    }

    #[test]
    fn a_scope_whose_actions_and_resource_are_different_tools_is_refused() {
        let check = |scope: &str| {
            let text = format!(
                "@id(\"p\") @approval(\"never\") @reason(\"Never.\") forbid (principal, {scope});"
            );
            compile(&bundle(&text), &world()).map(drop)
        };
        let refund = r#"action == Placet::Action::"ops/refund""#;
        for resource in [r#"== Placet::Tool::"ops/fetch""#, r#"in Placet::Adapter::"files""#] {
            let problems = check(&format!("{refund}, resource {resource}")).unwrap_err();
            let mut all = problems.iter();
            assert!(all.any(|one| one.message.contains("about no call")), "{problems:?}");
        }
        for scope in [
            format!(r#"{refund}, resource == Placet::Tool::"ops/refund""#),
            format!(r#"{refund}, resource in Placet::Adapter::"ops""#),
            r#"action in Placet::Action::"cap_destructive", resource == Placet::Tool::"ops/refund""#.to_owned(),
        ] {
            assert!(check(&scope).is_ok(), "{scope}");
        }
    }
}
