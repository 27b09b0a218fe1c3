//! What is compiled into the program: the shipped policies with their cases, the development directory, the sample
//! configuration.
//!
//! Owns the list of files. A test compares it with the folder `policies/`, so that none is forgotten.

use placet_adapter_files::contract::LOWERING_POLICY;
use placet_policy::bundle::{BundleSource, PolicyFile};
use placet_types::contract::file::{ContractFile, TransportFile};

/// A file and its text.
pub(crate) type ShippedFile = (&'static str, &'static str);

macro_rules! shipped {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../../../policies/", $name)))),*] };
}

/// The policies.
pub(crate) const POLICIES: &[ShippedFile] = shipped![
    "10-permits-agents.cedar",
    "11-permits-users.cedar",
    "12-permits-machines.cedar",
    "20-gates.cedar",
    "30-guards.cedar",
    "40-review.cedar",
    "50-directives.cedar",
];

/// The policy about the built-in `files`; a bundle has it only where there is such a contract, since it names its tool.
pub(crate) const FILES_POLICY: ShippedFile = ("15-files.cedar", LOWERING_POLICY);

/// The readme next to them.
pub(crate) const POLICIES_README: &str = include_str!("../../../policies/README.md");

/// The cases that state what they are meant to decide.
pub(crate) const CASES: &[ShippedFile] =
    shipped!["cases/10-calls.yaml", "cases/20-reviews.yaml", "cases/30-directives.yaml"];

/// The development directory.
pub(crate) const DIRECTORY: &str = include_str!("../assets/directory.yaml");

/// The configuration that `placet init` writes.
pub(crate) const CONFIG: &str = include_str!("../assets/placet.yaml");

/// The shipped bundle for these contracts.
pub(crate) fn bundle<'a>(contracts: impl IntoIterator<Item = &'a ContractFile>) -> BundleSource {
    let mut contracts = contracts.into_iter();
    let of_files = contracts.any(is_builtin_files).then_some(&FILES_POLICY);
    BundleSource::new(
        POLICIES
            .iter()
            .chain(of_files)
            .map(|(name, text)| PolicyFile { name: (*name).to_owned(), text: (*text).to_owned() }),
    )
}

fn is_builtin_files(contract: &ContractFile) -> bool {
    contract.adapter.as_str() == "files"
        && matches!(contract.transport, TransportFile::Internal { .. })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::{CASES, POLICIES, ShippedFile};

    fn files(folder: &str, extension: &str) -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies").join(folder);
        let names = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(extension)).collect()
    }

    fn listed(files: &[ShippedFile]) -> BTreeSet<String> {
        files
            .iter()
            .map(|(name, _)| name.strip_prefix("cases/").unwrap_or(name).to_owned())
            .collect()
    }

    #[test]
    fn every_policy_and_case_of_the_repository_is_compiled_in() {
        assert_eq!(listed(POLICIES), files("", ".cedar"));
        assert_eq!(listed(CASES), files("cases", ".yaml"));
    }
}
