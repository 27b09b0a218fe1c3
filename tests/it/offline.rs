//! Commands that need no server: they run where the secrets that `serve` needs are absent, as in CI and at an auditor's.
//!
//! Owns one set-up whose secret is a variable that is set for `serve` only.

use serde_json::{Value, json};

use crate::harness::setup::Setup;

const UNSET: &str = "a variable that is not set";

fn with_secret() -> Setup {
    Setup::new().with("secrets", json!({ "ops-key": "${OPS_KEY}" })).with(
        "telemetry",
        json!({ "otlp": {
            "endpoint": "http://127.0.0.1:9", "headers": { "x-key": { "secret": "ops-key" } }
        } }),
    )
}

#[tokio::test]
async fn commands_that_need_no_secret_run_without_its_variable() {
    let setup = with_secret();
    let serving = with_secret().env("OPS_KEY", "for-serve-only").arg("--data");
    let placet = serving.arg(setup.data().to_str().unwrap()).start().await;
    placet.stop().await;
    for command in [
        &["token", "agent", "dev-agent"][..],
        &["audit", "verify"],
        &["policy", "check"],
        &["policy", "test"],
        &["policy", "expand"],
        &["policy", "explain", "--agent", "dev-agent", "--tool", "files__list"],
        &["adapters", "list"],
        &["adapters", "diff"],
    ] {
        let ran = setup.configured(command).await;
        assert_eq!(ran.code, Some(0), "{command:?}: {ran:?}");
    }
}

#[tokio::test]
async fn a_tool_is_reviewed_and_pinned_without_the_variable() {
    let setup = with_secret().files_contract();
    let mut contract = setup.read_contract("files");
    contract["capabilities"]["read"].as_object_mut().unwrap().remove("pin");
    let text = format!("# kept\n{contract}\n# lost\n");
    std::fs::write(setup.contract_file("files"), text).unwrap();
    let differs = setup.configured(&["adapters", "diff", "files", "--json"]).await;
    assert_eq!(differs.code, Some(1), "{differs:?}");
    let found: Value = serde_json::from_str(&differs.out).unwrap();
    let list = found[0]["live_list"].as_str().unwrap();
    let pinned = setup.configured(&["adapters", "pin", "files", "--expect", list]).await;
    pinned.ok();
    assert!(pinned.err.contains("without its comments below the top"), "{pinned:?}");
    let text = std::fs::read_to_string(setup.contract_file("files")).unwrap();
    assert!(text.starts_with("# kept\n") && !text.contains("# lost"), "{text}");
    setup.configured(&["adapters", "diff", "files"]).await.ok();
}

#[tokio::test]
async fn serve_and_doctor_name_the_secret_whose_variable_is_unset() {
    let setup = with_secret();
    let gone = setup.refuses().await;
    gone.says(&["secrets.ops-key", UNSET]);
    let doctor = setup.configured(&["doctor"]).await;
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    assert!(doctor.out.contains("`ops-key`") && doctor.out.contains("not set"), "{doctor:?}");
}
