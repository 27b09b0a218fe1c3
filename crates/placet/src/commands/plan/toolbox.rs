//! A plan's connection to a running Placet: its run, its batches, its file, the lines that a person sees.

use std::path::PathBuf;

use async_trait::async_trait;
use placet_planner::{Event, Progress, Toolbox};
use placet_types::{error::ErrorCode, text};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    client::{Client, Reply},
    failure::Failure,
    output,
};

const ARGUMENTS_CHARS_SHOWN: usize = 200;
const THOUGHT_CHARS_SHOWN: usize = 1_000;

/// A running Placet, and where progress is kept.
pub(super) struct Remote {
    pub(super) client: Client,
    pub(super) state: PathBuf,
}

#[derive(Serialize)]
struct Run<'a> {
    run_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    safety_mode: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_budget: Option<&'a Value>,
}

#[derive(Deserialize)]
struct Opened {
    agent: String,
    on_behalf_of: Option<String>,
}

#[derive(Deserialize)]
struct Tools {
    tools: Vec<Value>,
}

#[derive(Deserialize)]
struct Results {
    results: Vec<Value>,
}

impl Remote {
    /// Who the caller is: the agent, and the user that it acts for. Opens the run if it is not open.
    pub(super) async fn caller(
        &self,
        progress: &Progress,
    ) -> Result<(String, Option<String>), Failure> {
        let path = ["v1", "runs", &progress.run_id];
        let mut reply = self.client.fetch(&path, &[]).await?;
        if is_not_open(&reply) {
            self.open(progress).await?;
            reply = self.client.fetch(&path, &[]).await?;
        }
        let Opened { agent, on_behalf_of } = reply.document()?;
        Ok((agent, on_behalf_of))
    }

    /// Opens the run. The tools of unfinished calls are in its surface, as they were when the model called them, if all still exist.
    async fn open(&self, progress: &Progress) -> Result<(), Failure> {
        let plan = &progress.plan;
        let run = Run {
            run_id: &progress.run_id,
            safety_mode: plan.safety_mode.as_deref(),
            run_budget: plan.run_budget.as_ref(),
        };
        let mut tools: Vec<&String> =
            progress.calls.iter().filter_map(|planned| planned.tool.as_ref()).collect();
        tools.sort_unstable();
        tools.dedup();
        let forced =
            tools.iter().map(|name| json!({ "type": "function", "function": { "name": name } }));
        // A function is named as the model knows it, which may be a part of the tool's name: the planner itself enforces that choice.
        let choice = plan.tool_choice.as_ref().and_then(Value::as_str).unwrap_or("auto");
        let request = |forced: Vec<Value>| {
            json!({
                "run": run, "tool_choice": choice, "forced_tools": forced,
                "calls_per_batch_max": plan.max_parallel_tool_calls,
            })
        };
        let mut reply = self.client.post(&["v1", "runs"], &request(forced.collect())).await?;
        // One of these tools is gone. Without them the run opens, and each call is answered for itself.
        if !tools.is_empty() && is_problem(&reply, ErrorCode::ToolNotFound) {
            reply = self.client.post(&["v1", "runs"], &request(Vec::new())).await?;
        }
        reply.document::<Value>().map(drop)
    }
}

/// Whether the node does not have the run: it is new, or the node was started since.
fn is_not_open(reply: &Reply) -> bool {
    is_problem(reply, ErrorCode::RunNotFound)
}

fn is_problem(reply: &Reply, code: ErrorCode) -> bool {
    reply.problem().is_some_and(|problem| problem.error_code == code)
}

#[async_trait]
impl Toolbox for Remote {
    type Error = Failure;

    async fn offer(&self, progress: &Progress) -> Result<Vec<Value>, Failure> {
        let path = ["v1", "runs", &progress.run_id, "tools"];
        let query = [("format", "openai")];
        let mut reply = self.client.fetch(&path, &query).await?;
        if is_not_open(&reply) {
            self.open(progress).await?;
            reply = self.client.fetch(&path, &query).await?;
        }
        Ok(reply.document::<Tools>()?.tools)
    }

    async fn batch(&self, progress: &Progress, batch: &Value) -> Result<Vec<Value>, Failure> {
        let path = ["v1", "runs", &progress.run_id, "batches"];
        let mut reply = self.client.post(&path, batch).await?;
        if is_not_open(&reply) {
            self.open(progress).await?;
            reply = self.client.post(&path, batch).await?;
        }
        Ok(reply.document::<Results>()?.results)
    }

    fn save(&mut self, progress: &Progress) -> Result<(), Failure> {
        super::save(&self.state, progress)
    }

    fn show(&mut self, event: Event<'_>) {
        let shown = |what: &str, chars| output::clipped(&text::visible(what), chars);
        output::note(match event {
            Event::Thought(thought) => shown(thought, THOUGHT_CHARS_SHOWN),
            Event::Called { iteration, tool, arguments } => {
                format!(
                    "{iteration:>3}  {} {}",
                    text::visible(tool),
                    shown(arguments, ARGUMENTS_CHARS_SHOWN)
                )
            }
            Event::Observed { tool, status, error_code } => {
                let code = error_code.map(|code| format!(" {code}")).unwrap_or_default();
                format!("     {} {status}{code}", text::visible(tool))
            }
        });
    }
}
