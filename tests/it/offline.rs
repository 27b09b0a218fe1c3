//! Commands that need no server: they run where the secrets that `serve` needs are absent, as in CI and at an auditor's.
//!
//! Owns one set-up whose secret is a variable that is set for `serve` only.

use serde_json::json;

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
        &["policy", "explain", "--agent", "dev-agent", "--tool", "files__list"],
        &["adapters", "list"],
    ] {
        let ran = setup.configured(command).await;
        assert_eq!(ran.code, Some(0), "{command:?}: {ran:?}");
    }
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
