//! Server-sent events: one call followed to its end, and what happens in the approval service ([`desk`]).
//!
//! Owns the stream's life: it starts with how the call stands, sends every change, comments while nothing changes, and ends
//! after the final answer, when its time is up or when the listeners close. Holds a place among the streams until then. Invariant: the last
//! event of a stream whose reader's token counts no more says so, and nothing that the reader may not see comes before it.

pub(crate) mod desk;

use std::{pin::Pin, time::Duration};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, stream};
use tokio::time::Instant;

use placet_engine::answer::Answer;
use placet_types::error::Refusal;

use crate::{
    answer,
    api::ApiState,
    backend::{Backend, Follow},
    problem::{Failure, json_bytes},
    streams::{About, Place},
};

/// How often in a row a call may say what it has said before; more often is a call that was forgotten.
const REPEATS_MAX: usize = 3;

/// The name of the last event of a stream whose reader's token counts no more. Its data are the problem document that they are answered
/// with from then on.
pub(crate) const ENDED: &str = "ended";

/// What resolves when a reader's token counts no more.
pub(crate) type Over = Pin<Box<dyn Future<Output = Refusal> + Send>>;

/// The last event of such a stream.
pub(crate) fn ended(failure: &Failure) -> Result<Event, axum::Error> {
    event(ENDED, json_bytes(failure.document()))
}

/// JSON as serde writes it has no line breaks and is UTF-8.
fn event(name: &'static str, data: Vec<u8>) -> Result<Event, axum::Error> {
    let data = String::from_utf8(data).map_err(axum::Error::new)?;
    Ok(Event::default().event(name).data(data))
}

/// How long one stream lives, and what ends it.
struct Follower<T, C> {
    ticket: T,
    sent: Option<Answer>,
    over: Over,
    is_over: bool,
    ends_at: Instant,
    closing: C,
    /// Free again when the stream is dropped.
    _place: Place,
}

/// The events of a call.
pub(crate) fn respond<B: Backend>(
    api: &ApiState<B>,
    caller: &B::Caller,
    ticket: B::Ticket,
) -> Result<Response, Failure> {
    let follower = Follower {
        ticket,
        sent: None,
        over: Box::pin(api.over(caller)),
        is_over: false,
        ends_at: api.stream_ends_at(),
        closing: Box::pin(api.closing()),
        _place: api.place(About::Call, caller)?,
    };
    let heartbeat =
        KeepAlive::new().interval(Duration::from_millis(api.config().heartbeat_ms)).text("alive");
    Ok(Sse::new(events(follower)).keep_alive(heartbeat).into_response())
}

fn events<T, C>(follower: Follower<T, C>) -> impl Stream<Item = Result<Event, axum::Error>>
where
    T: Follow,
    C: Future<Output = ()> + Unpin,
{
    stream::unfold(follower, |mut follower| async move {
        let next = match follower.next().await? {
            News::Of(answer) => {
                let (name, data) = answer::event(&answer);
                follower.sent = Some(answer);
                event(name, data)
            }
            News::Over(refusal) => {
                follower.is_over = true;
                ended(&Failure::of_wait(refusal, &follower.ticket.current()))
            }
        };
        Some((next, follower))
    })
}

enum News {
    Of(Answer),
    Over(Refusal),
}

impl<T: Follow, C: Future<Output = ()> + Unpin> Follower<T, C> {
    /// What to send next; none when the stream is at its end.
    async fn next(&mut self) -> Option<News> {
        if self.is_over {
            return None;
        }
        match &self.sent {
            None => Some(News::Of(self.ticket.current())),
            Some(sent) if sent.is_final() => None,
            Some(_) => {
                tokio::select! {
                    biased;
                    refusal = &mut self.over => Some(News::Over(refusal)),
                    answer = next_other(&mut self.ticket, self.sent.as_ref()) => answer.map(News::Of),
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
