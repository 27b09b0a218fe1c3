//! What a decision costs as the bundle grows.
//!
//! Owns the generated policies and the one call that is decided. It measures `placet-policy` alone: no engine, no ledger.
//! Every generated policy is a `forbid` whose condition has to be evaluated and does not hold; half of the numbers are for policies
//! that all concern the called tool, the other half for policies that concern another one and are sliced away.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

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
    ids::{DecisionId, IdempotencyKey, RecordId},
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
    stats::{Sample, milliseconds},
};

/// How many policies a bundle has in all.
const COUNTS: [usize; 3] = [50, 200, 2_000];
/// Generated policies of one file, well under the limit on its size.
const IN_ONE_FILE: usize = 500;
const TENANT: &str = "local";
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
    "50-desk.cedar",
];

/// The cost of a decision with one bundle.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DecisionCost {
    /// Policies in the bundle, the shipped ones among them.
    pub(crate) policies: usize,
    /// Compiling it, once.
    pub(crate) compile_ms: f64,
    /// One decision when all generated policies concern the called tool.
    pub(crate) concerned: DecisionTime,
    /// One decision when they concern another tool.
    pub(crate) elsewhere: DecisionTime,
}

/// How long a decision takes.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct DecisionTime {
    /// The median, in microseconds.
    pub(crate) p50_us: f64,
    /// 99 of 100 keep below, in microseconds.
    pub(crate) p99_us: f64,
}

/// Measures decisions with every number of policies.
pub(crate) async fn measure(plan: &Plan) -> Result<Vec<DecisionCost>> {
    let length = plan.decisions;
    let measuring = move || COUNTS.into_iter().map(|count| cost(count, length)).collect();
    tokio::task::spawn_blocking(measuring).await.context("the decisions broke")?
}

fn cost(policies: usize, length: Duration) -> Result<DecisionCost> {
    let subject = Subject::new()?;
    let began = Instant::now();
    let concerned = subject.compile(policies, NOTE)?;
    let compile_ms = milliseconds(began.elapsed());
    let elsewhere = subject.compile(policies, LOOK)?;
    Ok(DecisionCost {
        policies: concerned.policies().count(),
        compile_ms,
        concerned: subject.time(&concerned, length)?,
        elsewhere: subject.time(&elsewhere, length)?,
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
        let file = contract::both(Path::new("placet-bench"), &unused)?
            .into_iter()
            .next()
            .context("there is no contract")?;
        let directory = json!({"tenants": {TENANT: {
            "groups": {"approvers": {}, "operators": {}},
            "users": {"ana": {}},
            "agents": {"dev-agent": {"owner": "ana"}},
        }}});
        let actor = Principal {
            kind: PrincipalKind::Agent,
            id: "dev-agent".parse()?,
            tenant_id: TENANT.parse()?,
            display: None,
        };
        Ok(Self {
            contract: Arc::new(Contract::from_file(file)?),
            directory: serde_json::from_value(directory)?,
            chain: PrincipalChain { actor, on_behalf_of: None, via: Vec::new() },
            args: Value::Object(peer::arguments(NOTE)),
        })
    }

    fn compile(&self, policies: usize, tool: &str) -> Result<Snapshot> {
        let source = bundle(policies, &format!("{}/{tool}", self.contract.adapter));
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

    fn time(&self, snapshot: &Snapshot, length: Duration) -> Result<DecisionTime> {
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
            mode_requested: ApprovalMode::LocalWrite,
            safety_mode: ApprovalMode::LocalWrite,
            engine_mode: EngineMode::Enforce,
            budget: BudgetView {
                calls_left: 100,
                cents_left: 0,
                window_ends: NOW.plus_ms(3_600_000),
            },
            taint: &BTreeSet::new(),
            evidence: &[],
            now: NOW,
            approval: None,
            frozen: false,
            break_glass: None,
            desk: placet_types::desk::DeskBasis::default(),
            proof: &CallerProof::of_development(&self.chain),
            key: Some(RecordId::derive(
                &self.chain.key_scope(&capability.id),
                &IdempotencyKey::new("bench")?,
            )),
        };
        decide(snapshot, &facts, length)
    }
}

fn decide(snapshot: &Snapshot, facts: &Facts<'_>, length: Duration) -> Result<DecisionTime> {
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
    let counts =
        Sample { latencies, elapsed: began.elapsed() }.counts().context("nothing was decided")?;
    Ok(DecisionTime { p50_us: counts.p50_ms * 1_000.0, p99_us: counts.p99_ms * 1_000.0 })
}

/// How many policies are shipped.
pub(crate) fn shipped_count() -> usize {
    let lines = SHIPPED.iter().flat_map(|(_, text)| text.lines());
    lines.filter(|line| line.starts_with("@id(")).count()
}

/// The shipped policies and as many more as are missing, all of them about one tool.
fn bundle(policies: usize, tool: &str) -> BundleSource {
    let shipped =
        SHIPPED.map(|(name, text)| PolicyFile { name: name.to_owned(), text: text.to_owned() });
    let numbers: Vec<usize> = (0..policies.saturating_sub(shipped_count())).collect();
    let generated = numbers.chunks(IN_ONE_FILE).enumerate().map(|(file, numbers)| PolicyFile {
        name: format!("90-generated-{file}.cedar"),
        text: numbers.iter().map(|number| generated(*number, tool)).collect(),
    });
    BundleSource::new(shipped.into_iter().chain(generated))
}

/// A `forbid` that has to be evaluated to see that it does not hold.
fn generated(number: usize, tool: &str) -> String {
    format!(
        "@id(\"generated-{number}\")\n@approval(\"never\")\n@reason(\"Tenant {number} may spend so much and no more.\")\n\
         forbid (principal, action == Placet::Action::\"{tool}\", resource is Placet::Tool)\n\
         when {{ context.req.tenant == Placet::Tenant::\"t{number}\" && context.req.budget.calls_left < {number} }};\n"
    )
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::{LOOK, NOTE, SHIPPED, Subject, bundle, cost};

    #[test]
    fn a_bundle_has_exactly_as_many_policies_as_asked() {
        let subject = Subject::new().unwrap();
        for count in [50, 700] {
            assert_eq!(subject.compile(count, NOTE).unwrap().policies().count(), count);
        }
    }

    #[test]
    fn the_call_is_permitted_whatever_the_generated_policies_are_about() {
        let subject = Subject::new().unwrap();
        for tool in [NOTE, LOOK] {
            let snapshot = subject.compile(30, tool).unwrap();
            let time = subject.time(&snapshot, Duration::from_millis(5)).unwrap();
            assert!(time.p50_us > 0.0 && time.p99_us >= time.p50_us, "{time:?}");
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
        assert_ne!(bundle(50, "pipe/note").digest(), bundle(50, "pipe/look").digest());
    }

    #[test]
    fn a_cost_names_the_bundle_it_is_of() {
        assert_eq!(cost(60, Duration::from_millis(2)).unwrap().policies, 60);
    }
}
