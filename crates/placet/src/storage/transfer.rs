//! Moving a ledger: from the configured store to a file, and from a file to an empty store.
//!
//! Owns the files and the reports. Not here: the format and the copying (`placet-store`). Invariants: an export is under its name only
//! when it is whole, and a failed one leaves nothing behind; nothing is imported into a ledger that has anything in it.

use std::{
    fs::File,
    io::{self, BufReader, Write as _},
    path::Path,
};

use placet_store::{
    embedded, postgres,
    transfer::{TransferError, TransferSummary},
};
use serde_json::json;

use super::{choice, embedded_config, offline, refused, store_folder};
use crate::{
    config::{ledger::Choice, load::Config},
    development::make_data_folder,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output,
};

/// The name for standard input or output.
const STREAM: &str = "-";

/// Writes everything in the ledger to a file or to standard output.
pub(crate) async fn export(config: &Config, file: &Path, json: bool) -> Outcome {
    if file.as_os_str() == STREAM {
        let summary = write(config, io::stdout()).await?;
        print_report(&summary, "exported", json, true);
        return Ok(Exit::Ok);
    }
    if file.try_exists().unwrap_or(true) {
        return Err(Failure::usage(format!("`{}` is there already", file.display()))
            .try_this("name a file that is not there yet"));
    }
    let what = format!("`{}` cannot be written", file.display());
    let folder = file.parent().filter(|folder| *folder != Path::new(""));
    // It holds arguments and results: only its owner may read it, and it is removed if it is not finished.
    let draft = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")));
    let draft = draft.attempted(&what)?;
    let out = draft.reopen().attempted(&what)?;
    let summary = write(config, io::BufWriter::new(out)).await?;
    draft.as_file().sync_all().attempted(&what)?;
    draft.persist_noclobber(file).map_err(|error| error.error).attempted(&what)?;
    print_report(&summary, "exported", json, false);
    Ok(Exit::Ok)
}

async fn write(
    config: &Config,
    out: impl io::Write + Send + 'static,
) -> Result<TransferSummary, Failure> {
    let mut out = Counted::new(out, "bytes written:");
    match choice(config, &config.data)? {
        Choice::Embedded => {
            let store = offline::stopped(config)?;
            let work = tokio::task::spawn_blocking(move || {
                let summary = embedded::export(&store, &mut out)?;
                out.flush()?;
                Ok(summary)
            });
            done(work.await.attempted("the export broke off")?)
        }
        Choice::Postgres(postgres) => {
            let summary = done(postgres::export(&postgres, &mut out).await)?;
            out.flush().attempted("the export cannot be written")?;
            Ok(summary)
        }
    }
}

/// A file that shows how much of it was read or written.
struct Counted<T> {
    inner: T,
    bytes: u64,
    shown: output::Progress,
}

impl<T> Counted<T> {
    fn new(inner: T, what: &'static str) -> Self {
        Self { inner, bytes: 0, shown: output::Progress::of(what) }
    }

    fn count(&mut self, bytes: usize) -> usize {
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        self.shown.at(self.bytes);
        bytes
    }
}

impl<T: io::Read> io::Read for Counted<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(buffer)?;
        Ok(self.count(bytes))
    }
}

impl<T: io::Write> io::Write for Counted<T> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let bytes = self.inner.write(buffer)?;
        Ok(self.count(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Makes a ledger of an export, where there is none yet.
pub(crate) async fn import(config: &Config, file: &Path, json: bool) -> Outcome {
    make_data_folder(config)?;
    let is_stream = file.as_os_str() == STREAM;
    let input: Box<dyn io::Read + Send> = if is_stream {
        Box::new(io::stdin())
    } else {
        let opened = File::open(file);
        Box::new(opened.attempted(format!("`{}` cannot be read", file.display()))?)
    };
    let input = BufReader::new(Counted::new(input, "bytes read:"));
    let summary = match choice(config, &config.data)? {
        Choice::Embedded => {
            let store = embedded_config(config, &config.data);
            let work = tokio::task::spawn_blocking(move || embedded::import(&store, input));
            done(work.await.attempted("the import broke off")?)?
        }
        Choice::Postgres(postgres) => done(postgres::import(&postgres, input).await)?,
    };
    print_report(&summary, "imported", json, false);
    if !json && matches!(choice(config, &config.data)?, Choice::Embedded) {
        let key = store_folder(&config.data).join("seal.key");
        output::line(format!(
            "    the sealing key is not part of it: copy it to `{}` before the first start, or a new one is made",
            key.display()
        ));
    }
    Ok(Exit::Ok)
}

fn done(result: Result<TransferSummary, TransferError>) -> Result<TransferSummary, Failure> {
    let what = "the ledger cannot be moved";
    result.map_err(|error| match error {
        TransferError::Open(error) => match error.downcast_ref() {
            Some(error) => refused(error),
            None => Failure::new(what).because(error),
        },
        TransferError::Taken(_) => Failure::new(what)
            .because(error)
            .try_this("name a data folder that has no ledger yet with --data; one that is there is never written over"),
        TransferError::Lost { .. } => Failure::new(what)
            .because(error)
            .try_this("`placet ledger fsck` names those of a data folder, and the log those of a database: put them back from a backup"),
        TransferError::OfDatabase => Failure::new(what)
            .because(error)
            .try_this("name an empty database with --ledger, or under `ledger.store`"),
        TransferError::NotWhole(_) | TransferError::Malformed { .. } => Failure::new(what)
            .because(error)
            .try_this("export it again: nothing was made of this file"),
        TransferError::Io(_) | TransferError::Store(_) => Failure::new(what).because(error),
    })
}

fn print_report(summary: &TransferSummary, done: &str, json: bool, aside: bool) {
    let TransferSummary { entries, records, approvals, runs, contents, sha256, .. } = summary;
    if json && !aside {
        return output::json(&json!({
            "ok": true, "entries": entries, "records": records, "approvals": approvals, "runs": runs,
            "contents": contents, "sha256": sha256,
        }));
    }
    let text = format!(
        "{done}: {entries} entries, {records} records, {approvals} approvals, {runs} runs, {contents} contents\n    sha256 {sha256}"
    );
    // Standard output is the export itself.
    if aside { output::note(text) } else { output::line(text) }
}
