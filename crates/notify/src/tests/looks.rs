//! How messages look, and what is in none of them.

use placet_ledger::{
    approval::ApprovalState,
    audit::{AuditEvent, AuditKind},
};
use placet_types::{
    binding::CredentialUse, contract::credential::CredentialKind, digest::Digest, error::ErrorCode,
};
use serde_json::{Value, json};
use url::Url;

use super::support::{
    Arrived, Boy, Chain, MINUTE, NINE, approval, config, read, sender, then, turn, voted,
};
use crate::{
    config::NotifyConfig,
    message::{Content, Letter, Message},
    render,
};

fn console() -> Url {
    "https://placet.example/".parse().unwrap()
}

/// The letters of such a channel about these events.
async fn letters(config: &NotifyConfig, happens: impl FnOnce(&Chain)) -> Vec<Letter> {
    let (chain, boy) = (Chain::new(), Boy::default());
    let preview = json!({ "amount": 700, "account": "[sensitive]", "note": "a\u{3164}\u{202e}b" });
    chain.shows(preview, &["/account"]);
    let mut sender = sender(config, &chain, &boy);
    turn(&mut sender).await;
    happens(&chain);
    chain.pass_ms(31 * MINUTE);
    turn(&mut sender).await;
    boy.arrived().into_iter().map(|Arrived { letter, .. }| letter).collect()
}

fn forms(letter: &Letter) -> [String; 4] {
    let console = console();
    let mail = render::mail(letter, Some(&console));
    [
        render::webhook(letter, Some(&console)).to_string(),
        render::slack(letter, Some(&console)).to_string(),
        render::teams(letter, Some(&console)).to_string(),
        format!("{}\n{}", mail.subject, mail.body),
    ]
}

fn glass() -> Value {
    json!({
        "version": 1, "directive_id": "dsk_1", "tenant": "acme", "by": "ana", "reason": "CANARY of the one who broke it",
        "created_at": NINE, "starts_at": NINE, "expires_at": NINE + 60 * MINUTE,
        "body": { "kind": "break_glass", "ticket": "CANARY-1" },
        "requirement": { "groups": { "emergency": 1 }, "quorum": 1, "expires_in_ms": 60_000, "reasons": [] },
        "rev": 1, "votes": [], "state": { "state": "proposed" },
    })
}

#[tokio::test]
async fn every_form_says_what_is_asked_and_where_to_decide() {
    let got = letters(&config(json!({})), |chain| chain.moved(&approval(1), AuditKind::Held)).await;
    assert_eq!(got.len(), 1);
    for text in forms(&got[0]) {
        for word in ["bank/credit", "https://placet.example/approvals/apr_1", "finance"] {
            assert!(text.contains(word), "`{word}` is not in {text}");
        }
    }
    let webhook = render::webhook(&got[0], Some(&console()));
    assert_eq!(webhook["type"], "approval.held");
    assert_eq!(webhook["timestamp"], "2026-11-22T09:00:00.000Z");
    assert_eq!(webhook["data"]["on_behalf_of"], "ana");
    assert_eq!(webhook["data"]["reasons"][0]["reason"], "Money leaves the house");
    assert_eq!(webhook["data"]["expires_at"], "2026-11-22T10:00:00.000Z");
    assert!(
        render::mail(&got[0], Some(&console()))
            .subject
            .starts_with("[Placet] Approval wanted: bank/credit")
    );
    // Without a console address there is no link, rather than a wrong one.
    assert!(!render::webhook(&got[0], None).to_string().contains("http"));
}

/// The event that an engine records when calls get no credential.
fn fault(source: &str, problem: &str) -> Value {
    let mut event = AuditEvent::new(AuditKind::Security);
    event.tenant = Some("acme".parse().unwrap());
    event.capability = Some("bank/credit".parse().unwrap());
    event.code = Some(ErrorCode::CredentialMisconfigured);
    event.credential = Some(Box::new(CredentialUse {
        kind: CredentialKind::TokenExchange,
        source: source.to_owned(),
        subject: None,
        actor: None,
        audience: Some("bank".to_owned()),
        resource: None,
        scopes: Vec::new(),
        expires_at: None,
        digest: None,
        reused: false,
    }));
    event.note = Some(problem.to_owned());
    json!({ "audit": [event] })
}

#[tokio::test]
async fn operators_are_told_of_a_credential_that_they_have_to_repair() {
    let problem = "the token service does not accept this client";
    let got =
        letters(&config(json!({})), |chain| chain.append("journal", fault("corp", problem))).await;
    assert_eq!(got.len(), 1);
    for text in forms(&got[0]) {
        for word in ["corp", problem, "bank/credit"] {
            assert!(text.contains(word), "`{word}` is not in {text}");
        }
        assert!(!text.contains("https://placet.example/"), "nothing there fixes it: {text}");
    }
    let webhook = render::webhook(&got[0], Some(&console()));
    assert_eq!(webhook["type"], "operator.credential_refused");
    assert_eq!(
        webhook["data"],
        json!({ "tenant": "acme", "source": "corp", "kind": "token_exchange", "operation": "bank/credit", "problem": problem })
    );
}

#[tokio::test]
async fn they_are_told_whichever_code_callers_get_for_it() {
    for code in ErrorCode::ALL {
        let mut noted = fault("corp", "a");
        noted["audit"][0]["code"] = json!(code);
        let got = letters(&config(json!({})), |chain| chain.append("journal", noted)).await;
        let is_told = ["CREDENTIAL_MISCONFIGURED", "CREDENTIAL_REFUSED"].contains(&code.as_str());
        assert_eq!(got.len(), usize::from(is_told), "{code}");
    }
}

#[tokio::test]
async fn an_outage_that_every_node_and_many_calls_note_is_one_message_within_the_hour() {
    let (chain, boy) = (Chain::new(), Boy::default());
    let mut sender = sender(&config(json!({})), &chain, &boy);
    turn(&mut sender).await;
    for node in ["journal", "another", "a-third"] {
        chain.append(node, fault("corp", "a"));
        turn(&mut sender).await;
        chain.pass_ms(19 * MINUTE);
    }
    assert_eq!(boy.arrived().len(), 1);
    chain.append("journal", fault("vault", "a"));
    chain.append("journal", fault("corp", "b"));
    turn(&mut sender).await;
    assert_eq!(boy.arrived().len(), 3, "another secret, and another problem");
    chain.pass_ms(4 * MINUTE);
    chain.append("another", fault("corp", "a"));
    turn(&mut sender).await;
    assert_eq!(boy.arrived().len(), 4, "it lasts");
}

#[tokio::test]
async fn a_route_for_other_events_or_tenants_is_not_told_of_credentials_nor_of_other_security_events()
 {
    let of = |route: Value| {
        let channels =
            json!({ "ops": { "to": { "type": "slack", "url": "https://hooks.example/x" } } });
        read(json!({ "channels": channels, "routes": [route] }))
    };
    for (route, told) in [
        (json!({ "channels": ["ops"], "events": ["held"] }), 0),
        (json!({ "channels": ["ops"], "tenant": "globex" }), 0),
        (json!({ "channels": ["ops"], "groups": ["finance"] }), 0),
        (json!({ "channels": ["ops"], "tenant": "acme", "events": ["credential_refused"] }), 1),
    ] {
        let got = letters(&of(route.clone()), |chain| {
            let mut of_a_call = fault("corp", "a");
            of_a_call["audit"][0]["call_id"] = json!("call_1");
            let mut of_another_kind = fault("corp", "a");
            of_another_kind["audit"][0]["code"] = json!("APPROVAL_VOID");
            for entry in [of_a_call, of_another_kind, fault("corp", "a")] {
                chain.append("journal", entry);
            }
        })
        .await;
        assert_eq!(got.len(), told, "{route}");
    }
}

#[tokio::test]
async fn a_message_names_who_did_what_it_reports() {
    let chain = |by: &str| json!({ "actor": { "kind": "user", "id": by, "tenant_id": "acme" } });
    let mut freeze = glass();
    freeze["body"] = json!({ "kind": "freeze", "name": "night", "lockdown": true });
    for (mut entry, state, by, title) in [
        (glass(), json!({ "state": "proposed" }), "ana", "Break-glass proposed, by ana"),
        (glass(), json!({ "state": "active" }), "fred", "Break-glass active, by fred"),
        (freeze, json!({ "state": "active" }), "otto", "Lockdown active, by otto"),
    ] {
        entry["state"] = state;
        let event = json!({ "kind": "directive", "chain": chain(by) });
        let entry = json!({ "directives": [entry], "audit": [event] });
        let got = letters(&config(json!({})), |chain| chain.append("journal", entry)).await;
        let webhook = render::webhook(&got[0], None);
        assert_eq!(webhook["data"]["by"], by, "{webhook:#}");
        let mail = render::mail(&got[0], None);
        assert!(mail.subject.contains(title), "{}", mail.subject);
    }
}

#[tokio::test]
async fn no_form_holds_arguments_tokens_or_what_people_wrote() {
    let happens = |chain: &Chain| {
        let held = approval(1);
        chain.moved(&held, AuditKind::Held);
        let agreed = voted(&held, "ben", ApprovalState::Approved);
        chain.moved(&agreed, AuditKind::Voted);
        let void = ApprovalState::Void { reason: "CANARY of the engine".to_owned() };
        chain.moved(&voted(&approval(2), "ben", void), AuditKind::ApprovalEnded);
        chain.append(
            "journal",
            json!({ "directives": [glass()], "audit": [{ "kind": "directive", "note": "CANARY" }] }),
        );
        chain.ended(&agreed, "succeeded");
    };
    for changes in [
        json!({}),
        json!({ "digest_every_ms": 60_000, "at_once": [] }),
        json!({ "show": "preview" }),
    ] {
        let shows = changes.get("show").is_some();
        let got = letters(&config(changes), happens).await;
        let told: usize = got.iter().map(|letter| letter.message.told().len()).sum();
        assert_eq!(told, 5, "{got:#?}");
        let mut masked = 0;
        for text in got.iter().flat_map(forms) {
            assert!(!text.contains("CANARY"), "{text}");
            masked += usize::from(text.contains("[sensitive]"));
        }
        // A request to decide shows the arguments as approvers see them, if the channel may show them at all.
        assert_eq!(masked, if shows { 4 } else { 0 });
    }
}

#[tokio::test]
async fn messages_for_people_name_masked_places_and_hide_no_character() {
    let got = letters(&config(json!({ "show": "preview" })), |chain| {
        chain.moved(&approval(1), AuditKind::Held);
    })
    .await;
    let [webhook, people @ ..] = forms(&got[0]);
    assert!(webhook.contains(r#""preview_masked":["/account"]"#), "{webhook}");
    for text in people {
        assert!(text.contains("(masked: /account)"), "{text}");
        assert!(text.contains(r"\u{3164}") && text.contains(r"\u{202e}"), "{text}");
        assert!(!text.contains(['\u{3164}', '\u{202e}']), "{text}");
    }
}

#[tokio::test]
async fn text_of_others_is_never_markup() {
    let hostile = "<!channel> *bold* [x](https://evil.example) <https://evil.example|click>";
    let got = letters(&config(json!({})), |chain| {
        let mut held = approval(1);
        held.requirement.reasons[0].reason = hostile.to_owned();
        chain.moved(&held, AuditKind::Held);
    })
    .await;
    let slack = render::slack(&got[0], Some(&console()));
    let mut plain = 0;
    let mut look = vec![&slack];
    while let Some(value) = look.pop() {
        match value {
            Value::Object(fields) => {
                if let Some(text) = fields.get("text").and_then(Value::as_str)
                    && text.contains("evil")
                {
                    assert_eq!(fields.get("type"), Some(&json!("plain_text")), "{slack:#}");
                    plain += 1;
                }
                look.extend(fields.values());
            }
            Value::Array(items) => look.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    assert_eq!(plain, 1);
    let teams = render::teams(&got[0], Some(&console()));
    let body = teams["attachments"][0]["content"]["body"].as_array().unwrap();
    assert!(body.iter().all(|block| block["type"] == "RichTextBlock"), "{teams:#}");
    assert!(teams.to_string().contains("evil"), "{teams:#}");
}

#[tokio::test]
async fn no_fact_is_longer_than_slack_takes() {
    let got = letters(&config(json!({})), |chain| {
        let mut held = approval(1);
        held.requirement.reasons[0].reason = "ä".repeat(5_000);
        chain.moved(&held, AuditKind::Held);
    })
    .await;
    let slack = render::slack(&got[0], Some(&console()));
    let fields = slack["blocks"][1]["fields"].as_array().unwrap();
    let longest = fields.iter().map(|field| field["text"].as_str().unwrap().chars().count()).max();
    assert!((1_500..=2_000).contains(&longest.unwrap()), "{longest:?}");
    // A program that reads it gets all of it.
    let webhook = render::webhook(&got[0], Some(&console()));
    assert_eq!(webhook["data"]["reasons"][0]["reason"].as_str().unwrap().chars().count(), 5_000);
}

#[tokio::test]
async fn a_digest_lists_what_it_gathered_in_few_messages() {
    let got = letters(&config(json!({ "digest_every_ms": 60_000 })), |chain| {
        for number in 1..=45 {
            chain.moved(&approval(number), AuditKind::Held);
        }
    })
    .await;
    let sizes: Vec<usize> = got.iter().map(|letter| letter.message.told().len()).collect();
    assert_eq!(sizes, [20, 20, 5]);
    let webhook = render::webhook(&got[2], Some(&console()));
    assert_eq!(
        (&webhook["type"], webhook["data"]["messages"].as_array().unwrap().len()),
        (&json!("digest"), 5)
    );
    // Slack takes 50 blocks, a card six actions.
    let slack = render::slack(&got[0], Some(&console()));
    assert!(slack["blocks"].as_array().unwrap().len() <= 50, "{slack:#}");
    let teams = render::teams(&got[0], Some(&console()));
    assert_eq!(teams["attachments"][0]["content"]["actions"].as_array().unwrap().len(), 6);
}

#[tokio::test]
async fn the_end_of_a_call_is_told_to_its_caller_with_its_digest_and_without_its_approval() {
    let mut told = config(json!({}));
    told.routes.clear();
    told.channels.first_entry().unwrap().get_mut().callbacks = ["acme".parse().unwrap()].into();
    let got = letters(&told, |chain| {
        let mut held = approval(1);
        held.callback = Some("ops".parse().unwrap());
        chain.moved(&held, AuditKind::Held);
        chain.ended(&held, "succeeded");
    })
    .await;
    assert_eq!(got.len(), 1);
    let webhook = render::webhook(&got[0], Some(&console()));
    let wanted = json!({
        "type": "call.finished",
        "timestamp": "2026-11-22T09:00:00.000Z",
        "data": {
            "tenant": "acme",
            "call_id": "call_1",
            "operation": "bank/credit",
            "status": "succeeded",
            "result_digest": Digest::of(b"result"),
            "link": "https://placet.example/v1/calls/call_1",
        },
    });
    assert_eq!(webhook, wanted);
    for (state, event, code) in [
        (ApprovalState::Denied, AuditKind::Voted, "APPROVAL_DENIED"),
        (ApprovalState::Expired, AuditKind::ApprovalEnded, "APPROVAL_EXPIRED"),
    ] {
        let got = letters(&told, |chain| {
            let mut over = then(&approval(1), state.clone());
            over.callback = Some("ops".parse().unwrap());
            chain.moved(&over, event);
        })
        .await;
        let webhook = render::webhook(&got[0], Some(&console()));
        assert_eq!(webhook["data"]["code"], code, "{webhook:#}");
        assert!(webhook["data"].get("result_digest").is_none(), "{webhook:#}");
    }
}

#[test]
fn the_identity_of_a_message_is_another_one_on_another_channel() {
    let at = placet_types::clock::Timestamp::from_ms(NINE);
    let [one, two] = ["a", "b"].map(|channel| Message::test(&channel.parse().unwrap(), at));
    assert_ne!(one.id, two.id);
    assert_eq!(one, Message::test(&"a".parse().unwrap(), at));
    assert_eq!(one.content, Content::Test);
}
