//! Entries that their callers write themselves, in turn with the writer's thread.

use super::*;

#[tokio::test]
async fn what_waits_for_no_sync_is_written_by_its_caller() {
    let bench = bench();
    bench.submit(written(b"read")).await.unwrap();
    bench.submit(synced(b"intent")).await.unwrap();
    let threads = bench.threads.lock().unwrap().clone();
    let writers = threads.iter().map(|name| name.as_deref() == Some("placet-journal"));
    assert_eq!(writers.collect::<Vec<_>>(), [false, true], "{threads:?}");
}

#[tokio::test]
async fn a_caller_that_panics_while_it_writes_ends_the_writer() {
    for _ in 0..100 {
        let mut bench = bench();
        let panicked = bench.submitting(Request::PanicHere).await;
        // The thread has the appender when it begins. A caller that comes right then leaves the request to it.
        let Err(panicked) = panicked else { continue };
        assert!(panicked.is_panic());
        assert!(matches!(bench.watch.ended().await, WriterEnd::Panicked));
        assert!(bench.submit(written(b"later")).await.is_err());
        assert!(bench.writer.submit_later(written(b"later")).await.is_err());
        return;
    }
    panic!("no caller wrote by itself");
}

#[tokio::test]
async fn a_write_that_fails_at_its_caller_ends_the_writer() {
    let mut bench = bench();
    bench.submit(synced(b"durable")).await.unwrap();
    bench.disk.fail_next(Op::Write, Target::Segment, Failure::Enospc);
    let failed = bench.submit(written(b"read")).await;
    assert!(matches!(failed, Err(Refused::Journal(JournalError::Io { .. }))));
    assert!(matches!(bench.watch.ended().await, WriterEnd::Failed(JournalError::Io { .. })));
    for later in [written(b"later"), synced(b"later")] {
        assert!(matches!(bench.submit(later).await, Err(Refused::Journal(_))));
    }
    assert_eq!(bench.applied.lock().unwrap().len(), 1, "the index never saw it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_and_the_writer_write_in_turn() {
    let bench = bench();
    let callers: Vec<_> = (0..200_u8)
        .map(|number| {
            let request = if number % 2 == 0 { written(&[number]) } else { synced(&[number]) };
            bench.submitting(request)
        })
        .collect();
    let mut seqs = Vec::new();
    for caller in callers {
        seqs.push(caller.await.unwrap().unwrap());
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=200).collect::<Vec<_>>());
    bench.writer.close().await.unwrap();
    let mut payloads = recorded(bench.folder.path());
    payloads.sort_unstable();
    assert_eq!(payloads, (0..200_u8).map(|number| vec![number]).collect::<Vec<_>>());
    let applied = bench.applied.lock().unwrap();
    assert!(applied.iter().map(|frame| frame.seq).eq(1..=200), "in order, each once");
}
