//! The Cedar schema: the fixed vocabulary, and one action for each tool, generated from the contracts.
//!
//! Owns the text and what is reported about tools whose input could not be typed. Invariant: every tool is in exactly one
//! `tier_*`, in `cap_*` for everything it does, and has an action `<tool>#lower`.

use std::collections::BTreeSet;

use cedar_policy::SchemaFragment;
use placet_types::{contract::Capability, ids::EnvironmentName, mode::ApprovalMode};

use crate::{
    history::HistoryShape,
    input::{self, InputType, TypedInput},
    vocabulary::lower_action,
};

const HEAD: &str = include_str!("schema_head.cedarschema");
const PRINCIPALS: &str = "[Agent, Service, Automation, User]";

/// The groups that hold a tool: its tier, and everything it does.
pub(crate) fn parents(capability: &Capability) -> Vec<String> {
    let does: BTreeSet<ApprovalMode> = capability
        .also
        .iter()
        .copied()
        .chain([capability.mode_highest])
        .filter(|mode| *mode != ApprovalMode::ReadOnly)
        .collect();
    let tier = format!("tier_{}", capability.mode_highest);
    std::iter::once(tier).chain(does.into_iter().map(|mode| format!("cap_{mode}"))).collect()
}

/// The input type of a tool, without fields that cannot appear in a schema.
pub(crate) fn typed_input(capability: &Capability) -> TypedInput {
    let mut typed = input::of_schema(&capability.input_schema);
    let Some(InputType::Record(fields)) = &mut typed.of else { return typed };
    if stands_in_schema(&InputType::Record(fields.clone())).is_err() {
        fields.retain(|name, field| {
            let alone = InputType::Record([(name.clone(), field.clone())].into());
            let stands = stands_in_schema(&alone);
            if let Err(error) = &stands {
                typed.lost.push(format!("/{name}: a name has no place in a Cedar schema: {error}"));
            }
            stands.is_ok()
        });
    }
    typed
}

fn stands_in_schema(of: &InputType) -> Result<(), String> {
    let alone = format!(
        "namespace Probe {{ entity E; action a appliesTo {{ principal: [E], resource: [E], context: {{ input: {} }} }}; }}",
        type_text(of)
    );
    SchemaFragment::from_cedarschema_str(&alone).map(drop).map_err(|error| error.to_string())
}

/// The schema over these tools, in this environment.
pub(crate) fn text<'a>(
    environment: &EnvironmentName,
    history: &HistoryShape,
    tools: impl IntoIterator<Item = (&'a Capability, Option<&'a InputType>)>,
) -> String {
    let environments: BTreeSet<&str> = ["dev", "staging", "prod", environment.as_str()].into();
    let listed: Vec<String> = environments.into_iter().map(|name| format!("\"{name}\"")).collect();
    let mut out = HEAD.replace("$ENVIRONMENTS", &listed.join(", "));
    out = out.replace("$HISTORY", &history.type_text());
    let mut empty: BTreeSet<String> = groups().collect();
    for (capability, input) in tools {
        push_tool(&mut out, capability, input);
        empty.remove("lower_mode");
        parents(capability).iter().for_each(|group| {
            empty.remove(group);
        });
    }
    empty.iter().for_each(|group| push_stand_in(&mut out, group));
    out.push_str("}\n");
    out
}

/// The groups that hold tools, and the one that holds lowering.
fn groups() -> impl Iterator<Item = String> {
    let tiers = ApprovalMode::ALL.into_iter().map(|mode| format!("tier_{mode}"));
    let does = ApprovalMode::ALL.into_iter().filter(|mode| *mode != ApprovalMode::ReadOnly);
    tiers.chain(does.map(|mode| format!("cap_{mode}"))).chain(["lower_mode".to_owned()])
}

/// An action that nobody can request, in a group that would be empty: else a policy about the group could never apply, would
/// not validate, and a bundle would have to be rewritten whenever the last tool of a kind goes or the first one comes.
fn push_stand_in(out: &mut String, group: &str) {
    let target = if group == "lower_mode" { ", mode_target: ApprovalMode" } else { "" };
    out.push_str(&format!(
        "\n  action \"#{group}\" in [{group}] appliesTo {{\n    principal: {PRINCIPALS}, resource: [Tool], context: {{ req: RequestContext{target} }}\n  }};\n",
    ));
}

fn push_tool(out: &mut String, capability: &Capability, input: Option<&InputType>) {
    let parents: Vec<String> =
        parents(capability).into_iter().map(|group| format!("\"{group}\"")).collect();
    let input = input.map_or_else(String::new, |of| format!(", input: {}", type_text(of)));
    out.push_str(&format!(
        "\n  action \"{id}\" in [{parents}] appliesTo {{\n    principal: {PRINCIPALS}, resource: [Tool],\n    context: {{ req: RequestContext{input} }}\n  }};\n",
        id = capability.id,
        parents = parents.join(", "),
    ));
    out.push_str(&format!(
        "  action \"{id}\" in [lower_mode] appliesTo {{\n    principal: {PRINCIPALS}, resource: [Tool],\n    context: {{ req: RequestContext, mode_target: ApprovalMode{input} }}\n  }};\n",
        id = lower_action(&capability.id),
    ));
}

/// A type as a Cedar schema writes it.
pub(crate) fn type_text(of: &InputType) -> String {
    match of {
        InputType::Text => "String".to_owned(),
        InputType::Long => "Long".to_owned(),
        InputType::Flag => "Bool".to_owned(),
        InputType::Decimal => "decimal".to_owned(),
        InputType::Set(item) => format!("Set<{}>", type_text(item)),
        InputType::Record(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, field)| {
                    let optional = if field.required { "" } else { "?" };
                    format!("\"{}\"{optional}: {}", name.escape_debug(), type_text(&field.of))
                })
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
    }
}
