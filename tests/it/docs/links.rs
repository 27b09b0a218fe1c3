//! Links between the documents.
//!
//! Owns what a link may lead to: a file of the repository, or a heading of a page. Addresses elsewhere are not asked.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::workspace::{SourceFile, files, root};

/// Every link that leads nowhere.
pub(super) fn broken() -> Vec<String> {
    let link = Regex::new(r"\]\(([^)\s]+)\)").expect("a pattern");
    let pages = files(&["."], &[".md"]);
    let headings: BTreeMap<&str, BTreeSet<String>> =
        pages.iter().map(|page| (page.path.as_str(), anchors(page))).collect();
    let mut findings = Vec::new();
    for page in &pages {
        for parts in link.captures_iter(&without_code(&page.text)) {
            let target = &parts[1];
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            if let Err(problem) = leads_somewhere(page, target, &headings) {
                findings.push(format!("{}: {target}: {problem}", page.path));
            }
        }
    }
    findings
}

fn leads_somewhere(
    page: &SourceFile,
    target: &str,
    headings: &BTreeMap<&str, BTreeSet<String>>,
) -> Result<(), &'static str> {
    let (file, anchor) =
        target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() {
        page.path.clone()
    } else {
        joined(&page.path, file).ok_or("leaves the repository")?
    };
    if !root().join(&path).try_exists().unwrap_or(false) {
        return Err("there is no such file");
    }
    // A page of the docs cannot reach files beside the docs once it is built.
    if page.path.starts_with("docs/src/") && !path.starts_with("docs/src/") {
        return Err("leads out of the docs");
    }
    match anchor {
        Some(anchor)
            if !headings.get(path.as_str()).is_some_and(|known| known.contains(anchor)) =>
        {
            Err("there is no such heading")
        }
        _ => Ok(()),
    }
}

/// The path that `link` in the document `from` leads to, from the root.
fn joined(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/').filter(|part| !part.is_empty()) {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn anchors(page: &SourceFile) -> BTreeSet<String> {
    let text = without_code(&page.text);
    let headings = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim());
    headings.map(slug).collect()
}

/// A heading as mdBook names it.
fn slug(heading: &str) -> String {
    let kept =
        heading.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The text without its code blocks and code spans, where brackets mean something else.
fn without_code(text: &str) -> String {
    let mut kept = String::new();
    let mut in_block = false;
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        if !in_block && !fence {
            let odd = line.split('`').step_by(2);
            kept.push_str(&if line.starts_with('#') {
                line.to_owned()
            } else {
                odd.collect::<Vec<_>>().join("")
            });
        }
        kept.push('\n');
    }
    kept
}
