//! Clients of the simulation: each wants one thing done, and asks until it is told how that ended.
//!
//! Owns what is asked and the history of replies. Retries of one operation use the same key; some send it twice at once, some
//! change an argument, some come from another agent. What they were told is judged by `checker`.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};

use placet_approvals::views::DecisionRequest;
use placet_engine::{
    answer::Answer,
    submission::{Inbound, Submission},
};
use placet_types::{
    approval::VoteChoice,
    envelope::result::ResultStatus,
    error::{ErrorCode, Execution},
    principal::PrincipalKind,
};

use crate::{
    disk::{self, Disk},
    process::Process,
    witness::Witness,
};

/// How often a client asks before it gives up, in the life of one process; more than any schedule needs.
const TRIES: usize = 60;

/// How often an operator looks, in the life of one process.
const LOOKS: usize = 30;

/// What one client wants.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) number: usize,
    pub(crate) tool: &'static str,
}

impl Operation {
    pub(crate) fn what(&self) -> String {
        format!("thing {}", self.number)
    }

    pub(crate) fn key(&self) -> String {
        format!("operation-{:04}", self.number)
    }

    fn submission(&self, what: &str) -> Submission {
        serde_json::from_value(json!({
            "tool": format!("sim__{}", self.tool), "args": {"what": what},
            "idempotency_key": self.key(),
            "run": {"run_id": "run", "safety_mode": "destructive",
                    "run_budget": {"tool_latency_ms_max": 2_000, "calls_max": 100_000}}
        }))
        .unwrap()
    }
}

/// What a client was told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told {
    /// It succeeded, with this output.
    Done(Value),
    /// It was executed and failed, or failed for good.
    Failed(ErrorCode),
    /// Nothing was executed.
    NotExecuted(ErrorCode),
    /// Nobody knows.
    Unknown,
    /// People said no, or nobody agreed.
    Denied(ErrorCode),
    /// It is still under way, or waits for people.
    Waiting,
}

/// One reply.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) operation: usize,
    /// The arguments were those of the operation, and the agent too.
    pub(crate) genuine: bool,
    pub(crate) told: Told,
    /// Effects of the operation that the target had seen when the reply came.
    pub(crate) effects_then: usize,
    /// What a power cut at that moment would have left of the record.
    pub(crate) durable_then: &'static str,
}

/// All replies, in order; it outlives every process.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Vec<Reply>>);

impl History {
    pub(crate) fn replies(&self) -> Vec<Reply> {
        self.0.lock().clone()
    }

    pub(crate) fn ended(&self, operation: usize) -> bool {
        self.0.lock().iter().any(|reply| {
            reply.operation == operation
                && reply.genuine
                && matches!(
                    reply.told,
                    Told::Done(_) | Told::Failed(_) | Told::Denied(_) | Told::Unknown
                )
        })
    }
}

/// What all clients share.
pub(crate) struct Shared {
    pub(crate) process: Process,
    pub(crate) history: Arc<History>,
    pub(crate) witness: Arc<Witness>,
    pub(crate) disk: Arc<Disk>,
}

/// Asks until the operation has ended, or the process has.
pub(crate) async fn pursue(shared: Arc<Shared>, operation: Operation, seed: u64) {
    let mut dice = StdRng::seed_from_u64(seed);
    sleep(&mut dice, 200).await;
    for _ in 0..TRIES {
        if shared.history.ended(operation.number) {
            break;
        }
        let copies = if dice.random_range(0..4) == 0 { dice.random_range(2..5) } else { 1 };
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..copies {
            let patience = if dice.random_range(0..5) == 0 { 30 } else { 60_000 };
            asked.spawn(ask(Arc::clone(&shared), operation.clone(), Asker::Genuine, patience));
        }
        match dice.random_range(0..12) {
            0 => drop(asked.spawn(ask(
                Arc::clone(&shared),
                operation.clone(),
                Asker::OtherArguments,
                60_000,
            ))),
            1 => drop(asked.spawn(ask(
                Arc::clone(&shared),
                operation.clone(),
                Asker::OtherAgent,
                60_000,
            ))),
            _ => {}
        }
        while asked.join_next().await.is_some() {}
        sleep(&mut dice, 1_000).await;
    }
    // One more retry after the end: it must be told the same.
    ask(Arc::clone(&shared), operation, Asker::Genuine, 60_000).await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asker {
    Genuine,
    OtherArguments,
    OtherAgent,
}

async fn ask(shared: Arc<Shared>, operation: Operation, asker: Asker, patience_ms: u64) {
    let agent = if asker == Asker::OtherAgent { "other" } else { "bot" };
    let caller = shared.process.caller(PrincipalKind::Agent, agent).await;
    // Another agent asks for another thing under the same key: it must never get the first one's result.
    let what = match asker {
        Asker::Genuine => operation.what(),
        Asker::OtherArguments => "something else".to_owned(),
        Asker::OtherAgent => format!("thing {} of another", operation.number),
    };
    let submitted =
        shared.process.engine.submit(caller, operation.submission(&what), Inbound::default());
    let answer = match submitted {
        Ok(mut ticket) => {
            let wait = Duration::from_millis(patience_ms);
            match tokio::time::timeout(wait, ticket.settled(patience_ms)).await {
                Ok(answer) => answer,
                // The client went away: whatever happens, nobody is told.
                Err(_) => return,
            }
        }
        Err(refusal) => {
            return shared.record(&operation, asker, told_by(refusal.code, refusal.execution));
        }
    };
    let told = match answer {
        Answer::Finished(result) if result.status == ResultStatus::Succeeded => {
            Told::Done(result.output.clone())
        }
        Answer::Finished(result) => {
            let code = result.error.as_ref().map(|error| error.error_code);
            Told::Failed(code.unwrap_or(ErrorCode::AdapterFailed))
        }
        Answer::Refused(refused) => told_by(refused.refusal.code, refused.refusal.execution),
        Answer::Held(_) | Answer::InProgress(_) => Told::Waiting,
    };
    shared.record(&operation, asker, told);
}

fn told_by(code: ErrorCode, execution: Execution) -> Told {
    match (code, execution) {
        (ErrorCode::ApprovalDenied | ErrorCode::ApprovalExpired, _) => Told::Denied(code),
        (ErrorCode::InProgress, _) => Told::Waiting,
        (_, Execution::NotExecuted) => Told::NotExecuted(code),
        (_, Execution::Unknown) => Told::Unknown,
        (_, Execution::ExecutedAndFailed) => Told::Failed(code),
    }
}

impl Shared {
    fn record(&self, operation: &Operation, asker: Asker, told: Told) {
        let what = operation.what();
        let effects = self.witness.effects();
        let effects_then = effects.iter().filter(|effect| effect.what == what).count();
        let durable_then = disk::records(&self.disk)
            .into_iter()
            .find(|record| {
                record.scope.agent.as_str() == "bot"
                    && record.scope.capability.capability().as_str() == operation.tool
                    && record.key.as_str() == operation.key()
            })
            .map_or("absent", |record| record.state.name());
        self.history.0.lock().push(Reply {
            operation: operation.number,
            genuine: asker == Asker::Genuine,
            told,
            effects_then,
            durable_then,
        });
    }
}

/// People who decide on whatever waits: mostly yes, sometimes no, sometimes late, sometimes twice.
pub(crate) async fn approve(shared: Arc<Shared>, person: &'static str, seed: u64) {
    let mut dice = StdRng::seed_from_u64(seed);
    loop {
        sleep(&mut dice, 3_000).await;
        let caller = shared.process.caller(PrincipalKind::User, person).await;
        let engine = &shared.process.engine;
        let Ok(waiting) = engine.approvals().approvals(&caller, Some("pending"), None, 50).await
        else {
            continue;
        };
        for approval in waiting {
            let no = dice.random_range(0..12) == 0;
            let request = DecisionRequest {
                decision: if no { VoteChoice::Deny } else { VoteChoice::Approve },
                reason: "looked at it".to_owned(),
                digest: approval.digest,
            };
            // A vote that comes too late, or twice, is refused; the checker looks at effects only.
            drop(engine.approvals().decide(&caller, &approval.approval_id, request).await);
            sleep(&mut dice, 50).await;
        }
    }
}

/// An operator who looks into the ledger all the time: what is shown there must be on the disk (I6).
pub(crate) async fn look_into_the_ledger(shared: Arc<Shared>, seed: u64) {
    let mut dice = StdRng::seed_from_u64(seed);
    let caller = shared.process.caller(PrincipalKind::User, "ben").await;
    for _ in 0..LOOKS {
        sleep(&mut dice, 300).await;
        let Ok(shown) = shared.process.engine.records(&caller, Some("succeeded"), None, 100).await
        else {
            continue;
        };
        let durable = disk::records(&shared.disk);
        for record in shown {
            let stored = durable.iter().find(|stored| stored.record_id == record.record_id);
            let state = stored.map_or("absent", |stored| stored.state.name());
            if state != "succeeded" {
                let said =
                    format!("I6: an operator was shown a success while the disk said {state}");
                shared.witness.violations.lock().push(said);
            }
        }
    }
}

async fn sleep(dice: &mut StdRng, most_ms: u64) {
    tokio::time::sleep(Duration::from_millis(dice.random_range(0..=most_ms))).await;
}
