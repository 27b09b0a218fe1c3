//! The rows of the corruption matrix for what is made of the journal: the state, the file `trusted`, snapshots, the name of the ledger;
//! and for the whole folder.

use std::fs;

use super::rows::Verdict::{
    AsItWas, Refused, SnapshotPassedOver, StateCaughtUp, StateRebuilt, Unharmed,
};
use super::rows::{Row, Rows, cut_to, each, once};
use super::{Bench, alter, cut, flip, swap, zero};

const STATE: &str = "state";
const TRUSTED: &str = "`trusted`";
const SNAPSHOTS: &str = "snapshots, and no state";
const WHOLE: &str = "the whole folder";

/// All of them.
pub(crate) fn rows() -> Vec<Row> {
    let groups = [state(), keys(), trusted(), snapshots(), whole()];
    groups.into_iter().flatten().collect()
}

/// How many bytes of a file are not zeros of its allocation.
fn used(path: &std::path::Path) -> usize {
    fs::read(path).unwrap().iter().rposition(|byte| *byte != 0).unwrap()
}

fn state() -> Vec<Row> {
    let caught_up = Rows(STATE, "whole", StateCaughtUp);
    let rebuilt = Rows(STATE, "whole", StateRebuilt);
    vec![
        rebuilt.row("the folder missing", |bench, way| {
            once(way, || fs::remove_dir_all(bench.path("state")).unwrap())
        }),
        caught_up.row("`snap.*.generating` left by a kill during its recovery", |bench, way| {
            let left = bench.path("state/snap.00000000000000FF.generating");
            once(way, || fs::write(left, b"unfinished").unwrap())
        }),
        caught_up.row("`db` cut: to nothing, to a part", |bench, way| {
            let db = bench.path("state/db");
            let length = fs::read(&db).unwrap().len();
            cut_to(&db, way, &[0, 1, length / 3, length / 2, length - 1])
        }),
        caught_up.row("`db` zeroed, or overwritten", |bench, way| {
            each(way, [0_u8, 0x77], |byte| alter(&bench.path("state/db"), |db| db.fill(byte)))
        }),
        caught_up.row("a page of `db` zeroed", |bench, way| {
            let db = bench.path("state/db");
            let used = used(&db);
            each(way, (0..used).step_by(used / 24).take(24), |at| zero(&db, at..used.min(at + 512)))
        }),
        caught_up.row("a bit of `db` flipped", |bench, way| {
            let db = bench.path("state/db");
            let used = used(&db);
            each(way, (0..used).step_by(used / 48).take(48), |at| flip(&db, at))
        }),
        caught_up.row("everything in it forgotten", |bench, way| {
            way == 0 && with_sled(bench, |sled| sled.clear().is_ok())
        }),
        caught_up
            .row("an older copy of it", |bench, way| once(way, || bench.replace("state", "old"))),
        rebuilt.row("that of another store", |bench, way| {
            once(way, || bench.replace("state", "other"))
        }),
    ]
}

/// What sled has forgotten, or holds otherwise, without noticing it.
fn keys() -> Vec<Row> {
    let rebuilt = Rows(STATE, "whole", StateRebuilt);
    vec![
        rebuilt.row("a key forgotten, any of them", |bench, way| {
            way < 8
                && with_sled(bench, |sled| {
                    let key = sled.iter().keys().map(Result::unwrap).nth(way * 9);
                    key.is_some_and(|key| sled.remove(key).unwrap().is_some())
                })
        }),
        rebuilt.row("a bit of a value flipped, any of them", |bench, way| {
            way < 8
                && with_sled(bench, |sled| {
                    let pair = sled.iter().map(Result::unwrap).nth(way * 9);
                    pair.is_some_and(|(key, value)| {
                        let mut value = value.to_vec();
                        let middle = value.len() / 2;
                        value[middle] ^= 1;
                        sled.insert(key, value).unwrap().is_some()
                    })
                })
        }),
        rebuilt.row("a key that no entry wrote", |bench, way| {
            way == 0 && with_sled(bench, |sled| sled.insert(b"zzz", b"1").unwrap().is_none())
        }),
    ]
}

fn with_sled(bench: &Bench<'_>, work: impl FnOnce(&sled::Db) -> bool) -> bool {
    let sled = sled::Config::new().path(bench.path("state")).flush_every_ms(None).open().unwrap();
    let is_done = work(&sled);
    sled.flush().unwrap();
    is_done
}

fn trusted() -> Vec<Row> {
    let rebuilt = Rows(TRUSTED, "whole", StateRebuilt);
    vec![
        rebuilt.row("missing, empty, cut or no longer JSON", |bench, way| {
            let trusted = bench.path("trusted");
            match way {
                0 => fs::remove_file(&trusted).is_ok(),
                1..3 => cut_to(&trusted, way - 1, &[0, 20]),
                _ => once(way - 3, || flip(&trusted, 0)),
            }
        }),
        rebuilt.row("of another boot, in use", |bench, way| of_another_boot(bench, way, false)),
        Rows(TRUSTED, "whole", Unharmed)
            .row("of another boot, closed", |bench, way| of_another_boot(bench, way, true)),
    ]
}

fn of_another_boot(bench: &Bench<'_>, way: usize, is_closed: bool) -> bool {
    let text = format!("{{\"boot_id\":\"another\",\"closed\":{is_closed}}}");
    once(way, || fs::write(bench.path("trusted"), text).unwrap())
}

fn snapshots() -> Vec<Row> {
    let passed_over = Rows(SNAPSHOTS, "snapshots", SnapshotPassedOver);
    let rebuilt = Rows(SNAPSHOTS, "snapshots", StateRebuilt);
    let later = |bench: &Bench<'_>, kind| bench.path(&format!("snapshots/{:020}.{kind}", 999));
    vec![
        passed_over.row("a bit of the newest flipped", |bench, way| {
            let newest = bench.snapshots().pop().unwrap();
            let length = fs::read(&newest).unwrap().len();
            each(way, (0..length).step_by(length / 48).take(48), |at| flip(&newest, at))
        }),
        passed_over.row("the newest cut, emptied, grown or zeroed", |bench, way| {
            let newest = bench.snapshots().pop().unwrap();
            let length = fs::read(&newest).unwrap().len();
            match way {
                0..4 => cut_to(&newest, way, &[0, 9, length / 2, length - 1]),
                4 => once(0, || alter(&newest, |bytes| bytes.push(0))),
                _ => once(way - 5, || alter(&newest, |bytes| bytes.fill(0))),
            }
        }),
        passed_over.row("all damaged", |bench, way| {
            once(way, || bench.snapshots().iter().for_each(|snapshot| cut(snapshot, 300)))
        }),
        passed_over.row("two swapped", |bench, way| {
            let all = bench.snapshots();
            once(way, || swap(&all[0], &all[1]))
        }),
        Rows(SNAPSHOTS, "snapshots", Refused).row("one of a later entry", move |bench, way| {
            let newest = bench.snapshots().pop().unwrap();
            once(way, || fs::rename(newest, later(bench, "snapshot")).unwrap())
        }),
        rebuilt.row("one, or all, missing", |bench, way| {
            let all = bench.snapshots();
            each(way, [&all[1..], &all[..1], &all[..]], |gone| {
                gone.iter().try_for_each(fs::remove_file).unwrap()
            })
        }),
        rebuilt.row("an unfinished one", move |bench, way| {
            once(way, || fs::write(later(bench, "tmp"), b"PLSNAP").unwrap())
        }),
    ]
}

fn whole() -> Vec<Row> {
    vec![
        Rows(WHOLE, "crashed", StateCaughtUp)
            .row("copied while it was open, as a crash leaves it", |_, way| way == 0),
        Rows(WHOLE, "whole", Refused)
            .row("journal and witness of an older copy, state kept", |bench, way| {
                once(way, || bench.replace("journal", "old"))
            }),
        Rows(WHOLE, "whole", AsItWas)
            .row("all of it an older copy", |bench, way| once(way, || bench.replace_all("old"))),
        Rows(WHOLE, "bare", AsItWas)
            .row("journal and witness of an older copy, and no state", |bench, way| {
                once(way, || bench.replace("journal", "old"))
            }),
    ]
}
