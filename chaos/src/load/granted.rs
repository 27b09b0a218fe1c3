//! A standing grant: an approver looks at a held call and has another one grant a few uses to calls like it; then more such calls come than
//! there are uses, all at once, some of them twice, and sometimes while the grant is being ended (F14).
//!
//! Owns requesting the grant and the calls. The checker verifies that no more of them run than was approved.

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Duration;

use super::{
    AtOnce, Load,
    call::{Call, Sending},
};
use crate::{
    history::{What, fault::FaultKind, people::GrantAsked, request::Why},
    people::APPROVERS,
    scene::Scene,
    seeded::Chance,
};

/// How long a grant lasts: longer than its calls take, and it ends before the round does.
const LASTS_MS: u64 = 6_000;

/// Makes a held call, has calls like it granted, and makes more of these than the grant has uses.
pub(super) async fn more_calls_than_uses(
    load: &Load,
    client: u32,
    node: usize,
    chance: &mut Chance,
) {
    let (scene, held) = (&load.scene, load.fresh(Some("erase"), client, chance));
    load.until_definite(&held, Sending::new(Why::New, node), chance).await;
    let uses_max = u32::try_from(chance.within(1..4)).unwrap_or(1);
    let approver = chance.pick(&APPROVERS).copied().unwrap_or("ben");
    let Some(grant) = ask(scene, &held, approver, uses_max, node).await else { return };
    let calls = chance.within(2..7).saturating_add(u64::from(uses_max));
    let mut sent = AtOnce::new(scene);
    for number in 0..calls {
        let copies = chance.within(1..3);
        sent.send_copies(&load.alike(&held, number), copies, chance);
    }
    if chance.permille(300) {
        tokio::time::sleep(Duration::from_millis(chance.within(0..60))).await;
        end(scene, &held, &grant, approver, chance.index(scene.api.len())).await;
    }
    if sent.answers().await.len() > usize::try_from(uses_max).unwrap_or(usize::MAX) {
        let detail = format!("{calls} calls at once under a grant of {uses_max} uses");
        scene.injected(FaultKind::F14, Some(node), detail);
    }
}

/// Requests a grant for calls like a held one, by the digest of what is shown of it; returns its id, if it was granted.
async fn ask(
    scene: &Scene,
    held: &Call,
    approver: &str,
    uses_max: u32,
    node: usize,
) -> Option<String> {
    let approval_id = held.approval()?;
    let bearer = scene.people.bearer(&held.tenant, approver).ok()?;
    let path = format!("/v1/approvals/{approval_id}");
    let shown = scene.api.get(node, &path, bearer).await.ok()?.json();
    let digest = shown.pointer("/approval/digest")?.as_str()?;
    let anything = json!({ "any": "value" });
    let pattern = json!({
        "/item": { "starts_with": held.args.item },
        "/n": anything, "/list": anything, "/options": anything,
    });
    let body = json!({
        "arrange": {
            "kind": "grant", "approval_id": approval_id, "uses_max": uses_max, "digest": digest,
            "pattern": pattern,
        },
        "reason": "chaos", "lasts_ms": LASTS_MS,
    });
    scene.recorder.record(What::GrantAsked(GrantAsked {
        approval_id,
        tenant: held.tenant.clone(),
        approver: approver.to_owned(),
        uses_max,
    }));
    let answer =
        scene.api.post(node, "/v1/directives", bearer, Bytes::from(body.to_string())).await;
    let document = answer.ok()?.json();
    let grant = document.get("directive_id").and_then(Value::as_str)?.to_owned();
    if document.get("in_force") == Some(&json!(false)) {
        // It covers more than the call, so its proposer does not approve it by proposing.
        let other = APPROVERS.iter().copied().find(|other| *other != approver)?;
        let bearer = scene.people.bearer(&held.tenant, other).ok()?;
        let (digest, path) = (document.get("digest")?, format!("/v1/directives/{grant}/acts"));
        let body =
            json!({ "act": "decide", "decision": "approve", "reason": "chaos", "digest": digest });
        drop(scene.api.post(node, &path, bearer, Bytes::from(body.to_string())).await);
    }
    Some(grant)
}

/// Ends it early. The checker sees whether that was in time for anything.
async fn end(scene: &Scene, held: &Call, grant: &str, approver: &str, node: usize) {
    let Ok(bearer) = scene.people.bearer(&held.tenant, approver) else { return };
    let body = json!({ "act": "end", "reason": "enough" }).to_string();
    let path = format!("/v1/directives/{grant}/acts");
    drop(scene.api.post(node, &path, bearer, Bytes::from(body)).await);
}
