//! `placet audit verify` of a database: all of its logs, one for each start of a node.
//!
//! Owns the comparison with signed checkpoints, and what is printed. Not here: what makes an entry wrong (`placet-store`). Invariants:
//! nothing is changed; a log that was signed and is missing is a finding.

use std::collections::BTreeMap;

use placet_store::postgres::{LogVerdict, LogsError, PostgresConfig, verify_logs};
use serde_json::{Value, json};

use super::verify::{Args, Signed, UNSIGNED, time};
use crate::{
    failure::{Exit, Failure, Outcome},
    output,
};

/// The failure to read a database.
pub(super) fn unread(what: &str, error: &LogsError) -> Failure {
    Failure::new(what).because(error).try_this("`placet doctor` says what the database lacks")
}

/// Verifies the logs of a database.
pub(super) async fn verify(
    postgres: &PostgresConfig,
    args: &Args,
    json: bool,
    signed: &[Signed],
) -> Outcome {
    let mut sizes: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for signed in signed {
        sizes.entry(signed.log.clone()).or_default().push(signed.checkpoint.head.size);
    }
    let verdicts = verify_logs(postgres, &sizes, &mut ()).await;
    let mut verdicts = verdicts.map_err(|error| unread("the logs cannot be read", &error))?;
    // A node that has written nothing since its start has nothing to verify.
    verdicts.retain(|verdict| verdict.entries > 0 || verdict.fault.is_some());
    let found = Found::of(&verdicts, args, signed);
    output::answer(json, &document(&verdicts, &found), |_| print_report(&verdicts, &found))?;
    Ok(if found.problems.is_empty() { Exit::Ok } else { Exit::Findings })
}

/// The result.
struct Found {
    problems: Vec<String>,
    /// How many entries of each log are covered by a checkpoint that it agrees with.
    sealed: BTreeMap<String, u64>,
}

impl Found {
    fn of(verdicts: &[LogVerdict], args: &Args, signed: &[Signed]) -> Self {
        let mut problems: Vec<String> = verdicts
            .iter()
            .filter_map(|verdict| {
                let fault = verdict.fault.as_ref()?;
                Some(format!("log `{}`: {fault}", verdict.log))
            })
            .collect();
        let mut sealed = BTreeMap::new();
        for signed in signed {
            match against(verdicts, signed) {
                Err(problem) => problems.push(problem),
                Ok(covered) => {
                    let size = sealed.entry(signed.log.clone()).or_insert(0);
                    *size = covered.max(*size);
                }
            }
        }
        if args.require_signed {
            let unsigned = verdicts.iter().filter(|verdict| !sealed.contains_key(&verdict.log));
            problems.extend(unsigned.map(|verdict| format!("log `{}`: {UNSIGNED}", verdict.log)));
        }
        let is_noted = |noted: &String| {
            verdicts.iter().any(|verdict| noted.eq_ignore_ascii_case(&hex::encode(verdict.head)))
        };
        if args.head.as_ref().is_some_and(|noted| !is_noted(noted)) {
            problems.push("no log ends with the head that you noted".to_owned());
        }
        Self { problems, sealed }
    }
}

/// How many entries of a log a checkpoint covers, or what is wrong with the log according to it.
fn against(verdicts: &[LogVerdict], signed: &Signed) -> Result<u64, String> {
    let Signed { origin, log, checkpoint, .. } = signed;
    let size = checkpoint.head.size;
    let Some(verdict) = verdicts.iter().find(|verdict| verdict.log == *log) else {
        return Err(format!("{origin} covers {size} entries, but there is no log `{log}`"));
    };
    // The fault itself is reported already.
    if verdict.fault.is_some() && !verdict.seen.contains_key(&size) {
        return Err(format!("{origin} is NOT COMPARED"));
    }
    signed.covered(log, verdict.entries, &verdict.seen)
}

fn total(verdicts: &[LogVerdict]) -> u64 {
    verdicts.iter().map(|verdict| verdict.entries).fold(0, u64::saturating_add)
}

fn document(verdicts: &[LogVerdict], found: &Found) -> Value {
    let logs: Vec<Value> = verdicts
        .iter()
        .map(|verdict| {
            json!({
                "log": verdict.log,
                "entries": verdict.entries,
                "first_at": time(verdict.first_at_ms),
                "last_at": time(verdict.last_at_ms),
                "head": hex::encode(verdict.head),
                "sealed_entries": found.sealed.get(&verdict.log),
            })
        })
        .collect();
    json!({
        "ok": found.problems.is_empty(),
        "entries": total(verdicts),
        "logs": logs,
        "problems": found.problems,
    })
}

fn print_report(verdicts: &[LogVerdict], found: &Found) {
    if !found.problems.is_empty() {
        found.problems.iter().for_each(|why| output::line(format!("WRONG: {why}")));
        if found.problems.iter().any(|why| !why.ends_with(UNSIGNED)) {
            output::line("    Keep the database as it is, and restore it from a copy.");
        }
        return;
    }
    let first = time(verdicts.iter().filter_map(|verdict| verdict.first_at_ms).min());
    let last = time(verdicts.iter().filter_map(|verdict| verdict.last_at_ms).max());
    let span = first.zip(last).map(|(first, last)| format!(", {first} to {last}"));
    output::line(format!(
        "ok: {} entries in {} logs, every link of the chains verified{}",
        total(verdicts),
        verdicts.len(),
        span.unwrap_or_default()
    ));
    for verdict in verdicts {
        let sealed = match found.sealed.get(&verdict.log) {
            Some(size) => {
                format!(", {size} of them under a signed checkpoint that they agree with")
            }
            None => format!("; {UNSIGNED}"),
        };
        output::line(format!("    {}: {} entries{sealed}", verdict.log, verdict.entries));
        output::line(format!("        head {}", hex::encode(verdict.head)));
    }
}
