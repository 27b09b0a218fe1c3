//! What a model is offered at its next turn, in the form that it takes.
//!
//! Owns the forms of definitions and prompts (TS-03, TS-13). Everything in them is from contracts.

use placet_types::{contract::Capability, error::Refusal, ids::CapabilityId};
use serde_json::{Value, json};

use super::{
    names,
    offer::{Choice, Tools},
    state::Run,
    views::{FunctionChoice, RunTools, ToolChoice, ToolFormatting, ToolPrompt, ToolsFormat},
};
use crate::views::ToolView;

impl ToolsFormat {
    /// The name of a tool in definitions of this form.
    fn name(self, id: &CapabilityId) -> String {
        match self {
            Self::Openai => names::function_name(id),
            Self::Mcp | Self::Plain => id.tool_name(),
        }
    }

    fn definition(self, capability: &Capability) -> Value {
        let name = self.name(&capability.id);
        let (description, schema) = (&capability.description, &capability.input_schema);
        match self {
            Self::Openai => json!({
                "type": "function",
                "function": { "name": name, "description": description, "parameters": schema },
            }),
            Self::Mcp => {
                let mut tool =
                    json!({ "name": name, "description": description, "inputSchema": schema });
                if let (Some(output), Some(members)) =
                    (&capability.output_schema, tool.as_object_mut())
                {
                    members.insert("outputSchema".to_owned(), output.clone());
                }
                tool
            }
            Self::Plain => serde_json::to_value(ToolView::of(capability)).unwrap_or_default(),
        }
    }
}

/// A choice as callers write it.
pub(crate) fn choice_as(choice: &Choice, format: ToolsFormat) -> ToolChoice {
    match choice {
        Choice::Word(word) => ToolChoice::Word(*word),
        Choice::Only(id) => ToolChoice::Function(FunctionChoice::of(format.name(id))),
    }
}

/// The forced tools as callers write them: of those that the run has.
pub(crate) fn forced_as(run: &Run, offered: &Tools, format: ToolsFormat) -> Vec<FunctionChoice> {
    let forced = run.wanted.forced.iter().filter(|id| offered.contains_key(id));
    forced.map(|id| FunctionChoice::of(format.name(id))).collect()
}

/// What the model of a run is offered at its next turn.
///
/// # Errors
/// A refusal where two tools have one name in this form.
pub(crate) fn of_run(run: &Run, usable: &Tools, format: ToolsFormat) -> Result<RunTools, Refusal> {
    let offered = run.offered(usable);
    if format == ToolsFormat::Openai {
        names::functions(offered.keys())?;
    }
    let used = run.used.iter().filter_map(|id| usable.get(id));
    Ok(RunTools {
        run_id: run.request.run_id.clone(),
        iteration: run.iteration,
        format,
        tools: offered.values().map(|capability| format.definition(capability)).collect(),
        tool_choice: choice_as(&run.wanted.choice_at(run.iteration), format),
        forced_tools: forced_as(run, &offered, format),
        prompts: offered.values().filter_map(|one| prompt(one, format)).collect(),
        formatting: used.filter_map(|capability| formatting(capability, format)).collect(),
    })
}

fn prompt(capability: &Capability, format: ToolsFormat) -> Option<ToolPrompt> {
    let said = &capability.offering.prompt;
    let texts = [&said.when_to_use, &said.inputs, &said.outputs];
    if texts.iter().all(|text| text.is_empty()) && said.examples.is_empty() {
        return None;
    }
    Some(ToolPrompt {
        tool: format.name(&capability.id),
        when_to_use: said.when_to_use.clone(),
        inputs: said.inputs.clone(),
        outputs: said.outputs.clone(),
        examples: said.examples.clone(),
    })
}

fn formatting(capability: &Capability, format: ToolsFormat) -> Option<ToolFormatting> {
    let formatting = capability.offering.prompt.formatting.clone();
    (!formatting.is_empty())
        .then(|| ToolFormatting { tool: format.name(&capability.id), formatting })
}
