//! Calls that run out of time, and fault injection.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool, mpsc},
    time::Duration,
};

use cap_std::{ambient_authority, fs::Dir};
use placet_adapter::{
    adapter::Adapter,
    outcome::{AdapterError, Outcome},
};
use serde_json::json;

use super::{Place, TIMEOUT_MS, conditions};
use crate::files::{
    Files, FilesSettings, change,
    fault::Fault,
    gate::Gate,
    operation::Operation,
    path::RESERVED_PREFIX,
    tree::{Mark, Tree},
};

fn fault_injection(pause_after_effect_ms: u64) -> FilesSettings {
    FilesSettings { pause_after_effect_ms }
}

/// Waits until running operations have ended by themselves: no temporary file is left.
async fn settle(place: &Place) {
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if !place.names().iter().any(|name| name.starts_with(RESERVED_PREFIX)) {
            return;
        }
    }
    panic!("temporary files are left: {:?}", place.names());
}

/// The lock that every change takes last is held, so that the calls get as far as they can without changing anything.
#[tokio::test]
async fn a_call_that_does_not_get_to_its_change_in_time_has_no_effect_then_or_later() {
    let place = Place::new().await;
    place.put("a.txt", "keep");
    let root = Dir::open_ambient_dir(place.root(), ambient_authority()).unwrap();
    let tree = Arc::new(Tree::new(root, 1_024));
    let files = Files {
        contract: Arc::clone(&place.contract),
        trees: [("acme".parse().unwrap(), Arc::clone(&tree))].into(),
        settings: FilesSettings::default(),
        closed: AtomicBool::new(false),
    };
    let (release, held) = mpsc::channel::<()>();
    let (taken, is_taken) = mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        let guard = tree.changes();
        taken.send(()).unwrap();
        held.recv().unwrap();
        drop(guard);
    });
    is_taken.recv().unwrap();
    for (name, args) in [
        ("delete", json!({"path": "a.txt"})),
        ("write", json!({"path": "a.txt", "content": "changed", "overwrite": true})),
    ] {
        let outcome = files.invoke(place.dispatch(name, &args), conditions(100)).await;
        assert!(
            matches!(outcome, Outcome::NotExecuted(AdapterError::Unavailable(_))),
            "{outcome:?}"
        );
    }
    release.send(()).unwrap();
    holder.join().unwrap();
    settle(&place).await;
    assert_eq!((place.text("a.txt"), place.names()), ("keep".to_owned(), vec!["a.txt".to_owned()]));
}

// Paused time stands still while a blocking operation runs.
#[tokio::test(start_paused = true)]
async fn a_change_that_is_made_but_not_confirmed_in_time_is_unknown() {
    let place = Place::with(fault_injection(60_000), 1_048_576).await;
    place.put("a.txt", "x");
    for (name, args) in
        [("write", json!({"path": "b.txt", "content": "x"})), ("delete", json!({"path": "a.txt"}))]
    {
        let outcome = place.adapter.invoke(place.dispatch(name, &args), conditions(500)).await;
        assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    }
    assert_eq!(place.names(), ["b.txt"]);
}

#[tokio::test(start_paused = true)]
async fn the_fault_injection_holds_the_answer_back_after_an_effect_only() {
    let place = Arc::new(Place::with(fault_injection(300), 1_048_576).await);
    let begun = tokio::time::Instant::now();
    place.done("list", &json!({})).await;
    place.refused("delete", &json!({"path": "missing"})).await;
    assert!(begun.elapsed() < Duration::from_millis(300), "a look or a refusal was held back");
    let call = tokio::spawn({
        let place = Arc::clone(&place);
        async move { place.call("write", &json!({"path": "a.txt", "content": "x"})).await }
    });
    let path = place.root().join("a.txt");
    while !Path::try_exists(&path).unwrap() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!call.is_finished(), "the effect was to be there before the answer");
    assert!(matches!(call.await.unwrap(), Outcome::Done(_)));
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_the_whole_effect_or_none() {
    let place = Arc::new(Place::new().await);
    for round in 0..40_u64 {
        let args = json!({"path": format!("f{round}"), "content": "whole"});
        let call = tokio::spawn({
            let place = Arc::clone(&place);
            async move {
                place.adapter.invoke(place.dispatch("write", &args), conditions(TIMEOUT_MS)).await
            }
        });
        tokio::time::sleep(Duration::from_micros(round * 20)).await;
        call.abort();
        drop(call.await);
    }
    settle(&place).await;
    for name in place.names() {
        assert_eq!(place.text(&name), "whole", "{name}");
    }
}

/// The operation itself, behind a closed gate: nobody waits any more.
#[test]
fn behind_a_closed_gate_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "keep").unwrap();
    let root = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
    let tree = Tree::new(root, 1_024);
    let gate = Gate::default();
    gate.close();
    let mark = Mark { gate: &gate, temporary: ".placet-t.tmp" };
    for (name, args) in [
        ("write", json!({"path": "a.txt", "content": "changed", "overwrite": true})),
        ("write", json!({"path": "b.txt", "content": "new"})),
        ("write", json!({"path": "x/y.txt", "content": "new", "create_directories": true})),
        ("delete", json!({"path": "a.txt"})),
    ] {
        let outcome = match Operation::parse(name, args.as_object().unwrap()).unwrap() {
            Operation::Write(write) => change::write(&tree, &mark, &write),
            Operation::Delete(delete) => change::delete(&tree, &mark, &delete),
            look @ (Operation::List(_) | Operation::Stat(_) | Operation::Read(_)) => {
                panic!("{look:?}")
            }
        };
        assert!(matches!(outcome, Err(Fault::Abandoned)), "{name} {args}");
    }
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["a.txt"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), "keep");
}
