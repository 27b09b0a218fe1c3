//! Who may depend on whom (ARCHITECTURE.md), read from `cargo metadata`, since nobody keeps a rule that nothing checks.
//!
//! Owns the table of direct dependencies, the crates that only one of ours may use, and the licences. `deny.toml` says the
//! same for those who have cargo-deny; a test here keeps the two equal.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{Dependency, DependencyKind, Metadata, MetadataCommand, Package};

use super::workspace::{none, read, root};

/// Each crate and what of ours it may use, tests aside.
const LAYERS: &[(&str, &[&str])] = &[
    ("placet-types", &[]),
    ("placet-testkit", &["placet-types"]),
    ("placet-policy", &["placet-types"]),
    ("placet-ledger", &["placet-types", "placet-policy"]),
    ("placet-adapter", &["placet-types", "placet-policy", "placet-ledger"]),
    ("placet-store", &["placet-types", "placet-policy", "placet-ledger"]),
    ("placet-egress", &["placet-types"]),
    ("placet-identity", &["placet-types", "placet-egress"]),
    ("placet-credentials", &["placet-types", "placet-egress", "placet-identity"]),
    ("placet-telemetry", &["placet-types", "placet-egress"]),
    (
        "placet-notify",
        &["placet-types", "placet-ledger", "placet-identity", "placet-egress", "placet-telemetry"],
    ),
    ("placet-chat", &["placet-egress"]),
    ("placet-planner", &["placet-egress", "placet-chat"]),
    ("placet-adapter-http", &["placet-types", "placet-adapter", "placet-egress", "placet-chat"]),
    ("placet-adapter-files", &["placet-types", "placet-adapter"]),
    ("placet-adapter-mcp", &["placet-types", "placet-adapter", "placet-egress"]),
    (
        "placet-approvals",
        &[
            "placet-types",
            "placet-policy",
            "placet-ledger",
            "placet-identity",
            "placet-credentials",
            "placet-telemetry",
        ],
    ),
    (
        "placet-engine",
        &[
            "placet-types",
            "placet-policy",
            "placet-ledger",
            "placet-store",
            "placet-adapter",
            "placet-identity",
            "placet-egress",
            "placet-credentials",
            "placet-telemetry",
            "placet-approvals",
        ],
    ),
    ("placet-api", &["placet-types", "placet-identity", "placet-approvals", "placet-engine"]),
    (
        "placet-console",
        &["placet-types", "placet-identity", "placet-approvals", "placet-engine", "placet-api"],
    ),
    ("placet-mcp-server", &["placet-types", "placet-identity", "placet-engine"]),
    (
        "placet",
        &[
            "placet-types",
            "placet-policy",
            "placet-ledger",
            "placet-store",
            "placet-adapter",
            "placet-identity",
            "placet-egress",
            "placet-credentials",
            "placet-telemetry",
            "placet-adapter-files",
            "placet-adapter-http",
            "placet-adapter-mcp",
            "placet-approvals",
            "placet-engine",
            "placet-notify",
            "placet-planner",
            "placet-api",
            "placet-console",
            "placet-mcp-server",
        ],
    ),
    (
        "placet-bench",
        &[
            "placet-types",
            "placet-policy",
            "placet-ledger",
            "placet-store",
            "placet-egress",
            "placet-adapter-files",
        ],
    ),
    ("placet-chaos", &["placet-types", "placet-testkit", "placet-identity", "placet-egress"]),
    ("placet-e2e", &["placet-types", "placet-testkit", "placet-identity", "placet-egress"]),
    (
        "placet-fuzz",
        &[
            "placet-types",
            "placet-testkit",
            "placet-policy",
            "placet-ledger",
            "placet-store",
            "placet-identity",
        ],
    ),
];

/// What the tests of every crate above `types` may use.
const TESTKIT: &str = "placet-testkit";

/// What tests use besides. Those of policy look upwards on purpose: two counts of the same votes, made apart from each other, are
/// compared. Those of the API start an engine, of all that it is made of.
const TESTS_USE: [(&str, &str); 8] = [
    ("placet-policy", "placet-ledger"),
    ("placet-api", "placet-policy"),
    ("placet-api", "placet-ledger"),
    ("placet-api", "placet-adapter"),
    ("placet-api", "placet-store"),
    ("placet-api", "placet-credentials"),
    ("placet-api", "placet-telemetry"),
    ("placet-console", "placet-ledger"),
];

/// The pure ring, by folder: no tokio, no sockets, no files, no clock.
pub(crate) const PURE: [&str; 4] = ["types", "policy", "ledger", "adapter"];

/// What the pure ring may use besides itself: none of it does I/O. A new name here is a decision, not a formality.
const PURE_MAY_USE: &[&str] = &[
    "aho-corasick",
    "async-trait",
    "base64",
    "cedar-policy",
    "cedar-policy-core",
    "chrono",
    "hex",
    "icu_properties",
    "jsonschema",
    "miette",
    "parking_lot",
    "percent-encoding",
    "regex",
    "ryu-js",
    "schemars",
    "secrecy",
    "serde",
    "serde-saphyr",
    "serde_json",
    "serde_path_to_error",
    "sha2",
    "strsim",
    "thiserror",
    "ulid",
    "zeroize",
];

/// Crates that belong to one layer: who may use them, and who may in tests only.
const WRAPPED: &[(&str, &[&str], &[&str])] = &[
    (
        "axum",
        &["placet-api", "placet-console", "placet-mcp-server", "placet-bench"],
        &["placet-adapter-mcp", "placet-e2e"],
    ),
    ("cap-std", &["placet-adapter-files"], &[]),
    ("cedar-policy", &["placet-policy"], &[]),
    ("cedar-policy-core", &["placet-policy"], &[]),
    ("hyper", &["placet-egress", "placet-api"], &["placet-egress"]),
    ("hyper-util", &["placet-egress", "placet-api"], &[]),
    ("jsonschema", &["placet-types"], &["placet-api", "placet-e2e"]),
    ("jsonwebtoken", &[], &["placet-identity"]),
    ("landlock", &["placet-adapter-mcp"], &[]),
    ("lettre", &["placet-notify"], &[]),
    ("opentelemetry", &["placet-telemetry"], &[]),
    ("opentelemetry-otlp", &["placet-telemetry"], &[]),
    ("opentelemetry_sdk", &["placet-telemetry"], &["placet-engine"]),
    ("prometheus-client", &["placet-telemetry"], &[]),
    ("ractor", &["placet-engine"], &[]),
    ("rmcp", &["placet-adapter-mcp", "placet-mcp-server", "placet-bench"], &[]),
    ("rustls", &["placet-egress", "placet-identity", "placet-api"], &[]),
    ("rustls-native-certs", &["placet-egress"], &[]),
    ("sled", &["placet-store"], &[]),
    // It opens one socket itself, in the file system and not on the network, which is the exception to "egress opens all sockets".
    ("spiffe", &["placet-identity"], &[]),
    ("sqlx", &["placet-store"], &[]),
    ("tokio-rustls", &["placet-egress", "placet-api"], &[]),
    ("tonic", &["placet-telemetry"], &["placet-egress", "placet-telemetry", "placet-e2e"]),
    ("tracing-opentelemetry", &["placet-telemetry"], &[]),
    ("utoipa", &["placet-api"], &[]),
    ("anyhow", &["placet-bench", "placet-chaos", "placet-testkit"], &[]),
];

/// Crates that have no place in the tree at all, no matter who asks for them.
const BANNED: &[&str] =
    &["reqwest", "native-tls", "openssl-sys", "ractor_cluster", "async-std", "serde_yaml"];

fn metadata(with_dependencies: bool) -> Metadata {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).other_options(vec![
        "--locked".to_owned(),
        "--filter-platform".to_owned(),
        "x86_64-unknown-linux-gnu".to_owned(),
    ]);
    if !with_dependencies {
        command.no_deps();
    }
    command.exec().expect("cargo describes the workspace")
}

fn members(metadata: &Metadata) -> Vec<&Package> {
    let packages = metadata.workspace_packages();
    assert!(packages.len() > 10, "only {} crates: the check would check nothing", packages.len());
    packages
}

fn is_ours(name: &str) -> bool {
    name == "placet" || name.starts_with("placet-")
}

/// What a package uses itself. What is optional is for the tests of other crates: no crate of ours has another feature that brings one.
fn direct(package: &Package, of_tests: bool) -> BTreeSet<&str> {
    let is_test = |dependency: &&Dependency| {
        (dependency.kind == DependencyKind::Development || dependency.optional) == of_tests
    };
    package.dependencies.iter().filter(is_test).map(|dependency| dependency.name.as_str()).collect()
}

fn allowed_of(name: &str) -> Option<&'static [&'static str]> {
    LAYERS.iter().find(|(layer, _)| *layer == name).map(|(_, allowed)| *allowed)
}

#[test]
fn no_crate_uses_one_that_its_layer_may_not() {
    let metadata = metadata(false);
    let mut findings = Vec::new();
    for package in members(&metadata) {
        let Some(allowed) = allowed_of(&package.name) else {
            findings.push(format!(
                "{} is in no layer: add it to LAYERS and to ARCHITECTURE.md",
                package.name
            ));
            continue;
        };
        // Tests may use what is below them, the test kit, and themselves with `test-support`; of the end-to-end crate all are tests.
        for of_tests in [false, true] {
            for name in direct(package, of_tests).into_iter().filter(|name| is_ours(name)) {
                let named = TESTS_USE.contains(&(package.name.as_str(), name));
                let for_tests =
                    of_tests && (name == package.name.as_str() || name == TESTKIT || named);
                if !for_tests && !allowed.contains(&name) {
                    findings.push(format!("{} → {name}", package.name));
                }
            }
        }
    }
    none("these arrows are not in the architecture", &findings);
}

#[test]
fn an_optional_dependency_is_for_tests_alone() {
    let metadata = metadata(false);
    let mut findings = Vec::new();
    for package in members(&metadata) {
        let optional = package.dependencies.iter().filter(|dependency| dependency.optional);
        for name in optional.map(|dependency| format!("dep:{}", dependency.name)) {
            for (feature, brings) in &package.features {
                if feature != "test-support" && brings.contains(&name) {
                    findings.push(format!("{}: feature `{feature}` brings {name}", package.name));
                }
            }
        }
    }
    none("an optional dependency is brought by another feature than `test-support`", &findings);
}

#[test]
fn the_layers_have_no_circle_and_name_no_crate_that_is_gone() {
    let metadata = metadata(false);
    let names: BTreeSet<&str> =
        members(&metadata).into_iter().map(|package| package.name.as_str()).collect();
    let mut below: BTreeSet<&str> = BTreeSet::new();
    for (layer, allowed) in LAYERS {
        assert!(names.contains(layer), "{layer} does not exist");
        let above: Vec<_> = allowed.iter().filter(|name| !below.contains(**name)).collect();
        assert!(above.is_empty(), "{layer} uses {above:?}, which are not below it");
        below.insert(layer);
    }
}

#[test]
fn architecture_says_the_same_arrows() {
    let page = read("ARCHITECTURE.md");
    let mut findings = Vec::new();
    for (layer, allowed) in LAYERS {
        let short = |name: &str| name.strip_prefix("placet-").unwrap_or(name).to_owned();
        let uses: Vec<String> = allowed.iter().map(|name| format!("`{}`", short(name))).collect();
        let uses = if uses.is_empty() { "nothing".to_owned() } else { uses.join(", ") };
        if !page.contains(&format!("| `{layer}` | {uses} |")) {
            findings.push(format!("| `{layer}` | {uses} |"));
        }
    }
    none("ARCHITECTURE.md lacks these rows of its table", &findings);
}

#[test]
fn the_pure_ring_uses_nothing_that_does_io() {
    let metadata = metadata(false);
    let mut findings = Vec::new();
    for package in members(&metadata) {
        let pure = package.name.strip_prefix("placet-").is_some_and(|name| PURE.contains(&name));
        for name in direct(package, false).into_iter().filter(|name| pure && !is_ours(name)) {
            if !PURE_MAY_USE.contains(&name) {
                findings.push(format!("{} → {name}", package.name));
            }
        }
    }
    none("the pure ring has no tokio, no sockets, no files", &findings);
}

#[test]
fn a_wrapped_crate_is_used_by_its_wrapper_alone() {
    let metadata = metadata(false);
    let mut findings = Vec::new();
    for (wrapped, users, testers) in WRAPPED {
        let mut used = false;
        for package in members(&metadata) {
            let (name, in_code) = (package.name.as_str(), direct(package, false).contains(wrapped));
            let in_tests = direct(package, true).contains(wrapped);
            used |= in_code || in_tests;
            if in_code && !users.contains(&name) || in_tests && !testers.contains(&name) {
                findings.push(format!("{name} → {wrapped}"));
            }
        }
        if !used {
            findings.push(format!("nobody uses {wrapped}: take it out of WRAPPED and deny.toml"));
        }
    }
    none("a crate of one layer is used by another", &findings);
}

#[test]
fn some_crates_are_not_in_the_tree_at_all() {
    let lock = read("Cargo.lock");
    let found = BANNED.iter().filter(|name| lock.contains(&format!("\nname = \"{name}\"\n")));
    none("banned", &found.map(|name| (*name).to_owned()).collect::<Vec<_>>());
}

#[test]
fn every_dependency_comes_from_the_registry_or_the_repository() {
    let metadata = metadata(true);
    let strange = metadata
        .packages
        .iter()
        .filter(|package| package.source.as_ref().is_some_and(|source| !source.is_crates_io()));
    none("sources", &strange.map(|package| package.id.to_string()).collect::<Vec<_>>());
}

#[test]
fn every_licence_is_one_that_deny_toml_allows() {
    let allowed = denied_list(&["licenses", "allow"]);
    let metadata = metadata(true);
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let licence = package.license.clone().unwrap_or_default();
        if !satisfied(&licence, &allowed) {
            findings.push(format!("{} {}: `{licence}`", package.name, package.version));
        }
    }
    none("licences", &findings);
}

/// Whether a licence expression can be met by the allowed ones: `AND` binds stronger than `OR`, as in SPDX.
fn satisfied(licence: &str, allowed: &BTreeSet<String>) -> bool {
    let licence = licence.replace('/', " OR ");
    // The tree has brackets only around alternatives: `(A OR B) AND C`.
    if let Some((inner, rest)) = licence.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        let rest = rest.trim().strip_prefix("AND ").map(str::trim);
        return satisfied(inner, allowed) && rest.is_none_or(|rest| satisfied(rest, allowed));
    }
    licence.split(" OR ").any(|all| all.split(" AND ").all(|one| allowed.contains(one.trim())))
}

#[test]
fn a_licence_expression_is_read_as_spdx_means_it() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "ISC".to_owned()]);
    for fine in ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "MIT AND ISC", "(GPL-3.0 OR MIT) AND ISC"]
    {
        assert!(satisfied(fine, &allowed), "{fine}");
    }
    for refused in
        ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "GPL-3.0 OR MPL-2.0"]
    {
        assert!(!satisfied(refused, &allowed), "{refused}");
    }
}

fn deny() -> toml::Table {
    read("deny.toml").parse().expect("deny.toml is TOML")
}

fn denied_list(path: &[&str; 2]) -> BTreeSet<String> {
    let table = deny();
    let list =
        table.get(path[0]).and_then(|section| section.get(path[1])).and_then(toml::Value::as_array);
    list.expect("the list is there")
        .iter()
        .filter_map(|entry| entry.as_str().map(str::to_owned))
        .collect()
}

#[test]
fn deny_toml_says_the_same_wrappers_and_bans() {
    let table = deny();
    let entries =
        table.get("bans").and_then(|bans| bans.get("deny")).and_then(toml::Value::as_array);
    let mut said: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for entry in entries.expect("there is a list of bans") {
        let wrappers = entry.get("wrappers").and_then(toml::Value::as_array);
        let ours = wrappers
            .into_iter()
            .flatten()
            .filter_map(toml::Value::as_str)
            .filter(|name| is_ours(name));
        said.insert(
            entry.get("crate").and_then(toml::Value::as_str).expect("an entry names a crate"),
            ours.collect(),
        );
    }
    let mut wanted: BTreeMap<&str, BTreeSet<&str>> =
        BANNED.iter().map(|name| (*name, BTreeSet::new())).collect();
    wanted.extend(
        WRAPPED
            .iter()
            .map(|(name, users, testers)| (*name, users.iter().chain(*testers).copied().collect())),
    );
    assert_eq!(said, wanted);
}
