//! The injectors: one for each kind of step in a schedule.
//!
//! Owns that each step is carried out, bounded, and counted only by what was observed afterwards. Invariant: when it returns, the
//! step's disturbance has ended: nothing is stopped, traced, locked or misled any more.

mod database;
mod process;
mod rules;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::time::{Duration, Instant, sleep_until};

use crate::{
    cluster::Cluster,
    collect::memory,
    history::What,
    load::Load,
    node::Node,
    schedule::{Act, Schedule, Step},
    seeded::Chance,
};

/// The deployment and the load that steps act on.
#[derive(Debug, Clone)]
pub(crate) struct Injector {
    cluster: Arc<Cluster>,
    load: Arc<Load>,
}

impl Injector {
    pub(crate) const fn new(cluster: Arc<Cluster>, load: Arc<Load>) -> Self {
        Self { cluster, load }
    }

    /// Carries out a schedule, step by step, each not before its time.
    pub(crate) async fn carry_out(&self, schedule: &Schedule, chance: &Chance) -> Result<()> {
        let began = Instant::now();
        for (number, step) in schedule.steps.iter().enumerate() {
            sleep_until(began + Duration::from_millis(step.at_ms)).await;
            // The aftermath of the previous step must be over: a fault of a node that is down is none.
            self.cluster.wait_all_ready().await?;
            let mut chance = chance.fork(&format!("step-{number}"));
            self.cluster.scene.recorder.record(What::Injecting);
            self.step(step, &mut chance)
                .await
                .with_context(|| format!("step {number} ({:?}) broke", step.act))?;
        }
        sleep_until(began + Duration::from_millis(schedule.length_ms)).await;
        Ok(())
    }

    async fn step(&self, step: &Step, chance: &mut Chance) -> Result<()> {
        let node = self.node(step.node)?;
        match &step.act {
            Act::Kill => self.kill(&node, Some("kill -9".to_owned())).await,
            Act::KillAtEffect { after } => self.kill_at_effect(&node, *after, chance).await,
            Act::KillDelayed { ms } => self.kill_delayed(&node, *ms, chance).await,
            Act::KillInRecovery { at } => self.kill_in_recovery(&node, at).await,
            Act::Pause { ms } => self.pause(&node, *ms).await,
            Act::Clock { by_s } => self.clock(&node, *by_s).await,
            Act::Stop => self.stop(&node).await,
            Act::Window => self.window(&node, chance).await,
            Act::Disk { at } => self.disk(&node, at).await,
            Act::Policy => self.policy(&node, chance).await,
            Act::Credential { ms } => self.credential(&node, *ms, chance).await,
            Act::Expired => self.expired(&node, chance).await,
            Act::Backends => self.backends().await,
            Act::Cut { cut, times } => self.cut(*cut, *times).await,
            Act::FailOver => self.fail_over().await,
            Act::Lock { ms } => self.lock(*ms).await,
            Act::Exhaust { ms } => self.exhaust(*ms).await,
            Act::Burst { size } => {
                self.load.burst(*size, chance.fork("burst")).await;
                self.cluster.nodes.iter().for_each(|node| memory(&self.cluster.scene, node));
                Ok(())
            }
        }
    }

    fn node(&self, number: usize) -> Result<Arc<Node>> {
        self.cluster.nodes.get(number).map(Arc::clone).context("there is no such node")
    }
}
