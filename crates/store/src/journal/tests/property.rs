//! Any order of appends, writes, syncs, kills and clean ends keeps what it has to keep.

use proptest::prelude::*;
use tempfile::tempdir;

use super::{open, payloads, small, verify};

#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    Write,
    Sync,
    Kill,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0_usize..700).prop_map(Step::Append),
        2 => Just(Step::Write),
        2 => Just(Step::Sync),
        1 => Just(Step::Kill),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_survives_every_kill(steps in steps()) {
        let folder = tempdir().unwrap();
        let (mut journal, ..) = open(small(folder.path())).unwrap();
        let mut all: Vec<Vec<u8>> = Vec::new();
        let mut written = 0;
        let mut epoch = 1;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Append(length) => {
                    let payload = vec![u8::try_from(number).unwrap(); length];
                    let placed = journal.append(1, 0, &payload).unwrap();
                    all.push(payload);
                    prop_assert_eq!(usize::try_from(placed.seq).unwrap(), all.len());
                    // Running over into the next segment syncs what came before.
                    written = written.max(usize::try_from(journal.reader().durable_seq()).unwrap());
                }
                Step::Write => {
                    journal.write().unwrap();
                    written = all.len();
                }
                Step::Sync => {
                    journal.sync().unwrap();
                    written = all.len();
                    prop_assert_eq!(usize::try_from(journal.reader().durable_seq()).unwrap(), written);
                }
                Step::Kill | Step::Close => {
                    if matches!(step, Step::Close) {
                        journal.close().unwrap();
                        written = all.len();
                    } else {
                        drop(journal);
                    }
                    all.truncate(written);
                    let (reopened, seen, torn_bytes) = open(small(folder.path())).unwrap();
                    journal = reopened;
                    epoch += 1;
                    prop_assert_eq!(&payloads(&seen), &all);
                    prop_assert_eq!((journal.epoch(), torn_bytes), (epoch, 0));
                }
            }
            let durable = usize::try_from(journal.reader().durable_seq()).unwrap();
            for (index, payload) in all.iter().enumerate().take(durable).rev().take(3) {
                let frame = journal.reader().read(u64::try_from(index).unwrap() + 1).unwrap();
                prop_assert_eq!(&frame.payload, payload);
            }
        }
        journal.close().unwrap();
        prop_assert_eq!(usize::try_from(verify(folder.path()).unwrap().frames).unwrap(), all.len());
    }
}
