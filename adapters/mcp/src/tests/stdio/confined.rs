//! What a child has and what it may use, as it says itself.

use placet_adapter::outcome::Outcome;
use placet_types::contract::file::TransportFile;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::tests::support::{call, connect, contract, done, in_seconds, python};

/// What a child started with these bounds says about itself.
async fn itself(process: Value) -> Value {
    let mut transport = python("good");
    transport["process"] = process;
    let contract = contract(transport, |_| {});
    let adapter = connect(&contract).await.unwrap();
    let answer = done(call(adapter.as_ref(), &contract, "echo", json!({})).await);
    adapter.close().await;
    answer.output["structured"]["process"].clone()
}

/// The descriptors that we have and would leave to a program that replaced us.
fn given_to_us() -> Vec<String> {
    let all = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_left = |name: &String| {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{name}"));
        let flags = info.ok().and_then(|info| {
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?.trim();
            u64::from_str_radix(flags, 8).ok()
        });
        flags.is_some_and(|flags| flags & 0o2_000_000 == 0)
    };
    names.filter(is_left).collect()
}

#[tokio::test]
async fn a_child_has_three_pipes_a_group_of_its_own_and_no_way_to_more_rights() {
    // What we have open ourselves: a file, a socket, a pipe.
    let file = tempfile::tempfile().unwrap();
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pipe = std::io::pipe().unwrap();
    let child = itself(json!({})).await;
    let mut opened = child["fds"].as_object().unwrap().clone();
    for pipe in ["0", "1", "2"] {
        let to = opened.remove(pipe).unwrap();
        assert!(to.as_str().unwrap().starts_with("pipe:"), "{pipe}: {to}");
    }
    // Whatever else it has, whoever started these tests has given to us and to all that we start.
    let given = given_to_us();
    assert!(opened.keys().all(|name| given.contains(name)), "{opened:?}, given: {given:?}");
    assert!(given.len() < 10, "next to everything would be given: {given:?}");
    assert_eq!((&child["no_new_privs"], &child["group"]), (&json!("1"), &json!(true)));
    assert_eq!(child["limits"]["Max core file size"], json!(["0", "0"]));
    drop((file, socket, pipe));
    // We ourselves are as we were: the next child can be one that needs it.
    assert!(!rustix::thread::no_new_privs().unwrap());
    let sudo = itself(json!({ "gains_privileges": true })).await;
    assert_eq!(sudo["no_new_privs"], "0");
}

#[tokio::test]
async fn the_bounds_of_a_contract_are_those_of_the_process() {
    let child = itself(json!({
        "memory_bytes_max": 1_073_741_824, "open_files_max": 64, "processes_max": 5_000, "cpu_s_max": 30,
        "file_bytes_max": 4_096,
    }))
    .await;
    for (name, most) in [
        ("Max address space", "1073741824"),
        ("Max open files", "64"),
        ("Max processes", "5000"),
        ("Max cpu time", "30"),
        ("Max file size", "4096"),
    ] {
        assert_eq!(child["limits"][name], json!([most, most]), "{name}: {child:#}");
    }
    // What nobody can be bound by is said before anything starts.
    let mut transport = python("good");
    transport["process"] = json!({ "open_files_max": 0 });
    assert!(serde_json::from_value::<TransportFile>(transport.clone()).is_err());
    transport["process"] = json!({ "open_files": 5 });
    assert!(serde_json::from_value::<TransportFile>(transport).is_err());
}

#[tokio::test]
async fn a_child_that_goes_beyond_its_bounds_ends_and_its_call_has_no_known_end() {
    let mut transport = python("good");
    transport["process"] = json!({ "cpu_s_max": 1 });
    let contract = contract(transport, |_| {});
    let adapter = connect(&contract).await.unwrap();
    let outcome = call(adapter.as_ref(), &contract, "slow", json!({ "spin": true })).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    // A call that only ran out of time would leave it spinning.
    let deadline = in_seconds(5);
    while adapter.is_alive() {
        assert!(Instant::now() < deadline, "it goes on beyond its bounds");
        sleep(Duration::from_millis(5)).await;
    }
}
