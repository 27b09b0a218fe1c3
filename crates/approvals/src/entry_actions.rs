//! Acting on an arrangement: agreeing to it or not, ending it, reviewing it afterwards.
//!
//! Owns the way from an act to a transition of the entry. Cedar decides who may; the ledger, what an entry may become.

use std::{sync::Arc, time::Duration};

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::VoteError,
    directive::{Directive, DirectiveError, DirectiveNote},
};
use placet_policy::manage::DirectiveActKind;
use placet_types::{
    approval::VoteChoice,
    digest::Digest,
    error::{ErrorCode, Refusal},
    ids::DirectiveId,
};

use crate::{
    decision::{self, action_of, noted},
    entries::{self, allowed, ending_of},
    entry_draft,
    refusals::{crowded, not_counted},
    service::Approvals,
    views::{DirectiveAct, DirectiveView},
};

/// How often an act is tried again when another act, or a use of the grant, was faster.
const TRIES: u32 = 24;
/// How much longer each further attempt waits.
const PAUSE: Duration = Duration::from_millis(4);

impl Approvals {
    /// Decides on an entry, ends it, or reviews it afterwards.
    ///
    /// # Errors
    /// [`Refusal`] when policy does not permit it, or the entry has no such transition.
    pub async fn act(
        self: &Arc<Self>,
        caller: &VerifiedCaller,
        directive_id: &DirectiveId,
        act: DirectiveAct,
    ) -> Result<DirectiveView, Refusal> {
        let (text, pointer) = match &act {
            DirectiveAct::Decide { reason, .. } | DirectiveAct::End { reason } => {
                (reason, "/reason")
            }
            DirectiveAct::Review { note } => (note, "/note"),
        };
        decision::may_decide_at_all(self, caller, text, pointer).await?;
        for tried in 0..TRIES {
            // A busy grant changes its revision all the time; waiting a little longer each time gets the act through.
            tokio::time::sleep(PAUSE.saturating_mul(tried.min(8))).await;
            let entry = entries::visible(self, caller, directive_id).await?;
            let (next, what) = moved(self, caller, &entry, &act).await?;
            let kept = entry_draft::keep(self, caller, &next, &what).await;
            if self.written(kept)?.is_some() {
                self.arranged(next.clone()).await;
                return Ok(entries::view_of(self, caller, &next));
            }
        }
        Err(crowded())
    }
}

/// The entry after the act, and the audit event for it.
async fn moved(
    service: &Approvals,
    caller: &VerifiedCaller,
    entry: &Directive,
    act: &DirectiveAct,
) -> Result<(Directive, String), Refusal> {
    let now = service.ledger.store().now();
    let by = caller.actor.principal().id.clone();
    match act {
        DirectiveAct::Decide { decision, reason, digest } => {
            decided(service, caller, entry, *decision, reason, *digest).await
        }
        DirectiveAct::End { reason } => {
            allowed(service, caller, ending_of(&entry.body), entry).await?;
            let next = entry.ended(DirectiveNote { by, at: now, text: reason.clone() });
            Ok((next.map_err(|error| unmoved(&error))?, "ended".to_owned()))
        }
        DirectiveAct::Review { note } => {
            // First, so that a refused attempt is in the audit.
            allowed(service, caller, DirectiveActKind::ReviewBreakGlass, entry).await?;
            let next = entry.reviewed(DirectiveNote { by, at: now, text: note.clone() });
            let next = next.map_err(|error| unmoved(&error))?;
            Ok((next, "reviewed".to_owned()))
        }
    }
}

async fn decided(
    service: &Approvals,
    caller: &VerifiedCaller,
    entry: &Directive,
    decision: VoteChoice,
    reason: &str,
    shown: Digest,
) -> Result<(Directive, String), Refusal> {
    let now = service.ledger.store().now();
    let person = &caller.actor.principal().id;
    if entries::deciders(entry).contains(person) {
        return Err(not_counted(&VoteError::Twice));
    }
    let capacity = match entries::capacity_on(service, caller, entry, action_of(decision)) {
        Some(Ok(capacity)) => capacity,
        Some(Err((act, refusal))) => {
            return Err(entries::refused(service, caller, entry, act, &refusal).await);
        }
        None => return Err(unmoved(&DirectiveError::Over(entry.state.name()))),
    };
    let vote = service.vote_of(caller, &capacity, decision, reason, shown);
    let noted = noted(&vote);
    let next = entry.cast(vote, now).map_err(|error| not_counted(&error))?;
    Ok((next, noted))
}

fn unmoved(error: &DirectiveError) -> Refusal {
    Refusal::new(ErrorCode::ValidationError, error.to_string())
}
