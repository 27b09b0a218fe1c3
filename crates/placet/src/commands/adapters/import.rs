//! `placet adapters import`: a contract from a live MCP server, or from a description of a service.
//!
//! Owns the conversion of a tool list into a contract file. Invariants: every imported tool starts as a write of the mode the
//! operator named, `destructive` if none was, and what MCP defines to change nothing as a read; the server's hints are kept for people to
//! read; what is written parses back and passes the checks of a contract.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use clap::{ArgGroup, Args as ClapArgs};
use placet_adapter_mcp::connector::Endpoint;
use placet_types::{
    argument_schema::ArgumentSchema,
    contract::{
        Contract, LiveTool,
        credential::CredentialFile,
        feature::Feature,
        file::{
            CapabilityFile, ContractFile, ContractVersion, DataClass, DedupFile, EnvValue,
            LimitsFile, TenantsFile, TransportFile,
        },
        process::ProcessFile,
        unusable_output,
    },
    ids::{AdapterName, CapabilityId, CapabilityName, EnvironmentName, IdError, TenantId},
    mode::{ApprovalMode, Effect},
    text::{is_hidden, visible},
};
use serde_json::Value;

use super::{
    live::{self, Live},
    openapi::{self, Service},
    search_path::pass_on,
    servers::{self, Source},
    written::{check_free, clean, folder_of, text_of, write},
};
use crate::{
    commands::policy::UNSEEN_TOLD_MAX,
    config::load::{Config, ConfigArgs},
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output,
    world::{self, secrets_of},
};

/// The default rate limit of a contract over a network.
const NETWORK_CALLS_PER_MINUTE: u32 = 60;

/// Write a contract from a live MCP server, an existing mcpServers file, or the OpenAPI document of a service.
#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("source").required(true).args(["stdio", "url", "mcp_servers", "openapi"]))]
pub(crate) struct Args {
    /// The adapter's name; with --mcp-servers, a server to import. As TOOL=NAME, another name for a tool whose own cannot be used.
    #[arg(long, value_name = "NAME|TOOL=NAME")]
    name: Vec<String>,
    /// A server to start as a child process; its command follows `--`.
    #[arg(long, requires = "command")]
    stdio: bool,
    /// A server over streamable HTTP.
    #[arg(long)]
    url: Option<String>,
    /// The server at `--url` speaks the older HTTP+SSE.
    #[arg(long, requires = "url")]
    sse: bool,
    /// Every server of an `mcpServers` JSON file.
    #[arg(long, value_name = "FILE")]
    mcp_servers: Option<PathBuf>,
    /// An HTTP service: its OpenAPI 3 document, in JSON or YAML. `GET` operations start with the mode network, all others with
    /// --mode-default.
    #[arg(long, value_name = "FILE")]
    openapi: Option<PathBuf>,
    /// The base URL of the paths in the OpenAPI document [default: its first server].
    #[arg(long, value_name = "URL", requires = "openapi")]
    base_url: Option<String>,
    /// A variable for the child's environment, which otherwise has only a short PATH.
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// A variable for the child's environment, from a secret in the configuration.
    #[arg(long, value_name = "NAME=SECRET")]
    env_secret: Vec<String>,
    /// The bearer token to call with: the name of a secret in the configuration.
    #[arg(long, value_name = "SECRET")]
    credential: Option<String>,
    /// Allow a host in a private or loopback range, and plain http to it.
    #[arg(long)]
    private_network: bool,
    /// Let the child open any connection, as `npx` needs for downloads; without it, no TCP where the kernel can enforce that.
    #[arg(long, conflicts_with = "url")]
    network_unconfined: bool,
    /// The tenant of the adapter; required if the directory has several.
    #[arg(long)]
    tenant: Option<TenantId>,
    /// The initial mode of every tool.
    #[arg(long, default_value = "destructive")]
    mode_default: ApprovalMode,
    /// The folder to write to [default: the configured contracts, else contracts/ENVIRONMENT].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the contract instead of writing it.
    #[arg(long)]
    print: bool,
    /// Which configuration.
    #[command(flatten)]
    config: ConfigArgs,
    /// The command of --stdio and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What `--name` names.
#[derive(Default)]
struct Names {
    adapters: BTreeSet<AdapterName>,
    /// The names of capabilities, by the names of their tools.
    tools: BTreeMap<String, CapabilityName>,
}

impl Names {
    fn read(args: &Args) -> Result<Self, Failure> {
        let mut names = Self::default();
        for text in &args.name {
            let wrong = |error: IdError| Failure::usage(format!("`--name {text}`")).because(error);
            let is_second = match text.rsplit_once('=') {
                // As the file names it, or as the adapter is called.
                None if args.mcp_servers.is_some() => {
                    let name = servers::adapter_name(text).attempted(format!("`--name {text}`"))?;
                    !names.adapters.insert(name)
                }
                None => !names.adapters.insert(text.parse().map_err(wrong)?),
                Some((tool, name)) => {
                    let name = name.parse().map_err(wrong)?;
                    names.tools.insert(tool.to_owned(), name).is_some()
                }
            };
            if is_second {
                return Err(Failure::usage(format!("`--name {text}` names it a second time")));
            }
        }
        Ok(names)
    }

    fn adapter(&self) -> Result<&AdapterName, Failure> {
        let unclear = || Failure::usage("one `--name` says what the adapter is called");
        self.adapters.first().filter(|_| self.adapters.len() == 1).ok_or_else(unclear)
    }
}

/// How tools become capabilities.
#[derive(Debug, Clone)]
pub(crate) struct ImportOptions {
    /// The environment of the contract.
    pub(crate) environment: EnvironmentName,
    /// Whose agents may use it.
    pub(crate) tenants: TenantsFile,
    /// The initial mode of every tool.
    pub(crate) mode: ApprovalMode,
    /// Names for capabilities that are not named like their tools.
    pub(crate) names: BTreeMap<String, CapabilityName>,
}

/// A contract and what the operator has to know about it.
#[derive(Debug, Clone)]
pub(crate) struct Imported {
    /// The contract.
    pub(crate) file: ContractFile,
    /// Notes, one line each.
    pub(crate) notes: Vec<String>,
}

/// Imports one server, or every server of a file.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let config = Config::load(&args.config, environment)?;
    let names = Names::read(args)?;
    let mut sources =
        if args.openapi.is_some() { Vec::new() } else { sources(args, &names, environment)? };
    if args.network_unconfined || args.mode_default == ApprovalMode::Network {
        sources.iter_mut().for_each(|source| live::unconfine(&mut source.transport));
    }
    let options = ImportOptions {
        environment: config.environment.clone(),
        tenants: TenantsFile::Only([world::tenant(&config, args.tenant.as_ref())?].into()),
        mode: args.mode_default,
        names: names.tools.clone(),
    };
    let folder = args.out.clone().unwrap_or_else(|| folder_of(&config));
    let folder = (!args.print).then_some(&folder);
    let exit = match &args.openapi {
        Some(document) => {
            let service = Service {
                name: names.adapter()?,
                base: args.base_url.as_deref(),
                private_network: args.private_network,
                secret: args.credential.as_deref(),
            };
            openapi::import(document, &service, &options, &config, folder)?
        }
        None => each(&sources, &options, &config, folder).await,
    };
    if config.contracts.is_none() && !args.print {
        output::note(
            "note: no `contracts:` is configured, so nothing reads that folder yet; `placet init` writes a configuration that does",
        );
    }
    Ok(exit)
}

/// Imports every server of an `mcpServers` file into the contracts of a configuration. Says also whether those name secrets that it lacks;
/// `None`: there are none.
///
/// # Errors
/// [`Failure`] when file or configuration cannot be read. A server that cannot be imported is reported and leaves the others alone.
pub(crate) async fn all_of(
    servers: &Path,
    is_unconfined: bool,
    config: &Path,
    environment: &Environment,
) -> Result<(Exit, Option<bool>), Failure> {
    let named = ConfigArgs { config: Some(config.to_owned()), ..ConfigArgs::default() };
    let config = Config::load(&named, environment)?;
    let (mut sources, mut exit) = (Vec::new(), Exit::Ok);
    for server in servers::read(servers, &BTreeSet::new(), environment)? {
        match server {
            Ok(mut source) => {
                pass_on(&mut source.transport, environment);
                if is_unconfined {
                    live::unconfine(&mut source.transport);
                }
                sources.push(source);
            }
            Err(why) => {
                output::failure(&Failure::new("a server is left out").because(why));
                exit = Exit::Findings;
            }
        }
    }
    let options = ImportOptions {
        environment: config.environment.clone(),
        tenants: TenantsFile::Only([world::tenant(&config, None)?].into()),
        mode: ApprovalMode::Destructive,
        names: BTreeMap::new(),
    };
    let folder = folder_of(&config);
    let asked = each(&sources, &options, &config, Some(&folder)).await;
    sources.retain(|one| folder.join(format!("{}.yaml", one.name)).symlink_metadata().is_ok());
    let lacks_secrets = sources.iter().any(|source| !source.secrets.is_empty());
    let some = (!sources.is_empty()).then_some(lacks_secrets);
    Ok((if asked == Exit::Ok { exit } else { asked }, some))
}

/// Imports each server into the folder; without one, prints its contract.
async fn each(
    sources: &[Source],
    options: &ImportOptions,
    config: &Config,
    folder: Option<&PathBuf>,
) -> Exit {
    let mut exit = Exit::Ok;
    for source in sources {
        let path = folder.map(|folder| folder.join(format!("{}.yaml", source.name)));
        // Checked before the server is started: a refusal costs nothing then.
        let done = match path.as_deref().map_or(Ok(()), check_free) {
            Ok(()) => one(source, options, config, path.as_deref()).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = done {
            // One dead server does not prevent the import of the others.
            output::failure(&failure);
            exit = Exit::Findings;
        }
    }
    exit
}

async fn one(
    source: &Source,
    options: &ImportOptions,
    config: &Config,
    path: Option<&Path>,
) -> Result<(), Failure> {
    let endpoint = Endpoint {
        adapter: source.name.clone(),
        transport: source.transport.clone(),
        credential: source.credential.clone(),
        limits: LimitsFile::default(),
    };
    check_secrets(source, config)?;
    let live = live::ask(&endpoint, source.secrets.clone(), config).await?;
    let Imported { file, notes } = contract_of(source, &live, options)?;
    let confined = live::note_on(&source.transport).map(str::to_owned);
    let notes = [source.notes.clone(), notes, confined.into_iter().collect()].concat();
    let imported = Imported { file, notes };
    let speaks = format!("a live server that speaks MCP {}", live.protocol_version);
    deliver(&imported, &speaks, path, Some(options.mode), || print_report(&imported.file, &live))
}

/// Writes an imported contract to its file and prints a summary, with the mode if there is one; without a file, prints the contract.
pub(super) fn deliver(
    imported: &Imported,
    source: &str,
    path: Option<&Path>,
    mode: Option<ApprovalMode>,
    report: impl FnOnce(),
) -> Result<(), Failure> {
    let text = text_of(&imported.file, source)?;
    match path {
        None => output::raw(&text),
        Some(path) => {
            write(path, &text)?;
            let count = output::counted(imported.file.capabilities.len(), "tool", "tools");
            let mode = mode.map(|mode| format!(", mode {mode}")).unwrap_or_default();
            output::line(format!("wrote {} ({count}{mode})", path.display()));
            report();
        }
    }
    imported.notes.iter().for_each(|note| output::note(format!("note: {note}")));
    Ok(())
}

/// A value in the place of a secret's name is neither shown nor written into a contract.
fn check_secrets(source: &Source, config: &Config) -> Result<(), Failure> {
    let named = secrets_of(&source.transport, source.credential.as_ref());
    for (key, secret) in named.into_iter().filter(|(_, name)| !source.secrets.contains_key(*name)) {
        config.secrets.named(secret).map_err(|error| Failure::usage(format!("`{key}` {error}")))?;
    }
    Ok(())
}

fn print_report(file: &ContractFile, live: &Live) {
    let rows = live.tools.iter().map(|tool| {
        let taken = file.capabilities.iter().find(|(name, one)| one.tool_of(name) == tool.name);
        let state = match taken {
            None => "left out".to_owned(),
            Some((_, one)) if one.task_only => "imported, not callable".to_owned(),
            Some((name, one)) if one.tool.is_some() => format!("imported as {name}"),
            Some(_) => "imported".to_owned(),
        };
        [
            visible(&tool.name),
            state,
            tool.annotations.as_ref().map(|one| visible(&one.to_string())).unwrap_or_default(),
        ]
    });
    output::table(["tool", "", "what the server claims about it (not trusted)"], rows);
    output::line(
        "\nReview it: lower a `mode` only where you know the tool, and give `effect: none` to those that only read.",
    );
}

/// Turns a live tool list into a contract.
pub(crate) fn contract_of(
    source: &Source,
    live: &Live,
    options: &ImportOptions,
) -> Result<Imported, Failure> {
    let is_there = |name: &String| live.tools.iter().any(|tool| tool.name == *name);
    if let Some(name) = options.names.keys().find(|name| !is_there(name)) {
        let what = format!("`--name {name}=…`: `{}` has no such tool", source.name);
        return Err(Failure::new(what)
            .try_this("without it, `--print` shows the contract, and with it the tools"));
    }
    let mut notes = Vec::new();
    let capabilities = capabilities_of(source, live, options, &mut notes);
    let (transport, limits) = over_network(source, options, &mut notes);
    let file = ContractFile {
        contract_version: ContractVersion::V1,
        adapter: source.name.clone(),
        environment: options.environment.clone(),
        description: live.server.clone().unwrap_or_default(),
        tenants: options.tenants.clone(),
        data_class: DataClass::Internal,
        transport,
        protocol_version: live.protocol_version.clone(),
        credential: source.credential.clone(),
        pass_tracestate: false,
        limits,
        error_injection: None,
        capabilities,
    };
    let contract = Contract::from_file(file.clone())
        .attempted(format!("no contract can be made of `{}`", source.name))?;
    let unseen: Vec<String> = contract.capabilities.values().filter_map(super::unseen).collect();
    let more = unseen.len().saturating_sub(UNSEEN_TOLD_MAX);
    notes.extend(unseen.into_iter().take(UNSEEN_TOLD_MAX));
    if more > 0 {
        let more = output::counted(more, "more tool", "more tools");
        notes.push(format!("and of {more} (`placet policy check --json` lists them)"));
    }
    Ok(Imported { file, notes })
}

/// The tools that can be named, each as a capability, with notes for the operator.
fn capabilities_of(
    source: &Source,
    live: &Live,
    options: &ImportOptions,
    notes: &mut Vec<String>,
) -> BTreeMap<CapabilityName, CapabilityFile> {
    let mut capabilities = BTreeMap::new();
    let is_remote = matches!(source.transport, TransportFile::McpHttp { .. });
    for tool in &live.tools {
        match capability(&source.name, tool, options) {
            Ok((name, mut file, remarks)) => {
                if is_remote && file.mode != ApprovalMode::Network {
                    file.also.insert(ApprovalMode::Network);
                }
                notes
                    .extend(remarks.into_iter().map(|remark| format!("`{}`: {remark}", tool.name)));
                // Nobody tells apart two names that differ in case only, whichever of the two is meant to be taken for the other.
                let same =
                    |other: &&CapabilityName| other.as_str().eq_ignore_ascii_case(name.as_str());
                if let Some(other) = capabilities.keys().find(same) {
                    notes.push(format!(
                        "`{0}` is left out: another tool is named `{other}`; `--name {0}=NAME` gives it another name",
                        tool.name
                    ));
                    continue;
                }
                if Feature::of_method(&tool.name).is_some() {
                    notes.push(format!(
                        "`{name}` is `{}` of MCP, which only reads: its mode is {}. What may be asked for is narrowed by its `input_schema` or by a policy; `enabled: false` turns it off",
                        tool.name, file.mode
                    ));
                }
                capabilities.insert(name, file);
            }
            Err(why) => notes.push(format!(
                "`{0}` is left out: {why}; `--name {0}=NAME` gives it another name",
                tool.name
            )),
        }
    }
    capabilities
}

/// Transport and limits for the mode: over a network, a rate, and for a child process the statement that its connections are unconfined.
fn over_network(
    source: &Source,
    options: &ImportOptions,
    notes: &mut Vec<String>,
) -> (TransportFile, LimitsFile) {
    let (mut transport, mut limits) = (source.transport.clone(), LimitsFile::default());
    if options.mode == ApprovalMode::Network {
        limits.calls_per_minute_max = NETWORK_CALLS_PER_MINUTE;
        notes.push(format!(
            "`limits.calls_per_minute_max` is {NETWORK_CALLS_PER_MINUTE}: set what is usual for it"
        ));
        live::unconfine(&mut transport);
        if matches!(transport, TransportFile::McpStdio { .. }) {
            notes.push("`transport.process.network` is `unconfined`: nothing bounds where its process connects to".to_owned());
        }
    }
    (transport, limits)
}

/// The name of a tool's capability: the one the operator chose, else its own.
pub(super) fn name_of(
    adapter: &AdapterName,
    tool: &str,
    given: Option<&CapabilityName>,
) -> Result<CapabilityName, String> {
    // A method of MCP that is not a tool has a name of ours.
    let own = Feature::of_method(tool).map_or(tool, |feature| feature.capability());
    let own = || CapabilityName::new(own).map_err(|error| error.to_string());
    let name = given.cloned().map_or_else(own, Ok)?;
    CapabilityId::new(adapter.clone(), name.clone()).map_err(|error| error.to_string())?;
    Ok(name)
}

/// One tool as a capability, with remarks for the operator.
pub(crate) fn capability(
    adapter: &AdapterName,
    tool: &LiveTool,
    options: &ImportOptions,
) -> Result<(CapabilityName, CapabilityFile, Vec<String>), String> {
    let name = name_of(adapter, &tool.name, options.names.get(&tool.name))?;
    let mut remarks = Vec::new();
    let description = clean(&tool.description);
    // JSON escapes control characters; what is hidden in it otherwise was sent so.
    let hides = |schema: &Value| schema.to_string().chars().any(is_hidden);
    let doubt = if description != tool.description {
        Some("description hides characters or is too long")
    } else if hides(&tool.input_schema) || tool.output_schema.as_ref().is_some_and(hides) {
        Some("schema hides characters")
    } else {
        None
    };
    let look = |doubt| format!("its {doubt}: look at it before you set `enabled: true`");
    remarks.extend(doubt.map(look));
    if let Err(error) = ArgumentSchema::compile(&tool.input_schema) {
        remarks.push(format!("quarantined, its schema cannot be enforced: {error}"));
    }
    if let Some(problem) = tool.output_schema.as_ref().and_then(unusable_output) {
        remarks.push(format!("quarantined, its results cannot be checked: {problem}"));
    }
    if tool.task_only {
        remarks.push(
            "not callable: its server runs it as an MCP task only, which is not supported"
                .to_owned(),
        );
    }
    // MCP defines these methods to change nothing; what a tool does, only its server knows.
    let is_feature = Feature::of_method(&tool.name).is_some();
    let writes = matches!(options.mode, ApprovalMode::LocalWrite | ApprovalMode::Destructive);
    let mode = if is_feature && writes { ApprovalMode::ReadOnly } else { options.mode };
    let reads = mode == ApprovalMode::ReadOnly || is_feature;
    let effect = if reads { Effect::None } else { Effect::Write };
    let file = CapabilityFile {
        tool: (name.as_str() != tool.name).then(|| tool.name.clone()),
        title: tool.title.as_deref().map(clean),
        description,
        input_schema: tool.input_schema.clone(),
        live_input_schema: None,
        output_schema: tool.output_schema.clone(),
        rest: None,
        mode,
        also: BTreeSet::new(),
        effect,
        dedup: (effect == Effect::Write).then_some(DedupFile::Opaque),
        not_executed: None,
        cost_cents: 0,
        result_taint: BTreeSet::new(),
        enabled: doubt.is_none(),
        pin: Some(tool.digest(adapter)),
        task_only: tool.task_only,
        server_hints: tool.annotations.clone(),
        exclusive: false,
        takes_control: false,
        on_demand: false,
        evaluation_checks: BTreeSet::new(),
        prompt: None,
        checks: Vec::new(),
        exposes: None,
        run_keys: BTreeSet::new(),
        alias: None,
    };
    Ok((name, file, remarks))
}

fn sources(args: &Args, names: &Names, environment: &Environment) -> Result<Vec<Source>, Failure> {
    let mut sources = match &args.mcp_servers {
        Some(path) => {
            let all = servers::read(path, &names.adapters, environment)?;
            let all: Result<Vec<Source>, String> = all.into_iter().collect();
            all.attempted(format!("`{}` cannot be imported", path.display()))?
        }
        None => vec![described(args, names.adapter()?.clone())?],
    };
    if sources.len() > 1 && !names.tools.is_empty() {
        return Err(Failure::usage(
            "`--name TOOL=NAME` is for one server, and the file has several",
        )
        .try_this("`--name ADAPTER` picks one of them"));
    }
    for source in &mut sources {
        pass_on(&mut source.transport, environment);
    }
    Ok(sources)
}

/// The server that the options describe.
fn described(args: &Args, name: AdapterName) -> Result<Source, Failure> {
    let transport = match (&args.url, args.command.split_first()) {
        (Some(url), _) => {
            let private_network = args.private_network;
            TransportFile::McpHttp { url: url.clone(), private_network, sse: args.sse }
        }
        (None, Some((command, rest))) => TransportFile::McpStdio {
            command: command.clone(),
            args: rest.to_vec(),
            env: variables(args)?,
            cwd: None,
            process: ProcessFile::default(),
        },
        (None, None) => return Err(Failure::usage("the command of the server follows `--`")),
    };
    let credential = args.credential.clone().map(|secret| CredentialFile::secret(secret, None));
    Ok(Source { name, transport, credential, secrets: BTreeMap::new(), notes: Vec::new() })
}

fn variables(args: &Args) -> Result<BTreeMap<String, EnvValue>, Failure> {
    let literals = args.env.iter().map(|text| (text, false));
    let secrets = args.env_secret.iter().map(|text| (text, true));
    let variables = literals.chain(secrets).map(|(text, is_secret)| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        if name.is_empty() || value.is_empty() {
            return Err(Failure::usage(format!("`{name}` is not NAME=VALUE")));
        }
        let value = value.to_owned();
        let value =
            if is_secret { EnvValue::Secret { secret: value } } else { EnvValue::Literal(value) };
        Ok((name.to_owned(), value))
    });
    variables.collect()
}
