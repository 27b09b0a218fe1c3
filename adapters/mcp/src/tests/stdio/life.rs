//! How processes start, and that they end.

use std::{path::Path, sync::Arc, time::Duration};

use serde_json::json;
use tokio::time::{Instant, sleep};

use placet_adapter::{adapter::Connector, outcome::AdapterError};

use crate::tests::support::{call, connect, connector, contract, done, in_seconds, python};

#[tokio::test]
async fn a_server_that_does_not_come_up_is_refused_in_time() {
    for mode in ["garbage", "silent", "exit", "flood_pings"] {
        let contract =
            contract(python(mode), |file| file["limits"]["connect_ms_max"] = json!(1_000));
        let begun = Instant::now();
        let refused = connect(&contract).await.unwrap_err();
        assert!(matches!(refused, AdapterError::Unavailable(_)), "{mode}: {refused}");
        assert!(begun.elapsed() < Duration::from_secs(4), "{mode}");
    }
}

#[tokio::test]
async fn a_server_that_only_writes_what_is_no_message_is_told_from_one_that_is_silent() {
    for mode in ["noise", "endless_line"] {
        let contract = contract(python(mode), |_| {});
        let refused = connect(&contract).await.unwrap_err();
        assert!(matches!(refused, AdapterError::InvalidResponse(_)), "{mode}: {refused}");
    }
}

#[tokio::test]
async fn a_banner_on_the_wrong_stream_is_forgiven() {
    let contract = contract(python("banner"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    done(call(adapter.as_ref(), &contract, "echo", json!({})).await);
    adapter.close().await;
}

#[tokio::test]
async fn a_command_that_cannot_be_run_is_a_mistake_in_the_contract() {
    for command in ["no-such-program-anywhere", "./relative", "bin/relative", "", "/etc/hostname"] {
        let contract = contract(json!({"type": "mcp_stdio", "command": command}), |_| {});
        let refused = connect(&contract).await.unwrap_err();
        assert!(matches!(refused, AdapterError::Misconfigured(_)), "{command}: {refused}");
    }
}

#[tokio::test]
async fn no_shell_reads_the_command_or_its_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let witness = folder.path().join("witness");
    let injected = format!("; touch {0} $(touch {0}) `touch {0}` | touch {0}", witness.display());
    let mut transport = python("good");
    transport["args"].as_array_mut().unwrap().push(json!(injected));
    let contract = contract(transport, |_| {});
    let adapter = connect(&contract).await.unwrap();
    let answer = done(call(adapter.as_ref(), &contract, "echo", json!({})).await);
    assert_eq!(answer.output["structured"]["argv"], json!(["good", injected]));
    assert!(!witness.try_exists().unwrap());
    adapter.close().await;
}

#[tokio::test]
async fn the_environment_is_what_the_contract_names_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("work")).unwrap();
    let mut transport = python("good");
    transport["env"] = json!({"PLAIN": "value", "KEY": {"secret": "known"}});
    transport["cwd"] = json!("work");
    let contract = contract(transport, |_| {});
    let adapter = connector(folder.path()).connect(Arc::clone(&contract)).await.unwrap();
    let answer = done(call(adapter.as_ref(), &contract, "echo", json!({})).await);
    let seen = &answer.output["structured"];
    let mut env = seen["env"].as_object().unwrap().clone();
    // Python itself sets this one when it finds no locale.
    env.remove("LC_CTYPE");
    assert_eq!(json!(env), json!({"PLAIN": "value", "KEY": "s3cret-canary"}));
    assert!(Path::new(seen["cwd"].as_str().unwrap()).ends_with("work"));
    assert!(!seen["argv"].to_string().contains("s3cret-canary"));
    adapter.close().await;
}

#[tokio::test]
async fn a_missing_secret_stops_the_start_and_names_only_itself() {
    let mut transport = python("good");
    transport["env"] = json!({"KEY": {"secret": "unknown"}, "OTHER": {"secret": "known"}});
    let refused = connect(&contract(transport, |_| {})).await.unwrap_err();
    assert!(matches!(refused, AdapterError::Misconfigured(_)));
    assert!(refused.to_string().contains("`unknown`"));
    assert!(!refused.to_string().contains("canary"));
}

#[tokio::test]
async fn a_variable_name_that_is_none_is_refused() {
    for name in ["", "A=B", "A\0B"] {
        let mut transport = python("good");
        transport["env"] = json!({name: "x"});
        let refused = connect(&contract(transport, |_| {})).await.unwrap_err();
        assert!(matches!(refused, AdapterError::Misconfigured(_)), "{name:?}");
    }
}

/// The processes of a server that ignores the request to terminate, and of its child.
async fn family(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("pids")).unwrap();
    text.split(' ').map(str::to_owned).collect()
}

fn is_running(pid: &str) -> bool {
    // A process that waits to be collected has ended.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

async fn all_end(pids: &[String]) {
    let deadline = in_seconds(10);
    while pids.iter().any(|pid| is_running(pid)) {
        assert!(Instant::now() < deadline, "a process outlived its connection");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn closing_ends_the_whole_process_group() {
    let folder = tempfile::tempdir().unwrap();
    let mode = format!("family:{}", folder.path().join("pids").display());
    let contract = contract(python(&mode), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let pids = family(folder.path()).await;
    assert!(pids.len() == 2 && pids.iter().all(|pid| is_running(pid)));
    adapter.close().await;
    assert!(!adapter.is_alive());
    assert!(!pids.iter().any(|pid| is_running(pid)));
}

#[tokio::test]
async fn dropping_a_connection_ends_the_whole_process_group() {
    let folder = tempfile::tempdir().unwrap();
    let mode = format!("family:{}", folder.path().join("pids").display());
    let adapter = connect(&contract(python(&mode), |_| {})).await.unwrap();
    let pids = family(folder.path()).await;
    assert!(pids.iter().all(|pid| is_running(pid)));
    drop(adapter);
    all_end(&pids).await;
}

#[tokio::test]
async fn a_handshake_that_fails_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let mode = format!("family:{}", folder.path().join("pids").display());
    let contract = contract(python(&mode), |file| file["protocol_version"] = json!("2026-07-28"));
    // This peer knows `initialize` only.
    assert!(connect(&contract).await.is_err());
    all_end(&family(folder.path()).await).await;
}

#[tokio::test]
async fn a_flood_on_standard_error_takes_no_memory() {
    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let before = resident_kib();
    done(call(adapter.as_ref(), &contract, "flood", json!({"mib": 256})).await);
    assert!(resident_kib() < before + 128 * 1024);
    adapter.close().await;
}

#[tokio::test]
async fn a_hostile_argument_arrives_as_the_text_it_is_and_touches_no_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let witness = folder.path().join("witness");
    let touch = format!("localhost; touch {0} $(touch {0}) `touch {0}`", witness.display());
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    for hostile in [
        touch,
        "--output=/srv/keys/authorized_keys".to_owned(),
        "--format=evil".to_owned(),
        "-oProxyCommand=nc -e /bin/bash".to_owned(),
        "@/etc/passwd".to_owned(),
        "two\nlines\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}".to_owned(),
        "nul\0byte".to_owned(),
        "\u{202e}txt.exe\u{200b}".to_owned(),
        "../../../etc/passwd".to_owned(),
        "x".repeat(2_000),
    ] {
        let args = json!({ "a": hostile, &hostile.chars().take(64).collect::<String>(): 1 });
        let answer = done(call(adapter.as_ref(), &contract, "echo", args.clone()).await);
        let seen = &answer.output["structured"];
        assert_eq!(seen["args"], args);
        assert_eq!(seen["argv"], json!(["good"]), "nothing of a call is on the command line");
    }
    // More than a pipe holds; its echo would be more than an answer may be.
    let long = json!({ "a": "x".repeat(200_000) });
    done(call(adapter.as_ref(), &contract, "echo", long).await);
    assert!(!witness.try_exists().unwrap());
    adapter.close().await;
}
