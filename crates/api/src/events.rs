//! Server-sent events: what happens to a call, in the approval service, or on a page, until it ends.
//!
//! Owns the stream's life: it starts with the response head, sends comments while nothing changes, and ends with its source, when its time
//! is up, when the listeners close, or with a last event for its reader. Invariant: if the reader's token becomes invalid, the last event says
//! so, and nothing that the reader may not see precedes it.

use std::time::Duration;

use axum::response::{
    IntoResponse as _, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, StreamExt as _, stream};

use placet_approvals::views::ApprovalEvent;
use placet_engine::{answer::Answer, ticket::Ticket};
use placet_identity::VerifiedCaller;

use crate::{answer, problem::Failure, state::ApiState};

/// The number of consecutive repeats after which a stream ends: a call that only repeats itself was forgotten.
const REPEATS_MAX: usize = 3;

/// The name of the last event of a stream whose reader's token has become invalid. Its data are the problem document that the reader gets
/// from then on.
pub const ENDED: &str = "ended";

/// An event, or why it could not be written.
pub type Written = Result<Event, axum::Error>;

/// A response with the events of `source`, until `last` resolves to the final event, if any.
pub fn respond(
    api: &ApiState,
    source: impl Stream<Item = Written> + Send + 'static,
    last: impl Future<Output = Option<Written>> + Send + 'static,
) -> Response {
    let (longest, closing) = (Duration::from_millis(api.config().stream_ms_max.0), api.closing());
    let last = async move {
        tokio::select! {
            biased;
            event = last => event,
            () = tokio::time::sleep(longest) => None,
            () = closing => None,
        }
    };
    let open = Some((Box::pin(source), Box::pin(last)));
    let events = stream::unfold(open, |open| async move {
        let (mut source, mut last) = open?;
        tokio::select! {
            biased;
            event = &mut last => event.map(|event| (event, None)),
            event = source.next() => event.map(|event| (event, Some((source, last)))),
        }
    });
    let heartbeat = Duration::from_millis(api.config().heartbeat_ms.0);
    let heartbeat = KeepAlive::new().interval(heartbeat).text("alive");
    Sse::new(events).keep_alive(heartbeat).into_response()
}

/// The last event of a stream whose reader's token has become invalid.
fn ended(failure: &Failure) -> Written {
    Event::default().event(ENDED).json_data(failure.document())
}

/// The events of a call: its current state, and every change until its end.
pub(crate) fn of_call(api: &ApiState, caller: &VerifiedCaller, ticket: Ticket) -> Response {
    let (over, standing) = (api.over(caller), ticket.clone());
    let last = async move { Some(ended(&Failure::of_wait(over.await, &standing.current()))) };
    let source = stream::unfold((ticket, Sent::default()), |(mut ticket, mut sent)| async move {
        let answer = sent.next(&mut ticket).await?;
        Some((answer::event(&answer), (ticket, sent)))
    });
    respond(api, source, last)
}

/// What was sent last, and how often in a row the call has repeated it.
#[derive(Debug, Default)]
struct Sent {
    answer: Option<Answer>,
    repeats: usize,
}

impl Sent {
    /// What to send next; `None` when the call has ended.
    async fn next(&mut self, ticket: &mut Ticket) -> Option<Answer> {
        loop {
            let answer = match &self.answer {
                None => ticket.current(),
                Some(sent) if sent.is_final() => return None,
                Some(_) => ticket.changed().await,
            };
            if self.takes(&answer)? {
                return Some(answer);
            }
        }
    }

    /// Whether to send an answer. `None` when the call only repeats itself: then nothing drives it any more.
    fn takes(&mut self, answer: &Answer) -> Option<bool> {
        if self.answer.as_ref() != Some(answer) {
            *self = Self { answer: Some(answer.clone()), repeats: 0 };
            return Some(true);
        }
        self.repeats = self.repeats.saturating_add(1);
        (self.repeats < REPEATS_MAX).then_some(false)
    }
}

/// The events of the approval service that `caller` may see.
pub(crate) fn of_approvals(api: &ApiState, caller: &VerifiedCaller) -> Response {
    let over = api.over(caller);
    let last = async move { Some(ended(&Failure::new(over.await))) };
    respond(api, news(api, caller).map(of_news), last)
}

/// What happens in the approval service from now on, as far as `caller` may see it; an item is `None` where some of it was missed.
pub fn news(
    api: &ApiState,
    caller: &VerifiedCaller,
) -> impl Stream<Item = Option<ApprovalEvent>> + Send + 'static + use<> {
    stream::unfold(api.engine.approvals().listen(caller), |mut feed| async move {
        let event = feed.next().await;
        (event.is_some() || !feed.is_over()).then_some((event, feed))
    })
}

/// The event's name. `behind` tells the reader to reload everything.
pub const fn name_of(news: Option<&ApprovalEvent>) -> &'static str {
    if news.is_some() { "approvals" } else { "behind" }
}

fn of_news(news: Option<ApprovalEvent>) -> Written {
    let event = Event::default().event(name_of(news.as_ref()));
    match news {
        Some(news) => event.json_data(&news),
        None => Ok(event.data("{}")),
    }
}

#[cfg(test)]
mod tests {
    use axum::response::{IntoResponse as _, sse::Sse};
    use futures::stream;

    use super::{REPEATS_MAX, Sent, of_news};
    use crate::testing::{Reply, finished, held};

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

    #[tokio::test]
    async fn a_reader_that_fell_behind_is_told_to_look_again() {
        let events = Sse::new(stream::iter([of_news(None)]));
        let reply = Reply::of(events.into_response()).await;
        assert_eq!(reply.text(), "event: behind\ndata: {}\n\n");
    }
}
