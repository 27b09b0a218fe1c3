//! What the pages show, to whom, and that nothing hostile gets through them.

use axum::extract::FromRequestParts as _;
use http_body_util::BodyExt as _;
use serde_json::json;

use placet_approvals::views::{
    ApprovalDetail, DirectiveView, EntryStanding, InboxOrder, InboxView,
};
use placet_ledger::store::{Admission, Changes, DirectiveQuery, Durability, Store as _};

use super::{Browser, call_page, checked, key, now, page, settings, shown, visitor, with_link};
use crate::{bulk, edit, entry, grant, inbox, timeline, visitor::PageQuery};
use placet_api::testing::{self, TestApi, sample_detail};

/// Pages that anyone signed in can open, whatever their content.
const PAGES: [&str; 16] = [
    "/",
    "/?state=finished&order=newest",
    "/?whose=mine&mode=destructive&group=owners&q=x&from=50",
    "/?state=frob&mode=frob&from=frob",
    "/load",
    "/report",
    "/decisions",
    "/decisions?run=r1&range=week",
    "/tools",
    "/runs",
    "/grants",
    "/grants?state=all",
    "/delegations",
    "/calendar",
    "/calendar?month=1970-01",
    "/help",
];

/// Somebody declares an emergency.
async fn declared(browser: &Browser) -> String {
    let glass = json!({ "kind": "break_glass", "ticket": "INC-1 <i>" });
    let entry = browser.api.arrange("ema", glass).await;
    entry["directive_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_page_is_whole_and_safe() {
    let browser = Browser::on_disk().await;
    let held = browser.api.held("one").await;
    let glass = declared(&browser).await;
    let freeze = "name=Close+%3Cb%3E&lasts=2&unit=days&reason=books";
    assert_eq!(browser.post("/calendar", freeze).await.status, 303);
    let (call, approval) = (held.call, held.approval);
    let own = [
        format!("/approvals/{approval}"),
        format!("/approvals/{approval}?done=approve"),
        format!("/approvals/{approval}/edit"),
        format!("/approvals/{approval}/grant"),
        format!("/calls/{call}/timeline"),
        "/break-glass".to_owned(),
        format!("/entries/{glass}"),
    ];
    for path in PAGES.into_iter().chain(own.iter().map(String::as_str)) {
        let reply = browser.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        let text = checked(&reply);
        assert!(text.contains("Sign out") && text.contains("Ben &lt;b&gt;"), "{path}");
        assert!(
            !text.contains("<b>") && !text.contains("<u>") && !text.contains("<i>"),
            "{path}: {text}"
        );
    }
}

#[tokio::test]
async fn a_filter_that_names_nothing_is_refused_and_not_dropped() {
    let browser = Browser::on_disk().await;
    for (path, value) in
        [("/decisions?verdict=zzz", "zzz"), ("/decisions?agent=a%20b&verdict=deny", "a b")]
    {
        let reply = browser.get(path).await;
        assert_eq!(reply.status, 400, "{path}");
        assert!(checked(&reply).contains(&format!("<code>{value}</code> is no")), "{path}");
    }
    assert_eq!(browser.get("/decisions?verdict=&agent=").await.status, 200);
    let refused = browser.api.get_as("ben", "/v1/decisions?verdict=zzz").await;
    assert!(refused.text().contains("`verdict` must be one of"), "{}", refused.text());
}

#[tokio::test]
async fn a_decision_leads_to_a_timeline_where_there_is_one() {
    let browser = Browser::on_disk().await;
    let held = browser.api.held("one").await;
    let list = browser.api.get_as("ben", "/v1/decisions").await.json();
    let of_call = |one: &&serde_json::Value| one["call_id"] == json!(held.call);
    let decision = list["decisions"].as_array().unwrap().iter().find(of_call).unwrap();
    let path = format!("/decisions/{}", decision["decision_id"].as_str().unwrap());
    let page = checked(&browser.get(&path).await);
    let timeline = format!("/calls/{}/timeline", held.call);
    assert!(page.contains(&timeline), "{page}");
    assert_eq!(browser.get(&timeline).await.status, 200);
}

#[tokio::test]
async fn who_is_not_signed_in_is_sent_to_the_sign_in_and_back() {
    let settings = settings();
    let key = key(&settings);
    let api = Browser::api(settings).await;
    let own = ["/approvals/approval-1", "/calls/call-1/timeline", "/entries/grant", "/live"];
    for path in PAGES.into_iter().chain(own) {
        let reply = api.send(page(path, None)).await;
        assert_eq!(reply.status, 303, "{path}");
        let to = reply.header("location").unwrap();
        let wanted: String = url::form_urlencoded::byte_serialize(path.as_bytes()).collect();
        assert_eq!(to, format!("/sign-in?to={wanted}"));
        let forged =
            api.send(page(path, Some("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"))).await;
        assert_eq!(forged.status, 303, "{path}");
    }
    let waiting = with_link(&api, &key).await;
    let mut request = page("/sign-in?to=/help", None);
    let waiting = format!("placet-sign-in={waiting}").parse().unwrap();
    request.headers_mut().insert("cookie", waiting);
    let text = checked(&api.send(request).await);
    assert!(
        text.contains("Ben &lt;b&gt;") && text.contains("name=\"to\" value=\"/help\""),
        "{text}"
    );
}

#[tokio::test]
async fn programs_are_told_what_this_is_whether_there_is_a_console_or_not() {
    let with = Browser::api(settings()).await;
    let without = TestApi::new().await;
    for api in [&with, &without] {
        let reply = api.get("/").await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("content-type")),
            (200, Some("application/json"))
        );
        assert_eq!(reply.json()["service"], "placet");
    }
    let browser = without.send(page("/", None)).await;
    assert_eq!(browser.header("content-type"), Some("application/json"));
    assert_eq!(without.send(page("/sign-in", None)).await.status, 404);
}

/// The list that a URL asks for, and its page of this inbox.
async fn listed(address: &str, inbox: &InboxView) -> (inbox::Wanted, String) {
    let (mut parts, _) = page(address, None).into_parts();
    let query = PageQuery::from_request_parts(&mut parts, &()).await.unwrap();
    let wanted = inbox::Wanted::of(query);
    let text = shown(inbox::view(&wanted, inbox, &visitor().await, now())).await;
    (wanted, text)
}

#[tokio::test]
async fn a_line_of_the_inbox_says_what_would_run() {
    let inbox = testing::inbox(&sample_detail().approval, 1);
    for path in ["/", "/?state=succeeded"] {
        let text = listed(path, &inbox).await.1;
        assert!(text.contains("path: &lt;b&gt;a.txt&lt;/b&gt;"), "{path}: {text}");
    }
}

#[tokio::test]
async fn of_an_entry_only_that_is_offered_which_the_reader_may_do() {
    let (glass, grant) = (testing::break_glass(), testing::grant());
    let show = async |entry: &DirectiveView| {
        shown(entry::view(entry, &visitor().await, now(), None)).await
    };
    for (entry, offer, instead) in [
        (&glass, "value=\"decide\"", "not for you to agree"),
        (&glass, "value=\"review\"", "somebody who took no part and may review it"),
        (&grant, "value=\"end\"", "t have permission to end"),
    ] {
        let text = show(entry).await;
        assert!(text.contains(offer) && !text.contains(instead), "{offer}: {text}");
        assert!(!text.contains("<i>") && !text.contains("<u>"), "{text}");
        let standing = EntryStanding::default();
        let text = show(&DirectiveView { standing, ..entry.clone() }).await;
        assert!(!text.contains(offer) && text.contains(instead), "{offer}: {text}");
    }
}

#[tokio::test]
async fn what_is_in_force_is_shown_however_much_is_over() {
    let browser = Browser::signed_in().await;
    let freeze = "name=Close&lasts=2&unit=days&reason=books";
    let made = browser.post("/calendar", freeze).await;
    let own = made.header("location").unwrap();
    let duty = "to=cy&groups=approvers&lasts=1&unit=days&reason=away";
    let duty = browser.post("/delegations", duty).await;
    let duty = duty.header("location").unwrap();
    let store = &browser.api.world.store;
    let real =
        store.directives(&DirectiveQuery { limit: 10, ..DirectiveQuery::default() }).await.unwrap();
    let mut changes = Changes::new(Durability::Synced, Admission::Completion);
    for (entry, count) in real.iter().zip([620_i64, 120]) {
        for age in 1..=count {
            let mut past = entry.clone();
            past.directive_id =
                format!("over-{}-{age}", entry.body.kind().as_str()).parse().unwrap();
            past.created_at = entry.created_at.plus_ms(age * -3_600_000);
            past.starts_at = past.created_at;
            past.expires_at = past.created_at.plus_ms(1_000);
            past.rev = 1;
            changes.directives.push(past);
        }
    }
    store.commit(changes).await.unwrap();
    let calendar = checked(&browser.get("/calendar").await);
    assert!(calendar.contains(own), "{calendar}");
    assert!(calendar.contains("only the 600 that were entered last"), "{calendar}");
    let first = checked(&browser.get("/delegations?state=all").await);
    assert!(first.contains(duty) && first.contains("over-delegation-99\""), "{first}");
    let next = "/delegations?state=all&amp;after=over-delegation-99";
    assert!(!first.contains("over-delegation-100\"") && first.contains(next), "{first}");
    let second = browser.get("/delegations?state=all&after=over-delegation-99").await;
    let second = checked(&second);
    assert!(second.contains("over-delegation-100\"") && second.contains("The newest"), "{second}");
    let open = checked(&browser.get("/delegations").await);
    assert!(open.contains(duty) && !open.contains("Older ones"), "{open}");
}

#[tokio::test]
async fn finished_calls_are_paged_by_place_and_no_total_is_told() {
    let next_after = Some("approval-1".parse().unwrap());
    let waiting = testing::inbox(&sample_detail().approval, 50);
    let ended = InboxView { total: None, next_after, ..waiting.clone() };
    let (wanted, full) = listed("/?state=denied&order=risk&from=50&after=apr_9", &ended).await;
    let next = "/?state=denied&amp;order=risk&amp;after=approval-1";
    assert!(full.contains("Further in the list") && full.contains(next), "{full}");
    assert!(full.contains("From the beginning") && !full.contains("of 60"), "{full}");
    assert!(!full.contains("data-live"), "it would be searched again with all news: {full}");
    assert!(!full.contains("value=\"risk\""), "{full}");
    let after = wanted.query.after.as_ref().map(|id| id.as_str());
    let asked = (wanted.query.order, wanted.query.offset, after);
    assert_eq!(asked, (InboxOrder::Newest, 0, Some("apr_9")));
    let rare = InboxView { incomplete: true, ..ended };
    let rare = listed("/?state=denied&q=rare", &rare).await.1;
    assert!(rare.contains("Search on") && rare.contains("There may be further ones"), "{rare}");
    let last = InboxView { total: Some(60), ..testing::inbox(&sample_detail().approval, 10) };
    let waiting = listed("/?from=50&after=apr_9", &last).await.1;
    assert!(waiting.contains("51 to 60 of 60") && waiting.contains("data-live"), "{waiting}");
}

#[tokio::test]
async fn thousands_of_calls_are_paged() {
    let inbox = InboxView { total: Some(5_000), ..testing::inbox(&sample_detail().approval, 50) };
    let (wanted, text) = listed("/?from=4950&q=%3Cx%3E", &inbox).await;
    assert!(
        text.contains("4951 to 5000 of 5000") && text.contains("Earlier in the list"),
        "{text}"
    );
    assert!(text.contains("from=4900") && !text.contains("Further in the list"), "{text}");
    assert!(text.len() < 400_000, "{}", text.len());
    let query = wanted.query;
    assert_eq!((query.offset, query.limit, query.search.as_deref()), (4_950, 50, Some("<x>")));
}

/// An approval whose every text is an attack.
fn hostile() -> ApprovalDetail {
    let attack = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'";
    let mut detail = sample_detail();
    detail.approval.votes = vec![
        serde_json::from_value(json!({
            "approver": "mallory", "groups": [], "groups_as_of": 0, "choice": "deny", "reason": attack, "at": 0,
            "shown_digest": detail.approval.digest,
        }))
        .unwrap(),
    ];
    detail.approval.void_reason = Some(attack.to_owned());
    detail.approval.principal_chain.actor.display = Some(attack.to_owned());
    detail.standing.why_not = Some(attack.to_owned());
    detail.proposal.as_mut().unwrap().evidence.target = attack.to_owned();
    detail.proposal.as_mut().unwrap().evidence.description = attack.to_owned();
    detail.proposal.as_mut().unwrap().evidence.preview =
        json!({ attack: [attack, { "deep": attack }], "</textarea>": "</textarea><script>" });
    detail.proposal.as_mut().unwrap().evidence.credential.source = Some(attack.to_owned());
    detail.proposal.as_mut().unwrap().evidence.credential.scopes = vec![attack.to_owned()];
    detail.proposal.as_mut().unwrap().call.evidence_refs = vec![attack.to_owned()];
    for reason in detail.proposal.as_mut().unwrap().requirement.reasons.iter_mut() {
        reason.policy = attack.to_owned();
        reason.reason = attack.to_owned();
    }
    detail.proposal.as_mut().unwrap().evidence.edited = Some(
        serde_json::from_value(json!({
            "by": "ana", "reason": attack, "at": 0, "preview": { attack: attack },
            "request_digest": detail.approval.digest,
        }))
        .unwrap(),
    );
    detail.outcome = Some(
        serde_json::from_value(
            json!({ "record_id": testing::record_id(), "state": attack, "output": { attack: attack }, "updated_at": 0 }),
        )
        .unwrap(),
    );
    detail
}

#[tokio::test]
async fn what_the_agent_refers_to_is_shown_as_text_and_never_as_a_link() {
    let bare = call_page(&sample_detail()).await;
    assert!(!bare.contains("What the agent refers to"));
    let mut detail = sample_detail();
    detail.proposal.as_mut().unwrap().call.evidence_refs = vec![
        "https://tickets.example/4711?a=1&b=2".to_owned(),
        "ticket <b>12</b>\u{202e}".to_owned(),
    ];
    detail.proposal.as_mut().unwrap().evidence.description = "Reads\u{200b} only.".to_owned();
    let page = call_page(&detail).await;
    assert!(page.contains("What the agent refers to"), "{page}");
    assert!(
        page.contains("<blockquote>https://tickets.example/4711?a=1&amp;b=2</blockquote>"),
        "{page}"
    );
    assert!(page.contains("ticket &lt;b&gt;12&lt;/b&gt;\\u{202e}"), "{page}");
    assert!(page.contains("Reads\\u{200b} only."), "{page}");
    assert!(!page.contains("href=\"https://tickets"), "{page}");
}

#[tokio::test]
async fn no_text_on_a_call_s_page_hides_a_character_or_reads_as_masked() {
    let unseen = "\u{3164}\u{115f}\u{1160}\u{ffa0}\u{2800}\u{fe0f}\u{34f}\u{180b}\u{e0100}\u{17b4}\u{fff9}\u{1d173}\u{1bca0}\u{2009}\
        \u{3000}\u{a0}\u{2028}\u{2029}\u{61c}\u{ad}\u{e0041}\u{202e}\u{200b}\u{7}";
    let mut detail = hostile();
    let proposal = detail.proposal.as_mut().unwrap();
    proposal.call.evidence_refs = vec![unseen.to_owned()];
    proposal.evidence.preview = json!({ unseen: unseen, "literal": "[sensitive]" });
    let edited = proposal.evidence.edited.as_mut().unwrap();
    edited.preview = json!({ "literal": "[sensitive]", "old": unseen });
    edited.reason = format!("first{unseen}\nsecond");
    detail.approval.votes[0].reason = format!("first{unseen}\nsecond");
    let text = call_page(&detail).await;
    for text in [&text, &edit_page(&detail).await] {
        let places = text.find(|c: char| unseen.contains(c));
        assert_eq!(places, None, "{text}");
        assert!(text.contains("[sensitive]") && !text.contains(">masked<"), "{text}");
    }
    assert_eq!(text.matches(r"\u{7}\u{a}second</blockquote>").count(), 2, "{text}");
    let arguments = text.find("class=\"tree\"").unwrap();
    for quoted in ["</blockquote>", "What the agent refers to"] {
        assert!(arguments < text.find(quoted).unwrap(), "{quoted}: {text}");
    }
}

/// A call as somebody of another tenant sees it.
fn as_external(what: &str) -> ApprovalDetail {
    let mut detail = sample_detail();
    let part = json!({
        "part_version": "placet.external-approver-part.v1", "approval_id": detail.approval.approval_id,
        "call_id": detail.approval.call_id,
        "asked_by": "acme", "asked_of": "globex",
        "requester": { "kind": "agent", "id": "credit-bot", "tenant_id": "acme" },
        "capability_id": "finance/credit", "description": what, "mode": "destructive",
        "preview": { "purpose": what }, "preview_digest": detail.approval.digest,
        "contract_digest": detail.approval.digest, "bundle_digest": detail.approval.digest, "edits": 1,
        "requirement": { "groups": { "globex/credit-approvers": 1 }, "quorum": 1, "expires_in_ms": 1_000, "reasons": [] },
        "asked_at": 0, "expires_at": 1_000,
    });
    detail.part = Some(serde_json::from_value(part).unwrap());
    detail.proposal = None;
    detail.standing.progress[0].group = "globex/credit-approvers".parse().unwrap();
    detail
}

#[tokio::test]
async fn an_external_approver_finds_what_to_decide_on_and_no_way_to_more() {
    let detail = as_external("<img src=x> returned goods");
    let text = call_page(&detail).await;
    for shown in [
        "returned goods",
        "&lt;img src=x&gt;",
        "Asked by",
        "<strong>acme</strong>",
        "globex/credit-approvers",
        "has changed the arguments",
        "your agreement counts for globex",
        r#"name="digest""#,
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    for hidden in [
        "<img",
        "/timeline",
        "Credential",
        "budget",
        "Earlier calls",
        "Where</dt>",
        "Trace",
        "in all",
        "nobody else is needed",
    ] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    for text in [edit_page(&detail).await, grant_page(&detail).await] {
        assert!(!text.contains("<img"), "{text}");
    }
}

#[tokio::test]
async fn a_timeline_that_may_lack_steps_says_so_on_its_page() {
    let page = timeline::view(&testing::timeline(), &visitor().await, now());
    let text = shown(page).await;
    assert!(text.contains("there may be further steps between these"), "{text}");
    // Open details are found again by name when the page refreshes.
    assert!(text.contains("<details id=\"step-journal-4\">"), "{text}");
    let audiences =
        "With a token for several services: tok_1 is for https://mail.example &lt;i&gt;, placet";
    assert!(text.contains(audiences), "{text}");
}

#[tokio::test]
async fn hostile_arguments_reasons_and_names_are_text_on_every_page_of_a_call() {
    let detail = hostile();
    let inbox = listed("/", &testing::inbox(&detail.approval, 1)).await.1;
    let pages = [call_page(&detail).await, edit_page(&detail).await, grant_page(&detail).await];
    for text in pages.into_iter().chain([inbox]) {
        assert!(!text.contains("<img") && !text.contains("alert(1)</script>"), "{text}");
        assert_eq!(
            text.matches("</textarea>").count(),
            text.matches("<textarea").count(),
            "{text}"
        );
    }
    let text = shown(bulk::view(&[detail], 1, &visitor().await, now())).await;
    assert!(
        !text.contains("<img") && text.contains("&lt;img src=x onerror=alert(2)&gt;"),
        "{text}"
    );
}

async fn edit_page(detail: &ApprovalDetail) -> String {
    let draft = edit::Draft::default();
    shown(edit::view(detail, &visitor().await, now(), http::StatusCode::OK, &draft)).await
}

async fn grant_page(detail: &ApprovalDetail) -> String {
    let mut detail = detail.clone();
    detail.standing.grantable = true;
    shown(grant::view(&detail, &visitor().await, now())).await
}

#[tokio::test]
async fn a_call_s_page_says_what_runs_why_it_waits_and_what_approving_does() {
    let mut detail = sample_detail();
    detail.proposal.as_mut().unwrap().evidence.preview =
        json!({ "path": "a.txt", "iban": "[sensitive]" });
    detail.proposal.as_mut().unwrap().evidence.preview_masked = ["/iban".to_owned()].into();
    let text = call_page(&detail).await;
    for words in [
        "files/delete",
        "agent-1",
        "deletes are shown first",
        "secret-policy",
        "nobody else is needed",
        "1 person of owners must agree.",
        "a.txt",
        "masked",
        "0 of 1 from",
        "It cannot be undone.",
        "/calls/call-1/timeline",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    detail.proposal = None;
    let text = call_page(&detail).await;
    assert!(text.contains("Retention has deleted the arguments"), "{text}");
}

#[tokio::test]
async fn a_call_s_page_says_whose_arguments_they_are_and_where_masked_values_changed() {
    let mut detail = sample_detail();
    let evidence = &mut detail.proposal.as_mut().unwrap().evidence;
    evidence.preview = json!({ "path": "a.txt", "iban": "[sensitive]" });
    let edited = json!({
        "by": "ben", "reason": "another account", "at": 1, "preview": evidence.preview,
        "request_digest": evidence.request_digest, "authors": ["ben"], "masked": ["/iban", "/<img src=x>"]
    });
    evidence.edited = Some(serde_json::from_value(edited).unwrap());
    let text = call_page(&detail).await;
    for words in [
        "somebody else has to agree",
        "Masked values were changed too.",
        "<code>/iban</code>",
        "&lt;img src=x&gt;",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("<img"));
    // An edit that only narrows keeps the agent as the only author.
    let edited = detail.proposal.as_mut().unwrap().evidence.edited.as_mut().unwrap();
    edited.authors.clear();
    edited.masked.clear();
    let text = call_page(&detail).await;
    assert!(text.contains("changed the arguments"), "{text}");
    assert!(
        !text.contains("Masked values were changed") && !text.contains("does not decide"),
        "{text}"
    );
    let mut external = as_external("x");
    external.part.as_mut().unwrap().edited_masked = ["/iban".to_owned()].into();
    let text = call_page(&external).await;
    assert!(
        text.contains("Masked values were changed too.") && text.contains("<code>/iban</code>")
    );
}

#[tokio::test]
async fn what_another_tenant_has_is_answered_like_what_nobody_has() {
    let browser = Browser::signed_in().await;
    let held = browser.api.held("one").await;
    for path in [
        format!("/approvals/{}", held.call),
        "/approvals/not%20an%20id".to_owned(),
        "/entries/none".to_owned(),
    ] {
        let reply = browser.get(&path).await;
        assert_eq!(reply.status, 404, "{path}");
        let text = checked(&reply);
        // The frame names the person's own tenant.
        let (_, text) = text.split_once("<main").unwrap();
        assert!(text.contains("There is nothing here for you") && !text.contains("acme"), "{text}");
    }
}

#[tokio::test]
async fn assets_are_kept_for_ever_under_their_own_digest_only() {
    let browser = Browser::signed_in().await;
    let text = browser.get("/help").await.text();
    for (name, kind) in [
        ("console.css", "text/css; charset=utf-8"),
        ("console.js", "text/javascript; charset=utf-8"),
    ] {
        let path = text.split('"').find(|part| part.ends_with(name)).unwrap().to_owned();
        let kept = browser.send(page(&path, None)).await;
        assert_eq!((kept.status.as_u16(), kept.header("content-type")), (200, Some(kind)));
        assert_eq!(kept.header("cache-control"), Some("public, max-age=31536000, immutable"));
        let other = browser.send(page(&format!("/assets/000000000000/{name}"), None)).await;
        assert_eq!(other.header("cache-control"), Some("no-store"));
    }
}

#[tokio::test]
async fn a_page_hears_that_something_happened_and_not_what() {
    let browser = Browser::signed_in().await;
    let mut stream = browser.api.open(page("/live", Some(&browser.session))).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    browser.api.held("one").await;
    let frame = stream.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "event: approvals\ndata: look\n\n");
    // Signing out ends it.
    assert_eq!(browser.post("/sign-out", "").await.status, 303);
    let end = tokio::time::timeout(std::time::Duration::from_secs(5), stream.body_mut().frame());
    assert!(end.await.unwrap().is_none());
    assert_eq!(browser.get("/").await.status, 303);
}
