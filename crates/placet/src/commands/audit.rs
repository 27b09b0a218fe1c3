//! `placet audit`: the audit chain, what is signed about it, and how others verify it.
//!
//! Owns the options. Verifying needs no running Placet ([`verify`], of a database [`shared`]), nor does [`export`]; receipts, checkpoints
//! and proofs come from one ([`evidence`]).

mod evidence;
mod export;
mod shared;
mod verify;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use placet_types::ids::ToolCallId;

use crate::{
    client::{Client, ClientArgs},
    config::load::{Config, ConfigArgs},
    environment::Environment,
    failure::Outcome,
};

/// Verify the audit chain, get receipts, checkpoints and proofs.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet audit verify\n  \
    placet audit verify --data /var/lib/placet --key 'placet+…' --checkpoint kept-elsewhere\n  \
    placet audit key\n  \
    placet audit checkpoints --log journal > checkpoint\n  \
    placet audit receipt call_01… > receipt\n  \
    placet audit verify-receipt receipt --key 'placet+…'")]
pub(crate) struct Args {
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to do with the audit chain.
#[derive(Debug, Subcommand)]
enum Action {
    /// Verify every entry, checksum, link of the chain and checkpoint; works while Placet is running.
    Verify(verify::Args),
    /// Export the chain as lines of JSON, for others to verify.
    Export {
        /// The file, or `-` for standard output; a folder gets one file for each log.
        file: PathBuf,
        /// Only this log; required if there are several, as in a database that has had several starts.
        #[arg(long)]
        log: Option<String>,
        /// Which configuration.
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Print a signed checkpoint of the current state of each log.
    Checkpoints {
        /// Only the checkpoint of this log, exactly as it was signed.
        #[arg(long)]
        log: Option<String>,
    },
    /// Print the public key that receipts and checkpoints are signed with.
    Key,
    /// Print a proof that an entry is in a log, or that a log was only appended to.
    Prove(evidence::Prove),
    /// Print a signed receipt for a recorded call.
    Receipt {
        /// The call.
        call: ToolCallId,
    },
    /// Check a receipt with nothing but the public key.
    VerifyReceipt(evidence::VerifyReceipt),
}

/// Does what was asked.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let json = args.client.json;
    let client = || Client::of(&args.client, environment);
    match &args.action {
        Action::Verify(verify) => verify::run(verify, json, environment).await,
        Action::Export { file, log, config } => {
            let config = Config::load(config, environment)?;
            export::run(&config, file, log.as_deref()).await
        }
        Action::Checkpoints { log } => evidence::checkpoints(&client()?, log.as_deref()).await,
        Action::Key => evidence::key(&client()?).await,
        Action::Prove(prove) => evidence::prove(&client()?, prove).await,
        Action::Receipt { call } => evidence::receipt(&client()?, call).await,
        Action::VerifyReceipt(args) => evidence::verify_receipt(args, json),
    }
}
