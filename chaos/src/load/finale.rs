//! The end of a load: calls that people approve when the faults are over; every call once more, until its answer is definite; and
//! an operator who resolves unknown outcomes.
//!
//! Owns the last requests of a round. Invariants: bounded by the time in which everything has to be settled; the operator only states
//! what the witness has seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Duration, Instant, sleep},
};

use super::{
    Load,
    call::{Call, Sending, is_definite},
    votes,
};
use crate::{
    history::{
        What,
        fault::FaultKind,
        people::{Act, OperatorAct},
        probe::RecordRow,
        request::Why,
    },
    people::{APPROVERS, OPERATORS, TENANTS},
    scene::Scene,
    seeded::Chance,
    witness::{
        late,
        log::{self, Seen},
    },
};

/// Concurrent requests.
const AT_ONCE: usize = 16;
/// How long to wait for an approved call, in milliseconds: as long as an approval lasts.
const RUNS_MS: u64 = 3_500;
/// For how long each call is asked for at least, however long those before it took: a slow machine is no broken promise.
const ASKED_FOR: Duration = Duration::from_secs(15);
/// The longest time from a call to its effect at the upstream.
const LATEST: Duration = Duration::from_millis(2_500);
/// The most records that an operator looks after.
const RESOLVED_MAX: usize = 6;

/// Sends every call that was ever made once more. How many got no definite answer in time.
pub(crate) async fn ask_all(load: &Load, limit: Duration) -> usize {
    let until = Instant::now() + limit;
    let mut open = 0_usize;
    let mut asked = JoinSet::new();
    for (number, call) in load.calls().into_iter().enumerate() {
        if call.key.is_none() {
            continue;
        }
        if asked.len() >= AT_ONCE {
            open = open.saturating_add(tally(asked.join_next().await));
        }
        let scene = Arc::clone(&load.scene);
        let node = number.checked_rem(scene.api.len()).unwrap_or(0);
        asked.spawn(async move { ask(&scene, &call, node, until).await });
    }
    while let Some(ended) = asked.join_next().await {
        open = open.saturating_add(tally(Some(ended)));
    }
    open
}

fn tally(ended: Option<Result<bool, tokio::task::JoinError>>) -> usize {
    usize::from(!matches!(ended, None | Some(Ok(true))))
}

async fn ask(scene: &Scene, call: &Call, node: usize, until: Instant) -> bool {
    let until = until.max(Instant::now() + ASKED_FOR);
    let mut pause = 20;
    loop {
        let reply = call.send(scene, &Sending::new(Why::Final, node)).await;
        if reply.as_ref().is_ok_and(is_definite) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        sleep(Duration::from_millis(pause)).await;
        pause = pause.saturating_mul(2).min(400);
    }
}

/// Has a call of each node held and agreed to, and gives it the time to run: nobody asks for it again meanwhile.
pub(crate) async fn agree(load: &Load, chance: &mut Chance) {
    for node in 0..load.scene.api.len() {
        let call = load.fresh(Some("erase"), 0, chance);
        load.until_definite(&call, Sending::new(Why::New, node), chance).await;
        let Some(approval) = call.approval() else { continue };
        let approver = chance.pick(&APPROVERS).copied().unwrap_or("ben");
        votes::vote(&load.scene, &call, &approval, approver, true, node).await;
        drop(call.poll(&load.scene, node, RUNS_MS).await);
    }
}

/// Records how often the witness answered «not found» about a call that it had received and that took effect afterwards (F16).
pub(crate) fn count_not_found(scene: &Scene) {
    for tool in not_found(scene) {
        let detail = format!("«not found», and then the effect of `{tool}`");
        scene.injected(FaultKind::F16, None, detail);
    }
}

/// The tools of these calls.
pub(crate) fn not_found(scene: &Scene) -> Vec<String> {
    late::after_not_found(&log::read(&scene.world.log).unwrap_or_default())
}

/// All records of a tenant that a node lists, in a state or in any.
pub(crate) async fn records(
    scene: &Scene,
    tenant: &str,
    node: usize,
    state: Option<&str>,
) -> Option<Vec<RecordRow>> {
    let [operator, _] = OPERATORS;
    let bearer = scene.people.bearer(tenant, operator).ok()?;
    let filter = state.map(|state| format!("&state={state}")).unwrap_or_default();
    let path = format!("/v1/ledger?limit=200{filter}");
    let rows: Vec<RecordRow> = scene.api.list(node, &path, bearer, "records").await?;
    // One that moves on meanwhile is listed once more.
    let last: BTreeMap<_, _> = rows.into_iter().map(|row| (row.record_id.clone(), row)).collect();
    Some(last.into_values().collect())
}

/// An operator resolves some unknown outcomes, as the witness has seen them.
pub(crate) async fn operate(scene: &Scene, chance: &mut Chance) -> usize {
    let (mut resolved, mut has_waited) = (0_usize, false);
    for tenant in TENANTS {
        let node = chance.index(scene.api.len());
        let unknown = records(scene, tenant, node, Some("indeterminate")).await;
        // Read after the records: an effect of what is unknown now has happened by now or does not count.
        let mut happened = effects(scene);
        for record in unknown.unwrap_or_default() {
            if resolved >= RESOLVED_MAX {
                return resolved;
            }
            let Some(token) = &record.token else { continue };
            if !happened.contains(token) && !has_waited {
                // A call that came in before the quiet phase may still take effect, so nobody states yet that it did not happen.
                sleep(LATEST).await;
                happened = effects(scene);
                has_waited = true;
            }
            let act = if happened.contains(token) { Act::Happened } else { Act::DidNotHappen };
            resolve(scene, tenant, node, &record.record_id, act).await;
            resolved = resolved.saturating_add(1);
        }
    }
    resolved
}

/// The tokens of every effect so far.
fn effects(scene: &Scene) -> BTreeSet<String> {
    let lines = log::read(&scene.world.log).unwrap_or_default();
    let token = |line: &log::Line| {
        if let Seen::Effect { arrival, .. } = &line.what {
            Some(arrival.token.clone())
        } else {
            None
        }
    };
    lines.iter().filter_map(token).collect()
}

async fn resolve(scene: &Scene, tenant: &str, node: usize, record_id: &str, act: Act) {
    let [operator, _] = OPERATORS;
    let Ok(bearer) = scene.people.bearer(tenant, operator) else { return };
    let outcome = if act == Act::Happened { "happened" } else { "did_not_happen" };
    let body = json!({ "outcome": outcome, "evidence": "looked into the witness's log" });
    let path = format!("/v1/ledger/{record_id}/resolution");
    let answer = scene.api.post(node, &path, bearer, Bytes::from(body.to_string())).await;
    scene.recorder.record(What::Operator(OperatorAct {
        record_id: record_id.to_owned(),
        tenant: tenant.to_owned(),
        operator: operator.to_owned(),
        act,
        status: answer.ok().map(|answer| answer.status),
    }));
}
