//! What one dispatch takes from its run's budget and from its meters.
//!
//! Owns the record of it. Does not count: [`crate::run::RunRecord`] and [`crate::meter::Meter`] do.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use placet_types::{ids::SessionId, taint::Taint};

use crate::{
    meter::Meter,
    run::{RunKey, RunTaint},
};

/// What one dispatch takes from a run's budget, and from its meters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// The run.
    pub run: RunKey,
    /// The cost of the call in cents; it also counts as one call.
    pub cents: u64,
    /// The windows that it is counted in. A stored attempt has none: what is taken from windows is not returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<Meter>,
    /// The session that the run belongs to, if its caller names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The taint that the result of the call brings into the run's context, once it is recorded.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub brings: BTreeSet<Taint>,
}

impl Reservation {
    /// What a call of `cents` takes from the budget of `run` alone.
    pub const fn of(run: RunKey, cents: u64) -> Self {
        Self { run, cents, meters: Vec::new(), session: None, brings: BTreeSet::new() }
    }

    /// What may be returned, and the taint of the result: the reservation without its meters.
    pub fn without_meters(&self) -> Self {
        Self { meters: Vec::new(), ..self.clone() }
    }

    /// The taint that the result of the call brings into the run's context; `None` where it brings none.
    pub fn brought(&self) -> Option<RunTaint> {
        (!self.brings.is_empty()).then(|| RunTaint {
            run: self.run.clone(),
            session: self.session.clone(),
            taint: self.brings.clone(),
        })
    }
}
