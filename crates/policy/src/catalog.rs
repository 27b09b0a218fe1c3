//! The catalog: the contracts of this environment, and what a tool's name means for a tenant.
//!
//! Owns resolution (TM-05) and the check of arguments against a tool's schema. Does not filter by policy: the surface does.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

use placet_types::{
    contract::{Capability, Contract},
    error::{ErrorCode, Problem, Refusal},
    ids::{AdapterName, CapabilityId, CapabilityName, TenantId},
};

/// An operation of a pinned contract.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its contract.
    pub contract: Arc<Contract>,
    /// What the contract says of the operation.
    pub capability: Arc<Capability>,
}

/// The contracts of one environment.
#[derive(Debug, Default)]
pub struct Catalog {
    adapters: BTreeMap<AdapterName, Listed>,
    /// What aliases mean; `None` where several capabilities share one.
    aliases: BTreeMap<String, Option<CapabilityId>>,
}

#[derive(Debug)]
struct Listed {
    contract: Arc<Contract>,
    capabilities: BTreeMap<CapabilityName, Arc<Capability>>,
}

impl Catalog {
    /// A catalog of `contracts`; the last of two with the same adapter name counts.
    pub fn new(contracts: impl IntoIterator<Item = Arc<Contract>>) -> Self {
        let adapters: BTreeMap<_, _> = contracts
            .into_iter()
            .map(|contract| {
                let capabilities = contract
                    .capabilities
                    .iter()
                    .map(|(name, capability)| (name.clone(), Arc::new(capability.clone())))
                    .collect();
                (contract.adapter.clone(), Listed { contract, capabilities })
            })
            .collect();
        let aliases = aliases_of(&adapters);
        Self { adapters, aliases }
    }

    /// The capability that may be called by this alias (TM-13); `None` where it is ambiguous.
    pub fn aliased(&self, name: &str) -> Option<&CapabilityId> {
        self.aliases.get(name)?.as_ref()
    }

    /// Every contract.
    pub fn contracts(&self) -> impl Iterator<Item = &Arc<Contract>> {
        self.adapters.values().map(|listed| &listed.contract)
    }

    /// What `id` is for `tenant`; absent when it may not have it at all.
    pub fn resolve(&self, tenant: &TenantId, id: &CapabilityId) -> Option<Target> {
        let listed = self.adapters.get(id.adapter())?;
        let capability = listed.capabilities.get(id.capability())?;
        (listed.contract.admits(tenant) && capability.is_callable()).then(|| Target {
            contract: Arc::clone(&listed.contract),
            capability: Arc::clone(capability),
        })
    }
}

fn aliases_of(adapters: &BTreeMap<AdapterName, Listed>) -> BTreeMap<String, Option<CapabilityId>> {
    let mut aliases = BTreeMap::new();
    for capability in adapters.values().flat_map(|listed| listed.capabilities.values()) {
        let Some(alias) = &capability.alias else { continue };
        let only = (!aliases.contains_key(&alias.name)).then(|| capability.id.clone());
        aliases.insert(alias.name.clone(), only);
    }
    aliases
}

impl Target {
    /// The effective arguments: validated, with their defaults, and past the checks of the contract.
    ///
    /// # Errors
    /// [`ErrorCode::ValidationError`] naming each place that does not fit, or with the message of each check that fails;
    /// [`ErrorCode::ToolNotFound`] for a tool whose schema is not usable.
    pub fn validate(&self, args: &Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
        let schema = self.capability.arguments.as_ref().map_err(|why| {
            Refusal::new(ErrorCode::ToolNotFound, "there is no such tool")
                .with_detail(format_args!("quarantined: {why}"))
        })?;
        match schema.validate(&Value::Object(args.clone())) {
            Ok(Value::Object(effective)) => self.checked(effective),
            Ok(_) => {
                Err(Refusal::new(ErrorCode::ValidationError, "the arguments must be an object"))
            }
            Err(problems) => Err(Refusal::new(ErrorCode::ValidationError, summary(&problems))
                .with_problems(problems.into_iter().map(located).collect())),
        }
    }
}

impl Target {
    fn checked(&self, args: Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
        let feedback = self.capability.feedback(&args);
        if feedback.is_empty() {
            return Ok(args);
        }
        let message = format!("the call is not as this tool wants it: {}", feedback.join(" "));
        let problem =
            |text: &str| Problem { pointer: "/args".to_owned(), problem: text.to_owned() };
        let problems = feedback.into_iter().map(problem).collect();
        Err(Refusal::new(ErrorCode::ValidationError, message).with_problems(problems))
    }
}

fn summary(problems: &[Problem]) -> String {
    match problems {
        [only] => format!("the arguments do not fit the tool: {}", only.problem),
        several => format!("the arguments do not fit the tool in {} places", several.len()),
    }
}

fn located(problem: Problem) -> Problem {
    Problem { pointer: format!("/args{}", problem.pointer), ..problem }
}
