//! What a contract says about the same call arriving twice: where its token travels, how a target is probed.
//!
//! Owns the rules for `dedup`. Does not send or probe anything (adapters do). Invariant: the tool that a probe
//! calls is declared `read_only` in the same contract, and no caller can fill the argument that carries a token.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    Capability, Dedup, ensure,
    file::{DedupFile, ProbeFile, TransportFile},
};
use crate::{
    ids::CapabilityName,
    json::is_pointer,
    mode::{ApprovalMode, Effect},
};

/// Where every write over MCP carries its dispatch token: the same for every automatic retry, so servers deduplicate by it.
pub const TOKEN_META: &str = "dev.placet/idempotency-key";
/// Where every write over MCP carries the caller's own key: for finding a call, never for deduplication, as callers choose it.
pub const CALLER_KEY_META: &str = "dev.placet/caller-key";
/// Where every write over MCP has the number of its attempt.
pub const ATTEMPT_META: &str = "dev.placet/attempt";
/// Where the result of a call over MCP reports the call's cost, as a whole number of cents (TM-11).
pub const COST_META: &str = "dev.placet/cost-cents";

/// A token of the real length, for testing schemas.
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

/// Reads a capability's `dedup`, as far as it can be checked without the other capabilities: what it says, and the argument that carries
/// the token.
pub(super) fn read(
    effect: Effect,
    file: Option<&DedupFile>,
) -> Result<(Dedup, Option<String>), String> {
    match (effect, file) {
        (Effect::None, None) => Ok((Dedup::ReadOnly, None)),
        (Effect::None, Some(_)) => Err("`dedup` goes with `effect: write` only".to_owned()),
        (Effect::Write, None) => {
            Err("`effect: write` needs `dedup`; say `class: opaque` if unsure".to_owned())
        }
        (Effect::Write, Some(DedupFile::Opaque)) => Ok((Dedup::Opaque, None)),
        (Effect::Write, Some(DedupFile::Keyed { window_ms, argument, settle_delay_ms, probe })) => {
            ensure(
                (WINDOW_MS_MIN..=WINDOW_MS_MAX).contains(window_ms),
                "`dedup.window_ms` must be 1,000 to 315,360,000,000",
            )?;
            ensure(
                settle_delay_ms.is_some() == probe.is_some(),
                "`dedup.settle_delay_ms` and `dedup.probe` of a keyed tool go together",
            )?;
            check_asking(settle_delay_ms.unwrap_or_default(), probe.as_deref())?;
            check_argument(argument.as_deref())?;
            Ok((Dedup::Keyed { window_ms: *window_ms }, argument.clone()))
        }
        (Effect::Write, Some(DedupFile::Queryable { settle_delay_ms, argument, probe })) => {
            check_asking(*settle_delay_ms, probe.as_deref())?;
            check_argument(argument.as_deref())?;
            Ok((Dedup::Queryable { settle_delay_ms: *settle_delay_ms }, argument.clone()))
        }
    }
}

fn check_argument(argument: Option<&str>) -> Result<(), String> {
    argument.map_or(Ok(()), |argument| check_name("dedup.argument", argument))
}

fn check_name(place: &str, name: &str) -> Result<(), String> {
    let usable = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic());
    ensure(usable, format!("`{place}` must be 1 to {NAME_BYTES_MAX} visible ascii characters"))
}

fn check_asking(settle_delay_ms: u64, probe: Option<&ProbeFile>) -> Result<(), String> {
    ensure(
        settle_delay_ms <= SETTLE_DELAY_MS_MAX,
        "`dedup.settle_delay_ms` must be at most 86,400,000",
    )?;
    let Some(file) = probe else { return Ok(()) };
    check_name("dedup.probe.argument", &file.argument)?;
    check_pointer("dedup.probe.state", &file.state)?;
    if let Some(result) = &file.result {
        check_pointer("dedup.probe.result", result)?;
    }
    ensure(
        (PROBE_MS_MIN..=PROBE_MS_MAX).contains(&file.timeout_ms),
        "`dedup.probe.timeout_ms` must be 100 to 30,000",
    )?;
    for (key, states) in [("committed", &file.committed), ("not_found", &file.not_found)] {
        let fits = |state: &String| (1..=NAME_BYTES_MAX).contains(&state.len());
        ensure(
            (1..=STATES_MAX).contains(&states.len()) && states.iter().all(fits),
            format!("`dedup.probe.{key}` must be 1 to 32 words of 1 to {NAME_BYTES_MAX} bytes"),
        )?;
    }
    ensure(
        file.committed.is_disjoint(&file.not_found),
        "`dedup.probe`: a state cannot be both committed and not found",
    )?;
    ensure(
        !file.args.contains_key(&file.argument),
        "`dedup.probe.args` must leave out the argument that carries the token",
    )
}

fn check_pointer(place: &str, pointer: &str) -> Result<(), String> {
    ensure(
        (1..=POINTER_BYTES_MAX).contains(&pointer.len()) && is_pointer(pointer),
        format!("`{place}` must be a json pointer of 1 to 256 bytes, such as `/structured/state`"),
    )
}

/// Checks what needs the whole contract.
pub(super) fn check(
    capability: &Capability,
    transport: &TransportFile,
    capabilities: &BTreeMap<CapabilityName, Capability>,
) -> Result<(), String> {
    // A compiled-in adapter knows itself how to be probed. An endpoint whose tools the contract defines gets the token in the one place it
    // has, the header `Idempotency-Key` or the id of the message, and cannot be probed.
    let has_more = capability.probe().is_some() || capability.token_argument.is_some();
    ensure(
        transport.is_mcp() || !has_more,
        "only an MCP server is asked as a contract says: leave out `probe` and `argument`",
    )?;
    ensure(
        matches!(transport, TransportFile::Internal { .. })
            || !matches!(capability.dedup, Dedup::Queryable { .. })
            || capability.probe().is_some(),
        "`class: queryable` needs `dedup.probe`: which tool is asked, and how",
    )?;
    if let Some(argument) = &capability.token_argument {
        let properties = capability.input_schema.get("properties");
        ensure(
            properties.and_then(|all| all.get(argument)).is_none(),
            format!(
                "`{argument}` carries the token, so take it out of `input_schema`: no caller may fill it"
            ),
        )?;
    }
    capability.probe().map_or(Ok(()), |probe| check_probe(probe, capabilities))
}

/// Checks a probe: its tool is in this contract, changes nothing, and accepts the arguments.
fn check_probe(
    probe: &ProbeFile,
    capabilities: &BTreeMap<CapabilityName, Capability>,
) -> Result<(), String> {
    let tool = &probe.tool;
    let Some(target) = capabilities.get(tool) else {
        return Err(format!(
            "`dedup.probe.tool`: there is no capability `{tool}` in this contract"
        ));
    };
    ensure(
        target.dedup == Dedup::ReadOnly && target.mode_highest == ApprovalMode::ReadOnly,
        format!(
            "`dedup.probe.tool`: `{tool}` must be `mode: read_only`, as looking must have no effect"
        ),
    )?;
    let mut args = probe.args.clone();
    args.insert(probe.argument.clone(), Value::String(TOKEN_SAMPLE.to_owned()));
    let args = Value::Object(args);
    ensure(
        args.to_string().len() <= ARGS_BYTES_MAX,
        "`dedup.probe.args` is longer than 65,536 bytes",
    )?;
    // A tool whose schema cannot be enforced is quarantined and never called; it takes no other away.
    let Ok(schema) = &target.arguments else { return Ok(()) };
    schema.validate(&args).map(drop).map_err(|problems| {
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        format!("`dedup.probe.args` does not fit the schema of `{tool}`: {first}")
    })
}

#[cfg(test)]
mod tests;
