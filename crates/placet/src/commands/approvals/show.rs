//! `placet approvals show`: an approval as its approver reads it.
//!
//! Owns the order and the wording: who wants what, exactly what will run, why it waits, who said what, what approving would do.

use std::collections::BTreeSet;

use placet_approvals::views::{ApprovalDetail, ApprovalView, OutcomeView};
use placet_types::{
    caller::CallerIdentity,
    envelope::proposal::{Evidence, SentBefore, SimilarCall, ToolProposalEnvelope},
    ids::{ApprovalId, PrincipalId},
    taint,
    text::visible,
};
use serde_json::Value;

use super::{quotation, words};
use crate::{
    client::Client,
    commands::{difference, times},
    failure::{Failure, Outcome},
    output,
};

/// In the place of the arguments, once they are deleted.
const DELETED: &str =
    "  deleted   the arguments, the result and what approvers were shown, by retention";

/// Shows one.
pub(super) async fn run(client: &Client, id: &ApprovalId) -> Outcome {
    client.answer(&read(client, id).await?, |detail| output::line(shown(detail)))
}

/// Reads one.
pub(in crate::commands) async fn read(
    client: &Client,
    id: &ApprovalId,
) -> Result<ApprovalDetail, Failure> {
    client.get(&["v1", "approvals", id.as_str()], &[]).await
}

/// An approval with its evidence, as an approver reads it.
pub(super) fn shown(detail: &ApprovalDetail) -> String {
    let mut lines = call(detail);
    lines.extend(why(detail));
    if detail.preview().is_null() {
        lines.push(DELETED.to_owned());
    }
    if let Some(proposal) = &detail.proposal {
        lines.extend(arguments(&proposal.evidence, detail.approval.edits));
        lines.extend(proposal.evidence.sent_before.iter().flat_map(sent_before));
        lines.extend(earlier(&proposal.evidence.similar));
    }
    if let Some(part) = &detail.part {
        if !part.preview.is_null() {
            lines.extend(preview(&part.preview, &part.preview_masked));
        }
        if part.edits > 0 {
            lines.push("  edited    by an approver there".to_owned());
        }
        lines.extend(masked_changes(&part.edited_masked));
    }
    lines.extend(quoted(detail));
    lines.extend(standing(detail));
    lines.extend(withdrawn(detail));
    if detail.approval.state != "pending" {
        lines.extend(detail.outcome.iter().map(|one| outcome(&detail.approval.state, one)));
    }
    lines.push(format!("  digest    {}", detail.approval.digest));
    lines.join("\n")
}

/// Who withdrew the call, or that the reader may.
fn withdrawn(detail: &ApprovalDetail) -> Vec<String> {
    if let Some(withdrawn) = &detail.approval.withdrawn {
        let mut lines = vec![format!("  withdrawn by {} at {}", withdrawn.by, withdrawn.at)];
        let whose = format!("{} withdrew it, because", withdrawn.by);
        lines.extend(quotation::lines(&whose, &withdrawn.reason));
        return lines;
    }
    let line = "  you       may withdraw it (`placet approvals withdraw`)";
    detail.standing.may_withdraw.then(|| line.to_owned()).into_iter().collect()
}

/// Why an approved call has not been sent.
fn held_up(detail: &ApprovalDetail) -> Option<String> {
    let is_locked_down = detail.standing.freezes.iter().any(|freeze| freeze.lockdown);
    let why = if detail.approval.state == "approved" && is_locked_down {
        "the call does not run before the lockdown ends"
    } else if detail.approval.unreachable {
        "the tool cannot be reached; the call is tried again until it ends"
    } else {
        return None;
    };
    Some(format!("  held up   {why}"))
}

/// The outcome of the call, and who has to act on it.
fn outcome(state: &str, outcome: &OutcomeView) -> String {
    let code = outcome.code.map(|code| format!(" with {code}")).unwrap_or_default();
    let mut lines =
        vec![format!("  outcome   {}{code}, at {}", words::state(state), outcome.updated_at)];
    lines.extend(outcome.resolved_by.iter().map(|by| format!("  recorded  by {}", visible(by))));
    lines.extend(
        outcome.message.iter().flat_map(|message| quotation::lines("the error says", message)),
    );
    if state == "unknown" {
        lines.push(format!(
            "  to do     an operator finds out whether it took effect: `placet ledger resolve {}`",
            outcome.record_id
        ));
    }
    lines.extend(outcome.output.as_ref().map(|output| format!("{output:#}")));
    lines.join("\n")
}

/// Who wants to do what, to which target and with which credential.
fn call(detail: &ApprovalDetail) -> Vec<String> {
    let approval = &detail.approval;
    let mut lines = vec![format!(
        "{} {} {}",
        words::chain(&approval.principal_chain),
        words::request(&approval.state),
        approval.capability_id.tool_name()
    )];
    if !detail.description().is_empty() {
        let description = detail.description().replace('\n', " ");
        lines.push(format!("  tool      {}", visible(&description)));
    }
    if let Some(part) = &detail.part {
        lines.push(format!("  asked by  tenant {}, of people of {}", part.asked_by, part.asked_of));
    }
    lines.extend(detail.proposal.iter().flat_map(|proposal| own(approval, proposal)));
    if detail.proposal.is_none() {
        lines.push(format!("  mode      {}", approval.mode));
        lines.push(format!("  call      {}", approval.call_id));
    }
    lines
}

/// How the caller and its user were authenticated. The texts of tokens are quoted.
fn identity(caller: &CallerIdentity) -> Vec<String> {
    let attested = if caller.attested { "attested" } else { "not attested" };
    let mut line = format!(
        "  identity  {}, {}, proved by {}, {attested}",
        caller.agent_urn,
        caller.lifecycle,
        caller.auth_type.as_str()
    );
    line.extend(caller.role.iter().map(|role| format!(", role {role}")));
    line.extend(caller.workload_identity.iter().map(|id| format!(", workload {id}")));
    let delegation = caller.delegation.as_ref().map(|delegation| {
        format!(
            "  delegated by {:?}, proved by {}, scopes {:?}",
            delegation.subject,
            delegation.auth_type.as_str(),
            delegation.scopes
        )
    });
    std::iter::once(line).chain(delegation).collect()
}

/// What is shown to the call's own tenant only.
fn own(approval: &ApprovalView, proposal: &ToolProposalEnvelope) -> Vec<String> {
    let evidence = &proposal.evidence;
    let mut lines = evidence.caller.iter().flat_map(identity).collect::<Vec<_>>();
    lines.push(format!(
        "  mode      {} (asked for {})",
        proposal.call.approval_mode_effective, proposal.call.approval_mode_requested
    ));
    lines.push(format!("  target    {}", visible(&evidence.target)));
    lines.push(format!(
        "  run       {}; {} calls and {} cents are left in it afterwards",
        proposal.call.run_id, evidence.calls_left_after, evidence.cents_left_after
    ));
    if !evidence.taint.is_empty() {
        lines.push(format!("  context   the run has in it: {}", taint::listed(&evidence.taint)));
    }
    lines.push(format!("  call      {}", approval.call_id));
    if let Some(secret) = &evidence.credential.source {
        let audience = evidence.credential.audience.as_deref().unwrap_or("anybody");
        lines.push(format!(
            "  with      the credential `{}` for {}, scopes {:?}",
            visible(secret),
            visible(audience),
            evidence.credential.scopes
        ));
    }
    let found = evidence.refs.iter();
    lines.extend(found.map(|item| {
        format!("  evidence  result of {} ({}), {}", item.capability_id, item.call_id, item.digest)
    }));
    lines
}

/// Why it waits, and what people decided.
fn why(detail: &ApprovalDetail) -> Vec<String> {
    let ApprovalDetail { approval, standing, part, .. } = detail;
    let is_open = words::is_open(&approval.state);
    let needs = if is_open { "needs " } else { "needed" };
    let mut lines = vec![match part {
        // An external approver is not shown how many have to approve in all.
        Some(part) => {
            let groups = approval.requirement.groups.iter();
            let groups: Vec<String> =
                groups.map(|(group, people)| format!("{people} of `{group}`")).collect();
            format!("  {needs}    of {}: {}", part.asked_of, groups.join(", "))
        }
        None => {
            let people = placet_policy::explain::requirement_line(&approval.requirement);
            format!("  {needs}    {people}")
        }
    }];
    let reasons = approval.requirement.reasons.iter();
    lines.extend(reasons.map(|reason| {
        format!("  because   {}: {}", visible(&reason.policy), visible(&reason.reason))
    }));
    lines.extend(approval.votes.iter().enumerate().map(|(place, vote)| {
        let instead = vote.stands_for.as_ref().map(|who| format!(" for {who}")).unwrap_or_default();
        let word = words::choice(vote.choice);
        let of = vote.tenant.as_ref().map(|tenant| format!(" of {tenant}")).unwrap_or_default();
        let gone = if approval.lapsed.contains(&place) { " (counts no more)" } else { "" };
        let token = vote.with_token();
        format!("  {word:<9} {}{of}{instead} at {}{token}{gone}", vote.approver, vote.at)
    }));
    lines.extend(standing.freezes.iter().map(|freeze| {
        let name = freeze.name.as_deref().map(|name| format!(" ({})", visible(name)));
        let what = if freeze.lockdown { "lockdown " } else { "freeze   " };
        format!("  {what} in force until {}{}", freeze.until, name.unwrap_or_default())
    }));
    let so_far = if is_open { "so far" } else { "agreed" };
    lines.push(format!(
        "  {so_far}    {}",
        words::progress(&standing.progress, approval.requirement.quorum)
    ));
    if let Some(next) = &standing.next_escalation {
        lines.push(format!(
            "  then      `{}` is asked {} ({})",
            next.group,
            times::from_now(next.at),
            next.at
        ));
    }
    let void =
        approval.void_reason.as_ref().map(|why| format!(" ({})", visible(why))).unwrap_or_default();
    let state = words::state(&approval.state);
    lines.push(if is_open {
        let (at, left) = (approval.expires_at, times::from_now(approval.expires_at));
        format!("  state     {state}, ends {at} ({left})")
    } else {
        format!("  state     {state}{void}")
    });
    lines.extend(held_up(detail));
    lines
}

/// That the call was sent before, and who has it sent again.
fn sent_before(before: &SentBefore) -> Vec<String> {
    let mut lines = vec![format!(
        "  warning   it was sent at {}, and may have taken effect: {}",
        before.at,
        visible(&before.reason)
    )];
    lines.extend(before.operators.iter().flat_map(|word| {
        let said = format!("{} has it sent again, since", word.operator);
        quotation::lines(&said, &word.evidence)
    }));
    lines
}

/// Exactly what will run, and what an approver changed of it.
fn arguments(evidence: &Evidence, edits: u32) -> Vec<String> {
    let mut lines = preview(&evidence.preview, &evidence.preview_masked);
    if let Some(edited) = &evidence.edited {
        let instead = edited.stands_for.as_ref().map(|who| format!(" for {who}"));
        let instead = instead.unwrap_or_default();
        lines.push(format!("  edited    by {}{instead} at {}", edited.by, edited.at));
        if edits > 1 {
            lines.push(format!(
                "            the last of {edits} edits; this differs after all of them:"
            ));
        }
        let changed = difference::lines(&edited.preview, &evidence.preview);
        if changed.is_empty() && edited.masked.is_empty() {
            lines.push("            only masked values differ".to_owned());
        }
        lines.extend(changed.into_iter().map(|line| format!("            {line}")));
        lines.extend(masked_changes(&edited.masked));
        lines.extend(authorship(&edited.authors));
    }
    lines
}

/// The arguments as they are shown, and which of them are masked: by their places, for a text may read like the mask.
fn preview(preview: &Value, masked: &BTreeSet<String>) -> Vec<String> {
    let mut lines = vec![format!("  arguments\n{preview:#}")];
    if !masked.is_empty() {
        lines.push(format!(
            "  masked    {} (sensitive, not shown, and bound all the same)",
            places(masked)
        ));
    }
    lines
}

/// Places in arguments, the empty one as what it stands for.
fn places(pointers: &BTreeSet<String>) -> String {
    let names = pointers.iter().map(|place| match place.as_str() {
        "" => "all arguments".to_owned(),
        place => visible(place),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Texts by others: what the agent refers to, and people's reasons. After the arguments, and never within a line of ours.
fn quoted(detail: &ApprovalDetail) -> Vec<String> {
    let proposal = detail.proposal.as_ref();
    let mut lines = Vec::new();
    for reference in proposal.iter().flat_map(|proposal| &proposal.call.evidence_refs) {
        lines.extend(quotation::lines("the agent refers to (not checked)", reference));
    }
    if let Some(edited) = proposal.and_then(|proposal| proposal.evidence.edited.as_ref()) {
        lines.extend(quotation::lines(&format!("{} edited, because", edited.by), &edited.reason));
    }
    for vote in &detail.approval.votes {
        let whose = format!("{} said {}, because", vote.approver, words::choice(vote.choice));
        lines.extend(quotation::lines(&whose, &vote.reason));
    }
    lines
}

/// Where masked values changed.
pub(super) fn masked_changes(changed: &BTreeSet<String>) -> Option<String> {
    let what = "            masked values changed, which nobody is shown, at";
    (!changed.is_empty()).then(|| format!("{what} {}", places(changed)))
}

/// The authors of the arguments, where these are not merely narrower than the agent's.
pub(super) fn authorship(authors: &BTreeSet<PrincipalId>) -> Option<String> {
    let names: Vec<&str> = authors.iter().map(PrincipalId::as_str).collect();
    let who = names.join(", ");
    (!names.is_empty()).then(|| {
        format!("            they are not just less: {who} wrote them and does not decide, somebody else has to agree")
    })
}

/// How people decided before.
fn earlier(similar: &[SimilarCall]) -> Vec<String> {
    let told = similar.iter().map(|earlier| {
        let same = if earlier.same_request { ", the very same request" } else { "" };
        let said = earlier.decisions.iter();
        let said: Vec<String> = said
            .map(|decision| {
                let of = decision.tenant.as_ref().map(|tenant| format!(" of {tenant}"));
                let (who, of) = (&decision.approver, of.unwrap_or_default());
                format!("{who}{of} {}", words::choice(decision.choice))
            })
            .collect();
        let said = if said.is_empty() { "nobody decided".to_owned() } else { said.join(", ") };
        format!(
            "  earlier   {} at {}: {}; {said}{same}",
            earlier.approval_id,
            earlier.asked_at,
            words::state(&earlier.state)
        )
    });
    told.collect()
}

/// What the reader may do, and its consequences.
fn standing(detail: &ApprovalDetail) -> Vec<String> {
    let (approval, standing) = (&detail.approval, &detail.standing);
    if approval.state != "pending" {
        return Vec::new();
    }
    let mut said = Vec::new();
    let is_locked_down = standing.freezes.iter().any(|freeze| freeze.lockdown);
    let is_frozen_since = standing.freezes.iter().any(|freeze| freeze.after_asking);
    if let Some(colleague) = &standing.stands_for {
        said.push(format!("you decide for {colleague}, and the record names both"));
    }
    if standing.may_approve && standing.completes && !is_locked_down {
        said.push(
            "your approval is the last one required: the policies decide once more, and it runs at once"
                .to_owned(),
        );
    } else if let (true, Some(part)) = (standing.may_approve, &detail.part) {
        said.push(format!(
            "your approval counts for {}; who else has to agree is known to {} alone",
            part.asked_of, part.asked_by
        ));
    } else if standing.may_approve && is_locked_down {
        said.push(
            "your approval counts, and the call does not run before the lockdown ends".to_owned(),
        );
    } else if standing.may_approve && is_frozen_since {
        said.push(
            "your approval counts, and the call may still wait for others: a freeze came into force after people were asked, and the policies decide once more"
                .to_owned(),
        );
    } else if standing.may_approve {
        said.push("your approval counts; it runs when the others have approved too".to_owned());
    } else if standing.needs_fresh_auth {
        said.push("you cannot agree before you have signed in again".to_owned());
    } else {
        let why = standing.why_not.as_deref().unwrap_or("the policies do not let you");
        said.push(format!("you cannot agree: {}", visible(why)));
    }
    if standing.may_deny {
        let threshold = approval.requirement.deny_threshold;
        said.push(match threshold {
            0 | 1 => "your denial ends it".to_owned(),
            _ => format!("your denial counts; {threshold} of them end it"),
        });
    }
    if standing.may_edit {
        said.push("you may change the arguments (`placet approvals edit`)".to_owned());
    }
    if standing.grantable {
        said.push(
            "a standing grant may be proposed from it (`placet directives grant`)".to_owned(),
        );
    }
    said.into_iter().map(|line| format!("  you       {line}")).collect()
}

#[cfg(test)]
mod tests;
