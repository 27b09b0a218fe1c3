//! Promise 1 by the compiler: a permit, a dispatch and a settlement are made in one place and used once.
//!
//! Each file in `ui` tries one way around that and must not compile, for the reason in the `.stderr` next to it. The functions here do
//! the same things once, the permitted way: they must compile, so that a case in `ui` does not fail for some other reason. Cases use the
//! crates that this test was built with; other libraries may have been built more than once.

#![expect(clippy::unwrap_used, reason = "the whole program is a test, its helpers too")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use expect_test::expect_file;

use placet_adapter::{
    adapter::{Adapter, Conditions, Dispatch},
    outcome::Outcome,
};
use placet_ledger::{
    dispatch::{DispatchGuard, Intent, Settlement},
    ledger::{self, Ledger, LedgerError},
    record::EffectRecord,
    store::Durability,
};
use placet_policy::permit::Permit;
use placet_types::{contract::Dedup, envelope::result::ToolResultEnvelope};

type Dispatched = Result<DispatchGuard, LedgerError>;

async fn permit_to_dispatch(
    ledger: &Ledger,
    permit: Permit,
    intent: Intent,
    record: &EffectRecord,
) -> Dispatched {
    ledger.dispatch(permit, intent, record, None, &Dedup::Opaque).await
}

async fn permit_to_read(ledger: &Ledger, permit: Permit, intent: Intent) -> Dispatched {
    ledger.dispatch_read(permit, intent, Durability::Synced).await
}

async fn dispatch_to_effect(
    adapter: &dyn Adapter,
    dispatch: Dispatch,
    conditions: Conditions,
) -> Outcome {
    adapter.invoke(dispatch, conditions).await
}

async fn settlement_to_record(
    ledger: &Ledger,
    settlement: Settlement,
    result: &ToolResultEnvelope,
) -> Result<Option<EffectRecord>, LedgerError> {
    ledger.settle(settlement, ledger::Outcome::Succeeded, result).await
}

#[test]
fn there_is_no_way_around_a_permit_or_a_dispatch() {
    // Referenced, so that they are checked without being called.
    let _allowed = (permit_to_dispatch, permit_to_read, dispatch_to_effect, settlement_to_record);
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let libraries = Libraries::of_last_build();
    let mut tried = 0;
    for entry in fs::read_dir(&cases).unwrap() {
        let case = entry.unwrap().path();
        if case.extension().is_some_and(|extension| extension == "rs") {
            expect_file![case.with_extension("stderr")].assert_eq(&errors(&case, &libraries));
            tried += 1;
        }
    }
    assert_eq!(tried, 22);
}

/// The compiler's errors for a file, one per line.
#[expect(clippy::disallowed_methods, reason = "the test asks the compiler")]
fn errors(case: &Path, libraries: &Libraries) -> String {
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.current_dir(case.parent().unwrap()).arg(case.file_name().unwrap());
    rustc.args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--out-dir"]);
    rustc.arg(env!("CARGO_TARGET_TMPDIR")).args(["--error-format=short", "--cap-lints=allow"]);
    rustc.arg("-L").arg(format!("dependency={}", libraries.folder.display()));
    for (name, path) in &libraries.paths {
        rustc.arg("--extern").arg(format!("{name}={}", path.display()));
    }
    let output = rustc.output().unwrap();
    assert!(!output.status.success(), "{} compiles", case.display());
    let said = String::from_utf8(output.stderr).unwrap();
    let errors = said.lines().filter(|line| line.contains(": error"));
    errors.map(|line| format!("{line}\n")).collect()
}

/// The libraries that cases use.
struct Libraries {
    folder: PathBuf,
    paths: Vec<(&'static str, PathBuf)>,
}

impl Libraries {
    /// The last build of the adapter crate, and the builds of its dependencies: it refers to them by the last part of their file names.
    fn of_last_build() -> Self {
        let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
        let builds = builds_of(&folder, "placet_adapter").into_iter();
        let changed = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
        let adapter = builds.max_by_key(changed).unwrap();
        let text = fs::read(&adapter).unwrap();
        let is_named = |build: &PathBuf| {
            let name = build.file_stem().unwrap().to_str().unwrap();
            let hash = name.rsplit_once('-').unwrap().1.as_bytes();
            text.windows(hash.len()).any(|part| part == hash)
        };
        let mut paths = vec![("placet_adapter", adapter.clone())];
        for name in ["placet_ledger", "placet_policy", "placet_types"] {
            paths.push((name, builds_of(&folder, name).into_iter().find(is_named).unwrap()));
        }
        Self { folder, paths }
    }
}

/// Every build of a library.
fn builds_of(folder: &Path, name: &str) -> Vec<PathBuf> {
    let start = format!("lib{name}-");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths
        .filter(|path| {
            let file = path.file_name().unwrap().to_str().unwrap();
            file.starts_with(&start) && file.ends_with(".rlib")
        })
        .collect()
}
