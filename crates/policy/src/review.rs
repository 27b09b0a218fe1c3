//! Who may see and decide an approval: itself a Cedar request.
//!
//! Owns the request and its entities. Does not count votes: [`crate::approval`] does, and never counts the caller's owner or
//! the user acted for, whatever a bundle says. Only people of the approval's own tenant can review it.

use std::collections::BTreeSet;

use cedar_policy::{Context, Entities, Entity, RestrictedExpression};
use placet_types::{
    approval::{Requirement, VoteChoice},
    clock::Timestamp,
    error::ErrorCode,
    ids::{CapabilityId, GroupId, PrincipalId},
    mode::ApprovalMode,
    principal::{Principal, PrincipalChain, PrincipalKind},
};

use crate::{
    entities::{self, entity},
    evaluate::{Question, evaluate},
    snapshot::Snapshot,
    verdict::{Determining, Link, PolicyEffect},
    vocabulary::{self, datetime, uids},
};

/// The group whose members see every approval of their tenant.
const AUDITORS: &str = "auditors";

/// Somebody before an approval.
#[derive(Debug, Clone, Copy)]
pub struct Reviewer<'a> {
    /// Who, from a verified token.
    pub principal: &'a Principal,
    /// Their groups, from verified claims; the directory's are added.
    pub groups: &'a BTreeSet<GroupId>,
}

/// The approval reviewed.
#[derive(Debug, Clone, Copy)]
pub struct ReviewedRequest<'a> {
    /// Who calls and for whom.
    pub chain: &'a PrincipalChain,
    /// The operation.
    pub capability: &'a CapabilityId,
    /// The mode the call has.
    pub mode: ApprovalMode,
    /// Who has to agree.
    pub requirement: &'a Requirement,
    /// When it ends.
    pub expires_at: Timestamp,
    /// Who has decided already.
    pub decided_by: &'a BTreeSet<PrincipalId>,
}

/// A decision somebody wants to give.
#[derive(Debug, Clone, Copy)]
pub struct Review<'a> {
    /// Who.
    pub reviewer: Reviewer<'a>,
    /// On what.
    pub request: ReviewedRequest<'a>,
    /// Yes or no.
    pub choice: VoteChoice,
    /// When.
    pub now: Timestamp,
}

/// Somebody may not review or see an approval.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the review is refused: {}", self.why())]
pub struct ReviewRefusal {
    /// What the reviewer is told. Who may not even see the approval is told [`ErrorCode::NotFound`].
    pub code: ErrorCode,
    /// The forbids that stood against it; for the audit only.
    pub determining: Vec<Determining>,
    /// Policies that could not be evaluated, and what the engine found; for the audit only.
    pub errors: Vec<String>,
}

impl ReviewRefusal {
    fn of(code: ErrorCode, error: impl Into<String>) -> Self {
        Self { code, determining: Vec::new(), errors: vec![error.into()] }
    }

    fn why(&self) -> String {
        let policies = self.determining.iter().map(|one| format!("policy `{}`", one.policy));
        let reasons: Vec<String> = policies.chain(self.errors.iter().cloned()).collect();
        if reasons.is_empty() { "no policy permits it".to_owned() } else { reasons.join(", ") }
    }
}

pub(crate) fn may_review(snapshot: &Snapshot, review: &Review<'_>) -> Result<(), ReviewRefusal> {
    let action = match review.choice {
        VoteChoice::Approve => "approve",
        VoteChoice::Deny => "deny",
    };
    ask(snapshot, action, &review.reviewer, &review.request, review.now)
}

pub(crate) fn may_view(
    snapshot: &Snapshot,
    reviewer: &Reviewer<'_>,
    request: &ReviewedRequest<'_>,
    now: Timestamp,
) -> Result<(), ReviewRefusal> {
    let hidden = |refusal| ReviewRefusal { code: ErrorCode::NotFound, ..refusal };
    ask(snapshot, "view", reviewer, request, now).map_err(hidden)
}

fn ask(
    snapshot: &Snapshot,
    action: &str,
    reviewer: &Reviewer<'_>,
    request: &ReviewedRequest<'_>,
    now: Timestamp,
) -> Result<(), ReviewRefusal> {
    let person = reviewer.principal;
    if person.kind != PrincipalKind::User {
        return Err(ReviewRefusal::of(ErrorCode::PolicyDenied, "only people review approvals"));
    }
    // Votes and groups carry no tenant of their own.
    if &person.tenant_id != request.chain.tenant() {
        return Err(ReviewRefusal::of(
            ErrorCode::NotFound,
            "the approval belongs to another tenant",
        ));
    }
    let fault =
        |_unmade| ReviewRefusal::of(ErrorCode::PolicyError, "the review cannot be put to policy");
    let (entities, target) = entities_of(snapshot, reviewer, request).map_err(fault)?;
    let context = Context::from_pairs([("now".to_owned(), datetime(now))]).map_err(|_unmade| {
        ReviewRefusal::of(ErrorCode::PolicyError, "the review cannot be put to policy")
    })?;
    let question = Question {
        link: Link::User,
        principal: snapshot.names.principal_uid(person),
        action: snapshot.names.action_uid(action),
        resource: target,
        context,
    };
    let answer = evaluate(&snapshot.schema, &snapshot.review_slice, &entities, question);
    if answer.allowed {
        return Ok(());
    }
    let code =
        if answer.errors.is_empty() { ErrorCode::PolicyDenied } else { ErrorCode::PolicyError };
    let named = answer.determining.iter().filter_map(|id| snapshot.determining(id, Link::User));
    let determining = named.filter(|policy| policy.effect == PolicyEffect::Forbid).collect();
    Err(ReviewRefusal { code, determining, errors: answer.errors })
}

type Made = Result<(Entities, cedar_policy::EntityUid), Box<dyn std::error::Error>>;

fn entities_of(
    snapshot: &Snapshot,
    reviewer: &Reviewer<'_>,
    request: &ReviewedRequest<'_>,
) -> Made {
    let (names, directory) = (&snapshot.names, &snapshot.directory);
    let tenant = request.chain.tenant();
    let person = reviewer.principal;
    let mut known = entities::person(names, directory, tenant, &person.id, reviewer.groups)?;
    let owner = directory.agent(tenant, &request.chain.actor.id).map(|agent| &agent.owner);
    for other in owner.into_iter().chain(request.chain.on_behalf_of.as_ref().map(|user| &user.id)) {
        if other != &person.id {
            known.extend(entities::person(names, directory, tenant, other, &BTreeSet::new())?);
        }
    }
    if let Some(plan) = snapshot.tools.get(request.capability) {
        known.extend([plan.entities.tool.clone(), plan.entities.adapter.clone()]);
    }
    for action in ["approve", "deny", "view"] {
        known.push(Entity::new_no_attrs(
            names.action_uid(action),
            [names.action_uid("review")].into(),
        ));
    }
    let owner = owner.map_or_else(|| names.nobody(tenant), |owner| names.user_uid(tenant, owner));
    let groups = request.requirement.groups.keys().map(|group| names.group_uid(tenant, group));
    let target = vocabulary::uid(&names.approval_request, "this");
    let one = RestrictedExpression::new_entity_uid;
    let mut attrs = vec![
        ("tenant", one(names.tenant_uid(tenant))),
        ("owner", one(owner)),
        ("approver_groups", uids(groups)),
        ("auditors", one(vocabulary::uid(&names.group, &format!("{tenant}/{AUDITORS}")))),
        ("tool", one(names.tool_uid(request.capability))),
        ("mode", names.mode(request.mode)),
        ("expires_at", datetime(request.expires_at)),
        ("decided_by", uids(request.decided_by.iter().map(|id| names.user_uid(tenant, id)))),
    ];
    if let Some(user) = &request.chain.on_behalf_of {
        attrs.push(("on_behalf_of", one(names.principal_uid(user))));
    }
    known.push(entity(target.clone(), attrs, [])?);
    let mut seen = BTreeSet::new();
    known.retain(|entity| seen.insert(entity.uid()));
    Ok((Entities::from_entities(known, None)?, target))
}

#[cfg(test)]
mod tests;
