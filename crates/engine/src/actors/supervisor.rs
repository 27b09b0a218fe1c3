//! One supervisor for the whole tree: restarts its children one for one, with intensity and backoff.
//!
//! Owns the restart rule, since supervision in ractor is notification only. Escalates by ending the process.

use std::{collections::HashMap, collections::VecDeque, sync::Arc, time::Duration};

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::time::Instant;

use crate::{
    actors::tree::{ChildSpec, SupervisorMessage, Tree, injected_fault},
    adapters::ports::backoff,
    context::Context,
};

/// The path under which the adapters' supervisors run.
pub(crate) const ADAPTERS: &str = "root/invoke";
/// Why the supervisor of an adapter ends whose contract is no longer active.
pub(crate) const RETIRED: &str = "its contract is not active any more";

/// Restarts within [`WINDOW`] that end the process.
const RESTARTS_MAX: usize = 100;
const WINDOW: Duration = Duration::from_secs(30);

/// A supervisor of some children.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) context: Arc<Context>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) path: String,
    pub(crate) children: Vec<ChildSpec>,
}

/// What a supervisor remembers.
#[derive(Debug, Default)]
pub(crate) struct SupervisorState {
    running: HashMap<ActorId, usize>,
    restarts: VecDeque<Instant>,
    tries: HashMap<usize, (u32, Instant)>,
    /// Children that were added later.
    added: Vec<ChildSpec>,
}

impl Actor for Supervisor {
    type Msg = SupervisorMessage;
    type State = SupervisorState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<SupervisorState, ActorProcessingErr> {
        let mut state = SupervisorState::default();
        for (number, child) in self.children.iter().enumerate() {
            let cell = (child.spawn)(myself.get_cell()).await?;
            state.running.insert(cell.get_id(), number);
        }
        self.tree.enter(&self.path, &myself, || SupervisorMessage::Fault);
        if self.path == ADAPTERS {
            self.tree.set_adapters(myself);
        }
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: SupervisorMessage,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMessage::Add(child) => {
                let number = self.children.len().saturating_add(state.added.len());
                state.added.push(child);
                self.restart(&myself, number, state).await;
            }
            SupervisorMessage::Restart(number) => self.restart(&myself, number, state).await,
            SupervisorMessage::Fault => injected_fault(),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, why) = match event {
            SupervisionEvent::ActorFailed(cell, error) => (cell, error.to_string()),
            SupervisionEvent::ActorTerminated(cell, _, reason) => {
                (cell, reason.unwrap_or_default())
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {
                return Ok(());
            }
        };
        let Some(number) = state.running.remove(&cell.get_id()) else { return Ok(()) };
        if why == RETIRED {
            return Ok(());
        }
        if let Some(child) = self.child(number, state) {
            tracing::warn!(actor = %child.path, %why, "an actor ended and is started again");
            self.context.metrics.count_actor_restart(role_of(&child.path));
        }
        self.restart(&myself, number, state).await;
        Ok(())
    }
}

/// What restarts are counted by: workers count under their stage.
fn role_of(path: &str) -> &str {
    let role = path.trim_start_matches("root/");
    let role = role.trim_end_matches(|c: char| c.is_ascii_digit() || c == '/');
    if role.is_empty() { "root" } else { role }
}

impl Supervisor {
    async fn restart(
        &self,
        myself: &ActorRef<SupervisorMessage>,
        number: usize,
        state: &mut SupervisorState,
    ) {
        if self.child(number, state).is_none() || self.context.node.is_stopping() {
            return;
        }
        if let Some(pause) = self.pause(number, state) {
            myself.send_after(pause, move || SupervisorMessage::Restart(number));
            return;
        }
        let Some(child) = self.child(number, state) else { return };
        match (child.spawn)(myself.get_cell()).await {
            Ok(cell) => {
                state.running.insert(cell.get_id(), number);
            }
            Err(error) => {
                tracing::warn!(actor = %child.path, %error, "an actor could not be started");
                let pause = backoff(state.tries.get(&number).map_or(1, |(tries, _)| *tries));
                myself.send_after(pause, move || SupervisorMessage::Restart(number));
            }
        }
    }

    fn child<'a>(&'a self, number: usize, state: &'a SupervisorState) -> Option<&'a ChildSpec> {
        let later = number.checked_sub(self.children.len());
        self.children.get(number).or_else(|| state.added.get(later?))
    }

    /// How long to wait before the next restart of a child: none at first, ever longer for one that keeps failing.
    fn pause(&self, number: usize, state: &mut SupervisorState) -> Option<Duration> {
        let now = Instant::now();
        let (tries, last) = state.tries.get(&number).copied().unwrap_or((0, now));
        let calm = now.saturating_duration_since(last) > Duration::from_secs(5);
        let tries = if calm { 0 } else { tries };
        let due = last + backoff(tries.saturating_sub(3));
        if tries > 3 && now < due {
            return Some(due.saturating_duration_since(now));
        }
        state.tries.insert(number, (tries.saturating_add(1), now));
        state.restarts.push_back(now);
        while state.restarts.front().is_some_and(|at| now.saturating_duration_since(*at) > WINDOW) {
            state.restarts.pop_front();
        }
        if state.restarts.len() > RESTARTS_MAX {
            self.context.node.die(format!("`{}` had too many restarts", self.path));
        }
        None
    }
}
