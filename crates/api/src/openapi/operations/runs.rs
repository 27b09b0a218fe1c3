//! The operations on runs.
//!
//! Owns their rows: texts, parameters and answers.

use placet_engine::runs::{
    batch_views::{Batch, BatchHistory, BatchView, OpenRuns},
    views::{OpenRun, RunTools, RunView, ToolsChange, ToolsChanged},
};
use placet_types::ids::RunId;

use super::one_of_or;
use crate::{
    openapi::{
        schemas::identifier,
        table::{Route, get, post},
    },
    routes::runs::{self, FORMATS},
};

pub(in crate::openapi) fn routes() -> Vec<Route> {
    vec![
        post("/v1/runs", runs::open, "openRun", "runs", "Opens a run for the caller on this node")
            .about(
                "Fixes the run's ceiling and budget, as a first call does. `RUN_TAKEN` if the run is already open. The tools of a run are kept \
                 in this node's memory: after a restart, or an hour without a request for the run, it is `RUN_NOT_FOUND` until it is opened \
                 again.",
            )
            .body::<OpenRun>()
            .ok::<RunView>("The run"),
        get("/v1/runs", runs::list, "listRuns", "runs", "Lists the open runs of this node that the caller may see")
            .about(
                "Operators and auditors see all runs of their tenant, other people those of their agents and those that act for them, an \
                 agent its own. At most 200, the most recently used first.",
            )
            .query("run_id", "Only runs with this id, with their batches", identifier::<RunId>())
            .ok::<OpenRuns>("The runs"),
        get("/v1/runs/{id}", runs::get, "getRun", "runs", "Returns the state of an open run")
            .ok::<RunView>("The run"),
        get("/v1/runs/{id}/tools", runs::tools, "listRunTools", "runs", "Lists the tools for the next turn of a run's model")
            .query("format", "The format of the definitions", one_of_or("plain", FORMATS.map(|(name, _)| name)))
            .ok::<RunTools>("Definitions and prompts"),
        post("/v1/runs/{id}/tools", runs::change, "changeRunTools", "runs", "Forces or excludes tools of a run")
            .about("All or nothing. Forcing a tool ends its exclusion.")
            .body::<ToolsChange>()
            .ok::<ToolsChanged>("The result of the change"),
        post("/v1/runs/{id}/batches", runs::batch, "sendBatch", "runs", "Sends the calls of one turn of a run's model")
            .about(
                "Equal calls are made once, the others in parallel; each has its own outcome. A tool that takes control must be the only call, \
                 or nothing of the batch is executed. A batch that is repeated under the same id takes effect once: the response has the \
                 outcomes of its calls.",
            )
            .keyed(
                "The id of the batch; the body may carry it instead.",
                "W3C Trace Context; passed on to the adapters.",
            )
            .body::<Batch>()
            .ok::<BatchView>("The outcome of each call, in order"),
        get("/v1/runs/{id}/batches", runs::batches, "listBatches", "runs", "Lists the batches of a run, with their calls")
            .ok::<BatchHistory>("The batches, oldest first"),
    ]
}
