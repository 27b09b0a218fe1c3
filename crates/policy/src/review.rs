//! Who may see and decide an approval: itself a Cedar request.
//!
//! Owns the request and its entities. Does not count votes: [`crate::approval`] does, and never counts the caller's owner or
//! the user acted for, whatever a bundle says. Invariants: somebody decides for a colleague only where both of them may decide;
//! anyone who wrote the arguments instead of the agent decides nothing; where an approval requires a fresh authentication,
//! nobody approves without one; an external approver, who is of another tenant, may view, approve or deny only while asked as a member
//! of a group of that tenant, and nothing else. All of this holds whatever a bundle says.

use std::collections::BTreeSet;

use cedar_policy::{Context, Entities, Entity, EntityUid, RestrictedExpression};
use placet_types::{
    approval::{ApproverGroup, Voice},
    clock::Timestamp,
    error::ErrorCode,
    ids::{CapabilityId, GroupId, PrincipalId, TenantId},
    mode::ApprovalMode,
    principal::{Principal, PrincipalChain, PrincipalKind},
};

use crate::{
    actions,
    approval::{is_interested, proved_lately},
    decision::{Determining, Link, PolicyEffect},
    entities::{self, entity},
    evaluate::{Evaluation, Question, evaluate},
    route::has_group,
    snapshot::Snapshot,
    vocabulary::{self, datetime, duration, flag, uids},
};

/// The group whose members see every approval of their tenant.
pub(crate) const AUDITORS: &str = "auditors";
/// The group whose members run the service for their tenant.
pub(crate) const OPERATORS: &str = "operators";

/// Somebody who looks at an approval.
#[derive(Debug, Clone, Copy)]
pub struct Reviewer<'a> {
    /// Who, from a verified token.
    pub principal: &'a Principal,
    /// Their groups in their own tenant, from verified claims; the directory's are added. For a colleague who delegated: exactly the groups
    /// that were delegated and that the colleague still has; nothing is added.
    pub groups: &'a BTreeSet<GroupId>,
}

/// The approval reviewed, or the standing grant proposed from one.
#[derive(Debug, Clone)]
pub struct ReviewedRequest<'a> {
    /// Who calls and for whom.
    pub chain: &'a PrincipalChain,
    /// The operation.
    pub capability: &'a CapabilityId,
    /// The mode the call has.
    pub mode: ApprovalMode,
    /// The groups that are asked now, those of escalations that were made included.
    pub asked: BTreeSet<ApproverGroup>,
    /// The maximum age of an approver's authentication; `None`: it does not matter.
    pub fresh_auth_ms: Option<u64>,
    /// When it ends.
    pub expires_at: Timestamp,
    /// Who has decided on what is shown now, and for whom.
    pub decided_by: BTreeSet<Voice<'a>>,
    /// Who of the call's tenant wrote the arguments in the place of its agent.
    pub authors: BTreeSet<PrincipalId>,
}

/// What somebody wants to do with an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReviewAction {
    /// Agree.
    Approve,
    /// Say no.
    Deny,
    /// Replace the arguments, and approve them where they are narrower.
    Edit,
}

impl ReviewAction {
    const fn action(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
            Self::Edit => "edit_args",
        }
    }

    /// Whether it is an agreement: only that needs a fresh proof of identity.
    const fn agrees(self) -> bool {
        matches!(self, Self::Approve | Self::Edit)
    }
}

/// A decision that somebody wants to make.
#[derive(Debug, Clone, Copy)]
pub struct Review<'a> {
    /// Who.
    pub reviewer: Reviewer<'a>,
    /// The colleague they decide for, if one delegated to them.
    pub stands_for: Option<Reviewer<'a>>,
    /// On what.
    pub request: &'a ReviewedRequest<'a>,
    /// What they decide.
    pub action: ReviewAction,
    /// When the reviewer last authenticated, if the token says.
    pub authenticated_at: Option<Timestamp>,
    /// When.
    pub now: Timestamp,
}

/// Somebody wants to withdraw a held call.
#[derive(Debug, Clone, Copy)]
pub struct Withdrawal<'a> {
    /// Who: a person, or the call's own caller.
    pub by: Reviewer<'a>,
    /// Whether it is that caller.
    pub is_requester: bool,
    /// Which call.
    pub request: &'a ReviewedRequest<'a>,
    /// When they last authenticated, if the token says.
    pub authenticated_at: Option<Timestamp>,
    /// When.
    pub now: Timestamp,
}

/// Somebody may not review or see an approval, or do something in the approval service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the review is refused: {}", self.why())]
pub struct ReviewRefusal {
    /// The code that the reviewer gets; [`ErrorCode::NotFound`] if they may not even see the approval.
    pub code: ErrorCode,
    /// The forbids that stood against it; for the audit only.
    pub determining: Vec<Determining>,
    /// Policies that could not be evaluated, and what the engine found; for the audit only.
    pub errors: Vec<String>,
    /// Whether the reviewer would only have to authenticate again.
    pub needs_fresh_auth: bool,
}

impl ReviewRefusal {
    pub(crate) fn of(code: ErrorCode, error: impl Into<String>) -> Self {
        Self { code, determining: Vec::new(), errors: vec![error.into()], needs_fresh_auth: false }
    }

    /// The refusal by an evaluation that did not allow the act.
    pub(crate) fn by(snapshot: &Snapshot, answer: Evaluation) -> Self {
        let code =
            if answer.errors.is_empty() { ErrorCode::PolicyDenied } else { ErrorCode::PolicyError };
        let named = answer.determining.iter().filter_map(|id| snapshot.determining(id, Link::User));
        let determining = named.filter(|policy| policy.effect == PolicyEffect::Forbid).collect();
        Self { code, determining, errors: answer.errors, needs_fresh_auth: false }
    }

    /// A request that could not be formed.
    pub(crate) fn unmade() -> Self {
        Self::of(ErrorCode::PolicyError, "the review cannot be put to policy")
    }

    fn why(&self) -> String {
        let policies = self.determining.iter().map(|one| format!("policy `{}`", one.policy));
        let reasons: Vec<String> = policies.chain(self.errors.iter().cloned()).collect();
        if reasons.is_empty() { "no policy permits it".to_owned() } else { reasons.join(", ") }
    }
}

impl Snapshot {
    /// Whether somebody may make this decision on this approval.
    ///
    /// # Errors
    /// [`ReviewRefusal`] when policy does not let them.
    pub fn may_review(&self, review: &Review<'_>) -> Result<(), ReviewRefusal> {
        let within = review.request.fresh_auth_ms.filter(|_| review.action.agrees());
        let stale = within
            .is_some_and(|within| !proved_lately(review.authenticated_at, review.now, within));
        let answer = ask_all(self, review).and_then(|()| must_count(self, review));
        if !stale {
            return answer;
        }
        let refreshed = Review { authenticated_at: Some(review.now), ..*review };
        let needs_fresh_auth =
            ask_all(self, &refreshed).is_ok() && must_count(self, review).is_ok();
        let floor = || {
            let note = "the approval asks for a fresh proof of identity";
            ReviewRefusal::of(ErrorCode::PolicyDenied, note)
        };
        Err(ReviewRefusal { needs_fresh_auth, ..answer.err().unwrap_or_else(floor) })
    }

    /// Whether somebody may withdraw a held call.
    ///
    /// # Errors
    /// [`ReviewRefusal`] when policy does not let them.
    pub fn may_withdraw(&self, withdrawal: &Withdrawal<'_>) -> Result<(), ReviewRefusal> {
        let Withdrawal { by, is_requester, request, authenticated_at, now } = withdrawal;
        let asked = Asked { requester: Some(*is_requester), ..Asked::own(by) };
        let when = When { now: *now, authenticated_at: *authenticated_at };
        ask(self, "withdraw", &asked, request, when)
    }

    /// Whether somebody may see this approval.
    ///
    /// # Errors
    /// [`ReviewRefusal`] when policy does not let them; for them the approval does not exist.
    pub fn may_view(
        &self,
        reviewer: &Reviewer<'_>,
        request: &ReviewedRequest<'_>,
        now: Timestamp,
    ) -> Result<(), ReviewRefusal> {
        let when = When { now, authenticated_at: None };
        ask(self, "view", &Asked::own(reviewer), request, when)
            .map_err(|refusal| ReviewRefusal { code: ErrorCode::NotFound, ..refusal })
    }
}

/// Asks about the reviewer, and about the colleague the reviewer decides for: both must be allowed.
fn ask_all(snapshot: &Snapshot, review: &Review<'_>) -> Result<(), ReviewRefusal> {
    let Review { reviewer, request, action, .. } = review;
    let when = When { now: review.now, authenticated_at: review.authenticated_at };
    let Some(colleague) = &review.stands_for else {
        return ask(snapshot, action.action(), &Asked::own(reviewer), request, when);
    };
    if let Some(note) = against_standing_for(snapshot, reviewer, colleague, request) {
        return Err(ReviewRefusal::of(ErrorCode::PolicyDenied, note));
    }
    // The reviewer decides as a member of the colleague's groups, not of their own.
    let stand_in = Reviewer { groups: colleague.groups, ..*reviewer };
    let stands_for = Some(&colleague.principal.id);
    let person = Asked { exactly: true, stands_for, ..Asked::own(&stand_in) };
    ask(snapshot, action.action(), &person, request, when)?;
    let person = Asked { exactly: true, ..Asked::own(colleague) };
    ask(snapshot, action.action(), &person, request, when)
}

/// Nobody decides on arguments that they, or the colleague they decide for, wrote, and nobody agrees to a call of their own agent or one made
/// for them; even if policies fail to forbid it.
fn must_count(snapshot: &Snapshot, review: &Review<'_>) -> Result<(), ReviewRefusal> {
    let Review { reviewer, request, .. } = review;
    let own = reviewer.principal.tenant_id == *request.chain.tenant();
    let voice = Voice::own(&reviewer.principal.id);
    if own && review.action.agrees() && is_interested(&snapshot.directory, request.chain, voice) {
        let note = "the owner of the agent, and the user it acts for, never count as approvers";
        return Err(ReviewRefusal::of(ErrorCode::PolicyDenied, note));
    }
    let mut both = std::iter::once(&review.reviewer).chain(&review.stands_for);
    let wrote = both.any(|person| {
        person.principal.tenant_id == *review.request.chain.tenant()
            && review.request.authors.contains(&person.principal.id)
    });
    if wrote {
        let note = "the author of the arguments cannot decide on them";
        return Err(ReviewRefusal::of(ErrorCode::PolicyDenied, note));
    }
    Ok(())
}

/// Why somebody cannot decide for a colleague, whatever policies say.
fn against_standing_for(
    snapshot: &Snapshot,
    reviewer: &Reviewer<'_>,
    colleague: &Reviewer<'_>,
    request: &ReviewedRequest<'_>,
) -> Option<&'static str> {
    let tenant = request.chain.tenant();
    if [reviewer, colleague].iter().any(|person| &person.principal.tenant_id != tenant) {
        return Some("an external approver decides in their own right");
    }
    let both = [&reviewer.principal.id, &colleague.principal.id].map(Voice::own);
    let interested = |voice: &Voice<'_>| is_interested(&snapshot.directory, request.chain, *voice);
    if reviewer.principal.id == colleague.principal.id {
        return Some("nobody decides in their own place");
    }
    if both.iter().any(interested) {
        return Some("one of the two has an interest in the call");
    }
    let decided = both.iter().any(|voice| request.decided_by.contains(voice));
    decided.then_some("one of the two has decided already")
}

/// One person, as policy is asked about them.
#[derive(Debug, Clone, Copy)]
struct Asked<'a> {
    person: &'a Reviewer<'a>,
    /// Whether they count as members of the named groups only.
    exactly: bool,
    stands_for: Option<&'a PrincipalId>,
    /// For a withdrawal: whether they are the call's own caller.
    requester: Option<bool>,
}

impl<'a> Asked<'a> {
    const fn own(person: &'a Reviewer<'a>) -> Self {
        Self { person, exactly: false, stands_for: None, requester: None }
    }
}

/// The times of a question.
#[derive(Debug, Clone, Copy)]
pub(crate) struct When {
    pub(crate) now: Timestamp,
    pub(crate) authenticated_at: Option<Timestamp>,
}

impl When {
    /// The times as policies see them. The authentication is never presented as later than the request.
    pub(crate) fn pairs(self) -> Vec<(String, RestrictedExpression)> {
        let proved = self.authenticated_at.map(|at| at.min(self.now));
        let proved = proved.map(|at| ("authenticated_at".to_owned(), datetime(at)));
        std::iter::once(("now".to_owned(), datetime(self.now))).chain(proved).collect()
    }
}

fn ask(
    snapshot: &Snapshot,
    action: &str,
    asked: &Asked<'_>,
    request: &ReviewedRequest<'_>,
    when: When,
) -> Result<(), ReviewRefusal> {
    let person = asked.person.principal;
    let tenant = request.chain.tenant();
    if person.kind != PrincipalKind::User && asked.requester != Some(true) {
        return Err(ReviewRefusal::of(ErrorCode::PolicyDenied, "only people review approvals"));
    }
    if &person.tenant_id != tenant {
        as_external(snapshot, action, asked.person, request)?;
    }
    let (entities, target) =
        entities_of(snapshot, asked, request).map_err(|_unmade| ReviewRefusal::unmade())?;
    let colleague = asked.stands_for.map(|id| {
        let uid = snapshot.names.user_uid(tenant, id);
        ("stands_for".to_owned(), RestrictedExpression::new_entity_uid(uid))
    });
    let requester = asked.requester.map(|is| ("requester".to_owned(), flag(is)));
    let context = Context::from_pairs(when.pairs().into_iter().chain(colleague).chain(requester))
        .map_err(|_unmade| ReviewRefusal::unmade())?;
    let question = Question {
        link: Link::User,
        principal: snapshot.names.principal_uid(person),
        action: snapshot.names.action_uid(action),
        resource: target,
        context,
    };
    let answer = evaluate(&snapshot.schema, &snapshot.review_slice, &entities, question);
    if answer.allowed { Ok(()) } else { Err(ReviewRefusal::by(snapshot, answer)) }
}

/// The actions open to an external approver at all.
fn as_external(
    snapshot: &Snapshot,
    action: &str,
    external: &Reviewer<'_>,
    request: &ReviewedRequest<'_>,
) -> Result<(), ReviewRefusal> {
    let tenant = &external.principal.tenant_id;
    let listed = snapshot.directory.user(tenant, &external.principal.id);
    let mut groups = external.groups.clone();
    groups.extend(listed.into_iter().flat_map(|user| user.groups.iter().cloned()));
    let as_asked = |group: &ApproverGroup| {
        group.has(Some(tenant), &groups) && has_group(&snapshot.directory, tenant, group.group())
    };
    if !request.asked.iter().any(as_asked) {
        let note = "the approval belongs to another tenant, which does not ask this person";
        return Err(ReviewRefusal::of(ErrorCode::NotFound, note));
    }
    if !["approve", "deny", "view"].contains(&action) {
        let note = "somebody of another tenant agrees or says no, and changes nothing";
        return Err(ReviewRefusal::of(ErrorCode::PolicyDenied, note));
    }
    Ok(())
}

type Made = Result<(Entities, EntityUid), Box<dyn std::error::Error>>;

fn entities_of(snapshot: &Snapshot, asked: &Asked<'_>, request: &ReviewedRequest<'_>) -> Made {
    let (names, directory) = (&snapshot.names, &snapshot.directory);
    let tenant = request.chain.tenant();
    let Reviewer { principal: person, groups } = asked.person;
    let home = &person.tenant_id;
    let mut known = if asked.exactly {
        entities::person_in(names, directory, home, &person.id, &groups.iter().collect())?
    } else if person.kind != PrincipalKind::User {
        entities::principals(names, directory, request.chain, groups)?
    } else {
        entities::person(names, directory, home, &person.id, groups)?
    };
    let owner = directory.agent(tenant, &request.chain.actor.id).map(|agent| &agent.owner);
    let user = request.chain.on_behalf_of.as_ref().map(|user| &user.id);
    for other in owner.into_iter().chain(user).chain(asked.stands_for) {
        known.extend(entities::person(names, directory, tenant, other, &BTreeSet::new())?);
    }
    if let Some(plan) = snapshot.tools.get(request.capability) {
        known.extend([plan.entities.tool.clone(), plan.entities.adapter.clone()]);
    }
    let group = names.action_uid("review");
    known.extend(
        actions::REVIEWING
            .map(|action| Entity::new_no_attrs(names.action_uid(action), [group.clone()].into())),
    );
    let target = vocabulary::uid(&names.approval_request, "this");
    known.push(approval_request(snapshot, request, owner, &target)?);
    // Of several entities for a person, the first is the one asked about.
    let mut seen = BTreeSet::new();
    known.retain(|entity| seen.insert(entity.uid()));
    Ok((Entities::from_entities(known, None)?, target))
}

fn approval_request(
    snapshot: &Snapshot,
    request: &ReviewedRequest<'_>,
    owner: Option<&PrincipalId>,
    target: &EntityUid,
) -> entities::EntityResult<Entity> {
    let (names, tenant) = (&snapshot.names, request.chain.tenant());
    let owner = owner.map_or_else(|| names.nobody(tenant), |owner| names.user_uid(tenant, owner));
    let home = |external: Option<&TenantId>| external.unwrap_or(tenant).clone();
    let groups = request
        .asked
        .iter()
        .map(|group| names.group_uid(&home(group.external_tenant()), group.group()));
    let decided =
        request.decided_by.iter().map(|voice| names.user_uid(&home(voice.tenant), voice.person));
    let authors = request.authors.iter().map(|author| names.user_uid(tenant, author));
    let one = RestrictedExpression::new_entity_uid;
    let mut attrs = vec![
        ("tenant", one(names.tenant_uid(tenant))),
        ("owner", one(owner)),
        ("approver_groups", uids(groups)),
        ("auditors", one(vocabulary::uid(&names.group, &format!("{tenant}/{AUDITORS}")))),
        ("operators", one(vocabulary::uid(&names.group, &format!("{tenant}/{OPERATORS}")))),
        ("tool", one(names.tool_uid(request.capability))),
        ("mode", RestrictedExpression::new_entity_uid(names.mode(request.mode))),
        ("expires_at", datetime(request.expires_at)),
        ("decided_by", uids(decided)),
        ("authors", uids(authors)),
    ];
    if let Some(user) = &request.chain.on_behalf_of {
        attrs.push(("on_behalf_of", one(names.principal_uid(user))));
    }
    if let Some(within) = request.fresh_auth_ms {
        attrs.push(("fresh_within", duration(within)));
    }
    entity(target.clone(), attrs, [])
}

#[cfg(test)]
mod tests;
