//! What a held call weighs: memory, the time from the deciding click to the dispatch, the time of a restart with all of them.
//!
//! Not run with the others, since it takes minutes:
//! `cargo test --release -p placet-engine --test it weight -- --ignored --nocapture`

use std::{io::Write as _, sync::Arc, time::Duration};

use futures::stream::{self, StreamExt as _};
use tokio::time::Instant;

use placet_approvals::views::{InboxOrder, InboxQuery};
use placet_engine::{
    answer::Held,
    submission::{Inbound, Submission},
};
use placet_ledger::store::Store as _;
use placet_types::approval::VoteChoice;

use crate::{
    embedded,
    fake::Witness,
    world::{World, plan},
};

/// How many calls are held, after some that warm everything up; fewer where nothing is optimised.
const HELD: usize = if cfg!(debug_assertions) { 5_000 } else { 100_000 };
const WARM: usize = 2_000;
/// The most that one of them may weigh, in bytes.
const HELD_BYTES_MAX: usize = 4 * 1_024;

/// The resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap().saturating_mul(1_024)
}

fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").unwrap();
}

async fn hold(world: &World, numbers: std::ops::Range<usize>) -> Vec<Held> {
    let agent = world.agent().await;
    let calls = stream::iter(numbers).map(|number| {
        let (engine, agent) = (world.engine.clone(), agent.clone());
        async move {
            let call = plan("erase", &format!("s{number}"), "what has to be erased");
            let submission: Submission = serde_json::from_value(call).unwrap();
            let mut ticket = engine.submit(agent, submission, Inbound::default()).unwrap();
            crate::world::held(ticket.settled(0).await)
        }
    });
    calls.buffer_unordered(64).collect().await
}

/// Waits until everything is in the inbox, and answers how long a page took to be made then.
async fn all_waiting(world: &World, total: usize) -> Duration {
    let ben = world.person("ben").await;
    loop {
        let query = InboxQuery { order: InboxOrder::Urgent, ..InboxQuery::default() };
        let began = Instant::now();
        let page = world.engine.approvals().inbox(&ben, query).await.unwrap();
        if page.total == Some(total) {
            return began.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: measures at 100,000 held calls"]
async fn a_held_call_weighs_at_most_four_kibibytes() {
    let folder = tempfile::tempdir().unwrap();
    let witness = Arc::<Witness>::default();
    let store = embedded::open(folder.path()).await;
    let world = embedded::process_that(&store, &witness, true).await;
    drop(hold(&world, 0..WARM).await);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = resident();
    let began = Instant::now();
    let mut held = hold(&world, WARM..WARM + HELD).await;
    say(&format!("{HELD} calls held in {:?}", began.elapsed()));
    held.truncate(50);
    held.shrink_to_fit();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let each = resident().saturating_sub(before) / HELD;
    say(&format!("resident memory for each held call: {each} bytes"));
    say(&format!("a page of the inbox: {:?}", all_waiting(&world, WARM + HELD).await));
    let mut took = Vec::new();
    for asked in &held {
        let sent = witness.effects("erase").len();
        let began = Instant::now();
        world.vote("ben", asked, VoteChoice::Approve).await.unwrap();
        while witness.effects("erase").len() == sent {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        took.push(began.elapsed());
    }
    took.sort_unstable();
    say(&format!(
        "from looking and deciding to the effect: median {:?}, slowest {:?}",
        took[took.len() / 2],
        took[took.len() - 1]
    ));
    world.engine.shutdown().await;
    drop(world);
    drop(store);
    let began = Instant::now();
    let store = embedded::open(folder.path()).await;
    say(&format!("the store opened in {:?}", began.elapsed()));
    let next = embedded::process_that(&store, &witness, true).await;
    all_waiting(&next, WARM + HELD - held.len()).await;
    say(&format!("everything waits again {:?} after the start", began.elapsed()));
    next.engine.shutdown().await;
    store.close().await.unwrap();
    assert!(each <= HELD_BYTES_MAX, "{each} bytes for each held call");
}

/// The list is looked through until a page is full: quick for who sees what is there, and long for who sees none of it. Pages of external approvers are read
/// from a list of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute: measures at 10,000 held calls"]
async fn an_external_approvers_page_does_not_look_through_what_others_hold() {
    const OTHERS: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let witness = Arc::<Witness>::default();
    let store = embedded::open(folder.path()).await;
    let world = embedded::process_that(&store, &witness, true).await;
    drop(hold(&world, 0..OTHERS).await);
    let page = async |person: &str| {
        let caller = world.person(person).await;
        let began = Instant::now();
        let seen =
            world.engine.approvals().approvals(&caller, Some("pending"), None, 20).await.unwrap();
        (seen.len(), began.elapsed())
    };
    for (person, sees) in [("ben", 20), ("eve", 20), ("leo", 0), ("gil@globex", 0)] {
        let (seen, took) = page(person).await;
        say(&format!("a page of {person}: {seen} in {took:?}"));
        assert_eq!(seen, sees, "{person}");
    }
    let (_, took) = page("gil@globex").await;
    assert!(took < Duration::from_millis(50), "{took:?}");
    world.engine.shutdown().await;
    store.close().await.unwrap();
}
