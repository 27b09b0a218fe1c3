//! The load: seeded clients that call, repeat, change, give up, come back, approve and deny.
//!
//! Owns a client's next action, and which of the faults caused by clients (F1, F2, F3, F6, F14, F22) really happened. Does not
//! touch processes. Invariant: a client is never stuck: every wait is bounded, and at the end it stops.

pub(crate) mod call;
pub(crate) mod finale;
pub(crate) mod forms;
mod granted;
mod rearmed;
mod thrifty;
pub(crate) mod upstream;
pub(crate) mod votes;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use serde::{Deserialize, Serialize};
use tokio::{
    task::JoinSet,
    time::{Duration, Instant, sleep},
};

use call::{Call, Caller, Sending, is_definite};
use forms::{Args, Form};

use crate::{
    history::{
        fault::FaultKind,
        request::{Answer, Loss, Reply, Why},
    },
    people::{AGENTS, TENANTS},
    scene::Scene,
    seeded::Chance,
};

/// How often a call without a definite answer is sent again by its client.
const TRIES_MAX: u32 = 5;

/// The load of a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) clients: u32,
    /// The longest pause of a client between two calls, in milliseconds.
    pub(crate) pause_ms_max: u64,
    pub(crate) calls_max: u64,
    /// The relative frequency of each action.
    pub(crate) weights: BTreeMap<Doing, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Doing {
    /// One call, repeated until its answer is definite.
    Call,
    /// The same call several times at once (F1).
    Copies,
    /// An earlier call again (F1).
    Again,
    /// An earlier key with other arguments, or the same in another form (F2).
    Changed,
    /// An earlier key from another principal (F3).
    Somebody,
    /// A call whose client disconnects and returns (F6).
    Leave,
    /// A call that needs approval (F14).
    Held,
    /// Calls that a standing grant lets pass, more of them than it has uses (F14).
    Granted,
    /// A call that the upstream misbehaves at (F7).
    Upstream,
    /// A call at which the upstream's process ends (F8).
    UpstreamEnds,
    /// A probe finds nothing, and then the effect appears (F16).
    Delayed,
    /// A huge result, or one with the credential in it (F19).
    Result,
    /// An answer that comes when operators have had the call sent again (F7).
    Rearmed,
    /// A call that the upstream refuses after its effect (F24).
    Declined,
}

impl Doing {
    pub(crate) const fn fault(self) -> Option<FaultKind> {
        match self {
            Self::Call => None,
            Self::Copies | Self::Again => Some(FaultKind::F1),
            Self::Changed => Some(FaultKind::F2),
            Self::Somebody => Some(FaultKind::F3),
            Self::Leave => Some(FaultKind::F6),
            Self::Held | Self::Granted => Some(FaultKind::F14),
            Self::Upstream | Self::Rearmed => Some(FaultKind::F7),
            Self::UpstreamEnds => Some(FaultKind::F8),
            Self::Delayed => Some(FaultKind::F16),
            Self::Result => Some(FaultKind::F19),
            Self::Declined => Some(FaultKind::F24),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Load {
    scene: Arc<Scene>,
    plan: Plan,
    name: String,
    calls: Mutex<Vec<Arc<Call>>>,
    made: AtomicU64,
    stopping: AtomicBool,
}

impl Load {
    /// A load that has not begun. `name` tells the keys of one round from those of another.
    pub(crate) fn new(scene: Arc<Scene>, plan: Plan, name: String) -> Arc<Self> {
        Arc::new(Self {
            scene,
            plan,
            name,
            calls: Mutex::default(),
            made: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        })
    }

    /// Begins: one task for each client.
    pub(crate) fn begin(self: &Arc<Self>, chance: &Chance) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for client in 0..self.plan.clients {
            let (load, chance) = (Arc::clone(self), chance.fork(&format!("client-{client}")));
            clients.spawn(async move { load.client(client, chance).await });
        }
        clients
    }

    /// Clients begin nothing new from now on.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn calls(&self) -> Vec<Arc<Call>> {
        self.calls.lock().clone()
    }

    fn is_over(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
            || self.made.load(Ordering::SeqCst) >= self.plan.calls_max
    }

    async fn client(&self, client: u32, mut chance: Chance) {
        while !self.is_over() {
            let doing = draw(&self.plan.weights, &mut chance);
            self.act(doing, client, &mut chance).await;
            sleep(Duration::from_millis(chance.within(0..self.plan.pause_ms_max.max(1)))).await;
        }
    }

    async fn act(&self, doing: Doing, client: u32, chance: &mut Chance) {
        let node = chance.index(self.scene.api.len());
        match doing {
            Doing::Call if chance.permille(60) => {
                thrifty::more_calls_than_the_run_may(self, client, chance).await;
            }
            Doing::Call => {
                let call = self.fresh(None, client, chance);
                self.until_definite(&call, Sending::new(Why::New, node), chance).await;
            }
            Doing::Copies => self.copies(client, chance).await,
            Doing::Again => self.again(node, chance).await,
            Doing::Changed => self.changed(node, chance).await,
            Doing::Somebody => self.somebody(node, chance).await,
            Doing::Leave => self.leave(client, node, chance).await,
            Doing::Held => {
                let call = self.fresh(Some("erase"), client, chance);
                self.until_definite(&call, Sending::new(Why::New, node), chance).await;
                votes::decide(&self.scene, &call, node, chance).await;
            }
            Doing::Granted => granted::more_calls_than_uses(self, client, node, chance).await,
            Doing::Rearmed => rearmed::late_for_another_arm(self, client, node, chance).await,
            Doing::Upstream
            | Doing::UpstreamEnds
            | Doing::Delayed
            | Doing::Result
            | Doing::Declined => {
                upstream::misbehave(self, doing, client, node, chance).await;
            }
        }
    }

    pub(crate) fn fresh(
        &self,
        tool: Option<&'static str>,
        client: u32,
        chance: &mut Chance,
    ) -> Arc<Call> {
        const TOOLS: [&str; 10] =
            ["look", "put", "put", "put", "post", "post", "post", "push", "push", "push"];
        let number = self.made.fetch_add(1, Ordering::SeqCst);
        let item = format!("{}-{client}-{number}", self.name);
        let tool = tool.or_else(|| chance.pick(&TOOLS).copied()).unwrap_or("put");
        let [home, abroad] = TENANTS;
        let tenant = if chance.permille(900) { home } else { abroad };
        let agent = chance.pick(&AGENTS).copied().unwrap_or("clerk");
        let delegated = chance.permille(250);
        let caller = Caller { tenant, agent, delegated };
        let run = format!("run-{}-{}", self.name, client % 3);
        let call = Arc::new(Call::new(caller, tool, Args::new(item, chance), run, client));
        self.calls.lock().push(Arc::clone(&call));
        call
    }

    /// A call like another one, by the same caller, about an item whose name begins with that of the other.
    fn alike(&self, call: &Call, number: u64) -> Arc<Call> {
        let args = Args { item: format!("{}-{number}", call.args.item), ..call.args.clone() };
        let caller = Caller { tenant: &call.tenant, agent: &call.agent, delegated: call.delegated };
        self.add(Call::new(caller, call.tool, args, call.run.clone(), call.client))
    }

    /// Adds a call modelled on another, and keeps it for the end.
    fn add(&self, call: Call) -> Arc<Call> {
        let call = Arc::new(call);
        self.made.fetch_add(1, Ordering::SeqCst);
        self.calls.lock().push(Arc::clone(&call));
        call
    }

    fn earlier(&self, chance: &mut Chance) -> Option<Arc<Call>> {
        let calls = self.calls.lock();
        chance.pick(&calls).filter(|call| call.key.is_some()).map(Arc::clone)
    }

    /// Sends a call until its answer is definite, or the tries are used up. Returns the last answer.
    async fn until_definite(
        &self,
        call: &Call,
        mut sending: Sending,
        chance: &mut Chance,
    ) -> Option<Reply> {
        let mut last = None;
        for attempt in 1..=TRIES_MAX {
            let reply = call.send(&self.scene, &sending).await;
            let definite = reply.as_ref().is_ok_and(is_definite);
            let never_sent = matches!(reply, Err(Loss::NotConnected));
            last = reply.ok();
            if definite || self.stopping.load(Ordering::SeqCst) {
                return last;
            }
            sleep(Duration::from_millis(chance.within(20..80).saturating_mul(attempt.into())))
                .await;
            if !never_sent || sending.why != Why::New {
                sending.why = if last.is_some() { Why::InFlight } else { Why::AfterLoss };
            }
            sending.leaves_after = None;
            if chance.permille(500) {
                sending.node = chance.index(self.scene.api.len());
            }
        }
        last
    }

    async fn copies(&self, client: u32, chance: &mut Chance) {
        let call = self.fresh(None, client, chance);
        let copies = match chance.within(0..100) {
            0..70 => chance.within(2..6),
            70..97 => chance.within(6..20),
            _ => chance.within(40..120),
        };
        let mut sent = AtOnce::new(&self.scene);
        sent.send_copies(&call, copies, chance);
        if sent.answers().await.len() > 1 && call.key.is_some() {
            self.scene.injected(FaultKind::F1, None, format!("{copies} copies at once"));
        }
        if !call.is_settled() {
            let sending = Sending::new(Why::InFlight, chance.index(self.scene.api.len()));
            self.until_definite(&call, sending, chance).await;
        }
    }

    async fn again(&self, node: usize, chance: &mut Chance) {
        let Some(call) = self.earlier(chance) else { return };
        let why = call.why_again(&self.scene);
        if call.send(&self.scene, &Sending::new(why, node)).await.is_ok() {
            self.scene.injected(FaultKind::F1, Some(node), format!("again, {why:?}"));
        }
    }

    async fn changed(&self, node: usize, chance: &mut Chance) {
        let Some(call) = self.earlier(chance) else { return };
        let mut sending = Sending::new(Why::ChangedArgs, node);
        let detail = if chance.permille(500) {
            sending.args = Some(call.args.changed(chance));
            "another argument".to_owned()
        } else {
            sending.why = Why::EqualForm;
            sending.form = chance.pick(&Form::OTHERS).copied().unwrap_or(Form::Reordered);
            format!("the same in another form: {}", sending.form.name())
        };
        if call.send(&self.scene, &sending).await.is_ok() {
            self.scene.injected(FaultKind::F2, Some(node), detail);
        }
    }

    async fn somebody(&self, node: usize, chance: &mut Chance) {
        let Some(call) = self.earlier(chance) else { return };
        let mut others: Vec<(String, String)> = Vec::new();
        for tenant in TENANTS {
            let agents =
                AGENTS.iter().filter(|agent| tenant != call.tenant || **agent != call.agent);
            others.extend(agents.map(|agent| (tenant.to_owned(), (*agent).to_owned())));
        }
        let Some((tenant, agent)) = chance.pick(&others).cloned() else { return };
        // A key of its own, which is checked at the end like every other.
        let other = Arc::new(call.of_somebody(&tenant, &agent));
        self.calls.lock().push(Arc::clone(&other));
        if other.send(&self.scene, &Sending::new(Why::OtherPrincipal, node)).await.is_ok() {
            self.scene.injected(FaultKind::F3, Some(node), format!("the key as {tenant}/{agent}"));
        }
    }

    async fn leave(&self, client: u32, node: usize, chance: &mut Chance) {
        let call = self.fresh(None, client, chance);
        let mut sending = Sending::new(Why::New, node);
        sending.leaves_after = Some(Duration::from_micros(chance.within(200..40_000)));
        if call.send(&self.scene, &sending).await.is_err_and(|how| how == Loss::Abandoned) {
            self.scene.injected(FaultKind::F6, Some(node), "the client went away");
        }
        if !call.is_settled() {
            self.until_definite(&call, Sending::new(Why::AfterLoss, node), chance).await;
        }
    }

    /// More concurrent calls than are admitted (F22): a hot key and many others.
    pub(crate) async fn burst(&self, size: u64, mut chance: Chance) {
        let began = Instant::now();
        let hot = self.fresh(Some("put"), 0, &mut chance);
        let mut sent = AtOnce::new(&self.scene);
        for number in 0..size {
            let is_hot = number % 2 == 0;
            let call = if is_hot { Arc::clone(&hot) } else { self.fresh(None, 0, &mut chance) };
            let why = if is_hot && number > 0 { Why::Immediately } else { Why::New };
            sent.send(&call, why, &mut chance);
        }
        let is_refused =
            |reply: &&Reply| reply.answer == Answer::Refused && matches!(reply.status, 429 | 503);
        let refused = sent.answers().await.iter().filter(is_refused).count();
        if refused > 0 {
            let detail = format!("{refused} of {size} at once refused, in {:?}", began.elapsed());
            self.scene.injected(FaultKind::F22, None, detail);
        }
    }
}

/// Requests that are sent without waiting for each other.
#[derive(Debug)]
struct AtOnce {
    scene: Arc<Scene>,
    sent: JoinSet<Result<Reply, Loss>>,
}

impl AtOnce {
    fn new(scene: &Arc<Scene>) -> Self {
        Self { scene: Arc::clone(scene), sent: JoinSet::new() }
    }

    /// Sends a call to some node.
    fn send(&mut self, call: &Arc<Call>, why: Why, chance: &mut Chance) {
        let sending = Sending::new(why, chance.index(self.scene.api.len()));
        let (call, scene) = (Arc::clone(call), Arc::clone(&self.scene));
        self.sent.spawn(async move { call.send(&scene, &sending).await });
    }

    /// Sends a new call this often.
    fn send_copies(&mut self, call: &Arc<Call>, copies: u64, chance: &mut Chance) {
        for copy in 0..copies {
            let why = if copy == 0 { Why::New } else { Why::Immediately };
            self.send(call, why, chance);
        }
    }

    /// The answers that came.
    async fn answers(mut self) -> Vec<Reply> {
        let mut answers = Vec::new();
        while let Some(ended) = self.sent.join_next().await {
            answers.extend(ended.into_iter().flatten());
        }
        answers
    }
}

fn draw(weights: &BTreeMap<Doing, u32>, chance: &mut Chance) -> Doing {
    let sum: u64 = weights.values().map(|weight| u64::from(*weight)).sum();
    let mut drawn = chance.within(0..sum.max(1));
    for (doing, weight) in weights {
        match drawn.checked_sub(u64::from(*weight)) {
            Some(rest) => drawn = rest,
            None => return *doing,
        }
    }
    Doing::Call
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Doing, draw};
    use crate::seeded::Chance;

    #[test]
    fn what_has_no_weight_is_never_drawn_and_what_has_one_is() {
        let weights = BTreeMap::from([(Doing::Call, 3), (Doing::Leave, 1), (Doing::Held, 0)]);
        let mut chance = Chance::new(1);
        let drawn: Vec<Doing> = (0..400).map(|_| draw(&weights, &mut chance)).collect();
        let count = |doing| drawn.iter().filter(|drawn| **drawn == doing).count();
        assert_eq!(count(Doing::Held), 0);
        assert!(count(Doing::Leave) > 50 && count(Doing::Call) > 200);
        assert_eq!(draw(&BTreeMap::new(), &mut chance), Doing::Call);
    }
}
