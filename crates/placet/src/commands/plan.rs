//! `placet plan`: a model works on a task, and every call it makes is decided by a running Placet.
//!
//! Owns the file that keeps a plan's progress, and what a person sees of it. The loop is `placet-planner`'s. Invariant: progress is
//! durable before a batch is sent, so that an interrupted plan resumes and no write is made twice.

mod toolbox;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args as ClapArgs, Subcommand};
use placet_planner::{Held, Outcome as PlanOutcome, Plan, Progress, React, StepError};
use placet_types::clock::IdSource as _;
use secrecy::SecretString;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    client::{Client, ClientArgs},
    clock::{SystemClock, UlidSource},
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output,
    yaml::{self, FileProblem},
};

use toolbox::Remote;

const TASK_BYTES_MAX: usize = 64 * 1024;

/// Let a model work on a task with the tools you may call.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet plan run triage.yaml --task \"Close what is solved.\"\n  \
    placet plan run triage.yaml --task \"Close what is solved.\" --wait 300\n  \
    placet plan resume triage.state.json    # when people have decided, or after a crash\n\n\
    Exit codes: 0 it has an answer, 1 a limit of the plan ended it or it failed, 2 usage, 4 calls wait for approval.")]
pub(crate) struct Args {
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start a plan.
    Run {
        /// The plan: model, prompts, tools and limits, in YAML.
        file: PathBuf,
        /// What the model is to do.
        #[arg(long, value_name = "TEXT")]
        task: String,
        /// The file for its progress [default: next to the plan, FILE.state.json].
        #[arg(long, value_name = "FILE")]
        state: Option<PathBuf>,
        /// How many seconds to wait for approvals, in total.
        #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=86_400))]
        wait: u64,
    },
    /// Resume a plan that waits for approval or was interrupted.
    Resume {
        /// The file with its progress.
        state: PathBuf,
        /// How many seconds to wait for approvals, in total.
        #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=86_400))]
        wait: u64,
    },
}

/// Begins or resumes a plan.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = Client::of(&args.client, environment)?;
    let (state, mut progress, wait) = match &args.action {
        Action::Run { file, task, state, wait } => {
            let state = state.clone().unwrap_or_else(|| file.with_extension("state.json"));
            let progress = begun(file, task, &state, environment)?;
            save(&state, &progress)?;
            (state, progress, *wait)
        }
        Action::Resume { state, wait } => (state.clone(), restored(state)?, *wait),
    };
    output::note(format!("run {}, progress in {}", progress.run_id, state.display()));
    let client = client.traced(&progress.traceparent);
    let key = environment.get(&progress.plan.model.key_variable).map(SecretString::from);
    let model = progress
        .plan
        .model
        .client(key.as_ref())
        .map_err(|error| Failure::usage("the plan's model cannot be called").because(error))?;
    let toolbox = Remote { client: client.clone(), state: state.clone() };
    if !progress.has_ended() {
        let caller = toolbox.caller(&progress).await;
        let caller =
            caller.map_err(|error| stopped(StepError::Toolbox(error), &state, environment))?;
        match progress.caller.as_ref().filter(|begun| **begun != caller) {
            Some(begun) => return Err(of_another(begun, &caller)),
            None => progress.caller = Some(caller),
        }
        save(&state, &progress)?;
    }
    let mut react = React::new(model, toolbox, progress);
    let until = Instant::now() + Duration::from_secs(wait);
    let outcome = loop {
        let outcome = react.run().await.map_err(|error| stopped(error, &state, environment))?;
        let PlanOutcome::Parked(held) = &outcome else { break outcome };
        if Instant::now() >= until {
            break outcome;
        }
        settled(&client, held, until).await?;
    };
    tell(&client, &outcome, react.progress(), &state, environment)
}

/// A new plan, if no progress of another one is in the way.
fn begun(
    file: &Path,
    task: &str,
    state: &Path,
    environment: &Environment,
) -> Result<Progress, Failure> {
    let unusable =
        |problem: FileProblem| Failure::usage("the plan cannot be used").because(problem);
    let mut plan: Plan = yaml::read(file).map_err(unusable)?;
    plan.check().map_err(|error| unusable(FileProblem::at(file, error.key, error.problem)))?;
    if let Some(choice) = environment.get("OPENAI_TOOL_CHOICE") {
        plan = plan.with_tool_choice(&choice).map_err(|error| {
            Failure::usage("`OPENAI_TOOL_CHOICE` cannot be used").because(error.problem)
        })?;
    }
    if task.trim().is_empty() || task.len() > TASK_BYTES_MAX {
        return Err(Failure::usage("`--task` is empty or longer than 64 KiB"));
    }
    let is_there =
        state.try_exists().attempted(format!("`{}` cannot be looked at", state.display()))?;
    if is_there && !restored(state)?.has_ended() {
        let resume = format!("{} plan resume {}", environment.program(), state.display());
        return Err(Failure::usage(format!(
            "a plan that is not finished is kept in `{}`",
            state.display()
        ))
        .try_this(format!("{resume}  (goes on with it)"))
        .try_this("name another file with --state, or remove this one"));
    }
    let ids = UlidSource::new(SystemClock);
    let run_id = format!("run_{}", ids.fresh());
    Ok(Progress::begin(plan, task, run_id, traceparent(&ids)))
}

/// A trace of its own (W3C Trace Context).
fn traceparent(ids: &UlidSource<SystemClock>) -> String {
    let number = || ulid::Ulid::from_string(&ids.fresh()).map_or(1, u128::from);
    let span = number() & u128::from(u64::MAX);
    format!("00-{:032x}-{span:016x}-01", number())
}

fn restored(state: &Path) -> Result<Progress, Failure> {
    let text = yaml::read_text(state)
        .map_err(|problem| Failure::usage("there is no progress to go on from").because(problem))?;
    let progress: Progress = serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("`{}` is not the progress of a plan", state.display()))
            .because(error)
    })?;
    progress.plan.check().map_err(|error| {
        Failure::usage(format!("`{}` has a plan that cannot be used", state.display()))
            .because(error)
    })?;
    Ok(progress)
}

/// Saves the progress: only its owner may read it, since it holds the answers of tools.
fn save(state: &Path, progress: &Progress) -> Result<(), Failure> {
    let what = || format!("the progress cannot be kept in `{}`", state.display());
    let folder = match state.parent() {
        Some(folder) if folder != Path::new("") => folder,
        Some(_) | None => Path::new("."),
    };
    let mut draft = tempfile::NamedTempFile::new_in(folder).attempted(what())?;
    serde_json::to_writer(&mut draft, progress).attempted(what())?;
    draft.flush().and_then(|()| draft.as_file().sync_all()).attempted(what())?;
    draft.persist(state).attempted(what())?;
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).attempted(what())
}

/// Waits until people have decided about each of the calls, or until the deadline.
async fn settled(client: &Client, held: &[Held], until: Instant) -> Result<(), Failure> {
    for Held { tool, tool_call_id, approval_id } in held {
        output::note(format!("{tool} waits for people: approval {approval_id}"));
        let left = until.saturating_duration_since(Instant::now()).min(Duration::from_secs(600));
        let wait_ms = left.as_millis().to_string();
        client.fetch(&["v1", "calls", tool_call_id], &[("wait_ms", &wait_ms)]).await?;
    }
    Ok(())
}

/// A plan that another caller began.
fn of_another(begun: &(String, Option<String>), caller: &(String, Option<String>)) -> Failure {
    let shown = |(agent, user): &(String, Option<String>)| match user {
        Some(user) => format!("agent `{agent}` for user `{user}`"),
        None => format!("agent `{agent}`"),
    };
    Failure::new(format!(
        "{} began the plan, and {} would make its writes again",
        shown(begun),
        shown(caller)
    ))
    .try_this("resume it with a token of the caller who began it")
    .try_this("or start the task again with `placet plan run`")
}

/// Why a plan stopped, and how to resume it.
fn stopped(error: StepError<Failure>, state: &Path, environment: &Environment) -> Failure {
    let failure = match error {
        StepError::Toolbox(failure) => failure,
        other @ (StepError::Chat(_) | StepError::Incomplete | StepError::Misread) => {
            Failure::new("the plan stopped").because(other)
        }
    };
    failure.try_this(format!("{} plan resume {}", environment.program(), state.display()))
}

/// Prints the state of the plan.
fn tell(
    client: &Client,
    outcome: &PlanOutcome,
    progress: &Progress,
    state: &Path,
    environment: &Environment,
) -> Outcome {
    let (status, held, limit, exit) = match outcome {
        PlanOutcome::Answered(_) => ("answered", &[][..], None, Exit::Ok),
        PlanOutcome::Parked(held) => ("held", held.as_slice(), None, Exit::Held),
        PlanOutcome::Bounded(limit) => ("limited", &[][..], Some(limit), Exit::Findings),
    };
    let document = json!({
        "status": status, "answer": progress.answer, "held": held, "limit": limit, "run_id": progress.run_id,
        "iterations": progress.iteration, "tokens": progress.tokens, "state": state,
    });
    client.answer(&document, |_| match outcome {
        PlanOutcome::Answered(answer) => output::line(answer),
        PlanOutcome::Parked(held) => {
            for Held { tool, approval_id, .. } in held {
                output::line(format!("{tool} waits for people: approval {approval_id}"));
            }
            let program = environment.program();
            output::line(format!("  then: {program} plan resume {}", state.display()));
        }
        PlanOutcome::Bounded(limit) => output::line(format!(
            "`limits.{limit}` ended the plan after {} and {} without an answer",
            output::counted(progress.iteration, "iteration", "iterations"),
            output::counted(progress.tokens, "token", "tokens"),
        )),
    })?;
    Ok(exit)
}
