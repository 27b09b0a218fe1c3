//! How a command ends: its exit code, and what a person is told when it could not do what it was asked.
//!
//! Owns the exit codes (0 ok, 1 findings or refused, 2 usage, 3 sound as far as it could be checked; for a call also 4 held, 5 refused,
//! 6 outcome unknown) and the form of a failure: what happened, why, what to do.

use std::{fmt, process::ExitCode};

/// What a command returns.
pub(crate) type Outcome = Result<Exit, Failure>;

/// The exit code of a command that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what it was asked.
    Ok,
    /// It found something, or was refused.
    Findings,
    /// It was used wrongly.
    Usage,
    /// It is sound as far as it could be checked, and a part could not be.
    Part,
    /// The call waits for approval.
    Held,
    /// The call was refused.
    Refused,
    /// The outcome of the call is unknown.
    Unknown,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Ok => Self::SUCCESS,
            Exit::Findings => Self::from(1),
            Exit::Usage => Self::from(2),
            Exit::Part => Self::from(3),
            Exit::Held => Self::from(4),
            Exit::Refused => Self::from(5),
            Exit::Unknown => Self::from(6),
        }
    }
}

/// Why a command could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    exit: Exit,
    what: String,
    why: Vec<String>,
    todo: Vec<String>,
}

impl Failure {
    /// What happened, in a sentence without a full stop.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { exit: Exit::Findings, what: what.into(), why: Vec::new(), todo: Vec::new() }
    }

    /// The command was used wrongly.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(what) }
    }

    /// The same with another exit code.
    pub(crate) fn exiting(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// Adds why.
    pub(crate) fn because(mut self, why: impl fmt::Display) -> Self {
        self.why.push(why.to_string());
        self
    }

    /// Adds what to do.
    pub(crate) fn try_this(mut self, todo: impl Into<String>) -> Self {
        self.todo.push(todo.into());
        self
    }

    /// What happened and why, in one line, for a list.
    pub(crate) fn in_a_line(&self) -> String {
        std::iter::once(&self.what).chain(&self.why).cloned().collect::<Vec<_>>().join(": ")
    }

    /// What happened, with each reason on its own.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.why.is_empty() {
            return vec![self.what.clone()];
        }
        self.why.iter().map(|why| format!("{}: {why}", self.what)).collect()
    }

    /// What to do, if known.
    pub(crate) fn remedy(&self) -> String {
        let mut remedy = String::new();
        for todo in &self.todo {
            let has_or = todo.starts_with("or ") || todo.starts_with("or, ");
            remedy.push_str(match (remedy.is_empty(), has_or) {
                (true, _) => "",
                (false, true) => "; ",
                (false, false) => "; or ",
            });
            remedy.push_str(todo);
        }
        remedy
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "placet: {}", self.what)?;
        for why in &self.why {
            write!(f, "\n  why: {why}")?;
        }
        for todo in &self.todo {
            write!(f, "\n  try: {todo}")?;
        }
        Ok(())
    }
}

/// Turns an error of a library into a failure with what was attempted.
pub(crate) trait Attempted<T> {
    /// Says what was attempted, as «cannot …».
    fn attempted(self, what: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Attempted<T> for Result<T, E> {
    fn attempted(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(what).because(error))
    }
}

#[cfg(test)]
mod tests {
    use super::{Exit, Failure};

    #[test]
    fn a_failure_says_what_why_and_what_to_do() {
        let failure =
            Failure::usage("the thing is missing").because("nobody made it").try_this("make it");
        assert_eq!(failure.exit(), Exit::Usage);
        assert_eq!(
            failure.to_string(),
            "placet: the thing is missing\n  why: nobody made it\n  try: make it"
        );
        assert_eq!(failure.in_a_line(), "the thing is missing: nobody made it");
        assert_eq!(failure.remedy(), "make it");
        let failure = failure.try_this("buy it").try_this("or, in need, do without");
        assert_eq!(failure.remedy(), "make it; or buy it; or, in need, do without");
    }
}
