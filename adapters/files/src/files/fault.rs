//! How an operation fails, distinguished by what is certain about its effect.
//!
//! Owns that distinction and the wording for the caller. Invariant: an error becomes "nothing happened" only if it
//! preceded every visible change.

use std::io::{Error, ErrorKind};

use placet_adapter::outcome::{AdapterError, Answer, Outcome};
use placet_types::envelope::result::Mutation;
use rustix::io::Errno;
use serde_json::json;

use super::path::RelativePath;

/// Why an operation did not succeed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Nothing happened; the caller can fix it.
    Refused(String),
    /// Nothing happened; the file system was unable to.
    Unavailable(String),
    /// Nothing happened: nobody waits any more.
    Abandoned,
    /// It failed, but left something behind.
    Partial(String, Vec<Mutation>),
    /// Whether it happened is not known.
    Uncertain(String),
}

pub(crate) type Done = Result<Answer, Fault>;

impl From<Fault> for Outcome {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(why) => Self::NotExecuted(AdapterError::Refused(why)),
            Fault::Unavailable(why) => Self::NotExecuted(AdapterError::Unavailable(why)),
            Fault::Abandoned => Self::NotExecuted(AdapterError::Unavailable(
                "the call was given up in time".to_owned(),
            )),
            Fault::Partial(why, mutations) => Self::Failed(Answer {
                output: json!({ "error": why }),
                mutations,
                ..Answer::default()
            }),
            Fault::Uncertain(why) => Self::Unknown(why),
        }
    }
}

impl Fault {
    /// The fault of an error that came before any change.
    pub(crate) fn before(path: &RelativePath, error: &Error) -> Self {
        let path = path.as_str();
        let kind = error.kind();
        let refused = if kind == ErrorKind::NotFound {
            format!("no such file or directory: `{path}`")
        } else if kind == ErrorKind::PermissionDenied {
            format!(
                "`{path}` may not be used: permission is missing, or it leads out of the adapter's directory"
            )
        } else if kind == ErrorKind::NotADirectory {
            format!("`{path}` is not a directory, or a part of it is none")
        } else if is_mendable(error) {
            format!("`{path}` cannot be used: {kind}")
        } else {
            return Self::Unavailable(format!("`{path}`: {kind}"));
        };
        Self::Refused(refused)
    }

    /// The fault of an error of the very call that makes the change.
    pub(crate) fn at_change(path: &RelativePath, error: &Error) -> Self {
        if is_certain(error) {
            Self::before(path, error)
        } else {
            Self::Uncertain(format!(
                "changing `{}` ended with an error that does not say whether it happened",
                path.as_str()
            ))
        }
    }

    /// What to tell the caller.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Refused(why)
            | Self::Unavailable(why)
            | Self::Partial(why, _)
            | Self::Uncertain(why) => why,
            Self::Abandoned => "the call was given up in time",
        }
    }
}

fn is_mendable(error: &Error) -> bool {
    // A loop of symbolic links has no kind of its own in this version of Rust.
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
        || matches!(
            error.kind(),
            ErrorKind::IsADirectory
                | ErrorKind::AlreadyExists
                | ErrorKind::InvalidInput
                | ErrorKind::InvalidFilename
                | ErrorKind::TooManyLinks
        )
}

/// Errors by which the kernel reports that a change of a directory did not take place.
fn is_certain(error: &Error) -> bool {
    is_mendable(error)
        || matches!(
            error.kind(),
            ErrorKind::NotFound
                | ErrorKind::PermissionDenied
                | ErrorKind::NotADirectory
                | ErrorKind::DirectoryNotEmpty
                | ErrorKind::StorageFull
                | ErrorKind::QuotaExceeded
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::CrossesDevices
                | ErrorKind::ResourceBusy
                | ErrorKind::ExecutableFileBusy
        )
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use placet_adapter::outcome::Outcome;

    use super::{Fault, RelativePath};

    #[test]
    fn only_an_error_that_prevented_the_change_is_no_effect() {
        let path = RelativePath::parse("a").unwrap();
        for (kind, certain) in [
            (ErrorKind::NotFound, true),
            (ErrorKind::StorageFull, true),
            (ErrorKind::ReadOnlyFilesystem, true),
            (ErrorKind::TimedOut, false),
            (ErrorKind::Interrupted, false),
            (ErrorKind::Other, false),
        ] {
            let outcome = Outcome::from(Fault::at_change(&path, &Error::from(kind)));
            assert_eq!(matches!(outcome, Outcome::NotExecuted(_)), certain, "{kind}");
            assert_eq!(matches!(outcome, Outcome::Unknown(_)), !certain, "{kind}");
        }
        let input_output_error = Error::from_raw_os_error(5);
        assert!(matches!(Fault::at_change(&path, &input_output_error), Fault::Uncertain(_)));
    }
}
