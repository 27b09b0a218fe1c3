//! A ledger of many records: what a start, a rebuild and a look-up cost. Run by hand: it prints, and asserts only what must hold.

use placet_ledger::store::ClaimAnswer;
use tempfile::tempdir;
use tokio::time::Instant;

use super::*;
use crate::embedded::codec::encode_entry;
use crate::embedded::open::journal_config;
use crate::journal::Journal;

/// How many records, unless the variable says otherwise.
const RECORDS: u32 = 100_000;

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
#[ignore = "takes minutes; PLACET_SCALE_RECORDS says how many records"]
async fn a_ledger_of_many_records_starts_quickly_and_looks_up_quickly() {
    let count = std::env::var("PLACET_SCALE_RECORDS").ok().and_then(|text| text.parse().ok());
    let count: u32 = count.unwrap_or(RECORDS);
    let folder = tempdir().unwrap();
    let config = EmbeddedConfig {
        state_cache_bytes: 64 << 20,
        segment_bytes: 64 << 20,
        ..config(folder.path())
    };
    let recovered = Journal::open(journal_config(&config)).unwrap();
    let mut journal = recovered.journal;
    let began = Instant::now();
    let key = |number: u32| format!("key-{number}");
    for number in 0..count {
        let claimed = claim_of("acme", &key(number), 1);
        let sent = moved(&claimed, EffectState::Dispatched(attempt(&claimed, 1, Dedup::Opaque)));
        for record in [&sent, &succeeded(&sent)] {
            let (kind, payload) = encode_entry(&mut puts(&[record])).unwrap();
            journal.append(kind, NOW_MS, &payload).unwrap();
        }
    }
    journal.close().unwrap();
    println!("{count} records written in {:?}, {} MB", began.elapsed(), resident_kb() / 1024);

    for what in ["made", "kept", "kept"] {
        let began = Instant::now();
        let (store, report) = open(&config);
        println!(
            "{what}: opened in {:?} (journal {:?}, index {:?}), replayed {}, {} MB",
            began.elapsed(),
            report.journal_took,
            report.state_took,
            report.replayed,
            resident_kb() / 1024
        );
        assert!(counted(&store)[0] >= u64::from(count));
        let began = Instant::now();
        for number in 0..1_000 {
            let new = claim(&*store, &format!("new-{number}"));
            assert_eq!(store.claim(new).await.unwrap(), ClaimAnswer::Claimed);
        }
        let new = began.elapsed() / 1_000;
        let began = Instant::now();
        for number in 0..1_000_u32 {
            let known = claim(&*store, &key(number.wrapping_mul(2_654_435_761) % count));
            assert!(matches!(store.claim(known).await.unwrap(), ClaimAnswer::Taken(_)));
        }
        println!("a new key: {new:?}, a known one: {:?}", began.elapsed() / 1_000);
        let began = Instant::now();
        for number in 0..500 {
            make(&*store, &format!("made-{what}-{}-{number}", report.epoch), true).await;
        }
        println!("a durable move: {:?}", began.elapsed() / 1_000);
        let began = Instant::now();
        store.snapshot().await.unwrap();
        println!("a snapshot: {:?}", began.elapsed());
        store.close().await.unwrap();
    }
}
