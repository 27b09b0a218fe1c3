//! The form of the sources: what no compiler checks and every reader relies on.
//!
//! Owns the rules of CONTRIBUTING.md that can be decided by reading text. Each rule is one test, so that its name is the rule.

use std::collections::BTreeSet;

use regex::Regex;

use super::workspace::{SourceFile, files, none, read, root};

/// Lines of a file: more than that deserves a look, and is no reason to cut one idea into pieces.
const LINES_MAX: usize = 600;

const CODE: [&str; 5] = ["crates", "adapters", "tests", "bench", "chaos"];

fn sources() -> Vec<SourceFile> {
    files(&CODE, &[".rs"])
}

/// Whether a file holds tests only, by where it is.
pub(crate) fn is_test(path: &str) -> bool {
    let tests = ["/tests/", "/it/", "/testing/"].iter().any(|folder| path.contains(folder));
    tests || ["tests.rs", "testing.rs", "properties.rs"].iter().any(|name| path.ends_with(name))
}

/// The part of a source that is not its inline test module.
pub(crate) fn production(text: &str) -> &str {
    text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(production, _)| production)
}

/// Writes a word so that this file does not contain it.
fn word(parts: &[&str]) -> String {
    parts.concat()
}

#[test]
fn every_source_begins_with_a_header_that_says_what_it_is() {
    // The cases that must not compile are shown to the compiler as their reader would write them.
    let bare = sources()
        .into_iter()
        .filter(|file| !file.path.contains("/ui/") && !file.text.starts_with("//! "));
    none("begin with a `//!` header", &bare.map(|file| file.path).collect::<Vec<_>>());
}

#[test]
fn no_source_is_too_long_to_read() {
    let mut findings = Vec::new();
    for file in sources() {
        let lines = file.text.lines().count();
        if lines > LINES_MAX {
            findings.push(format!("{}: {lines} lines, at most {LINES_MAX}", file.path));
        }
    }
    none("too long: split by what belongs together", &findings);
}

/// The runner of the tests does not run examples, so there are none: what would be one is a test.
#[test]
fn documentation_comments_hold_no_code_to_run() {
    let mut findings = Vec::new();
    for file in sources() {
        let mut is_inside = false;
        for (number, line) in (1_usize..).zip(file.text.lines()) {
            let comment = line.trim_start();
            let comment = comment.strip_prefix("//!").or_else(|| comment.strip_prefix("///"));
            let Some(fence) = comment.and_then(|text| text.trim().strip_prefix("```")) else {
                continue;
            };
            if !is_inside && fence != "text" {
                findings.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
            is_inside = !is_inside;
        }
    }
    none("not marked as ```text; write a test", &findings);
}

#[test]
fn nothing_is_left_for_later() {
    let words = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["HA", "CK"]].map(|parts| word(&parts));
    let pattern = Regex::new(&format!(r"\b({})\b", words.join("|"))).expect("a pattern");
    let mut findings = Vec::new();
    for file in files(&["."], &[".rs", ".toml", ".md", ".cedar", ".yaml", ".json", ".sh"]) {
        for (number, line) in (1_usize..).zip(file.text.lines()) {
            if pattern.is_match(line) {
                findings.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    none("finish it, or open an issue", &findings);
}

#[test]
fn no_lint_is_silenced_without_a_reason() {
    let allow = Regex::new(&word(&[r"#!?\[\s*al", r"low\("])).expect("a pattern");
    let expect =
        Regex::new(&word(&[r"(?s)#!?\[\s*(?:cfg_attr\([^\]]*?,\s*)?exp", r"ect\((.*?)\)\]"]))
            .expect("a pattern");
    let reason = Regex::new(r#"reason\s*=\s*"[^"]{10,}"#).expect("a pattern");
    let mut findings = Vec::new();
    for file in sources() {
        if allow.is_match(&file.text) {
            findings.push(format!(
                "{}: silences a lint for good; use `expect` with a reason",
                file.path
            ));
        }
        for attribute in expect.captures_iter(&file.text) {
            if !reason.is_match(&attribute[1]) {
                findings.push(format!(
                    "{}: `{}` gives no reason",
                    file.path,
                    attribute[0].replace('\n', " ")
                ));
            }
        }
    }
    none("lints", &findings);
}

#[test]
fn every_source_is_part_of_its_crate() {
    let all = sources();
    let text_of =
        |path: &str| all.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let mut findings = Vec::new();
    for file in all.iter().filter(|file| file.path.contains("/src/")) {
        let (folder, name) = file.path.rsplit_once('/').expect("a file is in a folder");
        let (parent, module) = match name {
            "lib.rs" | "main.rs" => continue,
            "mod.rs" => folder.rsplit_once('/').expect("a module is in a folder"),
            _ => (folder, name.trim_end_matches(".rs")),
        };
        let holders = ["lib.rs", "main.rs", "mod.rs"].map(|holder| format!("{parent}/{holder}"));
        let declared = Regex::new(&format!(r"(?m)^\s*(?:pub(?:\([a-z]+\))? )?mod {module};"))
            .expect("a pattern");
        let is_declared =
            |holder: &str| text_of(holder).is_some_and(|text| declared.is_match(text));
        if !holders.iter().any(|holder| is_declared(holder))
            && !is_declared(&format!("{parent}.rs"))
        {
            findings.push(file.path.clone());
        }
    }
    none("no `mod` line names it, so that nothing compiles it", &findings);
}

#[test]
fn text_files_end_with_one_line_break_and_have_no_trailing_blanks() {
    let mut findings = Vec::new();
    for file in files(&["."], &[".rs", ".toml", ".md", ".cedar", ".yaml"]) {
        if !file.text.ends_with('\n') || file.text.ends_with("\n\n") {
            findings.push(format!("{}: its end", file.path));
        }
        for (number, line) in (1_usize..).zip(file.text.lines()) {
            if line.ends_with(' ') || line.contains('\t') || line.ends_with('\r') {
                findings.push(format!("{}:{number}", file.path));
            }
        }
    }
    none("blanks", &findings);
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    // The folders where machines keep somebody's files, at the beginning of a path.
    let places = [["ro", "ot"], ["ho", "me"], ["wo", "rk"], ["Us", "ers"]]
        .map(|parts| word(&parts))
        .join("|");
    let pattern = Regex::new(&format!(r"(?:^|[^A-Za-z0-9_.~-])/(?:{places})/")).expect("a pattern");
    let mut findings = Vec::new();
    for file in files(
        &["."],
        &[".rs", ".toml", ".md", ".cedar", ".yaml", ".json", ".out", "run", "test", ".py", ".mjs"],
    ) {
        for (number, line) in (1_usize..).zip(file.text.lines()) {
            if pattern.is_match(line) {
                findings.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    none("absolute places", &findings);
}

#[test]
fn every_crate_is_under_the_lints_of_the_workspace() {
    let without = files(&CODE, &["Cargo.toml"])
        .into_iter()
        .filter(|file| !file.text.contains("[lints]\nworkspace = true"));
    none("no `[lints] workspace = true`", &without.map(|file| file.path).collect::<Vec<_>>());
}

#[test]
fn the_changelog_keeps_its_form() {
    let text = read("CHANGELOG.md");
    let heading = Regex::new(r"^## \[(Unreleased|\d+\.\d+\.\d+)\](?: - \d{4}-\d{2}-\d{2})?$")
        .expect("a pattern");
    let kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
    let mut findings = Vec::new();
    let (mut releases, mut seen) = (Vec::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("### ") {
            if !kinds.contains(&kind) || !seen.insert(kind.to_owned()) {
                findings.push(format!("`{line}` is no kind of change, or is there twice"));
            }
        } else if line.starts_with("## ") {
            seen.clear();
            match heading.captures(line) {
                Some(parts) => releases.push(parts[1].to_owned()),
                None => findings.push(format!("`{line}` is no release")),
            }
            let dated = line.contains(" - ");
            if line.contains("[Unreleased]") == dated {
                findings
                    .push(format!("`{line}`: a release has a date, what is not released has none"));
            }
        }
    }
    if !text.starts_with("# Changelog\n")
        || releases.first().map(String::as_str) != Some("Unreleased")
    {
        findings.push("begins with `# Changelog` and `## [Unreleased]`".to_owned());
    }
    none("CHANGELOG.md (Keep a Changelog)", &findings);
}

/// Starts servers and finds programs for tests, and is in no product: `layers` sees to that.
const TESTKIT: &str = "crates/testkit/";

#[test]
fn nothing_but_the_program_reads_the_environment() {
    // The clocks are banned by name in clippy.toml; the environment has too many listeners for that.
    let mut findings = Vec::new();
    for file in files(&["crates", "adapters"], &[".rs"]) {
        let reads =
            |line: &&str| line.split("//").next().is_some_and(|code| code.contains("env::"));
        if !file.path.starts_with("crates/placet/")
            && !file.path.starts_with(TESTKIT)
            && !is_test(&file.path)
        {
            findings.extend(
                production(&file.text)
                    .lines()
                    .filter(reads)
                    .map(|line| format!("{}: {}", file.path, line.trim())),
            );
        }
    }
    none("the environment is an input, read by `crates/placet` alone", &findings);
}

#[test]
fn pure_crates_touch_nothing_outside() {
    let banned = [
        "std::fs",
        "std::net",
        "std::env",
        "std::process",
        "std::thread",
        "tokio::",
        "std::time::SystemTime",
    ];
    let mut findings = Vec::new();
    for krate in super::layers::PURE {
        for file in files(&[&format!("crates/{krate}/src")], &[".rs"]) {
            if is_test(&file.path) {
                continue;
            }
            for (number, line) in (1_usize..).zip(production(&file.text).lines()) {
                let code = line.split("//").next().unwrap_or_default();
                findings.extend(
                    banned
                        .iter()
                        .filter(|name| code.contains(**name))
                        .map(|name| format!("{}:{number}: {name}", file.path)),
                );
            }
        }
    }
    none("the pure ring does no I/O", &findings);
}

#[test]
fn only_egress_opens_client_sockets() {
    let banned = [
        "TcpStream::connect",
        "UnixStream::connect",
        "TcpSocket::new",
        "UdpSocket::bind",
        "lookup_host",
        "to_socket_addrs",
    ];
    let mut findings = Vec::new();
    for file in files(&["crates", "adapters"], &[".rs"]) {
        if file.path.starts_with("crates/egress/")
            || file.path.starts_with(TESTKIT)
            || is_test(&file.path)
        {
            continue;
        }
        for name in banned.iter().filter(|name| production(&file.text).contains(**name)) {
            findings.push(format!("{}: {name}", file.path));
        }
    }
    none("client sockets belong to `placet-egress`", &findings);
}

#[test]
fn the_licence_is_there_in_full() {
    let text = read("LICENSE");
    assert!(text.contains("Apache License") && text.contains("Version 2.0, January 2004"));
    assert!(text.contains("END OF TERMS AND CONDITIONS"), "cut short");
    assert!(
        root().join("Cargo.toml").is_file()
            && read("Cargo.toml").contains("license = \"Apache-2.0\"")
    );
}

/// Words that the project has others for: what is not the field's own word is not a name, nor a sentence's.
const AVOIDED: [&str; 25] = [
    r"mend(s|ed|ing)?",
    r"doors?",
    r"the book",
    r"anew",
    r"look(ed)? (over|after)",
    r"(gives?|gave) back",
    r"nobody's",
    r"hostile readers?",
    r"reading found",
    r"stranded",
    r"the judge",
    r"strikes|is struck",
    r"the desk",
    r"whoever",
    r"in vain",
    r"by turns",
    r"put off",
    r"rotted",
    r"figures",
    r"drills?",
    r"courier",
    r"lent|lends|guests?",
    r"handovers?",
    r"break the glass",
    r"trail|surely|certainly",
];

/// In everything but the store, which is to be rebuilt, and this file.
#[test]
fn names_and_sentences_use_the_fields_own_words() {
    let pattern = format!(r"(?i)(^|[^\w])({})($|[^\w])", AVOIDED.join("|"));
    let pattern = Regex::new(&pattern).expect("a pattern");
    let folders = ["crates", "adapters", "tests", "bench", "chaos", "policies", "docs", "fuzz"];
    let pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
        .map(|path| SourceFile { path: path.to_owned(), text: read(path) });
    let sources = files(&folders, &[".rs", ".md", ".cedar", ".yaml", ".js", ".css"]);
    let mut findings = BTreeSet::new();
    for file in pages.into_iter().chain(sources) {
        if file.path.ends_with("tests/it/tidy.rs") {
            continue;
        }
        for (number, line) in (1..).zip(file.text.lines()) {
            // A name's parts are words, too.
            if let Some(found) = pattern.captures(&line.replace('_', " ")) {
                findings.insert(format!("{}:{number}: `{}`", file.path, &found[2]));
            }
        }
    }
    none("say it in the words of the glossary", &findings.into_iter().collect::<Vec<_>>());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "git is a program, and tells what was committed")]
fn commit_subjects_fit_in_72_characters() {
    let log = std::process::Command::new("git")
        .args(["log", "--since=2026-11-24T12:00:00Z", "--format=%s"])
        .current_dir(root())
        .output()
        .expect("git runs");
    let subjects = String::from_utf8(log.stdout).expect("text");
    let long = subjects.lines().filter(|subject| subject.chars().count() > 72);
    none("say it in 72 characters", &long.map(str::to_owned).collect::<Vec<_>>());
}
