//! Faults that need time to stretch: a kill between what a process knows and what its disk has, and a thread that does not go on.
//!
//! Owns the stretching, by strace or by a lock of the database. Invariant: when it returns nothing is stretched any more.

use std::time::Duration;

use anyhow::Result;
use placet_chaos::history::fault::FaultKind;
use placet_testkit::strace::{At, Tamper, Tracer};
use tokio::time::sleep;

use super::{Injector, process::AFTERMATH};
use crate::{node::Node, seeded::Chance};

/// How long a thread may take until it makes a system call.
const CALLS: Duration = Duration::from_millis(1_500);

impl Injector {
    /// SIGKILL while writes take long.
    pub(super) async fn kill_slow(&self, node: &Node, delay_ms: u64, after_ms: u64) -> Result<()> {
        let _gate = node.gate.lock().await;
        let status = if self.database().is_some() {
            let killed = async {
                sleep(Duration::from_millis(after_ms / 2)).await;
                node.kill().await
            };
            let (locked, status) = tokio::join!(self.lock(after_ms), killed);
            locked?;
            status
        } else {
            let tamper = Tamper::Delay(delay_ms);
            let at = At { call: "pwrite64".to_owned(), when: 1, onwards: true, tamper };
            let Some(tracer) = self.attach(node, &at).await? else { return Ok(()) };
            sleep(Duration::from_millis(after_ms)).await;
            let status = node.kill().await;
            tracer.detach().await;
            status
        };
        if let Some(status) = status {
            self.cluster.note_end(node, status);
            let detail = "kill -9 while writes took long";
            self.cluster.scene.injected(FaultKind::F4, Some(node.number), detail);
        }
        self.cluster.bring_up(node).await
    }

    /// One thread is held up at its next system call.
    pub(super) async fn stuck(&self, node: &Node, ms: u64, chance: &mut Chance) -> Result<()> {
        let _gate = node.gate.lock().await;
        let (Some(strace), Some(thread)) = (&self.cluster.machine.strace, thread(node, chance))
        else {
            return Ok(());
        };
        let tamper = Tamper::Delay(ms);
        let at = At { call: "all".to_owned(), when: 1, onwards: false, tamper };
        let report = self.report(node)?;
        // A thread that ends while it is attached to is no fault of ours.
        let Ok(tracer) = Tracer::attach_thread(strace, thread, &at, &report).await else {
            return Ok(());
        };
        // What holds a lease may lose it, and then ends and says so.
        self.cluster.excuse(Some(node.number), AFTERMATH);
        let held = tracer.injected_within(CALLS.saturating_add(Duration::from_millis(ms))).await;
        tracer.detach().await;
        if held {
            let detail = format!("a thread held up for {ms} ms");
            self.cluster.scene.injected(FaultKind::F8, Some(node.number), detail);
        }
        Ok(())
    }
}

/// One of a node's threads.
fn thread(node: &Node, chance: &mut Chance) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", node.pid()?)).ok()?;
    let mut threads: Vec<u32> =
        tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    chance.pick(&threads).copied()
}
