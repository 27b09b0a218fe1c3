//! What may happen next.

use super::{
    ATTEMPTS_MAX, Approval, At, Att, By, Class, Doctored, Outcome, Pc, Rec, Reply, Setting, World,
};

type Steps = Vec<(&'static str, World)>;

/// The carrier of a call.
#[derive(Clone, Copy)]
enum Who {
    Call(usize),
    Keeper,
}

impl World {
    /// Everything that may happen next.
    pub(crate) fn successors(&self, setting: &Setting) -> Steps {
        let mut steps = Vec::new();
        for number in 0..self.calls.len() {
            self.carry(Who::Call(number), setting, &mut steps);
        }
        self.carry(Who::Keeper, setting, &mut steps);
        self.recover(setting, &mut steps);
        self.people(setting, &mut steps);
        self.elsewhere(setting, &mut steps);
        if self.crashes_left > 0 && !self.is_over() {
            steps.push(("crash", self.crashed()));
        }
        steps
    }

    fn crashed(&self) -> World {
        let again = |pc: &Pc| if *pc == Pc::Done { Pc::Done } else { Pc::Start };
        World {
            rec: self.durable,
            is_claimed: false,
            epoch: self.epoch + 1,
            crashes_left: self.crashes_left - 1,
            calls: [again(&self.calls[0]), again(&self.calls[1]), again(&self.calls[2])],
            keeper: Pc::Start,
            ..self.clone()
        }
    }

    fn pc(&self, who: Who) -> Pc {
        match who {
            Who::Call(number) => self.calls[number],
            Who::Keeper => self.keeper,
        }
    }

    fn at(&self, who: Who, pc: Pc) -> World {
        let mut next = self.clone();
        match who {
            Who::Call(number) => next.calls[number] = pc,
            // It has no caller to answer.
            Who::Keeper => next.keeper = if let Pc::Tell(_) = pc { Pc::Start } else { pc },
        }
        next
    }

    /// Commits a change of `read`; `None` if the record has moved since.
    fn commit(&self, read: Option<Rec>, next: Rec, setting: &Setting) -> Option<World> {
        if self.rec != read && !setting.lacks(Doctored::IgnoresRevisions) {
            return None;
        }
        let is_lost = setting.lacks(Doctored::DispatchNotDurable) && next.at == At::Dispatched;
        let durable = if is_lost { self.durable } else { Some(next) };
        Some(World { rec: Some(next), durable, ..self.clone() })
    }

    fn carry(&self, who: Who, setting: &Setting, steps: &mut Steps) {
        match self.pc(who) {
            Pc::Start => self.arrive(who, setting, steps),
            Pc::Claimed => self.begin(who, setting, steps),
            Pc::Ready(read) => self.dispatch(who, read, setting, steps),
            Pc::Sent(sent) => self.invoke(who, sent, setting, steps),
            Pc::Heard(sent, outcome) => self.settle(who, sent, outcome, setting, steps),
            Pc::Tell(reply) => steps.push(("reply", self.tell(reply).at(who, Pc::Done))),
            Pc::Done => {}
        }
    }

    /// A caller is answered.
    fn tell(&self, reply: Reply) -> World {
        let mut next = self.clone();
        if let Reply::Result(result) = reply {
            if self.told.is_some_and(|told| told != result) {
                next.wrong = Some("I4: two callers were told different results");
            }
            next.told = Some(result);
        }
        next
    }

    /// A call arrives, or looks again.
    fn arrive(&self, who: Who, setting: &Setting, steps: &mut Steps) {
        let Who::Call(_) = who else {
            // A re-armed call is carried by the ledger.
            if let Some(rec @ Rec { at: At::Rearmed, .. }) = self.rec {
                steps.push(("the re-armed call is taken up", self.at(who, Pc::Ready(rec))));
            }
            return;
        };
        let Some(rec) = self.rec else {
            if !self.is_claimed || setting.lacks(Doctored::IgnoresClaims) {
                steps.push(("claim", World { is_claimed: true, ..self.at(who, Pc::Claimed) }));
            }
            return;
        };
        let answer = match rec.at {
            At::Approved => {
                return steps.push(("take up the approved call", self.at(who, Pc::Ready(rec))));
            }
            At::Succeeded if setting.lacks(Doctored::AnswersAgain) && self.told.is_some() => {
                Reply::Result(rec.result + 1)
            }
            At::Succeeded => Reply::Result(rec.result),
            At::FailedFinal | At::Denied => Reply::NotExecuted,
            At::FailedRetriable => {
                if rec.attempts < ATTEMPTS_MAX {
                    steps.push(("try again", self.at(who, Pc::Ready(rec))));
                }
                Reply::NotExecuted
            }
            At::Unknown => Reply::Unknown,
            At::Pending | At::Dispatched | At::Rearmed => return,
        };
        let mut next = self.at(who, Pc::Tell(answer));
        let happened =
            self.effects.iter().any(|count| *count > 0) || self.on_its_way.contains(&true);
        if answer == Reply::NotExecuted && happened && setting.class != Class::ReadOnly {
            next.wrong = Some("I12: told that nothing happened, and it has or still may");
        }
        steps.push(("answer from the record", next));
    }

    /// The claim's first commit: a dispatch, or an approval.
    fn begin(&self, who: Who, setting: &Setting, steps: &mut Steps) {
        if setting.with_approval {
            let pending = Rec { at: At::Pending, rev: 1, ..fresh() };
            if let Some(next) = self.commit(None, pending, setting) {
                let next = World { approval: Approval::Pending, is_claimed: false, ..next };
                steps.push(("hold", next.at(who, Pc::Start)));
                return;
            }
        } else if let Some(next) = self.commit(None, self.dispatched(fresh(), false), setting) {
            let sent = Pc::Sent(next.rec.unwrap_or_else(fresh));
            steps.push(("dispatch", World { is_claimed: false, ..next.at(who, sent) }));
            return;
        }
        steps.push(("the claim came too late", self.at(who, Pc::Start)));
    }

    /// The record with one more attempt.
    fn dispatched(&self, read: Rec, after_unknown: bool) -> Rec {
        let att = Att {
            number: read.attempts + 1,
            arm: read.arm,
            epoch: self.epoch,
            duty: self.epoch,
            after_unknown: after_unknown || read.earlier.is_some(),
        };
        Rec {
            at: At::Dispatched,
            rev: read.rev + 1,
            attempts: att.number,
            att: Some(att),
            result: 0,
            by: None,
            ..read
        }
    }

    /// From an approved, failed or re-armed record to the next attempt.
    fn dispatch(&self, who: Who, read: Rec, setting: &Setting, steps: &mut Steps) {
        if read.at == At::Rearmed && setting.with_approval {
            let pending = Rec { at: At::Pending, rev: read.rev + 1, ..read };
            let next = self.commit(Some(read), pending, setting);
            let next = next.map(|next| World { approval: Approval::Pending, ..next });
            return steps.push((
                "hold the re-armed call",
                next.unwrap_or_else(|| self.clone()).at(who, Pc::Start),
            ));
        }
        if read.at == At::FailedRetriable && setting.with_approval {
            // Policy may require approval again: the earlier approval has ended, or was a standing grant.
            let pending = Rec { at: At::Pending, rev: read.rev + 1, att: None, ..read };
            let next = self.commit(Some(read), pending, setting);
            let next = next.map(|next| World { approval: Approval::Pending, ..next });
            steps.push((
                "hold the call that failed",
                next.unwrap_or_else(|| self.clone()).at(who, Pc::Start),
            ));
        }
        let unchecked = setting.lacks(Doctored::RunsWhatWasNotApproved);
        let next = self.dispatched(read, false);
        let committed = if unchecked {
            Some(World { rec: Some(next), durable: Some(next), ..self.clone() })
        } else {
            self.commit(Some(read), next, setting)
        };
        let Some(committed) = committed else {
            return steps.push(("somebody else was first", self.at(who, Pc::Start)));
        };
        let mut committed = committed.at(who, Pc::Sent(next));
        if setting.with_approval {
            // What is consumed in the same commit must be a valid approval; a further attempt of the arm runs under it too.
            if !matches!(self.approval, Approval::Approved | Approval::Consumed) {
                committed.wrong = Some("I10: dispatched without an agreement");
            }
            committed.approval = Approval::Consumed;
        }
        steps.push(("dispatch", committed));
    }

    /// The adapter is called.
    fn invoke(&self, who: Who, sent: Rec, setting: &Setting, steps: &mut Steps) {
        let arm = usize::from(sent.arm - 1);
        let heard = |outcome| self.at(who, Pc::Heard(sent, outcome));
        let mut lost = heard(Outcome::Unknown);
        lost.on_its_way[arm] = setting.class != Class::ReadOnly;
        steps.push(("no answer, and the request is on its way", lost));
        steps.push(("refused before any effect", heard(Outcome::Retriable)));
        for (label, outcome) in
            [("done", Outcome::Succeeded), ("done, and no answer", Outcome::Unknown)]
        {
            let mut next = heard(outcome);
            next.act(arm, setting);
            // I2: an effect has its intent on disk.
            let is_recorded = self.durable.is_some_and(|rec| rec.attempts >= sent.attempts);
            if !is_recorded && setting.class != Class::ReadOnly {
                next.wrong = Some("I2: an effect without an intent on disk");
            }
            steps.push((label, next));
        }
        // A definite "no" of a target that knows the token is about all attempts of the arm.
        if self.effects[arm] == 0 && (setting.class == Class::Keyed || !self.on_its_way[arm]) {
            let mut refused = heard(Outcome::Final);
            refused.on_its_way[arm] = false;
            steps.push(("refused for good", refused));
        }
    }

    /// The effect happens, unless the target knows the token.
    fn act(&mut self, arm: usize, setting: &Setting) {
        let is_known =
            setting.class == Class::Keyed && !self.is_window_over && self.effects[arm] > 0;
        if setting.class != Class::ReadOnly && !is_known {
            self.effects[arm] += 1;
        }
    }

    fn settle(&self, who: Who, sent: Rec, outcome: Outcome, setting: &Setting, steps: &mut Steps) {
        let Some(att) = sent.att else { return };
        if outcome == Outcome::Unknown && self.may_repeat(sent, setting) {
            let again = self.dispatched(sent, true);
            if let Some(next) = self.commit(Some(sent), again, setting) {
                steps.push(("send again under the same token", next.at(who, Pc::Sent(again))));
            }
        }
        let settled = self.settled(sent, att, outcome, setting);
        let reply = reply_of(settled);
        if setting.lacks(Doctored::RepliesBeforeItIsDurable) && outcome == Outcome::Succeeded {
            steps.push(("reply at once", self.tell(reply)));
        }
        let Some(mut next) = self.commit(Some(sent), settled, setting) else {
            return steps.push(("the record has moved", self.at(who, Pc::Start)));
        };
        let arm = usize::from(sent.arm - 1);
        let happened = self.effects[arm] > 0 || self.on_its_way[arm];
        if matches!(settled.at, At::FailedRetriable | At::FailedFinal)
            && happened
            && setting.class != Class::ReadOnly
        {
            next.wrong = Some("I12: recorded that nothing happened, and it has or still may");
        }
        steps.push(("settle", next.at(who, Pc::Tell(reply))));
    }

    /// The state that an outcome leads to, as in the ledger's verbs.
    fn settled(&self, sent: Rec, att: Att, outcome: Outcome, setting: &Setting) -> Rec {
        let rev = sent.rev + 1;
        let forgets = setting.lacks(Doctored::ForgetsEarlierAttempts);
        let at = match outcome {
            Outcome::Succeeded => At::Succeeded,
            Outcome::Retriable if !att.after_unknown || forgets => At::FailedRetriable,
            Outcome::Final if sent.earlier.is_none() => At::FailedFinal,
            Outcome::Retriable | Outcome::Final | Outcome::Unknown => At::Unknown,
        };
        let kept = if at == At::Unknown { Some(att) } else { None };
        Rec { at, rev, att: kept, result: if at == At::Succeeded { att.number } else { 0 }, ..sent }
    }

    fn may_repeat(&self, sent: Rec, setting: &Setting) -> bool {
        let by_class = match setting.class {
            Class::ReadOnly => true,
            Class::Keyed => !self.is_window_over || setting.lacks(Doctored::IgnoresTheWindow),
            Class::Queryable => false,
            Class::Opaque => setting.lacks(Doctored::RepeatsWhatCannotBeRepeated),
        };
        by_class && sent.attempts < ATTEMPTS_MAX
    }

    /// T7: what an earlier process left in flight is adopted, and ended by class.
    fn recover(&self, setting: &Setting, steps: &mut Steps) {
        let (Some(rec), Pc::Start) = (self.rec, self.keeper) else { return };
        let (At::Dispatched, Some(att)) = (rec.at, rec.att) else { return };
        let carried = self
            .calls
            .iter()
            .any(|call| matches!(call, Pc::Sent(sent) | Pc::Heard(sent, _) if *sent == rec));
        if carried || setting.lacks(Doctored::StrandsTheDead) {
            return;
        }
        if att.duty < self.epoch {
            let adopted =
                Rec { rev: rec.rev + 1, att: Some(Att { duty: self.epoch, ..att }), ..rec };
            steps.extend(self.commit(Some(rec), adopted, setting).map(|next| ("adopt", next)));
            return;
        }
        if self.may_repeat(rec, setting) {
            let again = self.dispatched(rec, true);
            let next = self.commit(Some(rec), again, setting);
            steps.extend(
                next.map(|next| {
                    ("recovery sends again", World { keeper: Pc::Sent(again), ..next })
                }),
            );
        }
        let arm = usize::from(rec.arm - 1);
        let is_quiet = !self.on_its_way[arm] || setting.lacks(Doctored::ProbesTooEarly);
        let outcome = match setting.class {
            Class::Queryable if self.effects[arm] > 0 => Outcome::Succeeded,
            Class::Queryable if is_quiet => Outcome::Retriable,
            Class::Opaque if setting.lacks(Doctored::GuessesAfterACrash) => Outcome::Retriable,
            _ => Outcome::Unknown,
        };
        let mut settled = self.settled(rec, rec.att.unwrap_or(att), outcome, setting);
        if settled.at == At::Succeeded {
            settled.by = Some(By::Probe(att.number));
        }
        let Some(mut next) = self.commit(Some(rec), settled, setting) else { return };
        if settled.at == At::FailedRetriable && (self.effects[arm] > 0 || self.on_its_way[arm]) {
            next.wrong = Some("I12: recorded that nothing happened, and it has or still may");
        }
        steps.push(("recovery settles", next));
    }

    /// Approvers and operators.
    fn people(&self, setting: &Setting, steps: &mut Steps) {
        let Some(rec) = self.rec else { return };
        let moved = |at| Rec { at, rev: rec.rev + 1, ..rec };
        // Without a dispatch a re-armed record is unknown again.
        let ended = match rec.earlier {
            None => moved(At::Denied),
            Some(_) => Rec { att: rec.earlier, ..moved(At::Unknown) },
        };
        let mut go = |label, next: Rec, approval| {
            let next = self.commit(Some(rec), next, setting);
            steps.extend(next.map(|next| (label, World { approval, ..next })));
        };
        match rec.at {
            At::Pending => {
                go("approve", moved(At::Approved), Approval::Approved);
                go("deny", ended, Approval::Ended);
            }
            At::Approved => go("the approval expires", ended, Approval::Ended),
            At::Unknown => self.operate(rec, setting, steps),
            _ => {}
        }
    }

    /// Operators who check the target, and are not mistaken.
    fn operate(&self, rec: Rec, setting: &Setting, steps: &mut Steps) {
        let Some(att) = rec.att else { return };
        let arm = usize::from(att.arm - 1);
        let by =
            if setting.lacks(Doctored::EndsWithoutEvidence) { None } else { Some(By::Operator) };
        let next = Rec { rev: rec.rev + 1, att: None, by, asked: false, ..rec };
        let mut go = |label, next: Rec| {
            steps.extend(self.commit(Some(rec), next, setting).map(|next| (label, next)))
        };
        if self.effects[arm] > 0 {
            go(
                "an operator finds the effect",
                Rec { at: At::Succeeded, result: att.number, ..next },
            );
        } else if !self.on_its_way[arm] {
            go("an operator finds nothing", Rec { at: At::FailedFinal, ..next });
            if rec.arm == 1 && !rec.asked {
                go(
                    "an operator asks for another arm",
                    Rec { asked: true, att: rec.att, by: None, ..next },
                );
            } else if rec.asked {
                let rearmed = Rec { at: At::Rearmed, arm: 2, earlier: rec.att, by: None, ..next };
                go("a second operator agrees", rearmed);
            }
        }
    }

    /// The target, and time.
    fn elsewhere(&self, setting: &Setting, steps: &mut Steps) {
        for arm in 0..self.on_its_way.len() {
            if self.on_its_way[arm] {
                let mut gone = self.clone();
                gone.on_its_way[arm] = false;
                let mut arrived = gone.clone();
                arrived.act(arm, setting);
                steps.push(("the request arrives late", arrived));
                steps.push(("the request is lost", gone));
            }
        }
        // A request never takes as long as the margin at the window's end.
        let is_sending = |pc: &Pc| matches!(pc, Pc::Sent(_));
        let is_quiet = !self.on_its_way.contains(&true)
            && !self.calls.iter().chain([&self.keeper]).any(is_sending);
        if setting.class == Class::Keyed && !self.is_window_over && is_quiet {
            steps.push(("the window is over", World { is_window_over: true, ..self.clone() }));
        }
    }
}

fn fresh() -> Rec {
    Rec {
        at: At::Pending,
        rev: 0,
        arm: 1,
        attempts: 0,
        att: None,
        earlier: None,
        result: 0,
        by: None,
        asked: false,
    }
}

fn reply_of(settled: Rec) -> Reply {
    match settled.at {
        At::Succeeded => Reply::Result(settled.result),
        At::FailedFinal | At::FailedRetriable => Reply::NotExecuted,
        _ => Reply::Unknown,
    }
}
