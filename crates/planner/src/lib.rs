//! The planner: a ReAct loop over any model behind an OpenAI-compatible endpoint (requirements PL-01 to PL-03).
//!
//! The model reads the task and answers with tool calls; Placet executes them as one batch of a run; the model reads the results
//! next, until it calls no tool or a limit ends the plan.
//!
//! Owns the [`Plan`], the messages and the [`Progress`] between two steps. Not here: Placet itself ([`Toolbox`]), files, the terminal.
//! Invariant: the calls of a batch are in the saved progress before they are sent, under the ids that a repetition uses too, so that an
//! interrupted plan resumes without a write being made twice.

mod plan;
mod react;
mod schema;
mod words;

pub use plan::{Limits, Model, Plan, PlanError, ToolDescription};
pub use react::{Event, Held, Outcome, PlannedCall, Progress, React, StepError, Toolbox};
