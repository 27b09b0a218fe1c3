//! Looks at what waits, as approvers take them: the inbox and the list of approvals by HTTP, the inbox of the console in a browser.
//!
//! Owns the requests and how long each takes until its last byte is there. Invariant: a page that is not a page ends the run.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, timeout},
};
use url::{Url, form_urlencoded::byte_serialize};

use super::{Api, PATIENCE, Party};
use crate::engine;

/// How many a page has.
pub(crate) const PAGE: usize = 50;
/// The cookie of the one who signs in, and of the one who has.
const SIGNING_IN: &str = "placet-sign-in";
const SIGNED_IN: &str = "placet";

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::desk) enum Look {
    /// The first page of the inbox.
    Inbox,
    /// The last one.
    InboxEnd,
    /// The first page of the list of approvals.
    List,
    /// One from the middle of it.
    ListMiddle,
    /// The inbox of the console.
    Console,
}

impl Look {
    pub(in crate::desk) const ALL: [Self; 5] =
        [Self::Inbox, Self::InboxEnd, Self::List, Self::ListMiddle, Self::Console];

    /// Its name in tables.
    pub(in crate::desk) const fn name(self) -> &'static str {
        match self {
            Self::Inbox => "/v1/inbox",
            Self::InboxEnd => "/v1/inbox, last page",
            Self::List => "/v1/approvals",
            Self::ListMiddle => "/v1/approvals, from the middle",
            Self::Console => "the console's inbox",
        }
    }
}

impl Party {
    /// Signs the approver in at the console; gives the session's cookie.
    pub(in crate::desk) async fn sign_in(&self) -> Result<String> {
        let parts = (self.config.as_path(), &self.api.base);
        let link = engine::sign_in_link(&self.placet, &self.folder, parts).await?;
        self.api.sign_in(&link, "ben").await
    }

    /// One look, with so many waiting; `middle` is one of them.
    pub(in crate::desk) async fn look(
        &self,
        look: Look,
        (waiting, middle): (usize, &str),
        session: &str,
    ) -> Result<Duration> {
        let end = waiting.saturating_sub(PAGE);
        let path = match look {
            Look::Inbox => format!("/v1/inbox?limit={PAGE}"),
            Look::InboxEnd => format!("/v1/inbox?limit={PAGE}&offset={end}"),
            Look::List => format!("/v1/approvals?state=pending&limit={PAGE}"),
            Look::ListMiddle => {
                format!("/v1/approvals?state=pending&limit={PAGE}&after={middle}")
            }
            Look::Console => "/".to_owned(),
        };
        let began = Instant::now();
        let (status, _, body) = match look {
            Look::Console => self.api.page(&path, session).await?,
            Look::Inbox | Look::InboxEnd | Look::List | Look::ListMiddle => {
                self.api.get(&path).await?
            }
        };
        let took = began.elapsed();
        ensure!(status == StatusCode::OK, "`{path}` was answered with {status}");
        self.check(look, (waiting, &body))?;
        Ok(took)
    }

    /// Whether a page has as much on it as it should.
    fn check(&self, look: Look, (waiting, body): (usize, &Bytes)) -> Result<()> {
        let wanted = waiting.min(PAGE);
        let shown = match look {
            Look::Console => String::from_utf8_lossy(body).matches("/approvals/apr_").count(),
            Look::Inbox | Look::InboxEnd | Look::List | Look::ListMiddle => {
                let said: Value = serde_json::from_slice(body).context("a page is no JSON")?;
                said.get("approvals").and_then(Value::as_array).map_or(0, Vec::len)
            }
        };
        // From the middle of a few on there are fewer.
        ensure!(shown >= wanted || look == Look::ListMiddle, "{shown} of {wanted} are shown");
        ensure!(shown > 0, "nothing is shown");
        Ok(())
    }
}

type Reply = (StatusCode, HeaderMap, Bytes);

impl Api {
    async fn get(&self, path: &str) -> Result<Reply> {
        let request = Request::get(self.base.join(path)?.as_str())
            .header(header::AUTHORIZATION, self.approver.clone());
        self.reply(request.body(Bytes::new())?).await
    }

    /// A page of the console, as a browser asks for it.
    async fn page(&self, path: &str, session: &str) -> Result<Reply> {
        let request = Request::get(self.base.join(path)?.as_str())
            .header(header::ACCEPT, "text/html")
            .header(header::COOKIE, format!("{SIGNED_IN}={session}"));
        self.reply(request.body(Bytes::new())?).await
    }

    /// The development sign-in, as a browser does it.
    async fn sign_in(&self, link: &Url, person: &str) -> Result<String> {
        let origin = self.base.origin().ascii_serialization();
        let address = origin.strip_prefix("http://").context("the console is not on loopback")?;
        let path = link.as_str().strip_prefix(self.base.as_str()).context("another console")?;
        let opening =
            format!("GET /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        let opened = redirected(address, &opening).await?;
        let waiting = cookie(&opened, SIGNING_IN).context("nobody can sign in")?;
        let request = Request::get(self.base.join("/sign-in")?.as_str())
            .header(header::ACCEPT, "text/html")
            .header(header::COOKIE, format!("{SIGNING_IN}={waiting}"));
        let (_, _, body) = self.reply(request.body(Bytes::new())?).await?;
        let page = String::from_utf8_lossy(&body);
        let (before, _) = page
            .split_once(&format!("aria-label=\"Sign in as {person} of"))
            .with_context(|| format!("`{person}` cannot sign in"))?;
        let number = before.rsplit_once("value=\"").and_then(|(_, value)| value.split('"').next());
        let number = number.context("the page of the sign-in is another one")?;
        let encoded: String = byte_serialize(waiting.as_bytes()).collect();
        let form = format!("form_token={encoded}&person={number}&to=/");
        let request = format!(
            "POST /sign-in/development HTTP/1.1\r\nhost: {address}\r\norigin: {origin}\r\nconnection: close\r\n\
             cookie: {SIGNING_IN}={waiting}\r\ncontent-type: application/x-www-form-urlencoded\r\n\
             content-length: {}\r\n\r\n{form}",
            form.len()
        );
        let entered = redirected(address, &request).await?;
        cookie(&entered, SIGNED_IN).context("the sign-in gives no session")
    }

    async fn reply(&self, request: Request<Bytes>) -> Result<Reply> {
        let response = timeout(PATIENCE, self.client.send(request)).await;
        let response = response.context("there is no answer")?.context("a request failed")?;
        let (head, body) = response.into_parts();
        Ok((head.status, head.headers, body))
    }
}

/// The answer to a request that is answered with a redirect, which the client of this program does not take.
async fn redirected(address: &str, request: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await.context("no connection")?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.context("no answer")??;
    Ok(answer)
}

/// The value that an answer sets a cookie to.
fn cookie(answer: &str, name: &str) -> Option<String> {
    answer.lines().find_map(|line| {
        let (header, value) = line.split_once(": ")?;
        let value = value.split(';').next()?.strip_prefix(name)?.strip_prefix('=')?;
        header.eq_ignore_ascii_case("set-cookie").then(|| value.to_owned())
    })
}
