//! A run with a small budget: more calls than it may make come at once, to all nodes, some of them twice.
//!
//! Owns the calls. The checker verifies that no more of them ran than permitted, and that the run was charged for those (I11).

use super::{
    AtOnce, Load,
    call::{Call, Caller},
    forms::Args,
};
use crate::{
    people::{AGENTS, TENANTS},
    seeded::Chance,
};

/// Makes more calls than their run has.
pub(super) async fn more_calls_than_the_run_may(load: &Load, client: u32, chance: &mut Chance) {
    let calls_max = u32::try_from(chance.within(1..5)).unwrap_or(1);
    let [tenant, _] = TENANTS;
    let agent = chance.pick(&AGENTS);
    let (agent, tool) =
        (agent.copied().unwrap_or("clerk"), chance.pick(&["put", "post", "push"]).copied());
    let first = load.made.load(std::sync::atomic::Ordering::SeqCst);
    let run = format!("thrifty-{}-{client}-{first}", load.name);
    let mut sent = AtOnce::new(&load.scene);
    let calls = chance.within(1..5).saturating_add(u64::from(calls_max));
    for number in 0..calls {
        let args = Args::new(format!("{}-{client}-{first}-few-{number}", load.name), chance);
        let caller = Caller { tenant, agent, delegated: false };
        let call = Call::new(caller, tool.unwrap_or("put"), args, run.clone(), client)
            .in_run_of(calls_max);
        let copies = chance.within(1..3);
        sent.send_copies(&load.add(call), copies, chance);
    }
    drop(sent.answers().await);
}
