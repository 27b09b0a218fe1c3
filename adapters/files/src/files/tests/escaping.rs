//! Nothing outside the root is read, listed, written or deleted, whatever the path.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use placet_adapter::outcome::{AdapterError, Outcome};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};

use super::Place;

/// Every operation on one path.
fn operations(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("list", json!({"path": path})),
        ("stat", json!({"path": path})),
        ("read", json!({"path": path})),
        ("write", json!({"path": path, "content": "x"})),
        ("write", json!({"path": path, "content": "x", "create_directories": true})),
        ("write", json!({"path": path, "content": "x", "overwrite": false})),
        ("delete", json!({"path": path})),
    ]
}

#[tokio::test]
async fn paths_that_lead_out_are_refused_by_every_operation() {
    let place = Place::new().await;
    let before = place.outside();
    let absolute = place.folder.path().join("secret.txt").to_str().unwrap().to_owned();
    for path in [
        "../secret.txt",
        "..",
        "../root-evil/secret.txt",
        "a/../../secret.txt",
        "./../secret.txt",
        &absolute,
        "/",
        "//",
        "/etc/passwd",
        "..\\secret.txt",
        "a\\..\\..\\secret.txt",
        "\u{2e}\u{2e}/secret.txt",
        "../root/../secret.txt",
        "a//b",
        "a/",
        "",
        "a\0.txt",
        "../secret.txt\0",
        "..\u{2215}secret.txt\u{202e}",
        "%2e%2e/secret.txt\n",
        "C:\\x",
        "a.txt:b",
    ] {
        for (name, args) in operations(path) {
            place.refused(name, &args).await;
        }
    }
    assert_eq!(place.outside(), before);
    assert!(place.names().is_empty());
}

#[tokio::test]
async fn escapes_that_are_only_encoded_are_plain_names() {
    let place = Place::new().await;
    for path in ["%2e%2e", "..%2fsecret.txt", "\u{ff0e}\u{ff0e}", "~", "$HOME", "-rf"] {
        place.done("write", &json!({"path": path, "content": "inside"})).await;
        assert_eq!(place.text(path), "inside");
    }
}

#[tokio::test]
async fn links_that_lead_out_are_not_followed() {
    let place = Place::new().await;
    let outside = place.folder.path();
    symlink(outside.join("secret.txt"), place.root().join("file")).unwrap();
    symlink("../secret.txt", place.root().join("relative")).unwrap();
    symlink(outside, place.root().join("folder")).unwrap();
    symlink("../root-evil", place.root().join("sibling")).unwrap();
    symlink("folder", place.root().join("twice")).unwrap();
    symlink("missing", place.root().join("dangling")).unwrap();
    symlink("../made", place.root().join("makes")).unwrap();
    symlink("circle", place.root().join("circle")).unwrap();
    let before = place.outside();
    for path in [
        "file",
        "relative",
        "folder/secret.txt",
        "sibling/secret.txt",
        "twice/secret.txt",
        "folder/root/x",
        "makes/x",
        "folder/root-evil/x",
        "circle",
        "circle/x",
    ] {
        for (name, args) in operations(path) {
            if name == "stat" && !path.contains('/') {
                // The link itself is inside.
                assert_eq!(place.done(name, &args).await.output["kind"], "symlink");
                continue;
            }
            place.refused(name, &args).await;
        }
    }
    for path in ["makes", "dangling"] {
        place.refused("write", &json!({"path": path, "content": "x"})).await;
        place.refused("delete", &json!({"path": path})).await;
    }
    assert_eq!(place.outside(), before);
}

#[tokio::test]
async fn links_that_stay_inside_are_read_but_never_changed() {
    let place = Place::new().await;
    place.put("real/a.txt", "inside");
    symlink("real", place.root().join("link")).unwrap();
    symlink("real/a.txt", place.root().join("file")).unwrap();
    assert_eq!(
        place.done("read", &json!({"path": "link/a.txt"})).await.output["content"],
        "inside"
    );
    assert_eq!(place.done("read", &json!({"path": "file"})).await.output["content"], "inside");
    let why = place.refused("write", &json!({"path": "file", "content": "x"})).await;
    assert!(why.contains("symbolic link"), "{why}");
    place.refused("delete", &json!({"path": "file"})).await;
    assert_eq!(place.text("real/a.txt"), "inside");
}

#[tokio::test]
async fn what_is_no_file_is_not_opened() {
    let place = Place::new().await;
    let _listener = UnixListener::bind(place.root().join("socket")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.root().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    fs::create_dir(place.root().join("folder")).unwrap();
    for path in ["socket", "pipe", "folder"] {
        for (name, args) in operations(path) {
            match name {
                "stat" => assert_ne!(place.done(name, &args).await.output["kind"], "file"),
                "list" if path == "folder" => {
                    assert_eq!(place.done(name, &args).await.output["total"], 0)
                }
                _ => drop(place.refused(name, &args).await),
            }
        }
    }
    place.refused("delete", &json!({"path": "."})).await;
    place.refused("write", &json!({"path": ".", "content": "x"})).await;
}

/// A directory and a link to the outside change places as fast as they can while calls go through them.
#[tokio::test]
async fn a_directory_swapped_for_a_link_never_lets_a_call_out() {
    let place = Place::new().await;
    place.put("api/a.txt", "inside");
    symlink(place.folder.path().join("root/acme-evil"), place.root().join("link")).unwrap();
    fs::write(place.folder.path().join("root/acme-evil/a.txt"), "secret").unwrap();
    let before = place.outside();
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (stop, root) = (Arc::clone(&stop), place.root());
        std::thread::spawn(move || {
            let mut swaps = 0_u32;
            while !stop.load(Ordering::SeqCst) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                let (api, link) = (root.join("api"), root.join("link"));
                rustix::fs::renameat_with(rustix::fs::CWD, &api, rustix::fs::CWD, &link, exchange)
                    .unwrap();
                swaps = swaps.saturating_add(1);
            }
            swaps
        })
    };
    let (mut reads, mut refusals) = (0, 0);
    for round in 0..5_000 {
        if round >= 300 && reads >= 20 && refusals >= 20 {
            break;
        }
        match place.call("read", &json!({"path": "api/a.txt"})).await {
            Outcome::Done(answer) => {
                assert_eq!(answer.output["content"], "inside");
                reads += 1;
            }
            Outcome::NotExecuted(AdapterError::Refused(_)) => refusals += 1,
            other @ (Outcome::NotExecuted(_)
            | Outcome::Rejected(_)
            | Outcome::Failed(_)
            | Outcome::Unknown(_)) => panic!("{other:?}"),
        }
        let write = json!({"path": format!("api/new-{round}.txt"), "content": "x", "create_directories": round % 2 == 0});
        drop(place.call("write", &write).await);
        drop(place.call("delete", &json!({"path": format!("api/new-{}.txt", round - 1)})).await);
        let list = place.call("list", &json!({"path": "api"})).await;
        if let Outcome::Done(answer) = list {
            assert!(!answer.output.to_string().contains("secret.txt"));
        }
    }
    stop.store(true, Ordering::SeqCst);
    let swaps = swapper.join().unwrap();
    assert!(
        reads >= 20 && refusals >= 20 && swaps > 40,
        "the race did not take place: {reads}, {refusals}, {swaps}"
    );
    assert_eq!(place.outside(), before);
}

fn any_path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => Just("..".to_owned()),
        2 => Just(".".to_owned()),
        2 => Just(String::new()),
        2 => Just("a".to_owned()),
        1 => Just("out".to_owned()),
        1 => Just("root-evil".to_owned()),
        1 => Just("secret.txt".to_owned()),
        1 => any::<String>(),
    ];
    let separator = proptest::sample::select(vec!["/", "//", "\\", "/./", "\0/", "/\u{202e}"]);
    (proptest::collection::vec((part, separator), 1..6), any::<bool>()).prop_map(
        |(parts, absolute)| {
            let mut path = if absolute { "/".to_owned() } else { String::new() };
            for (part, separator) in parts {
                path.push_str(&part);
                path.push_str(separator);
            }
            path.trim_end_matches('/').to_owned()
        },
    )
}

#[test]
fn no_path_touches_anything_outside() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let place = runtime.block_on(Place::new());
    symlink(place.folder.path(), place.root().join("out")).unwrap();
    fs::create_dir(place.root().join("a")).unwrap();
    let before = place.outside();
    let mut runner =
        TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    runner
        .run(&any_path(), |path| {
            for (name, args) in operations(&path) {
                let outcome = runtime.block_on(place.call(name, &args));
                prop_assert!(
                    !format!("{outcome:?}").contains("\"secret\""),
                    "{} {} gave {:?}",
                    name,
                    args,
                    outcome
                );
            }
            prop_assert_eq!(&place.outside(), &before);
            Ok(())
        })
        .unwrap();
}
