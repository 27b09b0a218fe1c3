//! The rows of the corruption matrix for the journal: entries, contents, witness, base and archive.

use std::fs;
use std::ops::Range;

use super::rows::Verdict::{
    FoundByScrub, Refused, ResultsRefused, StateRebuilt, TailDropped, Unharmed,
};
use super::rows::{Row, Rows, cut_to, each, flip_in, once};
use super::{Bench, CONTENT_HEADER, HEADER, alter, cut, flip, forget_state, swap, zero};

const JOURNAL: &str = "journal";
const CONTENT: &str = "contents in the journal";
const WITNESS: &str = "witness `high-water`";
const BASE: &str = "`base` and archive";
/// The fields of a frame's header.
const FRAME: [(&str, Range<usize>); 11] = [
    ("magic", 0..4),
    ("version", 4..5),
    ("kind", 5..6),
    ("flags", 6..8),
    ("length", 8..12),
    ("sequence number", 12..20),
    ("epoch", 20..28),
    ("time", 28..36),
    ("durable sequence number", 36..44),
    ("hash of the frame before", 44..54),
    ("checksum of the header", 76..80),
];
/// The fields of a segment's header.
const SEGMENT: [(&str, Range<usize>); 6] = [
    ("magic", 0..8),
    ("number", 8..12),
    ("first sequence number", 12..20),
    ("allocated size", 20..28),
    ("hash of the frame before", 28..36),
    ("checksum", 60..64),
];

/// All of them.
pub(crate) fn rows() -> Vec<Row> {
    let groups = [cuts(), bytes(), files(), covered(), contents(), fields(), witness(), base()];
    groups.into_iter().flatten().collect()
}

/// Of a frame in the first segment, and of the very last one, the segment and the place.
fn frames(bench: &Bench<'_>) -> [(usize, Range<usize>); 2] {
    let (last, entry) = bench.last_entry();
    [(1, bench.entries(1)[3].frame.clone()), (last, entry.frame)]
}

fn cuts() -> Vec<Row> {
    let bare = Rows(JOURNAL, "bare", Refused);
    vec![
        Rows(JOURNAL, "crashed", TailDropped).row(
            "an append cut short at any byte of its contents, its header or its payload",
            |bench, way| {
                let (number, last) = bench.last_entry();
                let (start, frame, end) = (last.start(), last.frame.start, last.frame.end);
                let content = [start + 1, start + 4, start + 47, start + 55, frame - 1];
                let frame = [0, 1, 79, 80, 81].map(|bytes| frame + bytes);
                each(way, [&content[..], &frame, &[end - 6, end - 1]].concat(), |cut| {
                    alter(&bench.segment(number), |bytes| bytes.copy_within(start..cut, end));
                })
            },
        ),
        bare.row(
            "the last segment's file cut: in its header, between entries, in a frame, at its end",
            |bench, way| {
                let (number, last) = bench.last_entry();
                let (start, frame) = (last.start(), last.frame);
                let lengths = [0, 10, 64, start, frame.start + 30, frame.end - 1, frame.end];
                cut_to(&bench.segment(number), way, &lengths)
            },
        ),
        bare.row("an earlier segment's file cut, at the same places", |bench, way| {
            let frame = bench.entries(1)[1].frame.clone();
            let lengths = [0, 10, 64, frame.start, frame.start + 30, frame.end];
            cut_to(&bench.segment(1), way, &lengths)
        }),
    ]
}

fn bytes() -> Vec<Row> {
    let bare = Rows(JOURNAL, "bare", Refused);
    vec![
        bare.row("a segment's file grown", |bench, way| {
            each(way, [1, 2], |number| {
                alter(&bench.segment(number), |bytes| bytes.extend([0; 512]))
            })
        }),
        bare.row("a sector or a page of durable frames zeroed", |bench, way| {
            each(way, [512..1024, 4096..8192, 64..576], |range| zero(&bench.segment(1), range))
        }),
        bare.row("the last frame zeroed, though it was durable", |bench, way| {
            let (number, last) = bench.last_entry();
            once(way, || zero(&bench.segment(number), last.frame))
        }),
        bare.row("a segment's file zeroed", |bench, way| {
            each(way, 1..=bench.segments(), |number| {
                alter(&bench.segment(number), |bytes| bytes.fill(0))
            })
        }),
    ]
}

fn files() -> Vec<Row> {
    let bare = Rows(JOURNAL, "bare", Refused);
    let unharmed = Rows(JOURNAL, "whole", Unharmed);
    vec![
        bare.row("two segments swapped", |bench, way| {
            each(way, 2..=bench.segments(), |to| swap(&bench.segment(1), &bench.segment(to)))
        }),
        bare.row("a segment in the place of another, or once more at the end", |bench, way| {
            let count = bench.segments();
            each(way, [2, count, count + 1], |to| {
                fs::copy(bench.segment(1), bench.segment(to)).map(drop).unwrap()
            })
        }),
        bare.row("a segment of another store", |bench, way| {
            each(way, 1..=3, |number| {
                bench.replace(&format!("journal/{number:012}.segment"), "other")
            })
        }),
        bare.row("a segment missing: the first, one in the middle, the last", |bench, way| {
            each(way, [1, 2, bench.segments()], |number| {
                fs::remove_file(bench.segment(number)).unwrap()
            })
        }),
        bare.row("all segments missing", |bench, way| {
            once(way, || {
                let mut all = 1..=bench.segments();
                all.try_for_each(|number| fs::remove_file(bench.segment(number))).unwrap()
            })
        }),
        unharmed.row("a file that a crash left before it was renamed", |bench, way| {
            let names = ["journal/000000000099.tmp", "journal/high-water.tmp"];
            each(way, names, |name| fs::write(bench.path(name), b"unfinished").unwrap())
        }),
        unharmed.row("the lock file missing, or with other contents", |bench, way| {
            let lock = bench.path("journal/lock");
            match way {
                0 => fs::remove_file(lock).is_ok(),
                1 => fs::write(lock, b"4711 and more that is no number").is_ok(),
                _ => false,
            }
        }),
    ]
}

/// A start reads what the state does not cover, and the rest is scrubbed while the store serves.
fn covered() -> Vec<Row> {
    let long = Rows("entries that the state covers", "long", FoundByScrub);
    vec![
        long.row("a bit of a frame flipped", |bench, way| {
            let frame = bench.entries(1)[3].frame.clone();
            let step = frame.len() / 12;
            each(way, frame.step_by(step).take(12), |at| flip(&bench.segment(1), at))
        }),
        long.row("a bit of a content's header flipped", |bench, way| {
            let (number, start, _) = bench.contents()[0];
            flip_in(&bench.segment(number), way, start..start + CONTENT_HEADER)
        }),
        long.row("a sector or a page zeroed", |bench, way| {
            let has_none = |number: &usize| {
                bench.entries(*number).iter().all(|entry| entry.contents.is_empty())
            };
            let notes = bench.segment((1..).find(has_none).unwrap());
            each(way, [1024..1536, 512..4096], |range| zero(&notes, range))
        }),
    ]
}

fn contents() -> Vec<Row> {
    let whole = Rows(CONTENT, "whole", ResultsRefused);
    vec![
        whole.row("a bit flipped, in small and large ones", |bench, way| {
            each(way, bench.contents(), |(number, _, body)| {
                flip(&bench.segment(number), body.start + body.len() / 2)
            })
        }),
        Rows(CONTENT, "bare", ResultsRefused).row("the same, and no state", |bench, way| {
            each(way, bench.contents().into_iter().step_by(5), |(number, _, body)| {
                flip(&bench.segment(number), body.start + way)
            })
        }),
        whole.row("one zeroed, or a page of it", |bench, way| {
            let all = bench.contents();
            let large = all.iter().find(|(_, _, body)| body.len() > 8192).unwrap();
            let page = (large.0, large.1, 4096..8192);
            each(way, [&all[0], large, &page], |(number, _, body)| {
                zero(&bench.segment(*number), body.clone())
            })
        }),
        whole.row("two swapped", |bench, way| {
            let all = bench.contents();
            let pairs = all.iter().zip(all.iter().skip(2));
            let alike = pairs.filter(|(one, two)| one.0 == two.0 && one.2.len() == two.2.len());
            each(way, alike.take(3), |((number, _, one), (_, _, two))| {
                alter(&bench.segment(*number), |bytes| {
                    let (before, after) = bytes.split_at_mut(two.start);
                    before[one.clone()].swap_with_slice(&mut after[..two.len()]);
                })
            })
        }),
        Rows(CONTENT, "bare", Refused).row("a bit of a header flipped", |bench, way| {
            let (number, start, _) = bench.contents()[0];
            flip_in(&bench.segment(number), way, start..start + CONTENT_HEADER)
        }),
        Rows(CONTENT, "deleted", Unharmed).row("an erased one written over", |bench, way| {
            let (number, _, body) = bench.contents().pop().unwrap();
            once(way, || {
                alter(&bench.segment(number), |bytes| {
                    assert!(bytes[body.clone()].iter().all(|byte| *byte == 0));
                    bytes[body].fill(0x77);
                })
            })
        }),
    ]
}

fn fields() -> Vec<Row> {
    let frame = Rows("frame, a bit flipped in", "bare", Refused);
    let segment = Rows("segment header, a bit flipped in", "bare", Refused);
    let mut rows = Vec::new();
    for (what, field) in FRAME {
        rows.push(frame.row(what, move |bench, way| {
            let [first, last] = frames(bench)
                .map(|(number, frame)| field.clone().map(move |at| (number, frame.start + at)));
            each(way, first.chain(last), |(number, at)| flip(&bench.segment(number), at))
        }));
    }
    rows.push(frame.row("payload", |bench, way| {
        let [first, last] = frames(bench).map(|(number, frame)| {
            (frame.start + HEADER..frame.end).step_by(97).take(6).map(move |at| (number, at))
        });
        each(way, first.chain(last), |(number, at)| flip(&bench.segment(number), at))
    }));
    rows.push(frame.row("checksum and end mark", |bench, way| {
        let [first, last] = frames(bench)
            .map(|(number, frame)| (frame.end - 5..frame.end).map(move |at| (number, at)));
        each(way, first.chain(last), |(number, at)| flip(&bench.segment(number), at))
    }));
    rows.extend(SEGMENT.map(|(what, field)| {
        segment.row(what, move |bench, way| flip_in(&bench.segment(2), way, field.clone()))
    }));
    rows
}

fn witness() -> Vec<Row> {
    let whole = Rows(WITNESS, "whole", Refused);
    let older = Rows(WITNESS, "whole", Unharmed);
    vec![
        whole.row("missing", |bench, way| {
            once(way, || fs::remove_file(bench.path("journal/high-water")).unwrap())
        }),
        whole.row("a bit flipped in any byte", |bench, way| {
            flip_in(&bench.path("journal/high-water"), way, 0..68)
        }),
        whole.row("cut short, or empty", |bench, way| {
            cut_to(&bench.path("journal/high-water"), way, &[0, 20, 67])
        }),
        whole.row("of an earlier process", |bench, way| {
            once(way, || bench.replace("journal/high-water", "old"))
        }),
        whole.row("of another store", |bench, way| {
            once(way, || bench.replace("journal/high-water", "other"))
        }),
        older.row("of this process, but earlier, as after a crash", |bench, way| {
            once(way, || bench.replace("journal/high-water", "crashed"))
        }),
        whole.row("kept, and the segments of an older copy", |bench, way| {
            once(way, || {
                for number in 1..=bench.segments() {
                    let name = format!("journal/{number:012}.segment");
                    if bench.templates.folder("old").join(&name).try_exists().unwrap() {
                        bench.replace(&name, "old");
                    } else {
                        fs::remove_file(bench.path(&name)).unwrap();
                    }
                }
            })
        }),
    ]
}

fn base() -> Vec<Row> {
    let refused = Rows(BASE, "archived", Refused);
    let without_archive = |bench: &Bench<'_>| fs::remove_dir_all(bench.path("archive")).unwrap();
    vec![
        refused.row("`base` missing", |bench, way| {
            once(way, || fs::remove_file(bench.path("journal/base")).unwrap())
        }),
        refused.row("a bit of `base` flipped", |bench, way| {
            let base = bench.path("journal/base");
            let length = fs::read(&base).unwrap().len();
            each(way, (0..length).step_by(length / 64).take(64), |at| flip(&base, at))
        }),
        refused.row("`base` cut short, or empty", |bench, way| {
            cut_to(&bench.path("journal/base"), way, &[0, 20, 60])
        }),
        Rows(BASE, "archived", Unharmed)
            .row("the archive missing", move |bench, way| once(way, || without_archive(bench))),
        Rows(BASE, "archived", StateRebuilt).row("archive and state missing", move |bench, way| {
            once(way, || {
                without_archive(bench);
                forget_state(bench.folder);
            })
        }),
        refused.row("archive and state missing, and snapshots damaged", move |bench, way| {
            once(way, || {
                without_archive(bench);
                forget_state(bench.folder);
                bench.snapshots().iter().for_each(|snapshot| cut(snapshot, 300));
            })
        }),
    ]
}
