//! What forms do, and from whom they are heard.

use axum::body::Body;
use http::Request;

use placet_approvals::views::{Arrangement, DeskAct};
use placet_types::{
    approval::VoteChoice,
    desk::pattern::ArgumentRule,
    digest::Digest,
    error::{ErrorCode, Problem, Refusal},
};
use serde_json::json;

use super::{Browser, HOST, ORIGIN, checked, form_post};

/// Every form that changes something, with fields that would do.
fn forms() -> Vec<(&'static str, String)> {
    let digest = Digest::of(b"shown");
    let entry = Digest::of(b"entry");
    vec![
        ("/approvals/approval-1/decision", format!("decision=approve&reason=seen&digest={digest}")),
        ("/approvals/approval-1/edit", format!("args=%7B%7D&reason=seen&digest={digest}")),
        (
            "/approvals/approval-1/grant",
            format!("uses=3&lasts=2&unit=days&reason=seen&digest={digest}"),
        ),
        ("/together/decision", format!("decision=deny&reason=seen&item=approval-1+{digest}")),
        ("/break-glass", "ticket=INC-1&lasts=1&unit=hours&reason=fire".to_owned()),
        ("/delegations", "to=ana&groups=owners,+others&lasts=1&unit=days&reason=away".to_owned()),
        (
            "/calendar",
            "name=Close&starts=2026-12-30T00:00&lasts=2&unit=days&reason=books".to_owned(),
        ),
        ("/entries/freeze", "act=end&reason=over".to_owned()),
        ("/entries/break_glass", format!("act=decide&decision=approve&reason=yes&digest={entry}")),
        ("/entries/break_glass", "act=review&reason=fine".to_owned()),
    ]
}

fn nothing_was_done(browser: &Browser) -> bool {
    let desk = browser.api.fake.desk.lock();
    browser.api.fake.decided.lock().is_empty()
        && desk.edits.is_empty()
        && desk.arranged.is_empty()
        && desk.acts.is_empty()
        && desk.togethers.is_empty()
}

#[tokio::test]
async fn every_form_does_what_it_says() {
    let browser = Browser::signed_in().await;
    for (path, form) in forms() {
        let reply = browser.post(path, &form).await;
        let expected = if path == "/together/decision" { 200 } else { 303 };
        assert_eq!(reply.status, expected, "{path}: {}", reply.text());
    }
    let decided = browser.api.fake.decided.lock();
    assert_eq!((decided[0].decision, decided[0].reason.as_str()), (VoteChoice::Approve, "seen"));
    let desk = browser.api.fake.desk.lock();
    assert_eq!(
        (desk.edits.len(), desk.togethers.len(), desk.acts.len(), desk.arranged.len()),
        (1, 1, 3, 4)
    );
    assert!(matches!(&desk.acts[2], DeskAct::Review { note } if note == "fine"));
    let freeze = desk.arranged.last().unwrap();
    assert_eq!(
        (freeze.lasts_ms, freeze.starts_at.unwrap().to_string().as_str()),
        (172_800_000, "2026-12-30T00:00:00.000Z")
    );
}

#[tokio::test]
async fn a_form_from_elsewhere_or_without_the_session_s_token_does_nothing() {
    let browser = Browser::signed_in().await;
    let other = Browser::signed_in().await;
    let mut checked_forms = 0;
    for (path, form) in forms()
        .into_iter()
        .chain([("/sign-out", String::new()), ("/together", "pick=approval-1".to_owned())])
    {
        let full = format!("form_token={}&{form}", browser.csrf);
        let with = |headers: &[(&str, &str)], body: &str| {
            let mut request =
                Request::post(path).header("host", HOST).header("cookie", browser.cookie());
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            request
                .header("content-type", "application/x-www-form-urlencoded")
                .body(Body::from(body.to_owned()))
                .unwrap()
        };
        let refused = [
            // Another site, a sibling, an unknown place, a page of nobody.
            with(&[("origin", "https://evil.example")], &full),
            with(&[("origin", "null")], &full),
            with(&[("origin", "http://127.0.0.1:7411")], &full),
            with(&[("sec-fetch-site", "cross-site")], &full),
            with(&[("sec-fetch-site", "same-site")], &full),
            with(&[("origin", ORIGIN), ("sec-fetch-site", "cross-site")], &full),
            with(&[], &full),
            // The right place without the token, with a wrong one, with somebody else's.
            with(&[("origin", ORIGIN)], &form),
            with(&[("origin", ORIGIN)], &format!("form_token=x&{form}")),
            with(&[("origin", ORIGIN)], &format!("form_token={}&{form}", other.csrf)),
        ];
        for request in refused {
            let reply = browser.send(request).await;
            assert_eq!(reply.status, 403, "{path}: {}", reply.text());
            checked_forms += 1;
        }
        let json = Request::post(path)
            .header("host", HOST)
            .header("cookie", browser.cookie())
            .header("origin", ORIGIN);
        let json = json.header("content-type", "application/json").body(Body::from("{}")).unwrap();
        assert_eq!(browser.send(json).await.status, 400, "{path}");
        let nobody = form_post(path, "", &full);
        assert_eq!(browser.send(nobody).await.status, 303, "{path}");
    }
    assert_eq!(checked_forms, 120);
    assert!(nothing_was_done(&browser));
    assert_eq!(browser.get("/").await.status, 200, "still signed in");
}

#[tokio::test]
async fn no_get_changes_anything() {
    let browser = Browser::signed_in().await;
    for (path, form) in forms() {
        let reply = browser.get(&format!("{path}?form_token={}&{form}", browser.csrf)).await;
        // A form's own address, loaded again, leads back to what it was about.
        match path.strip_suffix("/decision") {
            Some(of) => {
                let back = if of == "/together" { "/" } else { of };
                assert_eq!((reply.status.as_u16(), reply.header("location")), (303, Some(back)));
            }
            None => assert_eq!(reply.status, 200, "{path}"),
        }
    }
    assert_eq!(browser.get("/sign-out").await.status, 405);
    assert!(nothing_was_done(&browser));
}

#[tokio::test]
async fn a_stale_page_decides_nothing_and_shows_how_it_stands_now() {
    let browser = Browser::signed_in().await;
    let refusal =
        Refusal::new(ErrorCode::InProgress, "what you were shown is no longer what would run");
    browser.api.fake.desk.lock().refuses = Some(refusal);
    let old = Digest::of(b"what was shown before");
    let form = format!("decision=approve&reason=my+words&digest={old}");
    let reply = browser.post("/approvals/approval-1/decision", &form).await;
    assert_eq!(reply.status, 409);
    let text = checked(&reply);
    for words in [
        "This changed while you were looking at it",
        "Nothing was decided",
        "my words",
        &Digest::of(b"shown").to_string(),
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(nothing_was_done(&browser));
}

#[tokio::test]
async fn a_decision_that_policy_refuses_says_so_on_the_call_s_page() {
    let browser = Browser::signed_in().await;
    let refusal =
        Refusal::new(ErrorCode::PolicyDenied, "nobody approves a call of an agent they answer for")
            .with_detail("policy four-eyes");
    browser.api.fake.desk.lock().refuses = Some(refusal);
    let form = format!("decision=approve&reason=x&digest={}", Digest::of(b"shown"));
    let reply = browser.post("/approvals/approval-1/decision", &form).await;
    assert_eq!(reply.status, 403);
    let text = checked(&reply);
    assert!(
        text.contains("Nobody approves a call of an agent they answer for.")
            && !text.contains("four-eyes"),
        "{text}"
    );
}

#[tokio::test]
async fn a_decision_needs_a_reason_a_choice_and_a_digest() {
    let browser = Browser::signed_in().await;
    let digest = Digest::of(b"shown");
    let long = "x".repeat(2_001);
    for form in [
        format!("decision=approve&reason=+&digest={digest}"),
        format!("decision=approve&reason={long}&digest={digest}"),
        format!("decision=maybe&reason=x&digest={digest}"),
        format!("reason=x&digest={digest}"),
        "decision=approve&reason=x".to_owned(),
        "decision=approve&reason=x&digest=sha256:00".to_owned(),
    ] {
        let reply = browser.post("/approvals/approval-1/decision", &form).await;
        assert_eq!(reply.status, 400, "{form}");
        checked(&reply);
    }
    assert!(nothing_was_done(&browser));
}

#[tokio::test]
async fn an_edit_that_cannot_be_read_or_does_not_fit_comes_back_with_what_was_written() {
    let browser = Browser::signed_in().await;
    let digest = Digest::of(b"shown");
    let broken = browser
        .post("/approvals/approval-1/edit", &format!("args=%7B%3Cb%3E&reason=less&digest={digest}"))
        .await;
    assert_eq!(broken.status, 400);
    let text = checked(&broken);
    assert!(
        text.contains("The arguments are not JSON")
            && text.contains("{&lt;b&gt;")
            && text.contains("less"),
        "{text}"
    );

    let problem =
        Problem { pointer: "/cents".to_owned(), problem: "it is larger than 500".to_owned() };
    let refusal =
        Refusal::new(ErrorCode::ValidationError, "they do not fit").with_problems(vec![problem]);
    browser.api.fake.desk.lock().refuses = Some(refusal);
    let form = format!("args=%7B%22cents%22%3A900%7D&reason=less&digest={digest}");
    let unfit = browser.post("/approvals/approval-1/edit", &form).await;
    assert_eq!(unfit.status, 400);
    assert!(checked(&unfit).contains("/cents: it is larger than 500"));
}

#[tokio::test]
async fn a_grant_s_rules_are_those_that_were_chosen() {
    let browser = Browser::signed_in().await;
    let mut detail = crate::testing::sample_detail();
    detail.proposal.as_mut().unwrap().evidence.preview =
        json!({ "path": "a.txt", "count": 3, "a/b": true });
    browser.api.fake.desk.lock().detail = Some(detail);
    let digest = Digest::of(b"shown");
    let form = format!(
        "digest={digest}&argument=path&rule.path=starts_with&value.path=reports/&argument=count&rule.count=at_most&value.count=5\
         &argument=a/b&rule.a/b=equals&argument=gone&rule.gone=any&uses=3&lasts=2&unit=days&reason=daily"
    );
    assert_eq!(browser.post("/approvals/approval-1/grant", &form).await.status, 303);
    let without = format!(
        "digest={digest}&argument=count&rule.count=at_most&uses=3&lasts=2&unit=days&reason=daily"
    );
    assert_eq!(browser.post("/approvals/approval-1/grant", &without).await.status, 400);
    let desk = browser.api.fake.desk.lock();
    let Arrangement::Grant { pattern: Some(pattern), uses_max: 3, .. } = &desk.arranged[0].arrange
    else {
        panic!()
    };
    assert_eq!(pattern.0.len(), 3);
    assert_eq!(pattern.0["/path"], ArgumentRule::StartsWith("reports/".to_owned()));
    assert_eq!(pattern.0["/count"], ArgumentRule::AtMost(5));
    assert_eq!(pattern.0["/a~1b"], ArgumentRule::Equals(json!(true)));
}

#[tokio::test]
async fn a_beginning_that_a_grant_covers_is_kept_exactly_as_it_was_written() {
    let browser = Browser::signed_in().await;
    let mut detail = crate::testing::sample_detail();
    detail.proposal.as_mut().unwrap().evidence.preview = json!({ "to ": "ann smith", "n": 3 });
    browser.api.fake.desk.lock().detail = Some(detail);
    let digest = Digest::of(b"shown");
    let form = |written: &str| {
        format!(
            "digest={digest}&argument=to+&rule.to+=starts_with&value.to+={written}&argument=n&rule.n=at_most&value.n=+5+\
             &uses=3&lasts=2&unit=days&reason=daily"
        )
    };
    // `ann` would cover `anna` and `annex` as well.
    assert_eq!(browser.post("/approvals/approval-1/grant", &form("ann+")).await.status, 303);
    assert_eq!(browser.post("/approvals/approval-1/grant", &form("")).await.status, 400);
    let desk = browser.api.fake.desk.lock();
    let Arrangement::Grant { pattern: Some(pattern), .. } = &desk.arranged[0].arrange else {
        panic!()
    };
    assert_eq!(pattern.0["/to "], ArgumentRule::StartsWith("ann ".to_owned()));
    assert_eq!(pattern.0["/n"], ArgumentRule::AtMost(5));
}

#[tokio::test]
async fn several_are_shown_before_they_are_decided_and_each_answer_is_shown() {
    let browser = Browser::signed_in().await;
    let none = browser.post("/together", "").await;
    assert_eq!(none.status, 400);
    let look = browser.post("/together", "pick=approval-1&pick=gone").await;
    let text = checked(&look);
    assert!(text.contains("1 chosen call is") && text.contains("Approve all 1"), "{text}");
    let digest = Digest::of(b"shown");
    let form =
        format!("decision=approve&reason=same&item=approval-1+{digest}&item=approval-2+{digest}");
    let decided = browser.post("/together/decision", &form).await;
    assert_eq!(decided.status, 409);
    let text = checked(&decided);
    assert!(
        text.contains("1 decision is recorded") && text.contains("It changed &lt;meanwhile&gt;."),
        "{text}"
    );
}

#[tokio::test]
async fn a_form_that_is_too_large_is_refused_unread() {
    let browser = Browser::signed_in().await;
    let large = format!("reason={}", "x".repeat(600 * 1024));
    assert_eq!(browser.post("/break-glass", &large).await.status, 413);
    let many = (0..600).map(|n| format!("f{n}=1")).collect::<Vec<_>>().join("&");
    assert_eq!(browser.post("/break-glass", &many).await.status, 400);
    assert!(nothing_was_done(&browser));
}
