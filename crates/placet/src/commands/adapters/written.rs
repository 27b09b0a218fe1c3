//! An imported contract as a file.
//!
//! Owns its text and its path. Invariant: a reviewed contract is never overwritten.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
};

use placet_types::{
    contract::{DESCRIPTION_BYTES_MAX, file::ContractFile},
    text::is_hidden,
};

use crate::{
    config::load::Config,
    failure::{Attempted as _, Failure},
    output, yaml,
};

/// The folder of a configuration's contracts.
pub(super) fn folder_of(config: &Config) -> PathBuf {
    let root = config.contracts.clone().unwrap_or_else(|| PathBuf::from("contracts"));
    root.join(config.environment.as_str())
}

/// Checks that there is no contract yet.
pub(super) fn check_free(path: &Path) -> Result<(), Failure> {
    if path.symlink_metadata().is_ok() {
        return Err(Failure::new(format!("`{}` is there already", path.display()))
            .because("`import` never overwrites what was reviewed")
            .try_this("`placet adapters diff` compares it with the live server, `placet adapters pin` accepts a change"));
    }
    Ok(())
}

/// The contract as YAML that parses back to the same contract.
pub(super) fn yaml_of(file: &ContractFile) -> Result<String, Failure> {
    let what = "the contract cannot be written";
    let text = serde_saphyr::to_string(file).attempted(what)?;
    let back: ContractFile = yaml::parse(Path::new("the contract"), &text).attempted(what)?;
    if back != *file {
        return Err(Failure::new(what).because("it would not be read back as it is"));
    }
    Ok(text)
}

/// The text of an imported contract, with a note to its reviewer.
pub(super) fn text_of(file: &ContractFile, source: &str) -> Result<String, Failure> {
    Ok(format!(
        "# Imported from {}. Review every mode: each tool starts as strong as the import said.\n\
         # `server_hints` is what the server claims about itself; nothing trusts it. `pin` is the definition that was reviewed.\n{}",
        output::printable(source),
        yaml_of(file)?
    ))
}

/// Writes the file, and its folder where that is missing.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let what = || format!("`{}` cannot be written", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).attempted(what())?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).attempted(what())?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).attempted(what())
}

/// A description within the limit, without characters that hide or reorder text, and with plain spaces.
pub(super) fn clean(text: &str) -> String {
    let mut kept = String::new();
    for c in text.chars() {
        let c = match c {
            '\n' | '\t' => c,
            c if !is_hidden(c) => c,
            c if c.is_whitespace() && !c.is_control() => ' ',
            _ => continue,
        };
        if kept.len().saturating_add(c.len_utf8()) > DESCRIPTION_BYTES_MAX {
            break;
        }
        kept.push(c);
    }
    kept
}
