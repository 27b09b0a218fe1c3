//! Server-sent events: one call followed to its end, and what happens at the desk ([`desk`]).
//!
//! Owns the stream's life: it starts with how the call stands, sends every change, comments while nothing changes, and ends
//! after the final answer, when its time is up or when the doors close. Holds a place among the streams until then.

pub(crate) mod desk;

use std::time::Duration;

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, stream};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use placet_pipeline::answer::Answer;

use crate::{
    answer,
    backend::{Backend, Follow},
    door::Door,
    problem::Failure,
};

/// How often in a row a call may say what it has said before; more often is a call that was forgotten.
const REPEATS_MAX: usize = 3;

/// How long one stream lives, and what ends it.
struct Follower<T, C> {
    ticket: T,
    sent: Option<Answer>,
    ends_at: Instant,
    closing: C,
    /// Free again when the stream is dropped.
    _place: OwnedSemaphorePermit,
}

/// The events of a call.
pub(crate) fn respond<B: Backend>(
    door: &Door<B>,
    caller: &B::Caller,
    ticket: B::Ticket,
) -> Result<Response, Failure> {
    let follower = Follower {
        ticket,
        sent: None,
        ends_at: door.stream_ends_at(caller),
        closing: Box::pin(door.closing()),
        _place: door.stream_place()?,
    };
    let heartbeat =
        KeepAlive::new().interval(Duration::from_millis(door.config().heartbeat_ms)).text("alive");
    Ok(Sse::new(events(follower)).keep_alive(heartbeat).into_response())
}

fn events<T, C>(follower: Follower<T, C>) -> impl Stream<Item = Result<Event, axum::Error>>
where
    T: Follow,
    C: Future<Output = ()> + Unpin,
{
    stream::unfold(follower, |mut follower| async move {
        let answer = follower.next().await?;
        let (name, data) = answer::event(&answer);
        follower.sent = Some(answer);
        // JSON as serde writes it has no line breaks and is UTF-8.
        let event = String::from_utf8(data).map(|data| Event::default().event(name).data(data));
        Some((event.map_err(axum::Error::new), follower))
    })
}

impl<T: Follow, C: Future<Output = ()> + Unpin> Follower<T, C> {
    /// The next answer to send; none when the stream is at its end.
    async fn next(&mut self) -> Option<Answer> {
        match &self.sent {
            None => Some(self.ticket.current()),
            Some(sent) if sent.is_final() => None,
            Some(_) => {
                tokio::select! {
                    answer = next_other(&mut self.ticket, self.sent.as_ref()) => answer,
                    () = tokio::time::sleep_until(self.ends_at) => None,
                    () = &mut self.closing => None,
                }
            }
        }
    }
}

/// The next answer that says something else. None when the call only repeats itself: then nobody moves it any more.
async fn next_other(ticket: &mut impl Follow, sent: Option<&Answer>) -> Option<Answer> {
    for _ in 0..REPEATS_MAX {
        let answer = ticket.changed().await;
        if sent != Some(&answer) {
            return Some(answer);
        }
    }
    None
}
