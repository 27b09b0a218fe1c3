//! Aliases of read-only tools (TM-13): which are in force, and the answers that are given again under them.
//!
//! Owns when a capability has its alias, and the cached answers. A call by an alias is a call of its capability: built, decided, compared with
//! the pin, audited. Not here: what a contract must say ([`placet_types::contract::alias`]), and how calls went (`report::scores`).
//! Invariants: a cached answer goes to the caller that it was given to, for the same request, under the policies and contracts it was given
//! under; nothing of an alias outlives an activation.

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
    /// Whose live definition was found to differ from its pin, under the policies of which epoch.
    withdrawn: Mutex<HashSet<(u64, CapabilityId)>>,
    answers: Cache<Digest, Arc<Remembered>>,
}

/// Which capabilities score well enough.
#[derive(Debug, Default)]
pub(crate) struct Scores {
    /// Under the policies of which epoch; those of another count for nothing.
    pub(crate) epoch: u64,
    pub(crate) good: BTreeSet<CapabilityId>,
}

/// An answer that is given again.
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

    /// Takes away the alias of a capability whose live definition is not the pinned one, until something is activated.
    pub(crate) fn withdraw(&self, active: &Active, id: &CapabilityId) {
        let epoch = active.policy.epoch();
        let mut withdrawn = self.withdrawn.lock();
        withdrawn.retain(|(of, _)| *of == epoch);
        withdrawn.insert((epoch, id.clone()));
    }

    /// Whether tools are scored under these policies, where `again` does not say that they are to be scored once more. Nobody has to where no
    /// contract asks for it.
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

    /// The answer that this request got lately.
    pub(crate) fn remembered(&self, active: &Active, request: Digest) -> Option<Arc<Remembered>> {
        let remembered = self.answers.get(&key(active, request))?;
        (Instant::now() < remembered.until).then_some(remembered)
    }

    /// Keeps the answer of a call by an alias, for as long as its contract says.
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

/// Who asks what, under which policies: the digest of a request has the caller, the contract, the arguments and the credential in it.
fn key(active: &Active, request: Digest) -> Digest {
    DigestBuilder::new("placet.alias_answer.v1")
        .field("epoch", active.policy.epoch().to_be_bytes())
        .field("request", request.as_bytes())
        .finish()
}
