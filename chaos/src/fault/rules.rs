//! What changes under a call that is on its way: policies and credentials (F15), and how long results are kept (F18).
//!
//! Owns that a change counts when a call met it.

use std::{fs, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use placet_chaos::history::{
    fault::FaultKind,
    request::{Answer, Why},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::Injector;
use crate::{
    load::call::Sending,
    node::Node,
    seeded::Chance,
    setup::{self, RETENTION_MS, SECRET},
};

/// The file in which a policy is put beside the shipped ones.
const ADDED: &str = "90-chaos.cedar";
/// What it says: nothing is pushed.
const FORBIDS: &str = "@id(\"chaos-no-push\")\n@approval(\"never\")\n@reason(\"Not for the moment.\")\nforbid (principal, action == Placet::Action::\"witness/push\", resource is Placet::Tool);\n";

impl Injector {
    /// The credential is gone for a moment.
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

    /// A policy forbids a tool while calls of it are under way; later it is taken back.
    pub(super) async fn policy(&self, node: &Node, chance: &mut Chance) -> Result<()> {
        if !self.cluster.setup.abilities.activation {
            return self.credential(node, chance.within(100..800), chance).await;
        }
        let calls: Vec<_> = (0..24).map(|_| self.load.fresh(Some("push"), 0, chance)).collect();
        let mut sent = JoinSet::new();
        for (number, call) in calls.iter().enumerate() {
            let (call, scene) = (Arc::clone(call), Arc::clone(&self.cluster.scene));
            let sending = Sending::new(Why::New, node.number);
            let delay = u64::try_from(number).unwrap_or(0).saturating_mul(40);
            sent.spawn(async move {
                sleep(Duration::from_millis(delay)).await;
                call.send(&scene, &sending).await
            });
        }
        self.activate(node, true).await?;
        let (mut done, mut denied) = (0_u64, 0_u64);
        while let Some(reply) = sent.join_next().await {
            match reply {
                Ok(Ok(reply)) if reply.answer == Answer::Succeeded => done = done.saturating_add(1),
                Ok(Ok(reply)) if reply.code.as_deref() == Some("POLICY_DENIED") => {
                    denied = denied.saturating_add(1);
                }
                _ => {}
            }
        }
        self.activate(node, false).await?;
        if denied > 0 {
            let detail = format!("forbidden under way: {done} done, {denied} denied");
            self.cluster.scene.injected(FaultKind::F15, Some(node.number), detail);
        }
        Ok(())
    }

    async fn activate(&self, node: &Node, forbid: bool) -> Result<()> {
        for node in &self.cluster.nodes {
            let path = node.folder.join("policies").join(ADDED);
            if forbid {
                setup::put(&path, FORBIDS.as_bytes())?;
            } else {
                fs::remove_file(&path).context("no policy to take back")?;
            }
        }
        let [tenant, _] = crate::people::TENANTS;
        let token = self.cluster.scene.people.operator_token(tenant)?;
        let url = format!("http://{}", node.listen);
        let env = [("PLACET_URL", url.as_str()), ("PLACET_TOKEN", token)];
        let (code, said) =
            node.run_with(&["policy", "activate"], &env, Duration::from_secs(30)).await?;
        if code != Some(0) {
            self.cluster.scene.find(format!("policies cannot be activated: {said}"));
        }
        Ok(())
    }

    /// Calls whose results are not kept any more are made again.
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
