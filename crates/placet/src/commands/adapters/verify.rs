//! `placet adapters verify`: does a live adapter keep what its contract says about repeating a call?
//!
//! Owns the choice of capabilities, the consent, and the report. The checks are `placet_adapter::conformance`. Invariant: nothing is called
//! before somebody said yes to real effects, and nothing whose live definition is not the one that was reviewed.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args as ClapArgs;
use placet_adapter::{
    adapter::{Adapter, Connector as _},
    conformance::{self, Report, Standing},
    outcome::AdapterError,
};
use placet_adapter_files::files::{FilesConnector, FilesSettings};
use placet_adapter_mcp::connector::{McpConnector, McpSettings, SessionLimits};
use placet_types::{
    contract::{
        Capability, Contract, Dedup, LiveTool,
        file::{ContractFile, TransportFile},
        repeating::Conformance,
    },
    ids::{AdapterName, CapabilityName},
};
use serde_json::{Map, Value, json};

use super::{pins, rehearsal::Rehearsal};
use crate::{
    compose::{ConfiguredSecrets, data_folder},
    config::load::{Config, ConfigArgs},
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output, svids, yaml,
};

/// Call a live adapter, for real, to see whether it keeps what its contract promises about repeated calls.
#[derive(Debug, ClapArgs)]
pub(crate) struct VerifyArgs {
    /// An adapter of the configuration, or a contract file.
    contract: String,
    /// Only this capability [default: every one that has `conformance` in its contract].
    #[arg(long)]
    capability: Option<CapabilityName>,
    /// A JSON or YAML file with arguments to use instead of those in the contract.
    #[arg(long, value_name = "FILE", requires = "capability")]
    args: Option<PathBuf>,
    /// How long one call may take, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=120_000))]
    timeout_ms: u64,
    /// Agree to real effects on the live endpoint.
    #[arg(long)]
    yes: bool,
    /// Print JSON for programs.
    #[arg(long)]
    json: bool,
    /// Which configuration.
    #[command(flatten)]
    config: ConfigArgs,
}

/// A capability and what it is called with.
#[derive(Debug)]
struct Task {
    capability: Capability,
    /// Absent: the contract has no example arguments.
    conformance: Option<Conformance>,
}

impl Task {
    fn calls(&self) -> bool {
        self.capability.dedup != Dedup::Opaque && self.conformance.is_some()
    }
}

/// Checks what was asked for.
pub(crate) async fn run(args: &VerifyArgs, environment: &Environment) -> Outcome {
    let config = Config::load(&args.config, environment)?;
    let contract = contract_of(&args.contract, &config)?;
    let tasks = tasks(&contract, args)?;
    let called: Vec<String> = tasks
        .iter()
        .filter(|task| task.calls())
        .map(|task| task.capability.id.to_string())
        .collect();
    if !called.is_empty() && !args.yes {
        return Err(Failure::usage(format!(
            "this calls {} on the live endpoint, several times and with real effects",
            called.join(", ")
        ))
        .because(format!("the endpoint is `{}`", contract.target()))
        .try_this("--yes, if its example arguments do no harm there"));
    }
    let reports = if called.is_empty() {
        tasks.iter().map(|task| unasked(&task.capability)).collect()
    } else {
        let _svids = svids::open(&config).await?;
        check(&contract, tasks, &config, args.timeout_ms).await?
    };
    let conform = reports.iter().all(Report::conforms);
    if args.json {
        output::json(&document(&contract, &reports));
    } else {
        tell(&reports);
    }
    Ok(if conform { Exit::Ok } else { Exit::Findings })
}

/// The contract of an adapter, or in a file.
fn contract_of(named: &str, config: &Config) -> Result<Arc<Contract>, Failure> {
    let path = Path::new(named);
    let is_file = path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json")
        || named.contains('/');
    if is_file {
        let what = "the contract cannot be used";
        let file: ContractFile = yaml::read(path).attempted(what)?;
        return Ok(Arc::new(Contract::from_file(file).attempted(what)?));
    }
    let name = AdapterName::new(named).map_err(|error| {
        Failure::usage(format!("`{named}` is no adapter and no contract file")).because(error)
    })?;
    let entries = pins::chosen(config, Some(&name))?;
    let entry =
        entries.first().ok_or_else(|| Failure::usage("there is no contract of that name"))?;
    Ok(Arc::clone(&entry.contract))
}

fn tasks(contract: &Contract, args: &VerifyArgs) -> Result<Vec<Task>, Failure> {
    let Some(name) = &args.capability else {
        let all = contract.capabilities.values();
        return Ok(all
            .map(|capability| Task {
                conformance: filled(capability, capability.conformance.clone()),
                capability: capability.clone(),
            })
            .collect());
    };
    let capability = contract.capabilities.get(name).ok_or_else(|| {
        Failure::usage(format!("the contract of `{}` has no capability `{name}`", contract.adapter))
    })?;
    let mut conformance = capability.conformance.clone();
    if let Some(path) = &args.args {
        let given: Map<String, Value> =
            yaml::read(path).attempted("the arguments cannot be used")?;
        let schema = capability.arguments.as_ref().map_err(|why| {
            Failure::new(format!("the schema of `{name}` cannot be enforced")).because(why)
        })?;
        schema.validate(&Value::Object(given.clone())).map_err(|problems| {
            problems.iter().fold(
                Failure::usage(format!("the arguments do not fit the schema of `{name}`")),
                |failure, problem| failure.because(problem),
            )
        })?;
        let observe = conformance.and_then(|conformance| conformance.observe);
        conformance = Some(Conformance { args: given, observe });
    }
    let conformance = filled(capability, conformance);
    if conformance.is_none() && capability.dedup != Dedup::Opaque {
        return Err(Failure::usage(format!("there are no example arguments for `{name}`"))
            .try_this("`conformance: { args: … }` in the contract, or --args FILE"));
    }
    Ok(vec![Task { capability: capability.clone(), conformance }])
}

/// With the schema's defaults, as every call has them.
fn filled(capability: &Capability, conformance: Option<Conformance>) -> Option<Conformance> {
    let mut conformance = conformance?;
    let schema = capability.arguments.as_ref().ok()?;
    if let Ok(Value::Object(args)) = schema.validate(&Value::Object(conformance.args.clone())) {
        conformance.args = args;
    }
    Some(conformance)
}

async fn check(
    contract: &Arc<Contract>,
    tasks: Vec<Task>,
    config: &Config,
    timeout_ms: u64,
) -> Result<Vec<Report>, Failure> {
    let adapter = connect(contract, config).await?;
    let reports = checked(adapter.as_ref(), contract, tasks, config, timeout_ms).await;
    adapter.close().await;
    reports
}

async fn checked(
    adapter: &dyn Adapter,
    contract: &Arc<Contract>,
    tasks: Vec<Task>,
    config: &Config,
    timeout_ms: u64,
) -> Result<Vec<Report>, Failure> {
    let what = format!("the adapter `{}` cannot be asked", contract.adapter);
    let live = adapter.discover().await.map_err(AdapterError::shortened).attempted(what)?;
    let live: BTreeMap<String, LiveTool> =
        live.into_iter().map(|tool| (tool.name.clone(), tool)).collect();
    let secrets = ConfiguredSecrets::new(&config.secrets);
    let mut bench = Rehearsal::open(Arc::clone(contract), secrets, timeout_ms).await?;
    let mut reports = Vec::with_capacity(tasks.len());
    for Task { capability, conformance } in tasks {
        let Some(conformance) = conformance else {
            reports.push(unasked(&capability));
            continue;
        };
        let observer = conformance.observe.as_ref().map(|observe| &observe.tool);
        let needed = [Some(capability.id.capability()), observer];
        if let Some(why) =
            needed.into_iter().flatten().find_map(|name| unfit(contract, name, &live))
        {
            reports.push(one(&capability, "it is what was reviewed", Standing::Failed, why));
            continue;
        }
        let verified = conformance::verify(
            adapter,
            contract,
            &capability,
            &conformance,
            &mut bench,
            timeout_ms,
        );
        reports.push(verified.await);
    }
    bench.close().await;
    Ok(reports)
}

async fn connect(contract: &Arc<Contract>, config: &Config) -> Result<Box<dyn Adapter>, Failure> {
    let what = format!("the adapter `{}` cannot be connected", contract.adapter);
    let data_dir = data_folder(config)?;
    let connected = match &contract.transport {
        TransportFile::Internal { .. } => {
            let connector = FilesConnector::new(data_dir, FilesSettings::default());
            connector.connect(Arc::clone(contract)).await
        }
        TransportFile::McpStdio { .. } | TransportFile::McpHttp { .. } => {
            let connector = McpConnector::new(McpSettings {
                data_dir,
                client_name: "placet".to_owned(),
                client_version: env!("CARGO_PKG_VERSION").to_owned(),
                secrets: Arc::new(ConfiguredSecrets::new(&config.secrets)),
                trust: config.trust.clone(),
                own_listeners: Vec::new(),
                sessions: SessionLimits::default(),
            });
            connector.connect(Arc::clone(contract)).await
        }
    };
    connected.map_err(AdapterError::shortened).attempted(what)
}

/// Why a capability is not called.
fn unfit(
    contract: &Contract,
    name: &CapabilityName,
    live: &BTreeMap<String, LiveTool>,
) -> Option<String> {
    let capability = contract.capabilities.get(name)?;
    if !capability.is_callable() {
        return Some(format!("`{name}` is {}", super::state_of(capability)));
    }
    let digest = live.get(capability.tool.as_str()).map(|tool| tool.digest(&contract.adapter));
    (digest != capability.pin).then(|| {
        format!("the live `{name}` is not the pinned one: `placet adapters diff` compares")
    })
}

/// The report of a capability that is not called.
fn unasked(capability: &Capability) -> Report {
    let why = if capability.dedup == Dedup::Opaque {
        "an opaque tool promises nothing: it is never sent twice by itself; it was not called"
    } else {
        "there are no example arguments: `conformance.args` in the contract"
    };
    one(capability, "it keeps its promise", Standing::NotChecked, why.to_owned())
}

fn one(capability: &Capability, name: &'static str, standing: Standing, detail: String) -> Report {
    Report {
        capability: capability.id.clone(),
        class: capability.dedup.name(),
        calls: 0,
        checks: vec![conformance::Check { name, standing, detail }],
    }
}

fn tell(reports: &[Report]) {
    for report in reports {
        output::line(format!(
            "{} ({}), called {} times",
            report.capability, report.class, report.calls
        ));
        for check in &report.checks {
            let standing = check.standing.to_string();
            output::line(format!("  {standing:<12} {}: {}", check.name, check.detail));
        }
    }
    let (mut failed, mut open) = (0_usize, 0_usize);
    for check in reports.iter().flat_map(|report| &report.checks) {
        match check.standing {
            Standing::Passed => {}
            Standing::Failed => failed = failed.saturating_add(1),
            Standing::NotChecked => open = open.saturating_add(1),
        }
    }
    output::line(format!("{failed} failed, {open} not checked"));
    if failed > 0 {
        output::line(
            "declare `dedup: { class: opaque }` for what does not keep its promise: then nothing is repeated by itself",
        );
    }
}

fn document(contract: &Contract, reports: &[Report]) -> Value {
    let reports = reports.iter().map(|report| {
        let checks = report.checks.iter().map(|check| {
            let standing = match check.standing {
                Standing::Passed => "passed",
                Standing::Failed => "failed",
                Standing::NotChecked => "not_checked",
            };
            json!({ "check": check.name, "standing": standing, "detail": check.detail })
        });
        json!({
            "capability": report.capability,
            "class": report.class,
            "calls": report.calls,
            "conforms": report.conforms(),
            "checks": checks.collect::<Vec<_>>(),
        })
    });
    json!({
        "adapter": contract.adapter,
        "digest": contract.digest,
        "target": contract.target(),
        "capabilities": reports.collect::<Vec<_>>(),
    })
}
