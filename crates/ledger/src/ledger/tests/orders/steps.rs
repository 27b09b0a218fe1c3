//! What people, nodes and time do, one step after the other, in random order.

use proptest::prelude::*;

use super::{CALLS, recount::PEOPLE};

/// One step.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// A node reads an approval again.
    Look(usize, usize),
    Vote(usize, usize, usize, Option<usize>, bool),
    Edit(usize, usize, usize, u32),
    /// An edit to other arguments, in their own name or a colleague's.
    Rewrite(usize, usize, usize, Option<usize>),
    Escalate(usize, usize),
    Expire(usize, usize),
    Void(usize, usize),
    /// An edit that would ask other external tenants.
    Redirect(usize, usize, usize),
    Reopen(usize, usize, u32),
    Redeem(usize, usize),
    /// A dispatch that names no approval.
    Sneak(usize, usize),
    /// What was sent had no effect, had one, or its outcome is unknown.
    Settle(usize, usize),
    /// A call under the standing grant.
    Use(usize),
    AgreeToGrant(usize, usize),
    EndGrant(usize),
    Wait(u32),
    Restart,
}

/// A step.
pub(super) fn step() -> impl Strategy<Value = Step> {
    let (node, call, who) = (|| 0..2_usize, || 0..CALLS, || 0..PEOPLE.len());
    let for_whom = || prop_oneof![3 => Just(None), 1 => who().prop_map(Some)];
    prop_oneof![
        4 => (node(), call()).prop_map(|(node, call)| Step::Look(node, call)),
        9 => (node(), call(), who(), for_whom(), prop::bool::weighted(0.85))
            .prop_map(|(node, call, who, for_whom, yes)| Step::Vote(node, call, who, for_whom, yes)),
        2 => (node(), call(), who(), 1..4_u32)
            .prop_map(|(node, call, who, quorum)| Step::Edit(node, call, who, quorum)),
        1 => (node(), call(), who(), for_whom())
            .prop_map(|(node, call, who, for_whom)| Step::Rewrite(node, call, who, for_whom)),
        2 => (node(), call()).prop_map(|(node, call)| Step::Escalate(node, call)),
        1 => (node(), call()).prop_map(|(node, call)| Step::Expire(node, call)),
        1 => (node(), call()).prop_map(|(node, call)| Step::Void(node, call)),
        1 => (node(), call(), who()).prop_map(|(node, call, who)| Step::Redirect(node, call, who)),
        1 => (node(), call(), 1..4_u32).prop_map(|(node, call, quorum)| Step::Reopen(node, call, quorum)),
        7 => (node(), call()).prop_map(|(node, call)| Step::Redeem(node, call)),
        2 => (node(), call()).prop_map(|(node, call)| Step::Sneak(node, call)),
        5 => (call(), 0..3_usize).prop_map(|(call, end)| Step::Settle(call, end)),
        4 => node().prop_map(Step::Use),
        2 => (node(), who()).prop_map(|(node, who)| Step::AgreeToGrant(node, who)),
        1 => node().prop_map(Step::EndGrant),
        2 => (0..12_u32).prop_map(|parts| Step::Wait(parts * 2_500)),
        1 => Just(Step::Restart),
    ]
}

/// The first steps: none, or the first call is approved and sent, after an escalation or with edited arguments.
pub(super) fn beginning(which: u32) -> Vec<Step> {
    let agrees = |who| Step::Vote(0, 0, who, None, true);
    match which {
        0 => vec![agrees(0), agrees(1), Step::Redeem(0, 0)],
        1 => {
            let asked = [Step::Wait(15_000), Step::Escalate(0, 0)];
            asked.into_iter().chain([agrees(1), agrees(3), Step::Redeem(0, 0)]).collect()
        }
        2 => vec![Step::Edit(0, 0, 0, 2), agrees(1), Step::Redeem(0, 0)],
        3 => {
            let written = [Step::Rewrite(0, 0, 0, None), agrees(0)];
            written
                .into_iter()
                .chain([agrees(1), agrees(2), agrees(3), Step::Redeem(0, 0)])
                .collect()
        }
        _ => Vec::new(),
    }
}
