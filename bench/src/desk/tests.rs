//! A small run of the whole measurement, with the program as it was built last.

use std::{path::PathBuf, time::Duration};

use super::{Amount, measured, party::memory_of, sizes};
use crate::engine;

#[test]
fn memory_is_read_in_bytes_and_what_is_not_there_is_an_error() {
    let status = "Name:\tx\nVmRSS:\t 2048 kB\nRssAnon:\t 1024 kB\n";
    let memory = memory_of(status).unwrap();
    assert_eq!((memory.resident, memory.own), (2 << 20, 1 << 20));
    assert!(memory_of("VmRSS:\t 2048 kB\n").is_err());
    assert!(memory_of("").is_err());
}

const AMOUNT: Amount = Amount { held: 60, decisions: 4, looks: 3 };

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_is_weighed_decided_on_and_there_after_each_start() {
    // `./test` names the program that it has built; else it is built here.
    let built = std::env::var_os("PLACET_BIN").map(PathBuf::from);
    let own = std::env::current_exe().unwrap();
    let beside = own.parent().and_then(|deps| deps.parent()).unwrap().join("placet-bench");
    let placet = engine::locate(built.as_deref(), &beside).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let report =
        measured((&placet, folder.path()), None, AMOUNT, Duration::from_millis(10)).await.unwrap();
    let held: Vec<usize> = report.grown.iter().map(|weight| weight.held).collect();
    assert_eq!(held, [10, 10, 15, 30, 60]);
    assert!(report.grown.iter().all(|weight| weight.memory.resident > weight.memory.own));
    assert_eq!(report.decided.iter().map(|one| one.held).collect::<Vec<_>>(), [10, 60]);
    assert!(report.decided.iter().all(|one| one.dispatch.calls == 4));
    let starts: Vec<(usize, bool)> =
        report.starts.iter().map(|start| (start.held, start.killed)).collect();
    assert_eq!(starts, [(56, true), (56, false)]);
    let looked = report.looked.iter().filter(|one| one.held == 60 && one.took.calls == 3);
    assert_eq!(looked.count(), 5, "{:?}", report.looked);
    let text = sizes::render(&report);
    assert!(text.contains("| 60 ") || text.contains(" 60 |"), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}
