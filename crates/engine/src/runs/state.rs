//! One open run.
//!
//! Owns what changes about it from turn to turn, and how its caller's requests are read. Invariant: a change is made as a whole or not at
//! all.

use std::collections::BTreeSet;

use placet_types::{
    error::{ErrorCode, Refusal},
    ids::CapabilityId,
    run_context::RunRequest,
    run_history::RunHistory,
};

use super::{
    names,
    offer::{Choice, Tools, Wanted},
    sessions::Session,
    turns::Turns,
    views::{
        CALLS_PER_BATCH_MAX, Excluded, FunctionChoice, OpenRun, TOOLS_NAMED_MAX, ToolChoice,
        ToolsChange,
    },
};

/// A run as its caller opened it, and its state since.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// The run, as each of its calls names it.
    pub(crate) request: RunRequest,
    /// Which turn of its model is next, from 1.
    pub(crate) iteration: u32,
    pub(crate) calls_per_batch_max: u32,
    pub(crate) wanted: Wanted,
    /// The tools that its calls have used.
    pub(crate) used: BTreeSet<CapabilityId>,
    /// What is to be checked in answers that use them.
    pub(crate) evaluation_checks: BTreeSet<String>,
    pub(crate) turns: Turns,
    /// The history that policies see of its calls.
    pub(crate) history: RunHistory,
    /// Set if it is a session.
    pub(crate) session: Option<Session>,
}

impl Run {
    /// A run in its first iteration.
    pub(crate) fn opened(request: OpenRun, usable: &Tools) -> Result<Self, Refusal> {
        let OpenRun { run, tools, forced_tools, tool_choice, calls_per_batch_max } = request;
        if !(1..=CALLS_PER_BATCH_MAX).contains(&calls_per_batch_max) {
            let message = format!("`calls_per_batch_max` must be 1 to {CALLS_PER_BATCH_MAX}");
            return Err(invalid("/calls_per_batch_max", message));
        }
        let chosen = all_of(usable, tools.iter().map(String::as_str), "/tools")?;
        let choice = match tool_choice {
            ToolChoice::Word(word) => Choice::Word(word),
            ToolChoice::Function(only) => {
                let name = only.function.name;
                Choice::Only(one_of(usable, &name, "/tool_choice/function/name".to_owned())?)
            }
        };
        Ok(Self {
            request: run,
            iteration: 1,
            calls_per_batch_max,
            wanted: Wanted {
                chosen,
                forced: all_of(usable, names_of(&forced_tools), "/forced_tools")?,
                excluded: BTreeSet::new(),
                added: BTreeSet::new(),
                removed: BTreeSet::new(),
                choice,
            },
            used: BTreeSet::new(),
            evaluation_checks: BTreeSet::new(),
            turns: Turns::default(),
            history: RunHistory::default(),
            session: None,
        })
    }

    /// The tools of its next turn.
    pub(crate) fn offered(&self, usable: &Tools) -> Tools {
        self.wanted.offered_at(self.iteration, usable)
    }

    /// What its model may choose of these at its next turn.
    pub(crate) fn choice(&self, offered: &Tools) -> Choice {
        self.wanted.choice_among(self.iteration, offered)
    }

    /// Forces and excludes tools, and returns for each excluded tool whether the run had it.
    pub(crate) fn change(
        &mut self,
        change: &ToolsChange,
        usable: &Tools,
    ) -> Result<Vec<Excluded>, Refusal> {
        let forced = all_of(usable, names_of(&change.force), "/force")?;
        at_most(change.exclude.len(), "/exclude")?;
        let offered = self.offered(usable);
        let mut excluded = Vec::new();
        let mut out = BTreeSet::new();
        for name in &change.exclude {
            let id = names::named(usable, name);
            if id.is_some_and(|id| forced.contains(id)) {
                let message = format!("`{name}` is to be forced and excluded");
                return Err(invalid("/exclude", message));
            }
            let was_there = id.is_some_and(|id| offered.contains_key(id) && out.insert(id.clone()));
            out.extend(id.cloned());
            excluded.push(Excluded { tool: name.clone(), was_there });
        }
        let wanted = &mut self.wanted;
        wanted.forced.retain(|id| !out.contains(id));
        wanted.excluded.extend(out);
        wanted.excluded.retain(|id| !forced.contains(id));
        wanted.forced.extend(forced);
        Ok(excluded)
    }
}

fn names_of(choices: &[FunctionChoice]) -> impl ExactSizeIterator<Item = &str> {
    choices.iter().map(|choice| choice.function.name.as_str())
}

fn all_of<'a>(
    usable: &Tools,
    names: impl ExactSizeIterator<Item = &'a str>,
    pointer: &str,
) -> Result<BTreeSet<CapabilityId>, Refusal> {
    at_most(names.len(), pointer)?;
    (0_usize..)
        .zip(names)
        .map(|(place, name)| one_of(usable, name, format!("{pointer}/{place}")))
        .collect()
}

/// The tool with this name, if the caller may use it.
fn one_of(usable: &Tools, name: &str, pointer: String) -> Result<CapabilityId, Refusal> {
    names::named(usable, name).cloned().ok_or_else(|| {
        let problem = "there is no such tool";
        Refusal::new(ErrorCode::ToolNotFound, problem).with_problem(pointer, problem)
    })
}

fn at_most(length: usize, pointer: &str) -> Result<(), Refusal> {
    if length <= TOOLS_NAMED_MAX {
        return Ok(());
    }
    Err(invalid(pointer, format!("at most {TOOLS_NAMED_MAX} tools can be named")))
}

fn invalid(pointer: &str, message: String) -> Refusal {
    Refusal::new(ErrorCode::ValidationError, message.clone()).with_problem(pointer, message)
}
