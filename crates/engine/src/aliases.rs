//! Aliases of read-only tools (TM-13): which are in force, and the cached answers that are returned under them.
//!
//! Owns when a capability has its alias, and the cached answers. A call by an alias is a call of its capability: built, decided, compared
//! with the pin, audited. Not here: what a contract must say ([`placet_types::contract::alias`]), and how calls went (`report::scores`).
//! Invariants: a cached answer goes only to the caller that first got it, for the same request, under the same policies and contracts;
//! nothing of an alias outlives an activation.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::time::Instant;

use placet_adapter::outcome::Answer;
use placet_types::{
    clock::Timestamp,
    contract::{
        Capability,
        alias::{ANSWER_TTL_MS_MAX, Alias, AliasWhen},
    },
    digest::{Digest, DigestBuilder},
    envelope::result::{ResultStatus, ToolResultEnvelope},
    ids::CapabilityId,
};

use crate::active::Active;

/// How many bytes of answers are kept.
const ANSWERS_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The aliases of a node.
#[derive(Debug)]
pub(crate) struct Aliases {
    scores: ArcSwap<Scores>,
    /// Capabilities whose live definition differed from the pin, each with the policy epoch under which that was found.
    withdrawn: Mutex<HashSet<(u64, CapabilityId)>>,
    answers: Cache<Digest, Arc<Remembered>>,
}

/// Which capabilities score well enough.
#[derive(Debug, Default)]
pub(crate) struct Scores {
    /// The policy epoch they were scored under; scores of another epoch do not count.
    pub(crate) epoch: u64,
    pub(crate) good: BTreeSet<CapabilityId>,
}

/// A cached answer.
#[derive(Debug)]
pub(crate) struct Remembered {
    pub(crate) answer: Answer,
    /// When the tool gave it.
    pub(crate) at: Timestamp,
    until: Instant,
    bytes: u32,
}

impl Default for Aliases {
    fn default() -> Self {
        let answers = Cache::builder()
            .max_capacity(ANSWERS_BYTES_MAX)
            .weigher(|_, remembered: &Arc<Remembered>| remembered.bytes)
            .time_to_live(Duration::from_millis(ANSWER_TTL_MS_MAX))
            .build();
        Self { scores: ArcSwap::default(), withdrawn: Mutex::default(), answers }
    }
}

impl Aliases {
    /// The alias that a capability has at this moment.
    pub(crate) fn of<'a>(&self, active: &Active, capability: &'a Capability) -> Option<&'a Alias> {
        let alias = capability.alias.as_ref()?;
        let (epoch, id) = (active.policy.epoch(), &capability.id);
        let is_good = || {
            let scores = self.scores.load();
            scores.epoch == epoch && scores.good.contains(id)
        };
        let is_in_force = active.catalog.aliased(&alias.name) == Some(id)
            && (alias.when == AliasWhen::Pinned || is_good())
            && !self.withdrawn.lock().contains(&(epoch, id.clone()));
        is_in_force.then_some(alias)
    }

    /// Withdraws the alias of a capability whose live definition is not the pinned one, until the next activation.
    pub(crate) fn withdraw(&self, active: &Active, id: &CapabilityId) {
        let epoch = active.policy.epoch();
        let mut withdrawn = self.withdrawn.lock();
        withdrawn.retain(|(of, _)| *of == epoch);
        withdrawn.insert((epoch, id.clone()));
    }

    /// Whether no scoring is due: tools are scored under these policies and `again` is not set, or no contract asks for scores.
    pub(crate) fn are_scored(&self, active: &Active, again: bool) -> bool {
        let is_asked = |capability: &Capability| {
            let alias = capability.alias.as_ref();
            alias.is_some_and(|alias| alias.when == AliasWhen::Scored)
        };
        (!again && self.scores.load().epoch == active.policy.epoch())
            || !active.catalog.contracts().any(|one| one.capabilities.values().any(is_asked))
    }

    pub(crate) fn score(&self, scores: Scores) {
        self.scores.store(Arc::new(scores));
    }

    /// The cached answer to this request, while it is valid.
    pub(crate) fn remembered(&self, active: &Active, request: Digest) -> Option<Arc<Remembered>> {
        let remembered = self.answers.get(&key(active, request))?;
        (Instant::now() < remembered.until).then_some(remembered)
    }

    /// Caches the answer of a call by an alias for as long as its contract says.
    pub(crate) fn remember(
        &self,
        active: &Active,
        alias: &Alias,
        request: Digest,
        result: &ToolResultEnvelope,
        at: Timestamp,
    ) {
        if alias.answer_ttl_ms == 0 || result.status != ResultStatus::Succeeded {
            return;
        }
        let answer = Answer {
            output: result.output.clone(),
            citations: result.citations.clone(),
            mutations: Vec::new(),
            cost_cents: Some(0),
        };
        let bytes = u32::try_from(answer.output.to_string().len()).unwrap_or(u32::MAX);
        let until = Instant::now() + Duration::from_millis(alias.answer_ttl_ms);
        let remembered = Remembered { answer, at, until, bytes };
        self.answers.insert(key(active, request), Arc::new(remembered));
    }
}

/// The cache key: the policy epoch and the request digest, which covers the caller, the contract, the arguments and the credential.
fn key(active: &Active, request: Digest) -> Digest {
    DigestBuilder::new("placet.alias_answer.v1")
        .field("epoch", active.policy.epoch().to_be_bytes())
        .field("request", request.as_bytes())
        .finish()
}
