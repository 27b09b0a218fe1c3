//! The forms of messages: signed JSON, Slack-compatible and Teams-compatible webhooks, mail.
//!
//! Owns the wording and the forms. Does not send. Invariant: foreign text is put where the receiver shows it as text: it is never markup.

mod words;

use placet_types::{ids::TenantId, text::visible};
use serde_json::{Value, json};
use url::Url;

use crate::{
    message::{Content, Letter, Message, Preview, Scope, Told},
    notice::{About, CallFacts, CredentialFacts, DirectiveFacts, Notice},
};
pub(crate) use words::title;
use words::{Fact, facts};

/// The longest preview that is written into a message for people, in characters.
const PREVIEW_CHARS_MAX: usize = 1_500;
/// The longest list of masked places next to it, in characters.
const MASKED_CHARS_MAX: usize = 300;
/// The longest fact in a message for people, in characters: Slack refuses fields of more than 2,000.
const FACT_CHARS_MAX: usize = 1_500;
/// The longest headline (Slack's limit), in characters.
const TITLE_CHARS_MAX: usize = 150;

/// A mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mail {
    pub(crate) subject: String,
    pub(crate) body: String,
}

fn clipped(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(chars_max.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// The console page that a message links to.
fn link(notice: &Notice, scope: &Scope, console: Option<&Url>) -> Option<String> {
    let path = match (&notice.about, scope) {
        // A caller has no page in the console.
        (About::Call(call), Scope::Caller) => format!("v1/calls/{}", call.call_id),
        (About::Call(call), _) => format!("approvals/{}", call.approval_id),
        (About::Directive(directive), _) => format!("entries/{}", directive.directive_id),
        // The fix is not in the console.
        (About::Credential(_), _) => return None,
    };
    console?.join(&path).ok().map(String::from)
}

fn headline(message: &Message) -> String {
    let text = match &message.content {
        Content::One(told) => title(&told.notice, &told.scope),
        Content::Digest(told) => format!("{} messages in one", told.len()),
        Content::Test => "A test: messages of Placet arrive here".to_owned(),
    };
    clipped(&visible(&text), TITLE_CHARS_MAX)
}

/// The body of a signed webhook.
pub(crate) fn webhook(letter: &Letter, console: Option<&Url>) -> Value {
    let message = &letter.message;
    let (kind, data) = match &message.content {
        Content::One(told) => {
            let mut data = data_of(told, console);
            if let (Some(fields), Some(preview)) = (data.as_object_mut(), &letter.preview) {
                fields.insert("preview".to_owned(), preview.arguments.clone());
                if !preview.masked.is_empty() {
                    fields.insert("preview_masked".to_owned(), json!(preview.masked));
                }
            }
            (type_of(told), data)
        }
        Content::Digest(told) => {
            let messages = told.iter().map(|told| {
                let (kind, at) = (type_of(told), told.notice.at.to_string());
                json!({ "type": kind, "timestamp": at, "data": data_of(told, console) })
            });
            ("digest".to_owned(), json!({ "messages": messages.collect::<Vec<Value>>() }))
        }
        Content::Test => ("test".to_owned(), json!({})),
    };
    json!({ "type": kind, "timestamp": message.at.to_string(), "data": data })
}

fn type_of(told: &Told) -> String {
    let area = match (&told.notice.about, &told.scope) {
        (About::Call(_), Scope::Caller) => "call",
        (About::Call(_), _) => "approval",
        (About::Directive(_), _) => "directives",
        (About::Credential(_), _) => "operator",
    };
    format!("{area}.{}", told.notice.kind)
}

/// The data for a program; fields without a value are left out.
fn data_of(told: &Told, console: Option<&Url>) -> Value {
    let notice = &told.notice;
    let mut data = match (&notice.about, &told.scope) {
        (About::Call(call), Scope::Caller) => for_caller(call),
        (About::Call(call), Scope::External(tenant)) => for_external(call, notice, tenant),
        (About::Call(call), Scope::Full) => for_approvers(call, notice),
        (About::Directive(directive), _) => of_directive(directive, notice),
        (About::Credential(credential), _) => of_credential(credential),
    };
    if let Some(fields) = data.as_object_mut() {
        fields.insert("tenant".to_owned(), json!(notice.tenant));
        fields.insert("link".to_owned(), json!(link(notice, &told.scope, console)));
        fields.retain(|_, value| !value.is_null());
    }
    data
}

/// The status that the call's result envelope has (TM-03), by the state of its record or of its approval.
fn status_of(state: &str) -> &'static str {
    match state {
        "succeeded" => "succeeded",
        "failed_final" => "failed",
        "indeterminate" => "unknown",
        "pending" | "approved" => "pending",
        _ => "refused",
    }
}

fn for_caller(call: &CallFacts) -> Value {
    let end = call.end.as_ref();
    json!({
        "call_id": call.call_id,
        "operation": call.operation,
        "status": status_of(end.map_or(call.state.as_str(), |end| end.outcome.as_str())),
        "code": end.map_or(call.code, |end| end.code),
        "result_digest": end.and_then(|end| end.result),
    })
}

fn for_external(call: &CallFacts, notice: &Notice, tenant: &TenantId) -> Value {
    json!({
        "approval_id": call.approval_id,
        "operation": call.operation,
        "state": call.state,
        "asked": asked(notice, Some(tenant)),
        "expires_at": call.expires_at.to_string(),
    })
}

fn for_approvers(call: &CallFacts, notice: &Notice) -> Value {
    let decisions = call.decisions.iter();
    let decisions = decisions.map(|(by, choice)| json!({ "by": by, "choice": choice }));
    let end = call.end.as_ref();
    json!({
        "call_id": call.call_id,
        "approval_id": call.approval_id,
        "operation": call.operation,
        "mode": call.mode,
        "actor": { "kind": call.chain.actor.kind, "id": call.chain.actor.id },
        "on_behalf_of": call.chain.on_behalf_of.as_ref().map(|user| &user.id),
        "state": call.state,
        "quorum": call.quorum,
        "asked": asked(notice, None),
        "reasons": call.reasons,
        "decisions": decisions.collect::<Vec<Value>>(),
        "expires_at": call.expires_at.to_string(),
        "outcome": end.map(|end| &end.outcome),
        "code": end.and_then(|end| end.code),
        "result_digest": end.and_then(|end| end.result),
    })
}

fn of_directive(directive: &DirectiveFacts, notice: &Notice) -> Value {
    json!({
        "directive_id": directive.directive_id,
        "kind": notice.kind,
        "state": directive.state,
        "by": directive.by,
        "operation": directive.operation,
        "asked": asked(notice, None),
        "starts_at": directive.starts_at.to_string(),
        "expires_at": directive.expires_at.to_string(),
        "terms_digest": directive.terms,
    })
}

fn of_credential(credential: &CredentialFacts) -> Value {
    json!({
        "source": credential.source,
        "kind": credential.of,
        "operation": credential.operation,
        "problem": credential.problem,
    })
}

/// The groups that are asked, those of other tenants with their tenant; or those of one tenant alone.
pub(crate) fn asked(notice: &Notice, only: Option<&TenantId>) -> Vec<String> {
    let wanted = notice.asked.iter().filter(|(tenant, _)| only.is_none_or(|only| tenant == only));
    wanted
        .map(|(tenant, group)| {
            let is_own = *tenant == notice.tenant || only.is_some();
            if is_own { group.to_string() } else { format!("{tenant}/{group}") }
        })
        .collect()
}

/// The parts of a message for people.
struct Part {
    title: String,
    facts: Vec<Fact>,
    link: Option<String>,
}

fn parts(letter: &Letter, console: Option<&Url>) -> Vec<Part> {
    let told = letter.message.told();
    told.iter()
        .map(|one| {
            let mut facts = facts(&one.notice, &one.scope);
            for (_, text) in &mut facts {
                *text = clipped(&visible(text), FACT_CHARS_MAX);
            }
            if let (Some(preview), [_]) = (&letter.preview, told) {
                facts.push(("Arguments", arguments(preview)));
            }
            Part {
                title: visible(&title(&one.notice, &one.scope)),
                facts,
                link: link(&one.notice, &one.scope, console),
            }
        })
        .collect()
}

/// The arguments as JSON, and where they are masked: a text in them may read like the mask.
fn arguments(preview: &Preview) -> String {
    let shown = clipped(&visible(&preview.arguments.to_string()), PREVIEW_CHARS_MAX);
    if preview.masked.is_empty() {
        return shown;
    }
    let places = preview.masked.iter().map(|place| match place.as_str() {
        "" => "all".to_owned(),
        place => visible(place),
    });
    let places = places.collect::<Vec<_>>().join(", ");
    format!("{shown} (masked: {})", clipped(&places, MASKED_CHARS_MAX))
}

/// Text escaped so that Slack shows it unchanged.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The payload of a Slack-compatible webhook: foreign text is in `plain_text` only.
pub(crate) fn slack(letter: &Letter, console: Option<&Url>) -> Value {
    let headline = headline(&letter.message);
    let plain = |text: &str| json!({ "type": "plain_text", "text": text, "emoji": false });
    let mut blocks = vec![json!({ "type": "header", "text": plain(&headline) })];
    let parts = parts(letter, console);
    let is_digest = parts.len() > 1;
    for part in parts {
        let section = if is_digest {
            json!({ "type": "section", "text": plain(&part.title) })
        } else {
            let fields = part.facts.iter().take(10);
            let fields = fields.map(|(label, text)| plain(&format!("{label}\n{text}")));
            json!({ "type": "section", "fields": fields.collect::<Vec<Value>>() })
        };
        blocks.push(section);
        if let Some(link) = part.link {
            let text = format!("<{}|Open in the console>", escaped(&link));
            blocks.push(json!({ "type": "section", "text": { "type": "mrkdwn", "text": text } }));
        }
    }
    json!({ "text": escaped(&headline), "blocks": blocks })
}

/// The payload that a workflow of Teams takes: an adaptive card whose texts are runs, which know no markup.
pub(crate) fn teams(letter: &Letter, console: Option<&Url>) -> Value {
    let run = |text: &str, weight: &str| {
        json!({
            "type": "RichTextBlock",
            "inlines": [{ "type": "TextRun", "text": text, "weight": weight }],
        })
    };
    let mut body = vec![run(&headline(&letter.message), "Bolder")];
    let mut actions = Vec::new();
    let parts = parts(letter, console);
    let is_digest = parts.len() > 1;
    for (part, number) in parts.into_iter().zip(1_u32..) {
        if is_digest {
            body.push(run(&format!("{number}. {}", part.title), "Default"));
        } else {
            let lines = part.facts.iter().map(|(label, text)| format!("{label}: {text}"));
            body.extend(lines.map(|line| run(&line, "Default")));
        }
        // A card shows six actions.
        if let Some(link) = part.link.filter(|_| number <= 6) {
            let title =
                if is_digest { format!("Open {number}") } else { "Open in the console".to_owned() };
            actions.push(json!({ "type": "Action.OpenUrl", "title": title, "url": link }));
        }
    }
    let card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "actions": actions,
    });
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": card,
        }],
    })
}

/// A mail.
pub(crate) fn mail(letter: &Letter, console: Option<&Url>) -> Mail {
    let mut body = String::new();
    for part in parts(letter, console) {
        body.push_str(&part.title);
        body.push_str("\n\n");
        for (label, text) in part.facts {
            body.push_str(&format!("{label}: {text}\n"));
        }
        if let Some(link) = part.link {
            body.push_str(&format!("\n{link}\n"));
        }
        body.push('\n');
    }
    body.push_str("This message decides nothing by itself.\n");
    Mail { subject: format!("[Placet] {}", headline(&letter.message)), body }
}
