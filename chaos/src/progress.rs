//! What a run shows of itself as it goes.
//!
//! Owns the bar on a terminal, and the plain lines where there is none.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use placet_chaos::history::fault::FaultKind;
use tokio::time::Instant;

use crate::{
    round::Round,
    say,
    schedule::{Schedule, Store},
};

/// The numbers of a run so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    /// Rounds.
    pub(crate) rounds: u64,
    /// Requests sent.
    pub(crate) requests: u64,
    /// Processes killed.
    pub(crate) kills: u64,
    /// Things that are wrong.
    pub(crate) wrong: u64,
    /// The faults that really happened, each store's apart: what one of them bears says nothing of the other.
    pub(crate) injected: BTreeMap<(Store, FaultKind), u64>,
}

impl Totals {
    /// Adds a round.
    pub(crate) fn add(&mut self, store: Store, round: &Round) {
        let (requests, _, kills) = round.counts;
        self.rounds = self.rounds.saturating_add(1);
        self.requests = self.requests.saturating_add(requests);
        self.kills = self.kills.saturating_add(kills);
        let wrong = u64::try_from(round.judgement.wrong.len()).unwrap_or(u64::MAX);
        self.wrong = self.wrong.saturating_add(wrong);
        for (kind, count) in &round.injected {
            let sum = self.injected.entry((store, *kind)).or_default();
            *sum = sum.saturating_add(*count);
        }
    }
}

/// Shows a run.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    began: Instant,
}

impl Progress {
    /// Begins to show.
    pub(crate) fn begin(length: Duration) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(length.as_secs()), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} {elapsed_precise} {bar:24} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar, began: Instant::now() }
    }

    /// A round begins.
    pub(crate) fn round(&self, schedule: &Schedule, totals: &Totals) {
        if let Some(bar) = &self.bar {
            bar.set_position(self.began.elapsed().as_secs());
            bar.set_message(format!(
                "round {} ({}, {} node{}), {} calls, {} kills, {} faults, {} violations",
                totals.rounds.saturating_add(1),
                schedule.store.name(),
                schedule.nodes,
                if schedule.nodes == 1 { "" } else { "s" },
                totals.requests,
                totals.kills,
                totals.injected.values().sum::<u64>(),
                totals.wrong,
            ));
        }
    }

    /// A round is over.
    pub(crate) fn played(&self, schedule: &Schedule, round: &Round, totals: &Totals) {
        let faults: Vec<String> =
            round.injected.iter().map(|(kind, count)| format!("{kind}:{count}")).collect();
        let (requests, _, kills) = round.counts;
        let line = format!(
            "round {} seed {} {} x{}: {requests} requests, {kills} kills, {} | {} in all | {}",
            totals.rounds,
            schedule.seed,
            schedule.store.name(),
            schedule.nodes,
            faults.join(" "),
            totals.requests,
            if round.judgement.wrong.is_empty() { "ok" } else { "VIOLATION" },
        );
        self.line(&line);
    }

    /// A line that stays.
    pub(crate) fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => say(&mut io::stderr().lock(), text),
        }
    }

    /// The end.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
