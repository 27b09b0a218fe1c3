//! The page that says which test runs which attack.
//!
//! Owns that each of its names is the name of a test.

use std::collections::BTreeSet;

use regex::Regex;

use crate::workspace::{files, read};

/// The names on the page that no test has.
pub(super) fn unknown() -> Vec<String> {
    let page = read("docs/src/threats.md");
    let row = Regex::new("(?m)^\\|.*\\|(.*)\\|$").expect("a pattern");
    let name = Regex::new("`([a-z0-9_]+)`").expect("a pattern");
    let named: BTreeSet<String> = row
        .captures_iter(&page)
        .flat_map(|row| {
            name.captures_iter(&row[1]).map(|one| one[1].to_owned()).collect::<Vec<_>>()
        })
        .collect();
    assert!(named.len() > 50, "the table is not read: {named:?}");
    let test = Regex::new(
        "#\\[(?:tokio::)?test[^\\]]*\\]\\s+(?:#\\[[^\\]]*\\]\\s+)*(?:async )?fn ([a-z0-9_]+)",
    )
    .expect("a pattern");
    let mut tests = BTreeSet::new();
    for file in files(&["crates", "adapters", "tests"], &[".rs"]) {
        tests.extend(test.captures_iter(&file.text).map(|found| found[1].to_owned()));
    }
    named.difference(&tests).cloned().collect()
}
