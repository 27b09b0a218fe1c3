//! An answer that is late for its arm: the outcome was unknown, two operators had the call sent again, and then the first
//! attempt answers (F7).
//!
//! Owns that the operators are separate people, and that their requests are in the history. Invariant: the answer belongs to
//! the first attempt alone, since the second one has another token and no answer.

use bytes::Bytes;
use serde_json::json;
use tokio::time::{Duration, Instant, sleep};

use super::{
    Load,
    call::{Call, Sending},
    finale,
};
use crate::{
    history::{
        What,
        fault::FaultKind,
        people::{Act, OperatorAct},
        probe::RecordRow,
        request::{Answer, Why},
    },
    people::OPERATORS,
    scene::Scene,
    seeded::Chance,
    setup::LATENCY_MS,
    witness::control::Manner,
};

/// How much later than its deadline the first attempt answers, in milliseconds.
const LATER_MS: u64 = 2_500;
/// How often to look for its record.
const TRIES: usize = 20;

/// Makes a call whose first attempt answers while its second one is unknown.
pub(super) async fn late_for_another_arm(
    load: &Load,
    client: u32,
    node: usize,
    chance: &mut Chance,
) {
    let (scene, call) = (&load.scene, load.fresh(Some("push"), client, chance));
    let late = Manner::Late { ms: LATENCY_MS.saturating_add(LATER_MS) };
    if scene.world.arm(&call.args.item, late).await.is_err() {
        return;
    }
    let began = Instant::now();
    let first = call.send(scene, &Sending::new(Why::New, node)).await;
    // One more arm, or two: an answer for the arm before the last may count, one for an earlier arm does not.
    let arms = if chance.permille(500) { 1 } else { 2 };
    if first.is_ok_and(|reply| reply.answer == Answer::Unknown)
        && sent_again(scene, &call, node, arms).await
    {
        let answers = Duration::from_millis(LATENCY_MS.saturating_add(LATER_MS));
        let was_before = began.elapsed() < answers;
        sleep(answers.saturating_sub(began.elapsed())).await;
        sleep(Duration::from_millis(200)).await;
        if was_before {
            let detail = format!("an answer came when the call had been sent {arms} times again");
            scene.injected(FaultKind::F7, Some(node), detail);
        }
    }
    load.until_definite(&call, Sending::new(call.why_again(scene), node), chance).await;
}

/// Has it sent again `arms` times, each time with an effect that nobody learns of.
async fn sent_again(scene: &Scene, call: &Call, node: usize, arms: usize) -> bool {
    for _ in 0..arms {
        let lost = Manner::FailAfterEffect { status: 500 };
        let armed = scene.world.arm(&call.args.item, lost).await;
        if armed.is_err() || !rearm(scene, call, node).await {
            return false;
        }
    }
    true
}

/// Two operators have it sent again; returns whether both requests were accepted.
async fn rearm(scene: &Scene, call: &Call, node: usize) -> bool {
    let Some(record) = unknown(scene, call, node).await else { return false };
    let mut agreed = 0_usize;
    for operator in OPERATORS {
        let Ok(bearer) = scene.people.bearer(&call.tenant, operator) else { return false };
        let body = json!({ "evidence": "twice does no harm here" });
        let path = format!("/v1/ledger/{}/rearm", record.record_id);
        let answer = scene.api.post(node, &path, bearer, Bytes::from(body.to_string())).await;
        let status = answer.ok().map(|answer| answer.status);
        scene.recorder.record(What::Operator(OperatorAct {
            record_id: record.record_id.clone(),
            tenant: call.tenant.clone(),
            operator: operator.to_owned(),
            act: Act::Rearm,
            status,
        }));
        agreed = agreed.saturating_add(usize::from(status.is_some_and(|status| status < 300)));
    }
    agreed == OPERATORS.len()
}

/// Its record, once its outcome is unknown.
async fn unknown(scene: &Scene, call: &Call, node: usize) -> Option<RecordRow> {
    let call_id = call.call_id()?;
    for _ in 0..TRIES {
        let unknown = finale::records(scene, &call.tenant, node, Some("indeterminate")).await;
        let own = unknown.unwrap_or_default().into_iter().find(|row| row.call_id == call_id);
        if own.is_some() {
            return own;
        }
        sleep(Duration::from_millis(30)).await;
    }
    None
}
