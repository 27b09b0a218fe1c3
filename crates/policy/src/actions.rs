//! The Cedar actions of people: on an approval, and in the approval service.

/// The actions on an approval, as policies name them.
pub(crate) const REVIEWING: [&str; 5] = ["approve", "deny", "edit_args", "view", "withdraw"];
/// The actions in the approval service, as policies name them.
pub(crate) const MANAGING: [&str; 14] = [
    "declare_break_glass",
    "confirm_break_glass",
    "end_break_glass",
    "review_break_glass",
    "set_freeze",
    "lift_freeze",
    "set_lockdown",
    "lift_lockdown",
    "revoke_grant",
    "delegate_votes",
    "take_back",
    "revoke_credentials",
    "lift_revocation",
    "view_entry",
];
