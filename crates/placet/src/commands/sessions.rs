//! `placet sessions`: runs that keep their calls, for simulations.
//!
//! Owns the words. What a session is the engine says.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::{Args as ClapArgs, Subcommand};
use placet_engine::runs::{
    batch_views::{Batch, CallResult},
    sessions::{OpenSession, SessionResults, SessionView},
};
use placet_types::{
    ids::{AdapterName, RunId},
    mode::ApprovalMode,
    run_context::BudgetRequest,
};

use crate::{
    client::{Client, ClientArgs},
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    output, yaml,
};

const RESULT_CHARS_SHOWN: usize = 80;

/// Try tools in sessions, and simulate calls.
#[derive(Debug, ClapArgs)]
#[command(after_help = "CALLS is a file in JSON or YAML, or `-`:\n  \
    {\"batch_id\": \"b1\", \"calls\": [{\"id\": \"1\", \"tool\": \"weather::get\", \"args\": {\"city\": \"Bern\"}}]}\n\n\
    Examples:\n  placet sessions open s1 --namespace weather_api=weather\n  placet sessions execute s1 calls.json\n  \
    placet sessions simulate s1 calls.json\n  placet sessions show s1\n  placet sessions close s1")]
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
    /// Open one.
    Open {
        /// Its id.
        session: RunId,
        /// The highest mode of its calls [default: what the agent's class allows].
        #[arg(long)]
        safety_mode: Option<ApprovalMode>,
        /// The adapter that a namespace stands for in `namespace::tool`.
        #[arg(long = "namespace", value_name = "NAME=ADAPTER")]
        namespaces: Vec<String>,
    },
    /// Make calls, in order, and keep them.
    Execute {
        /// The session.
        session: RunId,
        /// The calls.
        calls: PathBuf,
    },
    /// Make calls of which nothing is left in the session.
    Simulate {
        /// The session.
        session: RunId,
        /// The calls.
        calls: PathBuf,
    },
    /// Show its calls.
    Show {
        /// The session.
        session: RunId,
    },
    /// End it; safe to repeat.
    Close {
        /// The session.
        session: RunId,
    },
}

/// Does it.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = Client::of(&args.client, environment)?;
    match &args.action {
        Action::Open { session, safety_mode, namespaces } => {
            let request = OpenSession {
                session_id: session.clone(),
                safety_mode: *safety_mode,
                run_budget: BudgetRequest::default(),
                taint: std::collections::BTreeSet::new(),
                namespaces: named(namespaces)?,
            };
            client.answer(&client.post(&["v1", "sessions"], &request).await?.document()?, show)
        }
        Action::Execute { session, calls } => made(&client, session, "execute", calls).await,
        Action::Simulate { session, calls } => made(&client, session, "simulate", calls).await,
        Action::Show { session } => {
            client.answer(&client.get(&["v1", "sessions", session.as_str()], &[]).await?, show)
        }
        Action::Close { session } => {
            let closed = client.delete(&["v1", "sessions", session.as_str()]).await?;
            if !closed.status.is_success() {
                return Err(closed.refusal());
            }
            output::note(format!("session {session} is closed"));
            Ok(Exit::Ok)
        }
    }
}

fn named(namespaces: &[String]) -> Result<BTreeMap<String, AdapterName>, Failure> {
    let one = |text: &String| {
        let (name, adapter) = text
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("`--namespace {text}` is not NAME=ADAPTER")))?;
        let adapter = AdapterName::new(adapter)
            .map_err(|error| Failure::usage(format!("`--namespace {text}`")).because(error))?;
        Ok((name.to_owned(), adapter))
    };
    namespaces.iter().map(one).collect()
}

async fn made(client: &Client, session: &RunId, how: &str, file: &Path) -> Outcome {
    let read = yaml::read_input(file).and_then(|text| yaml::parse(file, &text));
    let batch: Batch =
        read.map_err(|problem| Failure::usage("the calls cannot be read").because(problem))?;
    let reply = client.post(&["v1", "sessions", session.as_str(), how], &batch).await?;
    client.answer(&reply.document()?, |made: &SessionResults| {
        let rows = made.results.iter().map(|result| {
            let status = serde_json::to_value(result.status).unwrap_or_default();
            let status = status.as_str().unwrap_or_default().to_owned();
            [result.id.clone(), result.tool.clone(), status, told(result)]
        });
        output::table(["id", "tool", "status", "result"], rows);
    })
}

fn told(result: &CallResult) -> String {
    let made = result.result.as_ref();
    let error = made.and_then(|made| made.error.as_ref()).or(result.error.as_ref());
    let text = match (error, made) {
        (Some(error), _) => format!("{}: {}", error.error_code, error.message),
        (None, Some(made)) => made.output.get("structured").unwrap_or(&made.output).to_string(),
        (None, None) => String::new(),
    };
    output::clipped(&text, RESULT_CHARS_SHOWN)
}

fn show(view: &SessionView) {
    if view.calls.is_empty() {
        return output::line(format!("session {} has no calls", view.session_id));
    }
    let rows = view.calls.iter().map(|call| {
        let args = serde_json::to_string(&call.args).unwrap_or_default();
        let result = output::clipped(&call.result.to_string(), RESULT_CHARS_SHOWN);
        [call.id.clone(), call.tool.clone(), output::clipped(&args, RESULT_CHARS_SHOWN), result]
    });
    output::table(["id", "tool", "arguments", "result"], rows);
}
