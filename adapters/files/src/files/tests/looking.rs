//! `list`, `stat` and `read`.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt};

use placet_types::digest::Digest;
use serde_json::{Value, json};

use super::Place;
use crate::files::FilesSettings;

fn names(output: &Value) -> Vec<&str> {
    output["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_list_is_sorted_and_says_what_each_entry_is() {
    let place = Place::new().await;
    place.put("b.txt", "12345");
    place.put("a/x", "");
    std::os::unix::fs::symlink("b.txt", place.root().join("c")).unwrap();
    let output = place.done("list", &json!({})).await.output;
    assert_eq!(
        output,
        json!({
            "path": ".",
            "entries": [
                {"name": "a", "kind": "directory", "bytes": null, "usable": true},
                {"name": "b.txt", "kind": "file", "bytes": 5, "usable": true},
                {"name": "c", "kind": "symlink", "bytes": null, "usable": true},
            ],
            "total": 3,
            "truncated": false,
        })
    );
    assert_eq!(names(&place.done("list", &json!({"path": "a"})).await.output), ["x"]);
}

#[tokio::test]
async fn a_list_leaves_out_what_a_crash_left_of_a_write() {
    let place = Place::new().await;
    place.put("a.txt", "");
    place.put(".placet-plc_9-1.tmp", "half");
    let output = place.done("list", &json!({})).await.output;
    assert_eq!((names(&output), &output["total"]), (vec!["a.txt"], &json!(1)));
}

#[tokio::test]
async fn ten_thousand_entries_come_in_pages() {
    let place = Place::new().await;
    for number in 0..10_000 {
        fs::write(place.root().join(format!("f{number:05}")), "").unwrap();
    }
    let first = place.done("list", &json!({})).await.output;
    assert_eq!(
        (names(&first).len(), &first["truncated"], &first["total"]),
        (1_000, &json!(true), &json!(10_000))
    );
    let last = place.done("list", &json!({"offset": 9_500, "limit": 10_000})).await.output;
    assert_eq!(
        (names(&last).len(), names(&last)[0], &last["truncated"]),
        (500, "f09500", &json!(false))
    );
    let past = place.done("list", &json!({"offset": 20_000})).await.output;
    assert_eq!((names(&past).len(), &past["truncated"]), (0, &json!(false)));
}

#[tokio::test]
async fn a_list_never_exceeds_the_largest_result() {
    let place = Place::with(FilesSettings::default(), 4_096).await;
    for number in 0..200 {
        fs::write(place.root().join(format!("a-rather-long-name-{number:05}")), "").unwrap();
    }
    let (mut seen, mut pages) = (Vec::new(), 0);
    loop {
        let output = place.done("list", &json!({"offset": seen.len()})).await.output;
        assert!(output.to_string().len() <= 4_096);
        seen.extend(names(&output).into_iter().map(str::to_owned));
        pages += 1;
        if output["truncated"] == json!(false) {
            break;
        }
    }
    seen.dedup();
    assert_eq!(seen.len(), 200);
    assert!(pages > 3, "{pages} pages");
}

#[tokio::test]
async fn names_that_cannot_be_given_as_paths_are_shown_escaped() {
    let place = Place::new().await;
    for name in [
        b"bad\xff\xfe".as_slice(),
        "turn\u{202e}txt.exe".as_bytes(),
        b"line\nbreak",
        b"col:on",
        b"good",
    ] {
        fs::write(place.root().join(OsStr::from_bytes(name)), "").unwrap();
    }
    let output = place.done("list", &json!({})).await.output;
    let shown: Vec<_> = output["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["name"].as_str().unwrap(), entry["usable"].as_bool().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            ("bad\\xff\\xfe", false),
            ("col:on", false),
            ("good", true),
            ("line\\nbreak", false),
            ("turn\\u{202e}txt.exe", false),
        ]
    );
}

#[tokio::test]
async fn a_missing_place_is_refused_by_every_look() {
    let place = Place::new().await;
    place.put("file", "");
    for (name, path) in [
        ("list", "missing"),
        ("list", "file"),
        ("stat", "missing"),
        ("stat", "file/x"),
        ("read", "missing"),
        ("read", "file/x"),
        ("read", "."),
    ] {
        let why = place.refused(name, &json!({"path": path})).await;
        assert!(why.contains(&format!("`{path}`")), "{why}");
        assert!(!why.contains(place.folder.path().to_str().unwrap()), "{why}");
    }
}

#[tokio::test]
async fn a_stat_tells_size_and_time() {
    let place = Place::new().await;
    place.put("a.txt", "12345");
    let output = place.done("stat", &json!({"path": "a.txt"})).await.output;
    assert_eq!((&output["kind"], &output["bytes"]), (&json!("file"), &json!(5)));
    let time = output["modified_at"].as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    assert_eq!(place.done("stat", &json!({"path": "."})).await.output["kind"], "directory");
}

#[tokio::test]
async fn text_is_read_as_it_is() {
    let place = Place::new().await;
    let text = "grüße\n\u{0}\u{202e}日本";
    place.put("a.txt", text);
    let answer = place.done("read", &json!({"path": "a.txt"})).await;
    assert_eq!(
        answer.output,
        json!({
            "path": "a.txt", "content": text, "encoding": "utf-8", "bytes": text.len(), "size": text.len(),
            "digest": Digest::of(text.as_bytes()),
        })
    );
    assert!(answer.mutations.is_empty());
}

#[tokio::test]
async fn what_is_no_text_is_read_as_base64() {
    let place = Place::new().await;
    place.put("a.bin", [0xff, 0x00, 0xfe]);
    let output = place.done("read", &json!({"path": "a.bin"})).await.output;
    assert_eq!((&output["content"], &output["encoding"]), (&json!("/wD+"), &json!("base64")));
}

#[tokio::test]
async fn a_part_of_a_file_is_read_by_offset_and_length() {
    let place = Place::new().await;
    place.put("a.txt", "0123456789");
    for (offset, length, content) in [
        (0, Some(4), "0123"),
        (4, Some(100), "456789"),
        (9, None, "9"),
        (10, None, ""),
        (99, Some(1), ""),
    ] {
        let args = length.map_or_else(
            || json!({"path": "a.txt", "offset": offset}),
            |length| json!({"path": "a.txt", "offset": offset, "length": length}),
        );
        let output = place.done("read", &args).await.output;
        assert_eq!(
            (&output["content"], &output["digest"]),
            (&json!(content), &Value::Null),
            "{args}"
        );
        assert_eq!((&output["bytes"], &output["size"]), (&json!(content.len()), &json!(10)));
    }
}

#[tokio::test]
async fn a_file_too_large_for_one_answer_is_refused_and_read_in_parts() {
    let place = Place::with(FilesSettings::default(), 2_048).await;
    place.put("large.txt", "x".repeat(5_000));
    // Each byte takes six in JSON: the file is within the limit, the answer is not.
    place.put("escapes.txt", "\u{1}".repeat(1_000));
    for path in ["large.txt", "escapes.txt"] {
        let why = place.refused("read", &json!({"path": path})).await;
        assert!(why.contains("`offset` and `length`"), "{why}");
    }
    let (mut content, mut offset) = (String::new(), 0);
    while offset < 5_000 {
        let part = place
            .done("read", &json!({"path": "large.txt", "offset": offset, "length": 1_500}))
            .await
            .output;
        assert!(part.to_string().len() <= 2_048);
        content.push_str(part["content"].as_str().unwrap());
        offset += part["bytes"].as_u64().unwrap();
    }
    assert_eq!(content, "x".repeat(5_000));
    place.refused("read", &json!({"path": "large.txt", "length": u64::MAX})).await;
}
