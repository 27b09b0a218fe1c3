//! The calls of one turn of a model: which of them are made.
//!
//! Owns the rules of a batch (TS-05, TS-06): pure, over the tools of the iteration. Invariant: of equal calls one is made, and if a batch
//! has a tool that takes control and any other call, none is made.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map, Value, json};

use placet_types::{
    digest::{Digest, DigestBuilder},
    error::{ErrorCode, Refusal},
    ids::CapabilityId,
    json::{JsonLimits, canonical_digest, parse_strict},
};

use super::{
    batch_views::BatchCall,
    names,
    offer::{Choice, Tool, Tools},
    views::ChoiceWord,
};

/// The most calls, copies included, that a request may have, and the longest id that a model gives one, in bytes.
const LISTED_MAX: usize = 64;
const ID_BYTES_MAX: usize = 128;

/// What a batch is checked against.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    /// The tools of the iteration.
    pub(crate) offered: Tools,
    pub(crate) choice: Choice,
    pub(crate) calls_max: usize,
}

impl Turn {
    /// Whether both are the same, with the same contracts.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let mut tools = self.offered.iter().zip(&other.offered);
        (&self.choice, self.calls_max, self.offered.len())
            == (&other.choice, other.calls_max, other.offered.len())
            && tools.all(|((id, tool), (other_id, other))| {
                id == other_id
                    && tool.is_aliased == other.is_aliased
                    && Arc::ptr_eq(&tool.capability, &other.capability)
            })
    }
}

/// One call of a batch, and what becomes of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Place {
    /// The name that the tool is called by, or what the model wrote where it is not a tool of the iteration.
    pub(crate) tool: String,
    /// The tool of the iteration, if it is one.
    pub(crate) capability: Option<CapabilityId>,
    /// The tool of the caller that is meant, offered in the iteration or not.
    pub(crate) meant: Option<CapabilityId>,
    pub(crate) args: Map<String, Value>,
    pub(crate) step: Step,
}

impl Place {
    /// Has the call made although the iteration does not offer it: it was before, and the ledger has the answer.
    pub(crate) fn make_again(&mut self) {
        self.capability.clone_from(&self.meant);
        self.step = Step::Make;
    }
}

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// It is made.
    Make,
    /// It is equal to the one at this place, and gets its result.
    CopyOf(usize),
    /// It is not made.
    Refuse(Box<Refusal>),
}

/// What is done with each call of a batch, in order. `usable` are the tools of the caller: a call of any other tool is left to the engine,
/// which refuses and audits it like every such call.
pub(crate) fn plan(
    calls: &[BatchCall],
    usable: &Tools,
    turn: &Turn,
) -> Result<Vec<Place>, Refusal> {
    check(calls)?;
    let mut places: Vec<Place> = calls.iter().map(|call| place(call, usable, turn)).collect();
    let mut first: HashMap<Digest, usize> = HashMap::new();
    for (number, place) in (0_usize..).zip(&mut places) {
        let digest = digest_of(&place.tool, &place.args, calls.get(number));
        match first.get(&digest) {
            Some(original) => place.step = Step::CopyOf(*original),
            None => drop(first.insert(digest, number)),
        }
    }
    if let Some(names) = taking_control(&places, turn) {
        refuse_all(&mut places, &names);
        return Ok(places);
    }
    let distinct = places.iter_mut().filter(|place| !matches!(place.step, Step::CopyOf(_)));
    for place in distinct.skip(turn.calls_max) {
        let message = format!(
            "not executed: the run takes {} different calls in a batch; send this one in the next",
            turn.calls_max
        );
        place.step = refusal(ErrorCode::ValidationError, message);
    }
    Ok(places)
}

/// Checks that these may be the calls of a batch.
pub(crate) fn check(calls: &[BatchCall]) -> Result<(), Refusal> {
    let invalid = |pointer: String, problem: &str| {
        Err(Refusal::new(ErrorCode::ValidationError, problem).with_problem(pointer, problem))
    };
    if calls.is_empty() || calls.len() > LISTED_MAX {
        return invalid("/calls".to_owned(), "a batch has 1 to 64 calls");
    }
    for (number, call) in (0_usize..).zip(calls) {
        let id = call.id.len();
        if id == 0 || id > ID_BYTES_MAX {
            return invalid(format!("/calls/{number}/id"), "must have 1 to 128 bytes");
        }
        let is_one = call.tool.is_some() != call.function.is_some();
        if !is_one || (call.function.is_some() && call.args.is_some()) {
            let problem = "either `tool` with `args`, or `function` with its `arguments`";
            return invalid(format!("/calls/{number}"), problem);
        }
    }
    Ok(())
}

fn place(call: &BatchCall, usable: &Tools, turn: &Turn) -> Place {
    let written = call.name();
    let offered = names::named(&turn.offered, written);
    let tool = offered.and_then(|id| turn.offered.get(id));
    let place = Place {
        tool: tool.map_or_else(|| written.to_owned(), Tool::name),
        capability: offered.cloned(),
        meant: offered.or_else(|| names::named(usable, written)).cloned(),
        args: Map::new(),
        step: Step::Make,
    };
    match arguments(call) {
        // It was never made.
        Err(problem) => {
            Place { step: refusal(ErrorCode::ValidationError, problem), meant: None, ..place }
        }
        Ok(args) => {
            let step = not_offered(written, offered, usable, turn).unwrap_or(Step::Make);
            Place { args, step, ..place }
        }
    }
}

/// Why a tool of the caller is not offered in this iteration.
fn not_offered(
    written: &str,
    offered: Option<&CapabilityId>,
    usable: &Tools,
    turn: &Turn,
) -> Option<Step> {
    match (&turn.choice, offered) {
        (Choice::Word(ChoiceWord::None), _) => Some(refusal(
            ErrorCode::ValidationError,
            "not executed: the run's `tool_choice` is `none`, so no tool is called".to_owned(),
        )),
        (Choice::Only(only), Some(id)) if only != id => Some(refusal(
            ErrorCode::ValidationError,
            format!("not executed: in this iteration only `{}` may be called", only.tool_name()),
        )),
        (_, None) if names::named(usable, written).is_some() => {
            Some(refusal(ErrorCode::ToolNotFound, NOT_OFFERED.to_owned()))
        }
        _ => None,
    }
}

/// The arguments of a call.
pub(crate) fn arguments(call: &BatchCall) -> Result<Map<String, Value>, String> {
    let Some(function) = &call.function else { return Ok(call.args.clone().unwrap_or_default()) };
    let text = if function.arguments.trim().is_empty() { "{}" } else { &function.arguments };
    match parse_strict(text.as_bytes(), &JsonLimits::default()) {
        Ok(Value::Object(args)) => Ok(args),
        Ok(_) => Err("`arguments` must be a JSON object".to_owned()),
        Err(error) => Err(format!("`arguments` is not JSON: {error}")),
    }
}

/// The digest that equal calls share. Arguments that are not JSON are equal if their text is.
fn digest_of(tool: &str, args: &Map<String, Value>, call: Option<&BatchCall>) -> Digest {
    let text = call.and_then(|call| call.function.as_ref()).filter(|_| args.is_empty());
    let text = text.map(|function| function.arguments.trim()).filter(|text| *text != "{}");
    // With another key, mode or evidence it is another call.
    let asked = call.map(|call| {
        let BatchCall { idempotency_key, approval_mode_requested, evidence_refs, .. } = call;
        json!([idempotency_key, approval_mode_requested, evidence_refs])
    });
    let asked = asked.unwrap_or_default();
    DigestBuilder::new("placet.batch_call.v1")
        .field("tool", tool)
        .field("args", canonical_digest(&Value::Object(args.clone())).as_bytes())
        .optional("text", text.filter(|text| !text.is_empty()).map(str::as_bytes))
        .field("asked", canonical_digest(&asked).as_bytes())
        .finish()
}

/// The tools that take control, if there are other calls as well.
fn taking_control(places: &[Place], turn: &Turn) -> Option<Vec<String>> {
    let distinct = || places.iter().filter(|place| !matches!(place.step, Step::CopyOf(_)));
    let mut names: Vec<String> = distinct()
        .filter(|place| takes_control(place, turn))
        .map(|place| place.tool.clone())
        .collect();
    names.dedup();
    (distinct().count() > 1 && !names.is_empty()).then_some(names)
}

fn takes_control(place: &Place, turn: &Turn) -> bool {
    let capability = place.capability.as_ref().and_then(|id| turn.offered.get(id));
    capability.is_some_and(|capability| capability.takes_control)
}

fn refuse_all(places: &mut [Place], names: &[String]) {
    let listed = format!("`{}`", names.join("`, `"));
    for place in places {
        let message = if names.contains(&place.tool) {
            format!(
                "`{}` takes control and answers the user itself, so it has to be the only call of its batch; nothing of this batch was \
                 executed. Call the other tools first, then `{}` alone",
                place.tool, place.tool
            )
        } else {
            format!(
                "not executed: {listed} must be called alone. Send this call in a batch without"
            )
        };
        place.step = refusal(ErrorCode::ControlConflict, message);
    }
}

/// Refuses what would be made with other tools than these.
pub(crate) fn narrow(places: &mut [Place], only: &Tools) {
    let is_other =
        |place: &Place| place.capability.as_ref().is_some_and(|id| !only.contains_key(id));
    for place in places.iter_mut().filter(|place| place.step == Step::Make && is_other(place)) {
        place.step = refusal(ErrorCode::ToolNotFound, NOT_OFFERED.to_owned());
    }
}

/// Why a call of a tool that the run does not offer is refused.
const NOT_OFFERED: &str = "there is no such tool in this iteration of the run";

fn refusal(code: ErrorCode, message: String) -> Step {
    Step::Refuse(Box::new(Refusal::new(code, message)))
}

#[cfg(test)]
mod tests;
