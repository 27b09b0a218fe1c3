//! What a failure of the connection says about a call.
//!
//! Owns the line between «certainly nothing happened» and «unknown». Invariant: a failure counts as
//! «nothing happened» only if no complete message can have reached the server, or the server declared it before acting.

use rmcp::{
    ErrorData,
    model::ErrorCode,
    service::ServiceError,
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};

use placet_adapter::outcome::AdapterError;

use crate::{http::fault::HttpFault, stdio::fault::StdioFault, text::whole};

/// JSON-RPC and MCP errors that are defined as refusals before the method runs.
const PRE_EFFECT: [ErrorCode; 5] = [
    ErrorCode::METHOD_NOT_FOUND,
    ErrorCode::INVALID_PARAMS,
    ErrorCode::HEADER_MISMATCH,
    ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY,
    ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
];

/// What a failure says about the message it happened to.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Certainly nothing happened.
    Nothing(AdapterError),
    /// The server answered the message with an error of its own.
    Reported {
        /// The code.
        code: i32,
        /// What it says, made printable, and whole.
        message: String,
    },
    /// The server answered with something that is no answer; it may have happened.
    Garbled(String),
    /// It may have happened.
    Perhaps(String),
}

impl Fault {
    /// The fault as an error of something that has no effects.
    pub(crate) fn into_handshake_error(self) -> AdapterError {
        match self {
            Self::Nothing(error) => error,
            Self::Reported { code, message } => {
                AdapterError::Refused(format!("code {code}: {message}"))
            }
            Self::Garbled(why) => AdapterError::Garbled(why),
            Self::Perhaps(why) => AdapterError::Unavailable(why),
        }
    }
}

/// The fault that a failed request amounts to.
pub(crate) fn of_request(error: &ServiceError) -> Fault {
    if let ServiceError::McpError(error) = error {
        return of_answer(error);
    }
    if let ServiceError::TransportSend(error) = error {
        return of_transport(error);
    }
    if let ServiceError::UnexpectedResponse = error {
        return Fault::Garbled("the answer is of another kind than the request".to_owned());
    }
    Fault::Perhaps("the connection ended before the answer".to_owned())
}

/// The fault that a failed sending amounts to.
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

fn of_answer(error: &ErrorData) -> Fault {
    let message = whole(&error.message);
    if PRE_EFFECT.contains(&error.code) {
        return Fault::Nothing(AdapterError::Refused(format!("code {}: {message}", error.code.0)));
    }
    Fault::Reported { code: error.code.0, message }
}
