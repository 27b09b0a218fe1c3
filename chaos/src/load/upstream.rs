//! Calls during which the upstream misbehaves: F7, F8, F19 and F24, and the cause of F16.
//!
//! Owns which manner goes with which fault, and that a manner counts only when the witness confirms it.

use placet_chaos::{
    history::{fault::FaultKind, request::Why},
    witness::control::Manner,
};
use tokio::time::{Duration, sleep};

use super::{Doing, Load, call::Sending};
use crate::seeded::Chance;

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
    let before = (world.counts().await.unwrap_or_default(), world.restarts());
    if world.arm(&call.args.item, manner).await.is_err() {
        return;
    }
    load.until_definite(&call, Sending::new(Why::New, node), chance).await;
    if doing == Doing::UpstreamEnds {
        // Its count ended with it.
        for _ in 0..40 {
            if world.restarts() > before.1 {
                // No node is at fault, so this excuses no request that hangs at one.
                let detail = format!("the upstream ended: {}", manner.name());
                load.scene.injected(FaultKind::F8, None, detail);
                break;
            }
            sleep(Duration::from_millis(25)).await;
        }
    } else if let Ok(after) = world.counts().await {
        let fired = |said: &placet_chaos::witness::control::Said| {
            said.fired.get(manner.name()).copied().unwrap_or(0)
        };
        if fired(&after) > fired(&before.0) {
            // A late effect is F16 only if somebody probed for it before: the witness's log shows it.
            if doing != Doing::Delayed {
                let kind = doing.fault().unwrap_or(FaultKind::F7);
                load.scene.injected(kind, Some(node), format!("{} at `{tool}`", manner.name()));
            }
        }
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
