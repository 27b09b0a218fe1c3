//! Contents that entries name: kept with them, erased after the entries that say so.

use super::*;

#[tokio::test]
async fn contents_are_durable_with_the_entry_that_brings_them_by_one_sync() {
    let bench = bench();
    bench.submit(synced(b"first")).await.unwrap();
    let syncs = bench.disk.count(Op::Sync, Target::Segment);
    bench.submit(Request::Keep(b"arguments".to_vec())).await.unwrap();
    assert_eq!(bench.disk.count(Op::Sync, Target::Segment), syncs + 1);
    let placed = bench.applied.lock().unwrap()[1].contents[0].clone();
    assert_eq!(placed.digest, Digest::of(b"arguments"));
    let reader = &bench.reader;
    assert_eq!(reader.content(&placed.place).unwrap(), b"arguments");
    assert_eq!(reader.read(2).unwrap().contents, [placed]);
}

#[tokio::test]
async fn what_an_entry_deletes_is_erased_once_that_entry_is_seen() {
    let mut told = Arc::default();
    let bench = bench_with(|apply| told = Arc::clone(&apply.erased));
    bench.submit(Request::Keep(b"kept".to_vec())).await.unwrap();
    bench.submit(Request::Forget(b"kept".to_vec())).await.unwrap();
    let (place, applied) = told.lock().unwrap().remove(0);
    assert_eq!(applied, 2);
    assert_eq!(bench.reader.content(&place).unwrap(), [0; 4]);
    bench.writer.close().await.unwrap();
    // The chain is as it was.
    assert_eq!(recorded(bench.folder.path()).len(), 2);
}

#[tokio::test]
async fn what_may_not_be_erased_yet_is_erased_later() {
    let (mut told, mut holds) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    let bench =
        bench_with(|apply| (told, holds) = (Arc::clone(&apply.erased), Arc::clone(&apply.holds)));
    bench.submit(Request::Keep(b"kept".to_vec())).await.unwrap();
    holds.store(true, Ordering::Relaxed);
    bench.submit(Request::Forget(b"kept".to_vec())).await.unwrap();
    assert!(told.lock().unwrap().is_empty());
    holds.store(false, Ordering::Relaxed);
    let erased = async {
        while told.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), erased).await.unwrap();
}
