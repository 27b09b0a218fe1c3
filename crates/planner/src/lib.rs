//! The planner: a ReAct loop over any model behind an OpenAI-compatible endpoint (requirements PL-01 to PL-03).
//!
//! The model reads the task and answers with tool calls; Placet executes them as one batch of a run; what came of them is what the
//! model reads next, until it calls no tool or a limit ends it.
//!
//! Owns the [`Plan`], the messages and the [`Progress`] between two steps. Not here: Placet itself ([`Toolbox`]), files, the terminal.
//! Invariant: the calls of a batch are in the progress that was saved before they are sent, under the id that they are sent with again,
//! so that a plan that is cut off anywhere goes on without anything being done twice.

mod plan;
mod react;
mod schema;
mod words;

pub use plan::{Limits, Model, Plan, PlanError, ToolDescription};
pub use react::{Event, Held, Outcome, PlannedCall, Progress, React, StepError, Toolbox};
