//! Sessions, and the development sign-in.

use std::{sync::Arc, time::Duration};

use placet_identity::fresh_text;
use placet_types::principal::Principal;
use serde_json::json;

use super::{Browser, StoppedClock, checked, cookie, form_post, page, settings};
use crate::console::{
    ConsoleSettings,
    session::{Sessions, Use},
    visitor::local_path,
};

fn person(id: &str) -> Principal {
    serde_json::from_value(json!({ "kind": "user", "tenant_id": "a", "id": id })).unwrap()
}

fn sessions(change: impl FnOnce(&mut ConsoleSettings)) -> Sessions<String> {
    let mut settings = ConsoleSettings::new(Arc::new(StoppedClock));
    change(&mut settings);
    Sessions::new(&settings)
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_when_it_is_unused_or_too_old_and_a_page_s_own_looks_do_not_keep_it() {
    let all = sessions(|settings| {
        settings.idle_ms = 1_000;
        settings.session_ms = 2_500;
    });
    let step = || tokio::time::advance(Duration::from_millis(700));
    let used = all.begin("c".to_owned(), person("ana")).unwrap();
    let watched = all.begin("c".to_owned(), person("ana")).unwrap();
    step().await;
    assert!(all.find(&used, Use::Person).is_some() && all.find(&watched, Use::Page).is_some());
    step().await;
    assert!(all.find(&used, Use::Person).is_some());
    assert!(all.find(&watched, Use::Person).is_none(), "nobody did anything");
    step().await;
    assert!(all.find(&used, Use::Person).is_some());
    step().await;
    assert!(all.find(&used, Use::Person).is_none(), "it is too old");
}

#[tokio::test(start_paused = true)]
async fn one_person_has_few_sessions_and_all_together_have_a_limit() {
    let all = sessions(|settings| settings.sessions_max = 20);
    let first = all.begin("c".to_owned(), person("ana")).unwrap();
    for _ in 0..16 {
        tokio::time::advance(Duration::from_millis(1)).await;
        all.begin("c".to_owned(), person("ana")).unwrap();
    }
    assert!(all.find(&first, Use::Person).is_none(), "the oldest gave way");
    for id in ["b", "c", "d", "e"] {
        all.begin("c".to_owned(), person(id)).unwrap();
    }
    assert!(all.begin("c".to_owned(), person("f")).is_err());
    assert_eq!(fresh_text().unwrap().len(), 43);
}

#[tokio::test]
async fn signing_in_makes_a_new_session_and_ends_the_old_one() {
    let browser = Browser::signed_in().await;
    let again = browser.send(page("/sign-in", Some(&browser.session))).await;
    let waiting = cookie(&again, "placet-sign-in").unwrap();
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
    browser.door.fake.revoked.store(true, std::sync::atomic::Ordering::SeqCst);
    let away = browser.get("/help").await;
    assert_eq!(
        (away.status.as_u16(), away.header("location")),
        (303, Some("/sign-in?to=%2Fhelp&ended=1"))
    );
    assert_eq!(browser.post("/sign-out", "").await.status, 303);
}

#[tokio::test]
async fn whoever_comes_with_a_session_of_another_node_is_told_so_and_nothing_is_done() {
    let (here, there) = (Browser::signed_in().await, Browser::door(settings()));
    let form = |path: &str| form_post(path, &here.cookie(), "form_token=x&decision=approve");
    for (stray, back) in [
        (page("/help?a=b", Some(&here.session)), "%2Fhelp%3Fa%3Db"),
        (form("/approvals/apr_1/decision"), "%2Fapprovals%2Fapr_1"),
        (form("/together/decision"), "%2F"),
    ] {
        let away = there.send(stray).await;
        let to = away.header("location").unwrap().to_owned();
        assert_eq!(
            (away.status.as_u16(), to.clone()),
            (303, format!("/sign-in?to={back}&ended=1"))
        );
        let told = checked(&there.send(page(&to, Some(&here.session))).await);
        assert!(told.contains("another node") && told.contains("nothing that you sent"), "{told}");
    }
    let first = checked(&there.send(page("/sign-in?to=/help", None)).await);
    assert!(!first.contains("another node"), "{first}");
    assert_eq!(here.get("/help").await.status, 200, "at home it goes on");
}

#[tokio::test]
async fn a_sign_in_that_another_browser_began_is_refused() {
    let door = Browser::door(settings());
    let waiting = cookie(&door.send(page("/sign-in", None)).await, "placet-sign-in").unwrap();
    let form = format!("form_token={waiting}&person=0");
    for cookies in ["", "placet-sign-in=AAAA", "placet=AAAA"] {
        let reply = door.send(form_post("/sign-in/development", cookies, &form)).await;
        assert_eq!(reply.status, 403, "{cookies}");
        assert!(cookie(&reply, "placet").is_none());
    }
    let unknown = format!("form_token={waiting}&person=9");
    let reply = door
        .send(form_post("/sign-in/development", &format!("placet-sign-in={waiting}"), &unknown))
        .await;
    assert_eq!(reply.status, 400);
}

#[tokio::test]
async fn without_a_way_to_sign_in_the_page_says_what_is_missing() {
    let door = Browser::door(ConsoleSettings::new(Arc::new(StoppedClock)));
    let text = checked(&door.send(page("/sign-in", None)).await);
    assert!(text.contains("console.sign_in") && !text.contains("Development"), "{text}");
    let form = form_post("/sign-in/development", "placet-sign-in=AAAA", "form_token=AAAA&person=0");
    assert_eq!(door.send(form).await.status, 404);
}

#[tokio::test]
async fn over_tls_cookies_are_bound_to_the_host() {
    let mut settings = settings();
    settings.public_url = Some("https://placet.example".parse().unwrap());
    let door = Browser::door(settings);
    let request = http::Request::get("/sign-in")
        .header("host", "placet.example")
        .header("accept", "text/html");
    let reply = door.send(request.body(axum::body::Body::empty()).unwrap()).await;
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
    assert!(settings().is_refused_on("0.0.0.0".parse().unwrap()));
    assert!(settings().is_refused_on("192.0.2.1".parse().unwrap()));
    assert!(!settings().is_refused_on("127.0.0.1".parse().unwrap()));
    assert!(
        !ConsoleSettings::new(Arc::new(StoppedClock)).is_refused_on("0.0.0.0".parse().unwrap())
    );
}
