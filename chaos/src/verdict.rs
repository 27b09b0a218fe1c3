//! The verdict about a round: the checker's, and the harness's own findings.
//!
//! Owns combining both. The checking itself is in the judging half.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::{
    checker::{self, Verdict},
    history::{self, Event},
    witness::log::{self, Line},
};

/// What is known about a round.
#[derive(Debug)]
pub(crate) struct Judgement {
    pub(crate) events: Vec<Event>,
    /// What the witness saw.
    pub(crate) lines: Vec<Line>,
    pub(crate) verdict: Verdict,
    /// The harness's own findings.
    pub(crate) findings: Vec<String>,
}

impl Judgement {
    /// All findings, one a line; empty: none. What could not be checked is in the report only.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let broken = self.verdict.violations.iter();
        let broken = broken.map(|one| format!("{}: {}: {}", one.invariant, one.subject, one.why));
        self.findings.iter().cloned().chain(broken).collect()
    }
}

/// Reads the history and the witness's log, and checks them.
pub(crate) fn judge(history: &Path, witness: &Path, findings: Vec<String>) -> Result<Judgement> {
    let events = history::file::read(history)?;
    let lines = log::read(witness).context("the witness's log cannot be read")?;
    let verdict = checker::check(&events, &lines);
    Ok(Judgement { events, lines, verdict, findings })
}
