//! Who is notified of what, and how much.

use placet_ledger::{
    approval::ApprovalState,
    audit::{AuditEvent, AuditKind, TRIED},
};
use placet_types::{digest::Digest, error::ErrorCode};
use serde_json::{Value, json};

use super::support::{Arrived, Boy, Chain, MINUTE, approval, read, sender, then, turn, voted};
use crate::{config::NotifyConfig, message::Letter, render};

fn channels(names: &[&str]) -> Value {
    let channel = json!({ "to": { "type": "slack", "url": "https://hooks.example/x" } });
    names
        .iter()
        .map(|name| ((*name).to_owned(), channel.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// What arrives where, as `channel: call_1 held`.
async fn told(config: &NotifyConfig, happens: impl FnOnce(&Chain)) -> Vec<String> {
    let (chain, boy) = (Chain::new(), Boy::default());
    let mut sender = sender(config, &chain, &boy);
    turn(&mut sender).await;
    happens(&chain);
    turn(&mut sender).await;
    let mut all: Vec<String> =
        boy.arrived().iter().map(|one| format!("{}: {}", one.channel, one.says())).collect();
    all.sort();
    all
}

#[tokio::test]
async fn a_route_tells_of_its_tenant_its_groups_and_its_events_alone() {
    let config = read(json!({
        "channels": channels(&["all", "finance", "legal", "elsewhere", "ends"]),
        "routes": [
            { "channels": ["all"] },
            { "tenant": "acme", "groups": ["finance"], "channels": ["finance"] },
            { "tenant": "acme", "groups": ["legal"], "channels": ["legal"] },
            { "tenant": "other", "channels": ["elsewhere"] },
            { "events": ["approved", "finished"], "channels": ["ends"] },
        ],
    }));
    let said = told(&config, |chain| {
        let held = approval(1);
        chain.moved(&held, AuditKind::Held);
        chain.moved(&voted(&held, "ben", ApprovalState::Approved), AuditKind::Voted);
        chain.ended(&held, "failed_final");
    })
    .await;
    assert_eq!(
        said,
        [
            "all: call_1 approved",
            "all: call_1 held",
            "ends: call_1 approved",
            "ends: call_1 finished",
            "finance: call_1 approved",
            "finance: call_1 held",
        ]
    );
}

#[tokio::test]
async fn an_external_approver_tenant_is_told_of_its_own_part_alone() {
    let config = read(json!({
        "channels": channels(&["own", "external", "third"]),
        "routes": [
            { "tenant": "acme", "channels": ["own"] },
            { "tenant": "shop", "groups": ["buyers"], "channels": ["external"] },
            { "tenant": "third", "channels": ["third"] },
        ],
    }));
    let (chain, boy) = (Chain::new(), Boy::default());
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    let mut asked = voted(&approval(1), "ben", ApprovalState::Pending);
    asked.requirement.groups =
        serde_json::from_value(json!({ "finance": 1, "shop/buyers": 1 })).unwrap();
    let mut earlier = asked.votes[0].clone();
    (earlier.approver, earlier.shown_digest) = ("lena".parse().unwrap(), Digest::of(b"others"));
    asked.votes.insert(0, earlier);
    chain.moved(&asked, AuditKind::Held);
    turn(&mut sender).await;
    let letter = |channel: &str| -> Letter {
        let arrived = boy.arrived();
        let mut there = arrived.into_iter().filter(|one| one.channel == channel);
        let letter = there.next().unwrap().letter;
        assert!(there.next().is_none());
        letter
    };
    let own = render::webhook(&letter("own"), None);
    assert_eq!(own["data"]["asked"], json!(["finance", "shop/buyers"]), "{own:#}");
    assert_eq!(own["data"]["decisions"][0]["by"], "ben");
    let external = render::webhook(&letter("external"), None);
    assert_eq!(external["data"]["asked"], json!(["buyers"]), "{external:#}");
    let all = [
        external.to_string(),
        render::slack(&letter("external"), None).to_string(),
        render::mail(&letter("external"), None).body,
    ];
    for hidden in ["finance", "ben", "ana", "desk-bot", "Money", "call_1"] {
        assert!(all.iter().all(|text| !text.contains(hidden)), "{hidden}: {all:#?}");
    }
    assert!(boy.arrived().iter().all(|one| one.channel != "third"));
}

#[tokio::test]
async fn a_caller_is_told_the_end_over_the_channel_it_named_if_that_is_its_tenants() {
    let mut all = channels(&["theirs", "others"]);
    all["theirs"]["callbacks"] = json!(["acme"]);
    all["others"]["callbacks"] = json!(["shop"]);
    let config = read(json!({ "channels": all }));
    for (channel, end) in [("theirs", true), ("others", false), ("gone", false)] {
        let mut held = approval(1);
        held.callback = Some(channel.parse().unwrap());
        let said = told(&config, |chain| {
            chain.moved(&held, AuditKind::Held);
            chain.moved(&voted(&held, "ben", ApprovalState::Approved), AuditKind::Voted);
            chain.ended(&held, "succeeded");
        })
        .await;
        assert_eq!(said, if end { vec!["theirs: call_1 finished"] } else { vec![] }, "{channel}");
        let denied = voted(&held, "ben", ApprovalState::Denied);
        let said = told(&config, |chain| chain.moved(&denied, AuditKind::Voted)).await;
        assert_eq!(said, if end { vec!["theirs: call_1 denied"] } else { vec![] }, "{channel}");
    }
}

#[tokio::test]
async fn a_caller_is_told_once_that_its_approved_call_waits_for_a_new_token() {
    let mut all = channels(&["theirs", "people"]);
    all["theirs"]["callbacks"] = json!(["acme"]);
    let routes = json!([{ "channels": ["people"] }]);
    let config = read(json!({ "channels": all, "routes": routes }));
    let mut held = approval(1);
    held.callback = Some("theirs".parse().unwrap());
    let waits_after = |node: &'static str, token: &str, chain: &Chain| {
        let mut event = AuditEvent::new(AuditKind::AwaitsCredential);
        event.approval_id = Some(held.approval_id.clone());
        event.call_id = Some(held.call_id.clone());
        event.code = Some(ErrorCode::CredentialExpired);
        event.note = Some("CANARY of a token service".to_owned());
        event.digests.insert(TRIED.to_owned(), Digest::of(token.as_bytes()));
        chain.append(node, json!({ "audit": [event] }));
    };
    let waits = |node: &'static str, chain: &Chain| waits_after(node, "the first", chain);
    let (chain, boy) = (Chain::new(), Boy::default());
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    let approved = voted(&held, "ben", ApprovalState::Approved);
    chain.moved(&approved, AuditKind::Voted);
    waits("journal", &chain);
    waits("another", &chain);
    turn(&mut sender).await;
    let theirs = || {
        let arrived = boy.arrived().into_iter().filter(|one| one.channel == "theirs");
        arrived.collect::<Vec<_>>()
    };
    let said = theirs();
    assert_eq!(said.len(), 1, "{said:?}");
    let letter = render::webhook(&said[0].letter, None);
    assert_eq!(letter["type"], "call.awaits_credential");
    assert_eq!(letter["data"]["status"], "pending");
    assert_eq!(letter["data"]["code"], "CREDENTIAL_EXPIRED");
    assert!(!letter.to_string().contains("CANARY"), "{letter}");
    assert_eq!(boy.arrived().len(), 2, "people hear of the approval, and not of this unasked");
    // It has come back, and is too late once more.
    chain.pass_ms(MINUTE);
    waits_after("another", "the second", &chain);
    waits_after("journal", "the second", &chain);
    waits("journal", &chain);
    turn(&mut sender).await;
    assert_eq!(theirs().len(), 2, "once for each token");
    chain.pass_ms(61 * MINUTE);
    waits("journal", &chain);
    turn(&mut sender).await;
    assert_eq!(theirs().len(), 3);
    // A node that reads of it only after it has ended reports nothing.
    chain.pass_ms(61 * MINUTE);
    waits("journal", &chain);
    chain.moved(&then(&approved, ApprovalState::Expired), AuditKind::ApprovalEnded);
    turn(&mut sender).await;
    assert_eq!(theirs().iter().map(Arrived::says).next_back().unwrap(), "call_1 expired");
    assert_eq!(theirs().len(), 4);
}

#[test]
fn a_section_that_leads_astray_is_refused_with_the_key_that_does() {
    let with = |to: Value| json!({ "channels": { "ops": { "to": to } } });
    let hook = |url: &str| with(json!({ "type": "slack", "url": url }));
    let mail = |more: Value| {
        let mut to = json!({ "type": "email", "host": "mail.example", "from": "p@example.com", "to": "a@example.com" });
        to.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with(to)
    };
    let routed = |mut route: Value| {
        let mut section = hook("https://hooks.example/x");
        route["channels"] = json!(["ops"]);
        section["routes"] = json!([route]);
        section
    };
    for (section, key) in [
        (hook("http://hooks.example/x"), "to.url"),
        (hook("ftp://hooks.example/x"), "to.url"),
        (hook("https://user:word@hooks.example/x"), "to.url"),
        (
            with(json!({ "type": "webhook", "url": "https://h.example", "key": "missing" })),
            "to.key",
        ),
        (
            with(
                json!({ "type": "teams", "url": { "secret": "missing", "origin": "https://h.example" } }),
            ),
            "to.url.secret",
        ),
        (mail(json!({ "security": "plain" })), "to.host"),
        (mail(json!({ "host": "mail.example/x" })), "host"),
        (mail(json!({ "to": "nobody" })), "to"),
        (mail(json!({ "user": "p" })), "to.password"),
        (json!({ "routes": [{ "channels": ["none"] }] }), "routes[0].channels"),
        (json!({ "routes": [{ "channels": [] }] }), "routes[0]"),
        (
            json!({
                "channels": { "ops": { "to": { "type": "slack", "url": "https://h.example" }, "callbacks": ["acme"] } },
                "routes": [{ "events": ["held"], "channels": ["ops"] }],
            }),
            "routes[0].channels",
        ),
        (
            routed(json!({ "groups": ["finance"], "events": ["held", "freeze"] })),
            "routes[0].events",
        ),
        (json!({ "poll_ms": 1 }), "poll_ms"),
    ] {
        let config: NotifyConfig = serde_json::from_value(section.clone()).unwrap();
        let unknown = || Err("names no secret".to_owned());
        let is_named = |name: &str| if name == "missing" { unknown() } else { Ok(()) };
        let error = config.check(is_named).unwrap_err();
        assert!(error.key.ends_with(key), "{error} for {section}");
        assert!(!error.to_string().contains("missing"), "what may be a value is repeated: {error}");
    }
    for fine in [
        hook("https://hooks.example/x"),
        hook("http://127.0.0.1:9/x"),
        mail(json!({ "security": "starttls" })),
        routed(json!({ "groups": ["finance"] })),
        routed(json!({ "groups": ["finance"], "events": ["held", "grant"] })),
        routed(json!({ "events": ["freeze"] })),
    ] {
        let config: NotifyConfig = serde_json::from_value(fine).unwrap();
        assert_eq!(config.check(|_| Err(String::new())), Ok(()));
        assert_eq!(config.destinations().unwrap().len(), 1);
    }
    let unknown = json!({ "channels": { "ops": { "to": { "type": "slack", "url": "https://h.example" }, "colour": "red" } } });
    assert!(serde_json::from_value::<NotifyConfig>(unknown).is_err());
}
