//! What a contract says about the same call arriving twice: where its token travels, how a target is asked.
//!
//! Owns the rules for `dedup`. Does not send or ask anything (adapters do). Invariant: what a probe
//! calls is declared `read_only` in the same contract, and no caller can fill the argument that carries a token.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    Capability, ContractError, Dedup,
    file::{DedupFile, ProbeFile, ResultForm, TransportFile},
};
use crate::{
    ids::{AdapterName, CapabilityName},
    mode::{ApprovalMode, Effect},
};

/// Where every write over MCP has its dispatch token: the same for every automatic retry, so this is what a server deduplicates by.
pub const TOKEN_META: &str = "dev.placet/idempotency-key";
/// Where every write over MCP has the caller's own key: to find a call by, never to deduplicate by, as callers choose it.
pub const CALLER_KEY_META: &str = "dev.placet/caller-key";
/// Where every write over MCP has the number of its attempt.
pub const ATTEMPT_META: &str = "dev.placet/attempt";
/// Where the result of a call over MCP says what the call cost, as a whole number of cents (TM-11).
pub const COST_META: &str = "dev.placet/cost-cents";

/// A token as long as every real one, to try schemas with.
const TOKEN_SAMPLE: &str = "plc_0123456789abcdef0123456789abcdef01234567";
const WINDOW_MS_MIN: u64 = 1_000;
const WINDOW_MS_MAX: u64 = 315_360_000_000;
const SETTLE_DELAY_MS_MAX: u64 = 86_400_000;
const PROBE_MS_MIN: u64 = 100;
const PROBE_MS_MAX: u64 = 30_000;
const NAME_BYTES_MAX: usize = 128;
const POINTER_BYTES_MAX: usize = 256;
const STATES_MAX: usize = 32;
const ARGS_BYTES_MAX: usize = 65_536;

/// Where the dispatch token is sent, beside the places where every write has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TokenPlace {
    /// Nowhere else.
    #[default]
    Standard,
    /// As this top-level argument.
    Argument(String),
    /// Under this further key of MCP `_meta`.
    Meta(String),
}

/// How an MCP server is asked about a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbePlan {
    /// How long after the deadline «not found» means «did not happen», in milliseconds.
    pub settle_delay_ms: u64,
    /// The tool that is called.
    pub tool: CapabilityName,
    /// Its argument that carries the token.
    pub argument: String,
    /// Its other arguments.
    pub args: Map<String, Value>,
    /// How long the answer may take, in milliseconds.
    pub timeout_ms: u64,
    /// Where the state stands in the answer.
    pub state: String,
    /// The states that say: it happened.
    pub committed: BTreeSet<String>,
    /// The states that say: the token is not known.
    pub not_found: BTreeSet<String>,
    /// Where the recorded result stands.
    pub result: Option<String>,
    /// What stands there.
    pub result_form: ResultForm,
}

/// The checked parts of `dedup`.
#[derive(Debug)]
pub(super) struct Repeating {
    pub(super) dedup: Dedup,
    pub(super) token: TokenPlace,
    pub(super) probe: Option<ProbePlan>,
}

impl Repeating {
    /// Checks what can be checked without the other capabilities.
    pub(super) fn of(effect: Effect, file: Option<DedupFile>) -> Result<Self, String> {
        match (effect, file) {
            (Effect::None, None) => Ok(Self::plain(Dedup::ReadOnly)),
            (Effect::None, Some(_)) => Err("`dedup` goes with `effect: write` only".to_owned()),
            (Effect::Write, None) => {
                Err("`effect: write` needs `dedup`; say `class: opaque` if unsure".to_owned())
            }
            (Effect::Write, Some(dedup)) => Self::of_write(dedup),
        }
    }

    const fn plain(dedup: Dedup) -> Self {
        Self { dedup, token: TokenPlace::Standard, probe: None }
    }

    fn of_write(file: DedupFile) -> Result<Self, String> {
        match file {
            DedupFile::Opaque => Ok(Self::plain(Dedup::Opaque)),
            DedupFile::Keyed { window_ms, argument, meta_key, settle_delay_ms, probe } => {
                if !(WINDOW_MS_MIN..=WINDOW_MS_MAX).contains(&window_ms) {
                    return Err("`dedup.window_ms` must be 1,000 to 315,360,000,000".to_owned());
                }
                let probe = match (settle_delay_ms, probe) {
                    (None, None) => None,
                    (Some(delay), Some(probe)) => Some(plan(*probe, delay)?),
                    (None, Some(_)) | (Some(_), None) => {
                        return Err(
                            "`dedup.settle_delay_ms` and `dedup.probe` of a keyed tool go together"
                                .to_owned(),
                        );
                    }
                };
                let token = place(argument, meta_key)?;
                Ok(Self { dedup: Dedup::Keyed { window_ms }, token, probe })
            }
            DedupFile::Queryable { settle_delay_ms, argument, meta_key, probe } => {
                check_delay(settle_delay_ms)?;
                let probe = probe.map(|probe| plan(*probe, settle_delay_ms)).transpose()?;
                let token = place(argument, meta_key)?;
                Ok(Self { dedup: Dedup::Queryable { settle_delay_ms }, token, probe })
            }
        }
    }
}

fn check_delay(settle_delay_ms: u64) -> Result<(), String> {
    if settle_delay_ms > SETTLE_DELAY_MS_MAX {
        return Err("`dedup.settle_delay_ms` must be at most 86,400,000".to_owned());
    }
    Ok(())
}

fn place(argument: Option<String>, meta_key: Option<String>) -> Result<TokenPlace, String> {
    match (argument, meta_key) {
        (None, None) => Ok(TokenPlace::Standard),
        (Some(_), Some(_)) => {
            Err("`dedup.argument` and `dedup.meta_key`: the token travels in one of them"
                .to_owned())
        }
        (Some(argument), None) => {
            check_name("dedup.argument", &argument)?;
            Ok(TokenPlace::Argument(argument))
        }
        (None, Some(key)) => {
            check_name("dedup.meta_key", &key)?;
            if is_reserved(&key) {
                return Err(format!(
                    "`dedup.meta_key`: `{key}` belongs to the protocol or to Placet"
                ));
            }
            Ok(TokenPlace::Meta(key))
        }
    }
}

fn check_name(place: &str, name: &str) -> Result<(), String> {
    let usable = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic());
    if usable {
        return Ok(());
    }
    Err(format!("`{place}` must be 1 to {NAME_BYTES_MAX} visible ascii characters"))
}

/// Keys of `_meta` with a meaning of their own: what the protocol reserves, and ours.
fn is_reserved(key: &str) -> bool {
    const PLAIN: [&str; 4] = ["progressToken", "traceparent", "tracestate", "baggage"];
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let of_protocol =
        prefix.split('.').any(|label| matches!(label, "mcp" | "modelcontextprotocol"));
    PLAIN.contains(&key) || of_protocol || prefix == "dev.placet"
}

fn plan(file: ProbeFile, settle_delay_ms: u64) -> Result<ProbePlan, String> {
    check_delay(settle_delay_ms)?;
    check_name("dedup.probe.argument", &file.argument)?;
    check_pointer("dedup.probe.state", &file.state)?;
    if let Some(result) = &file.result {
        check_pointer("dedup.probe.result", result)?;
    }
    if !(PROBE_MS_MIN..=PROBE_MS_MAX).contains(&file.timeout_ms) {
        return Err("`dedup.probe.timeout_ms` must be 100 to 30,000".to_owned());
    }
    for (key, states) in [("committed", &file.committed), ("not_found", &file.not_found)] {
        let fits = |state: &String| (1..=NAME_BYTES_MAX).contains(&state.len());
        if !(1..=STATES_MAX).contains(&states.len()) || !states.iter().all(fits) {
            return Err(format!(
                "`dedup.probe.{key}` must be 1 to {STATES_MAX} words of 1 to {NAME_BYTES_MAX} bytes"
            ));
        }
    }
    if let Some(both) = file.committed.intersection(&file.not_found).next() {
        return Err(format!("`dedup.probe`: `{both}` cannot be both committed and not found"));
    }
    if file.args.contains_key(&file.argument) {
        return Err(
            "`dedup.probe.args` must leave out the argument that carries the token".to_owned()
        );
    }
    Ok(ProbePlan {
        settle_delay_ms,
        tool: file.tool,
        argument: file.argument,
        args: file.args,
        timeout_ms: file.timeout_ms,
        state: file.state,
        committed: file.committed,
        not_found: file.not_found,
        result: file.result,
        result_form: file.result_form,
    })
}

fn check_pointer(place: &str, pointer: &str) -> Result<(), String> {
    // What follows a tilde in a pointer is a 0 or a 1.
    let escapes = pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    if pointer.starts_with('/') && pointer.len() <= POINTER_BYTES_MAX && escapes {
        return Ok(());
    }
    Err(format!(
        "`{place}` must be a json pointer such as `/structured/state`, of at most {POINTER_BYTES_MAX} bytes"
    ))
}

/// Checks what needs the whole contract.
pub(super) fn check(
    adapter: &AdapterName,
    transport: &TransportFile,
    capabilities: &BTreeMap<CapabilityName, Capability>,
) -> Result<(), ContractError> {
    let compiled_in = matches!(transport, TransportFile::Internal { .. });
    for (name, capability) in capabilities {
        let checked = check_one(capability, compiled_in, capabilities)
            .and_then(|()| check_told(capability, transport))
            .and_then(|()| capability.not_executed.check(transport));
        checked.map_err(|problem| ContractError::Rule {
            adapter: adapter.clone(),
            place: format!("capabilities.{name}"),
            problem,
        })?;
    }
    Ok(())
}

fn check_one(
    capability: &Capability,
    compiled_in: bool,
    capabilities: &BTreeMap<CapabilityName, Capability>,
) -> Result<(), String> {
    if compiled_in && (capability.probe.is_some() || capability.token != TokenPlace::Standard) {
        return Err(
            "a compiled-in adapter knows itself how it is asked: leave out `probe`, `argument` and `meta_key`"
                .to_owned(),
        );
    }
    if !compiled_in
        && matches!(capability.dedup, Dedup::Queryable { .. })
        && capability.probe.is_none()
    {
        return Err(
            "`class: queryable` needs `dedup.probe`: which tool is asked, and how".to_owned()
        );
    }
    if let TokenPlace::Argument(argument) = &capability.token
        && declares(&capability.input_schema, argument)
    {
        return Err(format!(
            "`{argument}` carries the token, so take it out of `input_schema`: no caller may fill it"
        ));
    }
    if let Some(probe) = &capability.probe {
        let mut args = probe.args.clone();
        args.insert(probe.argument.clone(), Value::String(TOKEN_SAMPLE.to_owned()));
        check_look("dedup.probe", &probe.tool, args, capabilities)?;
    }
    Ok(())
}

/// Checks that an endpoint whose tools the contract defines is told the token in the one place that it has: the header `Idempotency-Key`, or
/// the id of the message.
fn check_told(capability: &Capability, transport: &TransportFile) -> Result<(), String> {
    let has_more = capability.probe.is_some() || capability.token != TokenPlace::Standard;
    if transport.defines_its_tools() && has_more {
        return Err(
            "the token is sent in the one place that it has, and nobody is asked about it: leave out `argument`, `meta_key` and `probe`"
                .to_owned(),
        );
    }
    Ok(())
}

/// Whether a schema names `argument` among the properties of its top level.
fn declares(schema: &Value, argument: &str) -> bool {
    schema.get("properties").and_then(|properties| properties.get(argument)).is_some()
}

/// Checks a call that only looks: its tool is here, changes nothing, and takes the arguments.
fn check_look(
    place: &str,
    tool: &CapabilityName,
    args: Map<String, Value>,
    capabilities: &BTreeMap<CapabilityName, Capability>,
) -> Result<(), String> {
    let Some(target) = capabilities.get(tool) else {
        return Err(format!("`{place}.tool`: there is no capability `{tool}` in this contract"));
    };
    if target.dedup != Dedup::ReadOnly || target.mode_highest != ApprovalMode::ReadOnly {
        return Err(format!(
            "`{place}.tool`: `{tool}` must be `mode: read_only`, as looking must have no effect"
        ));
    }
    check_args(&format!("{place}.args"), target, &args)
}

fn check_args(place: &str, target: &Capability, args: &Map<String, Value>) -> Result<(), String> {
    let args = Value::Object(args.clone());
    if args.to_string().len() > ARGS_BYTES_MAX {
        return Err(format!("`{place}` is longer than {ARGS_BYTES_MAX} bytes"));
    }
    let tool = target.id.capability();
    // A tool whose schema cannot be enforced is quarantined and never called; it takes no other away.
    let Ok(schema) = &target.arguments else { return Ok(()) };
    schema.validate(&args).map(|_with_defaults| ()).map_err(|problems| {
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        format!("`{place}` does not fit the schema of `{tool}`: {first}")
    })
}

#[cfg(test)]
mod tests;
