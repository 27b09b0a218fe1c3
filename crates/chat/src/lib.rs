//! A client of OpenAI-compatible chat completions.
//!
//! Owns one request and its answer. Not here: what is said, and which host may be reached (`placet-egress`). Invariant: neither a key nor
//! a text of the endpoint reaches an error.

use std::fmt;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, header};
use placet_egress::{EgressClient, EgressError, join_segments};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use url::Url;

/// A message of the conversation, in the form of chat completions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text; absent where the model only calls tools.
    #[serde(default)]
    pub content: Option<String>,
    /// The calls of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// The call that a message of role `tool` answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A text in a role.
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        let content = Some(content.into());
        Self { role: role.to_owned(), content, tool_calls: None, tool_call_id: None }
    }
}

/// A tool call in a model's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its id; empty where the endpoint gives none.
    #[serde(default, deserialize_with = "text")]
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type", default = "function", deserialize_with = "kind")]
    pub kind: String,
    /// What is called.
    pub function: FunctionCall,
}

fn function() -> String {
    "function".to_owned()
}

/// Endpoints give `null` for what they leave out.
fn kind<'de, D: Deserializer<'de>>(given: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(given)?.unwrap_or_else(function))
}

fn text<'de, D: Deserializer<'de>>(given: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(given)?.unwrap_or_default())
}

/// The name and the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The function's name.
    pub name: String,
    /// The arguments, as JSON in a string.
    #[serde(default, deserialize_with = "text")]
    pub arguments: String,
}

/// A request to a model.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChatRequest<'a> {
    /// The conversation.
    pub messages: &'a [Message],
    /// The functions that it may call; without any, neither they nor the choice are sent.
    pub functions: &'a [Value],
    /// Which of them it may call: `auto`, `required`, `none` or one by name.
    pub tool_choice: Option<&'a Value>,
    /// The form of its answer: `{"type":"json_object"}`, or a JSON Schema.
    pub response_format: Option<&'a Value>,
}

/// An answer of the model.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The message.
    pub message: Message,
    /// Tokens of request and answer, as the endpoint counts them; 0 where it does not say.
    pub tokens: u64,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// The endpoint cannot be reached, or did not answer in time.
    #[error("the model cannot be reached: {0}")]
    Unreachable(#[from] EgressError),
    /// The endpoint refused.
    #[error("the model's endpoint answered with status {status}")]
    Refused {
        /// The status: 401 is a wrong key, 404 a wrong URL or model, 429 too many requests.
        status: u16,
    },
    /// The answer is not a chat completion.
    #[error("the model's endpoint answered with something that is no chat completion")]
    Malformed,
    /// The request cannot be formed.
    #[error("the request for the model cannot be formed")]
    Request,
}

#[derive(Serialize)]
struct Completing<'a> {
    model: &'a str,
    messages: &'a [Message],
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    tools: &'a [Value],
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<&'a Value>,
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Answer,
}

#[derive(Deserialize)]
struct Usage {
    total_tokens: Option<u64>,
}

/// The message of an answer, in every form that endpoints give it.
#[derive(Deserialize)]
struct Answer {
    role: Option<String>,
    content: Option<Content>,
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    Text {
        text: String,
    },
    /// What is no part of the answer, such as how the model came to it.
    #[serde(other)]
    Other,
}

impl Content {
    fn into_text(self) -> String {
        let parts = match self {
            Self::Text(text) => return text,
            Self::Parts(parts) => parts,
        };
        let text = |part| match part {
            Part::Text { text } => Some(text),
            Part::Other => None,
        };
        parts.into_iter().filter_map(text).collect()
    }
}

/// Reads an answer.
fn read(body: &[u8]) -> Result<Reply, ChatError> {
    let completion: Completion =
        serde_json::from_slice(body).map_err(|_other_form| ChatError::Malformed)?;
    let tokens = completion.usage.and_then(|usage| usage.total_tokens).unwrap_or_default();
    let answer = completion.choices.into_iter().next().ok_or(ChatError::Malformed)?.message;
    let Answer { role, content, tool_calls } = answer;
    if role.is_none() && content.is_none() && tool_calls.is_none() {
        return Err(ChatError::Malformed);
    }
    let message = Message {
        role: role.unwrap_or_else(|| "assistant".to_owned()),
        content: content.map(Content::into_text),
        tool_calls,
        tool_call_id: None,
    };
    Ok(Reply { message, tokens })
}

/// The client of one model.
#[derive(Clone)]
pub struct ChatClient {
    http: EgressClient,
    url: Url,
    model: String,
    credential: Option<(HeaderName, HeaderValue)>,
}

impl fmt::Debug for ChatClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatClient").field("model", &self.model).finish_non_exhaustive()
    }
}

impl ChatClient {
    /// A client for the model of this name at the endpoint `base`, which `http` has to allow.
    ///
    /// # Errors
    /// [`ChatError`] when the URL cannot hold a path.
    pub fn new(http: EgressClient, base: &Url, model: &str) -> Result<Self, ChatError> {
        let url = join_segments(base, &["chat", "completions"])?;
        Ok(Self { http, url, model: model.to_owned(), credential: None })
    }

    /// The same client, with a credential in this header.
    #[must_use]
    pub fn with_credential(mut self, name: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        self.credential = Some((name, value));
        self
    }

    /// Sends the conversation and reads the answer.
    ///
    /// # Errors
    /// [`ChatError`] when there is no answer.
    pub async fn complete(&self, asked: ChatRequest<'_>) -> Result<Reply, ChatError> {
        let has_functions = !asked.functions.is_empty();
        let body = Completing {
            model: &self.model,
            messages: asked.messages,
            tools: asked.functions,
            tool_choice: asked.tool_choice.filter(|_| has_functions),
            response_format: asked.response_format,
        };
        let body = serde_json::to_vec(&body).map_err(|_unwritable| ChatError::Request)?;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.url.as_str())
            .header(header::CONTENT_TYPE, "application/json");
        if let Some((name, value)) = &self.credential {
            request = request.header(name, value.clone());
        }
        let request = request.body(Bytes::from(body)).map_err(|_invalid| ChatError::Request)?;
        let response = self.http.send(request).await?;
        if !response.status().is_success() {
            return Err(ChatError::Refused { status: response.status().as_u16() });
        }
        read(response.body())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ChatError, Reply, read};

    fn reply(message: &Value, usage: &Value) -> Result<Reply, ChatError> {
        let body = json!({ "id": null, "choices": [{ "message": message }], "usage": usage });
        read(body.to_string().as_bytes())
    }

    #[test]
    fn what_an_answer_leaves_out_or_gives_as_null_has_a_default() {
        for message in [
            json!({ "content": "hi" }),
            json!({ "role": null, "content": "hi", "tool_calls": null }),
            json!({ "role": "assistant", "content": [{ "type": "text", "text": "h" }, { "type": "thinking", "thinking": [] }, { "type": "text", "text": "i" }] }),
        ] {
            for usage in [json!(null), json!({}), json!({ "total_tokens": null })] {
                let Reply { message, tokens } = reply(&message, &usage).unwrap();
                assert_eq!((message.role.as_str(), tokens), ("assistant", 0));
                assert_eq!(message.content.as_deref(), Some("hi"));
            }
        }
        let call =
            json!({ "id": null, "type": null, "function": { "name": "f", "arguments": null } });
        let message = json!({ "content": null, "tool_calls": [call] });
        let made = reply(&message, &json!({ "total_tokens": 7 })).unwrap();
        let call = &made.message.tool_calls.unwrap()[0];
        assert_eq!((call.id.as_str(), call.kind.as_str(), made.tokens), ("", "function", 7));
        assert_eq!(call.function.arguments, "");
        assert_eq!(made.message.content, None);
    }

    #[test]
    fn what_is_no_completion_is_refused() {
        for message in [
            json!(null),
            json!({}),
            json!({ "role": "assistant", "content": 7 }),
            json!({ "content": [{ "text": "no type" }] }),
            json!({ "content": null, "tool_calls": [{ "function": {} }] }),
        ] {
            assert!(
                matches!(reply(&message, &json!(null)), Err(ChatError::Malformed)),
                "{message}"
            );
        }
        for body in ["", "<html>", "{}", r#"{"choices":null}"#, r#"{"choices":[]}"#] {
            assert!(matches!(read(body.as_bytes()), Err(ChatError::Malformed)), "{body}");
        }
    }
}
