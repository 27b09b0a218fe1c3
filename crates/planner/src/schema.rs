//! The functions offered to the model: the plan's descriptions with the schemas that Placet knows (PL-01).
//!
//! Owns which tool a name from the model stands for, and the tool choice (PL-03). Not here: which tools exist.

use serde_json::{Map, Value, json};

use crate::plan::{Plan, ToolDescription};

/// A function for the model, and the tool of the run that it stands for.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) tool: String,
    pub(crate) definition: Value,
}

/// The tool choice of an iteration, from 0. A forced tool is called in the first one; otherwise the plan could never end.
pub(crate) fn choice(plan: &Plan, iteration: u32) -> Value {
    let auto = json!("auto");
    let choice = plan.tool_choice.clone().unwrap_or_else(|| auto.clone());
    if iteration == 0 || choice == json!("none") { choice } else { auto }
}

/// Whether a tool choice lets the model call this function.
pub(crate) fn may_call(choice: &Value, name: &str) -> bool {
    match choice.pointer("/function/name") {
        Some(only) => only == name,
        None => choice != "none",
    }
}

/// The functions of a plan whose run offers these: those described, or all.
pub(crate) fn functions(plan: &Plan, offered: &[Value]) -> Vec<Function> {
    if plan.tool_descriptions.is_empty() {
        let all = offered.iter().filter_map(|definition| {
            let name = name_of(definition)?.to_owned();
            Some(Function { tool: name.clone(), name, definition: definition.clone() })
        });
        return all.collect();
    }
    plan.tool_descriptions.iter().map(|described| function(described, offered)).collect()
}

fn function(described: &ToolDescription, offered: &[Value]) -> Function {
    let known = known(&described.name, offered);
    let tool = known.and_then(name_of).unwrap_or(&described.name).to_owned();
    let parameters = known.and_then(|known| known.pointer("/function/parameters"));
    let description = match described.description.as_str() {
        "" => known.and_then(|known| known.pointer("/function/description")).cloned(),
        text => Some(json!(text)),
    };
    let definition = json!({
        "type": "function",
        "function": {
            "name": described.name,
            "description": description.unwrap_or_default(),
            "parameters": parameters.cloned().unwrap_or_else(|| of_strings(&described.args)),
        },
    });
    Function { name: described.name.clone(), tool, definition }
}

/// The definition of a tool by its name, or by the part of it after `__` where only one has that.
fn known<'a>(name: &str, offered: &'a [Value]) -> Option<&'a Value> {
    let exact = offered.iter().find(|tool| name_of(tool) == Some(name));
    let suffix = format!("__{name}");
    let mut ends =
        offered.iter().filter(|tool| name_of(tool).is_some_and(|tool| tool.ends_with(&suffix)));
    exact.or_else(|| ends.next().filter(|_| ends.next().is_none()))
}

fn name_of(definition: &Value) -> Option<&str> {
    definition.pointer("/function/name").and_then(Value::as_str)
}

fn of_strings(args: &[String]) -> Value {
    let properties: Map<String, Value> =
        args.iter().map(|arg| (arg.clone(), json!({ "type": "string" }))).collect();
    json!({ "type": "object", "properties": properties, "required": args })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{choice, functions, may_call};
    use crate::plan::Plan;

    fn plan(more: &Value) -> Plan {
        let mut plan = json!({ "model": { "url": "http://127.0.0.1:1/v1", "name": "m" } });
        plan.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(plan).unwrap()
    }

    #[test]
    fn a_known_tool_has_its_own_schema_and_an_unknown_one_strings() {
        let schema = json!({ "type": "object", "properties": { "limit": { "type": "integer" } } });
        let offered = |name: &str| json!({ "type": "function", "function": { "name": name, "description": "d", "parameters": schema } });
        let offered = [offered("db__search_database"), offered("a__twice"), offered("b__twice")];
        let plan = plan(&json!({ "tool_descriptions": [
            { "name": "search_database", "description": "Search.", "args": ["query"] },
            { "name": "twice", "args": ["x", "y"] },
        ] }));
        let made = functions(&plan, &offered);
        assert_eq!(made[0].tool, "db__search_database");
        assert_eq!(made[0].definition["function"]["parameters"], schema);
        assert_eq!(made[0].definition["function"]["description"], "Search.");
        // It is ambiguous.
        assert_eq!(made[1].tool, "twice");
        let text = json!({ "type": "string" });
        let wanted = json!({ "type": "object", "properties": { "x": text, "y": text }, "required": ["x", "y"] });
        assert_eq!(made[1].definition["function"]["parameters"], wanted);
    }

    #[test]
    fn what_has_to_be_called_is_called_in_the_first_iteration() {
        let named = json!({ "type": "function", "function": { "name": "search" } });
        for (chosen, later) in [
            (json!("required"), "auto"),
            (named, "auto"),
            (json!("none"), "none"),
            (json!("auto"), "auto"),
        ] {
            let plan = plan(&json!({ "tool_choice": chosen }));
            assert_eq!((choice(&plan, 0), choice(&plan, 1)), (chosen, json!(later)));
        }
        assert_eq!(choice(&plan(&json!({})), 0), "auto");
    }

    #[test]
    fn nothing_but_what_was_chosen_may_be_called() {
        let named = json!({ "type": "function", "function": { "name": "search" } });
        assert!(may_call(&named, "search") && !may_call(&named, "drop"));
        assert!(!may_call(&json!("none"), "search"));
        assert!(may_call(&json!("auto"), "search") && may_call(&json!("required"), "search"));
    }
}
