//! What forms do, and from whom they are accepted.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use placet_types::digest::Digest;

use super::{Browser, HOST, ORIGIN, checked, form_post, now, shown, visitor};
use crate::grant;
use placet_api::testing::{Reply, TestApi, Waiting, sample_detail};

/// Every form that changes something, with valid fields.
async fn forms(api: &TestApi) -> Vec<(String, String)> {
    let (one, two) = (api.held("one").await, api.held("two").await);
    let (three, four) = (api.held("three").await, api.held("four").await);
    let approval = |held: &Waiting, deed| format!("/approvals/{}/{deed}", held.approval);
    let entry = |entry: &Value| format!("/entries/{}", entry["directive_id"].as_str().unwrap());
    let freeze = api.arrange("ben", json!({ "kind": "freeze", "name": "night" })).await;
    let glass = api.arrange("ema", json!({ "kind": "break_glass", "ticket": "INC-1" })).await;
    let asked = glass["digest"].as_str().unwrap();
    let over = api.arrange("ema", json!({ "kind": "break_glass", "ticket": "INC-2" })).await;
    let acts = format!("/v1/directives/{}/acts", over["directive_id"].as_str().unwrap());
    let agree = json!({ "act": "decide", "decision": "approve", "reason": "yes", "digest": over["digest"] });
    for (who, act) in [("cy", agree), ("ema", json!({ "act": "end", "reason": "over" }))] {
        assert_eq!(api.post_as(who, &acts, act).await.status, 200);
    }
    let to_end = "act=end&reason=over".to_owned();
    vec![
        (approval(&one, "decision"), format!("decision=approve&reason=seen&digest={}", one.digest)),
        (
            approval(&two, "edit"),
            format!("args=%7B%22path%22%3A%22b%22%7D&reason=seen&digest={}", two.digest),
        ),
        (
            approval(&three, "grant"),
            format!(
                "argument=path&rule.path=any&uses=3&lasts=2&unit=days&reason=seen&digest={}",
                three.digest
            ),
        ),
        (
            "/together/decision".to_owned(),
            format!("decision=deny&reason=seen&item={}+{}", four.approval, four.digest),
        ),
        ("/break-glass".to_owned(), "ticket=INC-3&lasts=1&unit=hours&reason=fire".to_owned()),
        (
            "/delegations".to_owned(),
            "to=cy&groups=approvers,+operators&lasts=1&unit=days&reason=away".to_owned(),
        ),
        (
            "/calendar".to_owned(),
            "name=Close&starts=2027-01-30T00:00&lasts=2&unit=days&reason=books".to_owned(),
        ),
        (entry(&freeze), to_end),
        (entry(&glass), format!("act=decide&decision=approve&reason=yes&digest={asked}")),
        (entry(&over), "act=review&reason=fine".to_owned()),
    ]
}

#[tokio::test]
async fn every_form_does_what_it_says() {
    let browser = Browser::signed_in().await;
    let forms = forms(&browser.api).await;
    for (path, form) in &forms {
        let reply = browser.post(path, form).await;
        let expected = if path == "/together/decision" { 200 } else { 303 };
        assert_eq!(reply.status, expected, "{path}: {}", reply.text());
    }
    let read = async |path: String| browser.api.get_as("eve", &path).await.json();
    let approval = async |at: usize| {
        let path = forms[at].0.rsplit_once('/').unwrap().0;
        read(format!("/v1{path}")).await["approval"].take()
    };
    let decided = &approval(0).await["votes"][0];
    assert_eq!(
        (&decided["approver"], &decided["choice"], &decided["reason"]),
        (&json!("ben"), &json!("approve"), &json!("seen"))
    );
    assert_eq!(approval(1).await["edits"], 1);
    let entries = read("/v1/directives?limit=200".to_owned()).await;
    let entries = entries["entries"].as_array().unwrap();
    let found = |member: &str, value: &str| {
        let found = entries.iter().find(|entry| entry["body"][member] == value);
        found.unwrap_or_else(|| panic!("{value}: {entries:?}"))
    };
    let grant = found("kind", "grant");
    assert_eq!((&grant["body"]["uses_max"], &grant["by"]), (&json!(3), &json!("ben")));
    assert_eq!(found("ticket", "INC-3")["state"], "proposed");
    assert_eq!(found("kind", "delegation")["body"]["groups"], json!(["approvers", "operators"]));
    let freeze = found("name", "Close");
    let starts_at: i64 = freeze["starts_at"].as_i64().unwrap();
    assert_eq!(starts_at, 1_801_267_200_000);
    assert_eq!(freeze["expires_at"], starts_at + 172_800_000);
    assert_eq!(found("name", "night")["state"], "ended");
    assert_eq!(found("ticket", "INC-1")["state"], "active");
    assert_eq!(found("ticket", "INC-2")["review"]["text"], "fine");
}

#[tokio::test]
async fn a_form_from_elsewhere_or_without_the_session_s_token_does_nothing() {
    let browser = Browser::signed_in().await;
    let other = Browser::signed_in().await;
    let mut checked_forms = 0;
    let own = [("/sign-out", ""), ("/together", "pick=approval-1")];
    let own = own.map(|(path, form)| (path.to_owned(), form.to_owned()));
    let forms = forms(&browser.api).await;
    let before = browser.api.state().await;
    for (path, form) in forms.iter().chain(&own) {
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
            with(&[("origin", ORIGIN)], form),
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
    assert_eq!(browser.api.state().await, before);
    assert_eq!(browser.get("/").await.status, 200, "still signed in");
}

#[tokio::test]
async fn no_get_changes_anything() {
    let browser = Browser::signed_in().await;
    let forms = forms(&browser.api).await;
    let before = browser.api.state().await;
    for (path, form) in forms {
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
    assert_eq!(browser.api.state().await, before);
}

#[tokio::test]
async fn a_stale_page_decides_nothing_and_shows_how_it_stands_now() {
    let browser = Browser::signed_in().await;
    let held = browser.api.held("one").await;
    let before = browser.api.state().await;
    let old = Digest::of(b"what was shown before");
    let form = format!("decision=approve&reason=my+words&digest={old}");
    let reply = browser.post(&format!("/approvals/{}/decision", held.approval), &form).await;
    assert_eq!(reply.status, 409);
    let text = checked(&reply);
    for words in [
        "This changed while you were looking at it",
        "Nothing was decided",
        "my words",
        held.digest.as_str(),
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(browser.api.state().await, before);
}

#[tokio::test]
async fn a_decision_that_policy_refuses_says_so_on_the_call_s_page() {
    let browser = Browser::signed_in().await;
    let held = browser.api.held("one").await;
    let page = format!("/approvals/{}", held.approval);
    let edit = format!("args=%7B%22path%22%3A%22other%22%7D&reason=mine&digest={}", held.digest);
    assert_eq!(browser.post(&format!("{page}/edit"), &edit).await.status, 303);
    let now = browser.api.get_as("cy", &format!("/v1{page}")).await.json();
    let digest = now["approval"]["digest"].as_str().unwrap();
    let form = format!("decision=approve&reason=x&digest={digest}");
    let reply = browser.post(&format!("{page}/decision"), &form).await;
    assert_eq!(reply.status, 403);
    let text = checked(&reply);
    assert!(
        text.contains("Nothing was decided") && text.contains("you wrote these arguments"),
        "{text}"
    );
}

#[tokio::test]
async fn a_decision_needs_a_reason_a_choice_and_a_digest() {
    let browser = Browser::signed_in().await;
    let held = browser.api.held("one").await;
    let before = browser.api.state().await;
    let digest = &held.digest;
    let long = "x".repeat(2_001);
    for form in [
        format!("decision=approve&reason=+&digest={digest}"),
        format!("decision=approve&reason={long}&digest={digest}"),
        format!("decision=maybe&reason=x&digest={digest}"),
        format!("reason=x&digest={digest}"),
        "decision=approve&reason=x".to_owned(),
        "decision=approve&reason=x&digest=sha256:00".to_owned(),
    ] {
        let reply = browser.post(&format!("/approvals/{}/decision", held.approval), &form).await;
        assert_eq!(reply.status, 400, "{form}");
        checked(&reply);
    }
    assert_eq!(browser.api.state().await, before);
}

#[tokio::test]
async fn an_edit_that_cannot_be_read_or_does_not_fit_comes_back_with_what_was_written() {
    let browser = Browser::signed_in().await;
    let held = browser.api.held("one").await;
    let (path, digest) = (format!("/approvals/{}/edit", held.approval), &held.digest);
    let form = format!("args=%7B%3Cb%3E&reason=less&digest={digest}");
    let broken = browser.post(&path, &form).await;
    assert_eq!(broken.status, 400);
    let text = checked(&broken);
    assert!(
        text.contains("The arguments are not JSON")
            && text.contains("{&lt;b&gt;")
            && text.contains("less"),
        "{text}"
    );
    let form = "args=%7B%22path%22%3A%22a%22%2C%22count%22%3A900%7D&reason=less";
    let unfit = browser.post(&path, &format!("{form}&digest={digest}")).await;
    assert_eq!(unfit.status, 400, "{}", unfit.text());
    assert!(checked(&unfit).contains("/count: "), "{}", unfit.text());
}

/// What a grant covers, once it was proposed.
async fn pattern(browser: &Browser, proposed: &Reply) -> Value {
    let entry = proposed.header("location").unwrap().strip_prefix("/entries/").unwrap();
    browser.api.get_as("ben", &format!("/v1/directives/{entry}")).await.json()["body"]["pattern"]
        .take()
}

#[tokio::test]
async fn a_grant_s_rules_are_those_that_were_chosen() {
    let browser = Browser::signed_in().await;
    let args = json!({ "path": "a.txt", "count": 3, "a/b": true });
    let held = browser.api.held_with("one", args).await;
    let (path, digest) = (format!("/approvals/{}/grant", held.approval), &held.digest);
    let form = format!(
        "digest={digest}&argument=path&rule.path=starts_with&value.path=a&argument=count&rule.count=at_most&value.count=5\
         &argument=a/b&rule.a/b=equals&argument=gone&rule.gone=any&uses=3&lasts=2&unit=days&reason=daily"
    );
    let without = format!(
        "digest={digest}&argument=count&rule.count=at_most&uses=3&lasts=2&unit=days&reason=daily"
    );
    assert_eq!(browser.post(&path, &without).await.status, 400);
    let proposed = browser.post(&path, &form).await;
    assert_eq!(proposed.status, 303, "{}", proposed.text());
    let rules = json!({ "/path": { "starts_with": "a" }, "/count": { "at_most": 5 }, "/a~1b": { "equals": true } });
    assert_eq!(pattern(&browser, &proposed).await, rules);
}

#[tokio::test]
async fn a_beginning_that_a_grant_covers_is_kept_exactly_as_it_was_written() {
    let browser = Browser::signed_in().await;
    let args = json!({ "path": "a", "to ": "ann smith", "count": 3 });
    let held = browser.api.held_with("one", args).await;
    let (path, digest) = (format!("/approvals/{}/grant", held.approval), &held.digest);
    let form = |written: &str| {
        format!(
            "digest={digest}&argument=to+&rule.to+=starts_with&value.to+={written}&argument=count&rule.count=at_most&value.count=+5+\
             &argument=path&rule.path=any&uses=3&lasts=2&unit=days&reason=daily"
        )
    };
    assert_eq!(browser.post(&path, &form("")).await.status, 400);
    // `ann` would cover `anna` and `annex` as well.
    let proposed = browser.post(&path, &form("ann+")).await;
    assert_eq!(proposed.status, 303, "{}", proposed.text());
    let rules = pattern(&browser, &proposed).await;
    assert_eq!(
        (&rules["/to "], &rules["/count"]),
        (&json!({ "starts_with": "ann " }), &json!({ "at_most": 5 }))
    );
}

#[tokio::test]
async fn a_form_that_is_too_large_is_refused_unread() {
    let browser = Browser::signed_in().await;
    let before = browser.api.state().await;
    let large = format!("reason={}", "x".repeat(600 * 1024));
    assert_eq!(browser.post("/break-glass", &large).await.status, 413);
    let many = (0..600).map(|n| format!("f{n}=1")).collect::<Vec<_>>().join("&");
    assert_eq!(browser.post("/break-glass", &many).await.status, 400);
    assert_eq!(browser.api.state().await, before);
}

#[tokio::test]
async fn a_grant_s_form_lets_a_masked_value_be_anything_only() {
    let mut detail = sample_detail();
    let evidence = &mut detail.proposal.as_mut().unwrap().evidence;
    evidence.preview = json!({ "card": { "pan": "[sensitive]" }, "path": "a.txt" });
    evidence.preview_masked = ["/card/pan".to_owned()].into();
    detail.standing.grantable = true;
    let text = shown(grant::view(&detail, &visitor().await, now())).await;
    let rules_of = |name: &str| {
        let (_, rest) = text.split_once(&format!("name=\"rule.{name}\"")).unwrap();
        rest.split_once("</select>").unwrap().0.matches("<option").count()
    };
    assert_eq!((rules_of("card"), rules_of("path")), (1, 4), "{text}");
}
