//! What somebody may do with an entry of the approval service now.
//!
//! Owns the look ahead: Cedar's answer to each deed that the state of the entry allows. Binding is only the answer when it is done.

use placet_identity::VerifiedCaller;
use placet_ledger::desk::{DeskEntry, DeskNote, DeskState};
use placet_policy::{manage::DeskActKind, review::ReviewAction};
use placet_types::desk::DeskBody;

use super::{acts, entries, reviewer};
use crate::{context::Context, views::desk::EntryStanding};

/// What the caller may do with an entry.
pub(crate) fn of(context: &Context, caller: &VerifiedCaller, entry: &DeskEntry) -> EntryStanding {
    let now = context.ledger.store().now();
    let is_over = now >= entry.expires_at;
    let may = |act| entries::may(context, caller, act, entry).is_ok();
    let open = matches!(entry.state, DeskState::Proposed | DeskState::Active) && !is_over;
    let note = DeskNote { by: caller.actor.principal().id.clone(), at: now, text: String::new() };
    EntryStanding {
        may_agree: !is_over && decides(context, caller, entry, ReviewAction::Approve),
        may_refuse: !is_over && decides(context, caller, entry, ReviewAction::Deny),
        may_end: open && may(acts::ending_of(&entry.body)),
        may_review: entry.reviewed(note).is_ok() && may(DeskActKind::ReviewBreakGlass),
    }
}

fn decides(
    context: &Context,
    caller: &VerifiedCaller,
    entry: &DeskEntry,
    action: ReviewAction,
) -> bool {
    let voice = entries::deciders(entry).contains(&caller.actor.principal().id);
    if entry.state != DeskState::Proposed || voice {
        return false;
    }
    match &entry.body {
        DeskBody::Grant(grant) => {
            reviewer::is_person(caller)
                && reviewer::capacity_for_grant(context, caller, entry, grant, action).is_ok()
        }
        DeskBody::BreakGlass(_) => {
            entries::may(context, caller, DeskActKind::ConfirmBreakGlass, entry).is_ok()
        }
        DeskBody::Freeze(_) | DeskBody::Delegation(_) | DeskBody::Revocation(_) => false,
    }
}
