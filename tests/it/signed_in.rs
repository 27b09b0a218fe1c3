//! People who are signed in at the console: on every node, and over restarts.
//!
//! Owns a browser without a window: cookies and forms, sent as a browser sends them. What the pages look like is tested in Chromium.

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::harness::{
    client::text,
    placet::Placet,
    postgres::Database,
    setup::{Setup, plan},
    until, within,
};

/// Somebody's cookies.
#[derive(Debug, Clone)]
pub(crate) struct Browser {
    session: String,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) page: String,
}

/// The value that an answer sets a cookie to.
pub(crate) fn cookie(reply: &Reply, name: &str) -> String {
    after(&reply.head, &format!("set-cookie: {name}="), ';')
}

/// A value that stands in a page after these words.
pub(crate) fn after(page: &str, words: &str, end: char) -> String {
    let rest = page.split_once(words).unwrap_or_else(|| panic!("no `{words}` in {page}")).1;
    rest.split_once(end).unwrap().0.to_owned()
}

/// A request as a browser sends it, and its answer as it came: a redirect is not followed.
async fn send(placet: &Placet, head: &str, body: &str) -> Reply {
    let (host, port) = (placet.base.host_str().unwrap(), placet.base.port().unwrap());
    let mut stream = TcpStream::connect((host, port)).await.unwrap();
    let length = body.len();
    let request = format!(
        "{head}\r\nhost: {host}:{port}\r\naccept: text/html\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    within(head, stream.read_to_end(&mut answer)).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head: head.to_owned(), page: page.to_owned() }
}

pub(crate) async fn get(placet: &Placet, path: &str, cookies: &str) -> Reply {
    send(placet, &format!("GET {path} HTTP/1.1\r\ncookie: {cookies}"), "").await
}

pub(crate) async fn post(
    placet: &Placet,
    path: &str,
    cookies: &str,
    form: &[(&str, &str)],
) -> Reply {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let origin = placet.base.origin().ascii_serialization();
    let head = format!(
        "POST {path} HTTP/1.1\r\ncookie: {cookies}\r\norigin: {origin}\r\ncontent-type: application/x-www-form-urlencoded"
    );
    send(placet, &head, &body).await
}

impl Browser {
    /// Somebody of the development directory, signed in.
    pub(crate) async fn sign_in(setup: &Setup, placet: &Placet, name: &str) -> Self {
        let opened = get(placet, &setup.sign_in_link(placet).await, "").await;
        let waiting = cookie(&opened, "placet-sign-in");
        let page = get(placet, "/sign-in", &format!("placet-sign-in={waiting}")).await.page;
        let before = page.split_once(&format!("Sign in as {name} of")).unwrap().0;
        let person = after(before.rsplit_once("name=\"person\"").unwrap().1, "value=\"", '"');
        let form = [("form_token", waiting.as_str()), ("person", &person), ("to", "/")];
        let cookies = format!("placet-sign-in={waiting}");
        let entered = post(placet, "/sign-in/development", &cookies, &form).await;
        assert_eq!(entered.status, 303, "{entered:?}");
        Self { session: cookie(&entered, "placet") }
    }

    pub(crate) async fn get(&self, placet: &Placet, path: &str) -> Reply {
        get(placet, path, &format!("placet={}", self.session)).await
    }

    pub(crate) async fn is_signed_in(&self, placet: &Placet) -> bool {
        let reply = self.get(placet, "/help").await;
        assert!(matches!(reply.status, 200 | 303), "{reply:?}");
        reply.status == 200
    }

    /// A form of a page that one node has made, sent to another.
    pub(crate) async fn post(
        &self,
        placet: &Placet,
        page: &str,
        path: &str,
        form: &[(&str, &str)],
    ) -> Reply {
        let token = after(page, "name=\"form_token\" value=\"", '"');
        let form = [&[("form_token", token.as_str())], form].concat();
        post(placet, path, &format!("placet={}", self.session), &form).await
    }
}

#[tokio::test]
async fn who_signs_in_on_one_node_decides_on_another_and_signs_out_of_all_on_a_third() {
    let database = Database::start().await;
    let [one, two, three] = database.nodes(["one", "two", "three"]).await;
    let (a, b, c) = (one.start().await, two.start().await, three.start().await);
    one.put("a.txt", "x");
    let delete = plan("files__delete", "s1", json!({ "path": "a.txt" }));
    let held = one.agent(&a).await.call(&delete).await.held();
    let ben = Browser::sign_in(&one, &a, "ben").await;
    let other = Browser::sign_in(&one, &a, "ben").await;

    let path = format!("/approvals/{}", text(&held, "approval_id"));
    until("the second node shows the call", || async { ben.get(&b, &path).await.status == 200 })
        .await;
    // The page of one node, its form sent to the next.
    let page = ben.get(&a, &path).await.page;
    let digest = after(&page, "name=\"digest\" value=\"", '"');
    let decision =
        [("digest", digest.as_str()), ("decision", "approve"), ("reason", "looked at it")];
    let decided = ben.post(&b, &page, &format!("{path}/decision"), &decision).await;
    assert_eq!(decided.status, 303, "{decided:?}");
    one.agent(&a).await.end_of(&text(&held, "call_id")).await.succeeded();

    assert!(ben.is_signed_in(&c).await);
    let page = ben.get(&c, "/").await.page;
    assert_eq!(ben.post(&c, &page, "/sign-out", &[]).await.status, 303);
    for node in [&a, &b, &c] {
        assert!(!ben.is_signed_in(node).await);
        assert!(other.is_signed_in(node).await, "another session of the same person goes on");
    }
    // The cookie itself stands nowhere in the database.
    let rows = database.server.ask_data("SELECT count(*) FROM placet.console_sessions").await;
    assert_eq!(rows.unwrap(), "1");
    let shown = format!(
        "SELECT count(*) FROM placet.console_sessions WHERE encode(sealed, 'escape') LIKE '%{}%'",
        other.session
    );
    assert_eq!(database.server.ask_data(&shown).await.unwrap(), "0");
    for (setup, node) in [(&one, a), (&two, b)] {
        node.stop().await;
        let again = setup.start().await;
        assert!(other.is_signed_in(&again).await && !ben.is_signed_in(&again).await);
        again.stop().await;
    }
}

#[tokio::test]
async fn a_restart_keeps_people_signed_in_and_brings_nobody_back_who_signed_out() {
    let setup = Setup::new();
    let placet = setup.start().await;
    let ben = Browser::sign_in(&setup, &placet, "ben").await;
    let out = Browser::sign_in(&setup, &placet, "ben").await;
    let page = out.get(&placet, "/").await.page;
    assert_eq!(out.post(&placet, &page, "/sign-out", &[]).await.status, 303);
    placet.stop().await;
    let placet = setup.start().await;
    assert!(ben.is_signed_in(&placet).await && !out.is_signed_in(&placet).await);
    placet.kill().await;
    let placet = setup.start().await;
    assert!(ben.is_signed_in(&placet).await && !out.is_signed_in(&placet).await);
    // A form of a page from before the restart is taken.
    let page = ben.get(&placet, "/").await.page;
    placet.stop().await;
    let placet = setup.start().await;
    assert_eq!(ben.post(&placet, &page, "/sign-out", &[]).await.status, 303);
    assert!(!ben.is_signed_in(&placet).await);
    placet.stop().await;
}
