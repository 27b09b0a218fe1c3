//! Return: the typed answer, and the numbers of the call.
//!
//! Owns what is counted of a finished call. The result is settled before it comes here, so that a failing return stage loses
//! nothing: its caller is answered from the ledger.

use crate::{
    call::{Call, Invoked},
    context::Context,
    stages::recorded,
};

/// Answers a settled call.
pub(crate) fn reply(context: &Context, call: Call<Invoked>) {
    let Call { responder, stage: Invoked { result } } = call;
    context.metrics.called(&result, responder.began.elapsed());
    responder.finish(recorded::of_result(result, false));
}
