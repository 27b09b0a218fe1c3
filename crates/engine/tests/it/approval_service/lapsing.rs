//! Groups that people are in no more when a decision of theirs is used.

use placet_types::{approval::VoteChoice, directory::Directory};

use super::{gated, of, ran, send, two_groups, world};
use crate::world::{Make, World, directory, finished, held};

/// The directory, with somebody taken out of all groups.
fn without_groups(person: &str) -> Directory {
    let mut directory = directory();
    let acme = directory.tenants.get_mut(&"acme".parse().unwrap()).unwrap();
    acme.users.get_mut(&person.parse().unwrap()).unwrap().groups.clear();
    directory
}

/// The next process, which reads the directory as it is now.
async fn later(world: &World, directory: Directory, bundle: fn() -> super::BundleSource) -> World {
    World::with(Make { bundle: bundle(), directory, ..world.after() }).await
}

fn two_of_finance() -> super::BundleSource {
    gated(
        "send",
        "@approver_group(\"finance:2\") @quorum(\"2\") @expires(\"72h\")",
        &format!("context.req.approval.total >= 2 && {}", of("finance", 2)),
    )
}

fn one_of_finance() -> super::BundleSource {
    gated(
        "send",
        "@approver_group(\"finance\") @quorum(\"1\") @expires(\"24h\")",
        &format!("context.req.approval.total >= 1 && {}", of("finance", 1)),
    )
}

#[tokio::test]
async fn a_decision_says_which_groups_only_a_token_told_of() {
    let world = world(two_groups()).await;
    let asked = held(world.call(send("s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    let una = world.person_in("una", "finance").await;
    world.decides(&una, &asked, VoteChoice::Approve).await.unwrap();
    let votes = world.seen("eve", &asked).await.approval.votes;
    assert!(votes[0].groups.contains(&"approvers".parse().unwrap()) && votes[0].claimed.is_empty());
    assert_eq!(votes[1].claimed, ["finance".parse().unwrap()].into());
}

/// A vote of a moment ago: no token said it, so that no token's day counts.
#[tokio::test]
async fn a_group_that_the_directory_took_away_counts_no_more_at_once() {
    let world = world(two_of_finance()).await;
    let asked = held(world.call(send("s1", "a")).await);
    assert_eq!(world.vote("finn", &asked, VoteChoice::Approve).await.unwrap(), "pending");
    let later = later(&world, without_groups("finn"), two_of_finance).await;
    assert_eq!(later.vote("fia", &asked, VoteChoice::Approve).await.unwrap(), "approved");
    let back = later.stands(&asked, "pending").await;
    assert_eq!(back.lapsed.into_iter().collect::<Vec<_>>(), [0], "his, and not hers");
    assert!(world.witness.effects("send").is_empty());
}

#[tokio::test]
async fn what_counts_no_more_is_said_before_the_next_decision() {
    let world = world(two_of_finance()).await;
    let asked = held(world.call(send("s1", "a")).await);
    world.vote("finn", &asked, VoteChoice::Approve).await.unwrap();
    let later = later(&world, without_groups("finn"), two_of_finance).await;
    later.engine.approvals().decide_all_again().await;
    let seen = later.seen("fia", &asked).await;
    assert_eq!(seen.approval.lapsed.into_iter().collect::<Vec<_>>(), [0]);
    assert!(seen.standing.may_approve && !seen.standing.completes, "two more are needed");
    let rounds = seen.approval.digest;
    later.engine.approvals().decide_all_again().await;
    assert_eq!(later.seen("fia", &asked).await.approval.digest, rounds, "once is enough");
}

#[tokio::test]
async fn a_grant_counts_no_more_once_the_directory_took_away_whose_it_was() {
    let world = world(one_of_finance()).await;
    let asked = held(world.call(send("s1", "a")).await);
    world.grant("finn", &asked, 9).await.unwrap();
    assert!(ran(&world.call(send("s2", "a")).await));
    let later = later(&world, without_groups("finn"), one_of_finance).await;
    held(later.call(send("s3", "a")).await);
}

/// Eight grants of somebody who is gone end sooner than the one that still counts.
#[tokio::test]
async fn grants_of_no_use_do_not_hide_one_that_counts() {
    let world = world(one_of_finance()).await;
    let asked = held(world.call(send("s1", "a")).await);
    for _ in 0..8 {
        world.grant("finn", &asked, 9).await.unwrap();
    }
    world.store.advance_ms(1_000);
    world.grant("fia", &asked, 9).await.unwrap();
    let later = later(&world, without_groups("finn"), one_of_finance).await;
    finished(later.call(send("s2", "a")).await);
}
