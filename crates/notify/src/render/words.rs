//! The wording of messages for people.
//!
//! Owns headlines and labels. Invariant: nothing is shown that the scope does not permit.

use placet_types::approval::VoteChoice;

use crate::{
    message::Scope,
    notice::{About, CallFacts, CredentialFacts, DirectiveFacts, Notice, NoticeKind},
};

/// A label and a text.
pub(crate) type Fact = (&'static str, String);

/// The event, in a line.
pub(crate) fn title(notice: &Notice, scope: &Scope) -> String {
    match &notice.about {
        About::Call(call) => {
            let is_end = *scope == Scope::Caller || notice.kind == NoticeKind::Finished;
            let what = if is_end { end(notice.kind, call) } else { headline(notice.kind) };
            format!("{what}: {}", call.operation)
        }
        About::Directive(directive) => {
            let what = if directive.lockdown { "Lockdown" } else { headline(notice.kind) };
            format!("{what} {}, by {}", directive.state, directive.by)
        }
        About::Credential(credential) => format!(
            "{} from `{}`: an operator has to fix it",
            headline(notice.kind),
            credential.source
        ),
    }
}

const fn headline(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::Held => "Approval wanted",
        NoticeKind::Edited => "Approval wanted, for edited arguments",
        NoticeKind::Voted => "One more decision",
        NoticeKind::Escalated => "Approval wanted, others are silent",
        NoticeKind::Expiring => "Approval ends soon",
        NoticeKind::Approved => "Approved",
        NoticeKind::Denied => "Denied",
        NoticeKind::Expired => "Nobody agreed in time",
        NoticeKind::Withdrawn => "Withdrawn",
        NoticeKind::Void => "Approval is void",
        NoticeKind::Finished => "Ended",
        NoticeKind::AwaitsCredential => "Approved, and waits for its caller's new token",
        NoticeKind::Grant => "Standing grant",
        NoticeKind::BreakGlass => "Break-glass",
        NoticeKind::Freeze => "Freeze",
        NoticeKind::Delegation => "Delegation",
        NoticeKind::Revocation => "Revocation",
        NoticeKind::CredentialRefused => "Calls get no credential",
    }
}

/// How a call ended, or what its caller has to do.
fn end(kind: NoticeKind, call: &CallFacts) -> &'static str {
    let outcome = call.end.as_ref().map(|end| end.outcome.as_str());
    match (kind, outcome) {
        (_, Some("succeeded")) => "Succeeded",
        (_, Some("indeterminate")) => "Outcome unknown, an operator has to find out",
        (_, Some(_)) => "Failed",
        (NoticeKind::Denied, None) => "Not executed, denied",
        (NoticeKind::Expired, None) => "Not executed, nobody agreed in time",
        (NoticeKind::Withdrawn, None) => "Not executed, withdrawn",
        (NoticeKind::Void, None) => "Not executed, approval void",
        (NoticeKind::AwaitsCredential, None) => "Approved, send it again with a new token",
        (_, None) => "Ended",
    }
}

/// The facts to show.
pub(crate) fn facts(notice: &Notice, scope: &Scope) -> Vec<Fact> {
    match (&notice.about, scope) {
        (About::Call(call), Scope::Full) => for_approvers(notice, call),
        (About::Call(call), Scope::External(tenant)) => vec![
            ("Asked", super::asked(notice, Some(tenant)).join(", ")),
            ("By", format!("tenant {}", notice.tenant)),
            ("Ends", call.expires_at.to_string()),
        ],
        (About::Call(call), Scope::Caller) => vec![("Call", call.call_id.to_string())],
        (About::Directive(directive), _) => of_directive(notice, directive),
        (About::Credential(credential), _) => of_credential(notice, credential),
    }
}

fn for_approvers(notice: &Notice, call: &CallFacts) -> Vec<Fact> {
    let mut facts = vec![
        ("Tenant", notice.tenant.to_string()),
        ("Mode", call.mode.as_str().to_owned()),
        ("Caller", call.chain.actor.id.to_string()),
    ];
    if let Some(user) = &call.chain.on_behalf_of {
        facts.push(("For", user.id.to_string()));
    }
    if notice.kind.asks() || notice.kind == NoticeKind::Voted {
        facts.push(("Asked", super::asked(notice, None).join(", ")));
        facts.push(("Ends", call.expires_at.to_string()));
        let reasons: Vec<&str> = call.reasons.iter().map(|one| one.reason.as_str()).collect();
        facts.push(("Why", reasons.join(" · ")));
    }
    if !call.decisions.is_empty() {
        let decisions = call.decisions.iter().map(|(by, choice)| match choice {
            VoteChoice::Approve => format!("{by}: yes"),
            VoteChoice::Deny => format!("{by}: no"),
        });
        facts.push(("Decided", decisions.collect::<Vec<_>>().join(", ")));
    }
    if let Some(code) = call.end.as_ref().and_then(|end| end.code) {
        facts.push(("Code", code.to_string()));
    }
    facts
}

fn of_credential(notice: &Notice, credential: &CredentialFacts) -> Vec<Fact> {
    let mut facts = vec![
        ("Tenant", notice.tenant.to_string()),
        ("Problem", credential.problem.clone()),
        ("Source", format!("{} ({})", credential.source, credential.of.as_str())),
    ];
    if let Some(operation) = &credential.operation {
        facts.push(("First seen with", operation.to_string()));
    }
    facts
}

fn of_directive(notice: &Notice, directive: &DirectiveFacts) -> Vec<Fact> {
    let mut facts = vec![
        ("Tenant", notice.tenant.to_string()),
        ("From", directive.starts_at.to_string()),
        ("Until", directive.expires_at.to_string()),
    ];
    if let Some(operation) = &directive.operation {
        facts.push(("Operation", operation.to_string()));
    }
    let asked = super::asked(notice, None);
    if !asked.is_empty() {
        facts.push(("Asked", asked.join(", ")));
    }
    facts
}
