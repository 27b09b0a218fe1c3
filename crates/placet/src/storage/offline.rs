//! Work on the store of a stopped Placet, or on a database: check, count, rebuild.
//!
//! Owns the offline commands' reports. Not here: moving a ledger elsewhere ([`super::transfer`]). Invariant: each takes the lock on a
//! store in a folder, or names its holder, and reads a database as of one moment; no store is created in a folder without one.

use std::{collections::BTreeMap, io};

use placet_store::embedded::{self, EmbeddedConfig, OpenError, StateVerdict, VerifyReport};
use placet_store::journal::JournalError;
use placet_store::postgres::{self, PostgresConfig};
use placet_store::progress::Progress;
use serde_json::json;

use super::{
    check_finished, choice, embedded_config, in_words, journal_folder, refused, store_folder,
};
use crate::{
    config::{ledger::Choice, load::Config},
    failure::{Attempted as _, Exit, Failure, Outcome},
    output,
};

/// The embedded store of a stopped Placet, which must be there.
pub(crate) fn stopped(config: &Config) -> Result<EmbeddedConfig, Failure> {
    if let Choice::Postgres(postgres) = choice(config, &config.data)? {
        return Err(Failure::usage("this is for the ledger in the data folder")
            .because(format!("records are kept in the database at {}", postgres.url))
            .try_this(
                "use the tools of the database; `placet ledger export` copies everything out of it",
            ));
    }
    check_finished(&config.data)?;
    if !journal_folder(&config.data).try_exists().unwrap_or(false) {
        let folder = store_folder(&config.data);
        return Err(Failure::new(format!("there is no store in `{}`", folder.display()))
            .try_this("name the data folder with --data"));
    }
    Ok(embedded_config(config, &config.data))
}

/// Runs the work of an offline command where it may block.
async fn offline<T: Send + 'static>(
    config: EmbeddedConfig,
    work: impl FnOnce(&EmbeddedConfig) -> Result<T, OpenError> + Send + 'static,
    failed: fn(&OpenError) -> Failure,
) -> Result<T, Failure> {
    let shown = output::Progress::of("entries read:");
    let progress = Progress::new(move |seq| shown.at(seq));
    let config = EmbeddedConfig { progress, ..config };
    let done = tokio::task::spawn_blocking(move || work(&config)).await;
    done.map_err(|error| Failure::new("the store cannot be looked at").because(error))?
        .map_err(|error| failed(&error))
}

/// The failure of a check: where nothing could be checked, nothing is known to be wrong.
fn unchecked(error: &OpenError) -> Failure {
    if error.is_hindered() { refused(error).exiting(Exit::Part) } else { refused(error) }
}

/// Checks journal, state, contents and the legality of every move of a stopped Placet's ledger; or what a database holds.
pub(crate) async fn check(config: &Config, json: bool) -> Outcome {
    if let Choice::Postgres(postgres) = choice(config, &config.data)? {
        return check_database(&postgres, json).await;
    }
    let store = stopped(config)?;
    let report = offline(store, embedded::verify, unchecked).await?;
    if json {
        output::json(&document(&report));
    } else {
        print_report(&report);
    }
    Ok(match (report.is_sound(), report.is_whole()) {
        (true, true) => Exit::Ok,
        (true, false) => Exit::Part,
        (false, _) => Exit::Findings,
    })
}

/// Checks every entry of the logs, every row, and every content that a record names: an export reads all of it.
async fn check_database(database: &PostgresConfig, json: bool) -> Outcome {
    let logs = postgres::verify_logs(database, &BTreeMap::new(), &mut ()).await;
    let logs = logs.attempted("the logs cannot be read");
    let logs = logs.map_err(|failure| lacks(failure).exiting(Exit::Part))?;
    let faults = logs.iter().filter_map(|log| Some((log.log.as_str(), log.fault.as_ref()?)));
    let mut problems: Vec<String> =
        faults.map(|(log, fault)| format!("log `{log}`: {fault}")).collect();
    let read = postgres::export(database, io::sink()).await;
    let read = read.map_err(|error| problems.push(error.to_string())).unwrap_or_default();
    let report = json!({
        "ok": problems.is_empty(),
        "logs": logs.len(),
        "entries": read.entries,
        "records": read.records,
        "approvals": read.approvals,
        "directives": read.directives,
        "runs": read.runs,
        "contents": read.contents,
        "problems": problems,
    });
    output::answer(json, &report, |_| {
        if problems.is_empty() {
            output::line(format!("logs     ok: {} entries in {} logs", read.entries, logs.len()));
            output::line(format!(
                "rows     ok: {} records, {} approvals, {} runs",
                read.records, read.approvals, read.runs
            ));
            output::line(format!("content  ok: {} read, 0 MISSING, 0 ALTERED", read.contents));
        }
        problems.iter().for_each(|why| output::line(format!("WRONG: {why}")));
    })?;
    Ok(if problems.is_empty() { Exit::Ok } else { Exit::Findings })
}

/// Where to look when a database cannot be read, such as one that holds no ledger yet.
fn lacks(failure: Failure) -> Failure {
    failure.try_this("`placet doctor` says what the database lacks")
}

/// Counts what is in the ledger.
pub(crate) async fn stats(config: &Config, json: bool) -> Outcome {
    let stats = match choice(config, &config.data)? {
        Choice::Embedded => {
            let uncounted = |error: &OpenError| {
                let failure = refused(error);
                if let OpenError::Journal(JournalError::Io { what: "find the state", .. }) = error {
                    return failure.try_this(
                        "a start, or `placet ledger fsck --rebuild`, makes it from the journal",
                    );
                }
                failure
            };
            offline(stopped(config)?, embedded::stats, uncounted).await?
        }
        Choice::Postgres(postgres) => {
            let stats = postgres::stats(&postgres).await;
            stats.attempted("the ledger cannot be counted").map_err(lacks)?
        }
    };
    output::answer(json, &stats, output::fields)
}

fn state_in_words(verdict: &StateVerdict) -> String {
    match verdict {
        StateVerdict::Agrees => "agrees with the journal".to_owned(),
        StateVerdict::Behind { entries } => {
            format!("{entries} entries behind; the next start catches up")
        }
        StateVerdict::Absent => "is not there; the next start makes it".to_owned(),
        StateVerdict::Ahead { state_seq, journal_seq } => {
            format!(
                "GOES FURTHER than the journal (to entry {state_seq}, and the journal to {journal_seq}): the journal is an older copy. Restore the newest one; do not rebuild, for what it lacks could be executed again"
            )
        }
        StateVerdict::Disagrees { why } => {
            format!(
                "DISAGREES with the journal ({why}); the next start rebuilds it, as does `placet ledger fsck --rebuild`"
            )
        }
        StateVerdict::Unread { why } => {
            format!("could not be looked at ({why}); nothing is known to be wrong with it")
        }
    }
}

/// What of the journal was not checked, if anything.
fn away(report: &VerifyReport) -> Option<String> {
    let before = report.journal.first_seq.checked_sub(1).filter(|before| *before > 0)?;
    Some(format!(
        "entries 1 to {before} are in an archive that is not at hand, and were not looked at: put it back, or name it under `ledger.archive`"
    ))
}

/// A number of listed items, as a minimum if the list was cut off.
fn at_least(listed: usize) -> String {
    if listed < embedded::CONTENTS_LISTED_MAX {
        listed.to_string()
    } else {
        format!("at least {listed}")
    }
}

fn print_report(report: &VerifyReport) {
    let journal = &report.journal;
    let head = hex::encode(journal.head);
    if let Some(why) = away(report) {
        let (first, last) = (journal.first_seq, journal.last_seq);
        output::line(format!(
            "journal  ok as far as it is here: entries {first} to {last}, head {head}"
        ));
        output::line(format!("  {why}"));
    } else {
        output::line(format!("journal  ok: {} entries, head {head}", journal.frames));
    }
    output::line(format!("state    {}", state_in_words(&report.state)));
    output::line(format!(
        "content  {} named, {} deleted, {} MISSING, {} ALTERED",
        report.content.named,
        report.content.deleted,
        at_least(report.content.missing.len()),
        at_least(report.content.altered.len()),
    ));
    for (seq, why) in &report.damaged_snapshots {
        output::line(format!("  snapshot {seq} is DAMAGED ({why}); no rebuild can begin with it"));
    }
    for (what, list) in [("missing", &report.content.missing), ("altered", &report.content.altered)]
    {
        for (tenant, digest) in list {
            output::line(format!("  {what}: {digest} of tenant {tenant}"));
        }
    }
    output::line(format!("moves    {}, {} ILLEGAL", report.moves, report.illegal.len()));
    report.illegal.iter().for_each(|why| output::line(format!("  illegal: {why}")));
}

fn document(report: &VerifyReport) -> serde_json::Value {
    let listed = |list: &[(placet_types::ids::TenantId, placet_types::digest::Digest)]| {
        list.iter()
            .map(|(tenant, digest)| json!({ "tenant": tenant, "digest": digest }))
            .collect::<Vec<_>>()
    };
    json!({
        "ok": report.is_sound(),
        "whole": report.is_whole(),
        "entries": report.journal.frames,
        "first_entry": report.journal.first_seq,
        "head": hex::encode(report.journal.head),
        "state": state_in_words(&report.state),
        "content": {
            "named": report.content.named,
            "deleted": report.content.deleted,
            "missing": listed(&report.content.missing),
            "altered": listed(&report.content.altered),
        },
        "snapshots_damaged":
            report.damaged_snapshots.iter().map(|(seq, _)| seq).collect::<Vec<_>>(),
        "moves": { "count": report.moves, "illegal": report.illegal },
    })
}

/// Rebuilds the state of a stopped Placet's ledger.
pub(crate) async fn rebuild(config: &Config, json: bool) -> Outcome {
    let store = stopped(config)?;
    let report = offline(store, embedded::rebuild, refused).await?;
    if json {
        output::json(&json!({ "ok": true, "entries": report.frames }));
    } else {
        output::line(in_words(&report));
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use std::io;

    use placet_store::{embedded::OpenError, journal::JournalError};

    use super::{Exit, unchecked};

    #[test]
    fn check_that_was_hindered_found_nothing_wrong() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let locked = JournalError::Locked { directory: "ledger".into(), holder_pid: None };
        for error in [OpenError::Refused(full().into()), OpenError::Journal(locked)] {
            assert_eq!(unchecked(&error).exit(), Exit::Part, "{error}");
        }
        let missing = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(unchecked(&OpenError::Refused(missing.into())).exit(), Exit::Findings);
        let illegal = OpenError::State("entry 7 cannot be read".to_owned());
        assert_eq!(unchecked(&illegal).exit(), Exit::Findings);
    }
}
