//! What a failure of the connection means for a call.
//!
//! Owns the line between «nothing happened» and «unknown». Invariant: a failure counts as
//! «nothing happened» only if no complete message can have reached the server. A server's answer to a call that may have an effect is
//! passed on as it is: its contract says what it means.

mod http;
mod stdio;

use rmcp::{
    ErrorData,
    model::ErrorCode,
    service::ServiceError,
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};

use placet_adapter::outcome::AdapterError;
use placet_types::contract::not_executed::HttpError;

pub(crate) use self::{http::HttpFault, stdio::StdioFault};
use crate::text::whole;

/// The code of an error in the place of an answer that cannot be read: no server has it.
pub(crate) const UNREADABLE: ErrorCode = ErrorCode(i32::MIN);

/// JSON-RPC and MCP errors that are defined as refusals of a request. Servers send them after an effect as well, so they count only for
/// messages without one.
const REFUSALS: [ErrorCode; 5] = [
    ErrorCode::METHOD_NOT_FOUND,
    ErrorCode::INVALID_PARAMS,
    ErrorCode::HEADER_MISMATCH,
    ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY,
    ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
];

/// HTTP statuses that are defined as refusals of a request; see [`REFUSALS`].
const REFUSAL_STATUSES: [u16; 12] = [400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 429, 431];

/// What a failure means for its message.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Nothing happened.
    Nothing(AdapterError),
    /// The server answered the message with a failure status.
    Status {
        /// The status, and what came with it.
        answer: HttpError,
        /// The error, if the message was refused.
        error: AdapterError,
    },
    /// The server answered the message with an error of its own.
    Reported {
        /// The code.
        code: i32,
        /// Its text, made printable, uncut.
        message: String,
    },
    /// The server's answer is invalid; the message may have had an effect.
    InvalidResponse(String),
    /// The message may have had an effect.
    Perhaps(String),
}

impl Fault {
    /// The refusal, for a message without effects: there the server is believed.
    pub(crate) fn as_refusal(&self) -> Option<AdapterError> {
        match self {
            Self::Nothing(error) => Some(error.clone()),
            Self::Status { answer, error } => {
                REFUSAL_STATUSES.contains(&answer.status).then(|| error.clone())
            }
            Self::Reported { code, message } => {
                REFUSALS.contains(&ErrorCode(*code)).then(|| of_words(*code, message))
            }
            Self::InvalidResponse(_) | Self::Perhaps(_) => None,
        }
    }

    /// The fault as an error of a message without effects.
    pub(crate) fn into_handshake_error(self) -> AdapterError {
        if let Some(refusal) = self.as_refusal() {
            return refusal;
        }
        match self {
            Self::Nothing(error) => error,
            Self::Status { answer, .. } => {
                AdapterError::Unavailable(HttpFault::Status(answer).to_string())
            }
            Self::Reported { code, message } => of_words(code, &message),
            Self::InvalidResponse(why) => AdapterError::InvalidResponse(why),
            Self::Perhaps(why) => AdapterError::Unavailable(why),
        }
    }
}

/// The fault for a failed request.
pub(crate) fn of_request(error: &ServiceError) -> Fault {
    if let ServiceError::McpError(error) = error {
        return of_answer(error);
    }
    if let ServiceError::TransportSend(error) = error {
        return of_transport(error);
    }
    if let ServiceError::UnexpectedResponse = error {
        return Fault::InvalidResponse("the answer is of another kind than the request".to_owned());
    }
    Fault::Perhaps("the connection ended before the answer".to_owned())
}

/// The fault for a failed send.
pub(crate) fn of_transport(error: &DynamicTransportError) -> Fault {
    if let Some(fault) = error.error.downcast_ref::<StdioFault>() {
        return fault.meaning();
    }
    if let Some(StreamableHttpError::Client(fault)) =
        error.error.downcast_ref::<StreamableHttpError<HttpFault>>()
    {
        return fault.meaning();
    }
    Fault::Perhaps("the connection failed while the message was sent".to_owned())
}

/// Whether a request failed without having reached the server.
pub(crate) fn is_unreached(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else { return false };
    let fault = error.error.downcast_ref::<StreamableHttpError<HttpFault>>();
    matches!(fault, Some(StreamableHttpError::Client(fault)) if fault.is_unreached())
}

/// The fault for an error that the server reported.
pub(crate) fn of_answer(error: &ErrorData) -> Fault {
    let message = whole(&error.message);
    if error.code == UNREADABLE {
        return Fault::InvalidResponse(message);
    }
    Fault::Reported { code: error.code.0, message }
}

/// The text of an error that the server reported.
pub(crate) fn of_words(code: i32, message: &str) -> AdapterError {
    AdapterError::Refused(format!("code {code}: {message}"))
}
