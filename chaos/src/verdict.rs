//! The verdict about a round: the checker's, and what only the harness can see.
//!
//! Owns putting both together. The checking itself is the judging half's.

use std::path::Path;

use anyhow::{Context as _, Result};
use placet_chaos::{
    checker::{self, Invariant},
    history,
    report::Report,
    witness::log,
};

/// What is known about a round.
#[derive(Debug)]
pub(crate) struct Judgement {
    /// What is wrong, one thing a line; empty: nothing. What could not be checked is in the report alone.
    pub(crate) wrong: Vec<String>,
    /// The promises that the checker found broken, and what only the harness saw.
    pub(crate) seen: Seen,
    /// What happened to whom, for each broken promise.
    pub(crate) tales: String,
    /// The round as a report.
    pub(crate) report: Report,
}

/// What is wrong, by who saw it.
#[derive(Debug)]
pub(crate) struct Seen {
    /// By the checker.
    pub(crate) broken: Vec<(Invariant, String)>,
    /// By the harness.
    pub(crate) findings: Vec<String>,
}

/// Reads the history and the witness's log, and checks them.
pub(crate) fn judge(history: &Path, witness: &Path, findings: Vec<String>) -> Result<Judgement> {
    let events = history::file::read(history)?;
    let lines = log::read(witness).context("the witness's log cannot be read")?;
    let verdict = checker::check(&events, &lines);
    let broken: Vec<(Invariant, String)> = verdict
        .violations
        .iter()
        .map(|one| (one.invariant, format!("{}: {}: {}", one.invariant, one.subject, one.why)))
        .collect();
    let mut wrong = findings.clone();
    wrong.extend(broken.iter().map(|(_, line)| line.clone()));
    let tales = verdict.violations.iter().map(ToString::to_string).collect();
    let report = Report::of(&events, &lines, &verdict).with_findings(findings.clone());
    Ok(Judgement { wrong, seen: Seen { broken, findings }, tales, report })
}
