//! Attributes that a policy asks for with `has` and that no call in its scope can have.
//!
//! Owns the search and the advice. To Cedar, `has` of an attribute that is not declared is false and no error: a misspelt name would turn
//! off the part of a condition that depends on it, and a gate or a forbid with it.

use std::collections::BTreeSet;

use cedar_policy::{ActionConstraint, Policy, PolicyId, PolicySet, SchemaFragment};
use serde_json::{Map, Value};

use super::{
    compile::{internal, line_at, place_of},
    literals::nearest,
};
use crate::{
    annotations::PolicyMeta,
    bundle::{BundleProblem, BundleSource},
};

/// How deep action groups nest, and types name each other.
const DEPTH_MAX: u32 = 8;

/// A `has`: an attribute of something in the context.
struct Asked<'a> {
    /// The attributes that lead from the context to where it is looked for.
    path: Vec<&'a str>,
    attribute: &'a str,
}

/// Everything that policies ask for and that nothing has.
pub(super) fn check(
    source: &BundleSource,
    set: &PolicySet,
    policies: &[PolicyMeta],
    schema: SchemaFragment,
) -> Result<(), Vec<BundleProblem>> {
    let schema = schema.to_json_value().map_err(internal)?;
    let Some(namespace) = schema.as_object().and_then(|all| all.values().next()) else {
        return Err(internal("the schema is empty"));
    };
    let declared = Declared(namespace);
    let mut problems = Vec::new();
    for policy in set.policies() {
        let is_its = |meta: &&PolicyMeta| PolicyId::new(&meta.id) == *policy.id();
        let (Some(meta), Ok(json)) = (policies.iter().find(is_its), policy.to_json()) else {
            continue;
        };
        let mut asked = Vec::new();
        look(json.get("conditions").unwrap_or(&Value::Null), &mut asked);
        asked.retain(|one| !declared.some_have(policy, one));
        problems.extend(asked.iter().map(|one| declared.problem(policy, one, meta, source)));
    }
    problems.sort();
    problems.dedup();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Every `has` about the context.
fn look<'a>(value: &'a Value, found: &mut Vec<Asked<'a>>) {
    match value {
        Value::Object(fields) => {
            if let Some(has) = fields.get("has")
                && let Some(mut path) = has.get("left").and_then(path_of)
            {
                // `has a.b` asks for `a`, then for `b` of it.
                for attribute in names_in(has.get("attr").unwrap_or(&Value::Null)) {
                    found.push(Asked { path: path.clone(), attribute });
                    path.push(attribute);
                }
            }
            fields.values().for_each(|inner| look(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| look(inner, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// One name, or several in a row.
fn names_in(attribute: &Value) -> impl Iterator<Item = &str> {
    let several = attribute.as_array().into_iter().flatten().filter_map(Value::as_str);
    attribute.as_str().into_iter().chain(several)
}

/// The attributes from the context to an expression; `None`: it is about something else.
fn path_of(expression: &Value) -> Option<Vec<&str>> {
    if expression.get("Var").and_then(Value::as_str) == Some("context") {
        return Some(Vec::new());
    }
    let access = expression.get(".")?;
    let mut path = path_of(access.get("left")?)?;
    path.push(access.get("attr")?.as_str()?);
    Some(path)
}

/// The schema, in its JSON form.
struct Declared<'a>(&'a Value);

impl<'a> Declared<'a> {
    fn actions(&self) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        self.0.get("actions").and_then(Value::as_object).into_iter().flatten()
    }

    /// The actions in a policy's scope with their contexts.
    fn contexts(&self, policy: &Policy) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let constraint = policy.action_constraint();
        let wanted: Option<BTreeSet<String>> = match constraint {
            ActionConstraint::Any => None,
            ActionConstraint::Eq(action) => Some([action.id().unescaped().to_owned()].into()),
            ActionConstraint::In(actions) => {
                Some(actions.iter().map(|action| action.id().unescaped().to_owned()).collect())
            }
        };
        let in_scope = self.actions().filter(move |(name, _)| {
            wanted.as_ref().is_none_or(|wanted| self.is_in(name, wanted, DEPTH_MAX))
        });
        in_scope.filter_map(|(name, action)| Some((name, action.pointer("/appliesTo/context")?)))
    }

    fn is_in(&self, action: &str, wanted: &BTreeSet<String>, depth: u32) -> bool {
        if wanted.contains(action) {
            return true;
        }
        let Some(depth) = depth.checked_sub(1) else { return false };
        let groups = self.0.get("actions").and_then(|all| all.get(action)?.get("memberOf"));
        let mut groups = groups.and_then(Value::as_array).into_iter().flatten();
        groups.any(|group| {
            let name = group.get("id").and_then(Value::as_str);
            name.is_some_and(|name| self.is_in(name, wanted, depth))
        })
    }

    /// The attributes of a type; `None`: it has none.
    fn attributes(&self, of: &'a Value, depth: u32) -> Option<&'a Map<String, Value>> {
        if let Some(attributes) = of.get("attributes") {
            return attributes.as_object();
        }
        let depth = depth.checked_sub(1)?;
        let name = of.get("name").or_else(|| of.get("type"))?.as_str()?;
        let name = name.rsplit("::").next()?;
        let common = self.0.get("commonTypes").and_then(|types| types.get(name));
        let entity = || self.0.get("entityTypes").and_then(|types| types.get(name)?.get("shape"));
        self.attributes(common.or_else(entity)?, depth)
    }

    /// The attributes of what is looked at, in a context.
    fn at(&self, context: &'a Value, path: &[&str]) -> Option<&'a Map<String, Value>> {
        path.iter().try_fold(self.attributes(context, DEPTH_MAX)?, |at, name| {
            self.attributes(at.get(*name)?, DEPTH_MAX)
        })
    }

    /// Whether a call in the policy's scope can have it. What is behind something that nothing has is not judged, and nothing is known of
    /// arguments where the scope has no tool at present.
    fn some_have(&self, policy: &Policy, asked: &Asked<'_>) -> bool {
        let of_input = *asked.path.first().unwrap_or(&asked.attribute) == "input";
        let mut is_reached = false;
        let some = self.contexts(policy).any(|(_, context)| {
            let attributes = self.at(context, &asked.path);
            is_reached |= attributes.is_some();
            attributes.is_some_and(|attributes| attributes.contains_key(asked.attribute))
        });
        let mut names = self.contexts(policy).map(|(name, _)| name);
        some || !is_reached || (of_input && names.all(|name| name.starts_with('#')))
    }

    fn problem(
        &self,
        policy: &Policy,
        asked: &Asked<'_>,
        meta: &PolicyMeta,
        source: &BundleSource,
    ) -> BundleProblem {
        let Asked { path, attribute } = asked;
        let there = self.contexts(policy).filter_map(|(_, context)| self.at(context, path));
        let names: BTreeSet<String> = there.flat_map(Map::keys).cloned().collect();
        let near = nearest(attribute, &names).map(|near| format!("did you mean `{near}`?"));
        let is_input = path.first() == Some(&"input");
        let (message, otherwise) = if is_input {
            (
                format!("no tool in its scope has an argument `{attribute}` that policies see"),
                "declare it in the contract, with one type, or leave the condition out",
            )
        } else {
            let of = [&["context"], path.as_slice()].concat().join(".");
            (format!("`{of}` has no attribute `{attribute}`"), "leave the condition out")
        };
        let file = source.files.iter().find(|file| file.name == meta.file);
        let line = file.and_then(|file| {
            let start = place_of(&file.text, &meta.text)?;
            let within = meta.text.find(&format!("has {attribute}"));
            let within = within.or_else(|| meta.text.find(*attribute))?;
            Some(line_at(&file.text, start.saturating_add(within)))
        });
        BundleProblem {
            file: meta.file.clone(),
            line: line.or(meta.line),
            policy: Some(meta.id.clone()),
            ..BundleProblem::of_bundle(message)
        }
        .with_help(near.unwrap_or_else(|| otherwise.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use placet_types::{contract::Contract, mode::ApprovalMode};

    use crate::testing::{bundle, compile, world};

    #[test]
    fn an_attribute_that_no_call_can_have_is_refused_with_the_nearest() {
        for (condition, message, help) in [
            ("context.input has cetns", "no tool in its scope has an argument `cetns`", "`cents`"),
            ("!(context.input has cetns)", "`cetns`", "`cents`"),
            ("context.req has aproval", "`context.req` has no attribute `aproval`", "approval"),
            ("context.req.budget has cents", "`context.req.budget` has no attribute", "cents_left"),
            ("context has input.cetns", "`cetns`", "`cents`"),
            ("context.req has budgte.cents_left", "`budgte`", "`budget`"),
            ("context has inptu", "`context` has no attribute `inptu`", "input"),
        ] {
            let text = format!(
                "@id(\"p\") permit (principal is Placet::Agent, action == Placet::Action::\"ops/refund\", resource is Placet::Tool)\nwhen {{\n  principal.active || ({condition}) }};"
            );
            let problems = compile(&bundle(&text), &world()).unwrap_err();
            assert_eq!(problems.len(), 1, "{problems:#?}");
            let problem = &problems[0];
            assert_eq!(problem.line, Some(3), "{problem}");
            assert!(problem.message.contains(message), "{problem}");
            assert!(problem.help.as_ref().unwrap().contains(help), "{problem}");
        }
    }

    #[test]
    fn an_attribute_that_some_tool_in_scope_has_may_be_asked_for() {
        for scope in
            ["action == Placet::Action::\"ops/refund\"", "action in Placet::Action::\"call_tool\""]
        {
            let text = format!(
                "@id(\"p\") @approval(\"never\") forbid (principal is Placet::Agent, {scope}, resource is Placet::Tool)\nwhen {{ context has input && context.input has cents && context.req has break_glass }};"
            );
            let problems = compile(&bundle(&text), &world()).map(drop);
            assert_eq!(problems, Ok(()));
        }
        // Of a kind of tool that does not exist now, nobody knows the arguments.
        let text = "@id(\"p\") @approval(\"never\") forbid (principal is Placet::Agent, action in Placet::Action::\"tier_network\", resource is Placet::Tool)\nunless { context has input.host && context.input.host == \"a\" };";
        let mut world = world();
        let known = compile(&bundle(text), &world).map(drop);
        assert!(known.unwrap_err()[0].message.contains("`host`"));
        let mut contract = Contract::clone(&world.contracts[0]);
        contract.capabilities.retain(|_, tool| tool.mode_highest != ApprovalMode::Network);
        world.contracts = vec![Arc::new(contract)];
        assert_eq!(compile(&bundle(text), &world).map(drop), Ok(()));
    }
}
