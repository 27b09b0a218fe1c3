//! No order of votes, edits, escalations, ends, restarts, outcomes and racing redemptions executes a call without enough agreement, or
//! twice; no order uses a standing grant more often than it allows. Two nodes act on what each of them last read. One of the calls asks an
//! external tenant: one of its people has the name of a person at home, and one is in a group that is asked only at home.
//!
//! The bundle permits everything that has an approval of any kind: only the ledger keeps an order from executing.

mod recount;
mod seen;
mod steps;

use std::{cell::RefCell, collections::BTreeSet};

use placet_types::{
    approval::{ApproverGroup, Escalation, Requirement, Vote, VoteChoice},
    envelope::result::ResultStatus,
    error::ErrorCode,
    ids::{DirectiveId, PrincipalId},
};
use proptest::{prelude::ProptestConfig, test_runner::TestRunner};

use super::{
    directives::{change, grant, less, other},
    world::{Call, World, event, result, vote},
};
use crate::{
    approval::{ApprovalRecord, ApprovalState},
    directive::{Directive, DirectiveNote, DirectiveState},
    dispatch::Settlement,
    ledger::{LedgerError, Outcome},
    record::EffectState,
    store::{Store, StoreError},
    testing::ready,
};
use recount::{Asked, PEOPLE, Said, Stands, Story};
use seen::Seen;
use steps::{Step, step};

const CALLS: usize = 2;
const USES_MAX: u32 = 2;
const EXPIRES_MS: i64 = 60_000;
const ESCALATES_MS: u64 = 10_000;

fn group(name: &str) -> ApproverGroup {
    name.parse().unwrap()
}

fn requirement(asked: &Asked) -> Requirement {
    let number = |count: usize| u32::try_from(count).unwrap();
    let groups = asked.groups.iter().map(|(name, people)| (group(name), number(*people)));
    Requirement {
        deny_threshold: number(asked.denials),
        escalations: vec![Escalation {
            after_ms: ESCALATES_MS,
            group: group("managers"),
            people: 1,
            stands_in_for: BTreeSet::from([group("leads")]),
        }],
        ..Requirement::new(groups.collect(), number(asked.quorum), EXPIRES_MS.unsigned_abs())
    }
}

/// A vote of somebody, on what `approval` shows.
fn said(approval: &ApprovalRecord, said: &Said) -> Vote {
    let choice = if said.yes { VoteChoice::Approve } else { VoteChoice::Deny };
    let (_, tenant, groups) = PEOPLE[said.for_whom.unwrap_or(said.who)];
    Vote {
        stands_for: said.for_whom.map(|whom| PrincipalId::new(PEOPLE[whom].0).unwrap()),
        tenant: tenant.map(|name| name.parse().unwrap()),
        groups: groups.iter().map(|name| group(name).group().clone()).collect(),
        ..vote(approval, PEOPLE[said.who].0, choice)
    }
}

/// The state of one play.
struct Play {
    nodes: [World; 2],
    calls: Vec<Call>,
    /// What each node last read of each approval.
    seen: [Vec<ApprovalRecord>; 2],
    stories: Vec<Story>,
    /// When each approval ends, and when the next group is asked.
    begun_ms: i64,
    executed: Vec<Vec<String>>,
    /// What was sent and has no outcome yet, and which node sent it.
    sent: Vec<Option<(usize, Settlement)>>,
    /// How often it is certain that nothing happened.
    without_effect: Vec<usize>,
    grant: Directive,
    grant_says: BTreeSet<usize>,
    is_grant_over: bool,
    uses: u32,
    keys: u32,
}

impl Play {
    fn new(denials: u32) -> Self {
        let first = World::with_calls(1_000);
        let second = first.over(first.store.node());
        let (mut calls, mut held, mut stories) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..CALLS {
            let call = first.call("erase", "as asked", &format!("k{number}"));
            let wanted = Asked::of(number, 2, denials);
            let mut proposal = first.proposal(&call, 2);
            proposal.requirement = requirement(&wanted);
            proposal.expires_at = first.now().plus_ms(EXPIRES_MS);
            let claimed = first.claim(&call);
            let parked = first.parked(&call);
            held.push(ready(first.ledger.hold(&claimed, &parked, &proposal, event())).unwrap());
            stories.push(Story::new(wanted, "as asked"));
            calls.push(call);
        }
        let proposed = grant(&first, "dir_1", USES_MAX, 2);
        ready(first.ledger.put_directive(proposed.clone(), event())).unwrap();
        Self {
            begun_ms: first.now().as_ms(),
            seen: [held.clone(), held],
            nodes: [first, second],
            calls,
            stories,
            executed: vec![Vec::new(); CALLS],
            sent: (0..CALLS).map(|_| None).collect(),
            without_effect: vec![0; CALLS],
            grant: proposed,
            grant_says: BTreeSet::new(),
            is_grant_over: false,
            uses: 0,
            keys: 0,
        }
    }

    fn passed_ms(&self) -> i64 {
        self.nodes[0].now().as_ms() - self.begun_ms
    }

    fn is_late(&self) -> bool {
        self.passed_ms() >= EXPIRES_MS
    }

    /// The call that would run.
    fn current(&self, number: usize) -> Call {
        let (call, story) = (&self.calls[number], &self.stories[number]);
        self.nodes[0].call(call.name(), story.notes.last().unwrap(), call.key.as_str())
    }

    /// Whether a node has the current state of an approval.
    fn is_fresh(&self, node: usize, number: usize) -> bool {
        let seen = &self.seen[node][number];
        self.nodes[0].approval(seen).rev == seen.rev
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Look(node, number) => {
                let fresh = self.nodes[node].approval(&self.seen[node][number]);
                self.seen[node][number] = fresh;
            }
            Step::Vote(node, number, who, for_whom, yes) => {
                // External approvers act in their own right.
                let at_home = |who: usize| PEOPLE[who].1.is_none();
                let for_whom =
                    for_whom.filter(|whom| *whom != who && at_home(who) && at_home(*whom));
                self.vote(node, number, Said { who, for_whom, yes, on_edit: 0 });
            }
            Step::Edit(node, number, who, quorum) => {
                self.edit(node, number, who, None, true, &Asked::of(number, quorum, 2));
            }
            Step::Rewrite(node, number, who, for_whom) => {
                let at_home = |who: usize| PEOPLE[who].1.is_none();
                let for_whom =
                    for_whom.filter(|whom| *whom != who && at_home(who) && at_home(*whom));
                self.edit(node, number, who, for_whom, false, &Asked::of(number, 2, 2));
            }
            Step::Redirect(node, number, who) => {
                self.edit(node, number, who, None, true, &Asked::of(1 - number, 2, 2));
            }
            Step::Escalate(node, number) => {
                let seen = self.seen[node][number].clone();
                let done = ready(self.nodes[node].ledger.escalate_approval(&seen, event()));
                let silent_ms = self.passed_ms() - self.stories[number].asked_ms;
                let due = silent_ms >= i64::try_from(ESCALATES_MS).unwrap();
                let open = self.stories[number].stands == Stands::Pending && !self.is_late();
                let wanted = due && open && !self.stories[number].escalated;
                if self.note(node, number, done, wanted) {
                    self.stories[number].escalates();
                }
            }
            Step::Expire(node, number) if self.is_late() => {
                self.end(node, number, ApprovalState::Expired);
            }
            Step::Expire(..) => {}
            Step::Void(node, number) => {
                self.end(node, number, ApprovalState::Void { reason: "changed".to_owned() });
            }
            Step::Reopen(node, number, quorum) => self.reopen(node, number, quorum),
            Step::Redeem(node, number) => self.redeem(node, number, true),
            Step::Sneak(node, number) => self.redeem(node, number, false),
            Step::Settle(number, end) => self.settle(number, end),
            Step::Use(node) => self.use_grant(node),
            Step::AgreeToGrant(node, who) => self.agree_to_grant(node, who),
            Step::EndGrant(node) => self.end_grant(node),
            Step::Wait(ms) => self.nodes[0].store.advance_ms(i64::from(ms)),
            Step::Restart => {
                let first = self.nodes[0].over(self.nodes[0].store.restarted());
                let second = first.over(first.store.node());
                let before = std::mem::replace(&mut self.nodes, [first, second]);
                // Only the ledger knows what was sent.
                self.sent.fill_with(|| None);
                // A process that has ended writes nothing more.
                let late = before[1].ledger.vote(
                    &self.seen[0][0],
                    vote(&self.seen[0][0], "zoe", VoteChoice::Approve),
                    event(),
                );
                assert!(ready(late).is_err());
            }
        }
        self.check();
    }

    /// Checks whether it was done; `wanted` is the recount's expectation, for a node with the current state.
    fn note(
        &mut self,
        node: usize,
        number: usize,
        done: Result<ApprovalRecord, LedgerError>,
        wanted: bool,
    ) -> bool {
        let fresh = self.is_fresh(node, number);
        match done {
            Ok(next) => {
                assert!(wanted, "it was done, and the recount says that it may not be");
                self.seen[node][number] = next;
                true
            }
            Err(error) => {
                assert!(!(wanted && fresh), "it was refused for no reason: {error}");
                false
            }
        }
    }

    fn reopen(&mut self, node: usize, number: usize, quorum: u32) {
        let seen = self.seen[node][number].clone();
        if seen.state != ApprovalState::Approved {
            return;
        }
        let more = Asked::of(number, quorum, 1);
        let ledger = &self.nodes[node].ledger;
        let done = ready(ledger.reopen_approval(
            &seen,
            requirement(&more),
            &BTreeSet::new(),
            &BTreeSet::new(),
            event(),
        ));
        let wanted = self.stories[number].stands == Stands::Approved;
        if self.note(node, number, done, wanted) {
            let now_ms = self.passed_ms();
            self.stories[number].reopens(more, now_ms);
        }
    }

    fn vote(&mut self, node: usize, number: usize, word: Said) {
        let seen = self.seen[node][number].clone();
        let word = Said { on_edit: seen.edits.len(), ..word };
        let ballot = said(&seen, &word);
        let done = ready(self.nodes[node].ledger.vote(&seen, ballot, event()));
        let wanted = self.stories[number].may_speak(&word) && !self.is_late();
        if self.note(node, number, done, wanted) {
            self.stories[number].says(word);
        }
    }

    fn edit(
        &mut self,
        node: usize,
        number: usize,
        who: usize,
        for_whom: Option<usize>,
        narrower: bool,
        more: &Asked,
    ) {
        let seen = self.seen[node][number].clone();
        let note = format!("narrowed {}", seen.edits.len() + 1);
        let word = Said { who, for_whom, yes: true, on_edit: 0 };
        let (editor, needs) = (said(&seen, &word), requirement(more));
        let (_, done) = change(
            &self.nodes[node],
            &self.calls[number],
            note.as_str(),
            &if narrower { less() } else { other() },
            &seen,
            editor,
            &needs,
        );
        let story = &self.stories[number];
        let open = story.stands == Stands::Pending && !self.is_late();
        let asks_the_same = more.groups.keys().eq(story.asked.groups.keys());
        let wanted = open
            && story.edits() < crate::approval::EDITS_MAX
            && asks_the_same
            && PEOPLE[who].1.is_none()
            && !word.names().iter().any(|name| story.authors.contains(name));
        if self.note(node, number, done, wanted) {
            self.stories[number].asked_ms = self.passed_ms();
            if narrower {
                self.stories[number].narrows(word, &note, more);
            } else {
                self.stories[number].rewrites(&word, &note, more);
            }
        }
    }

    fn end(&mut self, node: usize, number: usize, end: ApprovalState) {
        let seen = self.seen[node][number].clone();
        let done = ready(self.nodes[node].ledger.end_approval(&seen, end, event()));
        let wanted = matches!(self.stories[number].stands, Stands::Pending | Stands::Approved);
        if self.note(node, number, done, wanted) {
            self.stories[number].stands = Stands::Ended;
        }
    }

    /// Dispatches what a node believes to be approved.
    fn redeem(&mut self, node: usize, number: usize, with_approval: bool) {
        let world = &self.nodes[node];
        let (seen, call) = (&self.seen[node][number], self.current(number));
        if self.stories[number].stands == Stands::Failed && !with_approval {
            // Whether a call without an effect may be tried again without an approval is for policies to decide.
            return;
        }
        let Some(record) = ready(world.store.effect(call.record_id)).unwrap() else { return };
        // A node decides by what it read; its permit is for that request.
        let note = &self.stories[number].notes[seen.edits.len()];
        let believed = world.call(call.name(), note, call.key.as_str());
        let sent = world.dispatch(&believed, &record, with_approval.then_some(seen));
        let story = &mut self.stories[number];
        match sent {
            Ok(armed) => {
                assert!(with_approval, "it ran under no approval");
                // A call without an effect may be tried again under the same approval.
                let may_run = matches!(story.stands, Stands::Approved | Stands::Failed);
                assert!(may_run, "it ran without enough agreement: {:?}", story.stands);
                assert!(
                    story.is_satisfied()
                        && self.nodes[0].now().as_ms() - self.begun_ms < EXPIRES_MS
                );
                let ran = armed.dispatch.args()["note"].as_str().unwrap().to_owned();
                assert_eq!(Some(&ran), story.notes.last(), "something else ran");
                story.stands = Stands::Executed;
                self.executed[number].push(ran);
                self.sent[number] = Some((node, armed.settlement));
            }
            Err(error) => {
                let fresh = self.is_fresh(node, number) && with_approval && !self.is_late();
                let approved = self.stories[number].stands == Stands::Approved;
                assert!(!(fresh && approved), "what was approved does not run: {error}");
            }
        }
    }

    /// A call that was sent gets an outcome.
    fn settle(&mut self, number: usize, end: usize) {
        let Some((node, settlement)) = self.sent[number].take() else { return };
        let (outcome, status, stands) = match end {
            0 => {
                let nothing = Outcome::FailedRetriable(ErrorCode::AdapterUnavailable);
                (nothing, ResultStatus::Failed, Stands::Failed)
            }
            1 => (Outcome::Succeeded, ResultStatus::Succeeded, Stands::Done),
            _ => (Outcome::Unknown("reset".to_owned()), ResultStatus::Unknown, Stands::Unknown),
        };
        let envelope = result(&self.current(number), status);
        ready(self.nodes[node].ledger.settle(settlement, outcome, &envelope)).unwrap();
        self.stories[number].stands = stands;
        self.without_effect[number] += usize::from(stands == Stands::Failed);
    }

    fn use_grant(&mut self, node: usize) {
        self.keys += 1;
        let world = &self.nodes[node];
        let call = world.call("pay", "1", &format!("pay{}", self.keys));
        let claimed = world.claim(&call);
        let permit = world.permit_under(&call, &self.grant);
        let (intent, dedup) = (world.intent(&call), world.dedup(&call));
        let sent = ready(world.ledger.dispatch(permit, intent, &claimed, None, dedup));
        let agreed = self.grant_says.len() >= 2 && !self.is_grant_over && !self.is_late();
        match sent {
            Ok(_) => {
                self.uses += 1;
                assert!(agreed && self.uses <= USES_MAX, "{} uses, agreed: {agreed}", self.uses);
            }
            Err(LedgerError::Store(StoreError::GrantSpent)) => {
                assert!(!agreed || self.uses >= USES_MAX)
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn stored_grant(&self, node: usize) -> Directive {
        let id = DirectiveId::new("dir_1").unwrap();
        ready(self.nodes[node].store.directive(&id)).unwrap().unwrap()
    }

    fn agree_to_grant(&mut self, node: usize, who: usize) {
        let stored = self.stored_grant(node);
        let ballot = Vote {
            shown_digest: stored.terms(),
            tenant: PEOPLE[who].1.map(|name| name.parse().unwrap()),
            ..vote(&self.seen[0][0], PEOPLE[who].0, VoteChoice::Approve)
        };
        let Ok(next) = stored.cast(ballot, self.nodes[node].now()) else { return };
        ready(self.nodes[node].ledger.put_directive(next, event())).unwrap();
        assert!(PEOPLE[who].1.is_none(), "an external approver agreed to what stands");
        self.grant_says.insert(who);
    }

    fn end_grant(&mut self, node: usize) {
        let by = PrincipalId::new("ann").unwrap();
        let end = DirectiveNote { by, at: self.nodes[node].now(), text: "enough".to_owned() };
        // From the proposed version: another node may have moved it.
        let stale = Directive { state: DirectiveState::Active, rev: 2, ..self.grant.clone() };
        for entry in [stale, self.stored_grant(node)] {
            let Ok(next) = entry.ended(end.clone()) else { continue };
            match ready(self.nodes[node].ledger.put_directive(next, event())) {
                Ok(_) => self.is_grant_over = true,
                Err(LedgerError::Store(StoreError::Conflict)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The recount and the store agree, and so do an approval and its effect.
    fn check(&self) {
        for (number, story) in self.stories.iter().enumerate() {
            let approval = self.nodes[0].approval(&self.seen[0][number]);
            let state = approval.state.name();
            assert!(story.stands.names().contains(&state), "{state}, counted {:?}", story.stands);
            let effect = ready(self.nodes[1].store.effect(approval.record_id)).unwrap();
            let effect = effect.map(|record| record.state.name());
            let wanted: &[Option<&str>] = match story.stands {
                Stands::Pending => &[Some("pending_approval")],
                Stands::Approved => &[Some("approved")],
                Stands::Denied => &[Some("denied")],
                Stands::Ended => &[Some("denied"), None],
                Stands::Executed => &[Some("dispatched")],
                Stands::Failed => &[Some("failed_retriable")],
                Stands::Done => &[Some("succeeded")],
                Stands::Unknown => &[Some("indeterminate")],
            };
            assert!(wanted.contains(&effect), "{effect:?}, counted {:?}", story.stands);
            let ran = self.executed[number].len() - self.without_effect[number];
            assert!(ran <= 1, "it ran twice");
        }
        assert_eq!(self.stored_grant(0).uses, self.uses);
    }
}

#[test]
fn no_order_executes_without_agreement_or_twice() {
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() };
    let seen = RefCell::new(Seen::default());
    let steps = proptest::collection::vec(step(), 1..60);
    let orders = (1..3_u32, 0..9_u32, steps);
    let ended = TestRunner::new(config).run(&orders, |(denials, begun, steps)| {
        let mut play = Play::new(denials);
        // Some orders begin with a call that runs: random steps seldom get that far.
        let begins = steps::beginning(begun);
        for step in begins.iter().chain(&steps) {
            play.take(step);
        }
        seen.borrow_mut().note(&play);
        Ok(())
    });
    ended.unwrap_or_else(|why| panic!("{why}"));
    let seen = seen.into_inner();
    assert!(seen.is_all(), "{seen:?}");
}

/// The same concurrently: of many redemptions, and of many last uses of a grant, one succeeds.
#[test]
fn of_nodes_that_race_for_one_approval_one_executes() {
    for round in 0..40 {
        let mut play = Play::new(1);
        for (who, node) in [(0, 0), (1, 0)] {
            play.take(&Step::Vote(node, 0, who, None, true));
        }
        play.take(&Step::Look(1, 0));
        assert_eq!(play.stories[0].stands, Stands::Approved);
        let call = play.current(0);
        let start = std::sync::Barrier::new(2);
        let wins: usize = std::thread::scope(|scope| {
            let racers = [0, 1].map(|node| {
                let (world, seen) = (&play.nodes[node], &play.seen[node][0]);
                let (call, start) = (&call, &start);
                scope.spawn(move || {
                    let record = world.record(call);
                    start.wait();
                    usize::from(world.dispatch(call, &record, Some(seen)).is_ok())
                })
            });
            racers.map(|racer| racer.join().unwrap()).into_iter().sum()
        });
        assert_eq!(wins, 1, "round {round}");
        assert!(matches!(play.nodes[0].record(&call).state, EffectState::Dispatched(_)));
    }
}
