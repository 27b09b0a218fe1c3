//! What load and faults act on, no matter who runs the nodes: listeners, people, the witness, and the history.
//!
//! Owns the numbering of requests and votes, the count of faults that really happened, and findings that only the harness can
//! make. Invariant: nothing is counted that is not in the history.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::{
    history::{
        What,
        fault::{FaultEvent, FaultKind},
        file::Recorder,
        node::{NodeChange, NodeEvent},
    },
    http::Api,
    people::People,
    world::World,
};

#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) api: Api,
    pub(crate) people: People,
    /// The upstream.
    pub(crate) world: World,
    pub(crate) recorder: Recorder,
    requests: AtomicU64,
    votes: AtomicU64,
    starts: AtomicU64,
    injected: Mutex<BTreeMap<FaultKind, u64>>,
    findings: Mutex<Vec<String>>,
}

impl Scene {
    pub(crate) fn new(api: Api, people: People, world: World, recorder: Recorder) -> Self {
        Self {
            api,
            people,
            world,
            recorder,
            requests: AtomicU64::new(0),
            votes: AtomicU64::new(0),
            starts: AtomicU64::new(0),
            injected: Mutex::default(),
            findings: Mutex::default(),
        }
    }

    pub(crate) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    pub(crate) fn next_vote(&self) -> u64 {
        self.votes.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// How often nodes came up.
    pub(crate) fn starts(&self) -> u64 {
        self.starts.load(Ordering::SeqCst)
    }

    /// Notes a fault that really happened.
    pub(crate) fn injected(&self, kind: FaultKind, node: Option<usize>, detail: impl Into<String>) {
        let node = node.and_then(|node| u32::try_from(node).ok());
        self.recorder.record(What::Fault(FaultEvent { kind, node, detail: detail.into() }));
        let mut counts = self.injected.lock();
        let count = counts.entry(kind).or_default();
        *count = count.saturating_add(1);
    }

    /// The faults that really happened so far.
    pub(crate) fn injections(&self) -> BTreeMap<FaultKind, u64> {
        self.injected.lock().clone()
    }

    /// The findings that only the harness can make.
    pub(crate) fn findings(&self) -> Vec<String> {
        self.findings.lock().clone()
    }

    pub(crate) fn find(&self, what: String) {
        self.findings.lock().push(what);
    }

    pub(crate) fn note(&self, node: usize, change: NodeChange) {
        if let NodeChange::Ready { .. } = change {
            self.starts.fetch_add(1, Ordering::SeqCst);
        }
        let node = u32::try_from(node).unwrap_or(u32::MAX);
        self.recorder.record(What::Node(NodeEvent { node, change }));
    }
}
