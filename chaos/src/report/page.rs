//! The report as one page: style and charts are in it, it fetches nothing and runs nothing.

use std::fmt::{self, Write as _};

use super::{
    Report,
    chart::{Bar, bars, course, escape, spread},
    text::{grouped, percent, seconds, tallies},
};
use crate::{
    checker::Invariant,
    history::{
        fault::FaultKind,
        request::{Answer, Why},
    },
};

const STYLE: &str = include_str!("style.css");
/// Violations on the page; the JSON has all of them.
const TOLD_MAX: usize = 200;

pub(super) fn render(report: &Report) -> String {
    let mut page = String::new();
    // A string takes everything.
    write(report, &mut page).unwrap_or_default();
    page
}

fn write(report: &Report, to: &mut String) -> fmt::Result {
    let seed = report.run.as_ref().map(|run| run.seed).unwrap_or_default();
    write!(
        to,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Chaos report, seed {seed}</title><style>{STYLE}</style></head><body>\n\
         <h1>The ledger under fire</h1>"
    )?;
    set_up(report, to)?;
    verdict(report, to)?;
    tiles(report, to)?;
    promises(report, to)?;
    charts(report, to)?;
    violations(report, to)?;
    writeln!(to, "</body></html>")
}

fn set_up(report: &Report, to: &mut String) -> fmt::Result {
    let Some(run) = &report.run else { return Ok(()) };
    write!(
        to,
        "<dl><dt>Seed</dt><dd>{}</dd><dt>Commit</dt><dd>{}</dd><dt>Machine</dt><dd>{}</dd>\
         <dt>Set-up</dt><dd>{}</dd><dt>Lasted</dt><dd>{} in {} {}</dd></dl>",
        run.seed,
        escape(&run.commit),
        escape(&run.machine),
        escape(&report.set_ups.join("; ")),
        seconds(report.lasted_ms),
        grouped(report.rounds),
        if report.rounds == 1 { "round" } else { "rounds" }
    )
}

fn verdict(report: &Report, to: &mut String) -> fmt::Result {
    if report.passed {
        return write!(
            to,
            "<div class=\"verdict\"><strong>Passed.</strong> Every promise was checked and kept, \
             and every fault that can happen did.</div>"
        );
    }
    write!(to, "<div class=\"verdict failed\"><strong>Failed.</strong><ul>")?;
    for reason in report.reasons() {
        write!(to, "<li>{}</li>", escape(&reason))?;
    }
    write!(to, "</ul></div>")
}

fn tiles(report: &Report, to: &mut String) -> fmt::Result {
    let (trouble, asked, outcome) = (&report.trouble, &report.asked, &report.outcome);
    let zero = |count: u64| if count == 0 { "good" } else { "bad" };
    let replay = if outcome.replay.correct == outcome.replay.judged { "good" } else { "bad" };
    let tiles = [
        (grouped(trouble.kills), "kills", ""),
        (grouped(trouble.faults.values().sum()), "faults", ""),
        (grouped(asked.calls), "calls", ""),
        (grouped(asked.duplicates), "duplicates", ""),
        (grouped(outcome.acknowledged), "keys acknowledged", ""),
        (grouped(outcome.lost), "lost", zero(outcome.lost)),
        (grouped(outcome.double), "done twice", zero(outcome.double)),
        (grouped(outcome.phantom), "phantom", zero(outcome.phantom)),
        (grouped(outcome.hung), "hung", zero(outcome.hung)),
        (percent(outcome.indeterminate_rate), "outcome unknown", ""),
        (percent(outcome.replay.rate), "replays correct (TM-21)", replay),
        (format!("{} ms", grouped(report.recovery.p99_ms)), "recovery, p99", ""),
    ];
    write!(to, "<div class=\"tiles\">")?;
    for (value, name, tone) in tiles {
        write!(to, "<div class=\"tile {tone}\"><b>{value}</b><span>{name}</span></div>")?;
    }
    write!(to, "</div>")
}

fn promises(report: &Report, to: &mut String) -> fmt::Result {
    write!(
        to,
        "<h2>Promises</h2><table><tr><th></th><th>What is promised</th><th>In this run</th></tr>"
    )?;
    for invariant in Invariant::ALL {
        let broken = report.broken.get(invariant.name()).copied().unwrap_or_default();
        let missing = report.unchecked.iter().find(|one| one.invariant == *invariant);
        let (tone, said) = match (broken, missing) {
            (0, None) => ("kept", "kept".to_owned()),
            (0, Some(_)) => ("missing", "not checked".to_owned()),
            _ => ("broken", format!("broken {} ×", grouped(broken))),
        };
        write!(
            to,
            "<tr><td>{}</td><td>{}</td><td class=\"{tone}\">{said}",
            invariant.name(),
            escape(invariant.title())
        )?;
        for line in tallies(report, *invariant) {
            write!(to, "<div class=\"soft\">{}</div>", escape(&line))?;
        }
        write!(to, "</td></tr>")?;
    }
    write!(to, "</table>")?;
    for note in report.notes() {
        write!(to, "<p class=\"soft\">{}</p>", escape(&note))?;
    }
    Ok(())
}

fn charts(report: &Report, to: &mut String) -> fmt::Result {
    write!(
        to,
        "<h2>The run as it went</h2>{}",
        course("Answers and faults over time", &report.slices)
    )?;
    legend(
        to,
        &[
            ("good", "succeeded"),
            ("calm", "other answers"),
            ("faint", "answers lost"),
            ("bad", "kills"),
            ("warn", "faults"),
        ],
    )?;
    write!(to, "<h2>Faults by kind</h2>{}", bars("Faults by kind", &faults(report)))?;
    write!(to, "<h2>Duplicates by kind</h2>{}", bars("Duplicates by kind", &duplicates(report)))?;
    write!(to, "<h2>Answers</h2>{}", bars("Answers by kind", &answers(report)))?;
    for (title, times) in [("Recovery times", &report.recovery), ("Answer times", &report.latency)]
    {
        write!(to, "<h2>{title}</h2>{}", spread(title, times))?;
        write!(
            to,
            "<p class=\"soft\">{} in all: p50 {} ms, p99 {} ms, longest {} ms.</p>",
            grouped(times.count),
            grouped(times.p50_ms),
            grouped(times.p99_ms),
            grouped(times.max_ms)
        )?;
    }
    Ok(())
}

fn legend(to: &mut String, keys: &[(&str, &str)]) -> fmt::Result {
    write!(to, "<div class=\"keys\">")?;
    for (tone, name) in keys {
        write!(to, "<span><i class=\"{tone}\"></i>{name}</span>")?;
    }
    write!(to, "</div>")
}

fn faults(report: &Report) -> Vec<Bar> {
    let bar = |kind: &FaultKind| {
        let value = report.trouble.faults.get(kind).copied().unwrap_or_default();
        let note = match (value, report.trouble.never.contains(kind)) {
            (0, true) => Some("never happened".to_owned()),
            (0, false) => Some("does not apply".to_owned()),
            _ => None,
        };
        let title = shortened(kind.title());
        Bar { label: format!("{}  {title}", kind.name()), value, tone: "warn", note }
    };
    FaultKind::ALL.iter().map(bar).collect()
}

/// As much of a title as fits beside a bar.
fn shortened(title: &str) -> String {
    const LENGTH_MAX: usize = 42;
    if title.chars().count() <= LENGTH_MAX {
        return title.to_owned();
    }
    let cut: String = title.chars().take(LENGTH_MAX).collect();
    let whole = cut.rsplit_once(' ').map_or(cut.as_str(), |(words, _)| words);
    format!("{} …", whole.trim_end_matches([',', ':']))
}

fn duplicates(report: &Report) -> Vec<Bar> {
    let name = |why: Why| match why {
        Why::New => "first of its key",
        Why::Immediately => "at once",
        Why::InFlight => "while under way",
        Why::AfterSuccess => "after a success",
        Why::AfterFailure => "after a failure",
        Why::AfterRestart => "after a restart",
        Why::AfterLoss => "after a lost answer",
        Why::ChangedArgs => "with other arguments",
        Why::EqualForm => "in another form",
        Why::OtherPrincipal => "from another principal",
        Why::Poll => "a look",
        Why::Final => "at the end",
    };
    let bar = |(why, count): (&Why, &u64)| Bar {
        label: name(*why).to_owned(),
        value: *count,
        tone: "calm",
        note: None,
    };
    report.asked.kinds.iter().map(bar).collect()
}

fn answers(report: &Report) -> Vec<Bar> {
    let name = |answer: Answer| match answer {
        Answer::Succeeded => ("succeeded", "good"),
        Answer::Failed => ("failed upstream", "warn"),
        Answer::Pending => ("waits for people", "calm"),
        Answer::InProgress => ("under way", "calm"),
        Answer::Unknown => ("outcome unknown", "warn"),
        Answer::Conflict => ("key stands for another call", "calm"),
        Answer::Expired => ("result no longer kept", "calm"),
        Answer::Denied => ("people said no", "calm"),
        Answer::Refused => ("refused, not executed", "faint"),
        Answer::InvalidResponse => ("no answer of Placet's", "bad"),
    };
    let bar = |(answer, count): (&Answer, &u64)| {
        let (label, tone) = name(*answer);
        Bar { label: label.to_owned(), value: *count, tone, note: None }
    };
    report.outcome.answers.iter().map(bar).collect()
}

fn violations(report: &Report, to: &mut String) -> fmt::Result {
    if report.violations.is_empty() {
        return Ok(());
    }
    write!(to, "<h2>Broken promises</h2>")?;
    for violation in report.violations.iter().take(TOLD_MAX) {
        write!(
            to,
            "<details><summary><strong>{}</strong> {}: {}</summary><pre>",
            violation.invariant,
            escape(&violation.subject),
            escape(&violation.why)
        )?;
        for event in &violation.events {
            writeln!(to, "{}", escape(event))?;
        }
        write!(to, "</pre></details>")?;
    }
    let surplus = report.violations.len().saturating_sub(TOLD_MAX);
    if surplus > 0 {
        write!(to, "<p class=\"soft\">{surplus} more are in the JSON report.</p>")?;
    }
    Ok(())
}
