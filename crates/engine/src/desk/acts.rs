//! What people do with entries of the approval service: agree or not, end, look at afterwards.
//!
//! Owns the way from an act to a move of the entry. Who may is Cedar's answer; what an entry may become is the ledger's.

use std::{sync::Arc, time::Duration};

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::VoteError,
    desk::{DeskEntry, DeskError, DeskNote},
    ledger::LedgerError,
    store::StoreError,
};
use placet_policy::manage::DeskActKind;
use placet_types::{
    approval::VoteChoice,
    desk::DeskBody,
    digest::Digest,
    error::{ErrorCode, Refusal},
    ids::DeskId,
};

use super::{
    arrange::{self, allowed},
    decide, entries, people,
    reviewer::{self, Capacity},
};
use crate::{
    context::{Context, ledger_refusal},
    views::desk::{DeskAct, DeskEntryView},
};

/// How often an act is tried again when another one, or a use of the grant, came first.
const TRIES: u32 = 24;
/// How much longer it waits before each further try.
const PAUSE: Duration = Duration::from_millis(4);

/// Does something with an entry.
pub(crate) async fn act(
    context: &Arc<Context>,
    caller: &VerifiedCaller,
    desk_id: &DeskId,
    act: DeskAct,
) -> Result<DeskEntryView, Refusal> {
    let (text, pointer) = match &act {
        DeskAct::Decide { reason, .. } | DeskAct::End { reason } => (reason, "/reason"),
        DeskAct::Review { note } => (note, "/note"),
    };
    people::check_reason(text, pointer)?;
    decide::may_decide_at_all(context, caller, text).await?;
    for tried in 0..TRIES {
        // A grant that many calls use is in another revision every moment; anyone who waits a little longer each time gets through.
        tokio::time::sleep(PAUSE.saturating_mul(tried.min(8))).await;
        let entry = entries::visible(context, caller, desk_id).await?;
        let (next, what) = moved(context, caller, &entry, &act).await?;
        match arrange::keep(context, caller, &next, &what).await {
            Ok(()) => {
                context.desk.arranged(context, next.clone()).await;
                return Ok(entries::view_of(context, caller, &next));
            }
            // It moved on between reading and writing: how, the next look says.
            Err(LedgerError::Store(StoreError::Conflict)) => {}
            Err(error) => {
                context.noticed(&error);
                return Err(ledger_refusal(&error));
            }
        }
    }
    Err(decide::crowded())
}

/// The entry as the act makes it, and what the audit says of that.
async fn moved(
    context: &Context,
    caller: &VerifiedCaller,
    entry: &DeskEntry,
    act: &DeskAct,
) -> Result<(DeskEntry, String), Refusal> {
    let now = context.ledger.store().now();
    let by = caller.actor.principal().id.clone();
    match act {
        DeskAct::Decide { decision, reason, digest } => {
            decided(context, caller, entry, *decision, reason, *digest).await
        }
        DeskAct::End { reason } => {
            allowed(context, caller, ending_of(&entry.body), entry).await?;
            let next = entry.ended(DeskNote { by, at: now, text: reason.clone() });
            Ok((next.map_err(|error| unmoved(&error))?, "ended".to_owned()))
        }
        DeskAct::Review { note } => {
            let next = entry.reviewed(DeskNote { by, at: now, text: note.clone() });
            let next = next.map_err(|error| unmoved(&error))?;
            allowed(context, caller, DeskActKind::ReviewBreakGlass, entry).await?;
            Ok((next, "reviewed".to_owned()))
        }
    }
}

async fn decided(
    context: &Context,
    caller: &VerifiedCaller,
    entry: &DeskEntry,
    decision: VoteChoice,
    reason: &str,
    shown: Digest,
) -> Result<(DeskEntry, String), Refusal> {
    let now = context.ledger.store().now();
    let person = &caller.actor.principal().id;
    if entries::deciders(entry).contains(person) {
        return Err(decide::not_counted(&VoteError::Twice));
    }
    let capacity = match &entry.body {
        DeskBody::Grant(grant) => {
            let action = decide::action_of(decision);
            match reviewer::capacity_for_grant(context, caller, entry, grant, action) {
                Ok(capacity) => capacity,
                Err(refusal) => {
                    let act = DeskActKind::View;
                    let told = arrange::refused(context, caller, act, &refusal).await;
                    return Err(told);
                }
            }
        }
        DeskBody::BreakGlass(_) => {
            allowed(context, caller, DeskActKind::ConfirmBreakGlass, entry).await?;
            own(context, caller)
        }
        DeskBody::Freeze(_) | DeskBody::Delegation(_) | DeskBody::Revocation(_) => {
            return Err(unmoved(&DeskError::Over(entry.state.name())));
        }
    };
    let vote = decide::vote_of(caller, &capacity, decision, reason, shown, now);
    let noted = decide::noted(&vote);
    let next = entry.cast(vote, now).map_err(|error| decide::not_counted(&error))?;
    Ok((next, noted))
}

/// What ending an entry before its time is called.
pub(crate) const fn ending_of(body: &DeskBody) -> DeskActKind {
    match body {
        DeskBody::Grant(_) => DeskActKind::RevokeGrant,
        DeskBody::BreakGlass(_) => DeskActKind::EndBreakGlass,
        DeskBody::Freeze(freeze) if freeze.lockdown => DeskActKind::LiftLockdown,
        DeskBody::Freeze(_) => DeskActKind::LiftFreeze,
        DeskBody::Delegation(_) => DeskActKind::TakeBack,
        DeskBody::Revocation(_) => DeskActKind::LiftRevocation,
    }
}

/// The caller in their own right.
fn own(context: &Context, caller: &VerifiedCaller) -> Capacity {
    let groups = reviewer::groups_of(context, caller);
    Capacity {
        external_of: None,
        stands_for: None,
        claimed: reviewer::only_claimed(context, caller, &groups),
        groups,
        groups_as_of: caller.actor.groups_as_of(),
        authenticated_at: caller.actor.authenticated_at(),
    }
}

fn unmoved(error: &DeskError) -> Refusal {
    Refusal::new(ErrorCode::ValidationError, error.to_string())
}
