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

#[cfg(test)]
mod ledger {
    use std::{fs, path::Path, sync::Arc};

    use placet_ledger::{
        audit::{AuditEvent, AuditKind},
        store::{Admission, Changes, Durability, Store as _},
    };
    use placet_store::embedded::{EmbeddedConfig, EmbeddedStore};
    use placet_testkit::clock::TestClock;
    use placet_types::clock::Timestamp;

    use super::{placet, text};

    const AT: Timestamp = Timestamp::from_ms(1_800_000_000_000);

    /// A ledger with an entry, as a process that was never served leaves it: nothing of it is signed.
    async fn made(data: &Path) -> Arc<EmbeddedStore> {
        fs::create_dir_all(data).unwrap();
        let config = EmbeddedConfig {
            segment_bytes: 1 << 16,
            free_space_watermark_bytes: 0,
            ..EmbeddedConfig::new(data.join("ledger"))
        };
        let (store, _) = EmbeddedStore::open(config, TestClock::at(AT.as_ms())).unwrap();
        let mut changes = Changes::new(Durability::Synced, Admission::New);
        changes.audit.push(AuditEvent::new(AuditKind::Started));
        store.commit(changes).await.unwrap();
        store
    }

    #[tokio::test]
    async fn a_chain_that_nothing_signed_vouches_for_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        made(&dir.path().join("placet-data")).await.close().await.unwrap();
        let plain = placet(dir.path(), &["audit", "verify"]).await;
        let said = text(&plain.stdout);
        assert_eq!(plain.status.code(), Some(0), "{said}{}", text(&plain.stderr));
        assert!(said.contains("nothing signed was compared"), "{said}");
        let strict = placet(dir.path(), &["audit", "verify", "--require-signed"]).await;
        let said = text(&strict.stdout);
        assert_eq!(strict.status.code(), Some(1), "{said}");
        assert!(said.contains("WRONG: log `journal`: nothing signed"), "{said}");
    }

    #[tokio::test]
    async fn an_archived_ledger_still_verifies() {
        let dir = tempfile::tempdir().unwrap();
        let store = made(&dir.path().join("placet-data")).await;
        store.snapshot().await.unwrap();
        store.archive(AT.plus_ms(1_000)).await.unwrap();
        store.close().await.unwrap();
        for words in
            [&["audit", "verify"][..], &["ledger", "fsck"], &["audit", "export", "chain.jsonl"]]
        {
            let ran = placet(dir.path(), words).await;
            assert_eq!(ran.status.code(), Some(0), "{words:?}: {}", text(&ran.stderr));
        }
        let lines = fs::read_to_string(dir.path().join("chain.jsonl")).unwrap();
        assert!(lines.starts_with("{\"placet_log\":1,"), "{lines}");
    }

    #[tokio::test]
    async fn what_is_in_the_way_is_named_with_a_way_on() {
        let dir = tempfile::tempdir().unwrap();
        let store = made(&dir.path().join("placet-data")).await;
        let in_use = placet(dir.path(), &["ledger", "export", "out.jsonl"]).await;
        let said = text(&in_use.stderr);
        assert!(said.contains("try: stop the other process"), "{said}");
        store.close().await.unwrap();
        let exported = placet(dir.path(), &["ledger", "export", "out.jsonl"]).await;
        assert_eq!(exported.status.code(), Some(0), "{}", text(&exported.stderr));
        let taken = placet(dir.path(), &["ledger", "import", "out.jsonl"]).await;
        let said = text(&taken.stderr);
        assert!(
            said.contains("is not empty") && said.contains("try: name a data folder"),
            "{said}"
        );
        let there = placet(dir.path(), &["audit", "export", "out.jsonl"]).await;
        let said = text(&there.stderr);
        assert_eq!(there.status.code(), Some(2), "{said}");
        assert!(said.contains("`out.jsonl` is there already") && said.contains("try:"), "{said}");
        let backup =
            placet(dir.path(), &["ledger", "backup", "--admin-url", "http://127.0.0.1:9"]).await;
        let said = text(&backup.stderr);
        assert!(said.contains("--admin-url") && !said.contains("PLACET_URL"), "{said}");
    }
}
