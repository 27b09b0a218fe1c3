//! Who takes part in the demo: the agent that calls, the people who decide; and how their requests are sent.
//!
//! Owns the form of a request and the check of its answer. Does not know the story.

use placet_api::problem::ProblemDocument;
use placet_approvals::views::{ApprovalDetail, ApprovalView};
use placet_types::{digest::Digest, error::ErrorCode, principal::PrincipalKind};
use serde_json::{Value, json};

use super::Stage;
use crate::{
    client::{Client, Reply},
    development::DEV_AGENT,
    failure::Failure,
};

/// A call that waits for people.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    /// The call.
    pub(crate) call_id: String,
    /// The approval.
    pub(crate) approval_id: String,
}

/// A call of the agent; equal values are the same call.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) tool: &'static str,
    pub(crate) args: Value,
    pub(crate) step: &'static str,
    /// The mode that the planner believes it has.
    pub(crate) mode: &'static str,
}

impl Asked {
    /// The same step with other arguments.
    pub(crate) fn with(&self, args: Value) -> Self {
        Self { args, ..self.clone() }
    }

    /// The body of the request.
    pub(crate) fn body(&self, wait_ms: u64) -> Value {
        json!({
            "tool": self.tool,
            "args": self.args,
            "step_id": self.step,
            "request_id": "demo",
            "approval_mode_requested": self.mode,
            "wait_ms": wait_ms,
            "run": { "run_id": "demo", "safety_mode": "destructive", "run_budget": {} },
        })
    }
}

impl Stage {
    /// The agent's client.
    pub(crate) fn agent(&self) -> Result<Client, String> {
        self.host.client(PrincipalKind::Agent, DEV_AGENT).map_err(said)
    }

    /// The client of the person who may approve and operate.
    pub(crate) fn ben(&self) -> Result<Client, String> {
        self.host.client(PrincipalKind::User, "ben").map_err(said)
    }

    /// The client of the agent's owner.
    pub(crate) fn ana(&self) -> Result<Client, String> {
        self.host.client(PrincipalKind::User, "ana").map_err(said)
    }

    /// The agent calls.
    pub(crate) async fn ask(&self, asked: &Asked) -> Result<Reply, String> {
        self.agent()?.post(&["v1", "calls"], &asked.body(0)).await.map_err(said)
    }

    /// The agent calls, and is held.
    pub(crate) async fn ask_and_be_held(&self, asked: &Asked) -> Result<Pending, String> {
        let reply = self.ask(asked).await?;
        let document: Value = reply.read().map_err(said)?;
        expect(reply.status.as_u16() == 202, || {
            format!("expected 202, got {}: {document}", reply.status.as_u16())
        })?;
        let text =
            |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Pending { call_id: text("tool_call_id"), approval_id: text("approval_id") })
    }

    /// Reads what the approver is shown.
    pub(crate) async fn look(&self, pending: &Pending) -> Result<ApprovalDetail, String> {
        self.ben()?.get(&["v1", "approvals", &pending.approval_id], &[]).await.map_err(said)
    }

    /// The approval as it is in the list.
    pub(crate) async fn listed(
        &self,
        pending: &Pending,
        state: &str,
    ) -> Result<ApprovalView, String> {
        let list: placet_api::documents::ApprovalList = self
            .ben()?
            .get(&["v1", "approvals"], &[("state", state), ("limit", "200")])
            .await
            .map_err(said)?;
        let found = list
            .approvals
            .into_iter()
            .find(|approval| approval.approval_id.as_str() == pending.approval_id);
        found.ok_or_else(|| format!("the approval is not {state}"))
    }
}

/// A person decides.
pub(crate) async fn decide(
    person: &Client,
    pending: &Pending,
    digest: Digest,
) -> Result<Reply, String> {
    let decision = json!({ "decision": "approve", "reason": "seen in the demo", "digest": digest });
    person
        .post(&["v1", "approvals", &pending.approval_id, "decisions"], &decision)
        .await
        .map_err(said)
}

/// The refusal with this code, or what came instead as an error.
pub(crate) fn refused(reply: &Reply, code: ErrorCode) -> Result<ProblemDocument, String> {
    let problem = reply
        .problem()
        .ok_or_else(|| format!("expected {code}, got status {}", reply.status.as_u16()))?;
    expect(problem.error_code == code, || {
        format!("expected {code}, got {}: {}", problem.error_code, problem.detail)
    })?;
    Ok(problem)
}

/// Turns a condition into a result.
pub(crate) fn expect(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// A failure as text.
pub(crate) fn said(failure: Failure) -> String {
    failure.to_string().replace('\n', ";")
}
