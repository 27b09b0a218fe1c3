//! Help: what the pages are for, and the keys.
//!
//! Owns the text.

use axum::{extract::State, response::Response};
use maud::html;

use super::{ConsoleState, page::Frame, session::Visitor};

const KEYS: [(&str, &str); 9] = [
    ("j", "Next call of the list"),
    ("k", "Call before it"),
    ("Enter", "Open the marked call"),
    ("x", "Choose the marked call, or not"),
    ("a", "On a call’s page: write why you approve"),
    ("d", "On a call’s page: write why you deny"),
    ("/", "Search"),
    ("i", "Inbox"),
    ("?", "This page"),
];

/// `GET /help`.
pub(super) async fn show(State(app): State<ConsoleState>, visitor: Visitor) -> Response {
    let (title, now) = ("Help", app.console.now());
    let content = html! {
        h1 { (title) }
        div.split {
            section.card aria-labelledby="how" {
                h2 #how { "How a call is decided" }
                p { "An agent proposes a call; a policy holds it for people. It waits in the inbox until enough people agree, somebody says no, or it has expired. What is approved is exactly what the page showed: it is bound by a digest, and a changed call has another." }
                p { "Before it runs, the policies in force then look at it once more. If anything that was approved is different, nothing runs." }
                p { "Nobody decides on a call of an agent they answer for, or one that is made for them. Nobody counts twice, also not in the place of a colleague." }
                h3 { "If you cannot agree as it is" }
                p { "You can deny it, or change its arguments: what you write then needs the remaining agreement, and the agent is told. Anyone who writes more than fewer or smaller values does not decide on them." }
                h3 { "If it comes every day" }
                p { "Propose a standing grant from the call’s page: the same people agree once, for a time, a number of uses and certain arguments." }
            }
            section.card aria-labelledby="keys" {
                h2 #keys { "Keys" }
                table.table {
                    thead { tr { th scope="col" { "Key" } th scope="col" { "What it does" } } }
                    tbody { @for (key, what) in KEYS { tr { th scope="row" { kbd { (key) } } td { (what) } } } }
                }
                p.hint { "Keys do nothing while you write in a field; Escape leaves it. A key never decides by itself." }
                // Without script there are no keys, and nothing to switch.
                div #keys-switch hidden {
                    label.choice { input #keys-on type="checkbox"; "Listen to these keys" }
                    p.hint { "Remembered in this browser. Switch it off if you speak to your computer, or use its own keys." }
                }
            }
        }
    };
    Frame { title, place: "/help", now }.page(&visitor, &content)
}
