//! `write` and `delete`.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    sync::Arc,
};

use placet_adapter::outcome::{AdapterError, Outcome};
use placet_types::{digest::Digest, envelope::result::Mutation};
use serde_json::json;

use super::{Place, conditions};

fn mutation(action: &str, target: &str) -> Mutation {
    Mutation { action: action.to_owned(), target: target.to_owned() }
}

#[tokio::test]
async fn a_write_creates_and_then_updates() {
    let place = Place::new().await;
    for (content, created, action) in [("one", true, "create"), ("two", false, "update")] {
        let answer = place
            .done("write", &json!({"path": "a.txt", "content": content, "overwrite": true}))
            .await;
        let digest = Digest::of(content.as_bytes());
        assert_eq!(
            answer.output,
            json!({"path": "a.txt", "bytes": 3, "digest": digest, "created": created})
        );
        assert_eq!(answer.mutations, [mutation(action, "a.txt")]);
        assert_eq!(place.text("a.txt"), content);
    }
    assert_eq!(place.names(), ["a.txt"]);
}

#[tokio::test]
async fn a_write_replaces_the_file_as_a_whole_and_keeps_its_mode() {
    let place = Place::new().await;
    place.put("a.sh", "old");
    let path = place.root().join("a.sh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    let before = fs::metadata(&path).unwrap();
    place
        .done(
            "write",
            &json!({"path": "a.sh", "content": "bmV3", "encoding": "base64", "overwrite": true}),
        )
        .await;
    let after = fs::metadata(&path).unwrap();
    assert_ne!(before.ino(), after.ino(), "written in place");
    assert_eq!(
        (after.permissions().mode() & 0o7777, place.text("a.sh")),
        (0o750, "new".to_owned())
    );
}

#[tokio::test]
async fn a_write_makes_directories_only_when_asked() {
    let place = Place::new().await;
    let why = place.refused("write", &json!({"path": "x/y/a.txt", "content": "1"})).await;
    assert!(why.contains("`create_directories`"), "{why}");
    assert!(place.names().is_empty());
    fs::create_dir(place.root().join("x")).unwrap();
    let answer = place
        .done("write", &json!({"path": "x/y/z/a.txt", "content": "1", "create_directories": true}))
        .await;
    assert_eq!(
        answer.mutations,
        [
            mutation("create", "x/y/"),
            mutation("create", "x/y/z/"),
            mutation("create", "x/y/z/a.txt")
        ]
    );
    assert_eq!(place.text("x/y/z/a.txt"), "1");
}

#[tokio::test]
async fn directories_of_a_write_that_fails_are_taken_away_again() {
    let place = Place::new().await;
    let digest = Digest::of(b"old");
    let args = json!({"path": "x/y/a.txt", "content": "1", "create_directories": true, "expected_digest": digest});
    place.refused("write", &args).await;
    assert!(place.names().is_empty());
    place.put("file", "");
    place
        .refused(
            "write",
            &json!({"path": "file/y/a.txt", "content": "1", "create_directories": true}),
        )
        .await;
    assert_eq!(place.names(), ["file"]);
}

#[tokio::test]
async fn a_file_that_may_not_be_overwritten_stays() {
    let place = Place::new().await;
    let args = json!({"path": "a.txt", "content": "new", "overwrite": false});
    assert_eq!(place.done("write", &args).await.output["created"], true);
    place.put("a.txt", "kept");
    for args in [args, json!({"path": "a.txt", "content": "new"})] {
        let why = place.refused("write", &args).await;
        assert!(why.contains("ask for `overwrite: true`"), "{why}");
    }
    assert_eq!((place.text("a.txt"), place.names()), ("kept".to_owned(), vec!["a.txt".to_owned()]));
}

#[tokio::test]
async fn a_file_with_another_digest_than_expected_stays() {
    let place = Place::new().await;
    place.put("a.txt", "changed meanwhile");
    let wrong = Digest::of(b"as it was read");
    for (name, args) in [
        (
            "write",
            json!({"path": "a.txt", "content": "new", "overwrite": true, "expected_digest": wrong}),
        ),
        ("delete", json!({"path": "a.txt", "expected_digest": wrong})),
        ("write", json!({"path": "missing", "content": "new", "expected_digest": wrong})),
        ("delete", json!({"path": "missing", "expected_digest": wrong})),
    ] {
        place.refused(name, &args).await;
    }
    assert_eq!(
        (place.text("a.txt"), place.names()),
        ("changed meanwhile".to_owned(), vec!["a.txt".to_owned()])
    );
    let right = Digest::of(b"changed meanwhile");
    place
        .done("write", &json!({"path": "a.txt", "content": "new", "overwrite": true, "expected_digest": right}))
        .await;
    place.done("delete", &json!({"path": "a.txt", "expected_digest": Digest::of(b"new")})).await;
    assert!(place.names().is_empty());
}

#[tokio::test]
async fn a_delete_says_what_it_deleted() {
    let place = Place::new().await;
    place.put("x/a.txt", "gone");
    let answer = place.done("delete", &json!({"path": "x/a.txt"})).await;
    let digest = Digest::of(b"gone");
    assert_eq!(
        answer.output,
        json!({"path": "x/a.txt", "deleted": true, "bytes": 4, "digest": digest})
    );
    assert_eq!(answer.mutations, [mutation("delete", "x/a.txt")]);
    assert!(!place.root().join("x/a.txt").try_exists().unwrap());
}

#[tokio::test]
async fn a_delete_of_nothing_has_no_effect() {
    let place = Place::new().await;
    fs::create_dir(place.root().join("folder")).unwrap();
    for path in ["missing", "missing/deeper", "folder/missing"] {
        let why = place.refused("delete", &json!({"path": path})).await;
        assert_eq!(why, format!("no such file: `{path}`"));
    }
    let why = place.refused("delete", &json!({"path": "folder"})).await;
    assert!(why.contains("a directory"), "{why}");
}

#[tokio::test]
async fn of_two_creations_and_two_deletions_at_once_one_succeeds() {
    let place = Arc::new(Place::new().await);
    for round in 0..50 {
        let path = format!("f{round}");
        for (name, args) in [
            ("write", json!({"path": path, "content": "x", "overwrite": false})),
            ("delete", json!({"path": path})),
        ] {
            let (one, two) = tokio::join!(place.call(name, &args), second(&place, name, &args));
            let done =
                [&one, &two].iter().filter(|outcome| matches!(outcome, Outcome::Done(_))).count();
            let refused = [&one, &two]
                .iter()
                .filter(|outcome| matches!(outcome, Outcome::NotExecuted(AdapterError::Refused(_))))
                .count();
            assert_eq!((done, refused), (1, 1), "{one:?}, {two:?}");
        }
    }
    assert!(place.names().is_empty());
}

/// A call with a token of its own.
async fn second(place: &Place, name: &str, args: &serde_json::Value) -> Outcome {
    use placet_adapter::adapter::{Dispatch, TestDispatch};
    let dispatch = Dispatch::for_test(TestDispatch {
        call_id: placet_types::ids::ToolCallId::new("call_2").unwrap(),
        tenant: place.dispatch(name, args).tenant().clone(),
        capability: place.dispatch(name, args).capability().clone(),
        contract_digest: place.contract.digest,
        args: args.as_object().unwrap().clone(),
        token: "plc_4567".to_owned(),
        deadline_at: placet_types::clock::Timestamp::from_ms(0),
    });
    place.adapter.invoke(dispatch, conditions(20_000)).await
}

#[tokio::test]
async fn a_reader_sees_the_old_content_or_the_new_and_nothing_between() {
    let place = Place::new().await;
    let (old, new) = ("a".repeat(200_000), "b".repeat(200_000));
    place.put("a.txt", &old);
    let path = place.root().join("a.txt");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let reader = {
        let (old, new) = (old.clone(), new.clone());
        std::thread::spawn(move || {
            let mut reads = 0_u32;
            while stopped.try_recv().is_err() {
                let seen = fs::read_to_string(&path).unwrap();
                assert!(seen == old || seen == new, "a mixture of {} bytes", seen.len());
                reads = reads.saturating_add(1);
            }
            reads
        })
    };
    for round in 0..40 {
        let content = if round % 2 == 0 { &new } else { &old };
        place.done("write", &json!({"path": "a.txt", "content": content, "overwrite": true})).await;
    }
    stop.send(()).unwrap();
    assert!(reader.join().unwrap() > 0);
    assert_eq!(place.names(), ["a.txt"]);
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_refuses_or_fails_without_effect() {
    let place = Place::new().await;
    // A name that is free, and a temporary name that is not: what a crash of the same attempt would leave.
    place.put(".placet-plc_0123-1.tmp", "half");
    let outcome = place.call("write", &json!({"path": "a.txt", "content": "x"})).await;
    assert!(matches!(outcome, Outcome::NotExecuted(AdapterError::Unavailable(_))), "{outcome:?}");
    assert_eq!(place.names(), [".placet-plc_0123-1.tmp"]);
}
