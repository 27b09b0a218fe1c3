//! Further information for approvers: the agent's references, earlier calls, the run's consumption, digests.
//!
//! Owns these parts of the page.

use std::collections::BTreeSet;

use maud::{Markup, html};
use placet_approvals::views::ApprovalDetail;
use placet_types::{
    approval::VoteChoice,
    clock::Timestamp,
    envelope::proposal::{SimilarCall, ToolProposalEnvelope},
    evidence::EvidenceItem,
    taint::Taint,
};

use crate::words;

/// Earlier calls, the run, the credential and the digests.
pub(super) fn further(detail: &ApprovalDetail, now: Timestamp) -> Markup {
    html! {
        @if let Some(proposal) = &detail.proposal {
            (references(&proposal.call.evidence_refs, &proposal.evidence.refs))
            (similar(&proposal.evidence.similar, now))
            (uses(detail, proposal))
        }
        (digests(detail))
    }
}

/// What the agent names as its reasons, as text and never as a link, and what was found there.
fn references(named: &[String], found: &[EvidenceItem]) -> Markup {
    let item = |named: &str| found.iter().find(|item| item.call_id.as_str() == named);
    html! {
        @if !named.is_empty() {
            section.card aria-labelledby="references-title" {
                h2 #references-title { "What the agent refers to" }
                p.small.soft { "In the agent’s words, and no part of the arguments. What was found there is a result of the run, as it was when the call was held; nothing else was opened or checked." }
                ul.list {
                    @for reference in named {
                        li {
                            (words::quotation(reference))
                            @if let Some(item) = item(reference) {
                                "Result of " code { (item.capability_id) } br; span.small.soft { code { (item.digest) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn similar(calls: &[SimilarCall], now: Timestamp) -> Markup {
    html! {
        section.card aria-labelledby="similar-title" {
            h2 #similar-title { "Earlier calls like this" }
            @if calls.is_empty() { p { "People have not decided on a call of this operation by this agent before." } }
            @else {
                ul.list {
                    @for call in calls {
                        li {
                            a href={ "/approvals/" (call.approval_id) } { (words::minute(call.asked_at)) } " "
                            (words::state(&call.state))
                            @if call.same_request { " " (words::mark(words::Tone::Note, "the very same request")) }
                            @if !call.decisions.is_empty() {
                                br;
                                span.small {
                                    @for (at, decision) in call.decisions.iter().enumerate() {
                                        @if at > 0 { ", " }
                                        (decision.approver)
                                        @if let Some(tenant) = &decision.tenant { " of " (tenant) }
                                        (match decision.choice { VoteChoice::Approve => " approved", VoteChoice::Deny => " denied" })
                                    }
                                }
                            }
                            span.unseen { " asked " (words::relative(call.asked_at, now)) }
                        }
                    }
                }
            }
        }
    }
}

fn uses(detail: &ApprovalDetail, proposal: &ToolProposalEnvelope) -> Markup {
    let (call, evidence) = (&proposal.call, &proposal.evidence);
    let credential = &evidence.credential;
    html! {
        section.card aria-labelledby="uses-title" {
            h2 #uses-title { "What it uses" }
            dl.facts {
                dt { "Credential" }
                dd {
                    @match &credential.source {
                        None => "none",
                        Some(source) => {
                            code { (source) }
                            @if let Some(audience) = &credential.audience { " for " code { (audience) } }
                            @if !credential.scopes.is_empty() { " with " @for (at, scope) in credential.scopes.iter().enumerate() { @if at > 0 { ", " } code { (scope) } } }
                        }
                    }
                }
                dt { "Left of the run’s budget after it" }
                dd { (evidence.calls_left_after) " calls, " (evidence.cents_left_after) " cents" }
                dt { "Run" } dd { code { (call.run_id) } }
                dt { "In the run’s context" } dd #taint { (taint(&evidence.taint)) }
                @if let Some(session) = &call.session_id { dt { "Conversation" } dd { code { (session) } } }
                dt { "History" }
                dd { a href={ "/calls/" (detail.approval.call_id) "/timeline" } { "Timeline of this call" } }
            }
        }
    }
}

/// The taint of the run's context, in plain words.
pub(crate) fn taint(taint: &BTreeSet<Taint>) -> Markup {
    html! {
        @if taint.is_empty() { "nothing that was declared" }
        @for one in taint { (words::mark(words::Tone::Warn, words::taint(*one))) " " }
    }
}

fn digests(detail: &ApprovalDetail) -> Markup {
    let mut rows = vec![("What you decide on", detail.approval.digest)];
    if let Some(proposal) = &detail.proposal {
        let evidence = &proposal.evidence;
        rows.extend([
            ("The request", evidence.request_digest),
            ("The arguments, sensitive ones included", evidence.effective_args_digest),
            ("The arguments as shown", evidence.preview_digest),
            ("The contract", evidence.contract_digest),
            ("The policies that held it", evidence.bundle_digest),
        ]);
    }
    if let Some(part) = &detail.part {
        rows.extend([
            ("The arguments as shown", part.preview_digest),
            ("The policies that held it", part.bundle_digest),
        ]);
        rows.extend(part.contract_digest.map(|contract| ("The contract", contract)));
    }
    html! {
        details #digests.card {
            summary { "Digests: what binds the decision to what runs" }
            dl.facts {
                @for (name, digest) in rows { dt { (name) } dd { code { (digest) } } }
                @if let Some(proposal) = &detail.proposal { dt { "Trace" } dd { code { (proposal.call.trace_id) } } }
                dt { "Call" } dd { code { (detail.approval.call_id) } }
            }
        }
    }
}
