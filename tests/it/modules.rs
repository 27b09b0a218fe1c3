//! The modules of each crate: which of them use each other.
//!
//! Owns the rule that the top-level modules of a crate form a directed acyclic graph. What happens inside one module is its own business.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::{
    tidy::{is_test, production},
    workspace::{files, none},
};

type Edges = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_modules_of_a_crate_form_no_cycle() {
    let mut findings = Vec::new();
    for (crate_, edges) in crates() {
        let in_cycles = in_cycles(&edges);
        if !in_cycles.is_empty() {
            findings.push(format!("{crate_}: {}", in_cycles.join(" ")));
        }
    }
    none("modules that use each other", &findings);
}

/// What judges a run of chaos must not know how its faults are made.
#[test]
fn the_checking_half_of_chaos_uses_nothing_of_the_other() {
    const CHECKS: [&str; 4] = ["checker", "history", "report", "witness"];
    let crates = crates();
    let chaos = &crates["chaos"];
    let mut findings = Vec::new();
    for module in CHECKS {
        let foreign = chaos[module]
            .iter()
            .filter(|used| *used != "listed" && !CHECKS.contains(&used.as_str()));
        findings.extend(foreign.map(|used| format!("{module} uses {used}")));
    }
    assert!(chaos["checker"].contains("history"), "the modules were not read");
    none("modules of the other half", &findings);
}

#[test]
fn a_cycle_is_found_however_it_is_written() {
    for (code, used) in [
        ("use crate::b::B;", vec!["b"]),
        ("use crate::{\n    b::{B, C},\n    d,\n};", vec!["b", "d"]),
        ("fn f() { crate::b::g(); } // crate::c", vec!["b"]),
    ] {
        assert_eq!(modules_used(code), used.into_iter().map(str::to_owned).collect(), "{code}");
    }
    let edges = |pairs: &[(&str, &str)]| {
        let mut edges = Edges::new();
        for (from, to) in pairs {
            edges.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        edges
    };
    assert!(in_cycles(&edges(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    assert_eq!(
        in_cycles(&edges(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])),
        ["a", "b", "c"]
    );
}

/// What the top-level modules of each crate use, tests aside.
fn crates() -> BTreeMap<String, Edges> {
    let mut crates: BTreeMap<String, Edges> = BTreeMap::new();
    for file in files(&["crates", "adapters", "chaos", "bench"], &[".rs"]) {
        let Some((crate_, inner)) = file.path.split_once("/src/") else { continue };
        if is_test(&file.path) {
            continue;
        }
        let module = inner.split('/').next().unwrap_or(inner).trim_end_matches(".rs");
        let edges = crates.entry(crate_.to_owned()).or_default();
        edges.entry(module.to_owned()).or_default().extend(modules_used(production(&file.text)));
    }
    for edges in crates.values_mut() {
        for root in ["lib", "main"] {
            edges.remove(root);
        }
    }
    crates
}

/// The modules that code names as `crate::module`, alone or in a group.
fn modules_used(code: &str) -> BTreeSet<String> {
    let comments = Regex::new("//.*").expect("a pattern");
    let code = comments.replace_all(code, "");
    let mut used = BTreeSet::new();
    for path in code.split("crate::").skip(1) {
        match path.strip_prefix('{') {
            Some(group) => used.extend(outer_items(group).iter().map(|item| first_word(item))),
            None => drop(used.insert(first_word(path))),
        }
    }
    used.remove("");
    used
}

/// The items of a group, up to its closing brace; what is in braces within it is left out.
fn outer_items(group: &str) -> Vec<String> {
    let (mut items, mut depth) = (vec![String::new()], 1_u32);
    for character in group.chars() {
        match character {
            '{' => depth = depth.saturating_add(1),
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 1 => items.push(String::new()),
            _ if depth == 1 => items.last_mut().expect("there is one").push(character),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    items
}

fn first_word(text: &str) -> String {
    let is_part = |character: &char| character.is_alphanumeric() || *character == '_';
    text.trim_start().chars().take_while(is_part).collect()
}

/// The modules from which a way leads back to them.
fn in_cycles(edges: &Edges) -> Vec<String> {
    let reached = |from: &str| {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&str> = vec![from];
        while let Some(module) = open.pop() {
            for used in edges.get(module).into_iter().flatten() {
                if used != module && reached.insert(used.as_str()) {
                    open.push(used);
                }
            }
        }
        reached
    };
    edges.keys().filter(|module| reached(module).contains(module.as_str())).cloned().collect()
}
