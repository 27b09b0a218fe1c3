//! Server-sent events: one call followed to its end, and what happens in the approval service ([`directives`]).
//!
//! Owns the stream's life: it starts with how the call stands, sends every change, comments while nothing changes, and ends
//! after the final answer, when its time is up or when the listeners close. Holds a place among the streams until then. Invariant: the last
//! event of a stream whose reader's token counts no more says so, and nothing that the reader may not see comes before it.

pub(crate) mod approvals;

use std::{pin::Pin, time::Duration};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, stream};
use tokio::time::Instant;

use placet_engine::{answer::Answer, ticket::Ticket};
use placet_identity::VerifiedCaller;
use placet_types::error::Refusal;

use crate::{
    answer,
    api::ApiState,
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

/// What resolves when the listeners are asked to close.
pub(crate) type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

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
struct Follower {
    ticket: Ticket,
    sent: Sent,
    over: Over,
    is_over: bool,
    ends_at: Instant,
    closing: Closing,
    /// Free again when the stream is dropped.
    _place: Place,
}

/// The events of a call.
pub(crate) fn respond(
    api: &ApiState,
    caller: &VerifiedCaller,
    ticket: Ticket,
) -> Result<Response, Failure> {
    let follower = Follower {
        ticket,
        sent: Sent::default(),
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

fn events(follower: Follower) -> impl Stream<Item = Result<Event, axum::Error>> {
    stream::unfold(follower, |mut follower| async move {
        let next = match follower.next().await? {
            News::Of(answer) => {
                let (name, data) = answer::event(&answer);
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

impl Follower {
    /// What to send next; none when the stream is at its end.
    async fn next(&mut self) -> Option<News> {
        if self.is_over {
            return None;
        }
        match &self.sent.answer {
            None => {
                let answer = self.ticket.current();
                self.sent.takes(&answer)?;
                return Some(News::Of(answer));
            }
            Some(sent) if sent.is_final() => return None,
            Some(_) => {}
        }
        loop {
            tokio::select! {
                biased;
                refusal = &mut self.over => return Some(News::Over(refusal)),
                answer = self.ticket.changed() => if self.sent.takes(&answer)? {
                    return Some(News::Of(answer));
                },
                () = tokio::time::sleep_until(self.ends_at) => return None,
                () = &mut self.closing => return None,
            }
        }
    }
}

/// What was sent last, and how often in a row the call has said it again.
#[derive(Debug, Default)]
struct Sent {
    answer: Option<Answer>,
    repeats: usize,
}

impl Sent {
    /// Whether an answer is to be sent. None when the call only repeats itself: then nobody moves it any more.
    fn takes(&mut self, answer: &Answer) -> Option<bool> {
        if self.answer.as_ref() != Some(answer) {
            *self = Self { answer: Some(answer.clone()), repeats: 0 };
            return Some(true);
        }
        self.repeats = self.repeats.saturating_add(1);
        (self.repeats < REPEATS_MAX).then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::{REPEATS_MAX, Sent};
    use crate::testing::{finished, held};

    #[test]
    fn an_answer_that_is_given_twice_is_sent_once() {
        let mut sent = Sent::default();
        assert_eq!(sent.takes(&held()), Some(true));
        assert_eq!(sent.takes(&held()), Some(false));
        assert_eq!(sent.takes(&finished()), Some(true));
    }

    #[test]
    fn a_call_that_only_repeats_itself_is_followed_no_further() {
        let mut sent = Sent::default();
        sent.takes(&held());
        let repeated: Vec<Option<bool>> = (0..REPEATS_MAX).map(|_| sent.takes(&held())).collect();
        assert_eq!(repeated, [Some(false), Some(false), None]);
    }
}
