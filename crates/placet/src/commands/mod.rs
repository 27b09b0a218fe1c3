//! The commands, one module each.
//!
//! Owns the way from a parsed command line to the command.

pub(crate) mod adapters;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod call;
pub(crate) mod console;
pub(crate) mod credentials;
pub(crate) mod decisions;
pub(crate) mod doctor;
pub(crate) mod init;
pub(crate) mod ledger;
pub(crate) mod notifications;
pub(crate) mod policy;
pub(crate) mod reload;
pub(crate) mod report;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod token;
pub(crate) mod tools;

use crate::{
    cli::{Cli, Command},
    environment::Environment,
    failure::Outcome,
};

/// Runs a command.
///
/// # Errors
/// [`crate::failure::Failure`] for anyone who typed it.
pub(crate) async fn run(cli: Cli, environment: &Environment) -> Outcome {
    match cli.command {
        Command::Serve(args) => serve::run(&args, environment).await,
        Command::Demo(args) => crate::demo::run(&args, environment).await,
        Command::Call(args) => call::run(&args, environment).await,
        Command::Console(args) => console::run(&args, environment).await,
        Command::Tools(args) => tools::run(&args, environment).await,
        Command::Approvals(args) => approvals::run(&args, environment).await,
        Command::Adapters(args) => adapters::run(&args, environment).await,
        Command::Policy(args) => policy::run(&args, environment),
        Command::Ledger(args) => ledger::run(&args, environment).await,
        Command::Audit(args) => audit::run(&args, environment).await,
        Command::Credentials(args) => credentials::run(&args, environment).await,
        Command::Decisions(args) => decisions::run(&args, environment).await,
        Command::Reload(args) => reload::run(&args, environment).await,
        Command::Report(args) => report::run(&args, environment).await,
        Command::Notifications(args) => notifications::run(&args, environment).await,
        Command::Token(args) => token::run(&args, environment),
        Command::Schema(args) => schema::run(&args),
        Command::Init(args) => init::run(&args, environment),
        Command::Doctor(args) => doctor::run(&args, environment).await,
    }
}
