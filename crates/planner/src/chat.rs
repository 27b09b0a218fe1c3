//! A client of OpenAI-compatible chat completions.
//!
//! Owns one request and its answer. Not here: what is said. Invariant: neither the key nor a text of the endpoint reaches an error.

use std::fmt;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use placet_egress::{
    Destination, EgressClient, EgressError, EgressPolicy, Limits, PrivateRanges, join_segments,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use crate::plan::Model;

/// A model may think for long.
const REQUEST_MS_MAX: u64 = 300_000;

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
    pub(crate) fn new(role: &str, content: impl Into<String>) -> Self {
        let content = Some(content.into());
        Self { role: role.to_owned(), content, tool_calls: None, tool_call_id: None }
    }
}

/// A call as a model answers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its id; made where the endpoint gives none.
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

/// An answer of the model.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) message: Message,
    /// Tokens of request and answer, as the endpoint counts them; 0 where it does not say.
    pub(crate) tokens: u64,
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
    /// What was answered is no chat completion.
    #[error("the model's endpoint answered with something that is no chat completion")]
    Malformed,
    /// The key has characters that no header has.
    #[error("the model's key cannot be sent")]
    Key,
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
    url: Url,
    model: String,
    key: Option<HeaderValue>,
    http: EgressClient,
}

impl fmt::Debug for ChatClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatClient").field("model", &self.model).finish_non_exhaustive()
    }
}

impl ChatClient {
    /// A client for `model` with this key, if there is one.
    ///
    /// # Errors
    /// [`ChatError`] when the URL or the key cannot be used.
    pub fn new(model: &Model, key: Option<&SecretString>) -> Result<Self, ChatError> {
        // The author of the plan named the host, so it may be a private one.
        let destination = Destination::from_url(&model.url, PrivateRanges::Allowed)?;
        let limits = Limits { request_timeout_ms: REQUEST_MS_MAX, ..Limits::default() };
        let key = key.map(|key| {
            let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose_secret().trim()))
                .map_err(|_not_a_header| ChatError::Key)?;
            value.set_sensitive(true);
            Ok::<_, ChatError>(value)
        });
        Ok(Self {
            url: join_segments(&model.url, &["chat", "completions"])?,
            model: model.name.clone(),
            key: key.transpose()?,
            http: EgressClient::new(EgressPolicy::new(vec![destination]), limits)?,
        })
    }

    /// Sends the conversation, and the functions where there are some, and reads the answer.
    pub(crate) async fn complete(
        &self,
        messages: &[Message],
        functions: &[Value],
        tool_choice: &Value,
    ) -> Result<Reply, ChatError> {
        let has_tools = !functions.is_empty();
        let body = Completing {
            model: &self.model,
            messages,
            tools: functions,
            tool_choice: has_tools.then_some(tool_choice),
        };
        let body = serde_json::to_vec(&body).map_err(|_unwritable| ChatError::Request)?;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.url.as_str())
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, key.clone());
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
