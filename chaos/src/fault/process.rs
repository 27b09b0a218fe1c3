//! Faults of a node's process: killed at any moment and at chosen ones, paused, stopped, with a failing disk, in another time.
//!
//! Owns how each is known to have happened: the process is gone, the kernel says it is stopped, strace reports, the answers have
//! another date. Invariant: a node whose gate was taken is up again, or its failing to come up is a finding.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use placet_testkit::strace::{self, At, Tamper, Tracer};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use super::Injector;
use crate::{
    history::{fault::FaultKind, node::NodeChange, request::Why},
    load::{call::Sending, finale::not_found},
    node::{Launch, Node, Started},
    seeded::Chance,
    setup::LEASE_MS,
    witness::{control::Manner, tools::KEYED_WINDOW_MS},
};

/// How long to wait for an injection at a system call.
const INJECTED: Duration = Duration::from_millis(2_500);
/// How often to try for an effect that a probe did not find at first.
const DELAYED_TRIES: usize = 3;
/// How long a stopping process may take: it waits for open calls.
const STOPPED: Duration = Duration::from_secs(20);
/// For how long ends of processes are explained by a failing disk.
pub(super) const AFTERMATH: Duration = Duration::from_secs(15);

impl Injector {
    /// SIGKILL and a start; F4 with this detail, or part of another fault.
    pub(super) async fn kill(&self, node: &Node, detail: Option<String>) -> Result<()> {
        let _gate = node.gate.lock().await;
        if let (true, Some(detail)) = (self.cluster.kill(node).await, detail) {
            self.cluster.scene.injected(FaultKind::F4, Some(node.number), detail);
        }
        self.cluster.bring_up(node).await
    }

    /// SIGKILL while the upstream has a call, before its effect or after it.
    pub(super) async fn kill_at_effect(
        &self,
        node: &Node,
        after: bool,
        chance: &mut Chance,
    ) -> Result<()> {
        let tools = ["put", "post", "push"];
        let tool = chance.pick(&tools).copied().unwrap_or("push");
        let manner =
            if after { Manner::HangThen { ms: 5_000 } } else { Manner::Hang { ms: 5_000 } };
        let when = if after { "after the effect" } else { "before the effect" };
        let detail = format!("kill -9 {when} of `{tool}`");
        self.kill_holding(node, tool, manner, detail, chance).await
    }

    /// SIGKILL while the upstream has a call, which is sent again afterwards.
    async fn kill_holding(
        &self,
        node: &Node,
        tool: &'static str,
        manner: Manner,
        detail: String,
        chance: &mut Chance,
    ) -> Result<()> {
        if let Some(again) = self.hold_at_upstream(node, tool, manner, chance).await? {
            self.kill(node, Some(detail)).await?;
            again.await;
        }
        Ok(())
    }

    /// SIGKILL before a late effect that the upstream does not know of yet; again if nobody probed in time.
    pub(super) async fn kill_delayed(
        &self,
        node: &Node,
        ms: u64,
        chance: &mut Chance,
    ) -> Result<()> {
        let scene = &self.cluster.scene;
        let before = not_found(scene).len();
        for _ in 0..DELAYED_TRIES {
            // Whether it was probed for before, which makes it F16 too, the witness's log shows in the end.
            let detail =
                format!("kill -9 some time before the effect of `post`, due after {ms} ms");
            let manner = Manner::DelayedEffect { ms };
            self.kill_holding(node, "post", manner, detail, chance).await?;
            if not_found(scene).len() > before {
                break;
            }
        }
        Ok(())
    }

    /// A call that the upstream received and does not answer; the returned future sends it again.
    async fn hold_at_upstream(
        &self,
        node: &Node,
        tool: &'static str,
        manner: Manner,
        chance: &mut Chance,
    ) -> Result<Option<impl Future<Output = ()> + use<>>> {
        let scene = Arc::clone(&self.cluster.scene);
        let call = self.load.fresh(Some(tool), 0, chance);
        let restarts = scene.world.restarts();
        scene.world.arm(&call.args.item, manner).await?;
        let sending = Sending::new(Why::New, node.number);
        let (sent, api) = (Arc::clone(&call), Arc::clone(&scene));
        let first = tokio::spawn(async move { sent.send(&api, &sending).await });
        let until = Instant::now() + Duration::from_secs(2);
        while !scene.world.has_fired(&call.args.item).await? {
            // An upstream that was restarted meanwhile has forgotten the armed manner.
            let forgotten = scene.world.restarts() > restarts;
            if forgotten || Instant::now() >= until || first.is_finished() {
                return Ok(None);
            }
            sleep(Duration::from_millis(5)).await;
        }
        let number = node.number;
        Ok(Some(async move {
            // Lost with the process; bounded by the client's own patience.
            drop(first.await);
            drop(call.send(&scene, &Sending::new(Why::AfterRestart, number)).await);
        }))
    }

    /// SIGKILL, and again at system calls of its recovery.
    pub(super) async fn kill_in_recovery(&self, node: &Node, at: &[At]) -> Result<()> {
        let Some(strace) = self.cluster.machine.strace.clone() else { return Ok(()) };
        let _gate = node.gate.lock().await;
        self.cluster.kill(node).await;
        for (number, at) in at.iter().enumerate() {
            let report = self.cluster.folder.join(format!("recovery-{}-{number}", node.number));
            let launch = Launch { wrapper: strace::wrapper(&strace, at, &report), ..node.launch() };
            let gone = match node.start_with(&launch).await? {
                Started::Ended(status) => Some(status),
                // It was past that call already, or reaches it while it resumes open calls.
                Started::Up => node.gone_within(Duration::from_millis(400)).await,
            };
            let detail = if let Some(status) = gone {
                self.cluster.note_end(node, status);
                format!("kill -9 in recovery at {} {}", at.call, at.when)
            } else if self.cluster.kill(node).await {
                "kill -9 as soon as it listened".to_owned()
            } else {
                continue;
            };
            self.cluster.scene.injected(FaultKind::F5, Some(node.number), detail);
        }
        self.cluster.bring_up(node).await
    }

    /// SIGSTOP and SIGCONT.
    pub(super) async fn pause(&self, node: &Node, ms: u64) -> Result<()> {
        let _gate = node.gate.lock().await;
        if !node.signal(Signal::STOP) {
            return Ok(());
        }
        sleep(Duration::from_millis(20)).await;
        let stopped = node.state().as_deref() == Some("T");
        self.cluster.scene.note(node.number, NodeChange::Paused);
        sleep(Duration::from_millis(ms)).await;
        // A node that finds itself shut out ends, and says so.
        self.cluster.excuse(Some(node.number), AFTERMATH);
        node.signal(Signal::CONT);
        self.cluster.scene.note(node.number, NodeChange::Resumed);
        // On a shared ledger a pause is effective only if it exceeds the lease.
        if stopped && (self.cluster.postgres.is_none() || ms > LEASE_MS) {
            let detail = format!("stopped for {ms} ms");
            self.cluster.scene.injected(FaultKind::F9, Some(node.number), detail);
        }
        Ok(())
    }

    /// SIGTERM while calls are in flight.
    pub(super) async fn stop(&self, node: &Node) -> Result<()> {
        let _gate = node.gate.lock().await;
        self.cluster.scene.note(node.number, NodeChange::StopAsked);
        if !node.signal(Signal::TERM) {
            return Ok(());
        }
        match node.gone_within(STOPPED).await {
            Some(status) => {
                let code = status.code();
                self.cluster.scene.note(node.number, NodeChange::Stopped { code });
                self.cluster.scene.injected(FaultKind::F23, Some(node.number), "asked to stop");
                if code != Some(0) {
                    let said = node.tail(4);
                    self.cluster.scene.find(format!(
                        "asked to stop, node {} ended with {status}: {said}",
                        node.number
                    ));
                }
            }
            None => {
                self.cluster
                    .scene
                    .find(format!("node {} did not stop within {STOPPED:?}", node.number));
                self.cluster.kill(node).await;
            }
        }
        self.cluster.bring_up(node).await
    }

    /// A keyed call is in flight at a kill, and the node stays down until the upstream has forgotten its token.
    pub(super) async fn window(&self, node: &Node, chance: &mut Chance) -> Result<()> {
        let Some(again) =
            self.hold_at_upstream(node, "put", Manner::HangThen { ms: 5_000 }, chance).await?
        else {
            return Ok(());
        };
        let began = Instant::now();
        let mut gates = Vec::new();
        for other in &self.cluster.nodes {
            gates.push(other.gate.lock().await);
            self.cluster.kill(other).await;
        }
        sleep(Duration::from_millis(KEYED_WINDOW_MS.saturating_add(300))).await;
        for other in &self.cluster.nodes {
            self.cluster.bring_up(other).await?;
        }
        drop(gates);
        let detail = format!("recovered {:?} after the call was sent", began.elapsed());
        self.cluster.scene.injected(FaultKind::F17, Some(node.number), detail);
        again.await;
        Ok(())
    }

    /// Errors and delays of the disk.
    pub(super) async fn disk(&self, node: &Node, at: &At) -> Result<()> {
        let gate = node.gate.lock().await;
        let Some(tracer) = self.attach(node, at).await? else { return Ok(()) };
        self.cluster.excuse(Some(node.number), AFTERMATH);
        let injected = tracer.injected_within(INJECTED).await;
        if injected && !matches!(at.tamper, Tamper::Delay(_)) {
            // The keeper notices a fail-stop; a process that continues although its disk failed is left alone.
            let until = Instant::now() + Duration::from_secs(3);
            while Instant::now() < until && node.state().is_some() {
                sleep(Duration::from_millis(10)).await;
            }
        }
        tracer.detach().await;
        if injected {
            let detail = format!("{:?} at {} {}", at.tamper, at.call, at.when);
            self.cluster.scene.injected(FaultKind::F11, Some(node.number), detail);
        }
        drop(gate);
        Ok(())
    }

    /// The clock of a node jumps, for it and for the processes it starts; later it jumps back.
    pub(super) async fn clock(&self, node: &Node, by_s: i64) -> Result<()> {
        let file = node.time_file();
        if self.cluster.machine.faketime.is_none() || !file.try_exists()? {
            return Ok(());
        }
        self.shift(node, by_s).await?;
        sleep(Duration::from_millis(700)).await;
        // Its entries are of another time than those that it recovers.
        self.kill(node, None).await?;
        let shown = self.hour_shown(node).await;
        if shown.is_some_and(|off| off.abs_diff(by_s) < 120) {
            let detail = format!("its clock is off by {by_s} s");
            self.cluster.scene.injected(FaultKind::F10, Some(node.number), detail);
        }
        sleep(Duration::from_millis(700)).await;
        self.shift(node, 0).await
    }

    async fn shift(&self, node: &Node, by_s: i64) -> Result<()> {
        std::fs::write(node.time_file(), format!("{by_s:+}\n")).context("no file of the time")?;
        let change = NodeChange::ClockShifted { by_ms: by_s.saturating_mul(1_000) };
        self.cluster.scene.note(node.number, change);
        sleep(Duration::from_millis(50)).await;
        Ok(())
    }

    /// By how much the date of a node's answers is off, in seconds, within half a day.
    async fn hour_shown(&self, node: &Node) -> Option<i64> {
        let [tenant, _] = crate::people::TENANTS;
        let bearer = self.cluster.scene.people.bearer(tenant, crate::people::OWNER).ok()?;
        let answered = timeout(
            Duration::from_secs(5),
            self.cluster.scene.api.get(node.number, "/v1/tools", bearer),
        );
        let answer = answered.await.ok()?.ok()?;
        let shown = second_of_day(&answer.date?)?;
        let now = placet_testkit::moment::Moment::now().wall_ms.div_euclid(1_000);
        let off = shown.saturating_sub(now.rem_euclid(86_400));
        Some(off.saturating_add(43_200).rem_euclid(86_400).saturating_sub(43_200))
    }

    /// Attaches strace to a node; `None` if strace is missing or the process is gone.
    pub(super) async fn attach(&self, node: &Node, at: &At) -> Result<Option<Tracer>> {
        let (Some(strace), Some(pid)) = (&self.cluster.machine.strace, node.pid()) else {
            return Ok(None);
        };
        let report = self.report(node)?;
        // A process that ends while it is attached to is no fault of ours.
        Ok(Tracer::attach(strace, pid, at, &report).await.ok())
    }

    /// A path for an strace report that does not exist yet.
    pub(super) fn report(&self, node: &Node) -> Result<PathBuf> {
        let report = self.cluster.folder.join(format!("strace-{}-{}", node.number, node.starts()));
        (0..1_000)
            .map(|number| report.with_extension(number.to_string()))
            .find(|path| !path.try_exists().unwrap_or(true))
            .context("there is no name for a report")
    }
}

/// The second of the day in an HTTP date, such as `Sun, 22 Nov 2026 02:31:20 GMT`.
fn second_of_day(date: &str) -> Option<i64> {
    let clock = date.split_whitespace().find(|word| word.contains(':'))?;
    let mut fields = clock.split(':').map(|field| field.parse::<i64>().ok());
    let (hours, minutes, seconds) = (fields.next()??, fields.next()??, fields.next()??);
    hours.checked_mul(3_600)?.checked_add(minutes.checked_mul(60)?)?.checked_add(seconds)
}

#[cfg(test)]
mod tests {
    use super::second_of_day;

    #[test]
    fn the_time_is_read_from_a_date() {
        assert_eq!(second_of_day("Sun, 22 Nov 2026 02:31:20 GMT"), Some(9_080));
        assert_eq!(second_of_day("soon"), None);
        assert_eq!(second_of_day("at 1:x:2"), None);
    }
}
