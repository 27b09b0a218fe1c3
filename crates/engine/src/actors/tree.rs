//! The live tree by name: which actors run, and how to make them fail.
//!
//! Owns the list that fault tests enumerate, so that a new actor is killed too. The kill is a panic in the actor's own handler.

use std::{collections::BTreeMap, fmt, future::Future, pin::Pin, sync::Arc};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use ractor::{Actor, ActorCell, ActorRef, ActorStatus, Message, SpawnErr};
use tokio::sync::oneshot;

use crate::{
    reload::{Order, ReloadError},
    views::status::ReloadView,
};

/// The actors that run.
#[derive(Default)]
pub(crate) struct Tree {
    policy: ArcSwapOption<ActorRef<PolicyMessage>>,
    adapters: ArcSwapOption<ActorRef<SupervisorMessage>>,
    nodes: Mutex<BTreeMap<String, Node>>,
}

struct Node {
    cell: ActorCell,
    fail: Box<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Tree {
    /// Enters an actor under its path, `root/gate/2`; `fault` is the message that makes it panic.
    pub(crate) fn enter<M: Message>(&self, path: &str, actor: &ActorRef<M>, fault: fn() -> M) {
        let target = actor.clone();
        let node =
            Node { cell: actor.get_cell(), fail: Box::new(move || target.cast(fault()).is_ok()) };
        self.nodes.lock().insert(path.to_owned(), node);
    }

    pub(crate) fn set_adapters(&self, adapters: ActorRef<SupervisorMessage>) {
        self.adapters.store(Some(Arc::new(adapters)));
    }

    /// Adds an adapter to supervise. A supervisor that is down reads the list of adapters when it comes up.
    pub(crate) fn supervise(&self, child: ChildSpec) {
        if let Some(adapters) = &*self.adapters.load() {
            adapters.cast(SupervisorMessage::Add(child)).unwrap_or_default();
        }
    }

    pub(crate) fn set_policy(&self, policy: ActorRef<PolicyMessage>) {
        self.policy.store(Some(Arc::new(policy)));
    }

    /// Has the policy actor reload, and waits for the result.
    pub(crate) async fn reload(&self, order: Order) -> Result<ReloadView, ReloadError> {
        let (reply, outcome) = oneshot::channel();
        let actor = self.policy.load_full().ok_or(ReloadError::Unavailable)?;
        let message = PolicyMessage::Reload(order, reply);
        actor.cast(message).map_err(|_gone| ReloadError::Unavailable)?;
        outcome.await.unwrap_or(Err(ReloadError::Unavailable))
    }

    /// The paths of all actors that are up.
    pub(crate) fn names(&self) -> Vec<String> {
        let nodes = self.nodes.lock();
        let up = nodes.iter().filter(|(_, node)| is_up(&node.cell));
        up.map(|(path, _)| path.clone()).collect()
    }

    /// How many actors the runtime knows in this tree, root included: must equal the number of names.
    pub(crate) fn runtime_count(&self) -> usize {
        let root = {
            let nodes = self.nodes.lock();
            nodes.get("root").map(|node| node.cell.clone())
        };
        root.map_or(0, |cell| count(&cell))
    }

    /// Makes an actor panic; `false` when no actor of that name accepts messages.
    pub(crate) fn fail(&self, path: &str) -> bool {
        let nodes = self.nodes.lock();
        nodes.get(path).is_some_and(|node| (node.fail)())
    }

    /// Stops the root and everything below it; call it only when nothing is in flight any more.
    pub(crate) fn stop(&self) {
        let nodes = self.nodes.lock();
        if let Some(root) = nodes.get("root") {
            root.cell.stop(Some("the engine stops".to_owned()));
        }
    }

    /// The id of the actor under `path`, if it is up.
    pub(crate) fn id(&self, path: &str) -> Option<String> {
        let nodes = self.nodes.lock();
        let node = nodes.get(path)?;
        (is_up(&node.cell)).then(|| node.cell.get_id().to_string())
    }
}

/// Whether an actor accepts messages; one that is starting does.
fn is_up(cell: &ActorCell) -> bool {
    matches!(
        cell.get_status(),
        ActorStatus::Unstarted
            | ActorStatus::Starting
            | ActorStatus::Running
            | ActorStatus::Upgrading
    )
}

fn count(cell: &ActorCell) -> usize {
    cell.get_children().iter().map(count).fold(1_usize, usize::saturating_add)
}

/// Panics: the fault that fault injection injects.
#[expect(
    clippy::panic,
    reason = "an injected fault must be a real panic; only `Engine::inject_fault` sends it"
)]
pub(crate) fn injected_fault() {
    panic!("injected fault");
}

/// What the policy actor is told.
#[derive(Debug)]
pub(crate) enum PolicyMessage {
    /// Read everything again and activate it.
    Reload(Order, oneshot::Sender<Result<ReloadView, ReloadError>>),
    /// Panic.
    Fault,
}

/// How to start one child below a supervisor.
pub(crate) struct ChildSpec {
    pub(crate) path: String,
    pub(crate) spawn: Box<dyn Fn(ActorCell) -> Spawning + Send + Sync>,
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChildSpec").field(&self.path).finish()
    }
}

type Spawning = Pin<Box<dyn Future<Output = Result<ActorCell, SpawnErr>> + Send>>;

/// What a supervisor is told.
#[derive(Debug)]
pub(crate) enum SupervisorMessage {
    /// Start one more child.
    Add(ChildSpec),
    /// Start the child of this number again.
    Restart(usize),
    /// Panic.
    Fault,
}

impl ChildSpec {
    /// A child under a path; each start makes another actor.
    pub(crate) fn new<A>(path: String, make: impl Fn() -> A + Send + Sync + 'static) -> Self
    where
        A: Actor<Arguments = ()>,
    {
        Self {
            path,
            spawn: Box::new(move |parent: ActorCell| {
                let actor = make();
                Box::pin(async move {
                    let (child, _): (ActorRef<A::Msg>, _) =
                        Actor::spawn_linked(None, actor, (), parent).await?;
                    Ok(child.get_cell())
                })
            }),
        }
    }
}
