//! `placet call`: one call of a tool, and its state.
//!
//! Owns the notation of arguments on a command line and how an answer is presented.

use std::fmt::Write as _;

use clap::Args as ClapArgs;
use http::StatusCode;
use placet_engine::submission::Submission;
use placet_types::{
    clock::IdSource as _,
    envelope::result::{ResultStatus, ToolResultEnvelope},
    error::ErrorCode,
    ids::{ChannelName, IdempotencyKey, RequestId, RunId, StepId},
    json::{JsonLimits, parse_strict},
    mode::ApprovalMode,
    run_context::{BudgetRequest, RunRequest},
    taint::Taint,
};
use serde_json::{Map, Value};

use crate::{
    client::{Client, ClientArgs, Reply},
    clock::{SystemClock, UlidSource},
    environment::Environment,
    failure::{Attempted as _, Exit, Failure, Outcome},
    output,
};

/// Call a tool.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    placet call files__list\n  \
    placet call files__write --arg path=a.txt --arg content=hello --mode local_write\n  \
    placet call files__delete --arg path=a.txt --mode destructive --wait 60\n  \
    placet call files__delete --args '{\"path\": \"a.txt\"}' --run r1 --step s1 --request q1\n\n\
    Exit codes: 0 it succeeded, 1 it failed or there was no answer, 2 usage, 4 it waits for approval, 5 it was refused, 6 its outcome is unknown.")]
pub(crate) struct Args {
    /// The tool, adapter__capability.
    tool: String,
    /// An argument: name=text, or name:=json for numbers, lists and objects.
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    arg: Vec<String>,
    /// All arguments as a JSON object; --arg adds to it.
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// The run; pass the same one to retry a call [default: a new one].
    #[arg(long)]
    run: Option<RunId>,
    /// The step of the plan; pass the same one to retry a call.
    #[arg(long, default_value = "s1")]
    step: StepId,
    /// The planner's request; pass the same one to retry a call [default: the run's name].
    #[arg(long)]
    request: Option<RequestId>,
    /// The idempotency key, under which the effect happens at most once [default: derived from run, request and step].
    #[arg(long)]
    key: Option<IdempotencyKey>,
    /// The mode that you expect the call to have: read_only, local_write, network, delegated, destructive. It is also the ceiling of a new
    /// run.
    #[arg(long)]
    mode: Option<ApprovalMode>,
    /// The run's ceiling; fixed by its first call [default: unchanged; for a new run --mode, else what the agent's class allows, else
    /// read_only].
    #[arg(long)]
    safety_mode: Option<ApprovalMode>,
    /// What the run has in its context by now: untrusted_content, secret, pii, external_egress. It stays for the rest of the run.
    #[arg(long, value_delimiter = ',', value_name = "TAINT")]
    taint: Vec<Taint>,
    /// The evidence for the call: the id of an earlier call of the same run; may be given several times.
    #[arg(long, value_name = "CALL")]
    evidence: Vec<String>,
    /// How many seconds to wait for approval.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=600))]
    wait: u64,
    /// How long the tool may take, in milliseconds; fixed by the run's first call [default: unchanged; for a new run 30000].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    latency_ms: Option<u64>,
    /// What the run may spend, in cents; fixed by its first call [default: unchanged; for a new run 0].
    #[arg(long, value_name = "CENTS")]
    budget_cents: Option<u64>,
    /// The channel for a notification of how the call ended, if it is held.
    #[arg(long, value_name = "CHANNEL")]
    callback: Option<ChannelName>,
    /// Which Placet.
    #[command(flatten)]
    client: ClientArgs,
}

/// Makes the call and prints its result or state.
pub(crate) async fn run(args: &Args, environment: &Environment) -> Outcome {
    let mut submission = submission(args)?;
    let client = Client::of(&args.client, environment)?;
    let mut reply = client.post(&["v1", "calls"], &submission).await?;
    if args.safety_mode.is_none() && has_another_ceiling(&reply) {
        // `--mode` is the ceiling of a new run only, and this one was opened before.
        submission.run.safety_mode = None;
        reply = client.post(&["v1", "calls"], &submission).await?;
    }
    if args.client.json {
        // A refused call has an envelope; if there was no call, the answer says why (TM-03).
        match reply.problem().and_then(|problem| problem.result) {
            Some(result) => output::json(&result),
            None => output::json(&reply.read::<Value>()?),
        }
        return Ok(exit_of(&reply));
    }
    tell(&reply, &submission, environment.program())
}

/// The call that a command line describes.
fn submission(args: &Args) -> Result<Submission, Failure> {
    let ids = UlidSource::new(SystemClock);
    let run_id = match &args.run {
        Some(run) => run.clone(),
        None => RunId::new(format!("run_{}", ids.fresh())).attempted("no run id could be made")?,
    };
    let request_id = match &args.request {
        Some(request) => request.clone(),
        None => RequestId::new(run_id.as_str()).attempted("no request id could be made")?,
    };
    let budget = BudgetRequest {
        calls_max: None,
        cost_cents_max: args.budget_cents,
        tool_latency_ms_max: args.latency_ms,
    };
    Ok(Submission {
        tool: args.tool.clone(),
        args: arguments(args.args.as_deref(), &args.arg)?,
        step_id: Some(args.step.clone()),
        request_id: Some(request_id),
        ordinal: 0,
        idempotency_key: args.key.clone(),
        approval_mode_requested: args.mode,
        callback: args.callback.clone(),
        wait_ms: (args.wait > 0).then(|| args.wait.saturating_mul(1_000)),
        run: RunRequest {
            run_id,
            session_id: None,
            safety_mode: args.safety_mode.or(args.mode),
            ceiling_if_new: None,
            tool_latency_ms_if_new: None,
            run_budget: budget,
            taint: args.taint.iter().copied().collect(),
        },
        evidence_refs: args.evidence.clone(),
        metadata: None,
    })
}

/// Arguments from an object and from `name=text` and `name:=json`.
pub(crate) fn arguments(
    object: Option<&str>,
    pairs: &[String],
) -> Result<Map<String, Value>, Failure> {
    let mut args = match object.map(json_of).transpose()? {
        None => Map::new(),
        Some(Value::Object(args)) => args,
        Some(_) => {
            return Err(Failure::usage(
                "`--args` must be a JSON object, such as '{\"path\": \"a.txt\"}'",
            ));
        }
    };
    for pair in pairs {
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            Failure::usage(format!("`--arg {pair}` is neither name=text nor name:=json"))
        })?;
        let (name, value) = match name.strip_suffix(':') {
            Some(name) => {
                let advice = format!("for a text write `{name}=…`, without the colon");
                (name, json_of(value).map_err(|failure| failure.try_this(advice))?)
            }
            None => (name, Value::String(value.to_owned())),
        };
        if name.is_empty() {
            return Err(Failure::usage(format!("`--arg {pair}` names no argument")));
        }
        if args.insert(name.to_owned(), value).is_some() {
            return Err(Failure::usage(format!("the argument `{name}` is there twice")));
        }
    }
    Ok(args)
}

fn json_of(text: &str) -> Result<Value, Failure> {
    parse_strict(text.as_bytes(), &JsonLimits::default())
        .map_err(|error| Failure::usage("the JSON cannot be read").because(error))
}

/// Whether the run was opened with another ceiling than the call names.
fn has_another_ceiling(reply: &Reply) -> bool {
    reply.problem().is_some_and(|problem| {
        problem.error_code == ErrorCode::ValidationError
            && problem.problems.iter().any(|problem| problem.pointer == "/run/safety_mode")
    })
}

fn exit_of(reply: &Reply) -> Exit {
    let result = match reply.problem() {
        Some(problem) => problem.result.map(|result| result.status),
        None => reply.read::<ToolResultEnvelope>().ok().map(|result| result.status),
    };
    match result {
        Some(ResultStatus::Succeeded) => Exit::Ok,
        Some(ResultStatus::Pending) => Exit::Held,
        Some(ResultStatus::Refused) => Exit::Refused,
        Some(ResultStatus::Unknown) => Exit::Unknown,
        Some(ResultStatus::Failed) | None => Exit::Findings,
    }
}

fn tell(reply: &Reply, submission: &Submission, program: &str) -> Outcome {
    if reply.status == StatusCode::ACCEPTED {
        output::line(held(&reply.read()?, submission, program));
    } else {
        let refused = |failure| hinted(failure, reply).exiting(exit_of(reply));
        let finished = reply.document().map_err(refused)?;
        output::line(self::finished(&finished));
    }
    Ok(exit_of(reply))
}

/// A refusal, with the command to use if the run's ceiling is too low for the tool.
fn hinted(failure: Failure, reply: &Reply) -> Failure {
    let is_above_ceiling = reply.problem().is_some_and(|problem| {
        problem.error_code == ErrorCode::PolicyDenied && problem.detail.contains("`safety_mode`")
    });
    if is_above_ceiling {
        return failure.try_this("begin a run that may do it: add --safety-mode with the mode that `placet tools` shows for the tool");
    }
    failure
}

/// A result as text.
fn finished(result: &ToolResultEnvelope) -> String {
    let how = match result.status {
        ResultStatus::Succeeded => "succeeded",
        ResultStatus::Failed => "failed",
        ResultStatus::Refused => "refused",
        ResultStatus::Pending => "waits",
        ResultStatus::Unknown => "outcome unknown",
    };
    let replayed =
        if result.replayed { " (the recorded result; nothing was done again)" } else { "" };
    let capability = result.capability_id.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{capability} {how}{replayed}, {} ms", result.latency.total_ms);
    for mutation in &result.mutations {
        // Writing to a string cannot fail.
        write!(text, "\n  {}: {}", mutation.action, mutation.target).unwrap_or_default();
    }
    if let Some(error) = &result.error {
        write!(text, "\n  {}: {}\n  try: {}", error.error_code, error.message, error.remediation)
            .unwrap_or_default();
    }
    if !result.output.is_null() {
        write!(text, "\n{:#}", result.output).unwrap_or_default();
    }
    text
}

/// A held call as text, with the next command.
fn held(result: &ToolResultEnvelope, submission: &Submission, program: &str) -> String {
    let Some(held) = &result.pending_approval else { return finished(result) };
    let requirement = placet_policy::explain::requirement_line(&held.requirement);
    let id = result.approval_id.as_ref().map(ToString::to_string).unwrap_or_default();
    let request = submission.request_id.as_ref().map(RequestId::as_str).unwrap_or_default();
    let step = submission.step_id.as_ref().map(StepId::as_str).unwrap_or_default();
    let (tool, until) = (&submission.tool, held.expires_at);
    let again = format!("--run {} --request {request} --step {step}", submission.run.run_id);
    if held.awaits_credential {
        return format!(
            "{tool} waits for its caller: people have agreed ({id}, until {until}), and it needs a new token\n  \
             get a new token for the same principal, and send the same call again with it: {again}",
        );
    }
    if held.unreachable {
        return format!(
            "{tool} cannot be reached: people have agreed ({id}, until {until}), and it is tried again until then\n  \
             tell the operator; the same call again collects the result: {again}",
        );
    }
    if held.state == "approved" {
        return format!(
            "{tool} has not run yet: people have agreed ({id}, until {until}), and it is tried again until then\n  \
             the same call again collects the result: {again}",
        );
    }
    format!(
        "{tool} waits for people: {requirement}\n  approval {id} ({}), until {until}\n  an approver types: {program} approvals approve {id} --reason \"…\"\n  \
         then the same call again collects the result: {again}",
        held.state,
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use placet_types::mode::ApprovalMode;
    use serde_json::json;

    use super::{arguments, held, submission};
    use crate::cli::{Cli, Command};

    fn parsed(object: Option<&str>, pairs: &[&str]) -> Result<serde_json::Value, String> {
        let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        arguments(object, &pairs)
            .map(serde_json::Value::Object)
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn arguments_are_text_or_json() {
        assert_eq!(
            parsed(None, &["a=1", "b:=1", "c=x=y", "d="]),
            Ok(json!({"a": "1", "b": 1, "c": "x=y", "d": ""}))
        );
        assert_eq!(
            parsed(Some("{\"a\": [1]}"), &["b:={\"c\": null}"]),
            Ok(json!({"a": [1], "b": {"c": null}}))
        );
    }

    #[test]
    fn malformed_and_doubled_arguments_are_refused() {
        for (object, pairs) in [
            (Some("[1]"), &[][..]),
            (Some("{\"a\":1,\"a\":2}"), &[][..]),
            (None, &["novalue"][..]),
            (None, &["=x"][..]),
            (None, &[":=1"][..]),
            (None, &["a:=nope"][..]),
            (None, &["a=1", "a=2"][..]),
            (Some("{\"a\":1}"), &["a=2"][..]),
        ] {
            assert!(parsed(object, pairs).is_err(), "{object:?} {pairs:?}");
        }
    }

    fn held_as(state: &str, awaits_credential: bool) -> String {
        let document = serde_json::from_value(json!({
            "envelope_version": "contextos.tool_result.v1", "tool_call_id": "call_1", "trace_id": "t",
            "status": "pending", "output": null, "citations": [], "mutations": [], "approval_id": "apr_1",
            "latency": { "total_ms": 0, "adapter_ms": 0 }, "retries": 0, "cost": { "cents": 0 }, "replayed": false,
            "pending_approval": {
                "state": state, "awaits_credential": awaits_credential, "expires_at": 0,
                "requirement": { "groups": { "approvers": 1 }, "quorum": 1, "expires_in_ms": 1_000, "reasons": [] },
            },
        }))
        .unwrap();
        let Command::Call(args) =
            Cli::try_parse_from("placet call t__x --run r --request q --step s".split(' '))
                .unwrap()
                .command
        else {
            panic!("it is a call")
        };
        held(&document, &submission(&args).unwrap(), "placet")
    }

    #[test]
    fn a_held_call_says_what_it_waits_for_and_what_to_do() {
        let again = "--run r --request q --step s";
        let pending = held_as("pending", false);
        assert!(
            pending.contains("waits for people") && pending.contains("approvals approve apr_1")
        );
        let caller = held_as("approved", true);
        assert!(caller.starts_with("t__x waits for its caller: people have agreed"), "{caller}");
        assert!(caller.contains("get a new token for the same principal"), "{caller}");
        let soon = held_as("approved", false);
        assert!(soon.contains("has not run yet") && soon.contains("tried again"), "{soon}");
        for text in [&caller, &soon] {
            assert!(
                !text.contains("waits for people") && !text.contains("an approver types"),
                "{text}"
            );
        }
        for text in [pending, caller, soon] {
            assert!(text.contains(again), "{text}");
        }
    }

    #[test]
    fn the_mode_is_the_ceiling_of_a_new_run_unless_told() {
        let of = |line: &str| {
            let Command::Call(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
                panic!("{line}")
            };
            submission(&args).unwrap()
        };
        assert_eq!(of("placet call t__x").run.safety_mode, None);
        assert_eq!(
            of("placet call t__x --mode network").run.safety_mode,
            Some(ApprovalMode::Network)
        );
        let call = of(
            "placet call t__x --mode network --safety-mode destructive --run r --request q --wait 2",
        );
        assert_eq!(call.run.safety_mode, Some(ApprovalMode::Destructive));
        assert_eq!((call.wait_ms, call.request_id.unwrap().as_str()), (Some(2_000), "q"));
        assert_ne!(of("placet call t__x").run.run_id, of("placet call t__x").run.run_id);
    }
}
