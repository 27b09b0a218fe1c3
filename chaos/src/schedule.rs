//! Schedules: what is done to a deployment when, made from a seed and nothing else.
//!
//! Owns the list of possible steps, which fault each one stands for, and where it applies. Does not perform them. Invariant:
//! the same seed, store, number of nodes and choice of faults give the same schedule.

use std::collections::{BTreeMap, BTreeSet};

use placet_testkit::{
    postgres::proxy::Cut,
    strace::{At, Errno, Tamper},
};
use serde::{Deserialize, Serialize};

use crate::{
    history::fault::FaultKind,
    load::{self, Doing},
    seeded::Chance,
};

/// Where the ledger is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Store {
    /// In the node's own data folder.
    Embedded,
    /// In a PostgreSQL server that the nodes share.
    Postgres,
}

impl Store {
    /// The word on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Postgres => "postgres",
        }
    }
}

/// The course of a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Schedule {
    pub(crate) seed: u64,
    pub(crate) store: Store,
    pub(crate) nodes: usize,
    /// How long load and faults last, in milliseconds.
    pub(crate) length_ms: u64,
    /// Whether the retention of results is short (F18).
    pub(crate) short_retention: bool,
    pub(crate) load: load::Plan,
    pub(crate) steps: Vec<Step>,
}

/// One act on the deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// When, in milliseconds after the load began.
    pub(crate) at_ms: u64,
    pub(crate) node: usize,
    #[serde(flatten)]
    pub(crate) act: Act,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub(crate) enum Act {
    /// SIGKILL, whatever it is doing (F4).
    Kill,
    /// SIGKILL while the upstream has the call: before its effect, or after it (F4).
    KillAtEffect { after: bool },
    /// SIGKILL before a late effect that nobody knows of yet (F16).
    KillDelayed {
        /// How long after its call it comes, in milliseconds.
        ms: u64,
    },
    /// SIGKILL, and again at system calls of the recovery (F5).
    KillInRecovery { at: Vec<At> },
    /// SIGSTOP, and SIGCONT later (F9).
    Pause { ms: u64 },
    /// The clock jumps, and back later (F10).
    Clock { by_s: i64 },
    /// System calls of the disk fail or take long (F11).
    Disk { at: At },
    /// The policies change while calls are in flight (F15).
    Policy,
    /// The credential is taken away for a moment (F15).
    Credential { ms: u64 },
    /// SIGKILL while a keyed call is in flight, and a start after its window (F17).
    Window,
    /// Calls whose results are no longer kept are repeated (F18).
    Expired,
    /// Backends of the database are ended (F20).
    Backends,
    /// Connections are lost at COMMIT, or the database takes it for a conflict (F20).
    Cut { cut: Cut, times: usize },
    /// The primary dies and the replica is promoted (F20).
    FailOver,
    /// Every table is locked by another client (F20).
    Lock { ms: u64 },
    /// The server takes hardly any connections (F20).
    Exhaust { ms: u64 },
    /// More calls at once than are admitted (F22).
    Burst { size: u64 },
    /// SIGTERM, and a start after it (F23).
    Stop,
}

impl Act {
    pub(crate) const fn fault(&self) -> FaultKind {
        match self {
            Self::Kill | Self::KillAtEffect { .. } => FaultKind::F4,
            Self::KillDelayed { .. } => FaultKind::F16,
            Self::KillInRecovery { .. } => FaultKind::F5,
            Self::Pause { .. } => FaultKind::F9,
            Self::Clock { .. } => FaultKind::F10,
            Self::Disk { .. } => FaultKind::F11,
            Self::Policy | Self::Credential { .. } => FaultKind::F15,
            Self::Window => FaultKind::F17,
            Self::Expired => FaultKind::F18,
            Self::Backends
            | Self::Cut { .. }
            | Self::FailOver
            | Self::Lock { .. }
            | Self::Exhaust { .. } => FaultKind::F20,
            Self::Burst { .. } => FaultKind::F22,
            Self::Stop => FaultKind::F23,
        }
    }
}

/// The limits of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) store: Store,
    pub(crate) nodes: usize,
    pub(crate) length_ms: u64,
    pub(crate) faults: BTreeSet<FaultKind>,
}

/// The schedule of a seed.
pub(crate) fn draw(seed: u64, frame: &Frame) -> Schedule {
    let chance = Chance::new(seed);
    let mut steps = Vec::new();
    let mut drawn = chance.fork("steps");
    let makers: Vec<Maker> = MAKERS
        .iter()
        .filter(|maker| frame.faults.contains(&maker.0) && applies(maker.0, frame.store))
        .copied()
        .collect();
    let count = if makers.is_empty() { 0 } else { drawn.within(2..5) };
    let mut at_ms = drawn.within(300..900);
    for _ in 0..count {
        let Some((_, make)) = drawn.pick(&makers) else { break };
        let node = drawn.index(frame.nodes);
        steps.push(Step { at_ms, node, act: make(&mut drawn, frame) });
        at_ms = at_ms.saturating_add(drawn.within(500..1_600));
    }
    let short_retention = steps.iter().any(|step| step.act == Act::Expired);
    Schedule {
        seed,
        store: frame.store,
        nodes: frame.nodes,
        length_ms: frame.length_ms.max(at_ms),
        short_retention,
        load: load_of(chance.fork("load"), frame),
        steps,
    }
}

/// The faults of a schedule, for which it is worth running.
pub(crate) fn faults_of(schedule: &Schedule) -> BTreeSet<FaultKind> {
    let steps = schedule.steps.iter().map(|step| step.act.fault());
    let load = schedule.load.weights.iter().filter(|(_, weight)| **weight > 0);
    steps.chain(load.filter_map(|(doing, _)| doing.fault())).collect()
}

/// Whether a fault can happen on a store at all.
pub(crate) const fn applies(fault: FaultKind, store: Store) -> bool {
    match store {
        Store::Embedded => !matches!(fault, FaultKind::F20),
        // The disk of the database is outside our scope.
        Store::Postgres => !matches!(fault, FaultKind::F11),
    }
}

fn load_of(mut chance: Chance, frame: &Frame) -> load::Plan {
    const WEIGHTS: [(Doing, u32); 14] = [
        (Doing::Call, 40),
        (Doing::Copies, 14),
        (Doing::Again, 14),
        (Doing::Changed, 8),
        (Doing::Somebody, 6),
        (Doing::Leave, 6),
        (Doing::Held, 7),
        (Doing::Granted, 3),
        (Doing::Upstream, 5),
        (Doing::UpstreamEnds, 1),
        (Doing::Delayed, 2),
        (Doing::Result, 3),
        (Doing::Rearmed, 2),
        (Doing::Declined, 2),
    ];
    let mut weights = BTreeMap::new();
    for (doing, weight) in WEIGHTS {
        let wanted = doing.fault().is_none_or(|fault| frame.faults.contains(&fault));
        // Each round leaves something out, so that the rest is observed without it.
        let kept = matches!(doing, Doing::Call) || chance.permille(850);
        weights.insert(doing, if wanted && kept { weight } else { 0 });
    }
    load::Plan {
        clients: u32::try_from(chance.within(4..9)).unwrap_or(4),
        pause_ms_max: chance.within(5..40),
        calls_max: 1_500,
        weights,
    }
}

type Maker = (FaultKind, fn(&mut Chance, &Frame) -> Act);

/// The constructors of steps, for each fault of processes.
const MAKERS: &[Maker] = &[
    (FaultKind::F4, |_, _| Act::Kill),
    (FaultKind::F4, |chance, _| Act::KillAtEffect { after: chance.permille(500) }),
    (FaultKind::F5, |chance, frame| {
        let times = chance.within(1..4);
        Act::KillInRecovery { at: (0..times).map(|_| in_recovery(chance, frame)).collect() }
    }),
    (FaultKind::F9, |chance, frame| {
        // On a shared ledger usually longer than the lease, and often long enough for another node to shut it out.
        let span = if frame.store == Store::Postgres { 2_000..11_000 } else { 300..3_000 };
        Act::Pause { ms: chance.within(span) }
    }),
    (FaultKind::F10, |chance, _| {
        let by = i64::try_from(chance.within(1..4 * 3_600)).unwrap_or(1);
        Act::Clock { by_s: if chance.permille(500) { by } else { by.saturating_neg() } }
    }),
    (FaultKind::F11, |chance, _| Act::Disk { at: disk(chance) }),
    (FaultKind::F15, |chance, _| Act::Credential { ms: chance.within(100..800) }),
    (FaultKind::F15, |_, _| Act::Policy),
    (FaultKind::F17, |_, _| Act::Window),
    (FaultKind::F18, |_, _| Act::Expired),
    (FaultKind::F20, |_, _| Act::Backends),
    (FaultKind::F20, |chance, _| {
        const CUTS: [Cut; 3] = [Cut::BeforeCommit, Cut::AfterCommit, Cut::Conflict];
        let cut = chance.pick(&CUTS).copied().unwrap_or(Cut::BeforeCommit);
        Act::Cut { cut, times: usize::try_from(chance.within(1..4)).unwrap_or(1) }
    }),
    (FaultKind::F20, |_, _| Act::FailOver),
    (FaultKind::F20, |chance, _| Act::Lock { ms: chance.within(300..2_000) }),
    (FaultKind::F20, |chance, _| Act::Exhaust { ms: chance.within(500..2_500) }),
    (FaultKind::F22, |chance, _| Act::Burst { size: chance.within(150..600) }),
    (FaultKind::F23, |_, _| Act::Stop),
    // Later than a restart takes, and early enough for the call to take effect.
    (FaultKind::F16, |chance, _| Act::KillDelayed { ms: chance.within(1_000..1_800) }),
];

fn in_recovery(chance: &mut Chance, frame: &Frame) -> At {
    const EMBEDDED: [&str; 9] = [
        "openat",
        "pread64",
        "pwrite64",
        "fdatasync",
        "fsync",
        "rename",
        "fallocate",
        "ftruncate",
        "unlink",
    ];
    const SHARED: [&str; 4] = ["openat", "sendto", "recvfrom", "connect"];
    let calls: &[&str] = if frame.store == Store::Embedded { &EMBEDDED } else { &SHARED };
    let call = chance.pick(calls).copied().unwrap_or("openat").to_owned();
    // Counted for each thread; some of these are made once or twice only, others a hundred times.
    let when = if chance.permille(700) { chance.within(1..4) } else { chance.within(4..24) };
    At { call, when, onwards: false, tamper: Tamper::Kill }
}

fn disk(chance: &mut Chance) -> At {
    let when = chance.within(1..20);
    let at = |call: &str, tamper, onwards| At { call: call.to_owned(), when, onwards, tamper };
    match chance.within(0..6) {
        0 => at("fdatasync", Tamper::Error(Errno::Io), false),
        1 => at("pwrite64", Tamper::Error(Errno::Io), false),
        2 => at("pwrite64", Tamper::Error(Errno::NoSpace), true),
        3 => at("fdatasync", Tamper::Error(Errno::NoSpace), false),
        4 => at("pwrite64", Tamper::Short, false),
        _ => at("fdatasync", Tamper::Delay(chance.within(200..1_500)), false),
    }
}

#[cfg(test)]
mod tests;
