//! What a child has and what it may use, as reported by itself.

use landlock::{ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _};
use placet_adapter::outcome::{AdapterError, Outcome};
use placet_types::contract::file::TransportFile;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::connector::not_confined;
use crate::tests::support::{call, connect, contract, done, in_seconds, python};

/// The report of a child started with these limits about itself.
async fn itself(process: Value) -> Value {
    let mut transport = python("good");
    transport["process"] = process;
    let contract = contract(transport, |_| {});
    let adapter = connect(&contract).await.unwrap();
    let answer = done(call(adapter.as_ref(), &contract, "echo", json!({})).await);
    adapter.close().await;
    answer.output["structured"]["process"].clone()
}

/// Our inherited descriptors, which we would leave to a program that replaced us.
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
    // Descriptors of our own: a file, a socket, a pipe.
    let file = tempfile::tempfile().unwrap();
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pipe = std::io::pipe().unwrap();
    let child = itself(json!({})).await;
    let mut opened = child["fds"].as_object().unwrap().clone();
    for pipe in ["0", "1", "2"] {
        let to = opened.remove(pipe).unwrap();
        assert!(to.as_str().unwrap().starts_with("pipe:"), "{pipe}: {to}");
    }
    // Everything else was inherited from the process that started these tests.
    let given = given_to_us();
    assert!(opened.keys().all(|name| given.contains(name)), "{opened:?}, given: {given:?}");
    assert!(given.len() < 10, "next to everything would be given: {given:?}");
    assert_eq!((&child["no_new_privs"], &child["group"]), (&json!("1"), &json!(true)));
    assert_eq!(child["limits"]["Max core file size"], json!(["0", "0"]));
    drop((file, socket, pipe));
    // We ourselves are unaffected.
    assert!(!rustix::thread::no_new_privs().unwrap());
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
    // A limit that nobody can enforce is reported before anything starts.
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

/// What a child started with these limits can do with the files and addresses in the arguments.
async fn tries(process: Value, args: Value) -> Value {
    let mut transport = python("good");
    transport["process"] = process;
    let contract = contract(transport, |_| {});
    let adapter = connect(&contract).await.unwrap();
    let answer = done(call(adapter.as_ref(), &contract, "tries", args).await);
    adapter.close().await;
    answer.output["structured"].clone()
}

fn gaps(process: Value) -> Vec<&'static str> {
    let mut transport = python("good");
    transport["process"] = process;
    not_confined(&serde_json::from_value(transport).unwrap())
}

/// The Landlock version of this kernel, determined differently than in the product.
fn kernel() -> ABI {
    let asked = std::thread::spawn(|| {
        let ruleset = Ruleset::default().handle_access(AccessFs::from_all(ABI::V1)).unwrap();
        ruleset.create().unwrap().restrict_self().unwrap().landlock.into()
    });
    asked.join().unwrap()
}

#[tokio::test]
async fn without_a_word_about_the_network_a_child_has_no_tcp() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let args = json!({ "port": listener.local_addr().unwrap().port() });
    let open = json!({ "connect": true, "bind": true });
    let child = tries(json!({}), args.clone()).await;
    if kernel() >= ABI::V4 {
        assert_eq!(child, json!({ "connect": false, "bind": false }));
        assert!(gaps(json!({})).is_empty());
    } else {
        assert_eq!(child, open);
        assert_eq!(gaps(json!({})), ["which TCP connections it opens and ports it binds"]);
    }
    // Placet itself is as it was, and so is a child whose contract says so.
    let unconfined = json!({ "network": "unconfined" });
    assert_eq!(tries(unconfined.clone(), args).await, open);
    assert!(gaps(unconfined).is_empty());
}

#[tokio::test]
async fn a_child_uses_only_the_files_its_contract_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for name in ["read", "write", "outside"] {
        std::fs::create_dir(path(name)).unwrap();
        std::fs::write(path(name) + "/file", name).unwrap();
    }
    let args = json!({
        "read": path("read/file"), "write": path("write/new"), "outside": path("outside/file"),
    });
    let system = ["/usr", "/bin", "/lib", "/lib64", "/etc", "/opt", "/nix"];
    let mut read: Vec<_> =
        system.into_iter().filter(|path| std::fs::exists(path).unwrap()).collect();
    let named = path("read");
    read.push(&named);
    let process =
        json!({ "network": "unconfined", "files": { "read": read, "write": [path("write")] } });
    let offered = kernel() >= ABI::V3;
    assert_eq!(gaps(process.clone()).is_empty(), offered);
    let child = tries(process, args.clone()).await;
    if offered {
        let can = json!({
            "bind": true, "read": true, "write": true, "outside": false, "change": false, "remove": false,
        });
        assert_eq!(child, can);
        assert!(std::fs::exists(path("read/file")).unwrap());
        assert!(std::fs::exists(path("write/new")).unwrap());
    }
    let child = tries(json!({}), args).await;
    assert_eq!(child["outside"], true);
    assert_eq!(child["remove"], true);
}

#[tokio::test]
async fn a_path_that_is_not_there_refuses_the_start() {
    let mut transport = python("good");
    transport["process"] = json!({ "files": { "read": ["/usr"], "write": ["no-such-folder"] } });
    let refused = connect(&contract(transport, |_| {})).await.unwrap_err();
    assert!(matches!(refused, AdapterError::Misconfigured(_)), "{refused:?}");
    assert!(refused.to_string().contains("`no-such-folder` of `process.files.write`"), "{refused}");
}
