//! The runs that are open on this node.
//!
//! Owns who may find which run, and how many there are. Invariant: a caller finds only its own runs, and cannot evict those of another
//! caller.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use placet_types::{
    error::{ErrorCode, Refusal},
    ids::{IdempotencyKey, RunId},
};

use super::state::Run;
use crate::registry::Owner;

/// The most runs that are open on a node, for one tenant, and for one caller. Beyond the first two no run is opened; beyond the third the
/// caller's least recently used run is dropped.
const RUNS_MAX: usize = 10_000;
const RUNS_PER_TENANT_MAX: usize = 7_500;
const RUNS_PER_CALLER_MAX: usize = 1_000;
/// How long an unused run stays open.
const IDLE: Duration = Duration::from_secs(60 * 60);

/// An open run.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) state: Mutex<Run>,
    /// Held by the batch in flight.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    /// The id of that batch, or of the last one.
    pub(crate) doing: Mutex<Option<IdempotencyKey>>,
    /// Cancelled when the run is closed.
    pub(crate) closed: CancellationToken,
}

impl Open {
    pub(crate) fn new(run: Run) -> Self {
        Self {
            state: Mutex::new(run),
            turn: Arc::default(),
            doing: Mutex::default(),
            closed: CancellationToken::new(),
        }
    }
}

/// An open run with its owner.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) owner: Owner,
    pub(crate) run_id: RunId,
    pub(crate) run: Arc<Open>,
    /// How long it has not been used.
    pub(crate) idle: Duration,
}

#[derive(Debug)]
struct Kept {
    run: Arc<Open>,
    used: Instant,
}

impl Kept {
    fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used) >= IDLE
    }
}

type Key = (Owner, RunId);

/// Every open run.
#[derive(Debug, Default)]
pub(crate) struct Runs(Mutex<HashMap<Key, Kept>>);

impl Runs {
    /// Adds a run that its caller opened.
    pub(crate) fn open(&self, owner: Owner, run: Run) -> Result<(), Refusal> {
        let key = (owner, run.request.run_id.clone());
        let now = Instant::now();
        let mut runs = self.0.lock();
        runs.retain(|_, kept| !kept.is_idle(now));
        if runs.contains_key(&key) {
            return Err(taken());
        }
        let theirs = || runs.iter().filter(|((owner, _), _)| *owner == key.0);
        let oldest = (theirs().count() >= RUNS_PER_CALLER_MAX)
            .then(|| theirs().min_by_key(|(_, kept)| kept.used).map(|(key, _)| key.clone()));
        if let Some(oldest) = oldest.flatten() {
            runs.remove(&oldest);
        }
        let of_tenant = runs.keys().filter(|(owner, _)| owner.tenant == key.0.tenant).count();
        if of_tenant >= RUNS_PER_TENANT_MAX || runs.len() >= RUNS_MAX {
            return Err(Refusal::new(ErrorCode::Overloaded, "too many runs are open on this node")
                .with_retry_after_ms(60_000));
        }
        let run = Arc::new(Open::new(run));
        runs.insert(key, Kept { run, used: now });
        Ok(())
    }

    /// Closes a run of the caller, where it is open.
    pub(crate) fn close(&self, owner: Owner, run_id: &RunId) {
        if let Some(kept) = self.0.lock().remove(&(owner, run_id.clone())) {
            kept.run.closed.cancel();
        }
    }

    /// Checks that no run with this id is open.
    pub(crate) fn must_be_free(&self, owner: &Owner, run_id: &RunId) -> Result<(), Refusal> {
        self.find(owner, run_id).map_or(Ok(()), |_open| Err(taken()))
    }

    /// An open run of the caller.
    pub(crate) fn of(&self, owner: &Owner, run_id: &RunId) -> Result<Arc<Open>, Refusal> {
        self.find(owner, run_id).ok_or_else(|| {
            Refusal::new(ErrorCode::RunNotFound, "there is no such run or session open here")
        })
    }

    /// The open runs for which `wants` holds, the most recently used first.
    pub(crate) fn list(&self, wants: impl Fn(&Owner, &RunId) -> bool) -> Vec<Listed> {
        let now = Instant::now();
        let runs = self.0.lock();
        let wanted =
            runs.iter().filter(|((owner, id), kept)| !kept.is_idle(now) && wants(owner, id));
        let mut listed: Vec<Listed> = wanted
            .map(|((owner, run_id), kept)| Listed {
                owner: owner.clone(),
                run_id: run_id.clone(),
                run: Arc::clone(&kept.run),
                idle: now.saturating_duration_since(kept.used),
            })
            .collect();
        drop(runs);
        listed.sort_by_key(|one| one.idle);
        listed
    }

    fn find(&self, owner: &Owner, run_id: &RunId) -> Option<Arc<Open>> {
        let now = Instant::now();
        let mut runs = self.0.lock();
        let kept = runs.get_mut(&(owner.clone(), run_id.clone()))?;
        if kept.is_idle(now) {
            return None;
        }
        kept.used = now;
        Some(Arc::clone(&kept.run))
    }
}

fn taken() -> Refusal {
    Refusal::new(ErrorCode::RunTaken, "a run of this name is open already")
}

#[cfg(test)]
mod tests {
    use placet_types::{
        ids::{PrincipalId, TenantId},
        principal::{Principal, PrincipalChain, PrincipalKind},
    };
    use serde_json::json;

    use super::*;
    use crate::runs::offer::Tools;

    const HALF_OF_IDLE: Duration = Duration::from_secs(30 * 60);

    fn owner(name: &str) -> Owner {
        owner_in("acme", name)
    }

    fn owner_in(tenant: &str, name: &str) -> Owner {
        let actor = Principal {
            kind: PrincipalKind::Agent,
            tenant_id: TenantId::new(tenant).unwrap(),
            id: PrincipalId::new(name).unwrap(),
            display: None,
        };
        Owner::of(&PrincipalChain { actor, on_behalf_of: None, via: Vec::new() })
    }

    fn run(id: &str) -> Run {
        let request = json!({ "run": { "run_id": id } });
        Run::opened(serde_json::from_value(request).unwrap(), &Tools::new()).unwrap()
    }

    fn id(text: &str) -> RunId {
        RunId::new(text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_is_its_callers_taken_while_it_is_open_and_dropped_when_idle() {
        let runs = Runs::default();
        runs.open(owner("ana"), run("r")).unwrap();
        assert_eq!(runs.open(owner("ana"), run("r")).unwrap_err().code, ErrorCode::RunTaken);
        assert_eq!(runs.of(&owner("bob"), &id("r")).unwrap_err().code, ErrorCode::RunNotFound);
        runs.open(owner("bob"), run("r")).unwrap();
        tokio::time::advance(HALF_OF_IDLE).await;
        runs.of(&owner("ana"), &id("r")).unwrap();
        tokio::time::advance(HALF_OF_IDLE).await;
        runs.of(&owner("ana"), &id("r")).unwrap();
        assert_eq!(runs.of(&owner("bob"), &id("r")).unwrap_err().code, ErrorCode::RunNotFound);
        runs.open(owner("bob"), run("r")).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_caller_drops_its_own_oldest_run_and_nobody_elses() {
        let runs = Runs::default();
        runs.open(owner("bob"), run("first")).unwrap();
        for number in 0..=RUNS_PER_CALLER_MAX {
            tokio::time::advance(Duration::from_millis(1)).await;
            runs.open(owner("ana"), run(&format!("r{number}"))).unwrap();
        }
        assert_eq!(runs.of(&owner("ana"), &id("r0")).unwrap_err().code, ErrorCode::RunNotFound);
        runs.of(&owner("ana"), &id("r1")).unwrap();
        runs.of(&owner("bob"), &id("first")).unwrap();
    }

    #[test]
    fn one_tenant_leaves_runs_for_others() {
        let runs = Runs::default();
        let open = Arc::new(Open::new(run("r")));
        for number in 0..RUNS_PER_TENANT_MAX {
            let kept = Kept { run: Arc::clone(&open), used: Instant::now() };
            runs.0.lock().insert((owner("ana"), id(&format!("r{number}"))), kept);
        }
        assert_eq!(runs.open(owner("bob"), run("r")).unwrap_err().code, ErrorCode::Overloaded);
        runs.open(owner_in("globex", "ana"), run("r")).unwrap();
    }
}
