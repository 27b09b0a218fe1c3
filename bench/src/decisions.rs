//! The cost of a decision, with few policies and with many that concern other tools.
//!
//! Owns the generated policies and the one call that is decided. It measures `placet-policy` alone: no engine, no ledger.
//! Every generated policy is a `forbid` whose condition has to be evaluated and does not hold.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use placet_policy::{
    bundle::{BundleSource, PolicyFile},
    facts::{BudgetView, Facts},
    snapshot::Snapshot,
    verdict::Verdict,
};
use placet_types::{
    binding::RequestBinding,
    clock::Timestamp,
    contract::{Capability, Contract},
    directory::Directory,
    ids::{AdapterName, DecisionId, IdempotencyKey, RecordId},
    json::canonical_digest,
    mode::{ApprovalMode, EngineMode},
    principal::{Principal, PrincipalChain, PrincipalKind},
    proof::CallerProof,
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    contract,
    load::Plan,
    peer::{self, LOOK, NOTE},
    stats::{Numbers, Sample, milliseconds},
};

/// Generated policies that concern the called tool, in each bundle.
const CONCERN_THE_TOOL: usize = 20;
/// The number of all policies in the large bundle.
const LARGE: usize = 2_000;
/// Generated policies of one file, well under the limit on its size.
const IN_ONE_FILE: usize = 500;
const NOW: Timestamp = Timestamp::from_ms(1_767_225_600_000);

macro_rules! shipped {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!(concat!("../../policies/", $name)))),*] };
}

const SHIPPED: [(&str, &str); 7] = shipped![
    "10-permits-agents.cedar",
    "11-permits-users.cedar",
    "12-permits-machines.cedar",
    "20-gates.cedar",
    "30-guards.cedar",
    "40-review.cedar",
    "50-directives.cedar",
];

/// The cost of a decision with one bundle.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DecisionCost {
    /// Policies in the bundle, including the shipped ones.
    pub(crate) policies: usize,
    /// Compiling it, once, in milliseconds.
    pub(crate) compile_ms: f64,
    /// The median, in microseconds.
    pub(crate) p50_us: f64,
    /// 99 of 100 decisions take no longer, in microseconds.
    pub(crate) p99_us: f64,
}

/// Measures decisions with the shipped policies and those that concern the tool, and with many others.
pub(crate) async fn measure(plan: &Plan) -> Result<Vec<DecisionCost>> {
    let length = plan.decisions;
    let small = shipped_count().saturating_add(CONCERN_THE_TOOL);
    let measuring = move || [small, LARGE].into_iter().map(|count| cost(count, length)).collect();
    tokio::task::spawn_blocking(measuring).await.context("the decisions panicked")?
}

fn cost(policies: usize, length: Duration) -> Result<DecisionCost> {
    let subject = Subject::new()?;
    let began = Instant::now();
    let snapshot = subject.compile(policies)?;
    let compile_ms = milliseconds(began.elapsed());
    let numbers = subject.time(&snapshot, length)?;
    Ok(DecisionCost {
        policies: snapshot.policies().count(),
        compile_ms,
        p50_us: numbers.p50_ms * 1_000.0,
        p99_us: numbers.p99_ms * 1_000.0,
    })
}

/// One call of `note` by an agent, allowed.
#[derive(Debug)]
struct Subject {
    contract: Arc<Contract>,
    directory: Directory,
    chain: PrincipalChain,
    args: Value,
}

impl Subject {
    fn new() -> Result<Self> {
        let unused = "http://127.0.0.1:9/mcp".parse()?;
        let file = contract::mcp(&unused, contract::WEB, "local_write")?;
        let directory = json!({"tenants": {contract::TENANT: {
            "groups": {"approvers": {}, "operators": {}},
            "users": {"ana": {}},
            "agents": {"dev-agent": {"owner": "ana"}},
        }}});
        let actor = Principal {
            kind: PrincipalKind::Agent,
            id: "dev-agent".parse()?,
            tenant_id: contract::TENANT.parse()?,
            display: None,
        };
        Ok(Self {
            contract: Arc::new(Contract::from_file(file)?),
            directory: serde_json::from_value(directory)?,
            chain: PrincipalChain { actor, on_behalf_of: None, via: Vec::new() },
            args: Value::Object(peer::arguments(NOTE)),
        })
    }

    fn compile(&self, policies: usize) -> Result<Snapshot> {
        let source = bundle(policies, &self.contract.adapter);
        let contracts = [Arc::clone(&self.contract)];
        Snapshot::compile(&source, &contracts, &self.directory, &self.contract.environment, 1)
            .map_err(|problems| {
                anyhow!(
                    "the bundle does not compile: {}",
                    problems.first().map(ToString::to_string).unwrap_or_default()
                )
            })
    }

    fn capability(&self) -> Result<&Capability> {
        self.contract.capabilities.get(&NOTE.parse()?).context("the contract has no such tool")
    }

    fn time(&self, snapshot: &Snapshot, length: Duration) -> Result<Numbers> {
        let capability = self.capability()?;
        let binding = RequestBinding {
            principal_chain: self.chain.clone(),
            capability: capability.id.clone(),
            contract_digest: self.contract.digest,
            effective_args_digest: canonical_digest(&self.args),
            target: self.contract.target(),
            credential: self.contract.credential_plan(&capability.id),
        };
        let groups = BTreeSet::new();
        let facts = Facts {
            chain: &self.chain,
            user_groups: &groups,
            contract: &self.contract,
            capability,
            args: &self.args,
            binding: &binding,
            mode_requested: Some(ApprovalMode::LocalWrite),
            safety_mode: ApprovalMode::LocalWrite,
            engine_mode: EngineMode::Enforce,
            budget: BudgetView {
                calls_left: 100,
                cents_left: 0,
                window_ends: NOW.plus_ms(3_600_000),
            },
            taint: &BTreeSet::new(),
            history: &placet_types::run_history::RunHistory::default(),
            evidence: &[],
            now: NOW,
            approval: None,
            frozen: false,
            break_glass: None,
            directives: placet_types::directive::DirectiveBasis::default(),
            proof: &CallerProof::of_development(&self.chain),
            key: Some(RecordId::derive(
                &self.chain.key_scope(&capability.id),
                &IdempotencyKey::new("bench")?,
            )),
        };
        decide(snapshot, &facts, length)
    }
}

fn decide(snapshot: &Snapshot, facts: &Facts<'_>, length: Duration) -> Result<Numbers> {
    let id = DecisionId::new("dec_bench")?;
    let began = Instant::now();
    let mut latencies = Vec::new();
    while began.elapsed() < length {
        let sent = Instant::now();
        let verdict = snapshot.decide(facts, id.clone());
        latencies.push(sent.elapsed());
        if !matches!(verdict, Verdict::Permit(_)) {
            bail!("the call is not permitted: {verdict:?}");
        }
    }
    Sample { latencies, elapsed: began.elapsed() }.counts().context("nothing was decided")
}

/// How many policies are shipped.
pub(crate) fn shipped_count() -> usize {
    let lines = SHIPPED.iter().flat_map(|(_, text)| text.lines());
    lines.filter(|line| line.starts_with("@id(")).count()
}

/// The shipped policies, those that concern the called tool, and enough about another one to fill up the number.
fn bundle(policies: usize, adapter: &AdapterName) -> BundleSource {
    let shipped =
        SHIPPED.map(|(name, text)| PolicyFile { name: name.to_owned(), text: text.to_owned() });
    let numbers: Vec<usize> = (0..policies.saturating_sub(shipped_count())).collect();
    let policy = |number: usize| {
        let tool = if number < CONCERN_THE_TOOL { NOTE } else { LOOK };
        generated(number, &format!("{adapter}/{tool}"))
    };
    let generated = numbers.chunks(IN_ONE_FILE).enumerate().map(|(file, numbers)| PolicyFile {
        name: format!("90-generated-{file}.cedar"),
        text: numbers.iter().map(|number| policy(*number)).collect(),
    });
    BundleSource::new(shipped.into_iter().chain(generated))
}

/// A `forbid` that has to be evaluated to see that it does not hold.
fn generated(number: usize, tool: &str) -> String {
    format!(
        "@id(\"generated-{number}\")\n@approval(\"never\")\n@reason(\"Tenant {number} may spend so much and no more.\")\n\
         forbid (principal, action == Placet::Action::\"{tool}\", resource is Placet::Tool)\n\
         when {{ context.req.budget.calls_left < -{number} && context.req.tenant == Placet::Tenant::\"local\" }};\n"
    )
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::{SHIPPED, Subject, cost, shipped_count};

    #[test]
    fn a_bundle_has_exactly_as_many_policies_as_requested() {
        let subject = Subject::new().unwrap();
        for count in [shipped_count(), 700] {
            assert_eq!(subject.compile(count).unwrap().policies().count(), count);
        }
    }

    #[test]
    fn every_shipped_policy_is_in_the_bundle() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies");
        let names = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let there: BTreeSet<String> = names.filter(|name| name.ends_with(".cedar")).collect();
        assert_eq!(there, SHIPPED.iter().map(|(name, _)| (*name).to_owned()).collect());
    }

    #[test]
    fn the_call_is_permitted_and_timed() {
        let cost = cost(100, Duration::from_millis(5)).unwrap();
        assert_eq!(cost.policies, 100);
        assert!(cost.p50_us > 0.0 && cost.p99_us >= cost.p50_us, "{cost:?}");
    }
}
