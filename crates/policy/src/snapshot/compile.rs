//! From a bundle's text to a [`Snapshot`], or to everything that is wrong with it.
//!
//! Owns the order of the checks: sizes, syntax, annotations, schema, strict validation at level 2. All problems of a stage
//! are reported together, so that an author fixes them in one go.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cedar_policy::{
    EntityUid, Policy, PolicyId, PolicySet, Schema, SchemaFragment, ValidationMode, Validator,
};
use miette::Diagnostic;
use placet_types::{
    contract::{Capability, Contract},
    directory::Directory,
    ids::EnvironmentName,
};

use super::{Snapshot, ToolPlan, UntypedTool, attributes, judged::Judged, literals, slice::Slicer};
use crate::{
    actions,
    annotations::{self, ApprovalRule, Place, PolicyMeta},
    bundle::{
        BundleProblem, BundleSource, FILE_BYTES_MAX, FILES_MAX, POLICIES_MAX, PolicyFile, Severity,
    },
    condition,
    entities::{KnownEntities, ToolEntities},
    history::HistoryShape,
    input::InputType,
    nesting,
    route::{WrittenGroup, WrittenTenant},
    schema,
    vocabulary::{Vocabulary, lower_action},
};

/// How far policies may follow references; then one query knows which entities to load.
const LEVEL_MAX: u32 = 2;

type Problems = Vec<BundleProblem>;

pub(super) fn compile(
    source: &BundleSource,
    contracts: &[Arc<Contract>],
    directory: &Directory,
    environment: &EnvironmentName,
    epoch: u64,
) -> Result<Snapshot, Problems> {
    check_sizes(source)?;
    let (policies, set) = read_policies(source)?;
    let names = Vocabulary::new().map_err(internal)?;
    let (drafts, untyped) = draft_tools(contracts);
    let history = HistoryShape::of(drafts.iter().map(|draft| draft.capability));
    let schema_text = schema::text(
        environment,
        &history,
        drafts.iter().map(|draft| (draft.capability, draft.input.as_ref())),
    );
    let (fragment, _warnings) =
        SchemaFragment::from_cedarschema_str(&schema_text).map_err(internal)?;
    let schema = Schema::from_schema_fragments([fragment.clone()]).map_err(internal)?;
    literals::check(&names, source, &set, &policies, contracts, directory)?;
    Judged::of(&names, &set, &drafts)
        .validate(environment, &history, |schema, set| validate(source, &policies, set, schema))?;
    attributes::check(source, &set, &policies, fragment)?;
    check_groups(&policies, directory)?;
    let mut slicer = Slicer::new(&set);
    let mut tools = BTreeMap::new();
    for draft in drafts {
        let id = draft.capability.id.clone();
        let plan = plan_tool(&names, &policies, &mut slicer, draft)?;
        if tools.insert(id.clone(), Arc::new(plan)).is_some() {
            return Err(vec![BundleProblem::of_bundle(format!(
                "two contracts have the tool `{id}`"
            ))]);
        }
    }
    let lineage = |group: &'static str, actions: &[&'static str]| {
        actions.iter().chain([&group]).map(|action| names.action_uid(action)).collect()
    };
    let reviewing = lineage("review", &actions::REVIEWING);
    let managing = lineage("manage", &actions::MANAGING);
    Ok(Snapshot {
        digest: source.digest(),
        epoch,
        review_slice: slicer.slice(&reviewing).map_err(internal)?,
        manage_slice: slicer.slice(&managing).map_err(internal)?,
        names,
        schema,
        schema_text,
        directory: directory.clone(),
        policies: policies.into_iter().map(|policy| (policy.id.clone(), policy)).collect(),
        set,
        tools,
        untyped,
        known: KnownEntities::default(),
        history,
    })
}

/// A fault that cannot be the bundle author's.
pub(super) fn internal(error: impl std::fmt::Display) -> Problems {
    vec![BundleProblem::of_bundle(format!("the bundle cannot be compiled: {error}"))]
}

fn check_sizes(source: &BundleSource) -> Result<(), Problems> {
    if source.files.len() > FILES_MAX {
        return Err(vec![BundleProblem::of_bundle(format!(
            "there are more than {FILES_MAX} files"
        ))]);
    }
    let large = source.files.iter().filter(|file| file.text.len() > FILE_BYTES_MAX);
    let problems: Problems = large
        .map(|file| BundleProblem {
            file: file.name.clone(),
            ..BundleProblem::of_bundle(format!("the file is longer than {FILE_BYTES_MAX} bytes"))
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Parses every file and reads every policy's annotations; the set has the policies under their `@id`.
pub(super) fn read_policies(
    source: &BundleSource,
) -> Result<(Vec<PolicyMeta>, PolicySet), Problems> {
    let mut problems = Problems::new();
    let mut read: Vec<(PolicyMeta, Policy)> = Vec::new();
    for file in &source.files {
        match read_file(file) {
            Ok(policies) => read.extend(policies),
            Err(found) => problems.extend(found),
        }
    }
    let mut seen: BTreeMap<&str, &PolicyMeta> = BTreeMap::new();
    for (meta, _) in &read {
        if let Some(first) = seen.insert(&meta.id, meta) {
            problems.push(BundleProblem {
                file: meta.file.clone(),
                line: meta.line,
                policy: Some(meta.id.clone()),
                ..BundleProblem::of_bundle(format!(
                    "the `@id` is taken by a policy in {}",
                    first.file
                ))
            });
        }
    }
    if problems.is_empty() && read.is_empty() {
        problems.push(
            BundleProblem::of_bundle("there is no policy, so every call would be denied")
                .with_help("put at least one `*.cedar` file with a `permit` in the folder"),
        );
    }
    if read.len() > POLICIES_MAX {
        problems
            .push(BundleProblem::of_bundle(format!("there are more than {POLICIES_MAX} policies")));
    }
    if !problems.is_empty() {
        problems.sort();
        return Err(problems);
    }
    let named = read.iter().map(|(meta, policy)| policy.new_id(PolicyId::new(&meta.id)));
    let set = PolicySet::from_policies(named).map_err(internal)?;
    Ok((read.into_iter().map(|(meta, _)| meta).collect(), set))
}

fn read_file(file: &PolicyFile) -> Result<Vec<(PolicyMeta, Policy)>, Problems> {
    if let Some(line) = nesting::too_deep(&file.text) {
        return Err(vec![BundleProblem {
            file: file.name.clone(),
            line: Some(line),
            ..BundleProblem::of_bundle(format!(
                "the condition nests more than {} levels deep",
                nesting::DEPTH_MAX
            ))
        }
        .with_help("write long rows of `||` and `&&` as a set, `[…].contains(…)`, or in brackets of twenty each")]);
    }
    let parsed: PolicySet = file.text.parse().map_err(|errors: cedar_policy::ParseErrors| {
        errors
            .iter()
            .map(|error| diagnosed(file, None, Severity::Error, error))
            .collect::<Problems>()
    })?;
    let mut problems = Problems::new();
    for template in parsed.templates() {
        problems.push(BundleProblem {
            file: file.name.clone(),
            policy: template.annotation("id").map(str::to_owned),
            ..BundleProblem::of_bundle("templates are not used: write the policy out")
        });
    }
    let mut read = Vec::new();
    for policy in parsed.policies() {
        let text = policy.to_cedar().unwrap_or_default();
        let line = place_of(&file.text, &text).map(|at| line_at(&file.text, at));
        match annotations::read(policy, Place { file: &file.name, line }, text) {
            Ok(mut meta) => {
                meta.expanded = condition::expanded(&meta);
                let policy = match &meta.expanded {
                    Some(text) => Policy::parse(None, text).map_err(internal)?,
                    None => policy.clone(),
                };
                read.push((meta, policy));
            }
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(read) } else { Err(problems) }
}

/// Where a policy stands in its file: not in a comment, where its text may stand too.
pub(super) fn place_of(file: &str, policy: &str) -> Option<usize> {
    let is_code = |at: &usize| {
        let before = file.get(..*at).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        // Outside of strings, of which every second part is one.
        let code = line.split('"').step_by(2);
        !code.into_iter().any(|part| part.contains("//"))
    };
    let mut places = file.match_indices(policy).map(|(at, _)| at);
    places.clone().find(is_code).or_else(|| places.next())
}

pub(super) fn line_at(text: &str, at: usize) -> u32 {
    let breaks = text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    u32::try_from(breaks).unwrap_or(u32::MAX).saturating_add(1)
}

/// The bundle's policies in the form used for decisions: each file with the clauses that annotations generate.
pub(super) fn expanded(source: &BundleSource) -> Result<Vec<PolicyFile>, Problems> {
    check_sizes(source)?;
    let (policies, _) = read_policies(source)?;
    let files = source.files.iter().map(|file| {
        let own = policies.iter().filter(|policy| policy.file == file.name);
        let text = own.fold(file.text.clone(), |text, policy| match &policy.expanded {
            Some(expanded) => replaced(text, &policy.text, expanded),
            None => text,
        });
        PolicyFile { name: file.name.clone(), text }
    });
    Ok(files.collect())
}

fn replaced(mut file: String, policy: &str, by: &str) -> String {
    if let Some(at) = place_of(&file, policy) {
        file.replace_range(at..at.saturating_add(policy.len()), by);
    }
    file
}

/// A problem that Cedar found, with its place and advice.
fn diagnosed(
    file: &PolicyFile,
    policy: Option<&PolicyMeta>,
    severity: Severity,
    error: &(impl Diagnostic + ?Sized),
) -> BundleProblem {
    let label = error.labels().and_then(|mut labels| labels.next());
    let own_text = policy.and_then(|policy| policy.expanded.as_deref().zip(policy.line));
    let line = label.map(|label| match own_text {
        // Lines of a policy with a generated clause are counted from its beginning.
        Some((text, begins)) => {
            line_at(text, label.offset()).saturating_add(begins).saturating_sub(1)
        }
        None => line_at(&file.text, label.offset()),
    });
    BundleProblem {
        file: file.name.clone(),
        line: line.or_else(|| policy.and_then(|policy| policy.line)),
        policy: policy.map(|policy| policy.id.clone()),
        severity,
        message: error.to_string(),
        help: error.help().map(|help| help.to_string()),
    }
}

fn validate(
    source: &BundleSource,
    policies: &[PolicyMeta],
    set: &PolicySet,
    schema: Schema,
) -> Result<(), Problems> {
    let result = Validator::new(schema).validate_with_level(set, ValidationMode::Strict, LEVEL_MAX);
    let nowhere = PolicyFile { name: String::new(), text: String::new() };
    let locate = |id: &PolicyId, severity, error: &dyn Diagnostic| {
        let meta = policies.iter().find(|policy| PolicyId::new(&policy.id) == *id);
        let file = meta.and_then(|meta| source.files.iter().find(|file| file.name == meta.file));
        diagnosed(file.unwrap_or(&nowhere), meta, severity, error)
    };
    let errors =
        result.validation_errors().map(|error| locate(error.policy_id(), Severity::Error, error));
    let warnings = result
        .validation_warnings()
        .map(|warning| locate(warning.policy_id(), Severity::Warning, warning));
    let mut problems: Problems = errors.chain(warnings).collect();
    problems.sort();
    problems.dedup();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// A tool whose plan is being made.
pub(super) struct Draft<'a> {
    contract: &'a Arc<Contract>,
    pub(super) capability: &'a Capability,
    pub(super) input: Option<InputType>,
}

pub(super) fn draft_tools(contracts: &[Arc<Contract>]) -> (Vec<Draft<'_>>, Vec<UntypedTool>) {
    let mut untyped = Vec::new();
    let mut drafts = Vec::new();
    let tools = contracts
        .iter()
        .flat_map(|contract| contract.capabilities.values().map(move |tool| (contract, tool)));
    for (contract, capability) in tools {
        let (input, unseen) = UntypedTool::of(capability);
        untyped.extend(unseen);
        drafts.push(Draft { contract, capability, input });
    }
    (drafts, untyped)
}

fn plan_tool(
    names: &Vocabulary,
    policies: &[PolicyMeta],
    slicer: &mut Slicer<'_>,
    draft: Draft<'_>,
) -> Result<ToolPlan, Problems> {
    let capability = draft.capability;
    let entities = ToolEntities::of(names, draft.contract, capability).map_err(internal)?;
    let lineage = |action: &str, groups: Vec<String>| -> BTreeSet<EntityUid> {
        groups
            .iter()
            .map(String::as_str)
            .chain([action])
            .map(|name| names.action_uid(name))
            .collect()
    };
    let (call, lower) = (capability.id.to_string(), lower_action(&capability.id));
    let mut groups = schema::parents(capability);
    groups.push("call_tool".to_owned());
    let call_slice = slicer.slice(&lineage(&call, groups)).map_err(internal)?;
    let asking =
        policies.iter().filter(|meta| call_slice.policy(&PolicyId::new(&meta.id)).is_some());
    let written = written_for(asking, capability, draft.input.as_ref())?;
    Ok(ToolPlan {
        contract_digest: draft.contract.digest,
        entities,
        tool: names.tool_uid(&capability.id),
        call: names.action_uid(&call),
        lower: names.action_uid(&lower),
        call_slice,
        written,
        lower_slice: slicer
            .slice(&lineage(&lower, vec!["lower_mode".to_owned()]))
            .map_err(internal)?,
        input: draft.input,
        contract: Arc::clone(draft.contract),
        name: capability.id.capability().clone(),
    })
}

/// The groups of other tenants that a policy asks, at once or later.
fn foreign(meta: &PolicyMeta) -> impl Iterator<Item = &WrittenGroup> {
    let route = match &meta.rule {
        ApprovalRule::Required(route) => Some(route),
        ApprovalRule::Never => None,
    };
    let groups = route
        .into_iter()
        .flat_map(|route| route.groups.keys().chain(route.steps.iter().map(|step| &step.group)));
    groups.filter(|group| group.of != WrittenTenant::Own)
}

/// Refuses policies that ask a named tenant for a group that its directory does not have.
fn check_groups(policies: &[PolicyMeta], directory: &Directory) -> Result<(), Problems> {
    let flaws = policies.iter().flat_map(|meta| {
        foreign(meta).filter_map(|group| Some(misrouted(meta, group.flaw(directory)?)))
    });
    let problems: Problems = flaws.collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// The groups of other tenants that the policies for a tool write, if the tool has the arguments that they need.
fn written_for<'a>(
    policies: impl Iterator<Item = &'a PolicyMeta>,
    capability: &Capability,
    input: Option<&InputType>,
) -> Result<Vec<WrittenGroup>, Problems> {
    let (mut written, mut problems) = (BTreeSet::new(), Problems::new());
    for meta in policies {
        for group in foreign(meta) {
            let flaw = group.flaw_for(capability, input);
            problems.extend(flaw.map(|flaw| misrouted(meta, flaw)));
            written.insert(group.clone());
        }
    }
    if problems.is_empty() { Ok(written.into_iter().collect()) } else { Err(problems) }
}

fn misrouted(meta: &PolicyMeta, message: String) -> BundleProblem {
    BundleProblem {
        file: meta.file.clone(),
        line: meta.line,
        policy: Some(meta.id.clone()),
        ..BundleProblem::of_bundle(message)
    }
    .with_help(
        "name a group that the other tenant's directory declares, and in the policy's scope only tools that require the argument",
    )
}
