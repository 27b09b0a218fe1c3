//! A client of OpenAI-compatible chat completions.
//!
//! Owns one request and its answer. Not here: what is said, and which host may be reached (`placet-egress`). Invariant: neither a key nor
//! a text of the endpoint reaches an error.

use std::fmt;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, header};
use placet_egress::{EgressClient, EgressError, join_segments};
use serde::{Deserialize, Serialize};
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
    #[serde(default)]
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type", default = "function")]
    pub kind: String,
    /// What is called.
    pub function: FunctionCall,
}

fn function() -> String {
    "function".to_owned()
}

/// The name and the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The function's name.
    pub name: String,
    /// The arguments, as JSON in a string.
    #[serde(default)]
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
    #[serde(default)]
    usage: Usage,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
}

#[derive(Default, Deserialize)]
struct Usage {
    #[serde(default)]
    total_tokens: u64,
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
        let completion: Completion =
            serde_json::from_slice(response.body()).map_err(|_other_form| ChatError::Malformed)?;
        let tokens = completion.usage.total_tokens;
        let message = completion.choices.into_iter().next().ok_or(ChatError::Malformed)?.message;
        Ok(Reply { message, tokens })
    }
}
