//! Arranging something besides single decisions: a standing grant, a break-glass record, a freeze, a delegation, a revocation.
//!
//! Owns what can be arranged and who has to agree to it. Whether the caller may at all is Cedar's answer; for how long, and how many at a time, is
//! [`crate::entry_draft`]'s; a standing grant is proposed by [`crate::grant_proposal`].

use std::{collections::BTreeMap, sync::Arc};

use placet_identity::VerifiedCaller;
use placet_policy::manage::DirectiveActKind;
use placet_types::{
    approval::Requirement,
    directive::{
        BreakGlass, DIRECTIVE_TEXT_BYTES_MAX, Delegation, DirectiveBody, Freeze, Revocation,
    },
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
    /// [`Refusal`] when policy does not let the caller, or it goes beyond a limit.
    pub async fn arrange(
        self: &Arc<Self>,
        caller: &VerifiedCaller,
        request: DirectiveRequest,
    ) -> Result<DirectiveView, Refusal> {
        decision::may_decide_at_all(self, caller, &request.reason, "/reason").await?;
        match request.arrange.clone() {
            Arrangement::Grant { approval_id, pattern, uses_max, digest } => {
                let wanted = Wanted { approval_id, pattern, uses_max, digest };
                grant_proposal::grant(self, caller, request, wanted).await
            }
            Arrangement::BreakGlass(glass) => {
                let terms = break_glass(glass, request.lasts_ms)?;
                enter(self, caller, DirectiveActKind::DeclareBreakGlass, &request, terms).await
            }
            Arrangement::Freeze(freeze) => {
                let act = if freeze.lockdown {
                    DirectiveActKind::SetLockdown
                } else {
                    DirectiveActKind::SetFreeze
                };
                let terms = self::freeze(self, freeze)?;
                enter(self, caller, act, &request, terms).await
            }
            Arrangement::Delegation(delegation) => {
                let terms = self::delegation(self, caller, delegation)?;
                enter(self, caller, DirectiveActKind::DelegateVotes, &request, terms).await
            }
            Arrangement::Revocation(revocation) => {
                let terms = self::revocation(revocation)?;
                enter(self, caller, DirectiveActKind::RevokeCredentials, &request, terms).await
            }
        }
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

fn break_glass(glass: BreakGlass, lasts_ms: u64) -> Result<Terms, Refusal> {
    check_text(&glass.ticket, "/arrange/ticket")?;
    // One other person; who, Cedar says.
    let requirement = Requirement::new(BTreeMap::new(), 1, lasts_ms);
    Ok(Terms { body: DirectiveBody::BreakGlass(glass), requirement })
}

/// Nobody has to agree.
fn nobody() -> Requirement {
    Requirement::new(BTreeMap::new(), 0, 0)
}

fn freeze(service: &Approvals, freeze: Freeze) -> Result<Terms, Refusal> {
    check_text(&freeze.name, "/arrange/name")?;
    let catalog = &service.policies().catalog;
    let is_known =
        |adapter: &AdapterName| catalog.contracts().any(|contract| contract.adapter == *adapter);
    let unknown = freeze.adapters.iter().find(|adapter| !is_known(adapter));
    if let Some(unknown) = unknown {
        return Err(invalid("/arrange/adapters", format!("there is no adapter `{unknown}`")));
    }
    Ok(Terms { body: DirectiveBody::Freeze(freeze), requirement: nobody() })
}

fn delegation(
    service: &Approvals,
    caller: &VerifiedCaller,
    delegation: Delegation,
) -> Result<Terms, Refusal> {
    if delegation.to == caller.actor.principal().id {
        return Err(invalid("/arrange/to", "is yourself"));
    }
    let directory = &service.policies().directory;
    let colleague = directory.user(caller.tenant(), &delegation.to);
    // Nobody else decides: a delegation to a name that is misspelt would silently not count.
    let Some(colleague) = colleague else {
        return Err(invalid("/arrange/to", "is nobody in the directory"));
    };
    if !colleague.active {
        return Err(invalid("/arrange/to", "is not active"));
    }
    if delegation.groups.is_empty() {
        return Err(invalid("/arrange/groups", "must name at least one of your groups"));
    }
    // Their own groups alone: what was handed over to them is not theirs to hand on.
    let own = reviewer::groups_of(service, caller);
    if let Some(other) = delegation.groups.iter().find(|group| !own.contains(*group)) {
        return Err(invalid("/arrange/groups", format!("you are not in `{other}` yourself")));
    }
    Ok(Terms { body: DirectiveBody::Delegation(delegation), requirement: nobody() })
}

fn revocation(revocation: Revocation) -> Result<Terms, Refusal> {
    check_text(&revocation.subject, "/arrange/subject")?;
    if let Some(issuer) = &revocation.issuer {
        check_text(issuer, "/arrange/issuer")?;
    }
    Ok(Terms { body: DirectiveBody::Revocation(revocation), requirement: nobody() })
}

async fn enter(
    service: &Approvals,
    caller: &VerifiedCaller,
    act: DirectiveActKind,
    request: &DirectiveRequest,
    terms: Terms,
) -> Result<DirectiveView, Refusal> {
    let entry = drafted(service, caller, request, terms)?;
    allowed(service, caller, act, &entry).await?;
    make(service, caller, &entry).await?;
    Ok(entries::view_of(service, caller, &entry))
}
