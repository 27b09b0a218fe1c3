//! The command line: which commands there are.
//!
//! Owns the tree and the words of the help. What a command does and takes is in its module under [`crate::commands`].

use clap::{Parser, Subcommand};

use crate::{
    commands::{
        adapters, approvals, audit, call, console, decisions, directives, doctor, init, ledger,
        mcp, notifications, plan, policy, reload, report, schema, serve, token, tools,
    },
    demo,
    environment::Environment,
    failure::Outcome,
};

/// Decides whether a tool call of an agent happens, does it at most once, and records it.
#[derive(Debug, Parser)]
#[command(
    name = "placet",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "First steps:\n  placet demo                                     everything it promises, in seconds\n  \
                  placet serve                                    start on loopback, no set-up needed\n  \
                  export PLACET_TOKEN=$(placet token agent dev-agent)\n  \
                  placet call files__list                         a first call\n\n\
                  Exit codes: 0 ok, 1 findings or refused, 2 usage,\n            \
                  3 sound as far as it could be looked at (`audit verify`, `ledger fsck`)."
)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the engine and its HTTP listeners.
    Serve(serve::Args),
    /// Serve MCP on standard input and output, for clients that start their servers.
    Mcp(mcp::Args),
    /// Govern one MCP server: put this before its command.
    Wrap(mcp::WrapArgs),
    /// Show what Placet guarantees, on real files, in seconds.
    Demo(demo::Args),
    /// Call a tool.
    Call(Box<call::Args>),
    /// List the tools you may call.
    Tools(tools::Args),
    /// Let a model work on a task with the tools you may call.
    Plan(plan::Args),
    /// Print a link for signing in to the console once.
    Console(console::Args),
    /// List, show and decide held calls.
    Approvals(approvals::Args),
    /// Create, decide and end grants, delegations, break-glass, freezes and revocations.
    Directives(Box<directives::Args>),
    /// Import, compare and pin the tools of adapters.
    Adapters(adapters::Args),
    /// Check, test and explain policies.
    Policy(policy::Args),
    /// Show ledger records, resolve unknown outcomes, check, back up and move the ledger.
    Ledger(ledger::Args),
    /// Verify the audit chain, get receipts, checkpoints and proofs.
    Audit(audit::Args),
    /// Look up what the policies decided about a call, and why.
    Decisions(decisions::Args),
    /// Make a running server reload policies, contracts, directory and issuers.
    Reload(reload::Args),
    /// Report on calls: success, approval modes, violations, latency, replays.
    Report(report::Args),
    /// Test a notification channel.
    Notifications(notifications::Args),
    /// Mint a development token.
    Token(token::Args),
    /// Print JSON Schemas and the OpenAPI document.
    Schema(schema::Args),
    /// Create a configuration to start from.
    Init(init::Args),
    /// Check the whole setup.
    Doctor(doctor::Args),
}

impl Cli {
    /// Runs the command.
    pub(crate) async fn run(self, environment: &Environment) -> Outcome {
        match self.command {
            Command::Serve(args) => serve::run(&args, environment).await,
            Command::Mcp(args) => mcp::run(&args, environment).await,
            Command::Wrap(args) => mcp::wrap(&args, environment).await,
            Command::Demo(args) => demo::run(&args, environment).await,
            Command::Call(args) => call::run(&args, environment).await,
            Command::Console(args) => console::run(&args, environment).await,
            Command::Tools(args) => tools::run(&args, environment).await,
            Command::Plan(args) => plan::run(&args, environment).await,
            Command::Approvals(args) => approvals::run(&args, environment).await,
            Command::Directives(args) => directives::run(&args, environment).await,
            Command::Adapters(args) => adapters::run(&args, environment).await,
            Command::Policy(args) => policy::run(&args, environment),
            Command::Ledger(args) => ledger::run(&args, environment).await,
            Command::Audit(args) => audit::run(&args, environment).await,
            Command::Decisions(args) => decisions::run(&args, environment).await,
            Command::Reload(args) => reload::run(&args, environment).await,
            Command::Report(args) => report::run(&args, environment).await,
            Command::Notifications(args) => notifications::run(&args, environment).await,
            Command::Token(args) => token::run(&args, environment),
            Command::Schema(args) => schema::run(&args),
            Command::Init(args) => init::run(&args, environment).await,
            Command::Doctor(args) => doctor::run(&args, environment).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_command_line_is_a_usage_error() {
        for line in [
            "placet",
            "placet fly",
            "placet token robot x",
            "placet call",
            "placet call t --mode mighty",
        ] {
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn every_command_says_what_it_does() {
        fn check(command: &clap::Command) {
            for sub in command.get_subcommands() {
                assert!(sub.get_about().is_some(), "{} has no help", sub.get_name());
                for argument in sub.get_arguments() {
                    assert!(
                        argument.get_help().is_some(),
                        "{} {} has no help",
                        sub.get_name(),
                        argument.get_id()
                    );
                }
                check(sub);
            }
        }
        check(&Cli::command());
    }
}
