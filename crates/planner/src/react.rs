//! The loop: ask the model, save its calls, have them executed, give it the results (PL-02).
//!
//! Owns the order of these steps, and when the plan is parked or ends. Not here: how progress is kept.

use std::time::Duration;

use async_trait::async_trait;
use placet_chat::{ChatClient, ChatError, ChatRequest, Message, Reply, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::plan::Plan;
use crate::schema::{Function, choice, functions, may_call};
use crate::words;

/// How many characters of one observation the model reads.
const OBSERVATION_CHARS_MAX: usize = 16_000;
/// How often in a row a model may answer with neither calls nor text, or, without function calling, in neither form.
const MISREAD_MAX: u32 = 3;
/// The message to a model with function calling after an answer that is empty.
const TOLD_AGAIN: &str = "Your answer was empty. Call tools, or answer with text.";

/// Placet, as far as a plan uses it.
#[async_trait]
pub trait Toolbox: Send + Sync {
    /// Why it cannot be done, or not now.
    type Error: Send;

    /// The functions that the run currently offers; the run is opened if it is not open.
    async fn offer(&self, progress: &Progress) -> Result<Vec<Value>, Self::Error>;

    /// Has the calls of one turn executed, and returns the `results` of the batch. Sending the same batch again makes no write twice.
    async fn batch(&self, progress: &Progress, batch: &Value) -> Result<Vec<Value>, Self::Error>;

    /// Saves the progress durably.
    ///
    /// # Errors
    /// When it cannot be kept; nothing is executed then.
    fn save(&mut self, progress: &Progress) -> Result<(), Self::Error>;

    /// Shows what happened.
    fn show(&mut self, event: Event<'_>);
}

/// What happened, for people who watch.
#[derive(Debug)]
pub enum Event<'a> {
    /// The model's text before it called tools.
    Thought(&'a str),
    /// It called a tool, with these arguments.
    Called {
        /// The iteration.
        iteration: u32,
        /// The tool.
        tool: &'a str,
        /// The arguments, as JSON.
        arguments: &'a str,
    },
    /// The status of a call: `succeeded`, `failed`, `refused`, `pending`, `unknown`.
    Observed {
        /// The tool.
        tool: &'a str,
        /// The call's status.
        status: &'a str,
        /// The error's code, where there is one.
        error_code: Option<&'a str>,
    },
}

/// Everything that a plan needs to resume: the state between two steps.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The plan.
    pub plan: Plan,
    /// The run at Placet.
    pub run_id: String,
    /// Whose run it is: the agent, and the user that it acts for. Another caller's calls would be other calls, and writes be made again.
    pub caller: Option<(String, Option<String>)>,
    /// The trace of all its requests, as the header `traceparent` has it.
    pub traceparent: String,
    /// How often the model has answered.
    pub iteration: u32,
    /// Tokens so far.
    pub tokens: u64,
    /// Milliseconds of work so far.
    pub worked_ms: u64,
    /// The conversation.
    pub messages: Vec<Message>,
    /// Calls that are being executed, or wait for people.
    pub calls: Vec<PlannedCall>,
    /// The final answer.
    pub answer: Option<String>,
}

/// A call of the model, and the tool it is for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedCall {
    /// The call.
    pub call: ToolCall,
    /// The tool's name at Placet; absent if the model may not call what it named. Such a call is not sent.
    pub tool: Option<String>,
}

impl Progress {
    /// The beginning of a plan.
    pub fn begin(plan: Plan, task: &str, run_id: String, traceparent: String) -> Self {
        let messages =
            vec![Message::new("system", plan.system_message()), Message::new("user", task)];
        Self {
            plan,
            run_id,
            caller: None,
            traceparent,
            iteration: 0,
            tokens: 0,
            worked_ms: 0,
            messages,
            calls: Vec::new(),
            answer: None,
        }
    }

    /// The id of the call in this place of the model's last answer.
    fn call_id(&self, place: usize) -> String {
        format!("call_{}_{place}", self.iteration)
    }

    /// The calls as one batch of Placet: the same whenever it is made of the same progress, so that it can be sent again.
    fn batch(&self) -> Value {
        // The ids of a model may be equal, or longer than Placet takes.
        let sent = |(place, PlannedCall { call, tool }): (usize, &PlannedCall)| {
            let function = json!({ "name": tool.as_ref()?, "arguments": call.function.arguments });
            Some(json!({ "id": self.call_id(place), "type": "function", "function": function }))
        };
        json!({
            "batch_id": format!("{}-{}", self.run_id, self.iteration),
            "calls": self.calls.iter().enumerate().filter_map(sent).collect::<Vec<_>>(),
        })
    }

    /// The result of each call, where these are the results of the calls that were sent; `None` if their number is another one.
    fn results(&self, sent: Vec<Value>) -> Option<Vec<Value>> {
        let mut sent = sent.into_iter();
        let result = |planned: &PlannedCall| match planned.tool {
            Some(_) => sent.next(),
            None => Some(not_offered()),
        };
        let results: Option<Vec<Value>> = self.calls.iter().map(result).collect();
        results.filter(|_| sent.next().is_none())
    }

    fn limit(&self) -> Option<&'static str> {
        let limits = &self.plan.limits;
        let over = [
            (self.iteration >= limits.iterations_max, "iterations_max"),
            (self.tokens >= limits.tokens_max, "tokens_max"),
            (self.worked_ms / 1_000 >= limits.seconds_max, "seconds_max"),
        ];
        over.into_iter().find_map(|(is_over, name)| is_over.then_some(name))
    }

    /// Whether it cannot go on: it has its answer, or a limit ended it.
    pub fn has_ended(&self) -> bool {
        self.answer.is_some() || (self.calls.is_empty() && self.limit().is_some())
    }

    /// What `limits.seconds_max` leaves.
    fn time_left(&self) -> Duration {
        let total_ms = self.plan.limits.seconds_max.saturating_mul(1_000);
        Duration::from_millis(total_ms.saturating_sub(self.worked_ms))
    }

    /// The calls and the text of an answer; `None` if it has neither: a model that refuses may leave both out.
    fn read(&self, calls: Option<Vec<ToolCall>>, text: &str) -> Option<(Vec<ToolCall>, String)> {
        let read = if self.plan.use_function_calling {
            Some((calls.unwrap_or_default(), text.to_owned()))
        } else {
            words::read(text)
        };
        read.filter(|(calls, answer)| !calls.is_empty() || !answer.trim().is_empty())
    }

    /// Takes an answer that cannot be used into the conversation, and asks for another one.
    fn take_misread(&mut self, text: String) {
        if !text.trim().is_empty() {
            self.messages.push(Message::new("assistant", text));
        }
        let again = if self.plan.use_function_calling { TOLD_AGAIN } else { words::TOLD_AGAIN };
        self.messages.push(Message::new("user", again));
    }

    /// Takes an answer of the model into the conversation.
    fn take_answer(&mut self, mut calls: Vec<ToolCall>, text: String, functions: &[Function]) {
        calls.truncate(self.plan.max_parallel_tool_calls);
        for (place, call) in calls.iter_mut().enumerate().filter(|(_, call)| call.id.is_empty()) {
            call.id = self.call_id(place);
        }
        let message = match (calls.is_empty(), self.plan.use_function_calling) {
            (true, _) => Message::new("assistant", text.clone()),
            (false, true) => {
                let tool_calls = Some(calls.clone());
                Message { tool_calls, ..Message::new("assistant", text.clone()) }
            }
            (false, false) => Message::new("assistant", words::written(&calls)),
        };
        self.messages.push(message);
        self.answer = calls.is_empty().then_some(text);
        let tool_of = |call: &ToolCall| {
            let known = functions.iter().find(|one| one.name == call.function.name)?;
            Some(known.tool.clone())
        };
        self.calls =
            calls.into_iter().map(|call| PlannedCall { tool: tool_of(&call), call }).collect();
    }

    /// Adds the results of the calls to the conversation.
    fn take_results(&mut self, results: &[Value]) {
        for (PlannedCall { call, .. }, result) in
            std::mem::take(&mut self.calls).into_iter().zip(results)
        {
            let seen = observation(result);
            self.messages.push(if self.plan.use_function_calling {
                Message { tool_call_id: Some(call.id), ..Message::new("tool", seen) }
            } else {
                Message::new("user", format!("Observation of {}: {seen}", call.function.name))
            });
        }
    }
}

/// The state of a plan when nothing more can be done at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done: the model's answer.
    Answered(String),
    /// These calls wait for people; the plan resumes when they have decided.
    Parked(Vec<Held>),
    /// A limit ended it: its name in the plan.
    Bounded(&'static str),
}

/// A call that waits for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The tool.
    pub tool: String,
    /// The call at Placet.
    pub tool_call_id: String,
    /// The approval that people decide.
    pub approval_id: String,
}

/// Why a step failed. What was saved before stays valid.
#[derive(Debug, thiserror::Error)]
pub enum StepError<E> {
    /// The model.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// Placet, or saving the progress.
    #[error("{0}")]
    Toolbox(E),
    /// Placet answered another number of results than there were calls.
    #[error("Placet did not answer each call of the batch")]
    Incomplete,
    /// The model kept answering in another form than requested.
    #[error("the model answers neither with tools to call nor with an answer")]
    Misread,
}

/// A running plan.
#[derive(Debug)]
pub struct React<T> {
    model: ChatClient,
    toolbox: T,
    progress: Progress,
    misread: u32,
}

impl<T: Toolbox> React<T> {
    /// Resumes from `progress`.
    pub const fn new(model: ChatClient, toolbox: T, progress: Progress) -> Self {
        Self { model, toolbox, progress, misread: 0 }
    }

    /// The progress so far.
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Works until there is an answer, people are asked, or a limit is reached.
    ///
    /// # Errors
    /// [`StepError`]; the same plan resumes from what was saved.
    pub async fn run(&mut self) -> Result<Outcome, StepError<T::Error>> {
        loop {
            if let Some(answer) = &self.progress.answer {
                return Ok(Outcome::Answered(answer.clone()));
            }
            let began = Instant::now();
            let done = self.step().await;
            let worked_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.progress.worked_ms = self.progress.worked_ms.saturating_add(worked_ms);
            let outcome = done?;
            self.toolbox.save(&self.progress).map_err(StepError::Toolbox)?;
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Outcome>, StepError<T::Error>> {
        if !self.progress.calls.is_empty() {
            return self.execute().await;
        }
        if let Some(limit) = self.progress.limit() {
            return Ok(Some(Outcome::Bounded(limit)));
        }
        self.ask().await?;
        Ok(None)
    }

    /// Asks the model; its calls or its answer are in the progress afterwards.
    async fn ask(&mut self) -> Result<(), StepError<T::Error>> {
        let offered = self.toolbox.offer(&self.progress).await.map_err(StepError::Toolbox)?;
        let choice = choice(&self.progress.plan, self.progress.iteration);
        let mut functions = functions(&self.progress.plan, &offered);
        let answering = timeout(self.progress.time_left(), self.complete(&functions, &choice));
        // When the time is up, the next step ends the plan.
        let Ok(reply) = answering.await else { return Ok(()) };
        let Reply { message, tokens } = reply?;
        functions.retain(|one| may_call(&choice, &one.name));
        self.progress.iteration = self.progress.iteration.saturating_add(1);
        self.progress.tokens = self.progress.tokens.saturating_add(tokens);
        let text = message.content.unwrap_or_default();
        let Some((calls, answer)) = self.progress.read(message.tool_calls, &text) else {
            self.misread = self.misread.saturating_add(1);
            if self.misread >= MISREAD_MAX {
                return Err(StepError::Misread);
            }
            self.progress.take_misread(text);
            return Ok(());
        };
        self.misread = 0;
        if !calls.is_empty() && !answer.is_empty() {
            self.toolbox.show(Event::Thought(&answer));
        }
        self.progress.take_answer(calls, answer, &functions);
        for PlannedCall { call, .. } in &self.progress.calls {
            let (tool, arguments) = (&call.function.name, &call.function.arguments);
            let iteration = self.progress.iteration;
            self.toolbox.show(Event::Called { iteration, tool, arguments });
        }
        Ok(())
    }

    /// Sends the conversation to the model, with these functions.
    async fn complete(&self, functions: &[Function], choice: &Value) -> Result<Reply, ChatError> {
        let mut messages = self.progress.messages.clone();
        let offered = functions.iter();
        if self.progress.plan.use_function_calling {
            let functions: Vec<Value> = offered.map(|one| one.definition.clone()).collect();
            let asked = ChatRequest {
                messages: &messages,
                functions: &functions,
                tool_choice: Some(choice),
                ..ChatRequest::default()
            };
            return self.model.complete(asked).await;
        }
        let offered = offered.filter(|one| may_call(choice, &one.name));
        let offered: Vec<Value> = offered.map(|one| one.definition.clone()).collect();
        messages.insert(1, Message::new("system", words::told(&offered)));
        self.model.complete(ChatRequest { messages: &messages, ..ChatRequest::default() }).await
    }

    /// Has the calls executed; while any of them waits for people, all stay where they are.
    async fn execute(&mut self) -> Result<Option<Outcome>, StepError<T::Error>> {
        let sent = if self.progress.calls.iter().any(|planned| planned.tool.is_some()) {
            let batch = self.progress.batch();
            self.toolbox.batch(&self.progress, &batch).await.map_err(StepError::Toolbox)?
        } else {
            Vec::new()
        };
        let results = self.progress.results(sent).ok_or(StepError::Incomplete)?;
        let mut held = Vec::new();
        for (PlannedCall { call, .. }, result) in self.progress.calls.iter().zip(&results) {
            let (tool, status) = (&call.function.name, status_of(result));
            let error_code = error_of(result).and_then(|error| error.get("error_code")?.as_str());
            self.toolbox.show(Event::Observed { tool, status, error_code });
            if status == "pending" {
                let id = |name: &str| {
                    result.pointer(name).and_then(Value::as_str).unwrap_or_default().to_owned()
                };
                let (tool_call_id, approval_id) =
                    (id("/result/tool_call_id"), id("/result/approval_id"));
                held.push(Held { tool: tool.clone(), tool_call_id, approval_id });
            }
        }
        if !held.is_empty() {
            return Ok(Some(Outcome::Parked(held)));
        }
        self.progress.take_results(&results);
        Ok(None)
    }
}

/// The result of a call that the model may not make.
fn not_offered() -> Value {
    let message = "this tool is not offered; call only those that are";
    json!({ "status": "refused", "error": { "error_code": "TOOL_NOT_FOUND", "message": message } })
}

fn status_of(result: &Value) -> &str {
    result.get("status").and_then(Value::as_str).unwrap_or("unknown")
}

/// The error of a call, or of its place in the batch.
fn error_of(result: &Value) -> Option<&Value> {
    let error = result.pointer("/result/error").filter(|error| !error.is_null());
    error.or_else(|| result.get("error"))
}

/// What the model reads of a result.
#[derive(Serialize)]
struct Observation<'a> {
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Value>,
    /// The last member, since a long text loses its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a Value>,
}

/// A result as the model reads it, cut where it is long. A call that failed may have an output too: what the tool says went wrong.
fn observation(result: &Value) -> String {
    let present = |pointer: &str| result.pointer(pointer).filter(|value| !value.is_null());
    let output = present("/result/output/structured").or_else(|| present("/result/output"));
    let seen = Observation { status: status_of(result), error: error_of(result), output };
    serde_json::to_string(&seen).unwrap_or_default().chars().take(OBSERVATION_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use placet_chat::{FunctionCall, ToolCall};
    use serde_json::{Value, json};

    use async_trait::async_trait;

    use super::{Event, OBSERVATION_CHARS_MAX, Outcome, Progress, React, Toolbox, observation};
    use crate::schema::functions;

    fn progress(more: &Value) -> Progress {
        let mut plan = json!({ "model": { "url": "http://127.0.0.1:1/v1", "name": "m" } });
        plan.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let plan = serde_json::from_value(plan).unwrap();
        Progress::begin(plan, "Do it.", "run_1".to_owned(), String::new())
    }

    fn call(id: &str, name: &str) -> ToolCall {
        let function = FunctionCall { name: name.to_owned(), arguments: "{}".to_owned() };
        ToolCall { id: id.to_owned(), kind: "function".to_owned(), function }
    }

    /// The progress after an answer with these calls, of a run that offers `db__find` and `db__drop`.
    fn called(more: &Value, calls: Vec<ToolCall>) -> Progress {
        let mut progress = progress(more);
        let offered = ["db__find", "db__drop"].map(|name| json!({ "function": { "name": name } }));
        let functions = functions(&progress.plan, &offered);
        progress.take_answer(calls, String::new(), &functions);
        progress
    }

    #[test]
    fn a_tool_that_the_plan_does_not_describe_is_not_sent() {
        let described = json!({ "tool_descriptions": [{ "name": "find" }] });
        let calls = vec![call("a", "db__drop"), call("b", "find"), call("c", "db__find")];
        let mut progress = called(&described, calls);
        let batch = progress.batch();
        assert_eq!(batch["calls"].as_array().unwrap().len(), 1, "{batch:#}");
        assert_eq!(batch["calls"][0]["function"]["name"], "db__find");
        assert!(progress.results(Vec::new()).is_none(), "a call has no result");
        let found = json!({ "status": "succeeded" });
        assert!(progress.results(vec![found.clone(), found.clone()]).is_none());
        let results = progress.results(vec![found.clone()]).unwrap();
        let code = |place: usize| results[place]["error"]["error_code"].clone();
        assert_eq!((code(0), code(2)), (json!("TOOL_NOT_FOUND"), json!("TOOL_NOT_FOUND")));
        assert_eq!(results[1], found);
        progress.take_results(&results);
        let told = progress.messages[3].content.as_ref().unwrap();
        assert!(told.contains("TOOL_NOT_FOUND"), "{told}");
    }

    #[test]
    fn a_failed_call_is_read_with_its_own_output() {
        let output = json!({ "content": [{ "type": "text", "text": "no such city" }] });
        let error = json!({ "error_code": "ADAPTER_FAILED" });
        let failed = json!({ "status": "failed", "result": { "error": error, "output": output } });
        let seen: Value = serde_json::from_str(&observation(&failed)).unwrap();
        assert_eq!(seen, json!({ "status": "failed", "error": error, "output": output }));
        let long = json!({ "status": "failed", "result": { "error": error, "output": "x".repeat(20_000) } });
        let seen = observation(&long);
        assert_eq!(seen.chars().count(), OBSERVATION_CHARS_MAX);
        assert!(seen.starts_with("{\"status\":\"failed\",\"error\":{"), "{seen}");
    }

    #[test]
    fn ids_of_the_model_stay_in_the_conversation() {
        let long = "x".repeat(200);
        let calls = vec![call(&long, "db__find"), call("a", "db__find"), call("a", "db__drop")];
        let mut progress = called(&json!({}), calls);
        let batch = progress.batch();
        let ids: Vec<&Value> =
            batch["calls"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
        assert_eq!(ids, ["call_0_0", "call_0_1", "call_0_2"]);
        progress.take_results(&[json!({}), json!({}), json!({})]);
        assert_eq!(progress.messages[3].tool_call_id, Some(long));
    }

    #[test]
    fn an_empty_answer_is_no_answer() {
        for in_words in [true, false] {
            let mut progress = progress(&json!({ "use_function_calling": !in_words }));
            for empty in ["", " \n", "{\"answer\":\" \"}"] {
                let is_text = !in_words && empty.starts_with('{');
                assert_eq!(progress.read(Some(Vec::new()), empty).is_some(), is_text, "{empty:?}");
            }
            progress.take_misread(" ".to_owned());
            let last = progress.messages.last().unwrap();
            assert_eq!((progress.messages.len(), last.role.as_str()), (3, "user"));
        }
        let (calls, text) =
            progress(&json!({})).read(Some(vec![call("a", "db__find")]), "").unwrap();
        assert_eq!((calls.len(), text.as_str()), (1, ""));
    }

    struct NoTools;

    #[async_trait]
    impl Toolbox for NoTools {
        type Error = ();

        async fn offer(&self, _: &Progress) -> Result<Vec<Value>, ()> {
            Ok(Vec::new())
        }

        async fn batch(&self, _: &Progress, _: &Value) -> Result<Vec<Value>, ()> {
            Err(())
        }

        fn save(&mut self, _: &Progress) -> Result<(), ()> {
            Ok(())
        }

        fn show(&mut self, _: Event<'_>) {}
    }

    #[tokio::test]
    async fn a_silent_model_is_waited_for_within_the_seconds_of_the_plan() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", silent.local_addr().unwrap());
        let mut progress = progress(&json!({
            "model": { "url": url, "name": "m" }, "limits": { "seconds_max": 3 },
        }));
        progress.worked_ms = 2_900;
        let model = progress.plan.model.client(None).unwrap();
        let mut react = React::new(model, NoTools, progress);
        assert_eq!(react.run().await.unwrap(), Outcome::Bounded("seconds_max"));
        assert_eq!(react.progress().iteration, 0);
    }

    #[test]
    fn a_limit_ends_a_plan_when_no_calls_are_on_their_way() {
        let mut progress = called(&json!({}), vec![call("a", "db__find")]);
        assert!(!progress.has_ended());
        progress.tokens = progress.plan.limits.tokens_max;
        assert!(!progress.has_ended());
        progress.take_results(&[json!({})]);
        assert!(progress.has_ended());
    }
}
