//! What came of the cases of a bundle, for people and programs.
//!
//! Owns how a file of cases is printed.

use placet_policy::cases::run::CaseOutcome;
use serde::Serialize;

use crate::output;

/// What came of one file of cases.
#[derive(Debug, Serialize)]
pub(super) struct FileOutcome {
    /// The file.
    pub(super) file: String,
    /// Its cases.
    pub(super) cases: Vec<CaseOutcome>,
    /// Why none of its cases could be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// Prints a file: each case, and why those that failed did.
pub(super) fn cases_told(outcome: &FileOutcome) {
    output::line(&outcome.file);
    if let Some(error) = &outcome.error {
        output::line(format!("  ✗ not run: {error}"));
    }
    for case in &outcome.cases {
        output::line(format!("  {} {}", if case.passed() { "✓" } else { "✗" }, case.name));
        if !case.passed() {
            let why = case.differences.iter().map(|difference| format!("      {difference}"));
            let how = case.explanation.iter().map(|line| format!("      | {line}"));
            why.chain(how).for_each(output::line);
        }
    }
}
