//! `placet audit verify`: proves the audit chain, without a running Placet and without changing anything.
//!
//! Owns the report. The proof is `placet-store`'s: every byte is read, the first thing that is wrong is named.

use clap::{Args as ClapArgs, Subcommand};
use placet_store::journal::{JournalError, VerifyReport, verify};
use placet_types::clock::Timestamp;
use serde_json::json;

use crate::{
    config::load::{Config, ConfigArgs},
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    output, storage,
};

/// Verify the audit chain.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  placet audit verify\n  placet audit verify --data /var/lib/placet --head 3f1c…"
)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    action: Action,
}

/// What to do with the audit chain.
#[derive(Debug, Subcommand)]
enum Action {
    /// Read every entry, check every checksum and every link of the chain; works beside a running Placet.
    Verify(Verify),
}

/// Read every entry, check every checksum and every link of the chain.
#[derive(Debug, ClapArgs)]
struct Verify {
    /// The hash of the last entry as you noted it earlier; the chain must still contain it at its end.
    #[arg(long, value_name = "HEX")]
    head: Option<String>,
    /// Print JSON for programs.
    #[arg(long)]
    json: bool,
    /// Which configuration.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Verifies the chain.
pub(crate) fn run(args: &Args, environment: &Environment) -> Outcome {
    let Action::Verify(args) = &args.action;
    let config = Config::load(&args.config, environment)?;
    let journal = storage::journal_folder(&config.data);
    if !journal.try_exists().unwrap_or(false) {
        return Err(Failure::new(format!("there is no journal in `{}`", journal.display()))
            .try_this("name the data folder with --data"));
    }
    match verify(&journal) {
        Ok(report) => Ok(sound(args, &report)),
        Err(error) => damaged(args, &error),
    }
}

fn sound(args: &Verify, report: &VerifyReport) -> Exit {
    let head = hex::encode(report.head);
    let moved = args.head.as_ref().is_some_and(|noted| !noted.eq_ignore_ascii_case(&head));
    let time = |ms: Option<i64>| ms.map(|ms| Timestamp::from_ms(ms).to_string());
    if args.json {
        output::json(&json!({
            "ok": !moved,
            "entries": report.frames,
            "segments": report.segments,
            "epoch": report.epoch,
            "first_at": time(report.first_at_ms),
            "last_at": time(report.last_at_ms),
            "torn_bytes": report.torn_bytes,
            "head": head,
        }));
    } else {
        let span = match (time(report.first_at_ms), time(report.last_at_ms)) {
            (Some(first), Some(last)) => format!(", {first} to {last}"),
            _ => String::new(),
        };
        output::line(format!(
            "ok: {} entries in {} segments, every link of the chain verified{span}",
            report.frames, report.segments
        ));
        if report.torn_bytes > 0 {
            output::line(format!(
                "    {} bytes of an interrupted append follow; the next start cuts them off",
                report.torn_bytes
            ));
        }
        output::line(format!("    head {head}"));
        if moved {
            output::line(
                "WRONG: this is not the head you noted. Verify the copy of that time, or look for a later entry.",
            );
        }
    }
    if moved { Exit::Findings } else { Exit::Ok }
}

fn damaged(args: &Verify, error: &JournalError) -> Outcome {
    let place = if let JournalError::Corrupt { segment, offset, seq, .. } = error {
        json!({ "segment": segment, "offset": offset, "entry": seq })
    } else if let JournalError::Forgotten { witness_seq, found_seq } = error {
        json!({ "last_durable_entry": witness_seq, "last_entry_found": found_seq })
    } else {
        return Err(Failure::new("the journal cannot be read").because(error));
    };
    if args.json {
        output::json(&json!({ "ok": false, "problem": error.to_string(), "at": place }));
    } else {
        output::line(format!("WRONG: {error}"));
        output::line(
            "    Everything before that entry is verified. Keep the folder as it is, and restore it from a copy.",
        );
    }
    Ok(Exit::Findings)
}
