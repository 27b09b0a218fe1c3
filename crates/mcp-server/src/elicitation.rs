//! Held calls as a request to open the page of the approval (URL-mode elicitation), for clients that can open pages and offer no tasks.
//!
//! Owns what is asked, and the `requestState` that comes back with the repeated request. The page is the console's, which requires a
//! sign-in: the link grants no access. Invariants: a state is bound to one call, its caller, tool and arguments, until the approval
//! expires; it is signed and allows nothing but waiting for that call, so replaying it does no harm.

use std::time::Duration;

use rmcp::{
    ErrorData, RoleServer,
    model::{
        CallToolRequestParams, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
        InputRequest, InputRequests, InputRequiredResult, ProtocolVersion, RequestStateCodec,
        SealOptions, ServerRequest,
    },
    service::RequestContext,
};
use serde_json::Value;
use url::Url;

use placet_engine::answer::Held;
use placet_identity::VerifiedCaller;
use placet_types::{
    clock::Timestamp,
    digest::{Digest, DigestBuilder},
    ids::ToolCallId,
    json::canonical_digest,
};

use crate::results;

/// The key of our request among the requests for input.
const APPROVAL: &str = "approval";
/// The state of an approval that people have yet to decide on.
const PENDING: &str = "pending";

/// Where clients are sent to see an approval, and the key that signs the states.
#[derive(Debug, Clone)]
pub struct ApprovalPages {
    console: Url,
    codec: RequestStateCodec,
}

impl ApprovalPages {
    /// The pages below `console`. With the same key a state is taken after a restart too, and on every node.
    pub fn new(console: Url, key: &[u8; 32]) -> Self {
        Self { console, codec: RequestStateCodec::new_unchecked(*key) }
    }

    /// The input requested of a client that can open pages; `None` for a call that does not wait for people.
    pub(crate) fn required(
        &self,
        held: &Held,
        asked: &Digest,
        now: Timestamp,
    ) -> Option<InputRequiredResult> {
        let request = InputRequest::Elicitation(ElicitRequest::new(self.request(held)?));
        let pending = held.result.pending_approval.as_ref()?;
        let lasts = u64::try_from(pending.expires_at.since_ms(now)).ok()?;
        let options =
            SealOptions::new().associated_data(asked.as_bytes()).ttl(Duration::from_millis(lasts));
        let state = self.codec.seal_with(held.call_id.as_str().as_bytes(), &options);
        let requests = InputRequests::from([(APPROVAL.to_owned(), request)]);
        let required = InputRequiredResult::new(Some(requests), Some(state));
        Some(required.with_meta(results::meta_of(&held.result)))
    }

    /// The request to open a held call's page, sent to a client in a session while its own request stays open.
    pub(crate) fn told(&self, held: &Held) -> Option<ServerRequest> {
        Some(ServerRequest::ElicitRequest(ElicitRequest::new(self.request(held)?)))
    }

    /// Has an id in each revision, since the SDK writes the field in those without it too. Nothing for a call that waits for something else
    /// than people.
    fn request(&self, held: &Held) -> Option<ElicitRequestParams> {
        held.result.pending_approval.as_ref().filter(|pending| pending.state == PENDING)?;
        let url = self.console.join(&format!("approvals/{}", held.approval_id)).ok()?;
        Some(ElicitRequestParams::UrlElicitationParams {
            meta: None,
            message: format!(
                "{}. The page shows the call and how it stands; those who may decide on it can do so there.",
                results::awaited(held)
            ),
            url: url.into(),
            elicitation_id: held.approval_id.to_string(),
        })
    }

    /// The call of a state that was made for this.
    fn call_of(&self, state: &str, asked: &Digest) -> Option<ToolCallId> {
        let opened = self.codec.open_with(state, asked.as_bytes());
        let call = opened
            .inspect_err(|error| tracing::info!(%error, "a `requestState` was refused"))
            .ok()?;
        std::str::from_utf8(&call).ok()?.parse().ok()
    }
}

/// What a state is bound to besides its call: caller, tool and arguments.
pub(crate) fn asked(caller: &VerifiedCaller, params: &CallToolRequestParams) -> Digest {
    let args = Value::Object(params.arguments.clone().unwrap_or_default());
    caller
        .chain()
        .digest_into(DigestBuilder::new("placet.mcp_request_state.v1"))
        .field("tool", params.name.as_bytes())
        .field("args", canonical_digest(&args).to_string())
        .finish()
}

/// Whether the revision of a request has requests for input as results.
pub(crate) fn is_spoken(context: &RequestContext<RoleServer>) -> bool {
    let first = ProtocolVersion::V_2026_07_28;
    context.protocol_version().is_some_and(|spoken| spoken.as_str() >= first.as_str())
}

/// A repeated request that carries a state.
#[derive(Debug)]
pub(crate) struct Resumed {
    /// The call that it waits for.
    pub(crate) call: ToolCallId,
    /// Whether its person did not want to go to the page. That says nothing about the call, which others decide on.
    pub(crate) is_declined: bool,
}

/// The call that a request answering an elicitation waits for; `None` if it answers none.
///
/// # Errors
/// A protocol error, the same for every state that is not one of this request's.
pub(crate) fn resumed(
    pages: Option<&ApprovalPages>,
    caller: &VerifiedCaller,
    params: &CallToolRequestParams,
) -> Result<Option<Resumed>, ErrorData> {
    let Some(state) = &params.request_state else {
        return match &params.input_responses {
            None => Ok(None),
            Some(_) => Err(refused()),
        };
    };
    let asked = asked(caller, params);
    let call = pages.and_then(|pages| pages.call_of(state, &asked)).ok_or_else(refused)?;
    let answer = params.input_responses.as_ref().and_then(|answers| answers.get(APPROVAL));
    let action = match answer {
        None => ElicitationAction::Accept,
        Some(answer) => {
            let answer = serde_json::from_value::<ElicitResult>(answer.clone());
            answer.map_err(|_not_one| refused())?.action
        }
    };
    Ok(Some(Resumed { call, is_declined: action != ElicitationAction::Accept }))
}

fn refused() -> ErrorData {
    let message = "`requestState` is not one of this caller's for this tool with these arguments, or has expired; make the call again without `requestState` and `inputResponses`";
    ErrorData::invalid_params(message, None)
}
