//! Writing an export.
//!
//! Owns the counting and the digest. Not here: what is written. Invariant: the last line is written once, and last.

use std::io::Write;

use sha2::{Digest as _, Sha256};

use super::{
    EXPORT_VERSION, ExportEnd, ExportHeader, ExportItem, ExportedLog, TransferError,
    TransferSummary,
};

/// Writes an export line by line.
#[derive(Debug)]
pub struct ExportWriter<W> {
    out: W,
    hasher: Sha256,
    summary: TransferSummary,
}

impl<W: Write> ExportWriter<W> {
    /// Begins an export of a ledger with these logs.
    ///
    /// # Errors
    /// What the writing answers.
    pub fn new(out: W, logs: Vec<ExportedLog>) -> Result<Self, TransferError> {
        let mut writer = Self { out, hasher: Sha256::new(), summary: TransferSummary::default() };
        writer.put(&ExportItem::Header(ExportHeader { placet_export: EXPORT_VERSION, logs }))?;
        Ok(writer)
    }

    /// Writes a line.
    ///
    /// # Errors
    /// What the writing answers.
    pub fn put(&mut self, item: &ExportItem) -> Result<(), TransferError> {
        let line = line(item, self.summary.lines)?;
        self.hasher.update(&line);
        self.out.write_all(&line)?;
        self.summary.count(item);
        Ok(())
    }

    /// Writes the last line.
    ///
    /// # Errors
    /// What the writing answers.
    pub fn finish(mut self) -> Result<(W, TransferSummary), TransferError> {
        let sha256 = hex::encode(self.hasher.finalize());
        let end = ExportEnd { lines: self.summary.lines, sha256: sha256.clone() };
        self.out.write_all(&line(&ExportItem::End(end), self.summary.lines)?)?;
        self.out.flush()?;
        Ok((self.out, TransferSummary { sha256, ..self.summary }))
    }
}

fn line(item: &ExportItem, before: u64) -> Result<Vec<u8>, TransferError> {
    let mut line = serde_json::to_vec(item).map_err(|error| TransferError::Malformed {
        line: before.saturating_add(1),
        why: error.to_string(),
    })?;
    line.push(b'\n');
    Ok(line)
}
