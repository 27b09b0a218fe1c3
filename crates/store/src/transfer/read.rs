//! Reading an export.
//!
//! Owns the proof that it is whole: what was passed on before the end counts only when this has succeeded. Not here: what the caller makes
//! of it. Invariant: no more than one line is in memory.

use std::io::BufRead;
use std::io::Read as _;

use sha2::{Digest as _, Sha256};

use super::{EXPORT_VERSION, ExportHeader, ExportItem, TransferError, TransferSummary};

/// The longest line: the largest content in base64, with some room.
const LINE_BYTES_MAX: u64 = 32 << 20;

/// Reads an export, passing the header and then each item to `visit`. What `visit` made of them is good only if this succeeds.
///
/// # Errors
/// [`TransferError`]: something was altered, or `visit` refuses.
pub fn read_export(
    mut input: impl BufRead,
    visit: &mut dyn FnMut(ExportItem) -> Result<(), TransferError>,
) -> Result<TransferSummary, TransferError> {
    let mut hasher = Sha256::new();
    let mut summary = TransferSummary::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = LINE_BYTES_MAX.saturating_add(1);
        let count = (&mut input).take(limit).read_until(b'\n', &mut line)?;
        if count == 0 {
            return Err(TransferError::NotWhole("its last line is missing".to_owned()));
        }
        let item = parse(&line, summary.lines)?;
        if let ExportItem::End(end) = item {
            let sha256 = hex::encode(hasher.finalize());
            if end.lines != summary.lines || end.sha256 != sha256 {
                return Err(TransferError::NotWhole("its digest is another one".to_owned()));
            }
            if input.read(&mut [0])? > 0 {
                return Err(TransferError::NotWhole("something follows its end".to_owned()));
            }
            return Ok(TransferSummary { sha256, ..summary });
        }
        hasher.update(&line);
        summary.count(&item);
        check_header(&item, summary.lines)?;
        visit(item)?;
    }
}

fn parse(line: &[u8], before: u64) -> Result<ExportItem, TransferError> {
    let number = before.saturating_add(1);
    let malformed = |why: String| TransferError::Malformed { line: number, why };
    let Some(text) = line.strip_suffix(b"\n") else {
        return Err(malformed("it has no end, or is too long".to_owned()));
    };
    serde_json::from_slice(text).map_err(|error| malformed(error.to_string()))
}

/// The header is the first line and no other.
fn check_header(item: &ExportItem, line: u64) -> Result<(), TransferError> {
    let malformed = |why: String| Err(TransferError::Malformed { line, why });
    let version = match item {
        ExportItem::Header(ExportHeader { placet_export, .. }) => Some(*placet_export),
        ExportItem::Entry { .. }
        | ExportItem::Record(_)
        | ExportItem::Approval(_)
        | ExportItem::Directive(_)
        | ExportItem::Run(_)
        | ExportItem::Content { .. }
        | ExportItem::End(_) => None,
    };
    match (version, line) {
        (Some(EXPORT_VERSION), 1) | (None, 2..) => Ok(()),
        (Some(version), 1) => malformed(format!("unknown version {version}")),
        (Some(_), _) => malformed("a second header".to_owned()),
        (None, _) => malformed("the header is missing".to_owned()),
    }
}
