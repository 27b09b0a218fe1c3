//! `placet audit verify` and `export`: the chain as it is on disk or in the database, without a running Placet.
//!
//! Owns the walk over the entries and its comparison with signed checkpoints. Not here: what is wrong with a journal's bytes, and with a
//! signature (`placet-store`). Invariants: nothing is changed; a checkpoint that could not be compared is never counted as verified.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use clap::Args as ClapArgs;
use placet_ledger::{
    log::LogEntry,
    proof::{Frontier, checkpoint::Checkpoint, note::NoteName},
};
use placet_store::{
    embedded::LOG,
    journal::{Frame, JournalError, VerifyReport, verify_each},
    seal::{SealKey, SealPublic, export_header, export_line, verify_checkpoint},
};
use placet_types::{clock::Timestamp, digest::Digest};
use serde_json::{Value, json};

use super::evidence::{read_key, read_text};
use crate::{
    config::{
        ledger::Choice,
        load::{Config, ConfigArgs},
    },
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output, sealing, storage,
};

/// What to verify against.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The hash of the last entry as you noted it earlier; the chain must still contain it at its end.
    #[arg(long, value_name = "HEX")]
    head: Option<String>,
    /// The public key that checkpoints are signed with, as you noted it earlier [default: that of the data folder].
    #[arg(long, value_name = "VKEY")]
    key: Option<String>,
    /// A signed checkpoint that you kept elsewhere; the chain must begin with what it covers. May be given several times.
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
    /// Which configuration.
    #[command(flatten)]
    config: ConfigArgs,
}

/// A checkpoint to compare with, and where it is from.
#[derive(Debug)]
struct Signed {
    origin: String,
    checkpoint: Checkpoint,
}

/// The root and the last hash at the sizes that matter.
#[derive(Debug, Default)]
struct Walk {
    frontier: Frontier,
    seen: BTreeMap<u64, (Digest, [u8; 32])>,
}

impl Walk {
    /// Takes the next entry. Of a chain that does not begin with its first entry no root can be computed.
    fn take(&mut self, sizes: &[u64], frame: &Frame) {
        if frame.seq != self.frontier.size().saturating_add(1) {
            return;
        }
        self.frontier.append(&frame.hash, &mut |_, _| {});
        if sizes.contains(&frame.seq) {
            self.seen.insert(frame.seq, (self.frontier.root(), frame.hash));
        }
    }

    /// What is wrong with the chain according to a checkpoint.
    fn against(&self, report: &VerifyReport, signed: &Signed) -> Option<String> {
        let (size, origin) = (signed.checkpoint.head.size, &signed.origin);
        let Some((root, chain)) = self.seen.get(&size) else {
            return Some(if report.first_seq > 1 {
                format!(
                    "{origin} is NOT COMPARED: the chain begins with entry {}; name the archive",
                    report.first_seq
                )
            } else {
                let last = report.last_seq;
                format!(
                    "{origin} covers {size} entries, but there are only {last}: the end was cut off, or this is an old copy"
                )
            });
        };
        let same = *root == signed.checkpoint.head.root && *chain == signed.checkpoint.chain;
        (!same).then(|| format!("the first {size} entries are not those that {origin} covers: the chain was made anew"))
    }
}

/// Verifies the chain.
pub(super) fn run(args: &Args, json: bool, environment: &Environment) -> Outcome {
    let config = Config::load(&args.config, environment)?;
    let journal = journal(&config)?;
    let signed = match signed(args, &config) {
        Ok(signed) => signed,
        Err(Wrong::Unusable(failure)) => return Err(failure),
        Err(Wrong::Checkpoint(why)) => return Ok(wrong(json, &why)),
    };
    let sizes: Vec<u64> = signed.iter().map(|signed| signed.checkpoint.head.size).collect();
    let mut walk = Walk::default();
    let verified = verify_each(&journal, config.ledger.archive.as_deref(), &mut |frame| {
        walk.take(&sizes, frame);
        Ok(())
    });
    match verified {
        Ok(report) => {
            let findings: Vec<String> =
                signed.iter().filter_map(|signed| walk.against(&report, signed)).collect();
            Ok(sound(args, json, &report, (&signed, &findings)))
        }
        Err(error) => damaged(json, &error),
    }
}

fn journal(config: &Config) -> Result<PathBuf, Failure> {
    if let Choice::Postgres(postgres) = storage::choice(config, &config.data)? {
        return Err(Failure::usage("this reads the journal of the data folder")
            .because(format!("records are kept in the database at {}", postgres.url))
            .try_this("`placet ledger export` reads and checks every log of it, and `placet ledger import` verifies them once more"));
    }
    let journal = storage::journal_folder(&config.data);
    if journal.try_exists().unwrap_or(false) {
        return Ok(journal);
    }
    Err(Failure::new(format!("there is no journal in `{}`", journal.display()))
        .try_this("name the data folder with --data"))
}

/// Why there is nothing to compare with.
enum Wrong {
    /// A file or key cannot be used.
    Unusable(Failure),
    /// A checkpoint is not one.
    Checkpoint(String),
}

/// The checkpoints: what was signed last in this folder, and those that were named.
fn signed(args: &Args, config: &Config) -> Result<Vec<Signed>, Wrong> {
    let own = sealing::sealed_folder(&config.data).join(format!("{LOG}.note"));
    let mut files: Vec<(&Path, String)> = args
        .checkpoint
        .iter()
        .map(|path| (path.as_path(), format!("checkpoint `{}`", path.display())))
        .collect();
    if own.try_exists().unwrap_or(false) {
        files.push((&own, "the checkpoint that was signed last here".to_owned()));
    }
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let key = key(args, config).map_err(Wrong::Unusable)?;
    let mut signed = Vec::with_capacity(files.len());
    for (path, origin) in files {
        let text = read_text(path).map_err(Wrong::Unusable)?;
        let checkpoint = verify_checkpoint(&text, &key, None)
            .map_err(|error| Wrong::Checkpoint(format!("{origin}: {error}")))?;
        let log = checkpoint.origin.to_string();
        if log.rsplit('/').next() != Some(LOG) {
            return Err(Wrong::Checkpoint(format!("{origin} is about the log `{log}`")));
        }
        signed.push(Signed { origin, checkpoint });
    }
    Ok(signed)
}

fn key(args: &Args, config: &Config) -> Result<SealPublic, Failure> {
    if let Some(text) = &args.key {
        return read_key(text);
    }
    let file = sealing::key_file(config, &config.data);
    let key = SealKey::open(&file).map_err(|error| {
        Failure::new("there is no key to check the checkpoints with")
            .because(error)
            .try_this("give the public key with --key, as `placet audit key` printed it")
    })?;
    Ok(key.public().clone())
}

fn sound(
    args: &Args,
    json: bool,
    report: &VerifyReport,
    (signed, findings): (&[Signed], &[String]),
) -> Exit {
    let head = hex::encode(report.head);
    let moved = args.head.as_ref().is_some_and(|noted| !noted.eq_ignore_ascii_case(&head));
    let ok = !moved && findings.is_empty();
    let sealed = signed.iter().map(|signed| signed.checkpoint.head.size).max();
    if json {
        output::json(&document(report, &head, ok, (sealed, findings)));
    } else if !findings.is_empty() {
        findings.iter().for_each(|why| output::line(format!("WRONG: {why}")));
        output::line("    Keep the folder as it is, and restore it from a copy.");
    } else {
        told(report, &head, sealed);
    }
    if moved && !json {
        output::line(
            "WRONG: this is not the head you noted. Verify the copy of that time, or look for a later entry.",
        );
    }
    if ok { Exit::Ok } else { Exit::Findings }
}

fn time(ms: Option<i64>) -> Option<String> {
    ms.map(|ms| Timestamp::from_ms(ms).to_string())
}

fn document(
    report: &VerifyReport,
    head: &str,
    ok: bool,
    (sealed, findings): (Option<u64>, &[String]),
) -> Value {
    json!({
        "ok": ok,
        "entries": report.frames,
        "first_entry": report.first_seq,
        "segments": report.segments,
        "epoch": report.epoch,
        "first_at": time(report.first_at_ms),
        "last_at": time(report.last_at_ms),
        "torn_bytes": report.torn_bytes,
        "head": head,
        "sealed_entries": sealed,
        "problems": findings,
    })
}

fn told(report: &VerifyReport, head: &str, sealed: Option<u64>) {
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
    if let Some(sealed) = sealed {
        output::line(format!(
            "    {sealed} entries are under a signed checkpoint that they agree with"
        ));
    }
    output::line(format!("    head {head}"));
}

fn wrong(json: bool, why: &str) -> Exit {
    if json {
        output::json(&json!({ "ok": false, "problem": why }));
    } else {
        output::line(format!("WRONG: {why}"));
    }
    Exit::Findings
}

fn damaged(json: bool, error: &JournalError) -> Outcome {
    let place = if let JournalError::Corrupt { segment, offset, seq, .. } = error {
        json!({ "segment": segment, "offset": offset, "entry": seq })
    } else if let JournalError::Forgotten { witness_seq, found_seq } = error {
        json!({ "last_durable_entry": witness_seq, "last_entry_found": found_seq })
    } else {
        return Err(Failure::new("the journal cannot be read").because(error));
    };
    if json {
        output::json(&json!({ "ok": false, "problem": error.to_string(), "at": place }));
    } else {
        output::line(format!("WRONG: {error}"));
        output::line(
            "    Everything before that entry is verified. Keep the folder as it is, and restore it from a copy.",
        );
    }
    Ok(Exit::Findings)
}

/// Writes the chain as lines of JSON.
pub(super) fn export(config: &Config, file: &Path) -> Outcome {
    let journal = journal(config)?;
    let origin = NoteName::new(format!("{}/{LOG}", config.ledger.deployment));
    let origin = origin.attempted("the log has no name")?;
    let what = "the chain cannot be exported";
    let mut out: Box<dyn Write> = if file.as_os_str() == "-" {
        Box::new(io::stdout())
    } else {
        let opened = File::options().write(true).create_new(true).open(file);
        Box::new(opened.attempted(format!("`{}` cannot be written", file.display()))?)
    };
    let mut out = BufWriter::new(&mut out);
    let header = export_header(&origin, 1, &Frontier::new()).attempted(what)?;
    writeln!(out, "{header}").attempted(what)?;
    let written = verify_each(&journal, config.ledger.archive.as_deref(), &mut |frame| {
        let line = export_line(&entry(frame))?;
        Ok(writeln!(out, "{line}")?)
    });
    let report = written.attempted(what)?;
    out.flush().attempted(what)?;
    if report.first_seq > 1 {
        return Err(Failure::new("the export is not whole")
            .because(format!(
                "the chain begins with entry {}: the rest is in the archive",
                report.first_seq
            ))
            .try_this("name the archive under `ledger.archive`"));
    }
    output::note(format!("{} entries of the log {origin}", report.frames));
    Ok(Exit::Ok)
}

fn entry(frame: &Frame) -> LogEntry {
    LogEntry {
        seq: frame.seq,
        epoch: frame.epoch,
        at_ms: frame.at_ms,
        kind: frame.kind,
        durable_seq: frame.durable_seq,
        prev: frame.prev,
        payload: frame.payload.clone(),
        hash: frame.hash,
    }
}
