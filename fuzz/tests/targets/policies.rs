//! The request that policies are asked about, built from a call's arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use placet_policy::bundle::{BundleSource, PolicyFile};
use placet_policy::facts::{BudgetView, Facts};
use placet_policy::snapshot::Snapshot;
use placet_policy::verdict::Verdict;
use placet_types::binding::RequestBinding;
use placet_types::clock::Timestamp;
use placet_types::contract::Contract;
use placet_types::contract::credential::CredentialPlan;
use placet_types::digest::Digest;
use placet_types::directory::{AgentEntry, Directory, TenantDirectory, UserEntry};
use placet_types::ids::{
    DecisionId, EnvironmentName, IdempotencyKey, PrincipalId, RecordId, TenantId,
};
use placet_types::json::{JsonLimits, canonical_digest, parse_strict};
use placet_types::mode::{ApprovalMode, EngineMode};
use placet_types::principal::{Principal, PrincipalChain, PrincipalKind};
use placet_types::proof::CallerProof;
use serde_json::{Value, json};

use crate::fuzz;

const NOW: Timestamp = Timestamp::from_ms(1_000_000);
const POLICY: &str = "@id(\"small\")\npermit (principal, action == Placet::Action::\"notes/erase\", resource)\nwhen { context.input.n < 10 };\n";
const ARGUMENTS: [&str; 3] = [
    r#"{"n":3,"note":"x","list":["a","b"],"deep":{"flag":true,"ratio":5}}"#,
    r#"{"n":9007199254740991,"note":"\u0000é\ud83d\ude00","list":[],"deep":{}}"#,
    r#"{"n":-1}"#,
];

fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

fn person(name: &str) -> PrincipalId {
    PrincipalId::new(name).unwrap()
}

fn contract() -> Contract {
    let schema = json!({
        "type": "object", "required": ["n"], "additionalProperties": false,
        "properties": {
            "n": { "type": "integer" }, "note": { "type": "string" },
            "list": { "type": "array", "items": { "type": "string" } },
            "deep": { "type": "object", "properties": { "flag": { "type": "boolean" }, "ratio": { "type": "integer" } }, "additionalProperties": false },
        },
    });
    let file = json!({
        "contract_version": "placet.contract.v1", "adapter": "notes", "environment": "dev", "tenants": [tenant()],
        "transport": { "type": "internal", "builtin": "files", "root": "notes" }, "protocol_version": "files/1",
        "capabilities": { "erase": {
            "input_schema": schema, "mode": "local_write", "effect": "write", "dedup": { "class": "opaque" }, "pin": Digest::of(b"reviewed"),
        } },
    });
    Contract::from_file(serde_json::from_value(file).unwrap()).unwrap()
}

fn directory() -> Directory {
    let agent =
        AgentEntry { owner: person("ann"), classes: BTreeSet::new(), active: true, display: None };
    let tenant_directory = TenantDirectory {
        users: BTreeMap::from([(
            person("ann"),
            UserEntry { active: true, ..UserEntry::default() },
        )]),
        agents: BTreeMap::from([(person("scribe"), agent)]),
        ..TenantDirectory::default()
    };
    Directory { tenants: BTreeMap::from([(tenant(), tenant_directory)]) }
}

/// Whether the bundle permits these arguments.
fn permits(snapshot: &Snapshot, contract: &Contract, args: &Value) -> bool {
    let actor = Principal {
        kind: PrincipalKind::Agent,
        id: person("scribe"),
        tenant_id: tenant(),
        display: None,
    };
    let chain = PrincipalChain { actor, on_behalf_of: None, via: Vec::new() };
    let capability = contract.capabilities.values().next().unwrap();
    let binding = RequestBinding {
        principal_chain: chain.clone(),
        capability: capability.id.clone(),
        contract_digest: contract.digest,
        effective_args_digest: canonical_digest(args),
        target: contract.target(),
        credential: CredentialPlan::default(),
    };
    let facts = Facts {
        chain: &chain,
        user_groups: &BTreeSet::new(),
        contract,
        capability,
        args,
        binding: &binding,
        taint: &BTreeSet::new(),
        history: &placet_types::run_history::RunHistory::default(),
        evidence: &[],
        mode_requested: Some(ApprovalMode::LocalWrite),
        safety_mode: ApprovalMode::Destructive,
        engine_mode: EngineMode::Enforce,
        budget: BudgetView { calls_left: 1, cents_left: 0, window_ends: NOW.plus_ms(1_000) },
        now: NOW,
        approval: None,
        frozen: false,
        break_glass: None,
        directives: placet_types::directive::DirectiveBasis::default(),
        proof: &CallerProof::of_development(&chain),
        key: Some(RecordId::derive(
            &chain.key_scope(&capability.id),
            &IdempotencyKey::new("key").unwrap(),
        )),
    };
    matches!(snapshot.decide(&facts, DecisionId::new("dec_1").unwrap()), Verdict::Permit(_))
}

#[test]
fn arguments_of_any_form_are_permitted_only_where_the_policy_says_so() {
    let contract = Arc::new(contract());
    let bundle =
        BundleSource::new([PolicyFile { name: "all.cedar".to_owned(), text: POLICY.to_owned() }]);
    let environment = EnvironmentName::new("dev").unwrap();
    let snapshot =
        Snapshot::compile(&bundle, &[Arc::clone(&contract)], &directory(), &environment, 1)
            .unwrap();
    let small: Value = serde_json::from_str(ARGUMENTS[0]).unwrap();
    assert!(permits(&snapshot, &contract, &small), "the policy permits nothing");
    let snapshot = std::panic::AssertUnwindSafe(snapshot);
    let contract = std::panic::AssertUnwindSafe(contract);
    fuzz!(1_500, move |input| {
        let Ok(args) = parse_strict(&input.apply(&ARGUMENTS), &JsonLimits::default()) else {
            return;
        };
        let is_small = args.get("n").and_then(Value::as_i64).is_some_and(|n| n < 10);
        let permitted = permits(&snapshot, &contract, &args);
        assert!(is_small || !permitted, "permitted: {args}");
    });
}
