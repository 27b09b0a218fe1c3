//! Tests of the console: sessions, forms and sign-in on a real engine; of pages that are hard to come to, what they show of a view.

mod bulk;
mod callers;
mod entries;
mod forms;
mod live;
mod pages;
mod sessions;
mod sign_in;

use std::sync::Arc;

use axum::{body::Body, response::Response};
use http::Request;
use tokio::{sync::watch, time::Instant};

use placet_api::{
    config::ServerConfig,
    router::seal,
    testing::{
        People, Reply, TestApi, World,
        people::{AUDIENCE, StandingClock},
    },
};
use placet_approvals::views::ApprovalDetail;
use placet_identity::DevKey;
use placet_types::{
    clock::{Clock as _, Timestamp},
    sessions::SessionStore,
};

use sessions::MemorySessions;

use super::{
    ConsoleSettings, Development, DevelopmentPerson, call,
    headers::{self, POLICY},
    session::Visitor,
};

const HOST: &str = "localhost:7411";
const ORIGIN: &str = "http://localhost:7411";

/// A console that nobody can sign in to.
fn bare(sessions: Arc<dyn SessionStore>) -> ConsoleSettings {
    ConsoleSettings {
        public_url: None,
        is_tls: false,
        provider: None,
        development: None,
        idle_ms: 30 * 60_000,
        session_ms: 8 * 3_600_000,
        sessions_max: 4_096,
        clock: Arc::new(StandingClock),
        sessions,
    }
}

/// A console where `ben` of `acme` can be chosen.
fn settings() -> ConsoleSettings {
    let People { key, verifier } = People::new();
    let mut settings = bare(Arc::new(MemorySessions::default()));
    settings.development = Some(Development {
        key,
        verifier,
        audience: AUDIENCE.to_owned(),
        people: vec![DevelopmentPerson {
            tenant: "acme".parse().unwrap(),
            id: "ben".parse().unwrap(),
            display: Some("Ben <b>".to_owned()),
            groups: Vec::new(),
        }],
    });
    settings
}

/// A browser: a cookie jar on the API.
struct Browser {
    api: TestApi,
    session: String,
    csrf: String,
}

impl Browser {
    /// The people of the development sign-in.
    fn people(settings: &ConsoleSettings) -> People {
        let development = settings.development.as_ref();
        development.map_or_else(People::new, |own| People::of(own.key.clone(), Vec::new()))
    }

    async fn api(settings: ConsoleSettings) -> TestApi {
        let world = World::new(Self::people(&settings)).await;
        TestApi::over(world, ServerConfig::default(), Some(&settings))
    }

    /// `ben`, who has signed in.
    async fn signed_in() -> Self {
        let settings = settings();
        let key = key(&settings);
        Self::on(Self::api(settings).await, &key).await
    }

    /// The same, with a readable audit chain.
    async fn on_disk() -> Self {
        let settings = settings();
        let key = key(&settings);
        let world = World::on_disk(Self::people(&settings)).await;
        Self::on(TestApi::over(world, ServerConfig::default(), Some(&settings)), &key).await
    }

    async fn on(api: TestApi, key: &DevKey) -> Self {
        let waiting = with_link(&api, key).await;
        let form = format!("form_token={waiting}&person=0&to=/");
        let entered = api
            .send(form_post("/sign-in/development", &format!("placet-sign-in={waiting}"), &form))
            .await;
        assert_eq!(entered.status, 303, "{}", entered.text());
        let session = cookie(&entered, "placet").unwrap();
        let inbox = api.send(page("/", Some(&session))).await;
        let text = inbox.text();
        let csrf = text.split("name=\"form_token\" value=\"").nth(1).unwrap();
        let csrf = csrf.split('"').next().unwrap().to_owned();
        Self { api, session, csrf }
    }

    async fn get(&self, path: &str) -> Reply {
        self.api.send(page(path, Some(&self.session))).await
    }

    /// A form with the session's token.
    async fn post(&self, path: &str, form: &str) -> Reply {
        self.send(form_post(path, &self.cookie(), &format!("form_token={}&{form}", self.csrf)))
            .await
    }

    async fn send(&self, request: Request<Body>) -> Reply {
        self.api.send(request).await
    }

    fn cookie(&self) -> String {
        format!("placet={}", self.session)
    }
}

/// The key of the development sign-in.
fn key(settings: &ConsoleSettings) -> DevKey {
    settings.development.as_ref().unwrap().key.clone()
}

/// The address of a fresh link.
fn link(key: &DevKey) -> String {
    format!("/sign-in?code={}", key.sign_in_code(&StandingClock).unwrap())
}

/// Opens a fresh link; gives the cookie of the browser that may choose then.
async fn with_link(api: &TestApi, key: &DevKey) -> String {
    let opened = api.send(page(&link(key), None)).await;
    assert_eq!((opened.status.as_u16(), opened.header("location")), (303, Some("/sign-in?to=%2F")));
    cookie(&opened, "placet-sign-in").unwrap()
}

/// A `GET` of a browser.
fn page(path: &str, session: Option<&str>) -> Request<Body> {
    let request = Request::get(path).header("host", HOST).header("accept", "text/html,*/*;q=0.8");
    let request = match session {
        Some(session) => request.header("cookie", format!("other=1; placet={session}")),
        None => request,
    };
    request.body(Body::empty()).unwrap()
}

/// A form as a browser of today sends it.
fn form_post(path: &str, cookie: &str, form: &str) -> Request<Body> {
    Request::post(path)
        .header("host", HOST)
        .header("cookie", cookie)
        .header("origin", ORIGIN)
        .header("sec-fetch-site", "same-origin")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(form.to_owned()))
        .unwrap()
}

/// The value that an answer sets a cookie to.
fn cookie(reply: &Reply, name: &str) -> Option<String> {
    let lines = reply.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    let found = lines.filter_map(|line| line.strip_prefix(&format!("{name}="))).next()?;
    let (value, attributes) = found.split_once(';')?;
    for wanted in ["Path=/", "HttpOnly", "SameSite=Lax"] {
        assert!(attributes.contains(wanted), "{found}");
    }
    Some(value.to_owned())
}

/// Checks what every page has, and gives its text.
fn checked(reply: &Reply) -> String {
    assert_eq!(reply.header("content-security-policy"), Some(POLICY));
    assert_eq!(reply.header("referrer-policy"), Some("same-origin"));
    assert_eq!(reply.header("cross-origin-opener-policy"), Some("same-origin"));
    assert_eq!(reply.header("cross-origin-resource-policy"), Some("same-origin"));
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(reply.header("x-frame-options"), Some("DENY"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
    let text = reply.text();
    assert_eq!(text.matches("<h1").count(), 1, "{text}");
    for part in
        ["<html lang=\"en\"", "<main id=\"content\"", "class=\"skip\"", "aria-live=\"polite\""]
    {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains('\u{202e}'), "{text}");
    // One script, ours; nothing inline.
    assert_eq!(text.matches("<script").count(), 1, "{text}");
    assert!(
        !text.contains(" style=") && !text.contains("<style") && !text.contains("javascript:"),
        "{text}"
    );
    assert!(
        !text.contains(" onclick=") && !text.contains("onerror=\"") && !text.contains("onload="),
        "{text}"
    );
    text
}

/// `ben`, as a page sees him.
async fn visitor() -> Visitor {
    Visitor {
        id: "session".to_owned(),
        caller: People::new().caller("ben").await,
        csrf: "token".to_owned(),
        ends_at: Instant::now(),
        alive: watch::Sender::new(()).subscribe(),
        freezes: Vec::new(),
    }
}

fn now() -> Timestamp {
    StandingClock.now()
}

/// The text of a rendered page.
async fn shown(page: Response) -> String {
    checked(&Reply::of(seal(headers::protect(page).await)).await)
}

/// The page of a call.
async fn call_page(detail: &ApprovalDetail) -> String {
    shown(call::view(detail, &visitor().await, now(), None, "")).await
}
