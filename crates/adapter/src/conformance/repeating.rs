//! Calling twice: tools that change nothing, and tools that honour a token.
//!
//! Owns these two orders of calls. The second call with a key is what recovery does after a crash: the same token once more.

use super::{Run, Standing, asking};

const ANSWERS: &str = "it can be called";
const AGAIN: &str = "the same token is answered the same";
const ONE: &str = "the same token twice has one effect";
const ANOTHER: &str = "another token has another effect";

pub(super) async fn read_only(run: &mut Run<'_>) {
    let before = run.baseline().await;
    if run.without_time().await.is_none()
        || run.done(ANSWERS, "first").await.is_none()
        || run.done(ANSWERS, "second").await.is_none()
    {
        return;
    }
    run.note(ANSWERS, Standing::Passed, "twice, without complaint");
    run.in_a_hurry("third").await;
    run.counts("calling it has no effect", before, 0).await;
}

pub(super) async fn keyed(run: &mut Run<'_>) {
    let before = run.baseline().await;
    if run.without_time().await.is_none() {
        return;
    }
    run.counts("a call that is not sent has no effect", before, 0).await;
    let Some(first) = run.done(ANSWERS, "one").await else { return };
    run.note(ANSWERS, Standing::Passed, "it was done");
    let Some(again) = run.done(AGAIN, "one").await else { return };
    if first.token != again.token {
        return run.note(AGAIN, Standing::Failed, "the check itself has sent another token");
    }
    let same = first.answer.output == again.answer.output;
    let seen = if same { "both answers are equal" } else { "the two answers differ" };
    run.judge(AGAIN, same, seen);
    run.in_a_hurry("one").await;
    run.counts(ONE, before, 1).await;
    let Some(other) = run.done(ANOTHER, "two").await else { return };
    if before.is_some() {
        run.counts(ANOTHER, before, 2).await;
    } else if other.answer.output == first.answer.output {
        run.unseen(ANOTHER);
    } else {
        run.note(ANOTHER, Standing::Passed, "its answer is another one");
    }
    if let Some(delay) = run.capability.settle_delay_ms() {
        asking::strangers(run).await;
        asking::committed(run, &first, delay).await;
        run.counts(asking::NO_EFFECT, before, 2).await;
    }
}
