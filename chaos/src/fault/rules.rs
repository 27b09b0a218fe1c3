//! Changes during calls: policies and credentials (F15), and how long results are kept (F18).
//!
//! Owns that a change counts when a call met it.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::Injector;
use crate::{
    history::{
        fault::FaultKind,
        request::{Answer, Why},
    },
    load::call::Sending,
    node::Node,
    seeded::Chance,
    setup::{self, RETENTION_MS, SECRET},
};

/// The file name of the policy that is added to the shipped ones.
const ADDED: &str = "90-chaos.cedar";
/// Its text while no push is permitted.
const FORBIDS: &str = "@id(\"chaos-no-push\")\n@approval(\"never\")\n@reason(\"Not for the moment.\")\nforbid (principal, action == Placet::Action::\"witness/push\", resource is Placet::Tool);\n";

impl Injector {
    /// Removes the credential for a moment.
    pub(super) async fn credential(&self, node: &Node, ms: u64, chance: &mut Chance) -> Result<()> {
        for node in &self.cluster.nodes {
            fs::remove_file(setup::secret_file(&node.folder)).context("no credential to remove")?;
        }
        let until = Instant::now() + Duration::from_millis(ms);
        let mut met = false;
        while Instant::now() < until {
            let call = self.load.fresh(Some("push"), 0, chance);
            let reply = call.send(&self.cluster.scene, &Sending::new(Why::New, node.number)).await;
            met |= reply.is_ok_and(|reply| reply.answer == Answer::Refused);
            sleep(Duration::from_millis(20)).await;
        }
        for node in &self.cluster.nodes {
            setup::put(&setup::secret_file(&node.folder), SECRET.as_bytes())?;
        }
        if met {
            self.cluster.scene.injected(FaultKind::F15, None, format!("no credential for {ms} ms"));
        }
        Ok(())
    }

    /// A policy forbids a tool while calls of it are in flight; later it is removed. Each change restarts the nodes one after
    /// another, so that some still know only the previous policies. No two changes make the same policies: a start does not bring
    /// back replaced ones.
    pub(super) async fn policy(&self, node: &Node, chance: &mut Chance) -> Result<()> {
        let over = Arc::new(AtomicBool::new(false));
        let mut calling = JoinSet::new();
        for number in 0..self.cluster.nodes.len().saturating_add(2) {
            let chance = chance.fork(&format!("caller-{number}"));
            let (injector, over) = (self.clone(), Arc::clone(&over));
            calling.spawn(async move { injector.push_until(&over, chance).await });
        }
        sleep(Duration::from_millis(200)).await;
        let changed = async {
            let change = chance.next();
            self.change_policies(node, &format!("// Change {change}.\n{FORBIDS}")).await?;
            sleep(Duration::from_millis(300)).await;
            self.change_policies(node, &format!("// Change {change} is taken back.\n")).await
        };
        let changed = changed.await;
        over.store(true, Ordering::SeqCst);
        let (mut done, mut denied) = (0_u64, 0_u64);
        while let Some(counted) = calling.join_next().await {
            let (more_done, more_denied) = counted.unwrap_or_default();
            done = done.saturating_add(more_done);
            denied = denied.saturating_add(more_denied);
        }
        changed?;
        if denied > 0 {
            let detail = format!("forbidden under way: {done} done, {denied} denied");
            self.cluster.scene.injected(FaultKind::F15, Some(node.number), detail);
        }
        Ok(())
    }

    /// Calls a tool again and again: how often it was done, and how often policy denied it.
    async fn push_until(&self, over: &AtomicBool, mut chance: Chance) -> (u64, u64) {
        let (mut done, mut denied) = (0_u64, 0_u64);
        while !over.load(Ordering::SeqCst) {
            let call = self.load.fresh(Some("push"), 0, &mut chance);
            let to = chance.index(self.cluster.nodes.len());
            match call.send(&self.cluster.scene, &Sending::new(Why::New, to)).await {
                Ok(reply) if reply.answer == Answer::Succeeded => done = done.saturating_add(1),
                Ok(reply) if reply.code.as_deref() == Some("POLICY_DENIED") => {
                    denied = denied.saturating_add(1);
                }
                _ => {}
            }
            sleep(Duration::from_millis(20)).await;
        }
        (done, denied)
    }

    /// Writes the policies of every node, and restarts them one after another, beginning with `first`.
    async fn change_policies(&self, first: &Node, text: &str) -> Result<()> {
        for node in &self.cluster.nodes {
            setup::put(&node.folder.join("policies").join(ADDED), text.as_bytes())?;
        }
        self.stop(first).await?;
        for node in self.cluster.nodes.iter().filter(|node| node.number != first.number) {
            sleep(Duration::from_millis(300)).await;
            self.stop(node).await?;
        }
        Ok(())
    }

    /// Repeats calls whose results are no longer kept.
    pub(super) async fn expired(&self, node: &Node, chance: &mut Chance) -> Result<()> {
        let scene = &self.cluster.scene;
        let tools = ["put", "post", "push"];
        let calls: Vec<_> =
            tools.iter().map(|tool| self.load.fresh(Some(tool), 0, chance)).collect();
        for call in &calls {
            drop(call.send(scene, &Sending::new(Why::New, node.number)).await);
        }
        let until = Instant::now() + Duration::from_millis(RETENTION_MS.saturating_mul(4));
        sleep(Duration::from_millis(RETENTION_MS)).await;
        while Instant::now() < until {
            for call in &calls {
                let reply = call.send(scene, &Sending::new(Why::AfterSuccess, node.number)).await;
                if reply.is_ok_and(|reply| reply.answer == Answer::Expired) {
                    let detail = format!("`{}` made again after its result's time", call.tool);
                    scene.injected(FaultKind::F18, Some(node.number), detail);
                    return Ok(());
                }
            }
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }
}
