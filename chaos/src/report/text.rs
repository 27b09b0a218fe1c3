//! The report for a terminal.

use std::fmt::{self, Write as _};

use super::Report;
use crate::{
    checker::{Invariant, Part, Tally},
    history::fault::FaultKind,
};

/// Violations that are told in full; the JSON has all of them.
const TOLD_MAX: usize = 20;

pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    // A string takes everything.
    write(report, &mut text).unwrap_or_default();
    text
}

fn write(report: &Report, to: &mut String) -> fmt::Result {
    head(report, to)?;
    trouble(report, to)?;
    outcome(report, to)?;
    promises(report, to)?;
    for violation in report.violations.iter().take(TOLD_MAX) {
        write!(to, "\n{violation}")?;
    }
    let surplus = report.violations.len().saturating_sub(TOLD_MAX);
    if surplus > 0 {
        writeln!(to, "\n… and {surplus} more")?;
    }
    for note in report.notes() {
        writeln!(to, "\nNOTE {note}")?;
    }
    if report.passed {
        return writeln!(to, "\nPASSED");
    }
    writeln!(to, "\nFAILED")?;
    report.reasons().iter().try_for_each(|reason| writeln!(to, "  {reason}"))
}

fn head(report: &Report, to: &mut String) -> fmt::Result {
    if let Some(run) = &report.run {
        writeln!(to, "seed         {}", run.seed)?;
        writeln!(to, "commit       {}", run.commit)?;
        writeln!(to, "machine      {}", run.machine)?;
        writeln!(to, "set-up       {}", report.set_ups.join("; "))?;
    }
    writeln!(
        to,
        "lasted       {} in {} round(s); {} more could not be played",
        seconds(report.lasted_ms),
        grouped(report.rounds),
        grouped(report.unplayed)
    )
}

fn trouble(report: &Report, to: &mut String) -> fmt::Result {
    let trouble = &report.trouble;
    writeln!(to, "\nkills        {}", grouped(trouble.kills))?;
    writeln!(to, "pauses       {}", grouped(trouble.pauses))?;
    writeln!(
        to,
        "starts       {} refused rightly, {} failed under a fault",
        grouped(trouble.refusals),
        grouped(trouble.failed_starts)
    )?;
    writeln!(to, "ended        {} times by themselves", grouped(trouble.exits))?;
    writeln!(to, "faults       {}", grouped(trouble.faults.values().sum()))?;
    for kind in FaultKind::ALL {
        let count = trouble.faults.get(kind).copied().unwrap_or_default();
        let never = trouble.never.contains(kind);
        let mark = match (count, never) {
            (0, true) => " NEVER",
            (0, false) => " (does not apply)",
            _ => "",
        };
        writeln!(to, "  {:<4}{:>9}  {}{mark}", kind.name(), grouped(count), kind.title())?;
    }
    Ok(())
}

fn outcome(report: &Report, to: &mut String) -> fmt::Result {
    let (asked, outcome) = (&report.asked, &report.outcome);
    writeln!(to, "\ncalls        {} of {} keys", grouped(asked.calls), grouped(asked.keys))?;
    writeln!(to, "duplicates   {}", grouped(asked.duplicates))?;
    let losses: Vec<String> =
        asked.losses.iter().map(|(how, count)| format!("{} {how}", grouped(*count))).collect();
    let of = if losses.is_empty() { String::new() } else { format!(" ({})", losses.join(", ")) };
    writeln!(to, "unanswered   {}{of}", grouped(asked.unanswered))?;
    writeln!(to, "votes        {}, and {} grants", grouped(asked.votes), grouped(asked.grants))?;
    writeln!(to, "effects      {}", grouped(outcome.effects))?;
    writeln!(to, "acknowledged {}", grouped(outcome.acknowledged))?;
    writeln!(to, "lost         {}", outcome.lost)?;
    writeln!(to, "phantom      {}", outcome.phantom)?;
    writeln!(to, "double       {}", outcome.double)?;
    writeln!(to, "hung     {}", outcome.hung)?;
    writeln!(
        to,
        "unknown      {} keys ({})",
        grouped(outcome.indeterminate),
        percent(outcome.indeterminate_rate)
    )?;
    let replay = &outcome.replay;
    writeln!(
        to,
        "replays      {} of {} correct ({}, TM-21)",
        grouped(replay.correct),
        grouped(replay.judged),
        percent(replay.rate)
    )?;
    for (name, spread) in [("recovery", &report.recovery), ("answers", &report.latency)] {
        writeln!(
            to,
            "{name:<13}p50 {} ms, p99 {} ms, max {} ms ({})",
            spread.p50_ms,
            spread.p99_ms,
            spread.max_ms,
            grouped(spread.count)
        )?;
    }
    Ok(())
}

fn promises(report: &Report, to: &mut String) -> fmt::Result {
    writeln!(to)?;
    for invariant in Invariant::ALL {
        let broken = report.broken.get(invariant.name()).copied().unwrap_or_default();
        let missing = report.unchecked.iter().find(|one| one.invariant == *invariant);
        let verdict = match (broken, missing) {
            (0, None) => "kept".to_owned(),
            (0, Some(_)) => "NOT CHECKED".to_owned(),
            _ => format!("BROKEN {broken} times"),
        };
        writeln!(to, "{:<5}{:<18} {}", invariant.name(), verdict, invariant.title())?;
        for line in tallies(report, *invariant) {
            writeln!(to, "{:<24}{line}", "")?;
        }
    }
    Ok(())
}

/// How much was judged of the parts of a promise, a line for each of which something may have to be left out.
pub(super) fn tallies(report: &Report, of: Invariant) -> impl Iterator<Item = String> {
    let parts = Part::ALL.iter().filter(move |part| part.of() == of);
    parts.filter_map(move |part| {
        let counts = report.tallies.get(part.name())?;
        Some(format!("{part}: {}", tally(counts)))
    })
}

/// How much was judged, and how much was not and why.
fn tally(tally: &Tally) -> String {
    let mut text = format!("{} judged", grouped(tally.judged));
    for (why, count) in &tally.unjudged {
        text.push_str(&format!(", {} not judged ({why})", grouped(*count)));
    }
    text
}

/// A number with its thousands set off.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && digits.len().saturating_sub(place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share in hundredths. What is not all is never shown as all.
pub(super) fn percent(share: f64) -> String {
    let hundredths = (share * 10_000.0).floor() / 100.0;
    if share >= 1.0 { "100 %".to_owned() } else { format!("{hundredths:.2} %") }
}

/// Milliseconds in words.
pub(super) fn seconds(ms: u64) -> String {
    let (minutes, seconds) = (ms / 60_000, ms % 60_000 / 1_000);
    if minutes > 0 {
        format!("{minutes} min {seconds} s")
    } else {
        format!("{seconds}.{} s", ms % 1_000 / 100)
    }
}
