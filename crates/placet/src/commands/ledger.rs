//! `placet ledger`: effect records of a running Placet, and the offline check of its store.
//!
//! Owns the tables and the options. Offline commands take the lock on the data folder, or name its holder.

use clap::{Args as ClapArgs, Subcommand};
use placet_pipeline::views::{RecordView, ResolutionRequest, ResolvedOutcome};
use placet_server::documents::RecordList;
use placet_types::ids::RecordId;
use serde_json::Value;

use crate::{
    client::{Client, ClientArgs},
    commands::call::arguments,
    config::load::{Config, ConfigArgs},
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    output, storage,
};

/// Look at effect records, resolve unknown outcomes, check the store.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet ledger list --state indeterminate\n  \
    placet ledger show sha256:…\n  \
    placet ledger resolve sha256:… --happened --evidence \"seen in the target's log\"\n  \
    placet ledger verify --data ./placet-data     (while Placet is stopped)")]
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
    /// List effect records (operators).
    List {
        /// Only those in this state, such as indeterminate, dispatched or succeeded.
        #[arg(long)]
        state: Option<String>,
    },
    /// Show one record.
    Show {
        /// The record.
        id: RecordId,
    },
    /// End an unknown outcome with what you found out (operators).
    Resolve(Resolve),
    /// Verify journal, index and content of a stopped Placet.
    Verify {
        /// Which configuration.
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Rebuild the index of a stopped Placet from its journal.
    Rebuild {
        /// Which configuration.
        #[command(flatten)]
        config: ConfigArgs,
    },
}

/// What an operator found out.
#[derive(Debug, ClapArgs)]
struct Resolve {
    /// The record.
    id: RecordId,
    /// The effect happened.
    #[arg(long, conflicts_with = "did_not_happen", required_unless_present = "did_not_happen")]
    happened: bool,
    /// The effect did not happen, and will not by this call.
    #[arg(long)]
    did_not_happen: bool,
    /// How you found out; kept for the auditor.
    #[arg(long)]
    evidence: String,
    /// What the call's result shall be, as a JSON object.
    #[arg(long, value_name = "JSON")]
    output: Option<String>,
}

/// Does what was asked.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let json = args.client.json;
    match &args.action {
        Action::List { state } => {
            list(&Client::of(&args.client, environment)?, state.as_deref(), json).await
        }
        Action::Show { id } => {
            let client = Client::of(&args.client, environment)?;
            let record: RecordView = client.get(&["v1", "ledger", &id.to_string()], &[]).await?;
            tell(&record, json);
            Ok(Exit::Ok)
        }
        Action::Resolve(resolve) => {
            self::resolve(&Client::of(&args.client, environment)?, resolve, json).await
        }
        Action::Verify { config } => {
            storage::verify(&Config::load(config, environment)?, json).await
        }
        Action::Rebuild { config } => {
            storage::rebuild(&Config::load(config, environment)?, json).await
        }
    }
}

/// Enough for a person to read; programs page themselves.
const LISTED_MAX: usize = 2_000;

async fn list(client: &Client, state: Option<&str>, json: bool) -> Outcome {
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
    if json {
        output::json(&records);
        return Ok(Exit::Ok);
    }
    if records.is_empty() {
        output::line("no records");
        return Ok(Exit::Ok);
    }
    let rows = records.iter().map(|record| {
        let whom =
            record.on_behalf_of.as_ref().map(|user| format!(" for {user}")).unwrap_or_default();
        [
            record.record_id.to_string(),
            record.state.clone(),
            record.capability_id.tool_name(),
            format!("{}{whom}", record.agent),
            record.attempts.to_string(),
            record.updated_at.to_string(),
        ]
    });
    output::table(["record", "state", "tool", "agent", "attempts", "changed"], rows);
    Ok(Exit::Ok)
}

fn tell(record: &RecordView, json: bool) {
    if json {
        return output::json(record);
    }
    let optional = |name: &str, value: Option<&String>| {
        value.map(|value| format!("\n  {name:<10}{value}")).unwrap_or_default()
    };
    output::line(format!(
        "{} is {}\n  tool      {}\n  agent     {}{}\n  call      {}\n  attempts  {}{}{}\n  created   {}\n  changed   {}",
        record.record_id,
        record.state,
        record.capability_id.tool_name(),
        record.agent,
        optional("for", record.on_behalf_of.as_ref()),
        record.call_id,
        record.attempts,
        optional("token", record.dispatch_token.as_ref()),
        optional("why", record.reason.as_ref()),
        record.created_at,
        record.updated_at,
    ));
    if let Some(result) = &record.result {
        output::line(format!("{:#}", result.output));
    }
}

async fn resolve(client: &Client, resolve: &Resolve, json: bool) -> Outcome {
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
    let record: RecordView = client.post(&path, &request).await?.document()?;
    tell(&record, json);
    Ok(Exit::Ok)
}
