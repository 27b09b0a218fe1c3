//! Keys, checkpoints, receipts and exported logs: what verifies, and above all what does not.

#![expect(clippy::arithmetic_side_effects, reason = "small numbers in tests")]

mod checkpoints;
mod exports;
mod keys;
mod receipts;

use std::sync::Arc;

use placet_ledger::log::LogEntry;
use placet_ledger::proof::checkpoint::Checkpoint;
use placet_ledger::proof::note::NoteName;
use placet_ledger::proof::tiles::{Appender, MemoryTiles};
use placet_ledger::proof::{Frontier, TreeView};
use placet_types::clock::Timestamp;

use super::{SealKey, entry_hash, export_header, export_line, sign_checkpoint};

const AT: Timestamp = Timestamp::from_ms(1_800_000_000_000);

fn name(name: &str) -> NoteName {
    NoteName::new(name).unwrap()
}

fn origin() -> NoteName {
    name("placet.example/journal")
}

fn key() -> Arc<SealKey> {
    Arc::new(SealKey::from_seed(name("placet.example"), &[7; 32]))
}

/// A key of the same name.
fn other_key() -> Arc<SealKey> {
    Arc::new(SealKey::from_seed(name("placet.example"), &[8; 32]))
}

/// A log of its own, with everything that is said about it.
#[derive(Debug, Clone, Default)]
struct Log {
    entries: Vec<LogEntry>,
    appender: Appender,
    tiles: MemoryTiles,
}

impl Log {
    fn of(size: u64) -> Self {
        Self::from_payloads(
            (1..=size).map(|seq| format!("{{\"version\":2,\"entry\":\"nº {seq}\"}}")),
        )
    }

    fn from_payloads(payloads: impl IntoIterator<Item = String>) -> Self {
        let mut log = Self::default();
        for payload in payloads {
            log.append(payload);
        }
        log
    }

    fn append(&mut self, payload: String) {
        let seq = u64::try_from(self.entries.len()).unwrap() + 1;
        let mut entry = LogEntry {
            seq,
            epoch: 1 + seq / 8,
            at_ms: 1_800_000_000_000 + i64::try_from(seq / 2).unwrap(),
            kind: 1,
            durable_seq: seq - 1,
            prev: self.entries.last().map_or([0; 32], |last| last.hash),
            payload: payload.into_bytes(),
            hash: [0; 32],
        };
        entry.hash = entry_hash(&entry);
        self.appender.append(&entry.hash);
        for part in self.appender.take() {
            self.tiles.write(part).unwrap();
        }
        self.entries.push(entry);
    }

    fn frontier(&self) -> &Frontier {
        self.appender.frontier()
    }

    fn view(&self) -> TreeView<'_, MemoryTiles> {
        TreeView::new(&self.tiles, self.frontier().head())
    }

    fn statement(&self) -> Checkpoint {
        let (chain, epoch) =
            self.entries.last().map_or(([0; 32], 0), |last| (last.hash, last.epoch));
        Checkpoint { origin: origin(), head: self.frontier().head(), chain, epoch, at: AT }
    }

    /// The signed form of it.
    fn checkpoint(&self) -> String {
        sign_checkpoint(&key(), &self.statement()).unwrap().to_string()
    }

    /// The lines of its export.
    fn export(&self) -> Vec<String> {
        let mut lines = vec![export_header(&origin()).unwrap()];
        lines.extend(self.entries.iter().map(|entry| export_line(entry).unwrap()));
        lines
    }
}

#[test]
fn a_secret_for_another_purpose_is_of_the_key_and_the_purpose() {
    // HMAC-SHA256 with the seed as key, as any other program computes it.
    let secret = key().secret_for("placet.test.v1");
    assert_eq!(
        hex::encode(*secret),
        "422346b42853806b31da6d722c49116ee81a50c0dca59d2d81519f78a4bf18c6"
    );
    assert_ne!(secret, key().secret_for("placet.test.v2"));
    assert_ne!(secret, other_key().secret_for("placet.test.v1"));
}
