//! Calls during which the upstream misbehaves: F7, F8, F19 and F24, and the cause of F16.
//!
//! Owns which manner goes with which fault, and that a manner counts only when the witness confirms it.

use tokio::time::{Duration, sleep};

use super::{Doing, Load, call::Sending};
use crate::{
    history::{fault::FaultKind, request::Why},
    seeded::Chance,
    witness::control::Manner,
};

/// Makes one call during which the upstream misbehaves, and sends it again.
pub(crate) async fn misbehave(
    load: &Load,
    doing: Doing,
    client: u32,
    node: usize,
    chance: &mut Chance,
) {
    let (manner, tool) = manner_of(doing, chance);
    let call = load.fresh(Some(tool), client, chance);
    let world = &load.scene.world;
    let restarts = world.restarts();
    if world.arm(&call.args.item, manner).await.is_err() {
        return;
    }
    load.until_definite(&call, Sending::new(Why::New, node), chance).await;
    if doing == Doing::UpstreamEnds {
        // What it remembered ended with it.
        for _ in 0..40 {
            if world.restarts() > restarts {
                // No node is at fault, so this excuses no request that hangs at one.
                let detail = format!("the upstream ended: {manner:?}");
                load.scene.injected(FaultKind::F8, None, detail);
                break;
            }
            sleep(Duration::from_millis(25)).await;
        }
    } else if doing != Doing::Delayed
        // A late effect is F16 only if somebody probed for it before: the witness's log shows it.
        && world.has_fired(&call.args.item).await.unwrap_or(false)
    {
        let kind = doing.fault().unwrap_or(FaultKind::F7);
        load.scene.injected(kind, Some(node), format!("{manner:?} at `{tool}`"));
    }
    if chance.permille(500) {
        load.until_definite(&call, Sending::new(call.why_again(&load.scene), node), chance).await;
    }
}

fn manner_of(doing: Doing, chance: &mut Chance) -> (Manner, &'static str) {
    let writing = chance.pick(&["put", "post", "push"]).copied().unwrap_or("put");
    match doing {
        Doing::UpstreamEnds => {
            let manner = if chance.permille(600) { Manner::Exit } else { Manner::ExitBefore };
            (manner, writing)
        }
        // So late that somebody may probe before, and so early that «not found» does not count yet.
        Doing::Delayed => (Manner::DelayedEffect { ms: chance.within(20..1_900) }, "post"),
        Doing::Declined => (Manner::RefuseAfterEffect, writing),
        Doing::Result => {
            let manner = if chance.permille(500) {
                Manner::Huge { bytes: chance.within(20_000..3_000_000) }
            } else {
                Manner::Leak
            };
            (manner, writing)
        }
        Doing::Call
        | Doing::Copies
        | Doing::Again
        | Doing::Changed
        | Doing::Somebody
        | Doing::Leave
        | Doing::Held
        | Doing::Granted
        | Doing::Rearmed
        | Doing::Upstream => {
            let ms = chance.within(20..400);
            let all = [
                Manner::Slow { ms },
                Manner::HangThen { ms: 2_500 },
                Manner::Hang { ms: 2_500 },
                Manner::ResetAfter { bytes: chance.within(0..200) },
                Manner::FailAfterEffect { status: 500 },
                Manner::FailAfterEffect { status: 503 },
                Manner::Truncated,
                Manner::Twice,
                Manner::Late { ms: 2_200 },
                Manner::RefuseBefore,
                Manner::Error,
            ];
            (chance.pick(&all).copied().unwrap_or(Manner::Truncated), writing)
        }
    }
}
