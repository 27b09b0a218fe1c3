//! Live updates of an open page: server-sent events that tell it to refresh, never what is new.
//!
//! Owns the stream's life: it ends with its session, when its time is up and when the listeners close; if the person's sign-in becomes
//! invalid, with a last event that makes the page refresh and say so. It holds a place among the streams until then. Invariant: following
//! does not count as activity, so that a page left open does not keep its session alive.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{Response, sse::Event},
};
use futures::StreamExt as _;
use placet_api::{
    events::{self, ENDED},
    places::About,
};

use super::{ConsoleState, session::Visitor, visitor::Trouble};

/// How often the stream looks whether its session was ended on another node, or was unused too long.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// `GET /live`.
pub(super) async fn follow(
    State(app): State<ConsoleState>,
    visitor: Visitor,
) -> Result<Response, Trouble> {
    let place = app.api.place(About::Lasting, &visitor.caller)?;
    // Only the fact that something happened: the page decides what to show.
    let look = |name: &str| Ok(Event::default().event(name).data("look"));
    let news = events::news(&app.api, &visitor.caller);
    let news = news.map(move |news| look(events::name_of(news.as_ref())));
    let Visitor { caller, id, ends_at, mut alive, .. } = visitor;
    let (over, console) =
        (app.api.engine.revoked(Arc::new(caller.clone())), Arc::clone(&app.console));
    let ended_elsewhere = async move {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !console.sessions.is_there(&id).await {
                return;
            }
        }
    };
    let last = async move {
        let _place = place;
        tokio::select! {
            biased;
            _ = over => Some(look(ENDED)),
            // The other end of this is dropped with the session.
            _ = alive.changed() => None,
            () = ended_elsewhere => None,
            () = tokio::time::sleep_until(ends_at) => None,
        }
    };
    Ok(events::respond(&app.api, news, last))
}
