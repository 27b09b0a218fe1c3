//! The ledger's rules: what is recorded about an effect and an approval, which moves are legal, and how a permit becomes a
//! dispatch.
//!
//! Owns the record machines, the [`store::Store`] trait and the only maker of [`dispatch::Dispatch`]. Stores nothing itself and does no
//! I/O: `placet-store` does. Invariant: a [`dispatch::Dispatch`] exists only once its intent is recorded as durably as its class demands.

pub mod approval;
pub mod audit;
pub mod directive;
pub mod dispatch;
pub mod keys;
pub mod ledger;
pub mod log;
pub mod meter;
pub mod outbox;
pub mod parked;
pub mod policies;
pub mod proof;
pub mod record;
pub mod refusal;
pub mod reservation;
pub mod run;
pub mod store;
#[cfg(any(test, feature = "test-support"))]
pub mod testing;
