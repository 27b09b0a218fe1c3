//! Who may manage the approval service: break-glass records, freezes, grants, delegations, revocations. Itself a Cedar request.
//!
//! Owns the request and its entity. The states of an entry are the ledger's. Only people of the entry's own tenant can do
//! anything with it. Invariants, whatever a bundle says: nobody confirms a break-glass record that they asked for, nobody
//! reviews one that they took part in, and everybody delegates their own votes alone.

use std::collections::BTreeSet;

use cedar_policy::{Context, Entities, Entity, EntityUid, RestrictedExpression};
use placet_types::{
    clock::Timestamp,
    error::ErrorCode,
    ids::{GroupId, PrincipalId, TenantId},
    principal::{Principal, PrincipalKind},
};

use crate::{
    actions,
    decision::Link,
    entities::{self, entity},
    evaluate::{Question, evaluate},
    review::{AUDITORS, OPERATORS, ReviewRefusal, Reviewer, When},
    snapshot::Snapshot,
    vocabulary::{self, uids},
};

placet_types::named_enum! {
    /// What somebody wants to do in the approval service.
    pub enum DirectiveActKind {
        /// Request emergency access.
        DeclareBreakGlass = "declare_break_glass",
        /// Confirm or deny it.
        ConfirmBreakGlass = "confirm_break_glass",
        /// End it early.
        EndBreakGlass = "end_break_glass",
        /// Review it afterwards.
        ReviewBreakGlass = "review_break_glass",
        /// Enter a freeze in the calendar.
        SetFreeze = "set_freeze",
        /// End a freeze early.
        LiftFreeze = "lift_freeze",
        /// Begin a lockdown.
        SetLockdown = "set_lockdown",
        /// End a lockdown early.
        LiftLockdown = "lift_lockdown",
        /// End a standing grant early.
        RevokeGrant = "revoke_grant",
        /// Delegate one's own votes to a colleague.
        DelegateVotes = "delegate_votes",
        /// End a delegation early.
        TakeBack = "take_back",
        /// Revoke the tokens of a subject.
        RevokeCredentials = "revoke_credentials",
        /// End a revocation early, so that its tokens are accepted again.
        LiftRevocation = "lift_revocation",
        /// See an entry.
        View = "view_entry",
    }
}

/// What of an entry determines who may act on it.
#[derive(Debug, Clone, Copy)]
pub struct EntryFacts<'a> {
    /// Its tenant.
    pub tenant: &'a TenantId,
    /// Who made it.
    pub by: &'a PrincipalId,
    /// Who approved or denied it, and for whom.
    pub decided_by: &'a BTreeSet<PrincipalId>,
    /// The groups asked for it: of a standing grant.
    pub asked: &'a BTreeSet<GroupId>,
    /// Who decides instead; for a delegation.
    pub colleague: Option<&'a PrincipalId>,
}

/// An act in the approval service that somebody wants to perform.
#[derive(Debug, Clone, Copy)]
pub struct Management<'a> {
    /// Who.
    pub reviewer: Reviewer<'a>,
    /// When they last authenticated, if the token says.
    pub authenticated_at: Option<Timestamp>,
    /// What.
    pub act: DirectiveActKind,
    /// With which entry; `None`: with a new one of their own.
    pub entry: Option<EntryFacts<'a>>,
    /// When.
    pub now: Timestamp,
}

impl Snapshot {
    /// Whether somebody may do this in the approval service: make, confirm, end, review or see an entry.
    ///
    /// # Errors
    /// [`ReviewRefusal`] when policy does not let them; to somebody who may not see the entry, it does not exist.
    pub fn may_manage(&self, management: &Management<'_>) -> Result<(), ReviewRefusal> {
        may_manage(self, management)
    }
}

fn may_manage(snapshot: &Snapshot, management: &Management<'_>) -> Result<(), ReviewRefusal> {
    let unseen = management.act == DirectiveActKind::View;
    let hidden = |refusal| ReviewRefusal { code: ErrorCode::NotFound, ..refusal };
    ask(snapshot, management).map_err(|refusal| if unseen { hidden(refusal) } else { refusal })
}

fn ask(snapshot: &Snapshot, management: &Management<'_>) -> Result<(), ReviewRefusal> {
    let asked = Asked::of(snapshot, management.reviewer, management.act, management.entry)?;
    asked.at(When { now: management.now, authenticated_at: management.authenticated_at })
}

/// A management request with everything but its time.
pub(crate) struct Asked<'a> {
    snapshot: &'a Snapshot,
    person: &'a Principal,
    act: DirectiveActKind,
    entities: Entities,
    target: EntityUid,
    /// Why the engine refuses it whatever policies say.
    floor: Option<&'static str>,
}

impl<'a> Asked<'a> {
    pub(crate) fn of(
        snapshot: &'a Snapshot,
        reviewer: Reviewer<'a>,
        act: DirectiveActKind,
        entry: Option<EntryFacts<'_>>,
    ) -> Result<Self, ReviewRefusal> {
        let person = reviewer.principal;
        if person.kind != PrincipalKind::User {
            let note = "only people manage approvals";
            return Err(ReviewRefusal::of(ErrorCode::PolicyDenied, note));
        }
        let nothing = (BTreeSet::new(), BTreeSet::new());
        let entry = entry.unwrap_or(EntryFacts {
            tenant: &person.tenant_id,
            by: &person.id,
            decided_by: &nothing.0,
            asked: &nothing.1,
            colleague: None,
        });
        if entry.tenant != &person.tenant_id {
            let note = "the entry belongs to another tenant";
            return Err(ReviewRefusal::of(ErrorCode::NotFound, note));
        }
        let (entities, target) =
            entities_of(snapshot, &reviewer, &entry).map_err(|_unmade| ReviewRefusal::unmade())?;
        let floor = floor(act, &person.id, &entry);
        Ok(Self { snapshot, person, act, entities, target, floor })
    }

    pub(crate) fn at(&self, when: When) -> Result<(), ReviewRefusal> {
        let snapshot = self.snapshot;
        let context =
            Context::from_pairs(when.pairs()).map_err(|_unmade| ReviewRefusal::unmade())?;
        let question = Question {
            link: Link::User,
            principal: snapshot.names.principal_uid(self.person),
            action: snapshot.names.action_uid(self.act.as_str()),
            resource: self.target.clone(),
            context,
        };
        let answer = evaluate(&snapshot.schema, &snapshot.manage_slice, &self.entities, question);
        if !answer.allowed {
            return Err(ReviewRefusal::by(snapshot, answer));
        }
        // Last, so that a refusal names the policy where there is one.
        self.floor.map_or(Ok(()), |note| Err(ReviewRefusal::of(ErrorCode::PolicyDenied, note)))
    }
}

/// Why the engine refuses an act whatever policies say.
fn floor(
    act: DirectiveActKind,
    person: &PrincipalId,
    entry: &EntryFacts<'_>,
) -> Option<&'static str> {
    use DirectiveActKind as Act;
    let took_part = entry.by == person || entry.decided_by.contains(person);
    if act == Act::ConfirmBreakGlass && entry.by == person {
        return Some("somebody else confirms a break-glass record");
    }
    if act == Act::ReviewBreakGlass && took_part {
        return Some("somebody who took no part reviews a break-glass record");
    }
    if act == Act::DelegateVotes && entry.by != person {
        return Some("everybody hands over their own duty");
    }
    let to_oneself = act == Act::DelegateVotes && entry.colleague == Some(person);
    to_oneself.then_some("nobody decides in their own place")
}

type Made = Result<(Entities, EntityUid), Box<dyn std::error::Error>>;

fn entities_of(snapshot: &Snapshot, reviewer: &Reviewer<'_>, entry: &EntryFacts<'_>) -> Made {
    let (names, directory) = (&snapshot.names, &snapshot.directory);
    let tenant = entry.tenant;
    let mut known =
        entities::person(names, directory, tenant, &reviewer.principal.id, reviewer.groups)?;
    for other in std::iter::once(entry.by).chain(entry.colleague) {
        known.extend(entities::person(names, directory, tenant, other, &BTreeSet::new())?);
    }
    let group = names.action_uid("manage");
    known.extend(
        actions::MANAGING
            .map(|action| Entity::new_no_attrs(names.action_uid(action), [group.clone()].into())),
    );
    let target = vocabulary::uid(&names.directive, "this");
    known.push(directive(snapshot, entry, &target)?);
    // Of several entities for a person, the first is the one asked about.
    let mut seen = BTreeSet::new();
    known.retain(|entity| seen.insert(entity.uid()));
    Ok((Entities::from_entities(known, None)?, target))
}

fn directive(
    snapshot: &Snapshot,
    entry: &EntryFacts<'_>,
    target: &EntityUid,
) -> entities::EntityResult<Entity> {
    let (names, tenant) = (&snapshot.names, entry.tenant);
    let one = RestrictedExpression::new_entity_uid;
    let group = |name: &str| one(vocabulary::uid(&names.group, &format!("{tenant}/{name}")));
    let mut attrs = vec![
        ("tenant", one(names.tenant_uid(tenant))),
        ("by", one(names.user_uid(tenant, entry.by))),
        ("approver_groups", uids(entry.asked.iter().map(|asked| names.group_uid(tenant, asked)))),
        ("decided_by", uids(entry.decided_by.iter().map(|id| names.user_uid(tenant, id)))),
        ("approvers", group("approvers")),
        ("freeze_approvers", group("freeze-approvers")),
        ("emergency", group("emergency")),
        ("auditors", group(AUDITORS)),
        ("operators", group(OPERATORS)),
    ];
    if let Some(colleague) = entry.colleague {
        attrs.push(("colleague", one(names.user_uid(tenant, colleague))));
    }
    entity(target.clone(), attrs, [])
}

#[cfg(test)]
mod tests;
