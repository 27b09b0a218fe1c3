//! A compiled bundle: immutable, shared, everything that a decision needs.
//!
//! Owns compiling: parsing, the rules of [`crate::annotations`], the generated schema, strict validation, and the slices by
//! action. Invariant: a snapshot exists only for a bundle without any problem; slicing changes no decision.

use std::{collections::BTreeMap, fmt, sync::Arc};

use cedar_policy::{EntityUid, PolicySet, Schema};
use placet_types::{
    contract::{Capability, Contract},
    digest::Digest,
    directory::Directory,
    ids::{CapabilityId, CapabilityName, EnvironmentName},
};
use serde::Serialize;

use crate::{
    annotations::PolicyMeta,
    bundle::{BundleProblem, BundleSource, PolicyFile},
    decision::PolicyEffect,
    entities::{KnownEntities, ToolEntities},
    history::HistoryShape,
    input::{InputType, TypedInput},
    route::WrittenGroup,
    schema,
    vocabulary::Vocabulary,
};

mod attributes;
pub(crate) mod compile;
mod gates;
mod judged;
mod literals;
mod slice;

pub(crate) use literals::nearest;

/// A compiled bundle with the contracts and the directory it was compiled for.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) digest: Digest,
    pub(crate) epoch: u64,
    pub(crate) names: Vocabulary,
    pub(crate) schema: Schema,
    pub(crate) schema_text: String,
    pub(crate) directory: Directory,
    pub(crate) policies: BTreeMap<String, PolicyMeta>,
    pub(crate) set: PolicySet,
    pub(crate) tools: BTreeMap<CapabilityId, Arc<ToolPlan>>,
    pub(crate) review_slice: Arc<PolicySet>,
    pub(crate) manage_slice: Arc<PolicySet>,
    pub(crate) untyped: Vec<UntypedTool>,
    pub(crate) known: KnownEntities,
    pub(crate) history: HistoryShape,
}

/// What is known about a tool before anybody calls it.
#[derive(Debug)]
pub(crate) struct ToolPlan {
    pub(crate) contract_digest: Digest,
    pub(crate) input: Option<InputType>,
    pub(crate) entities: ToolEntities,
    pub(crate) tool: EntityUid,
    pub(crate) call: EntityUid,
    pub(crate) lower: EntityUid,
    pub(crate) call_slice: Arc<PolicySet>,
    pub(crate) lower_slice: Arc<PolicySet>,
    pub(crate) contract: Arc<Contract>,
    pub(crate) name: CapabilityName,
    /// Groups of other tenants that policies for the tool write.
    pub(crate) written: Vec<WrittenGroup>,
}

impl ToolPlan {
    /// The tool as its contract describes it.
    pub(crate) fn capability(&self) -> Option<&Capability> {
        self.contract.capabilities.get(&self.name)
    }
}

/// A policy of a bundle, for people to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicySummary {
    /// Its `@id`.
    pub id: String,
    /// Whether it permits or forbids.
    pub effect: PolicyEffect,
    /// All its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its text as written.
    pub text: String,
    /// The file it is in.
    pub file: String,
    /// The line it begins at.
    pub line: Option<u32>,
}

/// A tool of whose arguments policies do not see all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UntypedTool {
    /// The tool.
    pub capability: CapabilityId,
    /// What of its schema has no Cedar type and is left out of the input: where, and why.
    pub lost: Vec<String>,
    /// Places that admit undeclared arguments, which policies do not see.
    pub open: Vec<String>,
}

impl UntypedTool {
    /// What policies do not see of a tool's arguments; `None` if they see all.
    pub fn unseen(capability: &Capability) -> Option<Self> {
        Self::of(capability).1
    }

    /// The input that policies see, and what they do not.
    pub(crate) fn of(capability: &Capability) -> (Option<InputType>, Option<Self>) {
        let TypedInput { of, lost, open } = schema::typed_input(capability);
        let is_whole = lost.is_empty() && open.is_empty();
        (of, (!is_whole).then(|| Self { capability: capability.id.clone(), lost, open }))
    }
}

impl Snapshot {
    /// Compiles a bundle for these contracts and this directory.
    ///
    /// # Errors
    /// Everything that is wrong with the bundle: any error and any warning keeps it from being used, and so does having no
    /// policy at all.
    pub fn compile(
        source: &BundleSource,
        contracts: &[Arc<Contract>],
        directory: &Directory,
        environment: &EnvironmentName,
        epoch: u64,
    ) -> Result<Self, Vec<BundleProblem>> {
        compile::compile(source, contracts, directory, environment, epoch)
    }

    /// The digest that names the bundle.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The policy epoch this snapshot is active in.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The same policies in the epoch that their activation was given.
    #[must_use]
    pub fn at_epoch(mut self, epoch: u64) -> Self {
        self.epoch = epoch;
        self
    }

    /// The generated Cedar schema.
    pub fn schema_text(&self) -> &str {
        &self.schema_text
    }

    /// The policies by id.
    pub fn policies(&self) -> impl Iterator<Item = PolicySummary> {
        self.policies.values().map(|policy| PolicySummary {
            id: policy.id.clone(),
            effect: policy.effect,
            annotations: policy.annotations.clone(),
            text: policy.text.clone(),
            file: policy.file.clone(),
            line: policy.line,
        })
    }

    /// Tools whose arguments policies see only in part or not at all.
    pub fn untyped_tools(&self) -> &[UntypedTool] {
        &self.untyped
    }
}

/// The files of a bundle in the form used for decisions: each gate with the `unless` clause that its annotations generate.
///
/// # Errors
/// Everything that is wrong with the syntax and the annotations.
pub fn expanded(source: &BundleSource) -> Result<Vec<PolicyFile>, Vec<BundleProblem>> {
    compile::expanded(source)
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("digest", &self.digest)
            .field("epoch", &self.epoch)
            .field("policies", &self.policies.len())
            .field("tools", &self.tools.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
