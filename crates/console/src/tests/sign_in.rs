//! Sessions, and the development sign-in.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use placet_identity::{DevKey, SignInProof, VerifiedCaller, fresh_text};
use placet_types::{
    digest::Digest,
    error::ErrorCode,
    sessions::{KeptSession, SessionLimits, SessionStore},
};

use super::{Browser, bare, checked, cookie, form_post, key, link, page, settings, with_link};
use crate::{
    ConsoleSettings,
    session::{Found, Sessions, Use},
    tests::sessions::MemorySessions,
    visitor::local_path,
};
use placet_api::testing::People;

async fn person(id: &str) -> VerifiedCaller {
    People::new().caller(id).await
}

/// Two nodes with a shared session store.
fn two_nodes(change: impl FnOnce(&mut ConsoleSettings)) -> [Sessions; 2] {
    let shared = Arc::new(MemorySessions::going());
    let mut settings = bare(shared);
    change(&mut settings);
    [Sessions::new(&settings), Sessions::new(&settings)]
}

/// What somebody signs in with now.
fn proof(all: &ConsoleSettings) -> SignInProof {
    SignInProof::of_development("a.b.c".to_owned(), all.sessions.time())
}

/// Whether the session is valid; one begun elsewhere is loaded.
async fn is_known(node: &Sessions, id: &str, by: Use) -> bool {
    match node.find(id, by).await.unwrap() {
        Found::Somebody(_) => true,
        Found::Nobody => false,
        Found::Kept(proof) => {
            node.take_up(id, person("ana").await, proof.at());
            matches!(node.find(id, by).await.unwrap(), Found::Somebody(_))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_when_it_is_unused_or_too_old_and_a_page_s_own_looks_do_not_keep_it() {
    let mut settings = None;
    let [one, two] = two_nodes(|all| {
        all.idle_ms = 1_000;
        all.session_ms = 2_500;
        settings = Some(all.clone());
    });
    let settings = settings.unwrap();
    let with = proof(&settings);
    let begin = async || one.begin(person("ana").await, &with).await;
    let step = || tokio::time::advance(Duration::from_millis(700));
    let (used, watched) = (begin().await.unwrap(), begin().await.unwrap());
    step().await;
    assert!(is_known(&one, &used, Use::Person).await && is_known(&one, &watched, Use::Page).await);
    assert!(one.is_there(&used).await && one.is_there(&watched).await);
    step().await;
    assert!(one.is_there(&used).await && !one.is_there(&watched).await, "for a stream");
    assert!(
        is_known(&two, &used, Use::Person).await,
        "what was done on one node counts on another"
    );
    assert!(!is_known(&two, &watched, Use::Person).await, "nobody did anything");
    step().await;
    assert!(is_known(&one, &used, Use::Person).await, "the other way round");
    step().await;
    assert!(!is_known(&one, &used, Use::Person).await, "it is too old");
    assert!(!is_known(&two, &used, Use::Person).await, "on every node");
    assert!(settings.sessions.find(Digest::of(used.as_bytes())).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn one_person_has_few_sessions_and_all_together_have_a_limit() {
    let mut settings = None;
    let [one, two] = two_nodes(|all| {
        all.sessions_max = 20;
        settings = Some(all.clone());
    });
    let settings = settings.unwrap();
    let begin =
        async |node: &Sessions, id: &str| node.begin(person(id).await, &proof(&settings)).await;
    let first = begin(&one, "ana").await.unwrap();
    for _ in 0..16 {
        tokio::time::advance(Duration::from_millis(1)).await;
        begin(&two, "ana").await.unwrap();
    }
    assert!(!is_known(&one, &first, Use::Person).await, "the oldest gave way");
    for id in ["b", "c", "d", "e"] {
        begin(&one, id).await.unwrap();
    }
    assert!(begin(&two, "f").await.is_err());
    assert_eq!(fresh_text().unwrap().len(), 43);
}

#[tokio::test(start_paused = true)]
async fn made_up_ids_take_a_few_look_ups_at_a_time_and_nobody_else_waits_for_them() {
    let kept = Arc::new(MemorySessions::going());
    let settings = bare(Arc::<MemorySessions>::clone(&kept));
    let node = Arc::new(Sessions::new(&settings));
    let id = node.begin(person("ana").await, &proof(&settings)).await.unwrap();
    kept.hangs.store(true, Ordering::SeqCst);
    let before = kept.finds.load(Ordering::SeqCst);
    let mut strangers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let node = Arc::clone(&node);
        strangers.spawn(async move {
            node.find(&fresh_text().unwrap(), Use::Page).await.err().map(|refusal| refusal.code)
        });
    }
    for _ in 0..46 {
        let told = strangers.join_next().await.unwrap().unwrap();
        assert_eq!(told, Some(ErrorCode::Overloaded));
    }
    assert_eq!(kept.finds.load(Ordering::SeqCst), before + 4, "all others were not looked up");
    assert!(matches!(node.find(&id, Use::Person).await.unwrap(), Found::Somebody(_)));
}

#[tokio::test]
async fn what_cannot_be_an_id_is_not_looked_up() {
    let kept = Arc::new(MemorySessions::default());
    let settings = bare(Arc::<MemorySessions>::clone(&kept));
    let api = Browser::api(settings).await;
    let sound = fresh_text().unwrap();
    let signs = sound.replace(|_: char| true, "~");
    let short: String = sound.chars().skip(1).collect();
    for id in [short.as_str(), &format!("{sound}A"), &signs, "", "AAAA"] {
        assert_eq!(api.send(page("/", Some(id))).await.status, 303, "{id}");
        assert_eq!(kept.finds.load(Ordering::SeqCst), 0, "{id}");
    }
    assert_eq!(api.send(page("/", Some(&sound))).await.status, 303);
    assert_eq!(kept.finds.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_somebody_altered_or_copied_to_another_key_lets_nobody_in() {
    let mut settings = None;
    let [one, two] = two_nodes(|all| settings = Some(all.clone()));
    let settings = settings.unwrap();
    let id = one.begin(person("ana").await, &proof(&settings)).await.unwrap();
    let kept = settings.sessions.find(Digest::of(id.as_bytes())).await.unwrap().unwrap();
    assert!(!String::from_utf8_lossy(&kept.sealed).contains("a.b.c"));
    let limits = SessionLimits {
        began_since: kept.began_at,
        used_since: kept.used_at,
        per_person: 9,
        all: 9,
    };
    // Sealed data does not open under a made-up cookie.
    let own = "x".repeat(43);
    let copied = KeptSession { key: Digest::of(own.as_bytes()), ..kept.clone() };
    assert!(settings.sessions.begin(copied, limits).await.unwrap());
    assert!(!is_known(&two, &own, Use::Person).await);
    // The time of the sign-in is sealed and verified: the row's own value does not count.
    let long_ago =
        SignInProof::of_development("a.b.c".to_owned(), kept.began_at.plus_ms(-(9 * 3_600_000)));
    let own = "y".repeat(43);
    let sealed = long_ago.seal(&own).unwrap();
    let old = KeptSession { key: Digest::of(own.as_bytes()), sealed, ..kept };
    assert!(settings.sessions.begin(old, limits).await.unwrap());
    assert!(!is_known(&two, &own, Use::Person).await);
    assert!(is_known(&two, &id, Use::Person).await);
}

#[tokio::test]
async fn signing_in_makes_a_new_session_and_ends_the_old_one() {
    let settings = settings();
    let key = key(&settings);
    let browser = Browser::on(Browser::api(settings).await, &key).await;
    let waiting = with_link(&browser.api, &key).await;
    let cookies = format!("placet-sign-in={waiting}; placet={}", browser.session);
    let form = format!("form_token={waiting}&person=0&to=https://evil.example/");
    let entered = browser.send(form_post("/sign-in/development", &cookies, &form)).await;
    assert_eq!((entered.status.as_u16(), entered.header("location")), (303, Some("/")));
    let fresh = cookie(&entered, "placet").unwrap();
    assert_ne!(fresh, browser.session);
    assert_eq!(browser.get("/").await.status, 303, "the old one is over");
    assert_eq!(browser.send(page("/", Some(&fresh))).await.status, 200);
}

#[tokio::test]
async fn a_session_ends_with_the_token_that_it_was_begun_with_where_that_is_revoked() {
    let browser = Browser::signed_in().await;
    assert_eq!(browser.get("/").await.status, 200);
    browser.api.revoke("ben").await;
    let away = browser.get("/help").await;
    assert_eq!(
        (away.status.as_u16(), away.header("location")),
        (303, Some("/sign-in?to=%2Fhelp&ended=1"))
    );
    assert_eq!(browser.post("/sign-out", "").await.status, 303);
}

#[tokio::test]
async fn a_session_is_one_on_every_node_and_after_a_restart_until_it_ends_on_any() {
    let shared = settings();
    let here = Browser::on(Browser::api(shared.clone()).await, &key(&shared)).await;
    let there = Browser::api(shared.clone()).await;
    let elsewhere = Browser { api: there, session: here.session.clone(), csrf: here.csrf.clone() };
    assert_eq!(elsewhere.get("/help?a=b").await.status, 200);
    // One node accepts a form of another node's page.
    let posted = elsewhere.post("/together/decision", "decision=approve").await;
    assert_ne!((posted.status.as_u16(), posted.header("location")), (303, Some("/sign-in")));
    assert_ne!(posted.status, 403, "{}", posted.text());
    let forged = form_post("/sign-out", &elsewhere.cookie(), "form_token=x");
    assert_eq!(elsewhere.send(forged).await.status, 403);
    assert_eq!(here.get("/help").await.status, 200);

    assert_eq!(elsewhere.post("/sign-out", "").await.status, 303);
    let form = |path: &str| form_post(path, &here.cookie(), &format!("form_token={}", here.csrf));
    for (late, back) in [
        (page("/help?a=b", Some(&here.session)), "%2Fhelp%3Fa%3Db"),
        (form("/approvals/apr_1/decision"), "%2Fapprovals%2Fapr_1"),
        (form("/together/decision"), "%2F"),
    ] {
        let away = here.send(late).await;
        let to = away.header("location").unwrap().to_owned();
        assert_eq!(
            (away.status.as_u16(), to.clone()),
            (303, format!("/sign-in?to={back}&ended=1"))
        );
        let told = checked(&here.send(page(&to, Some(&here.session))).await);
        assert!(told.contains("has ended") && told.contains("nothing that you sent"), "{told}");
    }
    let first = checked(&here.send(page("/sign-in?to=/help", None)).await);
    assert!(!first.contains("has ended"), "{first}");
    let again = Browser::api(shared).await;
    assert_eq!(again.send(page("/help", Some(&here.session))).await.status, 303);
}

#[tokio::test]
async fn a_session_of_a_key_that_is_not_accepted_any_more_is_nobody_s() {
    let shared = settings();
    let here = Browser::on(Browser::api(shared.clone()).await, &key(&shared)).await;
    let other = settings();
    let changed = ConsoleSettings { sessions: shared.sessions, ..other };
    let there = Browser::api(changed).await;
    assert_eq!(there.send(page("/help", Some(&here.session))).await.status, 303);
    assert_eq!(here.get("/help").await.status, 200, "where it was begun it lasts as before");
}

#[tokio::test]
async fn while_sessions_cannot_be_looked_up_nobody_is_shown_anything_and_nobody_is_signed_out() {
    let sessions = Arc::new(MemorySessions::default());
    let kept: Arc<dyn SessionStore> = Arc::<MemorySessions>::clone(&sessions);
    let shared = ConsoleSettings { sessions: kept, ..settings() };
    let key = key(&shared);
    let here = Browser::on(Browser::api(shared).await, &key).await;
    sessions.is_away.store(true, std::sync::atomic::Ordering::SeqCst);
    for reply in [here.get("/").await, here.post("/sign-out", "").await] {
        assert_eq!(reply.status, 503);
        assert!(cookie(&reply, "placet").is_none());
    }
    sessions.is_away.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(here.get("/").await.status, 200);
}

#[tokio::test]
async fn a_sign_in_that_another_browser_began_is_refused() {
    let settings = settings();
    let key = key(&settings);
    let api = Browser::api(settings).await;
    let waiting = with_link(&api, &key).await;
    let form = format!("form_token={waiting}&person=0");
    for cookies in ["", "placet-sign-in=AAAA", "placet=AAAA"] {
        let reply = api.send(form_post("/sign-in/development", cookies, &form)).await;
        assert_eq!(reply.status, 403, "{cookies}");
        assert!(cookie(&reply, "placet").is_none());
    }
    let unknown = format!("form_token={waiting}&person=9");
    let reply = api
        .send(form_post("/sign-in/development", &format!("placet-sign-in={waiting}"), &unknown))
        .await;
    assert_eq!(reply.status, 400);
}

#[tokio::test]
async fn nobody_signs_in_without_a_link_made_with_the_key() {
    let settings = settings();
    let api = Browser::api(settings.clone()).await;
    let begun = api.send(page("/sign-in", None)).await;
    let text = checked(&begun);
    assert!(text.contains("placet console") && !text.contains("name=\"person\""), "{text}");
    let waiting = cookie(&begun, "placet-sign-in").unwrap();
    let other = link(&DevKey::generate().unwrap());
    for code in [other.as_str(), "/sign-in?code=AAAA", "/sign-in?code=a&to=/help"] {
        let led = api.send(page(code, None)).await;
        let to = led.header("location").unwrap();
        assert!(led.status == 303 && to.ends_with("&link=refused"), "{to}");
        assert!(cookie(&led, "placet-sign-in").is_none(), "{code}");
        let told = checked(&api.send(page(to, None)).await);
        assert!(told.contains("not valid any more") && !told.contains("name=\"person\""), "{told}");
    }
    let form = format!("form_token={waiting}&person=0");
    let cookies = format!("placet-sign-in={waiting}");
    let refused = api.send(form_post("/sign-in/development", &cookies, &form)).await;
    assert_eq!(refused.status, 403);
    assert!(cookie(&refused, "placet").is_none() && refused.text().contains("placet console"));
}

#[tokio::test]
async fn a_link_signs_in_once_and_only_in_the_browser_that_opened_it() {
    let settings = settings();
    let api = Browser::api(settings.clone()).await;
    let path = link(&key(&settings));
    let opened = api.send(page(&format!("{path}&to=/help"), None)).await;
    // The address that stays in the browser has no code, and no page contains it.
    assert_eq!(
        (opened.status.as_u16(), opened.header("location")),
        (303, Some("/sign-in?to=%2Fhelp"))
    );
    assert_eq!(opened.header("referrer-policy"), Some("same-origin"));
    let waiting = cookie(&opened, "placet-sign-in").unwrap();
    let second = api.send(page(&path, None)).await;
    assert!(second.header("location").unwrap().ends_with("&link=refused"), "it was used");
    assert!(cookie(&second, "placet-sign-in").is_none());

    let with = |cookie: &str| {
        let request = http::Request::get("/sign-in?to=/help").header("host", "localhost:7411");
        let request = request.header("cookie", format!("placet-sign-in={cookie}"));
        request.body(axum::body::Body::empty()).unwrap()
    };
    let mine = checked(&api.send(with(&waiting)).await);
    assert!(mine.contains("Sign in as ben of acme"), "{mine}");
    let other = fresh_text().unwrap();
    assert!(!checked(&api.send(with(&other)).await).contains("name=\"person\""));

    let choose = |browser: &str| {
        let form = format!("form_token={browser}&person=0&to=/help");
        form_post("/sign-in/development", &format!("placet-sign-in={browser}"), &form)
    };
    assert_eq!(api.send(choose(&other)).await.status, 403);
    let entered = api.send(choose(&waiting)).await;
    assert_eq!((entered.status.as_u16(), entered.header("location")), (303, Some("/help")));
    let again = api.send(choose(&waiting)).await;
    assert_eq!(again.status, 403, "it was chosen");
    assert!(cookie(&again, "placet").is_none());
}

#[tokio::test]
async fn without_a_way_to_sign_in_the_page_says_what_is_missing() {
    let api = Browser::api(bare(Arc::new(MemorySessions::default()))).await;
    let text = checked(&api.send(page("/sign-in", None)).await);
    assert!(text.contains("console.sign_in") && !text.contains("Development"), "{text}");
    let waiting = fresh_text().unwrap();
    let (cookie, fields) =
        (format!("placet-sign-in={waiting}"), format!("form_token={waiting}&person=0"));
    let form = form_post("/sign-in/development", &cookie, &fields);
    assert_eq!(api.send(form).await.status, 404);
}

#[tokio::test]
async fn over_tls_cookies_are_bound_to_the_host() {
    let mut settings = settings();
    settings.public_url = Some("https://placet.example".parse().unwrap());
    let api = Browser::api(settings).await;
    let request = http::Request::get("/sign-in")
        .header("host", "placet.example")
        .header("accept", "text/html");
    let reply = api.send(request.body(axum::body::Body::empty()).unwrap()).await;
    let line = reply.header("set-cookie").unwrap();
    assert!(line.starts_with("__Host-placet-sign-in=") && line.contains("; Secure"), "{line}");
}

#[test]
fn only_paths_of_ours_are_come_back_to() {
    for path in ["/", "/approvals/a?done=fresh", "/?q=a%20b"] {
        assert_eq!(local_path(path), path);
    }
    for path in [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "",
        "evil",
        "/sign-out",
        "/a b",
        "/a\nb",
        "/sign-in?to=/",
    ] {
        assert_eq!(local_path(path), "/", "{path}");
    }
}

#[tokio::test]
async fn the_development_sign_in_is_refused_off_loopback() {
    assert!(settings().check("0.0.0.0".parse().unwrap()).is_err());
    assert!(settings().check("192.0.2.1".parse().unwrap()).is_err());
    assert!(settings().check("127.0.0.1".parse().unwrap()).is_ok());
    assert!(bare(Arc::new(MemorySessions::default())).check("0.0.0.0".parse().unwrap()).is_ok());
}
