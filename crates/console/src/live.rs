//! What happens in the approval service, to the open page: server-sent events that say to look again, never what is new.
//!
//! Owns the stream's life: it ends with its session, when its time is up and when the listeners close; where the person's sign-in counts no
//! more, with a last event at which the page looks again and says so. Holds a place among the streams until then. Invariant: following
//! is no sign of life of its person, so that a page left open ends its session as a closed one does.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{Response, sse::Event},
};
use futures::StreamExt as _;
use placet_api::{
    events::{self, ENDED},
    streams::About,
};

use super::{ConsoleState, session::Visitor, visitor::Trouble};

/// How often the stream looks whether its session was ended on another node, or was unused too long.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// `GET /live`.
pub(super) async fn follow(
    State(app): State<ConsoleState>,
    visitor: Visitor,
) -> Result<Response, Trouble> {
    // Only that something happened: which page shows what is the page's affair.
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
        tokio::select! {
            biased;
            _ = over => Some(look(ENDED)),
            // The other end of this is dropped with the session.
            _ = alive.changed() => None,
            () = ended_elsewhere => None,
            () = tokio::time::sleep_until(ends_at) => None,
        }
    };
    Ok(events::respond(&app.api, &caller, About::Approvals, news, last)?)
}
