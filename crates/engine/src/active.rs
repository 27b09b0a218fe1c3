//! What is active: policies, contracts, the directory and the ways to the adapters, as one value that never changes.
//!
//! Owns what reloads together. A call takes one such value when it is built and keeps it. Invariant: what decides about a call, what it is
//! checked against and where it is sent are of the same value; dispatch refuses a permit of another epoch (decision 26).

use std::{ops::Deref, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use placet_policy::policies::Policies;
use placet_types::{
    digest::Digest,
    error::{ErrorCode, Refusal},
};

use crate::{
    adapters::ports::Ports, call::Brokered, context::Context, reload::Read,
    views::status::DiskState,
};

/// Everything that reloads.
#[derive(Debug, Clone)]
pub(crate) struct Active {
    /// What decides.
    pub(crate) policies: Arc<Policies>,
    /// The ways to the adapters of its contracts.
    pub(crate) ports: Arc<Ports>,
}

impl Deref for Active {
    type Target = Policies;

    fn deref(&self) -> &Policies {
        &self.policies
    }
}

/// Moves a call that is on its way over to what is active now, where that says the same of its tool and of its caller.
///
/// # Errors
/// [`ErrorCode::Overloaded`] where it does not: what was checked and bound under one value is not decided under another.
pub(crate) fn renew(context: &Context, stage: &mut Brokered) -> Result<(), Refusal> {
    let now = context.active();
    let before = &stage.built.active;
    if Arc::ptr_eq(&now, before) {
        return Ok(());
    }
    let chain = &stage.identity.chain;
    let target = now.catalog.resolve(chain.tenant(), &stage.binding.capability);
    let target = target.filter(|target| {
        target.contract.digest == stage.built.target.contract.digest
            && now.describes_alike(before, chain)
    });
    let Some(target) = target else {
        return Err(Refusal::new(
            ErrorCode::Overloaded,
            "the tool's contract or the caller's entry in the directory was reloaded while this call was on its way; nothing was executed; repeat it",
        )
        .with_retry_after_ms(50));
    };
    stage.built.target = target;
    stage.built.active = now;
    Ok(())
}

/// How the files stand to what is active.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    known: Mutex<Known>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    read: Option<Digest>,
    state: DiskState,
    needs_restart: Vec<String>,
}

impl Disk {
    /// The files as they were read for what is active.
    pub(crate) fn were_read(&self, read: Read) {
        let Read { fingerprint, needs_restart } = read;
        *self.lock() = Known { read: Some(fingerprint), state: DiskState::Same, needs_restart };
    }

    /// The files as they are now.
    pub(crate) fn are(&self, fingerprint: Result<Digest, String>) {
        let mut known = self.lock();
        let Some(read) = known.read else { return };
        let state = match fingerprint {
            Ok(now) if now == read => DiskState::Same,
            Ok(_) => DiskState::Differs,
            Err(_) => DiskState::Unreadable,
        };
        if state != known.state {
            tracing::info!(state = state.as_str(), "the configured files changed on disk");
        }
        known.state = state;
    }

    /// How they stand, and the keys whose change needs a restart.
    pub(crate) fn state(&self) -> (DiskState, Vec<String>) {
        let known = self.lock();
        (known.state, known.needs_restart.clone())
    }
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}
