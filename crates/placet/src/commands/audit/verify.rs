//! `placet audit verify`: the chain as it is on disk, without a running Placet; of a database see [`shared`].
//!
//! Owns the walk over the entries and its comparison with signed checkpoints. Not here: what is wrong with a journal's bytes, and with a
//! signature (`placet-store`). Invariants: nothing is changed; a checkpoint that could not be compared is never counted as verified, and a
//! chain with none that could, though the tree over the archive should tell, is not sound; a chain of which the archive is away is
//! neither wrong nor whole.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use clap::Args as ClapArgs;
use placet_ledger::proof::{Frontier, checkpoint::Checkpoint};
use placet_store::{
    embedded::{LOG, archived_tree},
    journal::{Frame, JournalError, VerifyReport, verify_each},
    seal::{SealKey, SealPublic, verify_checkpoint},
};
use placet_types::{clock::Timestamp, digest::Digest};
use serde_json::{Value, json};

use super::{
    evidence::{read_key, wrong},
    shared,
};
use crate::{
    config::{
        ledger::Choice,
        load::{Config, ConfigArgs},
    },
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output, sealing, storage, yaml,
};

/// What to verify against.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Exit codes: 0 sound, 1 wrong, 2 usage, 3 sound as far as it could be looked at: the archive is not at hand."
)]
pub(super) struct Args {
    /// The hash of the last entry as you noted it earlier; the chain, or one of several, must end with it.
    #[arg(long, value_name = "HEX", value_parser = head)]
    pub(super) head: Option<String>,
    /// The public key that checkpoints are signed with, as you noted it earlier [default: that of the data folder].
    #[arg(long, value_name = "VKEY")]
    key: Option<String>,
    /// A signed checkpoint that you kept elsewhere; the chain must begin with what it covers. May be given several times.
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
    /// Fail if any log has no signed checkpoint to compare with.
    #[arg(long)]
    pub(super) require_signed: bool,
    /// Which configuration.
    #[command(flatten)]
    config: ConfigArgs,
}

/// A checkpoint to compare with, and its origin.
#[derive(Debug)]
pub(super) struct Signed {
    pub(super) origin: String,
    pub(super) log: String,
    pub(super) checkpoint: Checkpoint,
    /// It was named by the user, not merely found in the data folder.
    pub(super) is_named: bool,
}

/// The root and the last hash of a log at the sizes that were signed.
pub(super) type Seen = BTreeMap<u64, (Digest, [u8; 32])>;

impl Signed {
    /// How many entries of an agreeing log it covers, or what is wrong with the log. The log was read to its end.
    pub(super) fn covered(&self, log: &str, entries: u64, seen: &Seen) -> Result<u64, String> {
        let Self { origin, checkpoint, .. } = self;
        let size = checkpoint.head.size;
        match seen.get(&size) {
            Some(seen) if *seen == (checkpoint.head.root, checkpoint.chain) => Ok(size),
            Some(_) => Err(format!(
                "the first {size} entries of `{log}` are not those that {origin} covers: the log was rebuilt"
            )),
            None => Err(format!(
                "{origin} covers {size} entries, but `{log}` has only {entries}: the end was cut off, or this is an old copy"
            )),
        }
    }
}

/// What is printed about a log without any compared signature.
pub(super) const UNSIGNED: &str =
    "nothing signed was compared; anyone who can write here could have rebuilt it";

/// What is printed about a log that goes on from the head that was noted.
const GROWN: &str = "and more follow: verify the copy of that time, or compare with a signed checkpoint (`--checkpoint`)";

/// What is printed about a log with signed checkpoints none of which could be compared.
const NOT_COMPARED: &str = "there are signed checkpoints, and none of them could be compared: put the archive back, or name it under `ledger.archive`";

/// The root and the last hash at the sizes that matter.
#[derive(Debug, Default)]
struct Walk {
    frontier: Frontier,
    /// The tree over the archived entries, to continue from where the archive is not at hand.
    floor: Option<Frontier>,
    /// How many entries that tree covers. A checkpoint that ends within it cannot be compared if the chain begins later.
    floor_size: u64,
    seen: Seen,
}

impl Walk {
    /// A walk that may continue from the tree over the archived entries.
    fn on(floor: Option<Frontier>) -> Self {
        let floor_size = floor.as_ref().map_or(0, Frontier::size);
        Self { floor, floor_size, ..Self::default() }
    }

    /// Takes the next entry. A chain that begins later than its first entry starts from the tree over those before it, if that is known.
    /// Whether that tree is the right one shows at every signed size.
    fn take(&mut self, sizes: &[u64], frame: &Frame) {
        if frame.seq != self.frontier.size().saturating_add(1) {
            let fits = |floor: &mut Frontier| floor.size().saturating_add(1) == frame.seq;
            let Some(floor) = self.floor.take_if(fits) else { return };
            self.frontier = floor;
            self.note(sizes, frame.prev);
        }
        self.frontier.append(&frame.hash, &mut |_, _| {});
        self.note(sizes, frame.hash);
    }

    /// All entries were taken: the tree over the archived entries may be everything, with nothing after it.
    fn finish(&mut self, sizes: &[u64], report: &VerifyReport) {
        if let Some(floor) = self.floor.take_if(|floor| floor.size() == report.last_seq) {
            self.frontier = floor;
            self.note(sizes, report.head);
        }
    }

    fn note(&mut self, sizes: &[u64], chain: [u8; 32]) {
        let size = self.frontier.size();
        if sizes.contains(&size) {
            self.seen.insert(size, (self.frontier.root(), chain));
        }
    }

    /// The result of comparing the chain with a checkpoint.
    fn against(&self, report: &VerifyReport, signed: &Signed) -> Against {
        let (size, origin) = (signed.checkpoint.head.size, &signed.origin);
        let (first, last) = (report.first_seq, report.last_seq);
        if self.seen.contains_key(&size) || first <= 1 || size > last {
            return match signed.covered(LOG, last, &self.seen) {
                Ok(size) => Against::Agrees(size),
                Err(why) => Against::Wrong(why),
            };
        }
        // Checkpoints that end after the archived part are compared by means of the tree over it, which an archiving ledger keeps. Some of
        // the archived entries may be here, or not be moved yet: that tree tells nothing about checkpoints that end before it.
        let covered = if self.floor_size <= last { self.floor_size } else { 0 };
        let stands = if size < covered.max(first.saturating_sub(1)) {
            Against::Archived
        } else if signed.is_named {
            Against::Wrong
        } else {
            Against::NotCompared
        };
        stands(format!(
            "{origin} is not compared: it covers {size} entries, and the chain that is here begins with entry {first}"
        ))
    }
}

/// The result of comparing a chain with a checkpoint.
#[derive(Debug)]
enum Against {
    /// It begins with the entries that the checkpoint covers: this many.
    Agrees(u64),
    /// It does not, or a named checkpoint could not be compared.
    Wrong(String),
    /// The entries that would tell are in the archive, which is not here.
    Archived(String),
    /// The tree over the archived entries would tell, and is not here.
    NotCompared(String),
}

/// The result of comparing with all checkpoints.
#[derive(Debug, Default)]
struct Compared {
    /// How many entries the largest agreeing checkpoint covers.
    sealed: Option<u64>,
    findings: Vec<String>,
    left_out: Vec<String>,
    /// Something could not be compared because the tree over the archived entries is missing or outdated.
    lacks_tree: bool,
    /// All that was signed of this log ends within an archive that is not at hand.
    is_out_of_reach: bool,
}

impl Compared {
    fn take(&mut self, against: Against) {
        match against {
            Against::Agrees(size) => self.sealed = self.sealed.max(Some(size)),
            Against::Wrong(why) => self.findings.push(why),
            Against::Archived(why) => self.left_out.push(why),
            Against::NotCompared(why) => {
                self.lacks_tree = true;
                self.left_out.push(why);
            }
        }
    }

    /// All were taken. If there are checkpoints and none could be compared, nothing vouches for the chain. That is wrong if the tree over
    /// the archived entries would have told, and is missing; if all of them end within the archive, it is unknown.
    fn finish(&mut self) {
        if self.sealed.is_none() && self.findings.is_empty() && !self.left_out.is_empty() {
            if self.lacks_tree {
                self.findings.push(format!("log `{LOG}`: {NOT_COMPARED}"));
            } else {
                self.is_out_of_reach = true;
            }
        }
    }
}

/// Verifies the chain.
pub(super) async fn run(args: &Args, json: bool, environment: &Environment) -> Outcome {
    let config = Config::load(&args.config, environment)?;
    // An invalid key must not go unnoticed when there happens to be nothing to check with it.
    let named = args.key.as_deref().map(read_key).transpose()?;
    match storage::choice(&config, &config.data)? {
        Choice::Embedded => {
            let journal = journal(&config)?;
            match signed(args, &config, named, false)? {
                Ok(signed) => own(args, json, &config, &journal, &signed),
                Err(why) => wrong(json, &why),
            }
        }
        Choice::Postgres(postgres) => match signed(args, &config, named, true)? {
            Ok(signed) => shared::verify(&postgres, args, json, &signed).await,
            Err(why) => wrong(json, &why),
        },
    }
}

fn own(args: &Args, json: bool, config: &Config, journal: &Path, signed: &[Signed]) -> Outcome {
    let sizes: Vec<u64> = signed.iter().map(|signed| signed.checkpoint.head.size).collect();
    let floor = archived_tree(&storage::store_folder(&config.data));
    let mut walk = Walk::on(floor);
    let noted = args.head.as_deref().and_then(|head| hex::decode(head).ok());
    let mut noted_at = None;
    let verified = verify_each(journal, config.ledger.archive.as_deref(), &mut |frame| {
        if noted.as_deref() == Some(frame.hash.as_slice()) {
            noted_at = Some(frame.seq);
        }
        walk.take(&sizes, frame);
        Ok(())
    });
    match verified {
        Ok(report) => {
            walk.finish(&sizes, &report);
            let mut compared = Compared::default();
            signed.iter().for_each(|signed| compared.take(walk.against(&report, signed)));
            compared.finish();
            if args.require_signed && compared.sealed.is_none() && compared.findings.is_empty() {
                compared.findings.push(format!("log `{LOG}`: {UNSIGNED}"));
            }
            if noted.is_some_and(|noted| noted != report.head) {
                compared.findings.push(noted_at.map_or_else(
                    || "no entry that is here has the head that you noted: the log was rebuilt, its end was cut off, or it is another one".to_owned(),
                    |seq| format!("the head that you noted is that of entry {seq}, {GROWN}"),
                ));
            }
            sound(json, &report, &compared)
        }
        Err(error) => damaged(json, &error),
    }
}

/// A head as it is printed, in either case.
fn head(text: &str) -> Result<String, String> {
    let is_head = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_head
        .then(|| text.to_owned())
        .ok_or_else(|| "a head is written as 64 hexadecimal digits".to_owned())
}

/// The journal's folder, for an embedded ledger.
pub(super) fn journal(config: &Config) -> Result<PathBuf, Failure> {
    storage::check_finished(&config.data)?;
    let journal = storage::journal_folder(&config.data);
    if journal.try_exists().unwrap_or(false) {
        return Ok(journal);
    }
    Err(Failure::new(format!("there is no journal in `{}`", journal.display()))
        .try_this("name the data folder with --data"))
}

/// The checkpoints: the last ones signed in this folder, and the named ones; or why one of them is invalid. A database has
/// several logs.
fn signed(
    args: &Args,
    config: &Config,
    named: Option<SealPublic>,
    is_shared: bool,
) -> Result<Result<Vec<Signed>, String>, Failure> {
    let named_files = args.checkpoint.iter();
    let mut files: Vec<(PathBuf, String)> = named_files
        .map(|path| (path.clone(), format!("checkpoint `{}`", path.display())))
        .collect();
    files.extend(own_notes(config, is_shared)?);
    if files.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    let key = named.map_or_else(|| own_key(config), Ok)?;
    let mut signed = Vec::with_capacity(files.len());
    for (path, origin) in files {
        let is_named = args.checkpoint.contains(&path);
        let checkpoint = match verify_checkpoint(&yaml::read_input(&path)?, &key, None) {
            Ok(checkpoint) => checkpoint,
            // Who names an earlier key and a checkpoint by it does not ask about those of a later key.
            Err(_) if args.key.is_some() && !args.checkpoint.is_empty() && !is_named => continue,
            Err(error) => return Ok(Err(format!("{origin}: {error}"))),
        };
        let whole = checkpoint.origin.to_string();
        let log = whole.rsplit('/').next().unwrap_or_default().to_owned();
        if !is_shared && log != LOG {
            // A note of a time before this ledger; named, it is about something that is not here.
            if is_named {
                return Ok(Err(format!("{origin} is about the log `{whole}`")));
            }
            continue;
        }
        signed.push(Signed { origin, log, checkpoint, is_named });
    }
    Ok(Ok(signed))
}

/// The last checkpoints signed in this folder, if any.
fn own_notes(config: &Config, is_shared: bool) -> Result<Vec<(PathBuf, String)>, Failure> {
    let folder = sealing::sealed_folder(&config.data);
    if !folder.try_exists().unwrap_or(false) {
        return Ok(Vec::new());
    }
    let what = || format!("the folder `{}` cannot be read", folder.display());
    let mut notes = Vec::new();
    for entry in fs::read_dir(&folder).attempted(what())? {
        let path = entry.attempted(what())?.path();
        if path.extension().is_some_and(|extension| extension == "note") {
            let log = path.file_stem().unwrap_or_default().to_string_lossy();
            let origin = if !is_shared && log == LOG {
                "the checkpoint that was signed last here".to_owned()
            } else {
                format!("the checkpoint of `{log}` that was signed last here")
            };
            notes.push((path, origin));
        }
    }
    notes.sort();
    Ok(notes)
}

fn own_key(config: &Config) -> Result<SealPublic, Failure> {
    let file = sealing::key_file(config, &config.data);
    let key = SealKey::open(&file).map_err(|error| {
        Failure::new("there is no key to check the checkpoints with")
            .because(error)
            .try_this("give the public key with --key, as `placet audit key` printed it")
    })?;
    Ok(key.public().clone())
}

fn sound(json: bool, report: &VerifyReport, compared: &Compared) -> Outcome {
    let findings = &compared.findings;
    let head = hex::encode(report.head);
    let ok = findings.is_empty();
    let document = document(report, &head, ok, compared);
    output::answer(json, &document, |_| {
        if findings.is_empty() {
            print_report(report, &head, compared);
        } else {
            findings.iter().for_each(|why| output::line(format!("WRONG: {why}")));
            compared.left_out.iter().for_each(|why| output::line(format!("    {why}")));
        }
        let is_harmless =
            |why: &String| [UNSIGNED, NOT_COMPARED, GROWN].iter().any(|end| why.ends_with(end));
        if !findings.iter().all(is_harmless) {
            output::line("    Keep the folder as it is, and restore it from a copy.");
        }
    })?;
    Ok(match (ok, report.first_seq > 1) {
        (true, false) => Exit::Ok,
        (true, true) => Exit::Part,
        (false, _) => Exit::Findings,
    })
}

pub(super) fn time(ms: Option<i64>) -> Option<String> {
    ms.map(|ms| Timestamp::from_ms(ms).to_string())
}

fn document(report: &VerifyReport, head: &str, ok: bool, compared: &Compared) -> Value {
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
        "whole": report.first_seq <= 1,
        "sealed_entries": compared.sealed,
        "not_compared": compared.left_out,
        "problems": compared.findings,
    })
}

fn print_report(report: &VerifyReport, head: &str, compared: &Compared) {
    let span = match (time(report.first_at_ms), time(report.last_at_ms)) {
        (Some(first), Some(last)) => format!(", {first} to {last}"),
        _ => String::new(),
    };
    if report.first_seq > 1 {
        let (first, before) = (report.first_seq, report.first_seq.saturating_sub(1));
        output::line(format!(
            "ok as far as it is here: entries {first} to {}, every link of the chain verified{span}",
            report.last_seq
        ));
        output::line(format!(
            "    entries 1 to {before} are in an archive that is not at hand: to verify them too, put it back or name it under `ledger.archive`"
        ));
    } else {
        output::line(format!(
            "ok: {} in {}, every link of the chain verified{span}",
            output::counted(report.frames, "entry", "entries"),
            output::counted(report.segments, "segment", "segments"),
        ));
    }
    if report.torn_bytes > 0 {
        output::line(format!(
            "    {} bytes of an interrupted append follow; the next start cuts them off",
            report.torn_bytes
        ));
    }
    compared.left_out.iter().for_each(|why| output::line(format!("    {why}")));
    match compared.sealed {
        None if compared.is_out_of_reach => output::line(format!("    {NOT_COMPARED}")),
        Some(sealed) => output::line(format!(
            "    {sealed} entries are under a signed checkpoint that they agree with"
        )),
        None => output::line(format!("    {UNSIGNED}")),
    }
    output::line(format!("    head {head}"));
}

fn damaged(json: bool, error: &JournalError) -> Outcome {
    let place = if let JournalError::Corrupt { segment, offset, seq, .. } = error {
        json!({ "segment": segment, "offset": offset, "entry": seq })
    } else if let JournalError::Forgotten { witness_seq, found_seq } = error {
        json!({ "last_durable_entry": witness_seq, "last_entry_found": found_seq })
    } else {
        return Err(Failure::new("the journal cannot be read").because(error));
    };
    let document = json!({ "ok": false, "problem": error.to_string(), "at": place });
    output::answer(json, &document, |_| {
        output::line(format!("WRONG: {error}"));
        output::line(
            "    Everything before that entry is verified. Keep the folder as it is, and restore the newest copy: of the segment, which may be in the archive, or of the folder.",
        );
    })?;
    Ok(Exit::Findings)
}

#[cfg(test)]
mod tests;
