//! Documents that are handed to a command as a file or on standard input.
//!
//! Owns the reading, with a limit, as strict as the listeners read.

use std::{fs::File, io::Read, path::Path};

use placet_types::json::{JsonLimits, parse_strict};
use serde_json::Value;

use crate::failure::{Attempted as _, Failure};

/// The longest document, in bytes.
const BYTES_MAX: u64 = 1024 * 1024;

/// The JSON document in a file; `-` is standard input.
///
/// # Errors
/// [`Failure`] when it cannot be read, is too long, or is no JSON.
pub(super) fn document(file: &Path) -> Result<Value, Failure> {
    let what = format!("`{}` cannot be read", file.display());
    let bytes = if file == Path::new("-") {
        all_of(std::io::stdin().lock())
    } else {
        File::open(file).and_then(all_of)
    };
    let bytes = bytes.attempted(what.clone())?;
    let limits = JsonLimits {
        bytes_max: usize::try_from(BYTES_MAX).unwrap_or(usize::MAX),
        ..JsonLimits::default()
    };
    parse_strict(&bytes, &limits).map_err(|error| Failure::usage(what).because(error))
}

fn all_of(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more than is taken, so that too much is noticed.
    from.take(BYTES_MAX.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::{BYTES_MAX, document};

    #[test]
    fn a_document_is_read_strictly_and_within_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("args.json");
        std::fs::write(&file, "{\"a\": [1]}").unwrap();
        assert_eq!(document(&file).unwrap(), json!({ "a": [1] }));
        for wrong in ["", "{\"a\":1,\"a\":2}", "{"] {
            std::fs::write(&file, wrong).unwrap();
            let failure = document(&file).unwrap_err().to_string();
            assert!(failure.contains("args.json` cannot be read"), "{failure}");
        }
        let long = format!("\"{}\"", "x".repeat(usize::try_from(BYTES_MAX).unwrap()));
        std::fs::write(&file, long).unwrap();
        assert!(document(&file).unwrap_err().to_string().contains("at most"));
        assert!(document(Path::new("/none/at/all")).is_err());
    }
}
