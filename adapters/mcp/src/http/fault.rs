//! Why an HTTP exchange with a server failed.
//!
//! Owns what each status says about the message (a listed set of statuses, nothing else, is a refusal before the
//! effect). Holds no text of a response.

use placet_adapter::outcome::AdapterError;
use placet_egress::EgressError;

use crate::failure::Fault;

/// Why an exchange failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HttpFault {
    /// It could not be made, or not completed.
    #[error("{0}")]
    Egress(#[from] EgressError),
    /// The server answered with a status of failure.
    #[error("the server answered with http status {0}")]
    Status(u16),
    /// The server does not know our session any more.
    #[error("the server has ended the session")]
    SessionEnded,
    /// The server answered with something that is no MCP.
    #[error("the answer is not usable: {0}")]
    Unusable(&'static str),
    /// The request could not be put together.
    #[error("the request cannot be made: {0}")]
    NotMade(String),
}

impl HttpFault {
    /// What it says about the message.
    pub(crate) fn meaning(&self) -> Fault {
        let said = self.to_string();
        match self {
            Self::Egress(error) if error.nothing_was_sent() => {
                Fault::Nothing(AdapterError::Unavailable(said))
            }
            Self::Egress(_) => Fault::Perhaps(said),
            Self::Unusable(_) => Fault::Garbled(said),
            Self::SessionEnded => Fault::Nothing(AdapterError::Unavailable(said)),
            Self::NotMade(_) => Fault::Nothing(AdapterError::Misconfigured(said)),
            Self::Status(status) => of_status(*status, said),
        }
    }
}

fn of_status(status: u16, said: String) -> Fault {
    match status {
        401 | 403 => Fault::Nothing(AdapterError::CredentialRefused(said)),
        429 => Fault::Nothing(AdapterError::Unavailable(said)),
        400 | 404 | 405 | 406 | 411 | 413 | 414 | 415 | 431 => {
            Fault::Nothing(AdapterError::Refused(said))
        }
        _ => Fault::Perhaps(said),
    }
}

#[cfg(test)]
mod tests {
    use super::{AdapterError, Fault, HttpFault};

    #[test]
    fn only_listed_statuses_say_that_nothing_happened() {
        for status in 100..600 {
            let nothing = matches!(HttpFault::Status(status).meaning(), Fault::Nothing(_));
            let listed =
                [400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 429, 431].contains(&status);
            assert_eq!(nothing, listed, "{status}");
        }
    }

    #[test]
    fn a_refused_credential_is_told_from_a_refused_call() {
        for status in [401, 403] {
            assert!(matches!(
                HttpFault::Status(status).meaning(),
                Fault::Nothing(AdapterError::CredentialRefused(_))
            ));
        }
    }
}
