//! `placet adapters diff` and `pin`: live definitions against those that were reviewed (TM-14).
//!
//! Owns the comparison and the only way a pin changes. Invariant: a definition is pinned only under the digest that the operator
//! names, so what was reviewed is what is pinned, even if the server changes its definition in between.

use std::{collections::BTreeMap, fs, io::Write as _, path::Path};

use clap::Args as ClapArgs;
use placet_types::{
    contract::{
        Contract, LiveTool,
        file::{CapabilityFile, ContractFile},
    },
    digest::{Digest, DigestBuilder},
    ids::{AdapterName, CapabilityName},
    mode::ApprovalMode,
    text,
};
use serde::Serialize;
use serde_json::Value;

use super::{
    changes::{self, Change},
    import::{self, ImportOptions},
    live::{self, Live},
    written::yaml_of,
};
use crate::{
    config::load::{Config, ConfigArgs, LocalArgs},
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output,
    world::{self, ContractEntry},
};

/// Compare live tool lists with the pins.
#[derive(Debug, ClapArgs)]
pub(crate) struct DiffArgs {
    /// The adapter [default: all].
    name: Option<AdapterName>,
    /// Which configuration, and in which form.
    #[command(flatten)]
    local: LocalArgs,
}

/// Pin a live definition that you reviewed.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The contract's file is rewritten; of its comments only the lines at its top are kept."
)]
pub(crate) struct PinArgs {
    /// The adapter.
    name: AdapterName,
    /// The tool to pin [default: all of them, under the digest of the whole list].
    #[arg(long)]
    capability: Option<CapabilityName>,
    /// The digest that `diff` printed and you reviewed.
    #[arg(long, value_name = "DIGEST")]
    expect: Digest,
    /// Which configuration.
    #[command(flatten)]
    config: ConfigArgs,
}

/// The state of a tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Difference {
    /// The tool.
    pub(crate) capability: String,
    /// `same`, `changed`, `not pinned`, `new`, `gone`, or `left out`: no difference, for the contract cannot have it under its own name.
    pub(crate) state: &'static str,
    /// Where the live definition differs from the contract's.
    pub(crate) changes: Vec<Change>,
    /// Whether the contract has an `input_schema` of its own, which is kept when pinning.
    pub(crate) narrowed: bool,
    /// Why it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left_out: Option<String>,
    /// The reviewed digest.
    pub(crate) pinned: Option<Digest>,
    /// The live digest.
    pub(crate) live: Option<Digest>,
}

/// The state of an adapter.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Comparison {
    /// The adapter.
    pub(crate) adapter: AdapterName,
    /// The pinned protocol version.
    pub(crate) protocol_pinned: String,
    /// The live one.
    pub(crate) protocol_live: String,
    /// The digest of the whole live list.
    pub(crate) live_list: Digest,
    /// Its tools.
    pub(crate) tools: Vec<Difference>,
}

impl Comparison {
    /// Whether nothing differs.
    pub(crate) fn is_clean(&self) -> bool {
        self.protocol_pinned == self.protocol_live
            && self.tools.iter().all(|tool| matches!(tool.state, "same" | "left out"))
    }
}

/// Compares a contract with what its adapter currently declares.
pub(crate) fn compare(file: &ContractFile, live: &Live) -> Comparison {
    let by_name: BTreeMap<&str, &LiveTool> =
        live.tools.iter().map(|tool| (tool.name.as_str(), tool)).collect();
    let contracted = file.capabilities.iter().map(|(name, capability)| {
        let tool = by_name.get(capability.tool_of(name)).copied();
        let digest = tool.map(|tool| tool.digest(&file.adapter));
        let state = match (capability.pin, digest) {
            (_, None) => "gone",
            (None, Some(_)) => "not pinned",
            (Some(pin), Some(live)) if pin == live => "same",
            (Some(_), Some(_)) => "changed",
        };
        let changes = tool
            .filter(|_| state != "same")
            .map(|tool| changes::between(Some(&capability.definition(name)), tool))
            .unwrap_or_default();
        Difference {
            capability: name.to_string(),
            state,
            changes,
            narrowed: is_narrowed(&file.adapter, name, capability),
            left_out: None,
            pinned: capability.pin,
            live: digest,
        }
    });
    let new = live.tools.iter().filter(|tool| known(file, tool).is_none()).map(|tool| {
        let left_out = new_name(file, tool).err();
        let (state, changes) = match left_out {
            Some(_) => ("left out", Vec::new()),
            None => ("new", changes::between(None, tool)),
        };
        Difference {
            capability: tool.name.clone(),
            state,
            changes,
            narrowed: false,
            left_out,
            pinned: None,
            live: Some(tool.digest(&file.adapter)),
        }
    });
    Comparison {
        adapter: file.adapter.clone(),
        protocol_pinned: file.protocol_version.clone(),
        protocol_live: live.protocol_version.clone(),
        live_list: list_digest(&file.adapter, &live.tools),
        tools: contracted.chain(new).collect(),
    }
}

/// The capability of a live tool.
fn known<'a>(
    file: &'a ContractFile,
    tool: &LiveTool,
) -> Option<(&'a CapabilityName, &'a CapabilityFile)> {
    file.capabilities.iter().find(|(name, capability)| capability.tool_of(name) == tool.name)
}

/// The name for a tool that the contract does not have yet.
fn new_name(file: &ContractFile, tool: &LiveTool) -> Result<CapabilityName, String> {
    let name = import::name_of(&file.adapter, &tool.name, None)?;
    if file.capabilities.contains_key(&name) {
        return Err(format!("the capability `{name}` is another tool"));
    }
    Ok(name)
}

/// Why a tool is left out, and how it can be taken.
fn left_out(tool: &str, why: &str) -> String {
    format!(
        "`{tool}` is left out: {why}; `placet adapters import … --name {tool}=NAME` gives it another name"
    )
}

/// Whether a reviewer changed the server's declaration: the contract's definition is not the one that its pin was made from.
fn is_narrowed(adapter: &AdapterName, name: &CapabilityName, capability: &CapabilityFile) -> bool {
    capability.live_input_schema.is_some()
        || capability.pin.is_some_and(|pin| capability.definition(name).digest(adapter) != pin)
}

/// The digest of a whole tool list, in the order of names.
pub(crate) fn list_digest(adapter: &AdapterName, tools: &[LiveTool]) -> Digest {
    let mut sorted: Vec<(&str, Digest)> =
        tools.iter().map(|tool| (tool.name.as_str(), tool.digest(adapter))).collect();
    sorted.sort();
    DigestBuilder::new("placet.tool-list.v1")
        .list("names", sorted.iter().map(|(name, _)| name.as_bytes()))
        .list("digests", sorted.iter().map(|(_, digest)| digest.as_bytes().as_slice()))
        .finish()
}

/// Why there is nothing to compare.
const DEFINED: &str = "the contract is all there is about its tools";

/// Compares one adapter, or all.
pub(crate) async fn diff(args: &DiffArgs, environment: &Environment) -> Outcome {
    let config = args.local.load(environment)?;
    let entries = chosen(&config, args.name.as_ref())?;
    let mut exit = Exit::Ok;
    let mut comparisons = Vec::with_capacity(entries.len());
    for entry in &entries {
        if entry.contract.transport.defines_its_tools() {
            output::note(format!("{}: {DEFINED}", entry.file.adapter));
            continue;
        }
        match live::ask_contracted(&entry.contract, &config).await {
            Ok(live) => comparisons.push(compare(&entry.file, &live)),
            // One dead adapter does not hide the state of the others.
            Err(failure) => {
                output::failure(&failure);
                exit = Exit::Findings;
            }
        }
    }
    if comparisons.iter().any(|comparison| !comparison.is_clean()) {
        exit = Exit::Findings;
    }
    output::answer(args.local.json, &comparisons, |all| all.iter().for_each(print_report))?;
    Ok(exit)
}

fn print_report(comparison: &Comparison) {
    let versions = if comparison.protocol_pinned == comparison.protocol_live {
        comparison.protocol_live.clone()
    } else {
        format!("pinned {}, LIVE {}", comparison.protocol_pinned, comparison.protocol_live)
    };
    output::line(format!(
        "{} ({versions}), the whole live list: {}",
        comparison.adapter, comparison.live_list
    ));
    let rows = comparison.tools.iter().map(|tool| {
        let text =
            |digest: Option<Digest>| digest.map(|digest| digest.to_string()).unwrap_or_default();
        let live = if tool.state == "same" { String::new() } else { text(tool.live) };
        [tool.capability.clone(), tool.state.to_owned(), fields(tool).join(", "), live]
    });
    output::table(["tool", "state", "what changed", "live digest"], rows);
    comparison.tools.iter().for_each(show);
    for tool in &comparison.tools {
        let why = tool.left_out.iter();
        why.for_each(|why| output::note(format!("note: {}", left_out(&tool.capability, why))));
    }
}

/// The fields of a definition that differ.
fn fields(tool: &Difference) -> Vec<&str> {
    let mut fields: Vec<&str> = tool.changes.iter().map(Change::field).collect();
    fields.dedup();
    fields
}

/// Prints the differences in full.
fn show(tool: &Difference) {
    if tool.state == "changed" && tool.changes.is_empty() {
        output::line(format!(
            "\n`{}`: the contract has the live definition, but its pin is of another one",
            text::visible(&tool.capability)
        ));
    }
    if tool.changes.is_empty() {
        return;
    }
    let narrowed = if tool.narrowed { "; your `input_schema` stays" } else { "" };
    output::line(format!("\n`{}` ({}{narrowed}):", text::visible(&tool.capability), tool.state));
    tool.changes.iter().for_each(Change::show);
}

/// The contract of that name, or all.
pub(super) fn chosen(
    config: &Config,
    name: Option<&AdapterName>,
) -> Result<Vec<ContractEntry>, Failure> {
    let all = world::contracts(config).attempted("a contract cannot be used")?;
    let wanted = |entry: &ContractEntry| name.is_none_or(|name| *name == entry.file.adapter);
    let entries: Vec<ContractEntry> = all.into_iter().filter(wanted).collect();
    if entries.is_empty() {
        return Err(Failure::usage("there is no contract of that name")
            .try_this("`placet adapters list` shows them"));
    }
    Ok(entries)
}

/// Pins one tool, or the whole list.
pub(crate) async fn pin(args: &PinArgs, environment: &Environment) -> Outcome {
    let config = Config::load(&args.config, environment)?;
    let entries = chosen(&config, Some(&args.name))?;
    let entry =
        entries.first().ok_or_else(|| Failure::usage("there is no contract of that name"))?;
    let path = entry.path.as_deref().ok_or_else(|| {
        Failure::usage("the built-in contract is pinned by the program itself")
            .try_this("`placet init` writes it as a file")
    })?;
    if entry.contract.transport.defines_its_tools() {
        return Err(Failure::usage(format!("there is nothing to pin: {DEFINED}")));
    }
    let live = live::ask_contracted(&entry.contract, &config).await?;
    let Pinned { file, notes } = pinned(&entry.file, &live, args.capability.as_ref(), args.expect)?;
    Contract::from_file(file.clone())
        .attempted("nothing was pinned: the contract would break a rule")?;
    let comparison = compare(&entry.file, &live);
    let is_wanted = |tool: &&Difference| {
        args.capability.as_ref().is_none_or(|name| tool.capability == name.as_str())
    };
    comparison.tools.iter().filter(is_wanted).for_each(show);
    replace(path, &file)?;
    notes.iter().for_each(|note| output::note(format!("note: {note}")));
    output::line(format!(
        "pinned in {}; `placet reload` has a running server use it",
        path.display()
    ));
    Ok(Exit::Ok)
}

/// A contract with new pins, and what the operator has to know about it.
#[derive(Debug)]
pub(crate) struct Pinned {
    /// The contract.
    pub(crate) file: ContractFile,
    /// Notes, one line each.
    pub(crate) notes: Vec<String>,
}

/// The contract with one or all definitions taken from the live adapter.
pub(crate) fn pinned(
    file: &ContractFile,
    live: &Live,
    only: Option<&CapabilityName>,
    expect: Digest,
) -> Result<Pinned, Failure> {
    let named = |tool: &LiveTool, name: &CapabilityName| {
        known(file, tool).map_or(tool.name.as_str(), |(known, _)| known.as_str()) == name.as_str()
    };
    let found = match only {
        Some(name) => {
            let tool = live.tools.iter().find(|tool| named(tool, name));
            tool.ok_or_else(|| Failure::new(format!("the live adapter has no tool `{name}`")))?
                .digest(&file.adapter)
        }
        None => list_digest(&file.adapter, &live.tools),
    };
    if found != expect {
        return Err(Failure::new("nothing was pinned: what is live is not what you reviewed")
            .because(format!("the live digest is {found}"))
            .try_this("look again with `placet adapters diff`"));
    }
    let mut pinned = Pinned { file: file.clone(), notes: Vec::new() };
    for tool in live.tools.iter().filter(|tool| only.is_none_or(|name| named(tool, name))) {
        if let Err(why) = take_over(&mut pinned, tool) {
            if only.is_some() {
                return Err(Failure::new(format!("`{}` cannot be pinned", tool.name)).because(why));
            }
            pinned.notes.push(left_out(&tool.name, &why));
        }
    }
    if only.is_none() {
        let Pinned { file, notes } = &mut pinned;
        file.protocol_version.clone_from(&live.protocol_version);
        for (name, capability) in &mut file.capabilities {
            let is_gone = !live.tools.iter().any(|tool| tool.name == capability.tool_of(name));
            if is_gone && capability.pin.take().is_some() {
                notes.push(format!(
                    "`{name}`: the server has it no longer, so its pin is removed and it is not callable"
                ));
            }
        }
    }
    Ok(pinned)
}

/// Takes the live definition; the operator's decisions about the tool stay, and so does a schema that was changed in review. A new tool
/// starts in the strongest mode.
fn take_over(pinned: &mut Pinned, tool: &LiveTool) -> Result<(), String> {
    let file = &mut pinned.file;
    let old = known(file, tool).map(|(name, known)| (name.clone(), known.clone()));
    let mut options = ImportOptions {
        environment: file.environment.clone(),
        tenants: file.tenants.clone(),
        mode: ApprovalMode::Destructive,
        names: BTreeMap::new(),
    };
    if let Some((name, _)) = &old {
        options.names.insert(tool.name.clone(), name.clone());
    }
    let (name, fresh, remarks) = import::capability(&file.adapter, tool, &options)?;
    pinned.notes.extend(remarks.iter().map(|remark| format!("`{name}`: {remark}")));
    let merged = match old {
        None => {
            new_name(file, tool)?;
            fresh
        }
        Some((_, known)) => {
            let (input_schema, live_input_schema) = schemas(&file.adapter, &name, &known, &fresh);
            if live_input_schema.is_some() {
                pinned.notes.push(format!(
                    "`{name}`: its `input_schema` is yours and stays; arguments have to pass the server's too, now `live_input_schema`"
                ));
            }
            CapabilityFile {
                title: fresh.title,
                description: fresh.description,
                input_schema,
                live_input_schema,
                output_schema: fresh.output_schema,
                server_hints: fresh.server_hints,
                pin: fresh.pin,
                task_only: fresh.task_only,
                enabled: known.enabled && fresh.enabled,
                ..known
            }
        }
    };
    file.capabilities.insert(name, merged);
    Ok(())
}

/// The reviewed schema and, where it is not the server's, the server's.
fn schemas(
    adapter: &AdapterName,
    name: &CapabilityName,
    known: &CapabilityFile,
    fresh: &CapabilityFile,
) -> (Value, Option<Value>) {
    let is_own = known.pin.is_none() || is_narrowed(adapter, name, known);
    if !is_own || known.input_schema == fresh.input_schema {
        return (fresh.input_schema.clone(), None);
    }
    (known.input_schema.clone(), Some(fresh.input_schema.clone()))
}

/// Replaces the old contract, keeping its leading comment lines.
fn replace(path: &Path, file: &ContractFile) -> Result<(), Failure> {
    let what = || format!("`{}` cannot be written", path.display());
    let old = crate::yaml::read_text(path).attempted(what())?;
    let at_top = old.lines().take_while(|line| line.starts_with('#'));
    let mut text: String = at_top.clone().flat_map(|line| [line, "\n"]).collect();
    let mut below = old.lines().skip(at_top.count());
    if below.any(|line| line.trim_start().starts_with('#') || line.contains(" #")) {
        let path = path.display();
        output::note(format!("note: `{path}` is rewritten without its comments below the top"));
    }
    text.push_str(&yaml_of(file)?);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut draft = tempfile::NamedTempFile::new_in(folder).attempted(what())?;
    draft.write_all(text.as_bytes()).and_then(|()| draft.as_file().sync_all()).attempted(what())?;
    let permissions = fs::metadata(path).attempted(what())?.permissions();
    draft.as_file().set_permissions(permissions).attempted(what())?;
    draft.persist(path).attempted(what())?;
    Ok(())
}
