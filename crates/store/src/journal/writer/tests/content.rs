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
