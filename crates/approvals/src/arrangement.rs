//! Arrangements other than single decisions: a standing grant, a break-glass record, a freeze, a delegation, a revocation.
//!
//! Owns what can be arranged and who has to agree to it. Cedar decides whether the caller may at all; [`crate::entry_draft`] limits for how
//! long, and how many may be open; [`crate::grant_proposal`] proposes standing grants.

use std::{collections::BTreeMap, sync::Arc};

use placet_identity::VerifiedCaller;
use placet_policy::manage::DirectiveActKind;
use placet_types::{
    approval::Requirement,
    directive::{DIRECTIVE_TEXT_BYTES_MAX, Delegation, DirectiveBody, DirectiveKind, Freeze},
    error::Refusal,
    ids::AdapterName,
};

use crate::{
    decision,
    entries::{self, allowed},
    entry_draft::{Terms, drafted, make},
    grant_proposal::{self, Wanted},
    refusals::invalid,
    reviewer,
    service::Approvals,
    views::{Arrangement, DirectiveRequest, DirectiveView},
};

impl Approvals {
    /// Arranges something: a standing grant, a break-glass record, a freeze, a delegation, a revocation.
    ///
    /// # Errors
    /// [`Refusal`] when policy does not permit it, or it exceeds a limit.
    pub async fn arrange(
        self: &Arc<Self>,
        caller: &VerifiedCaller,
        request: DirectiveRequest,
    ) -> Result<DirectiveView, Refusal> {
        decision::may_decide_at_all(self, caller, &request.reason, "/reason").await?;
        let (act, body) = match request.arrange.clone() {
            Arrangement::Grant { approval_id, pattern, uses_max, digest } => {
                let wanted = Wanted { approval_id, pattern, uses_max, digest };
                return grant_proposal::grant(self, caller, request, wanted).await;
            }
            Arrangement::BreakGlass(glass) => {
                check_text(&glass.ticket, "/arrange/ticket")?;
                (DirectiveActKind::DeclareBreakGlass, DirectiveBody::BreakGlass(glass))
            }
            Arrangement::Freeze(freeze) => {
                check_freeze(self, caller, &freeze)?;
                let act = if freeze.lockdown {
                    DirectiveActKind::SetLockdown
                } else {
                    DirectiveActKind::SetFreeze
                };
                (act, DirectiveBody::Freeze(freeze))
            }
            Arrangement::Delegation(delegation) => {
                check_delegation(self, caller, &delegation)?;
                (DirectiveActKind::DelegateVotes, DirectiveBody::Delegation(delegation))
            }
            Arrangement::Revocation(revocation) => {
                check_text(&revocation.subject, "/arrange/subject")?;
                if let Some(issuer) = &revocation.issuer {
                    check_text(issuer, "/arrange/issuer")?;
                    // Acknowledged, it would look as if access was gone.
                    let calls = self.calls();
                    if calls.is_some_and(|calls| !calls.has_issuer(caller.tenant(), issuer)) {
                        let problem = "is no issuer whose tokens are taken here: write it as the claim `iss` has it, or leave it out";
                        return Err(invalid("/arrange/issuer", problem));
                    }
                }
                (DirectiveActKind::RevokeCredentials, DirectiveBody::Revocation(revocation))
            }
        };
        let requirement = match body.kind() {
            // One other person; Cedar decides who.
            DirectiveKind::BreakGlass => Requirement::new(BTreeMap::new(), 1, request.lasts_ms),
            // Nobody has to agree.
            DirectiveKind::Grant
            | DirectiveKind::Freeze
            | DirectiveKind::Delegation
            | DirectiveKind::Revocation => Requirement::new(BTreeMap::new(), 0, 0),
        };
        let entry = drafted(self, caller, &request, Terms { body, requirement })?;
        allowed(self, caller, act, &entry).await?;
        make(self, caller, &entry).await?;
        Ok(entries::view_of(self, caller, &entry))
    }
}

fn check_text(text: &str, pointer: &str) -> Result<(), Refusal> {
    if text.trim().is_empty() || text.len() > DIRECTIVE_TEXT_BYTES_MAX {
        return Err(invalid(
            pointer,
            format!("must be 1 to {DIRECTIVE_TEXT_BYTES_MAX} bytes of text"),
        ));
    }
    Ok(())
}

/// Adapters of other tenants answer like those that do not exist.
fn check_freeze(
    service: &Approvals,
    caller: &VerifiedCaller,
    freeze: &Freeze,
) -> Result<(), Refusal> {
    check_text(&freeze.name, "/arrange/name")?;
    let catalog = &service.policies().catalog;
    let is_known = |adapter: &AdapterName| {
        let mut own = catalog.contracts().filter(|contract| contract.admits(caller.tenant()));
        own.any(|contract| contract.adapter == *adapter)
    };
    match freeze.adapters.iter().find(|adapter| !is_known(adapter)) {
        Some(other) => Err(invalid("/arrange/adapters", format!("there is no adapter `{other}`"))),
        None => Ok(()),
    }
}

fn check_delegation(
    service: &Approvals,
    caller: &VerifiedCaller,
    delegation: &Delegation,
) -> Result<(), Refusal> {
    if delegation.to == caller.actor.principal().id {
        return Err(invalid("/arrange/to", "is yourself"));
    }
    let directory = &service.policies().directory;
    let colleague = directory.user(caller.tenant(), &delegation.to);
    // There is no further vote, so a delegation to a misspelt name would silently have no effect.
    let Some(colleague) = colleague else {
        return Err(invalid("/arrange/to", "is nobody in the directory"));
    };
    if !colleague.active {
        return Err(invalid("/arrange/to", "is not active"));
    }
    if delegation.groups.is_empty() {
        return Err(invalid("/arrange/groups", "must name at least one of your groups"));
    }
    // Only their own groups: a duty delegated to them cannot be delegated further.
    let own = reviewer::groups_of(service, caller);
    match delegation.groups.iter().find(|group| !own.contains(*group)) {
        Some(other) => {
            Err(invalid("/arrange/groups", format!("you are not in `{other}` yourself")))
        }
        None => Ok(()),
    }
}
