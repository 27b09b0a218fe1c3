//! `placet demo`: what Placet guarantees, shown on a real engine and real files, in seconds.
//!
//! Owns the story: which steps there are, in which order, what each proves. Invariants: nothing but loopback is contacted; every
//! effect is verified on the disk, not believed; a step that does not hold ends the demo with a nonzero code; what was
//! started is stopped and what was written is deleted.

mod host;
mod people;
mod steps;

use std::{future::Future, path::PathBuf, pin::Pin};

use clap::Args as ClapArgs;
use tokio::time::Instant;

use self::host::Host;
use crate::{
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output,
};

/// Show what Placet guarantees, on real files, in seconds.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Nothing is needed but this program, and nothing but loopback is spoken to. Exit code 1 if anything does not hold."
)]
pub(crate) struct Args {
    /// Keep the data folder for inspection.
    #[arg(long)]
    keep: bool,
}

/// What a step shows on success, or what did not hold.
type Shown = Result<Vec<String>, String>;
/// A step in progress.
type Showing<'a> = Pin<Box<dyn Future<Output = Shown> + 'a>>;

/// One step of the story.
struct Step {
    title: &'static str,
    proves: &'static str,
    show: for<'a> fn(&'a mut Stage) -> Showing<'a>,
}

/// The running engine and what later steps need of earlier ones.
#[derive(Debug)]
struct Stage {
    host: Host,
    /// The approval of the delete.
    delete: Option<people::Pending>,
    /// The record whose outcome is unknown.
    record: Option<String>,
}

/// The story.
const STEPS: &[Step] = &[
    Step {
        title: "A bad argument is refused, and the message says what to fix",
        proves: "nothing reaches a tool that its contract does not describe",
        show: |stage| Box::pin(steps::bad_argument(stage)),
    },
    Step {
        title: "A read is allowed",
        proves: "what policy permits runs at once, and is audited",
        show: |stage| Box::pin(steps::read(stage)),
    },
    Step {
        title: "A delete is held: nothing happens until people agree",
        proves: "a destructive call has no effect before an approval",
        show: |stage| Box::pin(steps::held(stage)),
    },
    Step {
        title: "The approver sees exactly what would run; others cannot approve it",
        proves: "an approval is for what was shown, by somebody policy lets decide: never the agent or its owner",
        show: |stage| Box::pin(steps::shown(stage)),
    },
    Step {
        title: "Approved, it is executed",
        proves: "the agreed call runs even though its caller had gone",
        show: |stage| Box::pin(steps::approved(stage)),
    },
    Step {
        title: "The same call again is a replay, not a second effect",
        proves: "at most once: the recorded result is given again",
        show: |stage| Box::pin(steps::replayed(stage)),
    },
    Step {
        title: "The same key with other arguments is refused",
        proves: "a key stands for one call, not for a permission",
        show: |stage| Box::pin(steps::conflict(stage)),
    },
    Step {
        title: "Arguments changed on disk after they were shown never run",
        proves: "what was approved is what runs, or nothing does",
        show: |stage| Box::pin(steps::altered(stage)),
    },
    Step {
        title: "Killed between the effect and its record: the outcome is unknown, and nothing is guessed",
        proves: "after a crash no effect is repeated on the chance that it had not happened",
        show: |stage| Box::pin(steps::killed(stage)),
    },
    Step {
        title: "An operator resolves it with evidence",
        proves: "an unknown outcome ends by a person, and the retry gets the answer",
        show: |stage| Box::pin(steps::resolved(stage)),
    },
    Step {
        title: "The audit chain is verified; one changed byte in a copy is found",
        proves: "a changed byte in what happened is found",
        show: |stage| Box::pin(steps::audited(stage)),
    },
];

/// Shows everything.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let executable = environment.executable().ok_or_else(|| {
        Failure::new("the program cannot find itself, and the demo starts it as a server")
    })?;
    let folder = tempfile::Builder::new()
        .prefix("placet-demo-")
        .tempdir()
        .attempted("no temporary folder can be made")
        .map_err(|failure| failure.try_this("name a folder that can be written with TMPDIR"))?;
    let began = Instant::now();
    output::line(format!(
        "Placet demo: a real engine and real files in {}, nothing but loopback.\n",
        folder.path().display()
    ));
    let host = Host::start(executable.to_owned(), folder.path().to_owned()).await?;
    let mut stage = Stage { host, delete: None, record: None };
    let held = story(&mut stage).await;
    stage.host.stop().await.unwrap_or_default();
    let kept: Option<PathBuf> = args.keep.then(|| folder.keep());
    if let Some(kept) = kept {
        output::line(format!("\nkept: {}", kept.display()));
    }
    let seconds = began.elapsed().as_secs_f64();
    match held {
        Ok(()) => {
            output::line(format!("\nAll {} steps hold ({seconds:.1} s).", STEPS.len()));
            Ok(Exit::Ok)
        }
        Err(step) => Err(Failure::new(format!("step {step} does not hold"))
            .try_this("run it again with --keep and look at engine.log")),
    }
}

/// Tells every step; stops at the first that does not hold, because later ones build on it.
async fn story(stage: &mut Stage) -> Result<(), usize> {
    for (step, number) in STEPS.iter().zip(1_usize..) {
        let began = Instant::now();
        let shown = (step.show)(stage).await;
        let ms = began.elapsed().as_millis();
        let (mark, lines) = match &shown {
            Ok(lines) => ("✓", lines.clone()),
            Err(why) => ("✗", vec![format!("DOES NOT HOLD: {why}")]),
        };
        output::line(format!("{number:>2} {mark} {}  ({ms} ms)", step.title));
        lines.iter().for_each(|line| output::line(format!("     {line}")));
        if shown.is_err() {
            stage.host.log_tail().iter().for_each(|line| output::line(format!("     | {line}")));
            return Err(number);
        }
        output::line(format!("     → {}", step.proves));
    }
    Ok(())
}
