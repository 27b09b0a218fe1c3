//! What happens in the approval service, as server-sent events.
//!
//! Owns the stream's life: it begins with the answer's head, so that nothing is missed from then on; comments while nothing happens;
//! says so when the reader fell behind; ends when its time is up, when the listeners close, or, with a last event that says so, when the
//! reader's token counts no more. Holds a place among the streams until then.

use std::time::Duration;

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, stream};
use tokio::time::Instant;

use placet_approvals::{feed::EventFeed, views::ApprovalEvent};
use placet_identity::VerifiedCaller;
use placet_types::error::Refusal;

use super::{Closing, Over, ended};
use crate::{
    api::ApiState,
    problem::Failure,
    streams::{About, Place},
};

/// The name of the event that says: some were missed, look at everything again.
pub(crate) const BEHIND: &str = "behind";
/// The name of every other event; its data say what happened.
pub(crate) const APPROVALS: &str = "approvals";

struct Follower {
    feed: EventFeed,
    over: Over,
    is_over: bool,
    ends_at: Instant,
    closing: Closing,
    /// Free again when the stream is dropped.
    _place: Place,
}

/// The events of the approval service that `caller` may see.
pub(crate) fn respond(api: &ApiState, caller: &VerifiedCaller) -> Result<Response, Failure> {
    let follower = Follower {
        _place: api.place(About::Approvals, caller)?,
        feed: api.engine.approvals().listen(caller),
        over: Box::pin(api.over(caller)),
        is_over: false,
        ends_at: api.stream_ends_at(),
        closing: Box::pin(api.closing()),
    };
    let heartbeat =
        KeepAlive::new().interval(Duration::from_millis(api.config().heartbeat_ms)).text("alive");
    Ok(Sse::new(events(follower)).keep_alive(heartbeat).into_response())
}

fn events(follower: Follower) -> impl Stream<Item = Result<Event, axum::Error>> {
    stream::unfold(follower, |mut follower| async move {
        let news = follower.next().await?;
        follower.is_over = matches!(news, News::Over(_));
        Some((told(news), follower))
    })
}

fn told(news: News) -> Result<Event, axum::Error> {
    match news {
        News::Of(event) => Event::default().event(APPROVALS).json_data(&event),
        News::Missed => Ok(Event::default().event(BEHIND).data("{}")),
        News::Over(refusal) => ended(&Failure::new(refusal)),
    }
}

enum News {
    Of(ApprovalEvent),
    Missed,
    Over(Refusal),
}

impl Follower {
    /// What to send next; none when the stream is at its end.
    async fn next(&mut self) -> Option<News> {
        if self.is_over {
            return None;
        }
        tokio::select! {
            biased;
            refusal = &mut self.over => Some(News::Over(refusal)),
            event = self.feed.next() => match event {
                Some(event) => Some(News::Of(event)),
                None if self.feed.is_over() => None,
                None => Some(News::Missed),
            },
            () = tokio::time::sleep_until(self.ends_at) => None,
            () = &mut self.closing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::{IntoResponse as _, News, Sse, told};
    use crate::testing::Reply;

    #[tokio::test]
    async fn a_reader_that_fell_behind_is_told_to_look_again() {
        let events = Sse::new(stream::iter([told(News::Missed)]));
        let reply = Reply::of(events.into_response()).await;
        assert_eq!(reply.text(), "event: behind\ndata: {}\n\n");
    }
}
