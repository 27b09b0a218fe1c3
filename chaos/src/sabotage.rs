//! Negative controls: a program without one of its guards has to be found out.
//!
//! Owns the list of guards, with the faults that reveal the absence of each and the number of seeds within which that happens. Invariant:
//! a guard whose absence is not noticed fails the command, because then the checker or the injector is broken.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, bail};
use tokio::{process::Command, time::Instant};

use crate::{
    checker::Invariant,
    history::fault::FaultKind,
    round, say,
    schedule::{self, Act, Frame, Schedule, Store},
    seeded::Chance,
    setup::Workshop,
    verdict::Judgement,
};

/// The variable that takes guards out of a build with the feature `sabotage`.
const VARIABLE: &str = "PLACET_SABOTAGE";
/// How long load and faults of one round last, in milliseconds.
const ROUND_MS: u64 = 4_000;
/// How many seeds are tried to find a schedule that can reveal it.
const DRAWN_MAX: usize = 64;

/// How the negative controls are run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A `placet` that was built with the feature `sabotage`.
    #[arg(long, value_name = "PATH")]
    placet: PathBuf,
    /// Only these guards [default: all].
    #[arg(long, value_delimiter = ',', value_name = "GUARD")]
    guards: Vec<String>,
    /// The seed of the schedules.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Which steps, and how often.
type Repeated = (fn(&Act) -> bool, usize);

/// A guard, and how its absence shows.
#[derive(Debug)]
struct Control {
    /// Its name in [`VARIABLE`].
    guard: &'static str,
    store: Store,
    nodes: usize,
    faults: &'static [FaultKind],
    /// The steps to repeat, and no others, if not every fault of the kind reveals it.
    only: Option<Repeated>,
    /// Within how many seeds it shows.
    seeds_max: u32,
    /// As which broken promise: a control that is «caught» by an accident of the round has shown nothing.
    shows: &'static [Invariant],
}

const fn embedded(
    guard: &'static str,
    faults: &'static [FaultKind],
    seeds_max: u32,
    shows: &'static [Invariant],
) -> Control {
    Control { guard, store: Store::Embedded, nodes: 1, faults, only: None, seeds_max, shows }
}

const fn shared(
    guard: &'static str,
    faults: &'static [FaultKind],
    seeds_max: u32,
    shows: &'static [Invariant],
) -> Control {
    Control { guard, store: Store::Postgres, nodes: 3, faults, only: None, seeds_max, shows }
}

impl Control {
    /// The finding of a round that reveals it, if any.
    fn shown_by(&self, judgement: &Judgement) -> Option<String> {
        let mut broken = judgement.verdict.violations.iter();
        let one = broken.find(|one| self.shows.contains(&one.invariant))?;
        let line = format!("{}: {}: {}", one.invariant, one.subject, one.why);
        Some(line.chars().take(150).collect())
    }

    const fn only(mut self, act: fn(&Act) -> bool, times: usize) -> Self {
        self.only = Some((act, times));
        self
    }
}

const fn is_kill_before_effect(act: &Act) -> bool {
    matches!(act, Act::KillAtEffect { after: false })
}

const fn is_kill_at_effect(act: &Act) -> bool {
    matches!(act, Act::KillAtEffect { .. })
}

const fn is_stop(act: &Act) -> bool {
    matches!(act, Act::Stop)
}

const fn is_policy(act: &Act) -> bool {
    matches!(act, Act::Policy)
}

/// Every guard. The bounds are several times what is usually needed: no two rounds are the same.
const CONTROLS: [Control; 14] = {
    use FaultKind::{F1, F2, F4, F6, F7, F14, F15, F16, F23, F24};
    use Invariant::{I1, I2, I3, I4, I5, I6, I8, I9, I10, I12, I13, Real};
    [
        embedded("dispatch-not-durable", &[F1, F4, F6], 3, &[I1, I2]),
        embedded("fingerprint-unchecked", &[F1, F2], 3, &[I5]),
        embedded("dispatch-after-stop", &[F23], 5, &[I8]).only(is_stop, 2),
        embedded("visibility-gate-off", &[F1, F4, F6], 8, &[I6]),
        embedded("result-never-written", &[F1, F4, F6], 3, &[I3, I6]),
        embedded("result-before-commit", &[F1, F4, F6], 3, &[I3, I4, I6]),
        embedded("approval-outside-transaction", &[F4, F14], 3, &[I10]),
        embedded("grant-uses-uncounted", &[F14], 3, &[I10]),
        shared("policy-epoch-unchecked", &[F15], 5, &[I10]).only(is_policy, 1),
        embedded("probe-guesses", &[F4], 5, &[I9, Real]).only(is_kill_before_effect, 3),
        embedded("unknown-not-executed", &[F7, F16], 3, &[I1, I12]),
        embedded("retry-opaque", &[F1, F4, F6], 8, &[I1]).only(is_kill_at_effect, 3),
        embedded("agreed-not-taken-up", &[F14], 2, &[I13]),
        embedded("refusal-undeclared", &[F24], 3, &[I1, I12]),
    ]
};

struct Outcome {
    guard: &'static str,
    seeds_max: u32,
    /// After how many seeds, and by which finding; `None`: never.
    caught: Option<(u32, String)>,
    /// What the last round showed instead of the expected promise.
    instead: Option<String>,
    seconds: u64,
}

/// Runs them; true when each was noticed.
pub(crate) async fn run(options: &Options) -> Result<bool> {
    let placet = fs::canonicalize(&options.placet)
        .with_context(|| format!("`{}` is not there", options.placet.display()))?;
    must_listen(&placet).await?;
    let unknown = options.guards.iter().find(|name| CONTROLS.iter().all(|c| c.guard != **name));
    if let Some(name) = unknown {
        bail!("there is no guard `{name}`: they are {}", CONTROLS.map(|c| c.guard).join(", "));
    }
    let folder = tempfile::Builder::new().prefix("placet-sabotage-").tempdir()?;
    let mut shop = Workshop::new(placet, folder.path()).await?;
    let mut all_caught = true;
    for control in &CONTROLS {
        if !options.guards.is_empty() && !options.guards.iter().any(|name| name == control.guard) {
            continue;
        }
        let outcome = play(&mut shop, control, options.seed).await?;
        all_caught &= outcome.caught.is_some();
        say(&mut io::stdout().lock(), &outcome.line());
    }
    Ok(all_caught)
}

/// Checks that the program can be sabotaged, or all of this would prove nothing.
async fn must_listen(placet: &Path) -> Result<()> {
    let mut command = Command::new(placet);
    command
        .args(["schema", "config"])
        .env_clear()
        .env(VARIABLE, "retry-opaque")
        .stdin(Stdio::null());
    let output = command.output().await.context("it does not start")?;
    if !String::from_utf8_lossy(&output.stderr).contains("`retry-opaque` is OUT") {
        bail!(
            "`{}` has all its guards for good: build it with `cargo build -p placet --features sabotage`",
            placet.display()
        );
    }
    Ok(())
}

async fn play(shop: &mut Workshop, control: &Control, seed: u64) -> Result<Outcome> {
    let began = Instant::now();
    let faults: BTreeSet<FaultKind> = control.faults.iter().copied().collect();
    let frame = Frame { store: control.store, nodes: control.nodes, length_ms: ROUND_MS, faults };
    if control.store == Store::Postgres && !shop.machine.can_serve_postgres() {
        bail!("`{}` needs PostgreSQL's server programs", control.guard);
    }
    shop.env = vec![(VARIABLE.to_owned(), control.guard.to_owned())];
    let mut chance = Chance::new(seed).fork(control.guard);
    let (mut caught, mut instead) = (None, None);
    for number in 1..=control.seeds_max {
        let schedule = fitting(control, &frame, &mut chance);
        let round = round::play(shop, &schedule, u64::from(number)).await?;
        round::forget(&round.folder);
        if let Some(first) = control.shown_by(&round.judgement) {
            caught = Some((number, first));
            break;
        }
        instead = round.judgement.wrong().into_iter().next().or(instead);
    }
    let (guard, seeds_max) = (control.guard, control.seeds_max);
    Ok(Outcome { guard, seeds_max, caught, instead, seconds: began.elapsed().as_secs() })
}

/// The next schedule that can show it.
fn fitting(control: &Control, frame: &Frame, chance: &mut Chance) -> Schedule {
    let mut drawn = schedule::draw(chance.next(), frame);
    let Some((wanted, times)) = control.only else { return drawn };
    for _ in 0..DRAWN_MAX {
        let found = drawn.steps.iter().find(|step| wanted(&step.act)).cloned();
        if let Some(step) = found {
            drawn.steps = std::iter::repeat_n(step, times).collect();
            break;
        }
        drawn = schedule::draw(chance.next(), frame);
    }
    drawn
}

impl Outcome {
    fn line(&self) -> String {
        let Self { guard, seeds_max, seconds, .. } = self;
        match &self.caught {
            Some((seeds, what)) => {
                format!("{guard:30} caught by seed {seeds} of {seeds_max}, {seconds} s: {what}")
            }
            None => {
                let instead = self.instead.as_deref().unwrap_or("nothing");
                format!(
                    "{guard:30} NOT CAUGHT within {seeds_max} seeds, {seconds} s; seen: {instead}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::CONTROLS;
    use crate::schedule::applies;

    #[test]
    fn every_guard_is_tried_once_and_under_faults_that_its_store_can_have() {
        let names: BTreeSet<&str> = CONTROLS.iter().map(|control| control.guard).collect();
        assert_eq!(names.len(), CONTROLS.len());
        for control in &CONTROLS {
            assert!(control.faults.iter().all(|fault| applies(*fault, control.store)));
            assert!(control.seeds_max > 0);
        }
    }
}
