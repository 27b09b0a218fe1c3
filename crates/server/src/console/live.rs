//! What happens at the desk, to the open page: server-sent events that say to look again, never what is new.
//!
//! Owns the stream's life: it ends with its session, when its time is up and when the doors close. Holds a place among the streams until
//! then.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, stream};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::Instant,
};

use super::{
    Desk,
    visitor::{Trouble, Visitor},
};
use crate::backend::{Backend, Feed};

struct Follower<F, C> {
    feed: F,
    ends_at: Instant,
    closing: C,
    alive: watch::Receiver<()>,
    /// Free again when the stream is dropped.
    _place: OwnedSemaphorePermit,
}

/// `GET /live`.
pub(super) async fn follow<B: Backend>(
    State(desk): State<Desk<B>>,
    visitor: Visitor<B::Caller>,
) -> Result<Response, Trouble> {
    let config = desk.door.config();
    let lifetime = Duration::from_millis(config.stream_ms_max);
    let longest = Instant::now().checked_add(lifetime).unwrap_or_else(Instant::now);
    let follower = Follower {
        feed: desk.door.backend.desk_events(&visitor.caller),
        ends_at: longest.min(visitor.ends_at),
        closing: Box::pin(desk.door.closing()),
        alive: visitor.alive,
        _place: desk.door.stream_place()?,
    };
    let heartbeat =
        KeepAlive::new().interval(Duration::from_millis(config.heartbeat_ms)).text("alive");
    Ok(Sse::new(events(follower)).keep_alive(heartbeat).into_response())
}

fn events<F, C>(follower: Follower<F, C>) -> impl Stream<Item = Result<Event, Infallible>>
where
    F: Feed,
    C: Future<Output = ()> + Unpin,
{
    stream::unfold(follower, |mut follower| async move {
        let name = follower.next().await?;
        // Only that something happened: which page shows what is the page's affair.
        Some((Ok(Event::default().event(name).data("look")), follower))
    })
}

impl<F: Feed, C: Future<Output = ()> + Unpin> Follower<F, C> {
    /// The name of the next event; none when the stream is at its end.
    async fn next(&mut self) -> Option<&'static str> {
        tokio::select! {
            event = self.feed.next() => match event {
                Some(_) => Some("desk"),
                None if self.feed.is_over() => None,
                None => Some("behind"),
            },
            // The other end of this is dropped with the session.
            _ = self.alive.changed() => None,
            () = tokio::time::sleep_until(self.ends_at) => None,
            () = &mut self.closing => None,
        }
    }
}
