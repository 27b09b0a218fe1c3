//! The rows of the corruption matrix: what is harmed, how, and what must follow.
//!
//! A row harms in one way or in several of one kind (every field of a header at every byte); all of them must have the same
//! consequence.

use std::fs;

use super::{Bench, HEADER, alter, cut, flip, swap, zero};

/// What must follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The store does not open, says why, and changes nothing.
    Refused,
    /// It opens; an append that nobody was told of is cut off.
    TailDropped,
    /// It opens; the index is rebuilt from the journal.
    IndexRebuilt,
    /// It opens; the index takes over what it lacks, or is rebuilt where that is not enough.
    IndexMended,
    /// It opens; the results that were harmed are refused when they are asked for, the others are answered.
    ResultsRefused,
    /// It opens; nothing that counts was harmed.
    Unharmed,
    /// It opens as what it once was; only a copy of a later head, kept elsewhere, can tell.
    AsItWas,
}

impl Verdict {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::TailDropped => "opens; the torn tail is cut off",
            Self::IndexRebuilt => "opens; the index is rebuilt",
            Self::IndexMended => "opens; the index catches up or is rebuilt",
            Self::ResultsRefused => "opens; the harmed results are refused",
            Self::Unharmed => "opens; nothing is lost",
            Self::AsItWas => "opens as it was; a head kept elsewhere tells",
        }
    }
}

/// One row.
pub(crate) struct Row {
    pub(crate) group: &'static str,
    pub(crate) what: &'static str,
    /// The folder that is harmed.
    pub(crate) template: &'static str,
    /// Harms in the way of this number; `false` when there are no more ways.
    pub(crate) harm: fn(&Bench<'_>, usize) -> bool,
    pub(crate) verdict: Verdict,
}

pub(crate) const fn row(
    (group, what): (&'static str, &'static str),
    template: &'static str,
    verdict: Verdict,
    harm: fn(&Bench<'_>, usize) -> bool,
) -> Row {
    Row { group, what, template, harm, verdict }
}

/// Harms in one way only.
fn once(way: usize, harm: impl FnOnce()) -> bool {
    if way == 0 {
        harm();
    }
    way == 0
}

/// Flips a bit in each byte of a field: of a frame in the middle of the journal, and of the very last one.
fn flip_field(bench: &Bench<'_>, way: usize, field: std::ops::Range<usize>) -> bool {
    let (last, last_frame) = bench.last_frame();
    let middle = bench.frames(1)[3].start;
    let width = field.len();
    let (number, start) = if way < width { (1, middle) } else { (last, last_frame.start) };
    if way >= width * 2 {
        return false;
    }
    flip(&bench.segment(number), start + field.start + way % width);
    true
}

/// Flips a bit at some places of a part that is counted from the end of the header, or from the end of the frame.
fn flip_in_body(bench: &Bench<'_>, way: usize, from_end: bool) -> bool {
    let (last, last_frame) = bench.last_frame();
    let middle = bench.frames(1)[3].clone();
    let (number, frame) = if way.is_multiple_of(2) { (1, middle) } else { (last, last_frame) };
    let step = way / 2;
    let (at, ways) =
        if from_end { (frame.end - 1 - step, 5) } else { (frame.start + HEADER + step * 97, 6) };
    if step >= ways {
        return false;
    }
    flip(&bench.segment(number), at);
    true
}

/// A field of a small file, each byte of it.
fn flip_in(path: &std::path::Path, way: usize, field: std::ops::Range<usize>) -> bool {
    let is_there = way < field.len();
    if is_there {
        flip(path, field.start + way);
    }
    is_there
}

use Verdict::{AsItWas, IndexMended, IndexRebuilt, Refused, ResultsRefused, TailDropped, Unharmed};

const JOURNAL: &str = "journal";
const FRAME: &str = "frame, a bit flipped in";
const SEGMENT: &str = "segment header, a bit flipped in";
const WITNESS: &str = "witness `high-water`";
const INDEX: &str = "index";
const CONTENT: &str = "content";
const WHOLE: &str = "the whole folder";

/// All of them.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = journal_cuts();
    rows.extend(journal_bytes());
    rows.extend(journal_files());
    rows.extend(frames());
    rows.extend(segments());
    rows.extend(witness());
    rows.extend(index());
    rows.extend(content());
    rows.extend(super::places::rows());
    rows.extend(whole());
    rows
}

fn journal_cuts() -> Vec<Row> {
    vec![
        row(
            (JOURNAL, "an append cut short at any byte of its header or payload"),
            "crashed",
            TailDropped,
            |bench, way| {
                let (number, last) = bench.last_frame();
                let length = [1, 4, 7, 40, 79, 80, 81, last.len() - 6, last.len() - 1];
                length.get(way).is_some_and(|length| {
                    alter(&bench.segment(number), |bytes| {
                        let part: Vec<u8> = bytes[last.start..last.start + length].to_vec();
                        bytes[last.end..last.end + length].copy_from_slice(&part);
                    });
                    true
                })
            },
        ),
        row(
            (
                JOURNAL,
                "the last segment's file cut: in its header, between frames, in a frame, at its end",
            ),
            "whole",
            Refused,
            |bench, way| {
                let (number, last) = bench.last_frame();
                let lengths = [0, 10, 64, last.start, last.start + 30, last.end - 1, last.end];
                lengths.get(way).is_some_and(|length| {
                    cut(&bench.segment(number), *length);
                    true
                })
            },
        ),
        row(
            (JOURNAL, "a middle segment's file cut, at the same places"),
            "whole",
            Refused,
            |bench, way| {
                let frame = bench.frames(2)[1].clone();
                [0, 10, 64, frame.start, frame.start + 30, frame.end].get(way).is_some_and(
                    |length| {
                        cut(&bench.segment(2), *length);
                        true
                    },
                )
            },
        ),
    ]
}

fn journal_bytes() -> Vec<Row> {
    vec![
        row((JOURNAL, "a segment's file grown"), "whole", Refused, |bench, way| {
            way < 2 && once(0, || alter(&bench.segment(way + 1), |bytes| bytes.extend([0; 512])))
        }),
        row(
            (JOURNAL, "a sector or a page of durable frames zeroed"),
            "whole",
            Refused,
            |bench, way| {
                let ranges = [512..1024, 4096..8192, 64..576];
                ranges.get(way).is_some_and(|range| {
                    zero(&bench.segment(1), range.clone());
                    true
                })
            },
        ),
        row(
            (JOURNAL, "the last frame zeroed, though it was durable"),
            "whole",
            Refused,
            |bench, way| {
                let (number, last) = bench.last_frame();
                once(way, || zero(&bench.segment(number), last))
            },
        ),
        row((JOURNAL, "a segment's file zeroed"), "whole", Refused, |bench, way| {
            way < bench.segments()
                && once(0, || alter(&bench.segment(way + 1), |bytes| bytes.fill(0)))
        }),
    ]
}

fn journal_files() -> Vec<Row> {
    vec![
        row((JOURNAL, "two segments swapped"), "whole", Refused, |bench, way| {
            let others = bench.segments() - 1;
            way < others && once(0, || swap(&bench.segment(1), &bench.segment(way + 2)))
        }),
        row(
            (JOURNAL, "a segment in the place of another, or once more at the end"),
            "whole",
            Refused,
            |bench, way| {
                let count = bench.segments();
                let to = [2, count, count + 1].get(way).copied();
                to.is_some_and(|to| fs::copy(bench.segment(1), bench.segment(to)).is_ok())
            },
        ),
        row((JOURNAL, "a segment of another store"), "whole", Refused, |bench, way| {
            let is_there = way < bench.segments().min(3);
            if is_there {
                bench.replace(&format!("journal/{:012}.segment", way + 1), "other");
            }
            is_there
        }),
        row(
            (JOURNAL, "a segment missing: the first, one in the middle, the last"),
            "whole",
            Refused,
            |bench, way| {
                let count = bench.segments();
                [1, 2, count]
                    .get(way)
                    .is_some_and(|number| fs::remove_file(bench.segment(*number)).is_ok())
            },
        ),
        row((JOURNAL, "all segments missing"), "whole", Refused, |bench, way| {
            once(way, || {
                (1..=bench.segments())
                    .for_each(|number| fs::remove_file(bench.segment(number)).unwrap())
            })
        }),
        row(
            (JOURNAL, "a file that a crash left before it was renamed"),
            "whole",
            Unharmed,
            |bench, way| {
                let names = ["journal/000000000099.tmp", "journal/high-water.tmp"];
                names
                    .get(way)
                    .is_some_and(|name| fs::write(bench.path(name), b"unfinished").is_ok())
            },
        ),
        row(
            (JOURNAL, "the lock file missing, or with other contents"),
            "whole",
            Unharmed,
            |bench, way| match way {
                0 => fs::remove_file(bench.path("journal/lock")).is_ok(),
                1 => fs::write(bench.path("journal/lock"), b"4711 and more that is no number")
                    .is_ok(),
                _ => false,
            },
        ),
    ]
}

fn frames() -> Vec<Row> {
    vec![
        row((FRAME, "magic"), "whole", Refused, |bench, way| flip_field(bench, way, 0..4)),
        row((FRAME, "version"), "whole", Refused, |bench, way| flip_field(bench, way, 4..5)),
        row((FRAME, "kind"), "whole", Refused, |bench, way| flip_field(bench, way, 5..6)),
        row((FRAME, "flags"), "whole", Refused, |bench, way| flip_field(bench, way, 6..8)),
        row((FRAME, "length"), "whole", Refused, |bench, way| flip_field(bench, way, 8..12)),
        row((FRAME, "sequence number"), "whole", Refused, |bench, way| {
            flip_field(bench, way, 12..20)
        }),
        row((FRAME, "epoch"), "whole", Refused, |bench, way| flip_field(bench, way, 20..28)),
        row((FRAME, "time"), "whole", Refused, |bench, way| flip_field(bench, way, 28..36)),
        row((FRAME, "durable sequence number"), "whole", Refused, |bench, way| {
            flip_field(bench, way, 36..44)
        }),
        row((FRAME, "hash of the frame before"), "whole", Refused, |bench, way| {
            flip_field(bench, way, 44..54)
        }),
        row((FRAME, "checksum of the header"), "whole", Refused, |bench, way| {
            flip_field(bench, way, 76..80)
        }),
        row((FRAME, "payload"), "whole", Refused, |bench, way| flip_in_body(bench, way, false)),
        row((FRAME, "checksum and end mark"), "whole", Refused, |bench, way| {
            flip_in_body(bench, way, true)
        }),
    ]
}

fn segments() -> Vec<Row> {
    vec![
        row((SEGMENT, "magic"), "whole", Refused, |bench, way| {
            flip_in(&bench.segment(2), way, 0..8)
        }),
        row((SEGMENT, "number"), "whole", Refused, |bench, way| {
            flip_in(&bench.segment(2), way, 8..12)
        }),
        row((SEGMENT, "first sequence number"), "whole", Refused, |bench, way| {
            flip_in(&bench.segment(2), way, 12..20)
        }),
        row((SEGMENT, "allocated size"), "whole", Refused, |bench, way| {
            flip_in(&bench.segment(2), way, 20..28)
        }),
        row((SEGMENT, "hash of the frame before"), "whole", Refused, |bench, way| {
            flip_in(&bench.segment(2), way, 28..36)
        }),
        row((SEGMENT, "checksum"), "whole", Refused, |bench, way| {
            flip_in(&bench.segment(2), way, 60..64)
        }),
    ]
}

fn witness() -> Vec<Row> {
    vec![
        row((WITNESS, "missing"), "whole", Refused, |bench, way| {
            way == 0 && fs::remove_file(bench.path("journal/high-water")).is_ok()
        }),
        row((WITNESS, "a bit flipped in any byte"), "whole", Refused, |bench, way| {
            flip_in(&bench.path("journal/high-water"), way, 0..68)
        }),
        row((WITNESS, "cut short, or empty"), "whole", Refused, |bench, way| {
            [0, 20, 67].get(way).is_some_and(|length| {
                cut(&bench.path("journal/high-water"), *length);
                true
            })
        }),
        row((WITNESS, "of an earlier process"), "whole", Refused, |bench, way| {
            once(way, || bench.replace("journal/high-water", "old"))
        }),
        row((WITNESS, "of another store"), "whole", Refused, |bench, way| {
            once(way, || bench.replace("journal/high-water", "other"))
        }),
        row(
            (WITNESS, "of this process, but earlier, as after a crash"),
            "whole",
            Unharmed,
            |bench, way| once(way, || bench.replace("journal/high-water", "crashed")),
        ),
        row(
            (WITNESS, "kept, and the segments of an older copy"),
            "whole",
            Refused,
            |bench, way| {
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
            },
        ),
    ]
}

fn index() -> Vec<Row> {
    vec![
        row((INDEX, "the folder missing"), "whole", IndexRebuilt, |bench, way| {
            way == 0 && fs::remove_dir_all(bench.path("index")).is_ok()
        }),
        row(
            (INDEX, "`snap.*.generating` left by a kill during its recovery"),
            "whole",
            IndexMended,
            |bench, way| {
                way == 0
                    && fs::write(
                        bench.path("index/00000001/snap.00000000000000FF.generating"),
                        b"unfinished",
                    )
                    .is_ok()
            },
        ),
        row((INDEX, "`db` cut: to nothing, to a part"), "whole", IndexMended, |bench, way| {
            let db = bench.path("index/00000001/db");
            let length = fs::read(&db).unwrap().len();
            [0, 1, length / 3, length / 2, length - 1].get(way).is_some_and(|length| {
                cut(&db, *length);
                true
            })
        }),
        row((INDEX, "`db` zeroed, or overwritten"), "whole", IndexRebuilt, |bench, way| {
            [0_u8, 0x77].get(way).is_some_and(|byte| {
                alter(&bench.path("index/00000001/db"), |bytes| bytes.fill(*byte));
                true
            })
        }),
        row((INDEX, "a page of `db` zeroed"), "whole", IndexMended, |bench, way| {
            let db = bench.path("index/00000001/db");
            let used = fs::read(&db).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
            let start = used * way / 12;
            way < 12 && once(0, || zero(&db, start..used.min(start + 512)))
        }),
        row((INDEX, "a bit of `db` flipped"), "whole", IndexMended, |bench, way| {
            let db = bench.path("index/00000001/db");
            let used = fs::read(&db).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
            way < 24 && once(0, || flip(&db, used * way / 24))
        }),
        row((INDEX, "an older copy of it"), "whole", IndexMended, |bench, way| {
            once(way, || bench.replace("index", "old"))
        }),
        row((INDEX, "that of another store"), "whole", IndexRebuilt, |bench, way| {
            once(way, || bench.replace("index", "other"))
        }),
    ]
}

fn content() -> Vec<Row> {
    vec![
        row(
            (CONTENT, "a bit of a pack flipped, in a header or in what it holds"),
            "whole",
            ResultsRefused,
            |bench, way| {
                let pack = bench.contents(true).remove(0);
                let length = fs::read(&pack).unwrap().len();
                way < 24 && once(0, || flip(&pack, length * way / 24))
            },
        ),
        row((CONTENT, "a pack cut, emptied or zeroed"), "whole", ResultsRefused, |bench, way| {
            let pack = bench.contents(true).remove(0);
            let length = fs::read(&pack).unwrap().len();
            match way {
                0..3 => cut(&pack, [0, length / 2, length - 1][way]),
                3 => alter(&pack, |bytes| bytes.fill(0)),
                _ => return false,
            }
            true
        }),
        row((CONTENT, "a pack missing"), "whole", ResultsRefused, |bench, way| {
            way == 0 && fs::remove_file(bench.contents(true).remove(0)).is_ok()
        }),
        row(
            (CONTENT, "a large result altered, cut, emptied or missing"),
            "whole",
            ResultsRefused,
            |bench, way| {
                let large = bench.contents(false).remove(0);
                match way {
                    0 => flip(&large, 1_000),
                    1 => cut(&large, 1_000),
                    2 => cut(&large, 0),
                    3 => fs::remove_file(&large).unwrap(),
                    _ => return false,
                }
                true
            },
        ),
        row((CONTENT, "two large results swapped"), "whole", ResultsRefused, |bench, way| {
            let large = bench.contents(false);
            once(way, || swap(&large[0], &large[1]))
        }),
        row((CONTENT, "all of an older copy"), "whole", ResultsRefused, |bench, way| {
            once(way, || bench.replace("content", "old"))
        }),
    ]
}

fn whole() -> Vec<Row> {
    vec![
        row(
            (WHOLE, "copied while it was open, as a crash leaves it"),
            "crashed",
            IndexMended,
            |_, way| way == 0,
        ),
        row(
            (WHOLE, "journal and witness of an older copy, index kept"),
            "whole",
            Refused,
            |bench, way| once(way, || bench.replace("journal", "old")),
        ),
        row((WHOLE, "all of it an older copy"), "whole", AsItWas, |bench, way| {
            once(way, || bench.replace_all("old"))
        }),
    ]
}
