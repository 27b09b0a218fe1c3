//! A live connection as an adapter.
//!
//! Owns the life of the connection and the course of one call through it. Does not connect (`connector`) and never retries.
//! Invariants: a call is sent at most once, and answers within its time. Its session exists before it is dispatched: its seat is a turn in
//! that session, and a call without one is not sent if the server keeps sessions.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use rmcp::model::{CallToolResult, ServerResult};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use placet_adapter::{
    adapter::{Adapter, Conditions, Dispatch, Inquiry, PrepareRequest, SessionLease, TraceHeaders},
    outcome::{AdapterError, Outcome, Probe, Rejection},
};
use placet_types::{
    argument_schema::ArgumentSchema,
    contract::{
        Capability, Contract, LiveTool, feature::Listing, file::LimitsFile,
        not_executed::ErrorAnswer,
    },
    ids::CapabilityName,
};

use crate::{
    answer::{self, Keeping},
    call::{self, Prepared, Request},
    failure::{self, Fault},
    features,
    http::headers::CallHeaders,
    link::{Link, Unanswered},
    listing,
    probe::{self, Plan},
    sessions::{Sessions, Turn},
};

/// A connection to one MCP server.
pub(crate) struct McpAdapter {
    link: Link,
    /// The callers' sessions; `None` if the server keeps none: then there is nothing that could be shared.
    sessions: Option<Arc<Sessions>>,
    limits: LimitsFile,
    contract: Option<Arc<Contract>>,
    output_schemas: BTreeMap<CapabilityName, ArgumentSchema>,
}

impl fmt::Debug for McpAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpAdapter")
            .field("adapter", &self.contract.as_ref().map(|contract| &contract.adapter))
            .field("alive", &self.link.is_alive())
            .finish_non_exhaustive()
    }
}

impl McpAdapter {
    pub(crate) fn under_contract(
        link: Link,
        sessions: Option<Arc<Sessions>>,
        contract: Arc<Contract>,
    ) -> Self {
        let output_schemas = contract
            .capabilities
            .iter()
            .filter_map(|(name, capability)| {
                // A tool with one that cannot be enforced is not callable.
                let schema = ArgumentSchema::compile(capability.output_schema.as_ref()?).ok()?;
                Some((name.clone(), schema))
            })
            .collect();
        let limits = contract.limits.clone();
        Self { link, sessions, limits, contract: Some(contract), output_schemas }
    }

    pub(crate) fn without_contract(link: Link, limits: LimitsFile) -> Self {
        let output_schemas = BTreeMap::new();
        Self { link, sessions: None, limits, contract: None, output_schemas }
    }

    /// The listing, unless it takes longer than a connection may take to come up.
    async fn in_time<T>(
        &self,
        listing: impl Future<Output = Result<T, AdapterError>>,
    ) -> Result<T, AdapterError> {
        let ms_max = self.limits.connect_ms_max;
        let listed = timeout(Duration::from_millis(ms_max), listing).await;
        listed.unwrap_or_else(|_elapsed| {
            Err(AdapterError::Unavailable(format!(
                "it did not list what it offers within {ms_max} ms"
            )))
        })
    }

    fn admit(&self, dispatch: &Dispatch) -> Result<&Capability, AdapterError> {
        let contract = self.contract.as_deref().ok_or_else(|| {
            AdapterError::Misconfigured(
                "this connection has no contract, it only lists tools".to_owned(),
            )
        })?;
        let capability = call::capability(contract, dispatch)?;
        if !self.link.is_alive() {
            return Err(AdapterError::Unavailable("the connection has ended".to_owned()));
        }
        Ok(capability)
    }

    /// The turn that was taken for a call, if the server keeps sessions.
    fn seated(&self, seat: SessionLease) -> Result<Option<Turn>, AdapterError> {
        let Some(sessions) = &self.sessions else { return Ok(None) };
        let turn = seat.into_held::<Turn>().filter(|turn| turn.is_in(sessions));
        let none = || AdapterError::NoSession("none was begun for the call".to_owned());
        let turn = turn.ok_or_else(none)?;
        if turn.is_over() {
            return Err(AdapterError::NoSession("it ended before the call was sent".to_owned()));
        }
        Ok(Some(turn))
    }

    /// Sends the call in its owner's session, if the server keeps sessions.
    async fn send(
        &self,
        prepared: Prepared,
        capability: &Capability,
        turn: Option<Turn>,
    ) -> Outcome {
        let timeout_ms = prepared.timeout_ms;
        let deadline = Instant::now().checked_add(Duration::from_millis(timeout_ms));
        let Some(deadline) = deadline.filter(|_| timeout_ms > 0) else {
            let why = "there is no time left for the call".to_owned();
            return Outcome::NotExecuted(AdapterError::Unavailable(why));
        };
        let link = turn.as_ref().and_then(Turn::link).unwrap_or(&self.link);
        let (request, listening) = (prepared.request, Duration::from_millis(prepared.listen_ms));
        // A call that is still listened for is not cancelled yet: a server that complies would never report what it has done.
        let until = deadline.checked_add(listening).unwrap_or(deadline);
        let answer = async {
            match request {
                Request::Tool(call) => link.call(*call, deadline).await,
                Request::Feature(request, meta) => {
                    Box::pin(link.ask(*request, meta, deadline)).await
                }
            }
        };
        let Ok(answer) = timeout_at(until, answer).await else {
            return Outcome::Unknown(format!("no answer within {timeout_ms} ms"));
        };
        let mut outcome = match answer {
            Ok(result) => self.judge(&result, capability),
            Err(Unanswered::Failed(fault)) => self.judge_fault(fault, capability),
            Err(Unanswered::NotTaken) => {
                let why = "the connection takes no more calls".to_owned();
                let in_session = turn.is_some();
                let error =
                    if in_session { AdapterError::NoSession } else { AdapterError::Unavailable };
                Outcome::NotExecuted(error(why))
            }
        };
        if let Outcome::Done(answer) = &mut outcome {
            answer.mutations.extend(prepared.mutation);
        }
        outcome
    }

    /// Probes for `token`; a tool that is no longer as reviewed is not called.
    async fn ask(
        &self,
        plan: &Plan<'_>,
        contract: &Contract,
        token: &str,
    ) -> Option<Box<CallToolResult>> {
        let live = listing::list(self.link.peer()).await.ok()?;
        if !plan.is_pinned(contract, &live) {
            return None;
        }
        let with_secret = contract.credential.as_ref().is_some_and(|one| one.secret.is_some());
        // If the contract has no secret, probes are sent without credentials, as lists are.
        let turn = match self.sessions.as_ref().filter(|_| with_secret) {
            Some(sessions) => Some(sessions.for_questions().await.ok()?),
            None => None,
        };
        let peer = turn.as_ref().and_then(Turn::link).unwrap_or(&self.link).peer();
        match peer.send_request(plan.question(token)).await {
            Ok(ServerResult::CallToolResult(result)) => Some(Box::new(result)),
            Ok(_) | Err(_) => None,
        }
    }

    fn judge(&self, result: &ServerResult, capability: &Capability) -> Outcome {
        if let Some(feature) = capability.feature() {
            let answer = features::answer_of(feature, result, self.limits.result_bytes_max);
            if let Some(answer) = answer {
                return Outcome::Done(answer);
            }
        } else if let ServerResult::CallToolResult(result) = result {
            return self.judge_result(result, capability);
        }
        let instead = if matches!(result, ServerResult::InputRequiredResult(_)) {
            "the server asks for input instead of answering"
        } else if matches!(result, ServerResult::CreateTaskResult(_)) {
            "the server made a task of the call instead of answering"
        } else {
            "the answer is no result of what was asked"
        };
        Outcome::Unknown(instead.to_owned())
    }

    fn judge_result(&self, result: &CallToolResult, capability: &Capability) -> Outcome {
        let answer = answer::of_result(result, self.keeping(capability.id.capability()));
        if result.is_error == Some(true) { Outcome::Failed(answer) } else { Outcome::Done(answer) }
    }

    fn judge_fault(&self, fault: Fault, capability: &Capability) -> Outcome {
        // An error about a resource or a prompt is the answer to its request: the caller gets to know which.
        let is_answer = capability.feature().is_some() && matches!(fault, Fault::Reported { .. });
        if !capability.is_write_class()
            && !is_answer
            && let Some(refusal) = fault.as_refusal()
        {
            return Outcome::NotExecuted(refusal);
        }
        match fault {
            Fault::Nothing(error) => Outcome::NotExecuted(error),
            Fault::InvalidResponse(why) | Fault::Perhaps(why) => Outcome::Unknown(why),
            // The server may have run into it anywhere: whether it had changed something by then, its contract says.
            Fault::Status { answer, error } => {
                Outcome::Rejected(Rejection { answer: ErrorAnswer::Http(answer), error })
            }
            Fault::Reported { code, message } if capability.is_write_class() => {
                let error = failure::of_words(code, &message);
                Outcome::Rejected(Rejection { answer: ErrorAnswer::JsonRpc(code), error })
            }
            Fault::Reported { code, message } => {
                let bytes_max = self.limits.result_bytes_max;
                Outcome::Failed(answer::of_error(code, &message, bytes_max))
            }
        }
    }

    /// How results of a capability are kept.
    fn keeping(&self, capability: &CapabilityName) -> Keeping<'_> {
        Keeping {
            bytes_max: self.limits.result_bytes_max,
            output_schema: self.output_schemas.get(capability),
        }
    }
}

#[async_trait]
impl Adapter for McpAdapter {
    async fn discover(&self) -> Result<Vec<LiveTool>, AdapterError> {
        let server = self.link.peer_info()?;
        let offered = features::offered(&server.capabilities);
        if server.capabilities.tools.is_none() && !offered.is_empty() {
            return Ok(offered);
        }
        let mut tools = self.in_time(listing::list(self.link.peer())).await?;
        tools.extend(offered);
        Ok(tools)
    }

    async fn list(&self, what: Listing) -> Result<Vec<Value>, AdapterError> {
        self.in_time(features::list(self.link.peer(), what)).await
    }

    fn generation(&self) -> u64 {
        self.link.generation()
    }

    async fn prepare(&self, approach: PrepareRequest<'_>) -> Result<SessionLease, AdapterError> {
        let Some(sessions) = &self.sessions else { return Ok(SessionLease::default()) };
        if !self.link.is_alive() {
            return Err(AdapterError::Unavailable("the connection has ended".to_owned()));
        }
        let headers = CallHeaders::of(&TraceHeaders::default(), approach.credential)?;
        let given = Duration::from_millis(approach.timeout_ms);
        let turn = sessions.for_call(approach.owner, &headers, given).await?;
        Ok(SessionLease::holding(turn))
    }

    async fn invoke(&self, dispatch: Dispatch, mut conditions: Conditions) -> Outcome {
        let seat = std::mem::take(&mut conditions.seat);
        let prepared = self.admit(&dispatch).and_then(|capability| {
            let prepared = call::prepare(capability, &dispatch, &conditions)?;
            Ok((prepared, capability, self.seated(seat)?))
        });
        match prepared {
            Ok((prepared, capability, turn)) => self.send(prepared, capability, turn).await,
            Err(error) => Outcome::NotExecuted(error),
        }
    }

    async fn probe(&self, inquiry: &Inquiry) -> Probe {
        let Some(contract) = self.contract.as_deref() else { return Probe::Unknown };
        let asked = inquiry.capability.capability();
        let plan = probe::plan(contract, asked)
            .filter(|_| *inquiry.capability.adapter() == contract.adapter && self.link.is_alive());
        // MCP itself has no way to probe: without a plan in the contract nobody knows.
        let Some(plan) = plan else { return Probe::Unknown };
        let limit = Duration::from_millis(inquiry.timeout_ms.min(plan.plan.timeout_ms));
        let answer = timeout(limit, self.ask(&plan, contract, &inquiry.token)).await;
        match answer {
            Ok(Some(result)) => plan.read(&result, self.keeping(asked)),
            Ok(None) | Err(_) => Probe::Unknown,
        }
    }

    fn is_alive(&self) -> bool {
        self.link.is_alive()
    }

    async fn close(&self) {
        let sessions = async {
            if let Some(sessions) = &self.sessions {
                sessions.close().await;
            }
        };
        tokio::join!(self.link.close(), sessions);
    }
}
