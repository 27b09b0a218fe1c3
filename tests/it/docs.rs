//! The docs: complete, current, and without a link into nothing.
//!
//! Owns the pages that are generated and the rules for those that are written. Refresh the generated ones with
//! `UPDATE_EXPECT=1 cargo test -p placet-e2e --test it docs`.

mod generated;
mod links;
mod threats;

use std::collections::BTreeSet;

use placet_types::error::ErrorCode;
use regex::Regex;

use super::{
    program,
    workspace::{expect_file, files, none, read, root},
};

/// What every error page has, in this order.
const SECTIONS: [&str; 5] = ["Meaning", "Status", "Execution", "What to do", "For operators"];

fn pages() -> impl Iterator<Item = String> {
    files(&["docs/src"], &[".md"])
        .into_iter()
        .map(|file| file.path)
        .filter(|path| !path.ends_with("SUMMARY.md"))
}

fn stale(paths: impl IntoIterator<Item = Option<String>>) {
    let stale: Vec<String> = paths.into_iter().flatten().collect();
    none(
        "stale; refresh with `UPDATE_EXPECT=1 cargo test -p placet-e2e --test it docs` and read the difference",
        &stale,
    );
}

#[test]
fn every_attack_names_the_tests_that_run_it() {
    none("names of tests that are not there", &threats::unknown());
}

#[test]
fn every_error_code_has_a_page_and_every_page_a_code() {
    let codes: BTreeSet<String> =
        ErrorCode::ALL.iter().map(|code| format!("docs/src/errors/{code}.md")).collect();
    let pages: BTreeSet<String> =
        pages().filter(|page| page.starts_with("docs/src/errors/")).collect();
    assert_eq!(codes, pages);
}

#[test]
fn an_error_page_has_its_sections_and_says_what_the_code_says() {
    let mut findings = Vec::new();
    for code in ErrorCode::ALL {
        let text = read(&format!("docs/src/errors/{code}.md"));
        let sections: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        if !text.starts_with(&format!("# {code}\n")) || sections != SECTIONS {
            findings
                .push(format!("{code}: begins with its name and has the sections {SECTIONS:?}"));
        }
        let section = |name: &str| {
            text.split(&format!("## {name}\n")).nth(1).and_then(|rest| rest.split("\n## ").next())
        };
        let status = format!(
            "HTTP {}. Retryable: {}.",
            code.http_status(),
            if code.retryable() { "yes" } else { "no" }
        );
        if !section("Status").is_some_and(|section| section.contains(&status)) {
            findings.push(format!("{code}: `Status` says `{status}`"));
        }
        if !section("What to do").is_some_and(|section| section.contains(code.remediation())) {
            findings.push(format!("{code}: `What to do` says `{}`", code.remediation()));
        }
        if !section("Execution").is_some_and(|section| {
            ["*not executed*", "*executed and failed*", "*unknown*"]
                .iter()
                .any(|word| section.contains(word))
        }) {
            findings.push(format!(
                "{code}: `Execution` says which of *not executed*, *executed and failed*, *unknown*"
            ));
        }
    }
    none("error pages", &findings);
}

#[test]
fn the_summary_lists_every_page_once_and_no_other() {
    let summary = read("docs/src/SUMMARY.md");
    let link = Regex::new(r"\]\(([^)]+)\)").expect("a pattern");
    let listed: Vec<String> =
        link.captures_iter(&summary).map(|parts| format!("docs/src/{}", &parts[1])).collect();
    let unique: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), unique.len(), "a page is listed twice");
    assert_eq!(unique, pages().collect::<BTreeSet<_>>());
}

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    none("links into nothing", &links::broken());
}

#[test]
fn the_list_of_error_codes_is_current() {
    stale([expect_file("docs/src/reference/errors.md", &generated::errors())]);
}

#[test]
fn the_published_schemas_are_current() {
    let names = generated::schema_names();
    let schemas = names.iter().map(|(name, _)| {
        expect_file(
            &format!("docs/src/reference/schemas/{name}.json"),
            &program::print(&["schema", name]),
        )
    });
    let mut results: Vec<Option<String>> = schemas.collect();
    results.push(expect_file("docs/src/reference/schemas.md", &generated::schemas(&names)));
    let wanted: BTreeSet<String> =
        names.iter().map(|(name, _)| format!("docs/src/reference/schemas/{name}.json")).collect();
    for file in files(&["docs/src/reference/schemas"], &[".json"]) {
        results.push(
            (!wanted.contains(&file.path))
                .then(|| format!("{} is no schema any more: remove it", file.path)),
        );
    }
    stale(results);
}

#[test]
fn the_description_of_the_http_api_is_current() {
    stale([expect_file(
        "docs/src/reference/openapi.json",
        &program::print(&["schema", "openapi"]),
    )]);
}

#[test]
fn the_reference_of_the_command_line_is_current() {
    stale([expect_file("docs/src/reference/cli.md", &generated::command_line())]);
}

#[test]
fn the_reference_of_the_configuration_is_current() {
    stale([expect_file("docs/src/reference/configuration.md", &generated::configuration())]);
}

#[test]
fn every_example_that_names_a_schema_is_accepted_by_it() {
    let fence = Regex::new(r"(?ms)^```(yaml|json),schema-([a-z-]+)\n(.*?)^```").expect("a pattern");
    let (mut findings, mut seen) = (Vec::new(), 0_usize);
    for file in files(&["docs/src"], &[".md"]) {
        for parts in fence.captures_iter(&file.text) {
            seen = seen.saturating_add(1);
            let example: Result<serde_json::Value, String> = match &parts[1] {
                "yaml" => serde_saphyr::from_str(&parts[3]).map_err(|error| error.to_string()),
                _ => serde_json::from_str(&parts[3]).map_err(|error| error.to_string()),
            };
            let schema = serde_json::from_str(&program::print(&["schema", &parts[2]]))
                .expect("a schema is JSON");
            let validator = jsonschema::validator_for(&schema).expect("a schema is one");
            match example {
                Err(error) => findings.push(format!("{}: {error}", file.path)),
                Ok(example) => findings.extend(
                    validator
                        .iter_errors(&example)
                        .map(|error| format!("{}: {}: {error}", file.path, error.instance_path())),
                ),
            }
        }
    }
    assert!(
        seen > 3,
        "only {seen} examples were found: the pattern does not fit the docs any more"
    );
    none("examples that the program would not accept", &findings);
}

#[test]
fn the_policies_of_the_docs_pass_the_check_and_decide_its_cases() {
    let blocks = |page: &str, language: &str| -> Vec<String> {
        let fence = Regex::new(&format!(r"(?ms)^```{language}\n(.*?)^```")).expect("a pattern");
        fence.captures_iter(&read(page)).map(|parts| parts[1].to_owned()).collect()
    };
    let place = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: &str| std::fs::write(place.path().join(name), text).expect("a file");
    let done = |arguments: &[&str]| {
        let output = program::run(place.path(), arguments);
        let said = [output.stdout, output.stderr].concat();
        assert!(
            output.status.success(),
            "placet {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&said)
        );
    };

    done(&["init"]);
    let contract = blocks("docs/src/contracts.md", "yaml,schema-contract").remove(0);
    write("contracts/dev/tickets.yaml", &contract.replace("tenants: [acme]", "tenants: all"));
    write("tickets-secret", "not used");
    let config = std::fs::read_to_string(place.path().join("placet.yaml")).expect("init wrote it");
    write("placet.yaml", &format!("{config}secrets:\n  tickets: {{ file: tickets-secret }}\n"));
    let directory =
        std::fs::read_to_string(place.path().join("directory.yaml")).expect("init wrote it");
    let people = blocks("docs/src/policies.md", "yaml,directory").remove(0);
    write("directory.yaml", &with_people(&directory, &people));
    let policies = blocks("docs/src/policies.md", "cedar");
    assert!(policies.len() > 3, "the pattern does not fit the docs any more");
    write("policies/90-book.cedar", &policies.join("\n"));
    done(&["policy", "check"]);

    // The page's policies decide otherwise than the shipped ones, whose cases would fail.
    std::fs::remove_dir_all(place.path().join("policies/cases")).expect("init wrote them");
    std::fs::create_dir(place.path().join("policies/cases")).expect("a folder");
    write("policies/cases/book.yaml", &blocks("docs/src/policies.md", "yaml,cases").remove(0));
    done(&["policy", "test"]);
}

/// The directory with the page's people in its tenant, and the other tenant that the page's policies name.
fn with_people(directory: &str, people: &str) -> String {
    let read = |text: &str| -> serde_json::Value { serde_saphyr::from_str(text).expect("YAML") };
    let (mut directory, people) = (read(directory), read(people));
    for kind in ["groups", "users"] {
        let theirs = people[kind].as_object().expect("a mapping").clone();
        let ours = directory["tenants"]["local"][kind].as_object_mut().expect("a mapping");
        ours.extend(theirs);
    }
    directory["tenants"]["acme"] = serde_json::json!({ "classes": { "desk": {} } });
    directory.to_string()
}

#[test]
fn every_command_of_the_documents_exists() {
    let known = generated::commands();
    let fence = Regex::new(r"(?ms)^```(?:sh|console)\n(.*?)^```").expect("a pattern");
    let call = Regex::new(r"(?m)(?:^|\$ |\$\(|&& |\| )placet ([^\n|)]*)").expect("a pattern");
    let mut findings = Vec::new();
    let mut all = files(&["docs/src"], &[".md"]);
    all.extend(files(&["."], &["README.md"]).into_iter().filter(|file| file.path == "README.md"));
    assert!(root().join("README.md").is_file());
    for file in &all {
        for block in fence.captures_iter(&file.text) {
            for line in call.captures_iter(&block[1]) {
                if let Err(problem) = generated::check_line(&known, &line[1]) {
                    findings.push(format!("{}: placet {}: {problem}", file.path, &line[1]));
                }
            }
        }
    }
    none("commands that do not exist", &findings);
}
