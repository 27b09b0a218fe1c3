//! Properties of every bundle and every call, tested on generated ones.
//!
//! Two kinds of bundles: wild ones contain anything, mistakes and overflows included; honest ones have permits that do not
//! look at the approval, and gates whose conditions match their annotations.

use std::sync::Arc;

use cedar_policy::PolicySet;
use placet_types::mode::{ApprovalMode, EngineMode};
use proptest::prelude::*;
use serde_json::json;

use crate::{
    cases::run::World,
    facts::BudgetView,
    snapshot::{Snapshot, ToolPlan},
    testing::{Draft, NOW, agent, agent_for, bundle, compile, vote, word, world},
    verdict::Verdict,
};

const SCOPES: [&str; 9] = [
    r#"action in Placet::Action::"tier_read_only""#,
    r#"action in Placet::Action::"tier_local_write""#,
    r#"action in [Placet::Action::"tier_network", Placet::Action::"tier_destructive"]"#,
    r#"action in Placet::Action::"tier_destructive""#,
    r#"action == Placet::Action::"ops/refund""#,
    r#"action in [Placet::Action::"ops/fetch", Placet::Action::"ops/blob", Placet::Action::"ops/look"]"#,
    r#"action in Placet::Action::"tier_delegated""#,
    r#"action in [Placet::Action::"tier_read_only", Placet::Action::"tier_local_write", Placet::Action::"tier_network", Placet::Action::"tier_delegated", Placet::Action::"tier_destructive"]"#,
    r#"action in Placet::Action::"lower_mode""#,
];
const FORBIDDEN_SCOPES: [&str; 5] = [
    r#"action in Placet::Action::"call_tool""#,
    r#"action in Placet::Action::"cap_destructive""#,
    r#"action in Placet::Action::"cap_network""#,
    r#"action in [Placet::Action::"ops/refund", Placet::Action::"ops/note"]"#,
    r#"action == Placet::Action::"ops/look""#,
];
const PRINCIPALS: [&str; 4] = [
    "principal",
    "principal is Placet::Agent",
    "principal is Placet::User",
    r#"principal in Placet::Tenant::"acme""#,
];
/// Conditions that do not look at the approval.
const CONDITIONS: [&str; 9] = [
    "resource.enabled || !resource.enabled",
    "principal.active",
    "context.req.attested",
    "context.req has on_behalf_of",
    "context.req.budget.calls_left > 3",
    "context.req.budget.cents_left >= resource.cost_cents + 100",
    "resource.writes",
    r#"context.req.mode_effective == Placet::ApprovalMode::"destructive""#,
    r#"context.req has on_behalf_of && context.req.on_behalf_of in Placet::Group::"acme/finance""#,
];
/// Conditions that look at the approval, some of them the wrong way round, or that overflow.
const WILD: [&str; 5] = [
    "context.req has approval",
    "!(context.req has approval)",
    "context.req has approval && context.req.approval.total == 1",
    "context.req.budget.calls_left * 4611686018427387904 > 0",
    "context.req has approval && context.req.approval.total * 9223372036854775807 > 0",
];

fn pick(from: &[&'static str]) -> impl Strategy<Value = &'static str> + use<> {
    prop::sample::select(from.to_vec())
}

/// A permit for every tool and principal, most of the time: else nearly all calls are denied for want of one.
fn broad() -> impl Strategy<Value = Vec<String>> {
    let all = format!("permit (principal, {}, resource is Placet::Tool);", SCOPES[7]);
    prop_oneof![3 => Just(vec![all]), 1 => Just(vec![])]
}

fn permit(conditions: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    (pick(&PRINCIPALS), pick(&SCOPES), pick(conditions)).prop_map(
        |(principal, scope, condition)| {
            let target = r#"when { context.mode_target != Placet::ApprovalMode::"destructive" }"#;
            let target = if scope.contains("lower_mode") { target } else { "" };
            format!(
                "permit ({principal}, {scope}, resource is Placet::Tool) {target} when {{ {condition} }};"
            )
        },
    )
}

fn never(conditions: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    (pick(&PRINCIPALS), pick(&FORBIDDEN_SCOPES), pick(conditions)).prop_map(|(principal, scope, condition)| {
        format!("@approval(\"never\") forbid ({principal}, {scope}, resource is Placet::Tool) when {{ {condition} }};")
    })
}

/// A gate whose condition wants exactly what its annotations say.
fn gate() -> impl Strategy<Value = String> {
    (pick(&PRINCIPALS), pick(&FORBIDDEN_SCOPES), pick(&CONDITIONS), pick(&["approvers", "security"]), 1u32..3).prop_map(
        |(principal, scope, condition, group, quorum)| {
            format!(
                "@approval(\"custom\") @approver_group(\"{group}\") @quorum(\"{quorum}\")
                 forbid ({principal}, {scope}, resource is Placet::Tool) when {{ {condition} }}
                 unless {{ context.req has approval && context.req.approval.total >= {quorum}
                   && context.req.approval.hasTag(\"{group}\") && context.req.approval.getTag(\"{group}\") >= 1 }};"
            )
        },
    )
}

fn careless_gate() -> impl Strategy<Value = String> {
    let wild: Vec<&str> = CONDITIONS.iter().chain(&WILD).copied().collect();
    (pick(&PRINCIPALS), pick(&FORBIDDEN_SCOPES), pick(&wild)).prop_map(
        |(principal, scope, condition)| {
            format!(
                "@approval(\"custom\") @approver_group(\"approvers\")
             forbid ({principal}, {scope}, resource is Placet::Tool) unless {{ {condition} }};"
            )
        },
    )
}

fn honest() -> impl Strategy<Value = Vec<String>> {
    let permits = prop::collection::vec(permit(&CONDITIONS), 1..4);
    let forbids = prop::collection::vec(prop_oneof![2 => gate(), 1 => never(&CONDITIONS)], 0..4);
    (broad(), permits, forbids)
        .prop_map(|(broad, permits, forbids)| [broad, permits, forbids].concat())
}

fn wild() -> impl Strategy<Value = Vec<String>> {
    let all: Vec<&str> = CONDITIONS.iter().chain(&WILD).copied().collect();
    let permits = prop::collection::vec(permit(&all), 1..4);
    let forbids = prop::collection::vec(prop_oneof![gate(), careless_gate(), never(&all)], 0..4);
    (broad(), permits, forbids)
        .prop_map(|(broad, permits, forbids)| [broad, permits, forbids].concat())
}

fn text(policies: &[String]) -> String {
    policies
        .iter()
        .enumerate()
        .map(|(index, policy)| format!("@id(\"p{index}\") {policy}\n"))
        .collect()
}

/// The bundle, compiled; `None` if its random parts are inconsistent (a policy that can never apply).
fn compiled(policies: &[String], world: &World) -> Option<Snapshot> {
    compile(&bundle(&text(policies)), world).ok()
}

fn call(world: &World) -> impl Strategy<Value = Draft> + use<> {
    let world = world.clone();
    let tool = prop::sample::select(vec![
        "look", "note", "fetch", "act", "refund", "remove", "blob", "disabled",
    ]);
    let user =
        prop::sample::select(vec![None, None, Some("ada"), Some("ada"), Some("cleo"), Some("eve")]);
    let modes = (
        prop::sample::select(ApprovalMode::ALL.to_vec()),
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.8),
    );
    let voters = prop::sample::subsequence(vec!["ben", "dan", "cleo", "olga", "ada"], 0..=4);
    let budget = (
        prop::sample::select(vec![0, 1, 5, 5, 50, u32::MAX]),
        prop::sample::select(vec![0, 4, 200, 200, 9_999, u64::MAX]),
    );
    (tool, user, modes, prop::option::of(voters), budget, 0u8..20).prop_map(
        move |(tool, user, (mode, own_mode, attested), voters, (calls_left, cents_left), rare)| {
            let draft = Draft::new(&world, &format!("ops/{tool}"));
            let args = match tool {
                "fetch" => json!({ "url": "u" }),
                "refund" => json!({ "order": "o", "cents": 7 }),
                "remove" => json!({ "name": "n" }),
                _ => json!({}),
            };
            Draft {
                args,
                chain: user.map_or_else(|| agent("bot"), |user| agent_for("bot", user)),
                mode: (!own_mode).then_some(mode),
                attested,
                engine_mode: if rare == 0 { EngineMode::Lockdown } else { EngineMode::Enforce },
                votes: voters
                    .map(|voters| voters.into_iter().map(|voter| vote(voter, &[])).collect()),
                approval_ends: if rare == 1 { NOW } else { draft.approval_ends },
                budget: BudgetView { calls_left, cents_left, ..draft.budget },
                ..draft
            }
        },
    )
}

fn rank(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Permit(_) => 2,
        Verdict::Hold(_) => 1,
        Verdict::Deny(_) => 0,
    }
}

/// The same snapshot with every slice replaced by the whole set.
fn unsliced(snapshot: &Snapshot, policies: &[String]) -> Snapshot {
    let parsed: PolicySet = text(policies).parse().unwrap();
    let named = parsed
        .policies()
        .map(|policy| policy.new_id(policy.annotation("id").unwrap().parse().unwrap()));
    let whole = Arc::new(PolicySet::from_policies(named).unwrap());
    let mut other = snapshot.clone();
    for plan in other.tools.values_mut() {
        *plan = Arc::new(ToolPlan {
            contract_digest: plan.contract_digest,
            input: plan.input.clone(),
            entities: plan.entities.clone(),
            tool: plan.tool.clone(),
            call: plan.call.clone(),
            lower: plan.lower.clone(),
            call_slice: Arc::clone(&whole),
            lower_slice: Arc::clone(&whole),
            contract: Arc::clone(&plan.contract),
            name: plan.name.clone(),
            written: plan.written.clone(),
        });
    }
    other
}

/// Compiling a bundle takes long without optimisation, so few bundles are tried, with many calls each. A longer run:
/// `PROPTEST_CASES=500 cargo test --release -p placet-policy properties`.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: if default.cases == 256 { 12 } else { default.cases },
        max_global_rejects: 20_000,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn adding_a_forbid_never_turns_a_denial_or_a_hold_into_an_allow(
        policies in wild(),
        more in prop_oneof![gate(), careless_gate(), never(&WILD)],
        calls in prop::collection::vec(call(&world()), 24),
    ) {
        let world = world();
        let with = compiled(&[policies.clone(), vec![more]].concat(), &world);
        let without = compiled(&policies, &world);
        prop_assume!(with.is_some() && without.is_some());
        let (with, without) = (with.unwrap(), without.unwrap());
        for call in calls {
            let (after, before) = (call.decide(&with), call.decide(&without));
            prop_assert!(rank(&after) < 2 || rank(&before) == 2, "{}: {} -> {}", call.tool, word(&before), word(&after));
        }
    }

    #[test]
    fn adding_a_forbid_to_an_honest_bundle_never_makes_a_verdict_better(
        policies in honest(),
        more in prop_oneof![gate(), never(&CONDITIONS)],
        calls in prop::collection::vec(call(&world()), 24),
    ) {
        let world = world();
        let with = compiled(&[policies.clone(), vec![more]].concat(), &world);
        let without = compiled(&policies, &world);
        prop_assume!(with.is_some() && without.is_some());
        let (with, without) = (with.unwrap(), without.unwrap());
        for call in calls {
            let (after, before) = (call.decide(&with), call.decide(&without));
            prop_assert!(rank(&after) <= rank(&before), "{}: {} -> {}", call.tool, word(&before), word(&after));
        }
    }

    #[test]
    fn one_more_vote_never_makes_a_verdict_worse(
        policies in honest(),
        calls in prop::collection::vec(call(&world()), 24),
        voter in prop::sample::select(vec!["ben", "dan", "olga", "mia"]),
    ) {
        let snapshot = compiled(&policies, &world());
        prop_assume!(snapshot.is_some());
        let snapshot = snapshot.unwrap();
        for call in calls {
            let mut more = call.clone();
            more.votes.get_or_insert_default().push(vote(voter, &["approvers"]));
            // Without an approval there is none to expire either.
            let call = Draft { votes: Some(call.votes.clone().unwrap_or_default()), ..call };
            let (before, after) = (call.decide(&snapshot), more.decide(&snapshot));
            prop_assert!(rank(&after) >= rank(&before), "{}: {} -> {}", call.tool, word(&before), word(&after));
        }
    }

    #[test]
    fn slicing_changes_no_decision(policies in wild(), calls in prop::collection::vec(call(&world()), 24)) {
        let snapshot = compiled(&policies, &world());
        prop_assume!(snapshot.is_some());
        let snapshot = snapshot.unwrap();
        let whole = unsliced(&snapshot, &policies);
        for call in calls {
            let (sliced, whole) = (call.decide(&snapshot), call.decide(&whole));
            prop_assert_eq!(sliced.decision(), whole.decision());
            prop_assert_eq!(rank(&sliced), rank(&whole));
        }
    }

    #[test]
    fn what_is_let_through_met_no_error_and_is_in_the_surface(
        policies in wild(),
        calls in prop::collection::vec(call(&world()), 24),
    ) {
        let snapshot = compiled(&policies, &world());
        prop_assume!(snapshot.is_some());
        let snapshot = snapshot.unwrap();
        for call in calls {
            let verdict = call.decide(&snapshot);
            let errors = &verdict.decision().errors;
            prop_assert!(errors.is_empty() || word(&verdict) == "error", "{errors:?}");
            if rank(&verdict) > 0 {
                let surface = snapshot.surface(&call.chain, &[].into());
                prop_assert!(surface.contains(&call.tool), "{} is {} but hidden", call.tool, word(&verdict));
            }
        }
    }
}
