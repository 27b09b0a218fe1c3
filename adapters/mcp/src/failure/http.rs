//! Why an HTTP exchange with a server failed.
//!
//! Owns what each failure means for the message, and its wording. Contains no text of a response.

use placet_adapter::outcome::AdapterError;
use placet_egress::EgressError;
use placet_types::contract::not_executed::HttpError;

use super::Fault;

/// Why an exchange failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HttpFault {
    /// It could not be made, or not completed.
    #[error("{0}")]
    Egress(#[from] EgressError),
    /// The server answered with a failure status.
    #[error("the server answered with http status {}", .0.status)]
    Status(HttpError),
    /// The server does not know our session any more, according to this status.
    #[error("the server has ended the session")]
    SessionEnded(u16),
    /// The server gave a session the number of another one that is in use.
    #[error("the server has given the session a number that another one has")]
    NumberTaken,
    /// The server did not begin the session in the time of that, or nobody waited for it any more.
    #[error("the server did not begin the session in time")]
    Late,
    /// The stream that would have brought the answer has ended.
    #[error("the stream of the session has ended")]
    StreamEnded,
    /// The stream of an answer ended early, and cannot be resumed.
    #[error("the connection ended before the answer")]
    Cut,
    /// The request's credential has expired.
    #[error("the time of the credential is over")]
    CredentialOver,
    /// The server's answer is not MCP.
    #[error("the answer is not usable: {0}")]
    Unusable(&'static str),
    /// The request could not be built.
    #[error("the request cannot be made: {0}")]
    NotMade(String),
}

impl HttpFault {
    /// Whether nothing of it has reached the server.
    pub(crate) fn is_unreached(&self) -> bool {
        matches!(self, Self::Egress(error) if error.nothing_was_sent())
    }

    /// What it means for the message.
    pub(crate) fn meaning(&self) -> Fault {
        let said = self.to_string();
        match self {
            // Treated like a server's refusal because of size: no outage, no matter who refused it.
            Self::Egress(
                EgressError::RequestTooLarge { .. } | EgressError::RequestUnusable { .. },
            ) => Fault::Nothing(AdapterError::Refused(said)),
            Self::Egress(error) if error.nothing_was_sent() => {
                Fault::Nothing(AdapterError::Unavailable(said))
            }
            Self::Egress(_) | Self::Late | Self::Cut => Fault::Perhaps(said),
            Self::Unusable(_) => Fault::InvalidResponse(said),
            Self::SessionEnded(status) => Fault::Status {
                answer: HttpError::bare(*status),
                error: AdapterError::NoSession(said),
            },
            Self::NumberTaken | Self::StreamEnded | Self::CredentialOver => {
                Fault::Nothing(AdapterError::NoSession(said))
            }
            Self::NotMade(_) => Fault::Nothing(AdapterError::Misconfigured(said)),
            Self::Status(answer) => {
                Fault::Status { answer: *answer, error: of_status(answer.status, said) }
            }
        }
    }
}

fn of_status(status: u16, said: String) -> AdapterError {
    match status {
        401 => AdapterError::CredentialRefused(said),
        // The server knows the caller, and refuses: another credential of the same kind is no reason to retry.
        403 => AdapterError::Forbidden(said),
        429 | 503 => AdapterError::Unavailable(said),
        _ => AdapterError::Refused(said),
    }
}

#[cfg(test)]
mod tests {
    use super::{AdapterError, EgressError, Fault, HttpError, HttpFault};

    #[test]
    fn what_is_too_large_to_be_sent_is_no_outage_of_the_server() {
        for error in [
            EgressError::RequestTooLarge { bytes_max: 7 },
            EgressError::RequestUnusable { reason: "it names no host" },
        ] {
            let meaning = HttpFault::Egress(error).meaning();
            assert!(matches!(meaning, Fault::Nothing(AdapterError::Refused(_))), "{meaning:?}");
        }
        let away = HttpFault::Egress(EgressError::ClosedBeforeRequest).meaning();
        assert!(matches!(away, Fault::Nothing(AdapterError::Unavailable(_))), "{away:?}");
    }

    #[test]
    fn no_status_says_by_itself_that_nothing_happened() {
        for status in 100..600 {
            let fault = HttpFault::Status(HttpError::bare(status));
            let meaning = fault.meaning();
            let Fault::Status { answer, .. } = &meaning else { panic!("{status}: {meaning:?}") };
            assert_eq!(answer.status, status);
            // A read, or a handshake, has no effect: there a server is believed.
            let listed =
                [400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 429, 431].contains(&status);
            assert_eq!(meaning.as_refusal().is_some(), listed, "{status}");
        }
        let ended = HttpFault::SessionEnded(404).meaning();
        assert!(matches!(ended, Fault::Status { error: AdapterError::NoSession(_), .. }));
    }

    #[test]
    fn a_credential_that_is_not_taken_is_told_from_one_that_does_not_allow_the_call() {
        for (status, is_taken) in [(401, false), (403, true)] {
            let meaning = HttpFault::Status(HttpError::bare(status)).meaning();
            let Fault::Status { error, .. } = meaning else { panic!("{status}: {meaning:?}") };
            assert_eq!(matches!(error, AdapterError::CredentialRefused(_)), !is_taken, "{error}");
            assert_eq!(matches!(error, AdapterError::Forbidden(_)), is_taken, "{error}");
        }
    }
}
