//! Content that entries name: kept before them, deleted after them.

use super::*;

#[tokio::test]
async fn content_is_durable_before_the_entry_that_names_it_is_written() {
    let bench = bench();
    bench.disk.fail_next(Op::Sync, Target::Content, Failure::Eio);
    let writes = bench.disk.count(Op::Write, Target::Segment);
    let refused = bench.writer.submit(Request::Keep(b"arguments".to_vec())).await.unwrap_err();
    assert!(matches!(refused, Refused::Journal(JournalError::Io { .. })), "{refused}");
    assert_eq!(
        bench.disk.count(Op::Write, Target::Segment),
        writes,
        "no entry without its content"
    );

    let bench = self::bench();
    bench.writer.submit(Request::Keep(b"arguments".to_vec())).await.unwrap();
    bench.writer.close().await.unwrap();
    let (store, _) = ContentStore::open(bench.folder.path().join("content")).unwrap();
    let digest = Digest::of(b"arguments");
    assert_eq!(store.reader().get("acme", digest).unwrap(), b"arguments");
    assert_eq!(recorded(bench.folder.path()), [digest.as_bytes().to_vec()]);
}

#[tokio::test]
async fn deletions_are_told_of_before_their_entry_is_seen_and_when_they_are_done() {
    let mut told = Arc::default();
    let bench = bench_with(|_| {}, |apply| told = Arc::clone(&apply.deletions));
    bench.writer.submit(Request::Keep(b"kept".to_vec())).await.unwrap();
    bench.writer.submit(Request::Forget(b"kept".to_vec())).await.unwrap();
    assert_eq!(*told.lock().unwrap(), [(true, 1), (false, 2)]);
}

#[tokio::test]
async fn what_is_kept_anew_behind_its_deletion_stays_in_the_same_batch_too() {
    let bench = bench();
    let bytes = || b"kept anew".to_vec();
    bench.writer.submit(Request::Keep(bytes())).await.unwrap();
    let batches = bench.writer.stats().batches;
    bench.gate.close();
    let (deletes, keeps) = (bench.writer.clone(), bench.writer.clone());
    let deleted = tokio::spawn(async move { deletes.submit(Request::Forget(bytes())).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    let kept = tokio::spawn(async move { keeps.submit(Request::Keep(bytes())).await });
    bench.queued(1).await;
    bench.gate.open();
    assert_eq!((deleted.await.unwrap().unwrap(), kept.await.unwrap().unwrap()), (2, 3));
    assert_eq!(bench.writer.stats().batches, batches + 1);
    bench.writer.close().await.unwrap();
    let (store, _) = ContentStore::open(bench.folder.path().join("content")).unwrap();
    assert_eq!(store.reader().get("acme", Digest::of(&bytes())).unwrap(), bytes());
}
