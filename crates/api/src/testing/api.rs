//! The listeners of a test, without a socket, and what a test asks them.

use std::sync::Arc;

use axum::{Router, body::Body, response::Response};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::Fake;
use crate::{
    api::{ApiState, Phase},
    config::ServerConfig,
    console::ConsoleSettings,
    guard::Guard,
    router,
};

/// The API of a test, without a socket.
#[derive(Debug)]
pub(crate) struct TestApi {
    pub(crate) fake: Fake,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) router: Router,
    pub(crate) admin: Router,
}

/// What a test got.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Self { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The code of a problem document, whose form is checked on the way.
    pub(crate) fn code(&self) -> String {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{}",
            self.text()
        );
        let document = self.json();
        assert_eq!(document["status"], self.status.as_u16());
        document["error_code"].as_str().unwrap().to_owned()
    }
}

impl TestApi {
    pub(crate) fn new() -> Self {
        Self::with(Fake::new(), ServerConfig::default())
    }

    pub(crate) fn with(fake: Fake, config: ServerConfig) -> Self {
        Self::with_console(fake, config, None)
    }

    pub(crate) fn with_console(
        fake: Fake,
        config: ServerConfig,
        console: Option<ConsoleSettings>,
    ) -> Self {
        let (phase, watching) = watch::channel(Phase::Serving);
        let mut main =
            Guard::new(config.listen, &config.allowed_hosts, &config.allowed_origins).unwrap();
        if let Some(console) = &console {
            main = main.with_console(config.listen, console.public_url.as_ref()).unwrap();
        }
        let admin = Guard::new(config.admin_listen, &config.allowed_hosts, &config.allowed_origins)
            .unwrap();
        let api = ApiState::new(fake.clone(), Arc::new(config), watching);
        let (router, admin) =
            (router::router(&api, main, console), crate::admin::router(&api, admin, None));
        Self { fake, phase, router, admin }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        Reply::of(self.open(request).await).await
    }

    /// The response with its body still to be read.
    pub(crate) async fn open(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn ask_admin(&self, path: &str, host: &str) -> Reply {
        let request = Request::get(path).header("host", host).body(Body::empty()).unwrap();
        Reply::of(self.admin.clone().oneshot(request).await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(get(path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Body>) -> Reply {
        self.send(post(path, body)).await
    }
}

/// A GET of tenant-a.
pub(crate) fn get(path: &str) -> Request<Body> {
    let request = Request::get(path)
        .header("host", "localhost:7411")
        .header("authorization", "Bearer tenant-a");
    request.body(Body::empty()).unwrap()
}

/// A POST of tenant-a.
pub(crate) fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path)
        .header("host", "localhost:7411")
        .header("authorization", "Bearer tenant-a")
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

/// A call as a caller writes it.
pub(crate) fn submission() -> Value {
    json!({ "tool": "files__read", "args": { "path": "a.txt" }, "run": { "run_id": "run-1" } })
}
