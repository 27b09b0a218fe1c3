//! The built program: exit codes, and what goes to which stream. Only verbs that need no server; the rest is tested end to end.

use self::program::{placet, text};

#[cfg(test)]
mod program {
    use std::{path::Path, process::Output};

    use tokio::process::Command;

    /// Runs the program in a folder, with an empty environment.
    pub(super) async fn placet(dir: &Path, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_placet"));
        command.args(words).env_clear().current_dir(dir).kill_on_drop(true).output().await.unwrap()
    }

    /// What it wrote.
    pub(super) fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }
}

#[tokio::test]
async fn a_schema_is_printed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let output = placet(dir.path(), &["schema", "config"]).await;
    assert_eq!(output.status.code(), Some(0));
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(schema["properties"]["listen"].is_object());
    assert_eq!(text(&output.stderr), "");
}

#[tokio::test]
async fn exit_code_1_is_findings_and_2_is_usage() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("bad")).unwrap();
    std::fs::write(dir.path().join("bad/a.cedar"), "permit(principal, action, resource);\n")
        .unwrap();
    let findings = placet(dir.path(), &["policy", "check", "bad"]).await;
    assert_eq!(findings.status.code(), Some(1));
    assert!(text(&findings.stdout).contains("bad/a.cedar:1: error"), "{}", text(&findings.stdout));

    for words in [&["schema", "nonsense"][..], &["call", "files__read"], &["token", "robot", "x"]] {
        let usage = placet(dir.path(), words).await;
        assert_eq!(usage.status.code(), Some(2), "{words:?}");
        assert_eq!(text(&usage.stdout), "", "{words:?}");
        assert!(!usage.stderr.is_empty(), "{words:?}");
    }
}

#[tokio::test]
async fn serve_refuses_an_unknown_key_naming_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("placet.yaml"), "data: d\nlisten_on: 127.0.0.1:1\n").unwrap();
    let output = placet(dir.path(), &["serve"]).await;
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.contains("placet.yaml:2: `listen_on`") && error.contains("placet schema config"),
        "{error}"
    );
    assert!(
        !dir.path().join("d").try_exists().unwrap(),
        "nothing is made before the configuration is sound"
    );
}

#[tokio::test]
async fn serve_refuses_a_listener_for_other_machines_without_issuers() {
    let dir = tempfile::tempdir().unwrap();
    let output = placet(dir.path(), &["serve", "--listen", "0.0.0.0:0"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("without issuers"), "{}", text(&output.stderr));
}
