//! What a model is offered at its next turn, in the form that it takes.
//!
//! Owns the forms of definitions and prompts (TS-03, TS-13). Everything in them is from contracts.

use placet_types::error::Refusal;
use serde_json::{Value, json};

use super::{
    names,
    offer::{Choice, Tool, Tools},
    state::Run,
    views::{FunctionChoice, RunTools, ToolChoice, ToolFormatting, ToolPrompt, ToolsFormat},
};
use crate::views::ToolView;

impl ToolsFormat {
    /// The name of a tool in definitions of this form.
    fn name(self, tool: &Tool) -> String {
        match self {
            Self::Openai => names::function_name(&tool.name()),
            Self::Mcp => tool.name(),
            // Its alias stands beside it.
            Self::Plain => tool.id.tool_name(),
        }
    }

    fn definition(self, tool: &Tool) -> Value {
        let name = self.name(tool);
        let (description, schema) = (&tool.description, &tool.input_schema);
        match self {
            Self::Openai => json!({
                "type": "function",
                "function": { "name": name, "description": description, "parameters": schema },
            }),
            Self::Mcp => {
                let mut defined =
                    json!({ "name": name, "description": description, "inputSchema": schema });
                if let (Some(output), Some(members)) =
                    (&tool.output_schema, defined.as_object_mut())
                {
                    members.insert("outputSchema".to_owned(), output.clone());
                }
                defined
            }
            Self::Plain => {
                serde_json::to_value(ToolView::of(tool, tool.is_aliased)).unwrap_or_default()
            }
        }
    }
}

/// A choice as callers write it.
pub(crate) fn choice_as(choice: &Choice, usable: &Tools, format: ToolsFormat) -> ToolChoice {
    match choice {
        Choice::Word(word) => ToolChoice::Word(*word),
        Choice::Only(id) => {
            let name = usable.get(id).map_or_else(|| id.tool_name(), |tool| format.name(tool));
            ToolChoice::Function(FunctionChoice::of(name))
        }
    }
}

/// The forced tools as callers write them: of those that the run has.
pub(crate) fn forced_as(run: &Run, offered: &Tools, format: ToolsFormat) -> Vec<FunctionChoice> {
    let forced = run.wanted.forced.iter().filter_map(|id| offered.get(id));
    forced.map(|tool| FunctionChoice::of(format.name(tool))).collect()
}

/// What the model of a run is offered at its next turn.
pub(crate) fn of_run(run: &Run, usable: &Tools, format: ToolsFormat) -> Result<RunTools, Refusal> {
    let offered = run.offered(usable);
    if format == ToolsFormat::Openai {
        names::functions(&offered)?;
    }
    let used = run.used.iter().filter_map(|id| usable.get(id));
    Ok(RunTools {
        run_id: run.request.run_id.clone(),
        iteration: run.iteration,
        format,
        tools: offered.values().map(|tool| format.definition(tool)).collect(),
        tool_choice: choice_as(&run.choice(&offered), usable, format),
        forced_tools: forced_as(run, &offered, format),
        prompts: offered.values().filter_map(|tool| prompt(tool, format)).collect(),
        formatting: used.filter_map(|tool| formatting(tool, format)).collect(),
    })
}

fn prompt(tool: &Tool, format: ToolsFormat) -> Option<ToolPrompt> {
    let said = tool.prompt.as_ref()?;
    let texts = [&said.when_to_use, &said.inputs, &said.outputs];
    if texts.iter().all(|text| text.is_empty()) && said.examples.is_empty() {
        return None;
    }
    Some(ToolPrompt {
        tool: format.name(tool),
        when_to_use: said.when_to_use.clone(),
        inputs: said.inputs.clone(),
        outputs: said.outputs.clone(),
        examples: said.examples.clone(),
    })
}

fn formatting(tool: &Tool, format: ToolsFormat) -> Option<ToolFormatting> {
    let formatting = tool.prompt.as_ref().map(|prompt| prompt.formatting.clone())?;
    (!formatting.is_empty()).then(|| ToolFormatting { tool: format.name(tool), formatting })
}
