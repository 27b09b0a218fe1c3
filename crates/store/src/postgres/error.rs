//! What can go wrong with the database, and what is to be done about it.
//!
//! Owns the errors of opening, and the classification of the database's errors. Invariant: nothing here quotes an address or a value that
//! was sent; an unknown error is never taken for a transient one.

use sqlx::Error;

use placet_ledger::store::StoreError;

/// Why the store does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address cannot be read. It is not quoted: it may hold a password.
    #[error(
        "the address of the database is not valid: {why}; it looks like postgres://user:password@host:5432/database"
    )]
    Address {
        /// What is wrong with it.
        why: String,
    },
    /// The configuration cannot work.
    #[error("the configuration of the store is not valid: {why}")]
    Config {
        /// What is wrong with it.
        why: String,
    },
    /// No host answers as one that takes writes.
    #[error("no database at `{hosts}` takes writes: {why}")]
    Unreachable {
        /// The hosts and the database.
        hosts: String,
        /// What each of them said.
        why: String,
    },
    /// The server is set up so that it may lose what it has acknowledged.
    #[error("the server's setting `{setting}` is `{value}`: {why}")]
    Unsafe {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What it would cost, and what to set instead.
        why: &'static str,
    },
    /// The tables were made by another build.
    #[error("the tables of the database do not fit: {why}")]
    Schema {
        /// What is wrong with them.
        why: String,
    },
    /// The database has lost what it had acknowledged.
    #[error("the database has forgotten what it had acknowledged: {why}")]
    Forgotten {
        /// What is missing, and what to do.
        why: String,
    },
    /// The file that remembers what the database had acknowledged cannot be used.
    #[error("the witness of the database cannot be used: {why}")]
    Witness {
        /// What is wrong with it.
        why: String,
    },
    /// Another session holds a lock that this needs, and did not release it in time.
    #[error("the database could not {what} in time: {why}")]
    LockTimeout {
        /// What was asked, as a verb phrase.
        what: &'static str,
        /// What the database said, and how to find out who holds it.
        why: String,
    },
    /// The connection was lost half-way, ended by the server because this process had stood still, or has fallen silent.
    #[error("the connection to the database was lost when it was to {what}: {why}")]
    Lost {
        /// What was asked, as a verb phrase.
        what: &'static str,
        /// The error.
        why: String,
    },
    /// The database refused something else.
    #[error("the database refused to {what}: {why}")]
    Refused {
        /// What was asked, as a verb phrase.
        what: &'static str,
        /// Its answer.
        why: String,
    },
}

/// What to do where a lock is not to be had.
pub(super) const LOCK_IS_HELD: &str = "a session may hold a lock on the tables in the schema `placet`, such as a dump; `pg_locks` names the \
     sessions that were granted one, `pg_stat_activity` says what they do, and `SELECT pg_terminate_backend(PROCESS)` ends one";

impl OpenError {
    /// A lock was not to be had in time, as the database said.
    pub(super) fn locked(what: &'static str, why: &str) -> Self {
        Self::LockTimeout { what, why: format!("{why}: {LOCK_IS_HELD}") }
    }

    /// The meaning of a failed request; where the connection is gone, it says so.
    pub(super) fn refused(what: &'static str) -> impl FnOnce(Error) -> Self {
        move |error| match Trouble::of(&error) {
            Trouble::Away(why) => Self::Lost { what, why },
            Trouble::Busy(why) => Self::locked(what, &why),
            Trouble::Again
            | Trouble::Full
            | Trouble::Unkeepable(_)
            | Trouble::Denied(_)
            | Trouble::Fatal(_) => Self::Refused { what, why: said(&error) },
        }
    }
}

/// What an error of the database means for its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Another transaction was quicker: this one is rolled back and begun again at once.
    Again,
    /// A lock or a slot was not available in time; it may be in a moment.
    Busy(String),
    /// The connection is gone or unusable; another one has to be made.
    Away(String),
    /// The server's disk is full.
    Full,
    /// The data sent cannot be kept, no matter who sends it.
    Unkeepable(String),
    /// The tables are not there, or this role has no right on them: another database or role is meant.
    Denied(String),
    /// Anything else: waiting would not help.
    Fatal(String),
}

impl Trouble {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what is not known is never taken for passing"
    )]
    pub(super) fn of(error: &Error) -> Self {
        let text = said(error);
        match error {
            Error::Database(answer) => Self::of_code(answer.code().as_deref().unwrap_or(""), text),
            Error::Io(_)
            | Error::Tls(_)
            | Error::Protocol(_)
            | Error::PoolTimedOut
            | Error::PoolClosed
            | Error::WorkerCrashed
            | Error::BeginFailed => Self::Away(text),
            // What remains are faults of this program or of the stored data.
            _other => Self::Fatal(text),
        }
    }

    fn of_code(code: &str, text: String) -> Self {
        match code {
            // Serialization failure, deadlock, and a key or a table that somebody else has just made.
            "40001" | "40P01" | "23505" | "42P07" | "42710" => Self::Again,
            // Lock not available, query cancelled (also: by its time limit).
            "55P03" | "57014" => Self::Busy(text),
            // Shutdown, crash, not accepting connections yet, too many of them, ended for idling, read-only: a server that was
            // demoted, or that is none to write to.
            "57P01" | "57P02" | "57P03" | "57P04" | "57P05" | "53300" | "25P03" | "25006" => {
                Self::Away(text)
            }
            // Completion unknown: the connection is given up and the next one finds out.
            "40003" => Self::Away(text),
            "53100" => Self::Full,
            // No such table, no such schema, no right on it.
            "42P01" | "3F000" | "42501" => Self::Denied(text),
            _ => match code.get(..2) {
                Some("08") => Self::Away(text),
                Some("53") => Self::Busy(text),
                Some("22" | "54") => Self::Unkeepable(text),
                _ => Self::Fatal(text),
            },
        }
    }

    /// The error that a reader gets.
    pub(super) fn for_reader(self) -> StoreError {
        match self {
            Self::Again => StoreError::Unreachable("other changes were in the way".to_owned()),
            Self::Busy(text) | Self::Away(text) => StoreError::Unreachable(text),
            Self::Full => StoreError::NoSpace,
            Self::Denied(text) => {
                StoreError::Unreachable(format!("no ledger can be read there: {text}"))
            }
            Self::Unkeepable(text) | Self::Fatal(text) => StoreError::Damaged(text),
        }
    }
}

/// Why a batch was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Hitch {
    /// Another transaction was quicker: begin again.
    #[error("other changes were in the way")]
    Again,
    /// A lock or a slot was not available in time.
    #[error("{0}")]
    Busy(String),
    /// The connection is unusable.
    #[error("{0}")]
    Away(String),
    /// The server's disk is full.
    #[error("the disk of the database is full")]
    Full,
    /// One of the commits cannot be written: try each by itself.
    #[error(transparent)]
    Split(StoreError),
    /// The store has to stop.
    #[error(transparent)]
    Stop(StoreError),
}

impl From<sqlx::Error> for Hitch {
    fn from(error: sqlx::Error) -> Self {
        match Trouble::of(&error) {
            Trouble::Again => Self::Again,
            Trouble::Busy(why) => Self::Busy(why),
            Trouble::Away(why) => Self::Away(why),
            Trouble::Full => Self::Full,
            Trouble::Unkeepable(why) => Self::Split(StoreError::TooLarge(why)),
            Trouble::Denied(why) | Trouble::Fatal(why) => Self::Stop(StoreError::Stopped(why)),
        }
    }
}

impl Hitch {
    /// A row cannot be read, or has no form in which it could be written.
    pub(super) const fn damaged(why: String) -> Self {
        Self::Split(StoreError::Damaged(why))
    }
}

/// What the database, or the connection, reported; never what was sent.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only these two would say too much or too little"
)]
pub(super) fn said(error: &Error) -> String {
    match error {
        Error::Database(answer) => match answer.code() {
            Some(code) => format!("{} (code {code})", answer.message()),
            None => answer.message().to_owned(),
        },
        Error::Configuration(_) => "the connection's settings are not valid".to_owned(),
        Error::Io(error) => format!("the connection failed: {error}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(code: &str) -> Trouble {
        Trouble::of_code(code, String::new())
    }

    #[test]
    fn an_answer_that_is_not_known_is_not_taken_for_a_passing_one() {
        for unknown in ["", "XX000", "42601", "99999", "2", "é"] {
            assert_eq!(code(unknown), Trouble::Fatal(String::new()), "{unknown}");
        }
    }

    #[test]
    fn answers_are_sorted_by_what_helps_against_them() {
        assert_eq!(code("40001"), Trouble::Again);
        assert_eq!(code("42P01"), Trouble::Denied(String::new()));
        assert_eq!(code("55P03"), Trouble::Busy(String::new()));
        for away in ["57P01", "57P03", "53300", "08006", "25006", "40003"] {
            assert_eq!(code(away), Trouble::Away(String::new()), "{away}");
        }
        assert_eq!(code("53100"), Trouble::Full);
        assert_eq!(code("53200"), Trouble::Busy(String::new()));
        assert_eq!(code("22021"), Trouble::Unkeepable(String::new()));
    }
}
