//! What people do about a held call: approve, deny, race, vote twice, come late, or vote on their own request (F14).
//!
//! Owns the deciding as an approver does it: look first, then decide on the digest of what was shown.

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::call::{Call, Sending};
use crate::{
    history::{
        What,
        fault::FaultKind,
        people::{VoteReply, VoteSent},
        request::{Answer, Why},
    },
    people::{APPROVERS, OWNER},
    scene::Scene,
    seeded::Chance,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Approve,
    Deny,
    /// One agrees and one refuses at the same time.
    Race,
    /// The same one agrees twice, and another one too.
    Twice,
    /// The agent's owner tries first.
    Requester,
    /// One agrees, and then the call comes with other arguments.
    ChangedAfter,
    /// One approves when it should have expired.
    Late,
    Nothing,
}

impl Manner {
    pub(crate) fn draw(chance: &mut Chance) -> Self {
        const ALL: [Manner; 12] = [
            Manner::Approve,
            Manner::Approve,
            Manner::Approve,
            Manner::Deny,
            Manner::Race,
            Manner::Race,
            Manner::Twice,
            Manner::Requester,
            Manner::ChangedAfter,
            Manner::Late,
            Manner::Late,
            Manner::Nothing,
        ];
        chance.pick(&ALL).copied().unwrap_or(Manner::Approve)
    }
}

/// Does it, and collects the result as the caller.
pub(crate) async fn decide(scene: &Scene, call: &Call, node: usize, chance: &mut Chance) {
    let Some(approval) = call.approval() else { return };
    let manner = Manner::draw(chance);
    let first = chance.index(APPROVERS.len());
    let name = |offset: usize| {
        let mut everybody = APPROVERS.iter().cycle();
        everybody.nth(first.saturating_add(offset)).copied().unwrap_or(OWNER)
    };
    let (one, other) = (name(0), name(1));
    let vote = |person, approve| vote(scene, call, &approval, person, approve, node);
    let done = match manner {
        Manner::Nothing => return,
        Manner::Approve | Manner::Deny => {
            vote(one, manner == Manner::Approve).await;
            None
        }
        Manner::Race => {
            let both = tokio::join!(vote(one, true), vote(other, false));
            both.0.and(both.1).map(|_| "approved and denied at the same time")
        }
        Manner::Twice => {
            let first = vote(one, true).await;
            let both = tokio::join!(vote(one, true), vote(other, true));
            first.and(both.0).and(both.1).map(|_| "approved twice")
        }
        Manner::Requester => {
            let own = vote(OWNER, true).await;
            if own == Some(200) {
                scene.find(format!(
                    "`{OWNER}` approved `{approval}`, a call of an agent of their own"
                ));
            }
            vote(one, true).await;
            own.map(|_| "the requester's owner approved")
        }
        Manner::ChangedAfter => {
            let agreed = vote(one, true).await;
            let mut sending = Sending::new(Why::ChangedArgs, node);
            sending.args = Some(call.args.changed(chance));
            let changed = call.send(scene, &sending).await;
            (agreed.is_some() && changed.is_ok()).then_some("arguments changed after the approval")
        }
        Manner::Late => {
            sleep(Duration::from_millis(chance.within(2_500..3_500))).await;
            vote(one, true).await.map(|_| "approved late")
        }
    };
    if let Some(what) = done {
        scene.injected(FaultKind::F14, None, what);
    }
    let polled = call.poll(scene, node, 1_500).await;
    let is_open = !matches!(polled, Ok(reply) if reply.answer != Answer::Pending);
    if is_open {
        // Whatever came of it, the caller asks again with its key.
        let again = Sending::new(Why::InFlight, node);
        drop(call.send(scene, &again).await);
    }
}

/// One vote; the status of the answer.
pub(super) async fn vote(
    scene: &Scene,
    call: &Call,
    approval: &str,
    person: &str,
    approve: bool,
    node: usize,
) -> Option<u16> {
    let bearer = scene.people.bearer(&call.tenant, person).ok()?;
    let shown = scene.api.get(node, &format!("/v1/approvals/{approval}"), bearer).await.ok()?;
    let document = shown.json();
    let digest = document.pointer("/approval/digest").and_then(Value::as_str);
    // Not shown to this person: tried all the same, with a digest that fits nothing.
    let digest = digest.map_or_else(|| format!("sha256:{}", "0".repeat(64)), str::to_owned);
    let number = scene.next_vote();
    scene.recorder.record(What::VoteSent(VoteSent {
        vote: number,
        approval_id: approval.to_owned(),
        tenant: call.tenant.clone(),
        approver: person.to_owned(),
        approve,
    }));
    let decision = if approve { "approve" } else { "deny" };
    let body = json!({ "decision": decision, "reason": "chaos", "digest": digest });
    let path = format!("/v1/approvals/{approval}/decisions");
    let answer = scene.api.post(node, &path, bearer, Bytes::from(body.to_string())).await.ok()?;
    let document = answer.json();
    scene.recorder.record(What::VoteReply(VoteReply {
        vote: number,
        status: answer.status,
        state: document.get("state").and_then(Value::as_str).map(str::to_owned),
    }));
    Some(answer.status)
}
