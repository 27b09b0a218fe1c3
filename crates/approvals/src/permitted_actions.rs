//! What somebody may do with an entry of the approval service now.
//!
//! Owns the look ahead: Cedar's answer to each deed that the state of the entry allows. Binding is only the answer when it is done.

use placet_identity::VerifiedCaller;
use placet_ledger::directive::{Directive, DirectiveNote, DirectiveState};
use placet_policy::{manage::DirectiveActKind, review::ReviewAction};
use placet_types::directive::DirectiveBody;

use crate::{
    entry_access::{self, ending_of},
    reviewer,
    service::Approvals,
    views::EntryStanding,
};

/// What the caller may do with an entry.
pub(crate) fn of(service: &Approvals, caller: &VerifiedCaller, entry: &Directive) -> EntryStanding {
    let now = service.ledger.store().now();
    let is_over = now >= entry.expires_at;
    let may = |act| entry_access::may(service, caller, act, entry).is_ok();
    let open = matches!(entry.state, DirectiveState::Proposed | DirectiveState::Active) && !is_over;
    let note =
        DirectiveNote { by: caller.actor.principal().id.clone(), at: now, text: String::new() };
    EntryStanding {
        may_agree: !is_over && decides(service, caller, entry, ReviewAction::Approve),
        may_refuse: !is_over && decides(service, caller, entry, ReviewAction::Deny),
        may_end: open && may(ending_of(&entry.body)),
        may_review: entry.reviewed(note).is_ok() && may(DirectiveActKind::ReviewBreakGlass),
    }
}

fn decides(
    service: &Approvals,
    caller: &VerifiedCaller,
    entry: &Directive,
    action: ReviewAction,
) -> bool {
    let voice = entry_access::deciders(entry).contains(&caller.actor.principal().id);
    if entry.state != DirectiveState::Proposed || voice {
        return false;
    }
    match &entry.body {
        DirectiveBody::Grant(grant) => {
            reviewer::is_person(caller)
                && reviewer::capacity_for_grant(service, caller, entry, grant, action).is_ok()
        }
        DirectiveBody::BreakGlass(_) => {
            entry_access::may(service, caller, DirectiveActKind::ConfirmBreakGlass, entry).is_ok()
        }
        DirectiveBody::Freeze(_) | DirectiveBody::Delegation(_) | DirectiveBody::Revocation(_) => {
            false
        }
    }
}
