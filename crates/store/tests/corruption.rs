//! The corruption matrix (F12): every file of a data folder harmed in every way; each way is refused, repaired or confined, never silent.
//!
//! The table that it makes is a page of the docs.

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
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use placet_ledger::store::{Store as _, StoreError};
use placet_store::embedded::{
    EmbeddedConfig, EmbeddedStore, RecoveryReport, StateFate, StateVerdict, verify,
};
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
    let before = segments(folder);
    let newest = newest_snapshot(folder);
    let has_damaged_snapshot = newest > 0 && has_damaged_snapshot(folder);
    let runtime = runtime();
    match open(folder) {
        Err(error) => {
            // What counts is as it was.
            if segments(folder) != before {
                return Err(format!("refused, and yet changed: {error}"));
            }
            Ok(Seen { verdict: Verdict::Refused, told: error.to_string() })
        }
        Ok((store, report)) => runtime.block_on(async {
            let seen = look(&store, &report, newest, facts).await;
            store.close().await.map_err(|error| format!("does not close: {error}"))?;
            drop(store);
            let seen = seen?;
            if has_damaged_snapshot != (seen.verdict == Verdict::SnapshotPassedOver) {
                return Err("verifying said otherwise of the snapshots".to_owned());
            }
            is_verified_alike(folder, seen.verdict)?;
            Ok(seen)
        }),
    }
}

/// Whether a verification tells of one. It looks at a copy: opening the state changes it.
fn has_damaged_snapshot(folder: &Path) -> bool {
    let aside = scratch();
    copy(folder, aside.path());
    verify(&EmbeddedConfig::new(aside.path()))
        .is_ok_and(|report| !report.damaged_snapshots.is_empty())
}

/// A verification of the folder says the same.
fn is_verified_alike(folder: &Path, seen: Verdict) -> Result<(), String> {
    let sound = match verify(&EmbeddedConfig::new(folder)) {
        Ok(_) if seen == Verdict::FoundByScrub => return Err("it verifies".to_owned()),
        Ok(sound) => sound,
        Err(_) if seen == Verdict::FoundByScrub => return Ok(()),
        Err(error) => return Err(format!("does not verify: {error}")),
    };
    let is_content_whole = sound.content.missing.is_empty() && sound.content.altered.is_empty();
    let is_alike = is_content_whole == (seen != Verdict::ResultsRefused)
        && sound.damaged_snapshots.is_empty()
        // Of a damaged file sled may forget later writes too; the next start takes them over once more.
        && matches!(sound.state, StateVerdict::Agrees | StateVerdict::Behind { .. })
        && sound.illegal.is_empty();
    if is_alike { Ok(()) } else { Err(format!("verifying says otherwise: {sound:?}")) }
}

/// What an open store answers of what was acknowledged.
async fn look(
    store: &EmbeddedStore,
    report: &RecoveryReport,
    newest: u64,
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
    if let Err(error) = store.scrub().await {
        return seen(Verdict::FoundByScrub, &error.to_string());
    }
    match &report.state {
        StateFate::Rebuilt { why } => {
            let is_passed_over = report.snapshot_seq < newest;
            let verdict =
                if is_passed_over { Verdict::SnapshotPassedOver } else { Verdict::StateRebuilt };
            seen(verdict, &format!("the state is rebuilt: {why}"))
        }
        StateFate::Kept if report.torn_bytes > 0 => {
            seen(Verdict::TailDropped, "how many bytes were cut off")
        }
        StateFate::Kept if report.replayed > 0 => {
            seen(Verdict::StateCaughtUp, "how many entries the state took over")
        }
        StateFate::Kept => seen(Verdict::Unharmed, "nothing"),
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

fn segments(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "segment");
    let kept = files(folder).into_iter().filter(is_segment);
    kept.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// The entry of the newest snapshot; 0: there is none.
fn newest_snapshot(folder: &Path) -> u64 {
    let all = files(folder).into_iter();
    let seqs = all.filter(|path| path.extension().is_some_and(|kind| kind == "snapshot"));
    let seqs = seqs.map(|path| path.file_stem().unwrap().to_string_lossy().parse().unwrap());
    seqs.max().unwrap_or(0)
}

/// Whether what was seen is what the row says. A state that is damaged by chance may be rebuilt, catch up, or lack nothing.
fn is_as_expected(row: &Row, seen: Verdict) -> bool {
    match row.verdict {
        Verdict::StateCaughtUp => {
            matches!(seen, Verdict::StateCaughtUp | Verdict::StateRebuilt | Verdict::Unharmed)
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

/// What the operator is told, as far as it is the same each time: numbers and digests depend on the size of records, which may change.
fn told(row: &Row, told: &str) -> String {
    if row.verdict == Verdict::StateCaughtUp {
        return "what became of the state".to_owned();
    }
    let general = |word: &str| {
        if word.starts_with("`sha256:") {
            return "`sha256:…`".to_owned();
        }
        let mut word = word.replace(|c: char| c.is_ascii_digit(), "#");
        while word.contains("##") {
            word = word.replace("##", "#");
        }
        word
    };
    told.split(' ').map(general).collect::<Vec<_>>().join(" ")
}

fn page(lines: &[(Row, usize, String)]) -> String {
    let mut page = String::from(
        "# Damage and what follows\n\n\
        <!-- Generated; `UPDATE_EXPECT=1 cargo test -p placet-store --test corruption` refreshes it. -->\n\n\
        What the embedded ledger does when its files have come to harm. A test makes every line of this table happen. *Refused* means: \
        the program does not start, says the sentence, and has changed nothing in the journal. `#` stands for a number; *ways* says in how \
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
fn every_harm_is_refused_repaired_or_confined_and_never_silent() {
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
