//! A model that makes up the result of a tool (EN-03): for agents that are developed or tested without the real systems.
//!
//! Owns the prompt, and the check of the model's answer. The session's earlier calls are its examples, so that a simulated world is
//! consistent. Invariant: nothing is done, so no outcome is ever unknown; an answer in another form than the contract declares is a failed
//! call.

use std::{collections::BTreeMap, sync::Arc};

use placet_adapter::{
    adapter::{Conditions, Dispatch, Example},
    outcome::{AdapterError, Answer, Outcome, cut},
};
use placet_chat::{ChatClient, ChatError, ChatRequest, Message};
use placet_types::{
    argument_schema::ArgumentSchema,
    contract::{Capability, Contract},
    ids::{CapabilityId, CapabilityName},
};
use serde_json::{Map, Value, json};

use crate::target::Target;

/// The most earlier calls in the prompt, and their total size, in bytes; the oldest are left out.
const EXAMPLES_MAX: usize = 32;
const EXAMPLES_BYTES_MAX: usize = 128 * 1024;
/// How much of an unusable answer is kept.
const UNUSABLE_BYTES_MAX: usize = 2_000;

const TOLD: &str = "You simulate tools, so that agents can be developed without the real ones. You are given the definition of a tool \
    and a call of it. Answer with the result that the tool would give, as one JSON object and nothing else. The result is realistic, \
    successful, consistent with all results before it, and valid against `output_schema` where the definition has one.";

/// A model, and the schemas of its results.
#[derive(Debug)]
pub(crate) struct Lm {
    target: Target,
    client: ChatClient,
    contract: Arc<Contract>,
    outputs: BTreeMap<CapabilityName, ArgumentSchema>,
}

impl Lm {
    /// The model of a contract.
    ///
    /// # Errors
    /// [`AdapterError::Misconfigured`] when an output schema cannot be checked.
    pub(crate) fn new(
        target: Target,
        model: &str,
        contract: &Arc<Contract>,
    ) -> Result<Self, AdapterError> {
        let misconfigured =
            |what: &dyn std::fmt::Display| AdapterError::Misconfigured(what.to_string());
        let client = ChatClient::new(target.client.clone(), &target.url, model)
            .map_err(|error| misconfigured(&error))?;
        let schemas =
            contract.capabilities.iter().filter_map(|(name, capability)| {
                let schema = ArgumentSchema::compile(capability.output_schema.as_ref()?);
                Some(schema.map(|schema| (name.clone(), schema)).map_err(|error| {
                    misconfigured(&format!("`output_schema` of `{name}`: {error}"))
                }))
            });
        let outputs = schemas.collect::<Result<_, _>>()?;
        Ok(Self { target, client, contract: Arc::clone(contract), outputs })
    }

    /// Makes up the result of a call.
    pub(crate) async fn simulate(
        &self,
        capability: &Capability,
        dispatch: &Dispatch,
        conditions: &Conditions,
    ) -> Outcome {
        let client = match &conditions.credential {
            Some(credential) => match self.target.header(credential) {
                Ok((name, value)) => self.client.clone().with_credential(name, value),
                Err(error) => return Outcome::NotExecuted(error),
            },
            None => self.client.clone(),
        };
        let messages = self.messages(&capability.id, dispatch.args(), &conditions.examples);
        let format = match &capability.output_schema {
            Some(schema) => {
                json!({ "type": "json_schema", "json_schema": { "name": "result", "schema": schema } })
            }
            None => json!({ "type": "json_object" }),
        };
        let asked = ChatRequest {
            messages: &messages,
            response_format: Some(&format),
            ..ChatRequest::default()
        };
        match client.complete(asked).await {
            Ok(reply) => self.outcome(capability, &reply.message.content.unwrap_or_default()),
            Err(error) => refused(&error),
        }
    }

    fn outcome(&self, capability: &Capability, text: &str) -> Outcome {
        let failed = |why: String| failed(&why, &[cut(text.to_owned(), UNUSABLE_BYTES_MAX)]);
        let Ok(result @ Value::Object(_)) = serde_json::from_str::<Value>(text) else {
            return failed("the simulated result is no JSON object".to_owned());
        };
        let schema = self.outputs.get(capability.id.capability());
        if let Some(Err(problems)) = schema.map(|schema| schema.validate(&result)) {
            let places: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return failed(format!(
                "the simulated result does not fit its schema: {}",
                places.join("; ")
            ));
        }
        let output = json!({ "content": [{ "type": "text", "text": result.to_string() }], "structured": result });
        Outcome::Done(Answer { output, ..Answer::default() })
    }

    /// The conversation: each earlier call of the session with its result, and the call.
    fn messages(
        &self,
        capability: &CapabilityId,
        args: &Map<String, Value>,
        examples: &[Example],
    ) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut bytes = 0_usize;
        for example in examples.iter().rev().take(EXAMPLES_MAX) {
            let result = Message::new("assistant", example.result.to_string());
            let asked = Message::new("user", self.asked(&example.capability, &example.args));
            let length = |message: &Message| message.content.as_ref().map_or(0, String::len);
            bytes = bytes.saturating_add(length(&result)).saturating_add(length(&asked));
            if bytes > EXAMPLES_BYTES_MAX {
                break;
            }
            messages.extend([result, asked]);
        }
        messages.push(Message::new("system", TOLD));
        messages.reverse();
        messages.push(Message::new("user", self.asked(capability, args)));
        messages
    }

    /// A call with the definition of its tool, if that is in this contract.
    fn asked(&self, id: &CapabilityId, args: &Map<String, Value>) -> String {
        let ours = (*id.adapter() == self.contract.adapter)
            .then(|| self.contract.capabilities.get(id.capability()))
            .flatten();
        let tool = match ours {
            Some(capability) => json!({
                "name": id.tool_name(), "description": capability.description,
                "input_schema": capability.input_schema, "output_schema": capability.output_schema,
            }),
            None => json!({ "name": id.tool_name() }),
        };
        json!({ "tool": tool, "call": args }).to_string()
    }
}

/// What a request without an answer means for the call: another attempt helps only where the endpoint cannot answer at present.
fn refused(error: &ChatError) -> Outcome {
    let why = error.to_string();
    match error {
        ChatError::Refused { status: 401 } => {
            Outcome::NotExecuted(AdapterError::CredentialRefused(why))
        }
        ChatError::Refused { status: 403 } => Outcome::NotExecuted(AdapterError::Forbidden(why)),
        ChatError::Refused { status: 429 | 500.. } | ChatError::Unreachable(_) => {
            Outcome::NotExecuted(AdapterError::Unavailable(why))
        }
        ChatError::Request => Outcome::NotExecuted(AdapterError::Refused(why)),
        ChatError::Refused { .. } | ChatError::Malformed => failed(&why, &[]),
    }
}

fn failed(why: &str, notes: &[String]) -> Outcome {
    let output = json!({ "content": [{ "type": "text", "text": why }], "notes": notes });
    Outcome::Failed(Answer { output, ..Answer::default() })
}

#[cfg(test)]
mod tests {
    use placet_adapter::outcome::{AdapterError, Outcome};
    use placet_chat::ChatError;

    use super::refused;

    #[test]
    fn only_an_endpoint_that_cannot_answer_now_is_unavailable() {
        let at = |status| refused(&ChatError::Refused { status });
        for status in [429, 500, 503, 529] {
            let outcome = at(status);
            assert!(
                matches!(outcome, Outcome::NotExecuted(AdapterError::Unavailable(_))),
                "{status}"
            );
        }
        assert!(matches!(at(401), Outcome::NotExecuted(AdapterError::CredentialRefused(_))));
        assert!(matches!(at(403), Outcome::NotExecuted(AdapterError::Forbidden(_))));
        for status in [304, 400, 404, 422] {
            let Outcome::Failed(answer) = at(status) else { panic!("{status}") };
            assert!(answer.output.to_string().contains(&status.to_string()), "{answer:?}");
        }
        assert!(matches!(refused(&ChatError::Malformed), Outcome::Failed(_)));
    }
}
