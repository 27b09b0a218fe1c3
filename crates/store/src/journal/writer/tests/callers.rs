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

fn little(bytes: &[u8]) -> Request {
    Request::Little(bytes.to_vec())
}

impl Bench {
    /// Whether the writer's thread prepared the last request.
    fn was_the_threads(&self) -> bool {
        let threads = self.threads.lock().unwrap();
        threads.last().unwrap().as_deref() == Some("placet-journal")
    }

    /// Submits requests until a caller writes one; answers its number. The thread may be about its own work.
    async fn until_a_caller_writes(&self) -> u64 {
        let written = async {
            loop {
                let seq = self.submit(little(b"alone")).await.unwrap();
                if !self.was_the_threads() {
                    return seq;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), written).await.unwrap()
    }
}

#[tokio::test]
async fn a_caller_that_is_alone_syncs_what_it_writes() {
    let bench = bench();
    let seq = bench.until_a_caller_writes().await;
    assert_eq!(bench.reader.durable_seq(), seq);
    assert_eq!(bench.applied.lock().unwrap().last().unwrap().seq, seq);
    assert_eq!(bench.syncs().last(), Some(&1));
    let folder = bench.folder.path().join("journal");
    let witness = async {
        while verify(&folder).unwrap().witness_seq < seq {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), witness).await.unwrap();
}

#[tokio::test]
async fn after_a_crowd_the_thread_syncs() {
    let bench = bench();
    bench.until_a_caller_writes().await;
    bench.gate.close();
    let crowd = [b"one", b"two", b"six"].map(|bytes| bench.submitting(synced(bytes)));
    bench.queued(2).await;
    bench.gate.open();
    for caller in crowd {
        caller.await.unwrap().unwrap();
    }
    bench.submit(little(b"next")).await.unwrap();
    assert!(bench.was_the_threads());
    bench.until_a_caller_writes().await;
}

#[tokio::test]
async fn nobody_waits_for_a_slow_disk_but_the_thread() {
    let bench = bench();
    bench.until_a_caller_writes().await;
    bench.disk.sync_takes(Duration::from_millis(2));
    bench.submit(little(b"finds out")).await.unwrap();
    for _ in 0..5 {
        bench.submit(little(b"slow")).await.unwrap();
        assert!(bench.was_the_threads());
    }
    bench.disk.sync_takes(Duration::ZERO);
    bench.until_a_caller_writes().await;
}

#[tokio::test]
async fn a_sync_that_fails_at_its_caller_ends_the_writer() {
    let mut bench = bench();
    bench.until_a_caller_writes().await;
    let applied = bench.applied.lock().unwrap().len();
    bench.disk.fail_next(Op::Sync, Target::Segment, Failure::Eio);
    let failed = bench.submit(little(b"lost?")).await;
    assert!(matches!(failed, Err(Refused::Journal(JournalError::Io { .. }))));
    assert!(matches!(bench.watch.ended().await, WriterEnd::Failed(JournalError::Io { .. })));
    assert!(matches!(bench.submit(little(b"later")).await, Err(Refused::Journal(_))));
    assert_eq!(bench.applied.lock().unwrap().len(), applied, "the state never saw it");
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
            let requests = [written(&[number]), synced(&[number]), little(&[number])];
            let mut requests = requests.into_iter().cycle();
            bench.submitting(requests.nth(number.into()).unwrap())
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
