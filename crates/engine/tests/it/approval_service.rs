//! The approval service: who decides on what, in which order, with which effect; each on a real engine with real policies.

mod arranged;
mod chains;
mod edits;
mod external;
mod grants;
mod inbox;
mod lapsing;
mod nodes;
mod overtaken;
mod rearmed;
mod redecided;
mod restarts;
mod revocations;
mod timeline;
mod votes;
mod weight;

use std::time::Duration;

use serde_json::{Value, json};

use placet_approvals::views::{
    ApprovalDetail, ApprovalView, Arrangement, DirectiveAct, DirectiveRequest, DirectiveView,
    EditRequest,
};
use placet_engine::answer::{Answer, Held};
use placet_policy::bundle::{BundleSource, PolicyFile};
use placet_types::{approval::VoteChoice, error::Refusal, ids::DirectiveId};

use crate::world::{Make, World, bundle, plan};

/// The shipped policies and a gate of one tool.
fn gated(tool: &str, annotations: &str, condition: &str) -> BundleSource {
    let mut source = bundle();
    let text = format!(
        "@id(\"gate-{tool}\") @approval(\"custom\") {annotations} @reason(\"People look at {tool}.\")\n\
         forbid (principal, action == Placet::Action::\"fake/{tool}\", resource is Placet::Tool)\n\
         unless {{ context.req has approval && !context.req.approval.denied &&\n\
           context.req.approval.request_digest == context.req.evidence.request_digest &&\n\
           context.req.now < context.req.approval.expires_at && {condition} }};\n"
    );
    source.files.push(PolicyFile { name: format!("99-{tool}.cedar"), text });
    source
}

/// A condition: so many people of the group.
fn of(group: &str, people: u32) -> String {
    format!(
        "(context.req.approval.hasTag(\"{group}\") && context.req.approval.getTag(\"{group}\") >= {people})"
    )
}

fn two_groups() -> BundleSource {
    gated(
        "send",
        "@approver_group(\"approvers, finance\") @quorum(\"2\") @deny_threshold(\"2\") @expires(\"24h\")",
        &format!(
            "context.req.approval.total >= 2 && {} && {}",
            of("approvers", 1),
            of("finance", 1)
        ),
    )
}

fn silent() -> BundleSource {
    gated(
        "send",
        "@approver_group(\"finance\") @quorum(\"1\") @expires(\"24h\") @escalate(\"2h: directors\")",
        &format!(
            "context.req.approval.total >= 1 && ({} || {})",
            of("finance", 1),
            of("directors", 1)
        ),
    )
}

async fn world(bundle: BundleSource) -> World {
    World::with(Make { bundle, ..Make::default() }).await
}

impl World {
    pub(crate) async fn seen(&self, person: &str, held: &Held) -> ApprovalDetail {
        self.engine
            .approvals()
            .approval(&self.person(person).await, &held.approval_id)
            .await
            .unwrap()
    }

    async fn edit(&self, person: &str, held: &Held, args: Value) -> Result<ApprovalView, Refusal> {
        let caller = self.person(person).await;
        let detail = self.engine.approvals().approval(&caller, &held.approval_id).await?;
        let args = args.as_object().unwrap().clone();
        let reason = "less is enough".to_owned();
        let request = EditRequest { args, reason, digest: detail.approval.digest };
        self.engine.approvals().edit(&caller, &held.approval_id, request).await
    }

    pub(crate) async fn arrange(
        &self,
        person: &str,
        arrange: Value,
        lasts_ms: u64,
    ) -> Result<DirectiveView, Refusal> {
        let arrange: Arrangement = serde_json::from_value(arrange).unwrap();
        let reason = "needed".to_owned();
        let request = DirectiveRequest { arrange, reason, starts_at: None, lasts_ms };
        self.engine.approvals().arrange(&self.person(person).await, request).await
    }

    async fn act(
        &self,
        person: &str,
        id: &DirectiveId,
        act: DirectiveAct,
    ) -> Result<DirectiveView, Refusal> {
        self.engine.approvals().act(&self.person(person).await, id, act).await
    }

    async fn agree(&self, person: &str, entry: &DirectiveView) -> Result<DirectiveView, Refusal> {
        let (reason, digest) = ("looked at it".to_owned(), entry.digest);
        let decision = VoteChoice::Approve;
        self.act(person, &entry.directive_id, DirectiveAct::Decide { decision, reason, digest })
            .await
    }

    pub(crate) async fn end(
        &self,
        person: &str,
        entry: &DirectiveView,
    ) -> Result<DirectiveView, Refusal> {
        self.act(person, &entry.directive_id, DirectiveAct::End { reason: "over".to_owned() }).await
    }

    /// A standing grant for calls like the one that is held.
    async fn grant(
        &self,
        person: &str,
        held: &Held,
        uses_max: u32,
    ) -> Result<DirectiveView, Refusal> {
        let digest = self.seen(person, held).await.approval.digest;
        let wanted = json!({
            "kind": "grant", "approval_id": held.approval_id, "uses_max": uses_max, "digest": digest
        });
        self.arrange(person, wanted, 3_600_000).await
    }

    /// Waits until so many calls of a tool were sent.
    async fn sent(&self, tool: &str, count: usize) {
        for _ in 0..400 {
            if self.witness.effects(tool).len() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never sent: {tool}");
    }

    /// Waits until the approval is in this state.
    async fn stands(&self, held: &Held, state: &str) -> ApprovalView {
        for _ in 0..400 {
            let found = self.seen("eve", held).await.approval;
            if found.state == state {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("never {state}: {:?}", self.seen("eve", held).await.approval);
    }

    /// Waits until people of the group are asked.
    async fn asks(&self, held: &Held, group: &str) {
        let group = group.parse().unwrap();
        for _ in 0..400 {
            if self.seen("eve", held).await.approval.requirement.groups.contains_key(&group) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never asked: {group}");
    }
}

/// A call of `send` with text and secret.
fn send(step: &str, what: &str) -> Value {
    plan("send", step, what)
}

/// Whether a call was let through at once.
fn ran(answer: &Answer) -> bool {
    matches!(answer, Answer::Finished(_))
}
