//! The HTTP API as its callers see it: who is admitted, what is returned, and what nobody learns.

mod calls;
mod challenge;
mod coverage;
mod directives;
mod events;
mod manners;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;

use crate::testing::TestApi;

/// Opens a stream of events.
async fn follow(api: &TestApi, request: Request<Body>) -> Body {
    let response = api.open(request).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["cache-control"], "no-store");
    response.into_body()
}

/// The next piece of a stream; none at its end.
async fn frame(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap().into_data().unwrap();
    Some(String::from_utf8(frame.to_vec()).unwrap())
}
