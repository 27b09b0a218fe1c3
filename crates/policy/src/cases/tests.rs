//! The shipped cases pass and cover every shipped policy; the format is strict.

use std::collections::BTreeSet;

use super::{CaseFile, CaseFileError, run::run_cases};
use crate::{
    bundle::PolicyFile,
    testing::{bundle, shipped},
};

const SHIPPED: [&str; 3] = [
    include_str!("../../../../policies/cases/10-calls.yaml"),
    include_str!("../../../../policies/cases/20-reviews.yaml"),
    include_str!("../../../../policies/cases/30-directives.yaml"),
];

#[test]
fn the_shipped_bundle_decides_its_cases_as_written() {
    for text in SHIPPED {
        let outcomes = run_cases(&shipped(), None, &CaseFile::parse(text).unwrap()).unwrap();
        let failed: Vec<String> = outcomes
            .iter()
            .filter(|outcome| !outcome.passed())
            .map(|outcome| {
                format!(
                    "{}: {:?}\n  {}",
                    outcome.name,
                    outcome.differences,
                    outcome.explanation.join("\n  ")
                )
            })
            .collect();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}

#[test]
fn every_shipped_policy_makes_the_difference_in_some_case() {
    let mut named: BTreeSet<String> = BTreeSet::new();
    for text in SHIPPED {
        let file = CaseFile::parse(text).unwrap();
        named.extend(
            file.cases.iter().flat_map(|case| case.expect.policies.iter().flatten().cloned()),
        );
        named.extend(file.reviews.iter().flat_map(|case| case.policies.iter().flatten().cloned()));
        named.extend(
            file.directives.iter().flat_map(|case| case.policies.iter().flatten().cloned()),
        );
    }
    // An allowed review or act names no policy, and where the engine refuses one no policy is asked. The next test shows that
    // these policies matter.
    let of_people = [
        "approver-in-group",
        "external-approver-decides",
        "external-approver-views",
        "view-approvals",
        "requester-withdraws",
        "owner-or-operator-withdraws",
        "directive-view",
        "break-glass-declare",
        "break-glass-confirm",
        "break-glass-stop",
        "break-glass-review",
        "break-glass-review-apart",
        "freeze-set",
        "freeze-lift",
        "lockdown-set",
        "lockdown-lift",
        "grant-revoke",
        "hand-over",
        "take-back",
        "credentials-revoke",
        "revocation-lift",
    ];
    named.extend(of_people.map(str::to_owned));
    let world = crate::testing::world();
    let all: BTreeSet<String> = crate::testing::compile(&shipped(), &world)
        .unwrap()
        .policies()
        .map(|policy| policy.id)
        .collect();
    assert_eq!(named, all);
}

/// The cases of a file that expect this policy to decide, if there are any.
fn naming(file: &CaseFile, policy: &str) -> Option<CaseFile> {
    let names = |policies: &Option<BTreeSet<String>>| {
        policies.as_ref().is_some_and(|all| all.contains(policy))
    };
    let mut file = file.clone();
    file.surfaces.clear();
    file.cases.retain(|case| names(&case.expect.policies));
    file.reviews.retain(|case| names(&case.policies));
    file.directives.retain(|case| names(&case.policies));
    let found = [file.cases.len(), file.reviews.len(), file.directives.len()];
    found.iter().any(|count| *count > 0).then_some(file)
}

#[test]
fn without_any_one_shipped_policy_some_case_fails() {
    let whole = shipped();
    let files: Vec<CaseFile> = SHIPPED.iter().map(|text| CaseFile::parse(text).unwrap()).collect();
    let world = crate::testing::world();
    let policies: Vec<_> = crate::testing::compile(&whole, &world).unwrap().policies().collect();
    for policy in policies {
        let mut less = whole.clone();
        for file in &mut less.files {
            file.text = file.text.replace(&policy.text, "");
        }
        assert_ne!(less, whole, "{}", policy.id);
        let pass = |file: &CaseFile| {
            run_cases(&less, None, file).unwrap().iter().all(super::run::CaseOutcome::passed)
        };
        // First only what names the policy; then the last file, which is the one about most policies.
        let mut naming = files.iter().filter_map(|file| naming(file, &policy.id));
        let all_pass = naming.all(|file| pass(&file)) && files.iter().rev().all(pass);
        assert!(!all_pass, "no case notices that `{}` is missing", policy.id);
    }
}

#[test]
fn a_case_that_expects_something_else_fails_and_says_why() {
    let text = SHIPPED[0].replace("policies: [agents-read-only] }", "policies: [another] }");
    let outcomes = run_cases(&shipped(), None, &CaseFile::parse(&text).unwrap()).unwrap();
    let failed: Vec<_> = outcomes.iter().filter(|outcome| !outcome.passed()).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].differences, ["decided by [agents-read-only], expected [another]"]);
    assert!(
        failed[0]
            .explanation
            .iter()
            .any(|line| line.contains("policy `agents-read-only` permits it"))
    );
}

#[test]
fn a_case_that_cannot_be_put_fails() {
    for (from, to) in [
        ("tool: files/read\n    args: *args", "tool: files/none\n    args: *args"),
        ("args: &args { path: a.txt }", "args: &args { path: 7 }"),
    ] {
        let text = SHIPPED[0].replace(from, to);
        assert_ne!(text, SHIPPED[0]);
        let outcomes = run_cases(&shipped(), None, &CaseFile::parse(&text).unwrap()).unwrap();
        assert!(outcomes.iter().any(|outcome| !outcome.passed()), "{to}");
    }
}

#[test]
fn a_case_has_a_time_a_history_and_the_budget_of_its_class() {
    let yaml = include_str!("../testing_world.yaml")
        .replace(
            "classes: { finance-bots: {} }",
            "classes: { finance-bots: { cost_cents_max: 3 } }",
        )
        .replacen("effect: none", "effect: none\n          run_keys: [path]", 1);
    let world = crate::testing::world_of(&yaml);
    let own = "@id(\"closed\") @approval(\"never\") forbid (principal, action == Placet::Action::\"ops/look\", resource is Placet::Tool)
        when { context.req.now >= datetime(\"2026-06-01\") || context.req.history[\"ops/look\"][\"path\"].contains(\"a\") };";
    let mut policies = shipped();
    policies.files.push(bundle(own).files.remove(0));
    let ran = |case: &str| {
        let text = format!(
            "cases_version: placet.policy-cases.v1\ncases: [{{ name: a, actor: {{ id: fin-bot, tenant: acme }}, tool: ops/look, {case} }}]"
        );
        let outcomes = run_cases(&policies, Some(&world), &CaseFile::parse(&text)?)?;
        Ok::<_, CaseFileError>(outcomes[0].differences.join("; "))
    };
    for passing in [
        "expect: { outcome: allow }",
        "now: 2026-05-31T23:59:59Z, expect: { outcome: allow }",
        "now: 2026-06-01T00:00:00Z, expect: { outcome: deny, policies: [closed] }",
        "history: { ops/look: { path: [a] } }, expect: { outcome: deny, policies: [closed] }",
    ] {
        assert_eq!(ran(passing).unwrap(), "", "{passing}");
    }
    for (history, said) in [
        ("{ ops/look: { pth: [a] } }", "`pth` is none of the `run_keys`"),
        ("{ ops/look: { path: [7] } }", "are texts"),
        ("{ ops/note: { text: [a] } }", "`text` is none of the `run_keys`"),
    ] {
        let failed = ran(&format!("history: {history}, expect: {{ outcome: allow }}")).unwrap();
        assert!(failed.contains(said), "{failed}");
    }
    let refused = ran("now: tomorrow, expect: { outcome: allow }").unwrap_err();
    assert!(refused.to_string().contains("`tomorrow` is no time"), "{refused}");
    let refund = |agent: &str| {
        let text = format!(
            "cases_version: placet.policy-cases.v1\ncases: [{{ name: a, actor: {{ id: {agent}, tenant: acme }}, user: {{ id: ada, tenant: acme }}, evidence: [ops/look], tool: ops/refund, args: {{ order: o, cents: 1 }}, expect: {{ outcome: deny, kind: budget }} }}]"
        );
        run_cases(&policies, Some(&world), &CaseFile::parse(&text).unwrap()).unwrap().remove(0)
    };
    assert!(refund("fin-bot").passed(), "a refund costs 5 cents, its class may have 3");
    assert!(!refund("bot").passed());
}

#[test]
fn an_unknown_key_or_an_empty_file_is_refused() {
    let head = "cases_version: placet.policy-cases.v1\n";
    let empty = CaseFile::parse(head).unwrap();
    assert_eq!(run_cases(&shipped(), None, &empty), Err(CaseFileError::Empty));
    let misspelt = format!(
        "{head}cases: [{{ name: a, actor: {{ id: b, tenant: c }}, tool: d/e, expcet: {{ outcome: allow }} }}]"
    );
    assert!(matches!(CaseFile::parse(&misspelt), Err(CaseFileError::Syntax(_))));
    let twice = format!("{head}surfaces: []\nsurfaces: []");
    assert!(matches!(CaseFile::parse(&twice), Err(CaseFileError::Syntax(_))));
}

#[test]
fn a_case_that_a_report_could_not_tell_apart_is_refused() {
    let surface =
        |name: &str| format!("{{ name: '{name}', actor: {{ id: b, tenant: c }}, tools: [] }}");
    for (names, told) in
        [([" ", "a"], "a case has no name"), (["a", "a "], "two cases have the name `a`")]
    {
        let surfaces = names.map(surface).join(", ");
        let text = format!("cases_version: placet.policy-cases.v1\nsurfaces: [{surfaces}]");
        let refused = run_cases(&shipped(), None, &CaseFile::parse(&text).unwrap()).unwrap_err();
        assert_eq!(refused.to_string(), told);
    }
}

/// Each case has what is said of it as its name, up to a number. It would pass if the name were not looked for.
#[test]
fn a_name_that_nothing_has_fails_its_case() {
    let text = r#"
cases_version: placet.policy-cases.v1
cases:
  - { name: no agent `bto` in tenant `acme` (the nearest is `bot`), actor: { id: bto, tenant: acme }, tool: ops/look, expect: &no { outcome: deny } }
  - { name: no tenant `acm`, actor: { id: bot, tenant: acm }, tool: ops/look, expect: *no }
  - { name: no user `kim`, actor: &bot { id: bot, tenant: acme }, user: { id: kim, tenant: acme }, tool: ops/look, expect: &yes { outcome: allow } }
  - { name: no group `stff`, actor: *bot, user: { id: kim, tenant: acme }, user_groups: [stff], tool: ops/look, expect: *yes }
  - { name: the case has no `user`, actor: *bot, user_groups: [staff], tool: ops/look, expect: *yes }
  - { name: the case has no `user` /2, actor: *bot, delegation: { scopes: [a] }, tool: ops/look, expect: *yes }
  - { name: no user `bne`, actor: *bot, approval: { votes: [{ by: bne }] }, tool: ops/remove, args: { name: a }, expect: &held { outcome: hold } }
  - { name: no user `bne` /2, actor: *bot, approval: { votes: [{ by: cleo, stands_for: bne }] }, tool: ops/remove, args: { name: a }, expect: *held }
  - { name: no user `bne` /3, actor: *bot, break_glass: { by: bne }, tool: ops/look, expect: *yes }
  - { name: no contract has the tool `ops/lok`, actor: *bot, evidence: [ops/lok], tool: ops/look, expect: *yes }
  - { name: no contract has the tool `ops/lok` /2, actor: *bot, history: { ops/lok: { id: [1] } }, tool: ops/look, expect: *yes }
reviews:
  - { name: no user `bne` /4, reviewer: { id: bne, tenant: acme }, act: approve, actor: *bot, tool: ops/look, asked: [approvers], expect: refuse }
  - { name: no group `aprovers`, reviewer: { id: ben, tenant: acme }, act: approve, actor: *bot, tool: ops/look, asked: [aprovers], expect: refuse }
directives:
  - { name: no user `bne` /5, person: { id: bne, tenant: acme }, act: set_freeze, expect: refuse }
surfaces:
  - { name: no agent `bto`, actor: { id: bto, tenant: acme }, tools: [] }"#;
    let ran = |text: &str| {
        let file = CaseFile::parse(text).unwrap();
        run_cases(&shipped(), Some(&crate::testing::world()), &file).unwrap()
    };
    for outcome in ran(text) {
        let said = outcome.differences.join("\n");
        let expected = outcome.name.split(" /").next().unwrap();
        assert!(said.contains(expected), "{}: {said}", outcome.name);
    }
    let on_purpose = text.replace("tenant: acme }", "tenant: acme, unlisted: true }");
    let failed = ran(&on_purpose).iter().filter(|outcome| !outcome.passed()).count();
    assert_eq!(failed, 8, "those that no `unlisted` is about");
}

#[test]
fn cases_without_a_world_need_one() {
    let file = CaseFile::parse(
        "cases_version: placet.policy-cases.v1\nsurfaces: [{ name: a, actor: { id: bot, tenant: acme }, tools: [ops/look, ops/note, ops/fetch, ops/act, ops/refund, ops/remove, ops/blob, ops/credit] }]",
    )
    .unwrap();
    assert_eq!(run_cases(&shipped(), None, &file), Err(CaseFileError::NoWorld));
    let outcomes = run_cases(&shipped(), Some(&crate::testing::world()), &file).unwrap();
    assert_eq!(outcomes[0].differences, Vec::<String>::new());
    let broken = bundle("permit (principal, action, resource);");
    assert!(matches!(
        run_cases(&broken, Some(&crate::testing::world()), &file),
        Err(CaseFileError::Bundle(_))
    ));
}

/// The example next to the shipped policies: its gates replace those of the same names.
#[test]
fn with_the_example_a_broken_glass_opens_the_gates_of_the_modes_and_no_other() {
    let example = include_str!("../../../../docs/src/examples/policies/break-glass.cedar");
    let mut opened = shipped();
    for file in &mut opened.files {
        if file.name == "20-gates.cedar" {
            let (_, freeze) = file.text.split_once("// In a freeze").unwrap();
            file.text = format!("{example}\n// In a freeze{freeze}");
        }
    }
    for (index, text) in SHIPPED.iter().enumerate() {
        let mut file = CaseFile::parse(text).unwrap();
        let asks = |case: &mut super::CallCase| case.name == "a broken glass opens no shipped gate";
        let mut broken: Vec<_> = file.cases.extract_if(.., asks).collect();
        assert_eq!(broken.len(), usize::from(index == 2));
        // Without break-glass nothing changes.
        let outcomes = run_cases(&opened, None, &file).unwrap();
        assert!(outcomes.iter().all(super::run::CaseOutcome::passed), "{outcomes:?}");
        let Some(mut case) = broken.pop() else { continue };
        let outcome = |case: &super::CallCase| {
            let cases = vec![case.clone()];
            let file = CaseFile {
                cases,
                reviews: vec![],
                directives: vec![],
                surfaces: vec![],
                ..file.clone()
            };
            run_cases(&opened, None, &file).unwrap()[0].differences.clone()
        };
        assert_eq!(outcome(&case)[0], "the outcome is allow, expected hold");
        case.frozen = true;
        case.expect.policies = Some(["gate-freeze".to_owned()].into());
        assert_eq!(outcome(&case), Vec::<String>::new());
        case.frozen = false;
        case.break_glass.as_mut().unwrap().ends_in_ms = 0;
        case.expect.policies = Some(["gate-destructive".to_owned()].into());
        assert_eq!(outcome(&case), Vec::<String>::new());
    }
}

/// The example of a gate on what the run has done, and its cases.
#[test]
fn with_the_example_a_record_is_updated_only_after_it_was_read() {
    let cases = include_str!("../../../../docs/src/examples/policies/read-before-write.yaml");
    let file = CaseFile::parse(cases).unwrap();
    let allowed = run_cases(&shipped(), None, &file).unwrap();
    let mut gated = shipped();
    let text =
        include_str!("../../../../docs/src/examples/policies/read-before-write.cedar").to_owned();
    gated.files.push(PolicyFile { name: "60-own.cedar".to_owned(), text });
    let outcomes = run_cases(&gated, None, &file).unwrap();
    assert_eq!(outcomes.len(), 4);
    for (gated, allowed) in outcomes.iter().zip(&allowed) {
        assert!(gated.passed(), "{gated:?}");
        // Without the example nothing is in the way.
        assert_eq!(allowed.passed(), !gated.name.contains("may not"), "{allowed:?}");
    }
}
