//! `placet reload`: has a running server read its files again.

use clap::Args as ClapArgs;
use placet_engine::{
    reload::ROLL_BACK,
    views::status::{ReloadRequest, ReloadView, StatusView},
};
use placet_types::mode::EngineMode;

use crate::{
    client::{Client, ClientArgs},
    environment::Environment,
    failure::{Failure, Outcome},
    output,
};

/// Make a running server reload policies, contracts, directory and issuers.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Everything is read and checked first, as at a start: files that cannot be used change nothing. For operators; \
    `kill -HUP` does the same on the machine. Where several servers share a ledger, put the same files on each and reload each.\n\n\
    Examples:\n  placet reload\n  placet reload --status\n  placet reload --roll-back 7    # files that were replaced become active again"
)]
pub(crate) struct Args {
    /// Where, and in which form.
    #[command(flatten)]
    client: ClientArgs,
    /// Only show what is active; for everyone with a token.
    #[arg(long, conflicts_with = "roll_back")]
    status: bool,
    /// For servers that share a ledger: let files that were active before replace those of this epoch; the error of the refused reload
    /// names it.
    #[arg(long, value_name = "EPOCH")]
    roll_back: Option<u64>,
}

/// Reloads.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let client = Client::of(&args.client, environment)?;
    if args.status {
        let status: StatusView = client.get(&["v1", "status"], &[]).await?;
        return client.answer(&status, print_report);
    }
    let request = ReloadRequest { roll_back: args.roll_back };
    let reply = client.post(&["v1", "reload"], &request).await?;
    if let Some(problem) = reply.problem().filter(|problem| !problem.problems.is_empty()) {
        let failure = Failure::new(problem.detail);
        let failure = problem.problems.iter().fold(failure, |all, one| all.because(&one.problem));
        let is_replaced = problem.problems.iter().any(|problem| problem.pointer == ROLL_BACK);
        return Err(failure.try_this(if is_replaced {
            "put the policies, contracts, directory and `issuers` of the configuration on this server that the others have, and reload"
        } else {
            "`placet doctor` and `placet policy check` check the same files without a server"
        }));
    }
    let view: ReloadView = reply.document()?;
    client.answer(&view, |view| {
        if view.changed.is_empty() {
            output::line("nothing has changed");
        }
        for change in &view.changed {
            output::line(format!("reloaded: {change}"));
        }
        print_report(&view.status);
    })
}

fn print_report(status: &StatusView) {
    output::line(format!(
        "active: {} with the policies {}, epoch {}, since {}",
        status.active.short(),
        status.bundle.short(),
        status.epoch,
        status.since
    ));
    if status.mode == EngineMode::Lockdown {
        output::line("lockdown: no call runs until somebody lifts it");
    }
    if !status.needs_restart.is_empty() {
        let keys = status.needs_restart.join("`, `");
        output::line(format!(
            "changed in the configuration, and applied by a restart only: `{keys}`"
        ));
    }
    if let Some(epoch) = status.epoch_elsewhere {
        output::line(format!(
            "this server decides nothing: another has activated epoch {epoch}; put the same files here and reload"
        ));
    }
}
