//! The rows of the corruption matrix for the tables that say where contents lie: they are an index, and the packs say the same.

use std::fs;

use super::rows::{Row, Verdict, row};
use super::{alter, cut, flip};

const PLACES: &str = "content, the tables of places";

/// All of them.
pub(crate) fn rows() -> Vec<Row> {
    vec![
        row((PLACES, "a bit of a table flipped"), "deleted", Verdict::Unharmed, |bench, way| {
            let table = bench.place("table");
            let length = fs::read(&table).unwrap().len();
            let is_there = way < 24;
            if is_there {
                flip(&table, length * way / 24);
            }
            is_there
        }),
        row(
            (PLACES, "a table cut, emptied, zeroed or missing"),
            "deleted",
            Verdict::Unharmed,
            |bench, way| {
                let table = bench.place("table");
                let length = fs::read(&table).unwrap().len();
                match way {
                    0..3 => cut(&table, [0, length / 2, length - 1][way]),
                    3 => alter(&table, |bytes| bytes.fill(0)),
                    4 => fs::remove_file(&table).unwrap(),
                    _ => return false,
                }
                true
            },
        ),
        row(
            (PLACES, "the manifest altered, cut or missing"),
            "deleted",
            Verdict::Unharmed,
            |bench, way| {
                let manifest = bench.path("content/places/manifest");
                match way {
                    0 => flip(&manifest, 20),
                    1 => cut(&manifest, 0),
                    2 => cut(&manifest, 40),
                    3 => fs::remove_file(&manifest).unwrap(),
                    _ => return false,
                }
                true
            },
        ),
        row((PLACES, "the folder missing"), "deleted", Verdict::Unharmed, |bench, way| {
            way == 0 && fs::remove_dir_all(bench.path("content/places")).is_ok()
        }),
    ]
}
