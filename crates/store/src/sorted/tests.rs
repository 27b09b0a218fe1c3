//! Tests of sorted tables.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::tempdir;

use super::bloom::{Bloom, Probe, hash};
use super::cursor::Cursor;
use super::{Marks, Merged, Source, Table, TableError, TableSet, TableWriter};
use crate::journal::medium::{Disk, Medium};

fn disk() -> Arc<dyn Medium> {
    Arc::new(Disk)
}

fn written(folder: &Path, number: u64, pairs: &BTreeMap<Vec<u8>, Vec<u8>>) -> Table {
    let mut writer = TableWriter::new(disk(), folder, number).unwrap();
    for (key, value) in pairs {
        writer.put(key, value, key.len() % 2 == 0).unwrap();
    }
    writer.finish().unwrap()
}

fn many(count: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
    (0..count)
        .map(|number| {
            let key = format!("key-{:08}", number * 7).into_bytes();
            (key, format!("value {number}").into_bytes())
        })
        .collect()
}

#[test]
fn every_key_is_found_and_no_other() {
    let folder = tempdir().unwrap();
    let pairs = many(20_000);
    let name = written(folder.path(), 3, &pairs).name();
    let set = TableSet::open(&disk(), folder.path(), &[name]).unwrap();
    assert!(set.tables()[0].blocks() > 10);
    for (key, value) in &pairs {
        assert_eq!(set.get(key).unwrap().as_ref(), Some(value));
        assert_eq!(set.get_filtered(key).unwrap().as_ref(), Some(value));
    }
    for absent in ["", "a", "key-", "key-00000001", "key-00139994", "z"] {
        assert_eq!(set.get(absent.as_bytes()).unwrap(), None, "{absent}");
    }
    set.tables()[0].verify().unwrap();
}

/// Blocks are found by the first eight bytes of their keys first: many of them may begin with the same ones, or none.
#[test]
fn a_key_is_found_wherever_it_lies_between_fences() {
    let folder = tempdir().unwrap();
    let mut pairs = BTreeMap::new();
    for number in 0..40_000_u32 {
        let spread = number.wrapping_mul(0x9E37_79B9).to_be_bytes();
        pairs.insert([b"a".as_slice(), &spread, &[0; 9]].concat(), b"spread".to_vec());
        pairs.insert(format!("c call_k-{number:020}").into_bytes(), b"alike".to_vec());
    }
    for short in ["b", "b\0", "b\0\0\0\0\0\0\0\0", "d", "d\0", "zzzzzzzz", "zzzzzzzz\0"] {
        pairs.insert(short.as_bytes().to_vec(), b"short".to_vec());
    }
    let table = written(folder.path(), 1, &pairs);
    assert!(table.blocks() > 4 * 64, "{} blocks", table.blocks());
    let set = TableSet::default().with(table);
    for (key, value) in &pairs {
        assert_eq!(set.get(key).unwrap().as_ref(), Some(value));
    }
    for absent in
        ["", "a", "c call_k-", "c call_k-00000000000000040001", "c", "cz", "y", "zzzzzzzzz"]
    {
        assert_eq!(set.get(absent.as_bytes()).unwrap(), None, "{absent}");
    }
}

#[test]
fn a_cursor_begins_where_it_is_told_to() {
    let folder = tempdir().unwrap();
    let pairs = many(3_000);
    let table = Arc::new(written(folder.path(), 1, &pairs));
    for from in ["", "key-00000000", "key-00000001", "key-00009999", "key-00020993", "key-9", "z"] {
        let read: Vec<_> =
            Cursor::new(Arc::clone(&table), from.as_bytes()).map(Result::unwrap).collect();
        let expected: Vec<_> = pairs
            .range(from.as_bytes().to_vec()..)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        assert_eq!(read, expected, "{from}");
    }
}

#[test]
fn keys_that_do_not_ascend_are_refused() {
    let folder = tempdir().unwrap();
    let mut writer = TableWriter::new(disk(), folder.path(), 1).unwrap();
    writer.put(b"b", b"1", true).unwrap();
    assert!(matches!(writer.put(b"b", b"2", true), Err(TableError::Damaged { .. })));
    assert!(matches!(writer.put(b"a", b"2", true), Err(TableError::Damaged { .. })));
}

/// Wherever a bit flips, the table is refused or the look-up is: never another answer.
#[test]
fn a_flipped_bit_is_never_an_answer() {
    let folder = tempdir().unwrap();
    let pairs = many(600);
    let name = written(folder.path(), 9, &pairs).name();
    let path = folder.path().join("000000000009.table");
    let sound = fs::read(&path).unwrap();
    let mut noticed = 0;
    for at in (8..sound.len()).step_by(41) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, &bytes).unwrap();
        let Ok(set) = TableSet::open(&disk(), folder.path(), &[name]) else {
            noticed += 1;
            continue;
        };
        assert!(set.tables()[0].verify().is_err(), "byte {at}");
        noticed += 1;
        for (key, value) in &pairs {
            if let Ok(found) = set.get(key) {
                assert_eq!(found.as_ref(), Some(value), "byte {at}");
            }
        }
    }
    assert!(noticed > 100);
}

#[test]
fn a_table_under_another_name_or_cut_short_is_refused() {
    let folder = tempdir().unwrap();
    let name = written(folder.path(), 1, &many(500)).name();
    let other = written(folder.path(), 2, &many(500)).name();
    let path = |number: u64| folder.path().join(format!("{number:012}.table"));
    fs::copy(path(2), path(1)).unwrap();
    assert!(Table::open(&disk(), folder.path(), name).is_err());
    let bytes = fs::read(path(2)).unwrap();
    fs::write(path(2), &bytes[..bytes.len() - 1]).unwrap();
    assert!(Table::open(&disk(), folder.path(), other).is_err());
    fs::remove_file(path(2)).unwrap();
    assert!(Table::open(&disk(), folder.path(), other).is_err());
}

#[test]
fn of_absent_keys_hardly_any_pass_the_filter_and_no_key_is_lost_to_it() {
    let hashes: Vec<u64> = (0..100_000_u32).map(|n| hash(&n.to_le_bytes())).collect();
    let filter = Bloom::of(&hashes);
    assert!(hashes.iter().all(|hash| filter.may_contain(&Probe::of(*hash))));
    let absent = (100_000..300_000_u32).map(|n| hash(&n.to_le_bytes()));
    let passed = absent.filter(|hash| filter.may_contain(&Probe::of(*hash))).count();
    assert!(passed < 600, "{passed} of 200000 passed");
}

#[test]
fn tables_that_double_stay_few() {
    let folder = tempdir().unwrap();
    let mut set = TableSet::default();
    let mut all = BTreeMap::new();
    for number in 1..=40_u64 {
        let mut pairs = BTreeMap::new();
        for step in 0..50_u64 {
            pairs
                .insert(format!("{:06}", (number * 31 + step * 17) % 997).into_bytes(), vec![1, 2]);
        }
        all.extend(pairs.clone());
        set = set.with(written(folder.path(), number * 2, &pairs));
        if let Some(count) = set.due_for_merge() {
            let writer = TableWriter::new(disk(), folder.path(), number * 2 + 1).unwrap();
            let merged = set.merge(count, writer, (|_: &[u8]| true, Marks::Drop)).unwrap();
            set = set.replaced(count, merged);
        }
        assert!(set.tables().len() <= 6, "{} tables", set.tables().len());
    }
    let read: BTreeMap<_, _> = Merged::new(set.cursors(&[])).map(Result::unwrap).collect();
    assert_eq!(read, all);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any layers of puts and removals read like one map, before and after any merge.
    #[test]
    fn layers_read_like_one_map(
        layers in proptest::collection::vec(
            proptest::collection::btree_map("[a-e]{1,4}", proptest::option::of(0_u8..9), 0..40),
            1..6,
        ),
        merge in 0_usize..7,
        from in "[a-f]{0,2}",
    ) {
        let folder = tempdir().unwrap();
        let mut set = TableSet::default();
        let mut map: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (number, layer) in layers.iter().enumerate() {
            let mut pairs = BTreeMap::new();
            for (key, value) in layer {
                let (key, value) = (key.as_bytes().to_vec(), value.map_or(Vec::new(), |v| vec![v]));
                pairs.insert(key.clone(), value.clone());
                if value.is_empty() { map.remove(&key); } else { map.insert(key, value); }
            }
            set = set.with(written(folder.path(), u64::try_from(number).unwrap(), &pairs));
        }
        let count = merge.min(set.tables().len());
        if count >= 2 {
            let writer = TableWriter::new(disk(), folder.path(), 99).unwrap();
            let merged = set.merge(count, writer, (|_: &[u8]| true, Marks::Drop)).unwrap();
            if count == set.tables().len() {
                prop_assert!(merged.name().entries == u64::try_from(map.len()).unwrap());
            }
            set = set.replaced(count, merged);
        }
        let names = set.names();
        let set = TableSet::open(&disk(), folder.path(), &names).unwrap();
        for key in layers.iter().flat_map(|layer| layer.keys()) {
            let found = set.get(key.as_bytes()).unwrap().filter(|value| !value.is_empty());
            prop_assert_eq!(found.as_ref(), map.get(key.as_bytes()));
        }
        let sources: Vec<Source> = set.cursors(from.as_bytes());
        let read: Vec<_> = Merged::new(sources)
            .map(Result::unwrap)
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let expected: Vec<_> =
            map.range(from.into_bytes()..).map(|(k, v)| (k.clone(), v.clone())).collect();
        prop_assert_eq!(read, expected);
    }
}
