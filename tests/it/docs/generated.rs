//! The pages that are made from the code.
//!
//! Owns their form. What they say is the code's: the error codes' own texts, the program's own help and schemas.

use std::{collections::BTreeMap, fmt::Write as _};

use placet_types::error::ErrorCode;
use serde_json::Value;

use crate::program;

const NOTE: &str =
    "<!-- Generated; `UPDATE_EXPECT=1 cargo test -p placet-e2e --test it docs` refreshes it. -->";

/// The table of error codes.
pub(super) fn errors() -> String {
    let mut page = format!(
        "# Error codes\n\n{NOTE}\n\nOne code per cause, the same on every interface. A code's page says what it means and what to do.\n\n"
    );
    page.push_str("| code | HTTP | retryable | what to do |\n|---|---|---|---|\n");
    for code in ErrorCode::ALL {
        let retryable = if code.retryable() { "yes" } else { "no" };
        let row = format!(
            "| [`{code}`](../errors/{code}.md) | {} | {retryable} | {} |\n",
            code.http_status(),
            code.remediation()
        );
        page.push_str(&row);
    }
    page
}

/// Name and description of every schema.
pub(super) fn schema_names() -> Vec<(String, String)> {
    let list: Value =
        serde_json::from_str(&program::print(&["schema", "--json"])).expect("the list is JSON");
    let text = |entry: &Value, key: &str| {
        entry.get(key).and_then(Value::as_str).expect("a text").to_owned()
    };
    list.as_array()
        .expect("a list")
        .iter()
        .map(|entry| (text(entry, "name"), text(entry, "about")))
        .collect()
}

/// The page that lists the schemas.
pub(super) fn schemas(names: &[(String, String)]) -> String {
    let mut page = format!(
        "# Schemas\n\n{NOTE}\n\nJSON Schemas (draft 2020-12), generated from the types. `placet schema NAME` prints the same.\n\n"
    );
    page.push_str("| name | describes |\n|---|---|\n");
    for (name, about) in names {
        page.push_str(&format!("| [`{name}`](schemas/{name}.json) | {about} |\n"));
    }
    page.push_str("\nThe HTTP API is described by [openapi.json](openapi.json) (OpenAPI 3.1), served as `/openapi.json` too.\n");
    page
}

/// Every command with its help, keyed by its words: `approvals show`.
pub(super) fn commands() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    collect(&[], &mut found);
    found
}

fn collect(words: &[&str], found: &mut BTreeMap<String, String>) {
    let mut arguments = words.to_vec();
    arguments.push("--help");
    let help = program::print(&arguments);
    let names: Vec<String> = subcommands(&help).map(str::to_owned).collect();
    found.insert(words.join(" "), help);
    for name in &names {
        let mut deeper = words.to_vec();
        deeper.push(name);
        collect(&deeper, found);
    }
}

fn subcommands(help: &str) -> impl Iterator<Item = &str> {
    let list = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let named = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help")
}

/// The reference of the command line.
pub(super) fn command_line() -> String {
    let mut page = format!(
        "# Command line\n\n{NOTE}\n\nExit codes: 0 ok, 1 findings or refused, 2 usage, 3 sound as far as it could be looked at \
         (`audit verify`, `ledger fsck`).\n"
    );
    for (words, help) in commands() {
        let name = if words.is_empty() { "placet".to_owned() } else { format!("placet {words}") };
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        write!(page, "\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim())
            .expect("a text takes text");
    }
    page
}

/// Whether a line of the documents is a command there is, with options there are.
pub(super) fn check_line(known: &BTreeMap<String, String>, line: &str) -> Result<(), String> {
    let line = line.split(" #").next().unwrap_or_default();
    let mut command = String::new();
    let mut options = Vec::new();
    for word in
        line.split_whitespace().take_while(|word| *word != "&" && *word != "&&" && *word != "\\")
    {
        let deeper = if command.is_empty() { word.to_owned() } else { format!("{command} {word}") };
        if word.starts_with("--") {
            options.extend(word.split('=').next());
        } else if known.contains_key(&deeper) {
            command = deeper;
        }
    }
    let help = known.get(&command).ok_or("no such command")?;
    if command.is_empty() && !options.contains(&"--help") && !options.contains(&"--version") {
        return Err("it names no command".to_owned());
    }
    let absent = |option: &&&str| !help.contains(**option);
    options.iter().find(absent).map_or(Ok(()), |option| Err(format!("it has no option `{option}`")))
}

/// The reference of the configuration file.
pub(super) fn configuration() -> String {
    let schema: Value =
        serde_json::from_str(&program::print(&["schema", "config"])).expect("a schema is JSON");
    let mut page = format!(
        "# Configuration keys\n\n{NOTE}\n\nThe keys of `placet.yaml`. Unknown keys are errors. [Configuration](../configuration.md) explains them.\n\n"
    );
    page.push_str("| key | default | what it is |\n|---|---|---|\n");
    rows(&schema, &schema, "", &mut page);
    page
}

fn rows(root: &Value, schema: &Value, prefix: &str, page: &mut String) {
    let schema = resolve(root, schema);
    let members = schema.get("properties").and_then(Value::as_object);
    for (name, member) in members.into_iter().flatten() {
        let key = format!("{prefix}{name}");
        let target = resolve(root, member);
        let about = [member, target]
            .into_iter()
            .find_map(|place| place.get("description").and_then(Value::as_str));
        let about = about.unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        let nested = target.get("properties").is_some();
        let default = member.get("default").filter(|default| !nested && !default.is_null());
        let default = default.map(|value| format!("`{value}`")).unwrap_or_default();
        page.push_str(&format!("| `{key}` | {default} | {about}{} |\n", range(target)));
        rows(root, target, &format!("{key}."), page);
        if let Some(items) = target.get("items") {
            rows(root, items, &format!("{key}[]."), page);
        }
    }
}

fn range(schema: &Value) -> String {
    match (schema.get("minimum"), schema.get("maximum")) {
        (Some(min), Some(max)) => format!(" ({min} to {max})"),
        _ => String::new(),
    }
}

/// Follows a reference, and what stands beside `null`.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let alternatives = schema.get("anyOf").and_then(Value::as_array);
    let only = alternatives.and_then(|all| {
        let mut real =
            all.iter().filter(|one| one.get("type").and_then(Value::as_str) != Some("null"));
        real.next().filter(|_| real.next().is_none())
    });
    if let Some(only) = only {
        return resolve(root, only);
    }
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#'));
    name.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}
