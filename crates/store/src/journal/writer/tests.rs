//! Tests of the writer: groups, order, refusals, failures, ends.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use placet_types::clock::{Clock, Timestamp};
use placet_types::digest::Digest;
use placet_types::ids::TenantId;
use tempfile::{TempDir, tempdir};
use tokio::task::JoinHandle;

use super::{
    Admission, AppliedFrame, Apply, BATCH_REQUESTS_MAX, Committed, Durability, Effort, Staged,
    WriterEnd, WriterHandle, WriterWatch, spawn,
};
use crate::journal::tests::{Failure, FaultyDisk, Op, Target, on, open, small, verify};
use crate::journal::{Content, JournalConfig, JournalError, JournalReader, Place};

mod callers;
mod content;

#[derive(Debug)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Clone)]
enum Request {
    /// Records these bytes; answers the sequence number.
    Record(Vec<u8>, Durability),
    /// The same durably, by its caller where it may.
    Little(Vec<u8>),
    /// Keeps content and records its digest.
    Keep(Vec<u8>),
    /// Deletes it, and records its digest.
    Forget(Vec<u8>),
    /// An entry as new work.
    Begin,
    Refuse,
    TooLarge,
    Panic,
    /// Panics where it is written by its caller.
    PanicHere,
}

#[derive(Debug, Clone, thiserror::Error)]
enum Refused {
    #[error("refused")]
    Refused,
    #[error(transparent)]
    Journal(#[from] JournalError),
}

#[derive(Debug, Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn close(&self) {
        *self.is_closed.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.is_closed.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        drop(
            self.opened.wait_while(self.is_closed.lock().unwrap(), |is_closed| *is_closed).unwrap(),
        );
    }
}

/// A state machine that notes what it is told is durable.
#[derive(Debug, Default)]
struct Noting {
    applied: Arc<Mutex<Vec<AppliedFrame>>>,
    /// How many entries each sync made durable.
    syncs: Arc<Mutex<Vec<usize>>>,
    /// Closed by a test to keep a batch from being finished.
    gate: Arc<Gate>,
    fail_apply: bool,
    /// On which threads it prepared.
    threads: Arc<Mutex<Vec<Option<String>>>>,
    /// What is to be erased with the entries that are prepared.
    deleted: Vec<Digest>,
    /// Whether nothing may be erased.
    holds: Arc<AtomicBool>,
    /// What was erased, each with how many entries were applied by then.
    erased: Arc<Mutex<Vec<(Place, usize)>>>,
}

impl Apply for Noting {
    type Request = Request;
    type Error = Refused;

    fn admission(request: &Request) -> Admission {
        if matches!(request, Request::Begin) { Admission::New } else { Admission::Completion }
    }

    fn effort(request: &Request) -> Effort {
        match request {
            Request::Record(_, Durability::Written) | Request::PanicHere => Effort::Write,
            Request::Little(_) => Effort::Sync,
            Request::Record(..) | Request::Keep(_) | Request::Forget(_) | Request::Begin => {
                Effort::Much
            }
            Request::Refuse | Request::TooLarge | Request::Panic => Effort::Much,
        }
    }

    fn prepare(&mut self, request: Request, _place: Committed) -> Result<Staged, Refused> {
        self.gate.pass();
        self.threads.lock().unwrap().push(std::thread::current().name().map(str::to_owned));
        let entry = |kind, payload| Staged::new(kind, payload, Vec::new(), Durability::Synced);
        Ok(match request {
            Request::Record(payload, durability) => {
                Staged::new(1, payload, Vec::new(), durability)?
            }
            Request::Little(payload) => entry(7, payload)?,
            Request::Keep(bytes) => {
                let content = Content::of(TenantId::new("acme").unwrap(), bytes);
                let payload = content.digest.as_bytes().to_vec();
                Staged::new(2, payload, vec![content], Durability::Synced)?
            }
            Request::Forget(bytes) => {
                self.deleted.push(Digest::of(&bytes));
                entry(6, Digest::of(&bytes).as_bytes().to_vec())?
            }
            Request::Begin => entry(3, Vec::new())?,
            Request::Refuse => return Err(Refused::Refused),
            Request::TooLarge => entry(5, vec![0; 2 << 20])?,
            Request::Panic | Request::PanicHere => {
                std::panic::panic_any("the state machine has a bug")
            }
        })
    }

    fn applied(&mut self, batch: &[AppliedFrame]) -> Result<(), JournalError> {
        if self.fail_apply {
            return Err(JournalError::Apply { reason: "the state is gone".to_owned() });
        }
        self.applied.lock().unwrap().extend_from_slice(batch);
        Ok(())
    }

    fn synced(&mut self, entries: usize, _took: Duration) {
        self.syncs.lock().unwrap().push(entries);
    }

    fn to_erase(&mut self) -> Vec<Place> {
        if self.holds.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let applied = self.applied.lock().unwrap();
        let contents = applied.iter().flat_map(|frame| &frame.contents);
        let places = contents
            .filter(|placed| self.deleted.contains(&placed.digest))
            .map(|placed| placed.place)
            .collect();
        self.deleted.clear();
        places
    }

    fn owes_erasures(&self) -> bool {
        !self.deleted.is_empty()
    }

    fn erased(&mut self, places: &[Place]) -> Result<(), JournalError> {
        let applied = self.applied.lock().unwrap().len();
        self.erased.lock().unwrap().extend(places.iter().map(|place| (*place, applied)));
        Ok(())
    }
}

struct Bench {
    folder: TempDir,
    disk: FaultyDisk,
    clock: Arc<TestClock>,
    applied: Arc<Mutex<Vec<AppliedFrame>>>,
    syncs: Arc<Mutex<Vec<usize>>>,
    gate: Arc<Gate>,
    threads: Arc<Mutex<Vec<Option<String>>>>,
    reader: JournalReader,
    writer: Arc<WriterHandle<Noting>>,
    watch: WriterWatch,
}

impl Bench {
    /// Submits a request; answers the sequence number of its entry.
    async fn submit(&self, request: Request) -> Result<u64, Refused> {
        self.writer.submit(request).await.map(|committed| committed.seq)
    }

    /// The same in a task of its own.
    fn submitting(&self, request: Request) -> JoinHandle<Result<u64, Refused>> {
        let writer = Arc::clone(&self.writer);
        tokio::spawn(async move { writer.submit(request).await.map(|committed| committed.seq) })
    }

    /// Waits until so many requests are in the queue.
    async fn queued(&self, count: usize) {
        let queue = &self.writer.queue;
        let all_there = async {
            while queue.max_capacity().saturating_sub(queue.capacity()) < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), all_there).await.unwrap();
    }

    /// Waits until this entry is durable.
    async fn durable(&self, seq: u64) {
        let is_durable = async {
            while self.reader.durable_seq() < seq {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), is_durable).await.unwrap();
    }

    /// How many entries each sync made durable.
    fn syncs(&self) -> Vec<usize> {
        self.syncs.lock().unwrap().clone()
    }

    /// The times of all durable entries.
    fn times(&self) -> Vec<i64> {
        self.reader.read_from(1).map(|frame| frame.unwrap().at_ms).collect()
    }
}

fn bench() -> Bench {
    bench_with(|_| {})
}

fn bench_with(change: impl FnOnce(&mut Noting)) -> Bench {
    let (folder, disk) = (tempdir().unwrap(), FaultyDisk::default());
    let clock = Arc::new(TestClock(AtomicI64::new(1_000)));
    let mut apply = Noting::default();
    change(&mut apply);
    let (applied, syncs) = (Arc::clone(&apply.applied), Arc::clone(&apply.syncs));
    let (gate, threads) = (Arc::clone(&apply.gate), Arc::clone(&apply.threads));
    let journal =
        JournalConfig { segment_bytes: 1 << 20, ..on(&folder.path().join("journal"), &disk) };
    let (journal, ..) = open(journal).unwrap();
    let reader = journal.reader();
    let (writer, watch) = spawn(journal, apply, Arc::<TestClock>::clone(&clock)).unwrap();
    let writer = Arc::new(writer);
    Bench { folder, disk, clock, applied, syncs, gate, threads, reader, writer, watch }
}

fn recorded(folder: &Path) -> Vec<Vec<u8>> {
    super::super::tests::payloads(&open(small(&folder.join("journal"))).unwrap().1)
}

fn synced(bytes: &[u8]) -> Request {
    Request::Record(bytes.to_vec(), Durability::Synced)
}

fn written(bytes: &[u8]) -> Request {
    Request::Record(bytes.to_vec(), Durability::Written)
}

#[tokio::test]
async fn an_answer_means_that_the_entry_is_durable_and_in_the_index() {
    let bench = bench();
    let reader = bench.reader.clone();
    for number in 1..=5_u8 {
        let seq = bench.submit(synced(&[number])).await.unwrap();
        assert_eq!(seq, u64::from(number));
        assert_eq!(reader.durable_seq(), seq);
        assert_eq!(reader.read(seq).unwrap().payload, [number]);
        let applied = bench.applied.lock().unwrap();
        let last = applied.last().unwrap();
        assert_eq!((last.seq, last.hash), (seq, reader.read(seq).unwrap().hash));
    }
}

#[tokio::test]
async fn many_callers_share_one_sync() {
    let bench = bench();
    bench.submit(synced(b"first")).await.unwrap();
    let syncs_before = bench.disk.count(Op::Sync, Target::Segment);
    bench.gate.close();
    let callers: Vec<_> = (0..200_u8).map(|number| bench.submitting(synced(&[number]))).collect();
    bench.queued(199).await;
    bench.gate.open();
    let mut seqs = Vec::new();
    for caller in callers {
        seqs.push(caller.await.unwrap().unwrap());
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (2..=201).collect::<Vec<_>>());
    let syncs = bench.disk.count(Op::Sync, Target::Segment) - syncs_before;
    assert!((1..=2).contains(&syncs), "{syncs} syncs for 200 entries");
    assert_eq!(bench.syncs().into_iter().sum::<usize>(), 201);
}

#[tokio::test]
async fn a_batch_takes_no_more_than_its_limit() {
    let bench = bench();
    bench.gate.close();
    let callers: Vec<_> =
        (0..BATCH_REQUESTS_MAX + 10).map(|_| bench.submitting(synced(b"x"))).collect();
    bench.queued(BATCH_REQUESTS_MAX + 9).await;
    bench.gate.open();
    for caller in callers {
        caller.await.unwrap().unwrap();
    }
    assert_eq!(bench.syncs(), [BATCH_REQUESTS_MAX, 10]);
}

#[tokio::test]
async fn a_read_audit_is_answered_when_written_and_synced_soon_after() {
    let bench = bench();
    let count = |op| bench.disk.count(op, Target::Segment);
    let (writes, syncs) = (count(Op::Write), count(Op::Sync));
    let seq = bench.submit(written(b"read")).await.unwrap();
    assert!(count(Op::Write) > writes);
    bench.durable(seq).await;
    assert_eq!(count(Op::Sync), syncs + 1);
}

#[tokio::test]
async fn a_read_audit_is_answered_before_its_sync_and_not_shown_to_others() {
    let mut bench = bench();
    bench.disk.fail_next(Op::Sync, Target::Segment, Failure::Eio);
    bench.submit(written(b"read")).await.unwrap();
    assert!(matches!(bench.watch.ended().await, WriterEnd::Failed(JournalError::Io { .. })));
    assert_eq!(bench.reader.durable_seq(), 0);
    assert!(bench.applied.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_read_audit_does_not_weaken_the_batch_it_comes_in() {
    let bench = bench();
    bench.gate.close();
    let first = bench.submitting(synced(b"intent"));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let second = bench.submitting(written(b"read"));
    bench.queued(1).await;
    bench.gate.open();
    let seq = first.await.unwrap().unwrap();
    assert!(bench.reader.durable_seq() >= seq);
    assert_eq!((second.await.unwrap().unwrap(), bench.syncs()), (2, vec![2]));
}

#[tokio::test]
async fn a_stream_of_read_audits_does_not_delay_the_sync() {
    let bench = bench();
    tokio::time::timeout(Duration::from_secs(10), async {
        while bench.reader.durable_seq() == 0 {
            bench.submit(written(b"read")).await.unwrap();
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_refused_request_records_nothing_and_the_others_go_on() {
    let bench = bench();
    assert!(matches!(bench.submit(Request::Refuse).await, Err(Refused::Refused)));
    let too_large = bench.submit(Request::TooLarge).await;
    assert!(matches!(too_large, Err(Refused::Journal(JournalError::TooLarge { .. }))));
    assert_eq!(bench.submit(synced(b"sound")).await.unwrap(), 1);
    bench.writer.close().await.unwrap();
    assert_eq!(recorded(bench.folder.path()), [b"sound"]);
}

#[tokio::test]
async fn a_read_audit_in_a_batch_waits_for_its_sync() {
    let mut bench = bench();
    bench.disk.fail_next(Op::Sync, Target::Segment, Failure::Eio);
    bench.gate.close();
    let record = bench.submitting(synced(b"never durable"));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let read = bench.submitting(written(b"read"));
    bench.queued(1).await;
    bench.gate.open();
    assert!(record.await.unwrap().is_err());
    let read = read.await.unwrap();
    assert!(read.is_err(), "an answer must not rest on what never became durable");
    assert!(matches!(bench.watch.ended().await, WriterEnd::Failed(_)));
}

#[tokio::test]
async fn after_a_failure_every_waiter_is_refused_and_the_process_is_told() {
    for (op, failure) in [(Op::Sync, Failure::Eio), (Op::Write, Failure::Enospc)] {
        let mut bench = bench();
        bench.submit(synced(b"durable")).await.unwrap();
        bench.disk.fail_next(op, Target::Segment, failure);
        bench.gate.close();
        let callers: Vec<_> =
            (0..50_u8).map(|number| bench.submitting(synced(&[number]))).collect();
        bench.queued(49).await;
        bench.gate.open();
        for caller in callers {
            assert!(matches!(caller.await.unwrap(), Err(Refused::Journal(_))));
        }
        assert!(matches!(bench.watch.ended().await, WriterEnd::Failed(JournalError::Io { .. })));
        let later = bench.submit(synced(b"later")).await;
        assert!(matches!(later, Err(Refused::Journal(JournalError::Closed))));
        assert!(matches!(bench.writer.close().await, Err(JournalError::Closed)));
        assert_eq!(bench.applied.lock().unwrap().len(), 1, "the index never saw the failed batch");
        assert_eq!(recorded(bench.folder.path())[0], b"durable");
    }
}

#[tokio::test]
async fn an_index_that_cannot_follow_ends_the_writer() {
    let mut bench = bench_with(|apply| apply.fail_apply = true);
    let refused = bench.submit(synced(b"x")).await.unwrap_err();
    assert!(matches!(refused, Refused::Journal(JournalError::Apply { .. })));
    assert!(matches!(bench.watch.ended().await, WriterEnd::Failed(JournalError::Apply { .. })));
}

#[tokio::test]
async fn a_panic_in_the_state_machine_is_told_and_strands_nobody() {
    let mut bench = bench();
    let refused = bench.submit(Request::Panic).await.unwrap_err();
    assert!(matches!(refused, Refused::Journal(JournalError::Unanswered)));
    assert!(matches!(bench.watch.ended().await, WriterEnd::Panicked));
    assert!(bench.submit(synced(b"later")).await.is_err());
}

#[tokio::test]
async fn a_request_left_for_later_is_durable_without_an_answer() {
    let bench = bench();
    bench.writer.submit_later(written(b"alone")).await.unwrap();
    bench.durable(1).await;
    assert_eq!(bench.submit(written(b"awaited")).await.unwrap(), 2);
    bench.writer.submit_later(written(b"with its sync")).await.unwrap();
    bench.durable(3).await;
}

#[tokio::test]
async fn closing_takes_what_was_left_for_later() {
    let bench = bench();
    assert_eq!(bench.submit(written(b"awaited")).await.unwrap(), 1);
    bench.writer.submit_later(written(b"left")).await.unwrap();
    bench.writer.close().await.unwrap();
    assert_eq!(bench.applied.lock().unwrap().len(), 2);
    assert_eq!(recorded(bench.folder.path()), [b"awaited".as_slice(), b"left"]);
    assert!(bench.writer.submit_later(written(b"too late")).await.is_err());
}

#[tokio::test]
async fn low_space_refuses_new_work_and_takes_completions() {
    let bench = bench();
    assert_eq!(bench.submit(Request::Begin).await.unwrap(), 1);
    bench.disk.set_free_bytes(1 << 20);
    // Space that was ample is not asked for at every request.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let refused = bench.submit(Request::Begin).await.unwrap_err();
    assert!(matches!(refused, Refused::Journal(JournalError::NoSpace { .. })));
    assert_eq!(bench.submit(synced(b"completion")).await.unwrap(), 2);
    bench.disk.set_free_bytes(1 << 40);
    assert_eq!(bench.submit(Request::Begin).await.unwrap(), 3);
}

#[tokio::test]
async fn closing_takes_what_is_queued_to_its_end_and_records_the_witness() {
    let mut bench = bench();
    bench.gate.close();
    let callers: Vec<_> = (1..=20_u8).map(|number| bench.submitting(synced(&[number]))).collect();
    bench.queued(19).await;
    let closer = Arc::clone(&bench.writer);
    let closing = tokio::spawn(async move { closer.close().await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    bench.gate.open();
    closing.await.unwrap().unwrap();
    for caller in callers {
        caller.await.unwrap().unwrap();
    }
    let report = verify(&bench.folder.path().join("journal")).unwrap();
    assert_eq!((report.frames, report.witness_seq), (20, 20));
    assert_eq!(bench.applied.lock().unwrap().len(), 20);
    assert_eq!(recorded(bench.folder.path()).len(), 20, "the lock is free once close has returned");
    assert!(matches!(bench.watch.ended().await, WriterEnd::Closed));
    assert!(matches!(
        bench.submit(synced(b"late")).await,
        Err(Refused::Journal(JournalError::Closed))
    ));
}

#[tokio::test]
async fn the_writer_ends_cleanly_when_all_handles_are_gone() {
    let Bench { folder, writer, mut watch, .. } = bench();
    writer.submit(written(b"kept")).await.unwrap();
    drop(writer);
    assert!(matches!(watch.ended().await, WriterEnd::Closed));
    let report = verify(&folder.path().join("journal")).unwrap();
    assert_eq!(report.witness_seq, 1);
}

#[tokio::test]
async fn the_witness_follows_when_the_writer_is_idle() {
    let bench = bench();
    bench.submit(synced(b"x")).await.unwrap();
    let folder = bench.folder.path().join("journal");
    tokio::time::timeout(Duration::from_secs(10), async {
        while verify(&folder).unwrap().witness_seq < 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_witness_follows_under_steady_load() {
    let bench = bench();
    let folder = bench.folder.path().join("journal");
    let steady = async {
        while verify(&folder).unwrap().witness_seq < 1 {
            bench.submit(synced(b"x")).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(10), steady).await.unwrap();
}

#[tokio::test]
async fn the_time_of_entries_never_goes_back_with_the_clock() {
    let bench = bench();
    bench.submit(synced(b"a")).await.unwrap();
    bench.clock.0.store(400, Ordering::Relaxed);
    bench.submit(synced(b"b")).await.unwrap();
    bench.clock.0.store(1_400, Ordering::Relaxed);
    bench.submit(synced(b"c")).await.unwrap();
    assert_eq!(bench.times(), [1_000, 1_000, 1_400]);
}

#[tokio::test]
async fn an_entry_is_not_older_than_its_request_though_its_batch_is() {
    let bench = bench();
    bench.gate.close();
    let first = bench.submit(synced(b"a"));
    let second = async {
        // By now the first holds its batch open.
        tokio::time::sleep(Duration::from_millis(20)).await;
        bench.clock.0.store(1_400, Ordering::Relaxed);
        let second = bench.submit(synced(b"b"));
        let opened = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            bench.gate.open();
        };
        tokio::join!(second, opened).0
    };
    let (first, second) = tokio::join!(first, second);
    first.and(second).unwrap();
    assert_eq!(bench.times(), [1_000, 1_400]);
    assert_eq!(bench.syncs(), [2], "they came in one batch");
}

#[tokio::test]
async fn a_caller_that_goes_away_takes_nothing_back() {
    let bench = bench();
    bench.gate.close();
    let caller = bench.submitting(synced(b"stays"));
    tokio::time::sleep(Duration::from_millis(20)).await;
    caller.abort();
    bench.gate.open();
    bench.writer.close().await.unwrap();
    assert_eq!(recorded(bench.folder.path()), [b"stays"]);
}
