//! A model whose answers are written down: a real server that speaks chat completions.
//!
//! Owns the order of its answers and what it was asked. What it answers is the test's to say, since no model can run here.

use std::{collections::VecDeque, sync::Arc};

use axum::{Json, Router, extract::State, http::HeaderMap, routing::post};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use url::Url;

use super::setup::local;

/// A request that the model got.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) authorization: String,
    pub(crate) body: Value,
}

/// A model that gives the answers of a script, and keeps what it was asked.
#[derive(Clone, Default)]
pub(crate) struct Model {
    answers: Arc<Mutex<VecDeque<Value>>>,
    /// What it answers to a request, where it has no script.
    thinks: Option<fn(&Value) -> Value>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Model {
    pub(crate) async fn start(answers: impl IntoIterator<Item = Value>) -> (Self, Url) {
        let model = Self::default();
        model.answers.lock().extend(answers);
        model.serve().await
    }

    /// One that answers the same to the same request, however often it is asked.
    pub(crate) async fn thinking(thinks: fn(&Value) -> Value) -> (Self, Url) {
        Self { thinks: Some(thinks), ..Self::default() }.serve().await
    }

    async fn serve(self) -> (Self, Url) {
        let model = self;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router =
            Router::new().route("/v1/chat/completions", post(answer)).with_state(model.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (model, local(port, "/v1"))
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }
}

async fn answer(
    State(model): State<Model>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Json<Value> {
    let authorization =
        headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let thought = model.thinks.map(|thinks| thinks(&body));
    model.asked.lock().push(Asked { authorization: authorization.unwrap_or_default(), body });
    let scripted = || model.answers.lock().pop_front().expect("the script has another answer");
    let message = thought.unwrap_or_else(scripted);
    let calls = message.get("tool_calls").is_some();
    let choice = json!({ "index": 0, "message": message, "finish_reason": if calls { "tool_calls" } else { "stop" } });
    Json(json!({
        "id": format!("chatcmpl-{}", model.asked.lock().len()), "object": "chat.completion", "created": 0,
        "model": "a-model", "choices": [choice], "usage": { "total_tokens": 100 },
    }))
}

/// An answer in words.
pub(crate) fn says(text: &str) -> Value {
    json!({ "role": "assistant", "content": text })
}
