//! The page of code in the documents that verifies a log runs here over a real one: it accepts what is sound, agrees with our own
//! verification, and refuses what was changed.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "the whole program is a test, its helpers too"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use placet_ledger::log::LogEntry;
use placet_ledger::proof::Frontier;
use placet_ledger::proof::checkpoint::Checkpoint;
use placet_ledger::proof::note::NoteName;
use placet_store::journal::medium::Disk;
use placet_store::journal::{Journal, JournalConfig};
use placet_store::seal::{
    ExportHeader, SealKey, entry_hash, export_header, export_line, sign_checkpoint,
    verify_checkpoint,
};
use placet_types::clock::Timestamp;
use tempfile::{TempDir, tempdir};

const ENTRIES: u64 = 300;
/// When the older checkpoint was made.
const OLDER: u64 = 130;

/// A log with its export, its checkpoints and its public key, as files.
struct Exported {
    folder: TempDir,
    vkey: String,
    lines: Vec<String>,
}

impl Exported {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes an export with these lines and verifies it with the page of code.
    fn verify(&self, lines: &[String], checkpoints: &[&str]) -> Output {
        fs::write(self.path("export.jsonl"), lines.join("\n") + "\n").unwrap();
        let checkpoints: Vec<_> = checkpoints.iter().map(|name| self.path(name)).collect();
        run(&self.path("export.jsonl"), &checkpoints, &self.vkey)
    }

    /// Whether our own code takes the export that was written last.
    fn accepted_by_us(&self, checkpoint: &str) -> bool {
        let key = SealKey::open(&self.path("seal.key")).unwrap();
        let note = fs::read_to_string(self.path(checkpoint)).unwrap();
        let signed = verify_checkpoint(&note, key.public(), None).unwrap();
        let size = signed.head.size;
        let export = fs::read_to_string(self.path("export.jsonl")).unwrap();
        let mut lines = export.lines();
        let header = lines.next().and_then(|line| serde_json::from_str::<ExportHeader>(line).ok());
        let is_whole = header.is_some_and(|it| {
            it.origin == signed.origin && it.first_seq == 1 && it.peaks.is_empty()
        });
        let mut tree = Frontier::new();
        let (mut head, mut seen) = ([0; 32], None);
        for line in lines {
            let Ok(entry) = serde_json::from_str::<LogEntry>(line) else { return false };
            let follows = entry.seq == tree.size() + 1 && entry.prev == head;
            if !follows || entry_hash(&entry) != entry.hash {
                return false;
            }
            head = entry.hash;
            tree.append(&head, &mut |_, _| {});
            if tree.size() == size {
                seen = Some((tree.root(), head));
            }
        }
        is_whole && seen == Some((signed.head.root, signed.chain))
    }
}

#[expect(clippy::disallowed_methods, reason = "the test runs a program that readers run")]
fn run(export: &Path, checkpoints: &[PathBuf], vkey: &str) -> Output {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/examples/verify_log.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(export).arg(&checkpoints[0]).arg(vkey).args(&checkpoints[1..]);
    command.output().expect("python3 is needed for this test")
}

fn journal_config(folder: &Path) -> JournalConfig {
    JournalConfig {
        directory: folder.join("journal"),
        segment_bytes: 64 << 10,
        free_space_watermark_bytes: 0,
        archive: None,
        medium: Arc::new(Disk),
    }
}

/// A journal that was closed and opened in between, its tree, two checkpoints, and the export of all of it.
fn exported() -> Exported {
    let folder = tempdir().unwrap();
    let name = NoteName::new("placet.example").unwrap();
    let origin = NoteName::new("placet.example/journal").unwrap();
    let key = SealKey::open_or_create(&folder.path().join("seal.key"), &name).unwrap();
    let mut tree = Frontier::new();
    let checkpoints = [("older", 1..=OLDER), ("checkpoint", OLDER + 1..=ENTRIES)];
    let mut lines = vec![export_header(&origin).unwrap()];
    for (file, seqs) in checkpoints {
        let mut journal = Journal::open(journal_config(folder.path())).unwrap().journal;
        for seq in seqs {
            let payload =
                format!("{{\"version\":2,\"audit\":[{{\"note\":\"Größe {seq} \\u2028\"}}]}}");
            let at_ms = 1_800_000_000_000 + i64::try_from(seq / 3).unwrap();
            let appended = journal.append_with(2, at_ms, payload.into_bytes(), &[]).unwrap().0;
            tree.append(&appended.hash, &mut |_, _| {});
            if seq % 50 == 0 {
                journal.sync().unwrap();
            }
        }
        journal.sync().unwrap();
        let checkpoint = Checkpoint {
            origin: origin.clone(),
            head: tree.head(),
            chain: journal.head().1,
            epoch: journal.epoch(),
            at: Timestamp::from_ms(1_800_000_000_999),
        };
        let note = sign_checkpoint(&key, &checkpoint).unwrap().to_string();
        fs::write(folder.path().join(file), note).unwrap();
        let from = u64::try_from(lines.len()).unwrap();
        let frames = journal.reader().read_from(from).map(Result::unwrap);
        lines.extend(frames.map(|frame| export_line(&frame).unwrap()));
        journal.close().unwrap();
    }
    assert_eq!(u64::try_from(lines.len()).unwrap(), ENTRIES + 1);
    Exported { vkey: key.public().vkey(), folder, lines }
}

/// The page refuses the lines and says why; our own code refuses them too.
fn assert_refused(log: &Exported, lines: &[String], why: &str) {
    let output = log.verify(lines, &["checkpoint"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(why), "{said}");
    assert!(!said.contains("Traceback"), "{said}");
    assert!(!log.accepted_by_us("checkpoint"), "{why}");
}

#[test]
fn the_page_of_code_accepts_a_real_log() {
    let log = exported();
    let output = log.verify(&log.lines, &["checkpoint", "older"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
    let expected =
        "sound: entries 1 to 300 of placet.example/journal; 300 entries are signed, root ";
    assert!(said.starts_with(expected), "{said}");
    assert!(log.accepted_by_us("checkpoint"));
    // The older one alone says of the rest only that it is chained.
    let output = log.verify(&log.lines, &["older"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("300 of placet.example/journal; 130 entries are signed"), "{said}");
    // A part, with the peaks before it.
    let mut before = Frontier::new();
    for line in &log.lines[1..200] {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let hash = hex::decode(line["hash"].as_str().unwrap()).unwrap();
        before.append(&hash.try_into().unwrap(), &mut |_, _| {});
    }
    let origin = NoteName::new("placet.example/journal").unwrap();
    let peaks = before.peaks().to_vec();
    let header = ExportHeader { placet_log: 1, origin, first_seq: 200, peaks };
    let mut part = vec![serde_json::to_string(&header).unwrap()];
    part.extend_from_slice(&log.lines[200..]);
    let output = log.verify(&part, &["checkpoint"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("sound: entries 200 to 300"), "{said}");
}

#[test]
fn the_page_of_code_refuses_a_changed_log() {
    let log = exported();
    let changed = |place: usize, from: &str, to: &str| {
        let mut lines = log.lines.clone();
        lines[place] = lines[place].replacen(from, to, 1);
        assert_ne!(lines, log.lines);
        lines
    };
    assert_refused(&log, &changed(42, "Größe", "Grosse"), "entry 42 is not what its hash says");
    assert_refused(
        &log,
        &changed(42, "\"kind\":2", "\"kind\":1"),
        "entry 42 is not what its hash says",
    );
    assert_refused(
        &log,
        &changed(42, "\"at_ms\":18", "\"at_ms\":19"),
        "entry 42 is not what its hash says",
    );
    assert_refused(&log, &changed(42, "\"prev\":\"", "\"prev\":\"00"), "entry 42");
    assert_refused(&log, &changed(0, "\"peaks\":[]", "\"peaks\":[\"sha256:00\"]"), "not sound");
    assert_refused(&log, &changed(0, "journal", "another"), "another log");
    let mut lines = log.lines.clone();
    lines.remove(42);
    assert_refused(&log, &lines, "entry 43 stands where entry 42 is due");
    lines = log.lines.clone();
    lines.truncate(300);
    assert_refused(&log, &lines, "the export goes from entry 1 to 299");
    assert_refused(&log, &[], "not sound");
}

#[test]
fn the_page_of_code_refuses_another_log_another_key_and_another_checkpoint() {
    let (log, other) = (exported(), exported());
    // Each made its own key, so the same entries are signed by somebody else.
    fs::copy(other.path("checkpoint"), log.path("forged")).unwrap();
    let output = log.verify(&log.lines, &["forged"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("is not signed with placet.example+"), "{said}");
    let note = fs::read_to_string(log.path("checkpoint")).unwrap();
    for (from, to) in [("\n300\n", "\n299\n"), ("epoch 2", "epoch 3"), ("chain ", "chain 0")] {
        fs::write(log.path("forged"), note.replacen(from, to, 1)).unwrap();
        let output = log.verify(&log.lines, &["forged"]);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("is not signed with placet.example+"), "{said}");
    }
    // A log of other entries under the same key does not pass for it.
    let forged = exported_again(&log);
    let output = log.verify(&forged, &["checkpoint", "older"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the first 130 entries are not those that were signed"), "{said}");
    assert!(!log.accepted_by_us("checkpoint"));
}

/// The log rebuilt, whole and chained, with one entry changed.
fn exported_again(log: &Exported) -> Vec<String> {
    let folder = tempdir().unwrap();
    let mut journal = Journal::open(journal_config(folder.path())).unwrap().journal;
    for (seq, line) in (1..).zip(&log.lines[1..]) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let payload = if seq == 77 { "\"nothing\"" } else { line["payload"].as_str().unwrap() };
        let at_ms = line["at_ms"].as_i64().unwrap();
        journal.append_with(2, at_ms, payload.into(), &[]).unwrap();
    }
    journal.sync().unwrap();
    let mut lines = vec![log.lines[0].clone()];
    let frames = journal.reader().read_from(1).map(Result::unwrap);
    lines.extend(frames.map(|frame| export_line(&frame).unwrap()));
    lines
}
