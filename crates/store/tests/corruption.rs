//! The corruption matrix (F12): every file of a data folder harmed in every way; each way is refused, mended or confined, never silent.
//!
//! The table that it makes is a page of the book.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "the whole program is a test, its helpers too"
)]

mod damage;
mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use expect_test::expect_file;
use placet_ledger::store::{Store as _, StoreError};
use placet_store::embedded::{EmbeddedStore, IndexFate, RecoveryReport, verify};
use placet_types::digest::Digest;

use damage::rows::{Row, Verdict, rows};
use damage::{Bench, Templates};
use support::{Facts, acknowledged, copy, files, open, parked, result, runtime, scratch, tenant};

/// An older copy has fewer entries than this, every other folder more.
const OLD_FRAMES_MAX: u64 = 12;

/// What followed from one way of harm.
struct Seen {
    verdict: Verdict,
    /// What the operator is told.
    told: String,
}

fn see(folder: &Path, facts: &Facts) -> Result<Seen, String> {
    let before = snapshot(folder);
    let runtime = runtime();
    match open(folder) {
        Err(error) => {
            // What counts is as it was.
            if snapshot(folder) != before {
                return Err(format!("refused, and yet changed: {error}"));
            }
            Ok(Seen { verdict: Verdict::Refused, told: error.to_string() })
        }
        Ok((store, report)) => runtime.block_on(async {
            let seen = look(&store, &report, facts).await;
            store.close().await.map_err(|error| format!("does not close: {error}"))?;
            drop(store);
            let seen = seen?;
            let sound = verify(folder).map_err(|error| format!("does not verify: {error}"))?;
            let is_content_whole =
                sound.content.missing.is_empty() && sound.content.altered.is_empty();
            if is_content_whole == (seen.verdict == Verdict::ResultsRefused) {
                return Err(format!("verifying says otherwise: {sound:?}"));
            }
            Ok(seen)
        }),
    }
}

/// What an open store answers of what was acknowledged.
async fn look(
    store: &EmbeddedStore,
    report: &RecoveryReport,
    facts: &Facts,
) -> Result<Seen, String> {
    let seen = |verdict, told: &str| Ok(Seen { verdict, told: told.to_owned() });
    if report.frames < OLD_FRAMES_MAX {
        return seen(Verdict::AsItWas, "nothing");
    }
    if let Some(refused) = refused_results(store, facts).await? {
        return seen(Verdict::ResultsRefused, &refused);
    }
    acknowledged(store, facts).await?;
    match &report.index {
        IndexFate::Rebuilt { why } => {
            seen(Verdict::IndexRebuilt, &format!("the index is rebuilt: {why}"))
        }
        IndexFate::Kept if report.torn_bytes > 0 => {
            seen(Verdict::TailDropped, "how many bytes were cut off")
        }
        IndexFate::Kept if report.replayed > 0 => {
            seen(Verdict::IndexMended, "how many entries the index took over")
        }
        IndexFate::Kept => seen(Verdict::Unharmed, "nothing"),
    }
}

/// Arguments and results are answered as they were or refused; never otherwise.
async fn refused_results(store: &EmbeddedStore, facts: &Facts) -> Result<Option<String>, String> {
    let mut refused = None;
    for key in facts.done.keys() {
        for whole in [parked(key), result(key)] {
            match store.content(&tenant(), Digest::of(&whole)).await {
                Ok(bytes) if bytes == whole => {}
                Ok(_) => return Err(format!("`{key}` was answered with other bytes")),
                Err(error @ (StoreError::ContentAltered(_) | StoreError::ContentMissing(_))) => {
                    refused = Some(error.to_string());
                }
                Err(error) => return Err(format!("`{key}`: {error}")),
            }
        }
    }
    Ok(refused)
}

fn snapshot(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let counts = |path: &Path| {
        path.extension().is_some_and(|kind| kind == "segment")
            || path.starts_with(folder.join("content"))
    };
    let kept = files(folder).into_iter().filter(|path| counts(path));
    kept.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Whether what was seen is what the row says. An index that is damaged by chance may be mended in either way.
fn is_as_expected(row: &Row, seen: Verdict) -> bool {
    match row.verdict {
        Verdict::IndexMended => {
            matches!(seen, Verdict::IndexMended | Verdict::IndexRebuilt | Verdict::Unharmed)
        }
        expected => seen == expected,
    }
}

/// Harms in every way of a row; answers how many there were and what the operator was told first.
fn play(row: &Row, templates: &Templates) -> Result<(usize, String), String> {
    let facts = Facts::read(&templates.account(row.template));
    let (mut told, mut way) = (None, 0);
    loop {
        let folder = scratch();
        copy(&templates.folder(row.template), folder.path());
        if !(row.harm)(&Bench { folder: folder.path(), templates }, way) {
            let told = told.ok_or("no way of harm")?;
            return Ok((way, told));
        }
        let seen = see(folder.path(), &facts).map_err(|why| format!("way {way}: {why}"))?;
        if !is_as_expected(row, seen.verdict) {
            return Err(format!("way {way}: {:?}, told: {}", seen.verdict, seen.told));
        }
        told.get_or_insert(seen.told);
        way += 1;
    }
}

/// Numbers and digests depend on the size of records, which may change.
fn general(told: &str) -> String {
    let mut general = String::new();
    for word in told.split(' ') {
        let is_number = word.trim_end_matches([',', ':']).chars().all(|c| c.is_ascii_digit());
        let digest = word.starts_with("`sha256:");
        let text = match (digest, is_number) {
            (true, _) => "`sha256:…`".to_owned(),
            (false, true) => word.replace(|c: char| c.is_ascii_digit(), "#").replace("##", "#"),
            (false, false) => word.to_owned(),
        };
        general.push_str(&text);
        general.push(' ');
    }
    while general.contains("##") {
        general = general.replace("##", "#");
    }
    general.trim_end().to_owned()
}

/// What the operator is told, as far as it is the same each time.
fn told(row: &Row, told: &str) -> String {
    if row.verdict == Verdict::IndexMended {
        return "what became of the index".to_owned();
    }
    let whole = general(told);
    whole
        .split_once("cannot be opened")
        .map_or(whole.clone(), |(start, _)| format!("{start}cannot be opened: …"))
}

fn page(lines: &[(Row, usize, String)]) -> String {
    let mut page = String::from(
        "# Damage and what follows\n\n\
        <!-- Generated; `UPDATE_EXPECT=1 cargo test -p placet-store --test corruption` refreshes it. -->\n\n\
        What the embedded ledger does when its files have come to harm. A test makes every line of this table happen. *Refused* means: \
        the program does not start, says the sentence, and has changed nothing in journal and content. `#` stands for a number; *ways* says in how \
        many places the harm was done, all with this consequence.\n",
    );
    let mut group = "";
    for (row, ways, said) in lines {
        if row.group != group {
            group = row.group;
            write!(page, "\n## {group}\n\n| harm | ways | what follows | what the operator is told |\n|---|---|---|---|\n").unwrap();
        }
        writeln!(page, "| {} | {ways} | {} | {} |", row.what, row.verdict.words(), told(row, said))
            .unwrap();
    }
    page
}

#[test]
fn every_harm_is_refused_mended_or_confined_and_never_silent() {
    let templates = Templates::make();
    let mut lines = Vec::new();
    let mut wrong = BTreeMap::new();
    for row in rows() {
        match play(&row, &templates) {
            Ok((ways, told)) => lines.push((row, ways, told)),
            Err(why) => drop(wrong.insert(format!("{}, {}", row.group, row.what), why)),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    expect_file!["../../../docs/src/reference/corruption.md"].assert_eq(&page(&lines));
}
