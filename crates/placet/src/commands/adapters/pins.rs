//! `placet adapters diff` and `pin`: live definitions against those that were reviewed (TM-14).
//!
//! Owns the comparison and the only way a pin changes. Invariant: a definition is pinned only under the digest that the operator
//! names, so what was looked at is what is pinned, even if the server changes its mind in between.

use std::{collections::BTreeMap, fs, io::Write as _, path::Path};

use clap::Args as ClapArgs;
use placet_types::{
    contract::{
        LiveTool,
        file::{CapabilityFile, ContractFile},
    },
    digest::{Digest, DigestBuilder},
    ids::{AdapterName, CapabilityName},
    mode::ApprovalMode,
};
use serde::Serialize;

use super::{
    import::{self, ImportOptions},
    live::{self, Live},
};
use crate::{
    config::load::{Config, ConfigArgs},
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output,
    world::{self, ContractEntry},
};

/// Compare live tool lists with the pins.
#[derive(Debug, ClapArgs)]
pub(crate) struct DiffArgs {
    /// Which adapter [default: all].
    name: Option<AdapterName>,
    /// Print JSON for programs.
    #[arg(long)]
    json: bool,
    /// Which configuration.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Accept a live definition as reviewed.
#[derive(Debug, ClapArgs)]
pub(crate) struct PinArgs {
    /// Which adapter.
    name: AdapterName,
    /// Which of its tools [default: all of them, under the digest of the whole list].
    #[arg(long)]
    capability: Option<CapabilityName>,
    /// The digest that `diff` printed and you reviewed.
    #[arg(long, value_name = "DIGEST")]
    expect: Digest,
    /// Which configuration.
    #[command(flatten)]
    config: ConfigArgs,
}

/// How a tool stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    /// The tool.
    pub(crate) capability: String,
    /// `same`, `changed`, `not pinned`, `new` or `gone`.
    pub(crate) state: &'static str,
    /// What of the definition differs from the contract.
    pub(crate) fields: Vec<&'static str>,
    /// The reviewed digest.
    pub(crate) pinned: Option<Digest>,
    /// The live digest.
    pub(crate) live: Option<Digest>,
}

/// How an adapter stands.
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
            && self.tools.iter().all(|tool| tool.state == "same")
    }
}

/// Compares a contract with what its adapter says now.
pub(crate) fn compare(file: &ContractFile, live: &Live) -> Comparison {
    let by_name: BTreeMap<&str, &LiveTool> =
        live.tools.iter().map(|tool| (tool.name.as_str(), tool)).collect();
    let contracted = file.capabilities.iter().map(|(name, capability)| {
        let tool = by_name.get(name.as_str());
        let digest = tool.map(|tool| tool.digest(&file.adapter));
        let state = match (capability.pin, digest) {
            (_, None) => "gone",
            (None, Some(_)) => "not pinned",
            (Some(pin), Some(live)) if pin == live => "same",
            (Some(_), Some(_)) => "changed",
        };
        let fields = tool
            .filter(|_| state == "changed")
            .map(|tool| fields(capability, tool))
            .unwrap_or_default();
        Difference {
            capability: name.to_string(),
            state,
            fields,
            pinned: capability.pin,
            live: digest,
        }
    });
    let known = |tool: &&LiveTool| !file.capabilities.keys().any(|name| name.as_str() == tool.name);
    let new = live.tools.iter().filter(known).map(|tool| Difference {
        capability: tool.name.clone(),
        state: "new",
        fields: Vec::new(),
        pinned: None,
        live: Some(tool.digest(&file.adapter)),
    });
    Comparison {
        adapter: file.adapter.clone(),
        protocol_pinned: file.protocol_version.clone(),
        protocol_live: live.protocol_version.clone(),
        live_list: list_digest(&file.adapter, &live.tools),
        tools: contracted.chain(new).collect(),
    }
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

/// Which parts of a definition differ. The title is in the digest only.
fn fields(capability: &CapabilityFile, tool: &LiveTool) -> Vec<&'static str> {
    let mut fields = Vec::new();
    if capability.description != tool.description {
        fields.push("description");
    }
    if capability.input_schema != tool.input_schema {
        fields.push("input_schema");
    }
    if capability.output_schema != tool.output_schema {
        fields.push("output_schema");
    }
    if capability.server_hints != tool.annotations {
        fields.push("annotations");
    }
    if fields.is_empty() {
        fields.push("title");
    }
    fields
}

/// Compares one adapter, or all.
pub(crate) async fn diff(args: &DiffArgs, environment: &Environment) -> Outcome {
    let config = Config::load(&args.config, environment)?;
    let entries = chosen(&config, args.name.as_ref())?;
    let mut exit = Exit::Ok;
    let mut comparisons = Vec::with_capacity(entries.len());
    for entry in &entries {
        match live::ask_contracted(&entry.contract, &config).await {
            Ok(live) => comparisons.push(compare(&entry.file, &live)),
            // One dead adapter does not hide how the others stand.
            Err(failure) => {
                output::failure(&failure);
                exit = Exit::Findings;
            }
        }
    }
    if comparisons.iter().any(|comparison| !comparison.is_clean()) {
        exit = Exit::Findings;
    }
    if args.json {
        output::json(&comparisons);
    } else {
        comparisons.iter().for_each(told);
    }
    Ok(exit)
}

fn told(comparison: &Comparison) {
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
        [tool.capability.clone(), tool.state.to_owned(), tool.fields.join(", "), live]
    });
    output::table(["tool", "state", "what changed", "live digest"], rows);
}

/// The contract of that name, or all.
///
/// # Errors
/// [`Failure`] when there is none.
pub(super) fn chosen(
    config: &Config,
    name: Option<&AdapterName>,
) -> Result<Vec<ContractEntry>, Failure> {
    let all = world::contracts(config)
        .map_err(|problem| Failure::new("a contract cannot be used").because(problem))?;
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
    let live = live::ask_contracted(&entry.contract, &config).await?;
    let file = pinned(&entry.file, &live, args.capability.as_ref(), args.expect)?;
    replace(path, &file)?;
    output::line(format!(
        "pinned in {}; the running Placet takes it up at its next start",
        path.display()
    ));
    Ok(Exit::Ok)
}

/// The contract with one or all definitions taken over from the live adapter.
///
/// # Errors
/// [`Failure`] when what is live is not what the operator reviewed.
pub(crate) fn pinned(
    file: &ContractFile,
    live: &Live,
    only: Option<&CapabilityName>,
    expect: Digest,
) -> Result<ContractFile, Failure> {
    let found = match only {
        Some(name) => {
            let tool = live.tools.iter().find(|tool| tool.name == name.as_str());
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
    let mut file = file.clone();
    for tool in live.tools.iter().filter(|tool| only.is_none_or(|name| tool.name == name.as_str()))
    {
        take_over(&mut file, tool)?;
    }
    if only.is_none() {
        file.protocol_version.clone_from(&live.protocol_version);
        for (name, capability) in &mut file.capabilities {
            if !live.tools.iter().any(|tool| tool.name == name.as_str()) {
                capability.pin = None;
            }
        }
    }
    Ok(file)
}

/// Takes the live definition; what the operator decided about the tool stays. A new tool starts as strong as any.
fn take_over(file: &mut ContractFile, tool: &LiveTool) -> Result<(), Failure> {
    let options = ImportOptions {
        environment: file.environment.clone(),
        tenants: file.tenants.clone(),
        mode: ApprovalMode::Destructive,
        pins: true,
    };
    let (name, fresh, remarks) = import::capability(&file.adapter, tool, &options)
        .map_err(|why| Failure::new(format!("`{}` cannot be pinned", tool.name)).because(why))?;
    remarks.iter().for_each(|remark| output::note(format!("note: `{name}`: {remark}")));
    let merged = match file.capabilities.get(&name) {
        None => fresh,
        Some(known) => CapabilityFile {
            description: fresh.description,
            input_schema: fresh.input_schema,
            output_schema: fresh.output_schema,
            server_hints: fresh.server_hints,
            pin: fresh.pin,
            enabled: known.enabled && fresh.enabled,
            ..known.clone()
        },
    };
    file.capabilities.insert(name, merged);
    Ok(())
}

/// Writes the contract in place of the old one, its first comment lines kept.
fn replace(path: &Path, file: &ContractFile) -> Result<(), Failure> {
    let what = || format!("`{}` cannot be written", path.display());
    let old = crate::yaml::read_text(path).attempted(what())?;
    let mut text: String = old
        .lines()
        .take_while(|line| line.starts_with('#'))
        .flat_map(|line| [line, "\n"])
        .collect();
    text.push_str(&serde_saphyr::to_string(file).attempted(what())?);
    let back: ContractFile = serde_saphyr::from_str(&text).attempted(what())?;
    if back != *file {
        return Err(Failure::new(what()).because("it would not be read back as it is"));
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut draft = tempfile::NamedTempFile::new_in(folder).attempted(what())?;
    draft.write_all(text.as_bytes()).and_then(|()| draft.as_file().sync_all()).attempted(what())?;
    let permissions = fs::metadata(path).attempted(what())?.permissions();
    draft.as_file().set_permissions(permissions).attempted(what())?;
    draft.persist(path).attempted(what())?;
    Ok(())
}
