//! The answer format of a model without function calling: one JSON object (PL-03, `use_function_calling`).
//!
//! Owns the instructions for such a model, and how its answers are parsed and kept. Not here: the loop.

use placet_chat::{FunctionCall, ToolCall};
use serde::Deserialize;
use serde_json::{Value, json};

/// The message to a model that answered in neither of the two forms.
pub(crate) const TOLD_AGAIN: &str =
    "Answer with one JSON object and nothing else, in the form that was described.";

/// The description of its tools and of its answer.
pub(crate) fn told(definitions: &[Value]) -> String {
    if definitions.is_empty() {
        return "Answer with one JSON object and nothing else: {\"answer\":\"TEXT\"}.".to_owned();
    }
    let functions: Vec<&Value> = definitions.iter().filter_map(|one| one.get("function")).collect();
    format!(
        "You have these tools, each with the JSON Schema of its arguments:\n{}\n\nAnswer with one JSON object and nothing else: \
         {{\"actions\":[{{\"tool\":\"NAME\",\"args\":{{}}}}]}} to call tools, or {{\"answer\":\"TEXT\"}} when you are done.",
        json!(functions)
    )
}

#[derive(Deserialize)]
struct Words {
    #[serde(default)]
    actions: Vec<Action>,
    #[serde(default)]
    answer: Option<String>,
}

#[derive(Deserialize)]
struct Action {
    tool: String,
    #[serde(default = "empty")]
    args: Value,
}

fn empty() -> Value {
    json!({})
}

/// The calls in an answer, or the final answer; `None` if it has neither form. Text around the object is ignored.
pub(crate) fn read(text: &str) -> Option<(Vec<ToolCall>, String)> {
    let object = text.get(text.find('{')?..=text.rfind('}')?)?;
    let Words { actions, answer } = serde_json::from_str(object).ok()?;
    if actions.is_empty() {
        return Some((Vec::new(), answer?));
    }
    let call = |Action { tool, args }| ToolCall {
        id: String::new(),
        kind: "function".to_owned(),
        function: FunctionCall { name: tool, arguments: args.to_string() },
    };
    Some((actions.into_iter().map(call).collect(), String::new()))
}

/// Calls as they appear in the model's conversation.
pub(crate) fn written(calls: &[ToolCall]) -> String {
    let action = |call: &ToolCall| {
        let args: Value = serde_json::from_str(&call.function.arguments).unwrap_or_default();
        json!({ "tool": call.function.name, "args": args })
    };
    json!({ "actions": calls.iter().map(action).collect::<Vec<_>>() }).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{read, told, written};

    #[test]
    fn without_tools_there_is_nothing_to_call() {
        assert!(!told(&[]).contains("actions"));
        assert!(told(&[json!({ "function": { "name": "find" } })]).contains("actions"));
    }

    #[test]
    fn an_answer_has_one_of_two_forms() {
        let (calls, _) =
            read("I look it up.\n{\"actions\":[{\"tool\":\"find\",\"args\":{\"n\":1}},{\"tool\":\"all\"}]}").unwrap();
        assert_eq!(calls[0].function.arguments, "{\"n\":1}");
        assert_eq!(calls[1].function.arguments, "{}");
        assert_eq!(written(&calls[..1]), "{\"actions\":[{\"tool\":\"find\",\"args\":{\"n\":1}}]}");
        assert_eq!(read("{\"answer\":\"two\"}").unwrap().1, "two");
        for neither in ["two", "{\"answer\":2}", "{\"actions\":[]}", "}{", "{\"actions\":7}"] {
            assert_eq!(read(neither), None, "{neither}");
        }
    }
}
