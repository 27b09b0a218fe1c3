//! `placet audit export`: logs as lines of JSON, without a running Placet.
//!
//! Owns the files. Not here: their format (`placet-store`). Invariants: no file is overwritten; only verified entries are
//! written; a user who gets less than a whole log is told so.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use placet_ledger::{log::LogEntry, proof::note::NoteName};
use placet_store::{
    embedded::LOG,
    journal::verify_each,
    postgres::{LogVisitor, PostgresConfig, log_names, verify_logs},
    seal::{export_header, export_line},
};

use super::{shared::unread, verify::journal};
use crate::{
    config::{ledger::Choice, load::Config},
    failure::{Attempted as _, Exit, Failure, Outcome},
    output, storage,
};

const WHAT: &str = "the chain cannot be exported";

/// Writes the logs.
pub(super) async fn run(config: &Config, file: &Path, log: Option<&str>) -> Outcome {
    match storage::choice(config, &config.data)? {
        Choice::Embedded => own(config, file, log),
        Choice::Postgres(postgres) => shared(config, &postgres, file, log).await,
    }
}

fn origin(deployment: &NoteName, log: &str) -> Result<NoteName, Failure> {
    NoteName::new(format!("{deployment}/{log}")).attempted("the log has no name")
}

/// The path for a log; nothing exists there yet.
fn place(file: &Path, log: &str) -> Result<PathBuf, Failure> {
    let path = if file.is_dir() { file.join(format!("{log}.jsonl")) } else { file.to_owned() };
    if path.as_os_str() != "-" && path.symlink_metadata().is_ok() {
        return Err(Failure::usage(format!("`{}` is there already", path.display())).try_this(
            "name a file that is not there yet, or a folder that has none of this name",
        ));
    }
    Ok(path)
}

/// The running export of one log.
struct Out(BufWriter<Box<dyn Write + Send>>);

impl Out {
    fn begin(path: &Path, origin: &NoteName) -> io::Result<Self> {
        let out: Box<dyn Write + Send> = if path.as_os_str() == "-" {
            Box::new(io::stdout())
        } else {
            Box::new(File::options().write(true).create_new(true).open(path)?)
        };
        let mut out = BufWriter::new(out);
        let header = export_header(origin).map_err(io::Error::other)?;
        writeln!(out, "{header}")?;
        Ok(Self(out))
    }

    fn put(&mut self, entry: &LogEntry) -> io::Result<()> {
        let line = export_line(entry).map_err(io::Error::other)?;
        writeln!(self.0, "{line}")
    }
}

fn own(config: &Config, file: &Path, log: Option<&str>) -> Outcome {
    let journal = journal(config)?;
    if let Some(other) = log.filter(|log| *log != LOG) {
        return Err(no_log(other, &[LOG.to_owned()]));
    }
    let origin = origin(&config.ledger.deployment, LOG)?;
    let path = place(file, LOG)?;
    let what = || format!("`{}` cannot be written", path.display());
    let mut out = Out::begin(&path, &origin).attempted(what())?;
    let written =
        verify_each(&journal, config.ledger.archive.as_deref(), &mut |frame| Ok(out.put(frame)?));
    let report = written.attempted(WHAT)?;
    out.0.flush().attempted(WHAT)?;
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

fn no_log(log: &str, there: &[String]) -> Failure {
    let there = there.join(", ");
    Failure::usage(format!("there is no log `{log}`")).because(format!("there are: {there}"))
}

/// Writes the visited logs, a file for each.
struct Writing {
    /// The paths of the requested logs, and the names they are signed under.
    wanted: BTreeMap<String, (PathBuf, NoteName)>,
    out: Option<Out>,
}

impl LogVisitor for Writing {
    fn log(&mut self, log: &str) -> io::Result<bool> {
        self.end()?;
        let wanted = self.wanted.get(log);
        self.out = wanted.map(|(path, origin)| Out::begin(path, origin)).transpose()?;
        Ok(self.out.is_some())
    }

    fn entry(&mut self, entry: &LogEntry) -> io::Result<()> {
        self.out.as_mut().map_or(Ok(()), |out| out.put(entry))
    }
}

impl Writing {
    fn end(&mut self) -> io::Result<()> {
        self.out.take().map_or(Ok(()), |mut out| out.0.flush())
    }
}

async fn shared(
    config: &Config,
    postgres: &PostgresConfig,
    file: &Path,
    log: Option<&str>,
) -> Outcome {
    let there = names(postgres).await?;
    let wanted = match log {
        Some(log) if there.iter().any(|name| name == log) => vec![log.to_owned()],
        Some(log) => return Err(no_log(log, &there)),
        None if there.len() == 1 || file.is_dir() => there,
        None => {
            return Err(Failure::usage("there are several logs, and a file holds one")
                .because(format!("there are: {}", there.join(", ")))
                .try_this("name one with --log, or name a folder for all"));
        }
    };
    let wanted = wanted.into_iter().map(|log| {
        let place = (place(file, &log)?, origin(&config.ledger.deployment, &log)?);
        Ok((log, place))
    });
    let mut writing = Writing { wanted: wanted.collect::<Result<_, Failure>>()?, out: None };
    let verified = verify_logs(postgres, &BTreeMap::new(), &mut writing).await;
    let verdicts = verified.map_err(|error| unread(WHAT, &error))?;
    writing.end().attempted(WHAT)?;
    if let Some((log, fault)) =
        verdicts.iter().find_map(|verdict| Some((&verdict.log, verdict.fault.as_ref()?)))
    {
        return Err(Failure::new(WHAT).because(format!("log `{log}`: {fault}")));
    }
    for verdict in &verdicts {
        let origin = origin(&config.ledger.deployment, &verdict.log)?;
        output::note(format!("{} entries of the log {origin}", verdict.entries));
    }
    Ok(Exit::Ok)
}

/// The logs that have entries.
async fn names(postgres: &PostgresConfig) -> Result<Vec<String>, Failure> {
    let logs = log_names(postgres).await;
    let logs = logs.map_err(|error| unread(WHAT, &error))?;
    if logs.is_empty() {
        return Err(Failure::new("there is nothing to export").because("no log has an entry yet"));
    }
    Ok(logs)
}
