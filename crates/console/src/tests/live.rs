//! The streams of open pages: how many there may be, and when they end.

use http_body_util::BodyExt as _;

use super::{Browser, key, page, sessions::MemorySessions, settings};

#[tokio::test]
async fn open_pages_have_a_quarter_of_the_connections_and_leave_their_person_the_rest() {
    let browser = Browser::signed_in().await;
    let live = || browser.api.open(page("/live", Some(&browser.session)));
    let mut open = Vec::new();
    for _ in 0..256 {
        open.push(live().await);
    }
    assert!(open.iter().all(|stream| stream.status() == 200));
    assert_eq!(live().await.status(), 503);
    assert_eq!(browser.get("/").await.status, 200);
    open.pop();
    assert_eq!(live().await.status(), 200);
}

#[tokio::test]
async fn a_page_hears_that_its_persons_sign_in_is_revoked_and_then_nothing_more() {
    let browser = Browser::signed_in().await;
    let mut stream = browser.api.open(page("/live", Some(&browser.session))).await;
    browser.api.revoke("ben").await;
    browser.api.held("one").await;
    let frame = stream.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "event: ended\ndata: look\n\n");
    assert!(stream.body_mut().frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_page_left_open_is_no_sign_of_life_and_its_stream_ends_with_the_session() {
    let mut settings = settings();
    settings.sessions = std::sync::Arc::new(MemorySessions::going());
    settings.idle_ms = 600_000;
    let key = key(&settings);
    let browser = Browser::on(Browser::api(settings).await, &key).await;
    // The browser reconnects its stream now and then, and the person does nothing.
    for _ in 0..2 {
        let stream = browser.api.open(page("/live", Some(&browser.session))).await;
        assert_eq!(stream.status(), 200);
        tokio::time::advance(std::time::Duration::from_secs(240)).await;
    }
    let begun = tokio::time::Instant::now();
    let mut stream = browser.api.open(page("/live", Some(&browser.session))).await;
    while let Some(frame) = stream.body_mut().frame().await {
        drop(frame);
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(180), "{:?}", begun.elapsed());
    let ended = browser.get("/").await;
    assert_eq!(
        (ended.status.as_u16(), ended.header("location")),
        (303, Some("/sign-in?to=%2F&ended=1"))
    );
}
