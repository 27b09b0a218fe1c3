//! `placet ledger`: effect records of a running Placet, its backup, and work on the store of a stopped one.
//!
//! Owns the tables and the options. Offline commands take the lock on the data folder, or name its holder.

use std::{collections::HashSet, path::PathBuf};

use clap::{ArgGroup, Args as ClapArgs, Subcommand};
use placet_api::documents::{BackupDocument, RecordList};
use placet_engine::views::{RearmRequest, RecordView, ResolutionRequest, ResolvedOutcome};
use placet_types::{error::ErrorCode, ids::RecordId};
use serde_json::{Value, json};
use url::Url;

use crate::{
    client::{Client, ClientArgs, Reply},
    commands::call::arguments,
    config::load::{Config, ConfigArgs},
    environment::Environment,
    failure::{Failure, Outcome},
    output,
    storage::{offline, transfer},
};

/// Show ledger records, resolve unknown outcomes, check, back up and move the ledger.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet ledger list --state indeterminate\n  \
    placet ledger show sha256:…\n  \
    placet ledger resolve sha256:… --happened --evidence \"seen in the target's log\"\n  \
    placet ledger rearm sha256:… --evidence \"the target never saw it\"\n  \
    placet ledger backup\n  \
    placet ledger fsck --data ./placet-data       (while Placet is stopped)\n  \
    placet ledger export ledger.jsonl             (the same; a database may go on)")]
pub(crate) struct Args {
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to do with the ledger.
#[derive(Debug, Subcommand)]
enum Action {
    /// List records by their last change (operators).
    List {
        /// Only records in this state, such as indeterminate, dispatched or succeeded.
        #[arg(long)]
        state: Option<String>,
    },
    /// Show one record.
    Show {
        /// The record.
        id: RecordId,
    },
    /// Resolve an unknown outcome with what you found out (operators).
    Resolve(Resolve),
    /// Request that a call with an unknown outcome is sent again (operators; by default two have to).
    Rearm {
        /// The record.
        id: RecordId,
        /// Why you are sure that it did not happen, or that repeating it does no harm; recorded for auditors.
        #[arg(long)]
        evidence: String,
    },
    /// Make a running Placet back up its ledger.
    Backup {
        /// The URL of its admin listener.
        #[arg(
            long,
            value_name = "URL",
            env = "PLACET_ADMIN_URL",
            default_value = "http://127.0.0.1:7412",
            value_parser = crate::client::url
        )]
        admin_url: Url,
    },
    /// Count what is in the ledger: records by state, approvals, contents, messages, space; an embedded one has to be stopped.
    Stats {
        /// Which configuration.
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Check journal, state, contents and every state change of a stopped Placet's records; or the logs, rows and contents of a database.
    #[command(
        alias = "verify",
        after_help = "Exit codes: 0 sound, 1 wrong or lost, 2 usage, 3 sound as far as it could be looked at: the archive is not at hand, \
                      or the operating system refused something."
    )]
    Fsck {
        /// Rebuild the state from the newest snapshot and the journal instead.
        #[arg(long)]
        rebuild: bool,
        /// Which configuration.
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Write everything in the ledger to a file; an embedded one has to be stopped.
    Export {
        /// The file, or `-` for standard output. It contains arguments and results.
        file: PathBuf,
        /// Which configuration.
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Create a ledger from an export, where there is none yet; of a database's export only in a database.
    Import {
        /// The file, or `-` for standard input.
        file: PathBuf,
        /// Which configuration.
        #[command(flatten)]
        config: ConfigArgs,
    },
}

/// What an operator found out.
#[derive(Debug, ClapArgs)]
#[command(group(ArgGroup::new("found").required(true).args(["happened", "did_not_happen"])))]
struct Resolve {
    /// The record.
    id: RecordId,
    /// The effect happened.
    #[arg(long)]
    happened: bool,
    /// The effect did not happen, and will not by this call.
    #[arg(long)]
    did_not_happen: bool,
    /// How you found out; recorded for auditors.
    #[arg(long)]
    evidence: String,
    /// The result to give the call, as a JSON object.
    #[arg(long, value_name = "JSON")]
    output: Option<String>,
}

/// Does what was asked.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let json = args.client.json;
    match &args.action {
        Action::List { state } => {
            list(&Client::of(&args.client, environment)?, state.as_deref()).await
        }
        Action::Show { id } => {
            let client = Client::of(&args.client, environment)?;
            let record: RecordView = client.get(&["v1", "ledger", &id.to_string()], &[]).await?;
            client.answer(&record, output::fields)
        }
        Action::Resolve(resolve) => {
            self::resolve(&Client::of(&args.client, environment)?, resolve).await
        }
        Action::Rearm { id, evidence } => {
            rearm(&Client::of(&args.client, environment)?, *id, evidence).await
        }
        Action::Backup { admin_url } => backup(admin_url, json).await,
        Action::Stats { config } => offline::stats(&Config::load(config, environment)?, json).await,
        Action::Fsck { rebuild: false, config } => {
            offline::check(&Config::load(config, environment)?, json).await
        }
        Action::Fsck { rebuild: true, config } => {
            offline::rebuild(&Config::load(config, environment)?, json).await
        }
        Action::Export { file, config } => {
            transfer::export(&Config::load(config, environment)?, file, json).await
        }
        Action::Import { file, config } => {
            transfer::import(&Config::load(config, environment)?, file, json).await
        }
    }
}

async fn rearm(client: &Client, id: RecordId, evidence: &str) -> Outcome {
    if evidence.trim().is_empty() {
        return Err(Failure::usage("`--evidence` is empty")
            .try_this("say what makes you sure, for the auditor"));
    }
    let request = RearmRequest { evidence: evidence.to_owned() };
    let path = ["v1", "ledger", &id.to_string(), "rearm"];
    let reply = client.post(&path, &request).await?;
    if let Some(failure) = not_in_that_state(&reply, id) {
        return Err(failure);
    }
    client.answer(&reply.document()?, |record: &RecordView| {
        output::fields(record);
        if record.rearm.is_some() {
            output::line(
                "nothing is sent yet: another operator has to agree with the same command",
            );
        }
    })
}

async fn backup(admin_url: &Url, json: bool) -> Outcome {
    let client = Client::without_token(admin_url.clone())?;
    let reply = client.post(&["backups"], &json!({})).await?;
    // What its code advises is about calls, with their keys.
    if let Some(problem) = reply.problem().filter(|_| !reply.status.is_success()) {
        return Err(Failure::new(format!("{}: {}", problem.error_code, problem.detail)));
    }
    let made: BackupDocument = reply.document()?;
    output::answer(json, &made, |made| {
        output::fields(made);
        output::line("keys are not in it: keep `seal.key` elsewhere");
    })
}

/// Enough for a person to read; programs page themselves.
const LISTED_MAX: usize = 2_000;

async fn list(client: &Client, state: Option<&str>) -> Outcome {
    let mut records: Vec<RecordView> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut query = vec![("limit", "200")];
        query.extend(state.map(|state| ("state", state)));
        query.extend(after.as_deref().map(|after| ("after", after)));
        let page: RecordList = client.get(&["v1", "ledger"], &query).await?;
        records.extend(page.records);
        after = page.next_after.map(|id| id.to_string());
        if after.is_none() || records.len() >= LISTED_MAX {
            break;
        }
    }
    // The last change first. A record that changed while they were listed came twice.
    records.reverse();
    let mut seen = HashSet::new();
    records.retain(|record| seen.insert(record.record_id));
    client.answer(&records, |records| {
        if records.is_empty() {
            return output::line("no records");
        }
        output::table(
            ["record", "state", "tool", "agent", "attempts", "changed"],
            records.iter().map(row),
        );
        if after.is_some() {
            output::line(
                "there are more, which changed later than these; list fewer with `--state`",
            );
        }
    })
}

fn row(record: &RecordView) -> [String; 6] {
    let whom = record.on_behalf_of.as_ref().map(|user| format!(" for {user}")).unwrap_or_default();
    [
        record.record_id.to_string(),
        record.state.clone(),
        record.capability_id.tool_name(),
        format!("{}{whom}", record.agent),
        record.attempts.to_string(),
        record.updated_at.to_string(),
    ]
}

/// The record is in a state that the command does not apply to: no change of the request would help.
fn not_in_that_state(reply: &Reply, id: RecordId) -> Option<Failure> {
    let problem = reply.problem()?;
    let is_it = problem.error_code == ErrorCode::ValidationError && problem.problems.is_empty();
    is_it.then(|| {
        Failure::new(problem.detail)
            .because("nothing was changed")
            .try_this(format!("`placet ledger show {id}` says what became of it"))
    })
}

async fn resolve(client: &Client, resolve: &Resolve) -> Outcome {
    if resolve.evidence.trim().is_empty() {
        return Err(Failure::usage("`--evidence` is empty")
            .try_this("say how you found out, for the auditor"));
    }
    let outcome =
        if resolve.happened { ResolvedOutcome::Happened } else { ResolvedOutcome::DidNotHappen };
    let result = match resolve.output.as_deref() {
        None => Value::Null,
        Some(text) => Value::Object(arguments(Some(text), &[])?),
    };
    let request = ResolutionRequest { outcome, evidence: resolve.evidence.clone(), output: result };
    let path = ["v1", "ledger", &resolve.id.to_string(), "resolution"];
    let reply = client.post(&path, &request).await?;
    if let Some(failure) = not_in_that_state(&reply, resolve.id) {
        return Err(failure);
    }
    client.answer::<RecordView>(&reply.document()?, output::fields)
}
