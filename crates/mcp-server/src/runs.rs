//! The run of a request, and the ids that distinguish its calls.
//!
//! In the revisions with sessions, a session is a run. Without a session the client names the run (`io.placet/run`); if it does not, its
//! requests of one hour are a run, and those of one day a conversation, so that budgets and taint also hold for clients that know nothing
//! of either. Invariant: without a session the id of a JSON-RPC request does not identify a call, since every process of a client counts
//! from the start: such a call gets a key of its own, in a named run too.

use placet_identity::VerifiedCaller;
use placet_types::{
    clock::Timestamp,
    digest::{Digest, DigestBuilder},
    error::{ErrorCode, Refusal},
    ids::{RequestId, RunId, SessionId, StepId},
    mode::ApprovalMode,
    run_context::RunRequest,
};

use crate::meta::RunMeta;

const HOUR_MS: i64 = 60 * 60 * 1_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Where a request comes from.
#[derive(Debug, Clone)]
pub(crate) struct Origin<'a> {
    /// The session it came in.
    pub(crate) session: Option<&'a str>,
    /// The name that the client gives itself.
    pub(crate) client: Option<&'a str>,
    /// The id of the JSON-RPC request.
    pub(crate) request_id: String,
    pub(crate) now: Timestamp,
    /// Something that no other request has.
    pub(crate) fresh: String,
}

impl Origin<'_> {
    /// What identifies the call: in a session its request does.
    fn of_call(&self) -> Digest {
        match self.session {
            Some(session) => DigestBuilder::new("placet.mcp_request.v1")
                .field("session", session)
                .field("request", &self.request_id)
                .finish(),
            None => Digest::of(self.fresh.as_bytes()),
        }
    }
}

/// A run and the ids of one call in it.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) run: RunRequest,
    pub(crate) step_id: StepId,
    pub(crate) request_id: RequestId,
}

/// The run of a request. Where its client names no time for a tool, it is `tool_latency_ms_max`.
///
/// # Errors
/// A refusal where the ids cannot be formed.
pub(crate) fn placed(
    caller: &VerifiedCaller,
    said: RunMeta,
    origin: &Origin<'_>,
    tool_latency_ms_max: u64,
) -> Result<Placed, Refusal> {
    let is_known = origin.session.is_some() || said.id.is_some();
    let run_id = match (said.id, origin.session) {
        (Some(id), _) => id,
        (None, Some(session)) => run_of(caller, &["session", session])?,
        (None, None) => {
            let hour = (origin.now.as_ms() / HOUR_MS).to_string();
            run_of(caller, &["hour", origin.client.unwrap_or_default(), &hour])?
        }
    };
    let session_id = if is_known {
        None
    } else {
        let day = (origin.now.as_ms() / DAY_MS).to_string();
        let digest = digest_of(caller, &["day", origin.client.unwrap_or_default(), &day]);
        Some(id(SessionId::new(format!("mcp-{}", short(&digest))))?)
    };
    Ok(Placed {
        run: RunRequest {
            run_id,
            session_id,
            safety_mode: said.safety_mode,
            // Where a client says none, the agent's classes and the policies alone limit its calls.
            ceiling_if_new: Some(ApprovalMode::Destructive),
            tool_latency_ms_if_new: Some(tool_latency_ms_max),
            run_budget: said.budget,
            taint: said.taint,
        },
        step_id: id(StepId::new("mcp"))?,
        request_id: id(RequestId::new(format!("mcp-{}", short(&origin.of_call()))))?,
    })
}

fn run_of(caller: &VerifiedCaller, parts: &[&str]) -> Result<RunId, Refusal> {
    id(RunId::new(format!("mcp-{}", short(&digest_of(caller, parts)))))
}

/// Includes the caller: the same session id or client name of another caller is another run.
fn digest_of(caller: &VerifiedCaller, parts: &[&str]) -> Digest {
    let builder = caller.chain().digest_into(DigestBuilder::new("placet.mcp_run.v1"));
    builder.list("run", parts).finish()
}

fn short(digest: &Digest) -> String {
    digest.to_string().rsplit(':').next().unwrap_or_default().chars().take(32).collect()
}

fn id<T, E: std::fmt::Display>(made: Result<T, E>) -> Result<T, Refusal> {
    made.map_err(|error| {
        Refusal::new(ErrorCode::Internal, "an id cannot be formed").with_detail(error)
    })
}

#[cfg(test)]
mod tests {
    use placet_types::{clock::Timestamp, digest::Digest};

    use super::Origin;

    /// What identifies the request with the id 1.
    fn of(session: Option<&str>, fresh: &str) -> Digest {
        let now = Timestamp::from_ms(0);
        Origin { session, client: None, request_id: "1".to_owned(), now, fresh: fresh.to_owned() }
            .of_call()
    }

    #[test]
    fn the_id_of_a_request_identifies_its_call_in_its_session_only() {
        assert_eq!(of(Some("a"), "x"), of(Some("a"), "y"));
        assert_ne!(of(Some("a"), "x"), of(Some("b"), "x"));
        assert_ne!(of(None, "x"), of(None, "y"));
    }
}
