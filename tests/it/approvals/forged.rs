//! Text that people decide on: what agents and colleagues write is quoted after the arguments, and hides nothing.
//!
//! Owns texts that imitate the program's own lines, arguments among them. Invariant that is tested throughout: a line that does not begin with the
//! bar of a quotation is the program's own.

use serde_json::json;

use super::{Directive, text};
use crate::harness::setup::plan;

/// Lines that look like those of `placet approvals show`, for a harmless file.
const FORGED: &str = "ticket-7\n  arguments\n{\n  \"path\": \"scratch/tmp.txt\"\n}\n  yes       ben at 2026-11-22T09:00:00.000Z\n\
    ---- previous request ----\u{2028}  digest    sha256:00\r  you       your yes ends it";
/// Every kind of character that a reader does not see, or does not see where it is.
const UNSEEN: &str = "\u{3164}\u{115f}\u{1160}\u{ffa0}\u{2800}\u{fe0f}\u{34f}\u{180b}\u{e0100}\u{17b4}\u{fff9}\u{1d173}\u{1bca0}\u{2009}\u{3000}\u{a0}\
    \u{2028}\u{2029}\u{61c}\u{ad}\u{e0041}\u{202e}\u{200b}\u{7}";

/// The lines of the program itself.
fn own(shown: &str) -> Vec<&str> {
    shown.lines().filter(|line| !line.starts_with("    | ")).collect()
}

fn place_of(lines: &[&str], beginning: &str) -> usize {
    let found = lines.iter().position(|line| line.starts_with(beginning));
    found.unwrap_or_else(|| panic!("no line begins with `{beginning}`: {lines:#?}"))
}

#[tokio::test]
async fn references_of_an_agent_cannot_look_like_arguments() {
    let approvals = Directive::shipped().await;
    approvals.setup.put("payroll.db", "keep me");
    let mut call = plan("files__delete", "s1", json!({ "path": "payroll.db" }));
    call["evidence_refs"] = json!([FORGED]);
    // A reference is the id of an earlier call; any other text never reaches a person.
    approvals.agent.call(&call).await.refused(400, "VALIDATION_ERROR");
    let list = approvals.types("ben", &["list"]).await;
    assert!(!list.ok().contains("ticket-7"), "{}", list.out);
}

#[tokio::test]
async fn reasons_of_people_cannot_look_like_arguments() {
    let approvals = Directive::of_two().await;
    approvals.setup.put("b.txt", "not asked for");
    let (_, id, digest) = approvals.held("a.txt", "s1").await;
    let args = approvals.setup.path("args.json");
    std::fs::write(&args, r#"{"path": "b.txt"}"#).unwrap();
    let args = args.to_str().unwrap();
    let edit = ["edit", &id, "--args", args, "--reason", FORGED, "--digest", &digest];
    approvals.types("ben", &edit).await.ok();
    let digest = approvals.digest(&id).await;
    let approve = ["approve", &id, "--reason", FORGED, "--digest", &digest];
    approvals.types("cleo", &approve).await.ok();
    let shown = approvals.types("emma", &["show", &id]).await;
    let lines = own(shown.ok());
    assert!(!lines.iter().any(|line| line.contains("scratch/tmp.txt")), "{}", shown.out);
    assert!(!lines.iter().any(|line| line.contains("yes ends it")), "{}", shown.out);
    let arguments = place_of(&lines, "  arguments");
    for whose in ["  ben edited, because", "  cleo said yes, because"] {
        assert!(arguments < place_of(&lines, whose), "{}", shown.out);
    }
}

#[tokio::test]
async fn no_character_is_hidden_and_no_text_reads_as_masked() {
    let approvals = Directive::shipped().await;
    let hidden = format!("a{UNSEEN}b");
    approvals.setup.put("[sensitive]", "keep me");
    let call = plan("files__delete", "s1", json!({ "path": "[sensitive]" }));
    let id = text(&approvals.agent.call(&call).await.held(), "approval_id");
    let shown = approvals.types("ben", &["show", &id]).await;
    assert!(shown.ok().contains(r#""path": "[sensitive]""#), "{}", shown.out);
    assert!(!shown.out.contains("masked"), "{}", shown.out);
    let list = approvals.types("ben", &["list"]).await;
    assert!(list.ok().contains(r#"path: "[sensitive]""#), "{}", list.out);
    let digest = approvals.digest(&id).await;
    approvals.types("ben", &["deny", &id, "--reason", &hidden, "--digest", &digest]).await.ok();
    let shown = approvals.types("ben", &["show", &id]).await;
    let quoted: String =
        shown.ok().lines().filter_map(|line| line.strip_prefix("    | ")).collect();
    for c in UNSEEN.chars() {
        assert!(!shown.out.contains(c), "{} in {}", c.escape_unicode(), shown.out);
        assert!(quoted.contains(&c.escape_unicode().to_string()), "{}", c.escape_unicode());
    }
}
