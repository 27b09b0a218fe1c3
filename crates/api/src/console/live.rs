//! What happens in the approval service, to the open page: server-sent events that say to look again, never what is new.
//!
//! Owns the stream's life: it ends with its session, when its time is up and when the listeners close; where the person's sign-in counts no
//! more, with a last event at which the page looks again and says so. Holds a place among the streams until then. Invariant: following
//! is no sign of life of its person, so that a page left open ends its session as a closed one does.

use std::{convert::Infallible, pin::Pin, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, stream};
use placet_approvals::feed::EventFeed;
use tokio::{sync::watch, time::Instant};

use super::{
    ConsoleState,
    visitor::{Onlooker, Trouble},
};
use crate::{
    events::{Closing, ENDED, Over},
    streams::{About, Place},
};

/// How often the stream looks whether its session was ended on another node, or was unused too long.
const LOOK_EVERY: Duration = Duration::from_secs(15);

struct Follower {
    feed: EventFeed,
    ended_elsewhere: Pin<Box<dyn Future<Output = ()> + Send>>,
    over: Over,
    is_over: bool,
    ends_at: Instant,
    closing: Closing,
    alive: watch::Receiver<()>,
    /// Free again when the stream is dropped.
    _place: Place,
}

/// `GET /live`.
pub(super) async fn follow(
    State(app): State<ConsoleState>,
    Onlooker(visitor): Onlooker,
) -> Result<Response, Trouble> {
    let config = app.api.config();
    let (console, session) = (Arc::clone(&app.console), visitor.session);
    let ended_elsewhere = async move {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !console.sessions.is_there(session).await {
                return;
            }
        }
    };
    let follower = Follower {
        ended_elsewhere: Box::pin(ended_elsewhere),
        feed: app.api.engine.approvals().listen(&visitor.caller),
        over: Box::pin(app.api.engine.revoked(Arc::new(visitor.caller.clone()))),
        is_over: false,
        ends_at: app.api.stream_ends_at().min(visitor.ends_at),
        closing: Box::pin(app.api.closing()),
        alive: visitor.alive,
        _place: app.api.place(About::Approvals, &visitor.caller)?,
    };
    let heartbeat =
        KeepAlive::new().interval(Duration::from_millis(config.heartbeat_ms)).text("alive");
    Ok(Sse::new(events(follower)).keep_alive(heartbeat).into_response())
}

fn events(follower: Follower) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(follower, |mut follower| async move {
        let name = follower.next().await?;
        // Only that something happened: which page shows what is the page's affair.
        Some((Ok(Event::default().event(name).data("look")), follower))
    })
}

impl Follower {
    /// The name of the next event; none when the stream is at its end.
    async fn next(&mut self) -> Option<&'static str> {
        if self.is_over {
            return None;
        }
        tokio::select! {
            biased;
            _ = &mut self.over => {
                self.is_over = true;
                Some(ENDED)
            }
            event = self.feed.next() => match event {
                Some(_) => Some("approvals"),
                None if self.feed.is_over() => None,
                None => Some("behind"),
            },
            // The other end of this is dropped with the session.
            _ = self.alive.changed() => None,
            () = &mut self.ended_elsewhere => None,
            () = tokio::time::sleep_until(self.ends_at) => None,
            () = &mut self.closing => None,
        }
    }
}
